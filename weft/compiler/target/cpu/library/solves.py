"""Systems of equations: triangular, LU-factored, tridiagonal.

BLAS reads a row-major matrix as the transposed one. So op(a) x = b is solved as the system xᵀ op(a)ᵀ = bᵀ, in the
memory of b, without copies.
"""

from __future__ import annotations

from weft.compiler.target.cpu.library.batches import plan_batched
from weft.compiler.target.cpu.library.writer import RoutineWriter, family
from weft.compiler.target.lanes import Lane, Lanes
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.llvm import Value, constant, i32, i64
from weft.ir.jaxpr import Equation

# Right-hand sides that are solved together; more are split into independent parts.
WIDTH = 256


class RightHandSides:
    """Right-hand sides of one part: `rows` times `columns` elements, and the row stride in elements."""

    def __init__(self, w: RoutineWriter, left: bool) -> None:
        f = w.f
        first = f.mul(w.part, w["width"])
        count = f.smin(f.sub(w["others"], first), w["width"])
        self.left, self.count = left, count
        if left:  # right-hand sides are columns
            self.rows, self.columns, self.stride, self.offset = w["size"], count, w["others"], first
        else:
            self.rows, self.columns, self.stride = count, w["size"], w["size"]
            self.offset = f.mul(first, w["size"])

    def row(self, w: RoutineWriter, pointer: Value, index: Value) -> Value:
        """Return the address of a row of the block."""
        return w.at(pointer, w.f.add(self.offset, w.f.mul(index, self.stride)))

    def copy(self, w: RoutineWriter, target: Value, source: Value) -> None:
        """Copy the block, unless source and target are the same."""
        with w.f.when(w.f.icmp("ne", target, source)), w.f.loop(constant(0, i64), self.rows) as n:
            w.copy(self.row(w, target, n), self.row(w, source, n), self.columns)

    def conjugate(self, w: RoutineWriter, pointer: Value) -> None:
        """Replace the block by its complex conjugate."""
        f, float = w.f, w.element.float
        align = float.bits // 8
        with f.loop(constant(0, i64), self.rows) as n:
            row = self.row(w, pointer, n)
            with f.loop(constant(0, i64), self.columns) as m:
                address = f.offset(w.at(row, m), float, 1)
                f.store(f.fneg(f.load(float, address, align)), address, align)

    def solve(self, w: RoutineWriter, a: Value, pointer: Value, *flags: Value | str) -> None:
        """Solve with a triangular matrix in place. Flags are BLAS's uplo, trans and diag."""
        sizes = (self.count, w["size"]) if self.left else (w["size"], self.count)
        one, start = w.scalar("one", 1.0), w.at(pointer, self.offset)
        side = "R" if self.left else "L"
        w.blas("trsm", side, *flags, *sizes, one, a, w["size"], start, self.stride)


def write_triangular(w: RoutineWriter, left: bool) -> None:
    """Write the x with op(a) x = b, or x op(a) = b; only one triangle of a is read."""
    (a, b), (out,) = w.operands, w.results
    block = RightHandSides(w, left)
    block.copy(w, out, b)
    conjugated = w.f.icmp("ne", w["conjugated"], constant(0, i64))
    if w.element.is_complex:  # conj(a) x = b is a conj(x) = conj(b)
        with w.f.when(conjugated):
            block.conjugate(w, out)
    block.solve(w, a, out, *(w.character(w[name]) for name in ("triangle", "transpose", "unit")))
    if w.element.is_complex:
        with w.f.when(conjugated):
            block.conjugate(w, out)


_FIELDS = ["size", "others", "width", "triangle", "transpose", "unit", "conjugated"]


@family("triangular_left", operands=2, results=1, fields=_FIELDS)
def triangular_left(w: RoutineWriter) -> None:
    """Solve op(a) x = b."""
    write_triangular(w, left=True)


@family("triangular_right", operands=2, results=1, fields=_FIELDS)
def triangular_right(w: RoutineWriter) -> None:
    """Solve x op(a) = b."""
    write_triangular(w, left=False)


def plan_triangular(equation: Equation) -> LibraryCall:
    a, b = get_arrays(equation.invars)
    left, lower, transposed, conjugated, unit = (
        equation.params[name] for name in ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    )
    size, others = a.shape[-1], b.shape[-1 if left else -2]
    conjugated = conjugated and a.dtype.kind == "c"
    fields = {
        "size": size,
        "others": others,
        "width": min(WIDTH, others),
        "triangle": ord("U" if lower else "L"),
        "transpose": ord("N" if not transposed else "C" if conjugated else "T"),
        "unit": ord("U" if unit else "N"),
        "conjugated": int(conjugated and not transposed),
    }
    parts = -(-others // fields["width"])
    routine = triangular_left if left else triangular_right
    work = size * size * fields["width"]
    return plan_batched(routine, equation, fields, work=work, parts=parts, in_place=[(1, 0)])


def _load_row(w: RoutineWriter, permutation: Value, index: Value) -> Value:
    """Load an element of the permutation, clamped to the rows of the matrix whatever its value."""
    f, size = w.f, w["size"]
    row = f.sext(f.load(i32, f.offset(permutation, i32, index), 4), i64)
    whole = f.select(f.icmp("slt", row, constant(0, i64)), f.add(row, size), row)
    return f.smin(f.smax(whole, constant(0, i64)), f.sub(size, constant(1, i64)))


@family("factored", operands=4, results=1, fields=["size", "others", "width"])
def solve_factored(w: RoutineWriter) -> None:
    """Solve a x = b with the factors of a: permute rows, then solve with L, then with U."""
    (_, lu_matrix, permutation, b), (out,) = w.operands, w.results
    block = RightHandSides(w, left=True)
    with w.f.loop(constant(0, i64), w["size"]) as n:
        w.copy(block.row(w, out, n), block.row(w, b, _load_row(w, permutation, n)), block.columns)
    block.solve(w, lu_matrix, out, "U", "N", "U")
    block.solve(w, lu_matrix, out, "L", "N", "N")


@family("factored_transposed", operands=4, results=1, scratch=["solution"], fields=["size", "others", "width"])
def solve_factored_transpose(w: RoutineWriter) -> None:
    """Solve aᵀ x = b with the factors of a: solve with Uᵀ, then with Lᵀ, then apply the inverse permutation to the
    rows."""
    (_, lu_matrix, permutation, b), (out,) = w.operands, w.results
    block, solution = RightHandSides(w, left=True), w.scratch["solution"]
    block.copy(w, solution, b)
    block.solve(w, lu_matrix, solution, "L", "T", "N")
    block.solve(w, lu_matrix, solution, "U", "T", "U")
    with w.f.loop(constant(0, i64), w["size"]) as n:
        w.copy(block.row(w, out, _load_row(w, permutation, n)), block.row(w, solution, n), block.columns)


def plan_linear_solve(equation: Equation) -> LibraryCall:
    a, _, _, b = get_arrays(equation.invars)
    size, others = a.shape[-1], b.shape[-1]
    width = min(WIDTH, others)
    routine = solve_factored_transpose if equation.params["transposed"] else solve_factored
    fields = {"size": size, "others": others, "width": width}
    scratch = {"solution": size * others * a.dtype.itemsize}
    parts = -(-others // width)
    return plan_batched(routine, equation, fields, scratch, work=2 * size * size * width, parts=parts)


# --------------------------------------------------------------------------------------------------------- tridiagonal


@family(
    "tridiagonal_solve",
    operands=4,
    results=1,
    scratch=["lower", "middle", "upper", "matrix"],
    fields=["size", "columns"],
)
def tridiagonal_solve(w: RoutineWriter) -> None:
    """Solve T x = b; the result is nan if T is singular."""
    f, (lower, middle, upper, b), (out,) = w.f, w.operands, w.results
    size, columns, matrix = w["size"], w["columns"], w.scratch["matrix"]
    fewer = f.sub(size, constant(1, i64))
    w.copy(w.scratch["lower"], w.at(lower, 1), fewer)
    w.copy(w.scratch["middle"], middle, size)
    w.copy(w.scratch["upper"], upper, fewer)
    w.transpose(matrix, size, b, columns, size, columns)
    diagonals = [w.scratch[name] for name in ("lower", "middle", "upper")]
    failed = w.lapack("gtsv", size, columns, *diagonals, matrix, size)
    w.unless(
        failed,
        lambda: w.transpose(out, columns, matrix, size, columns, size),
        lambda: w.fill_nan(out, f.mul(size, columns)),
    )


@family("tridiagonal_solve_one", operands=4, results=1, fields=["columns"])
def tridiagonal_solve_one(w: RoutineWriter) -> None:
    """Solve for matrices of one element by division: infinite or nan if it is zero."""
    f, (_, middle, _, b), (out,) = w.f, w.operands, w.results
    lanes, align = Lanes(f, 1), w.element.float.bits // 8

    def load(address: Value) -> Lane:
        parts = [f.load(w.element.float, f.offset(address, w.element.float, n), align) for n in range(w.element.parts)]
        return lanes.from_storage(parts, w.element.dtype)

    divisor = load(middle)
    with f.loop(constant(0, i64), w["columns"]) as n:
        quotient = lanes.apply("div", [load(w.at(b, n)), divisor], {})
        for i, part in enumerate(lanes.to_storage(quotient)):
            f.store(part, f.offset(w.at(out, n), w.element.float, i), align)


def plan_tridiagonal_solve(equation: Equation) -> LibraryCall:
    *_, b = get_arrays(equation.invars)
    size, columns = b.shape[-2:]
    if size == 1:
        fields = {"columns": columns}
        return plan_batched(tridiagonal_solve_one, equation, fields, work=columns, core=1, in_place=[(3, 0)])
    bytes = b.dtype.itemsize
    scratch = {"lower": size * bytes, "middle": size * bytes, "upper": size * bytes, "matrix": size * columns * bytes}
    fields = {"size": size, "columns": columns}
    return plan_batched(
        tridiagonal_solve, equation, fields, scratch, work=10 * size * columns, core=1, in_place=[(3, 0)]
    )
