"""Eigenvalues of general matrices, and reductions of matrices: Schur, Hessenberg, tridiagonal.

Matrices are transposed before LAPACK is called and its results afterwards, as NumPy and SciPy do, so that signs and
phases of vectors agree with theirs.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.target.cpu.library.batches import ITERATION_WORK, Work, plan_batched
from weft.compiler.target.cpu.library.writer import RoutineWriter, family
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.llvm import Value, constant, i64, ptr as pointer, zero
from weft.ir.jaxpr import Equation


@family(
    "tridiagonal",
    operands=1,
    results=4,
    scratch=["matrix", "work"],
    fields=["size", "triangle", "work size"],
)
def tridiagonal(w: RoutineWriter) -> None:
    """Compute the tridiagonal form with its reflectors in one matrix, the diagonal, the off-diagonal, and the
    reflectors' coefficients tau."""
    (x,), (out, diagonal, beside, taus) = w.operands, w.results
    size, matrix = w["size"], w.scratch["matrix"]
    w.transpose(matrix, size, x, size, size, size)
    triangle = w.character(w["triangle"])
    w.lapack("sytrd", triangle, size, matrix, size, diagonal, beside, taus, w.scratch["work"], w["work size"])
    w.transpose(out, size, matrix, size, size, size)


def plan_tridiagonal(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    size = x.shape[-1]
    triangle = "L" if equation.params["lower"] else "U"
    asked = Work(x.dtype, "sytrd")
    some, work = asked.some, asked.elements()
    (work_size,) = asked.ask(triangle, size, some, size, some, some, some, work, -1, answers=[work])
    fields = {"size": size, "triangle": ord(triangle), "work size": work_size}
    scratch = {"matrix": size * size * x.dtype.itemsize, "work": work_size * x.dtype.itemsize}
    return plan_batched(tridiagonal, equation, fields, scratch, work=4 * size**3 / 3, in_place=[(0, 0)])


def write_eig(w: RoutineWriter, left: bool, right: bool) -> None:
    """Write eigenvalues and the requested vectors, as complex numbers; nan if an element of the matrix is not
    finite."""
    f, (x,), (values, *vectors) = w.f, w.operands, w.results
    size = w["size"]
    total = f.mul(size, size)
    complex_type = w.element if w.element.is_complex else w.element.complex

    def fail() -> None:
        w.fill_nan(values, size, complex_type)
        for result in vectors:
            w.fill_nan(result, total, complex_type)

    def work() -> None:
        matrix = w.scratch["matrix"]
        w.transpose(matrix, size, x, size, size, size)
        found = [w.scratch["real parts"], w.scratch["imaginary parts"]]
        sides = [w.scratch["left"], size, w.scratch["right"], size]
        first = ("V" if left else "N", "V" if right else "N", size, matrix, size)
        space = (w.scratch["work"], w["work size"])
        if w.element.is_complex:
            failed = w.lapack("geev", *first, values, *sides, *space, w.scratch["reals"])
        else:
            failed = w.lapack("geev", *first, *found, *sides, *space)
        sources = [w.scratch["left"]] * left + [w.scratch["right"]] * right

        def finish() -> None:
            if w.element.is_complex:
                for result, source in zip(vectors, sources, strict=True):
                    w.transpose(result, size, source, size, size, size)
                return
            with f.loop(constant(0, i64), size) as n:
                _store_pair(w, w.at(values, n, complex_type.bytes), *(_real(w, part, n) for part in found))
            for result, source in zip(vectors, sources, strict=True):
                _write_pairs(w, result, source, found[1], size)

        w.unless(failed, finish, fail)

    w.unless(f.not_(w.is_finite(x, total)), work, fail)


def _real(w: RoutineWriter, values: Value, index: Value) -> Value:
    real = w.element.float
    return w.f.load(real, w.f.offset(values, real, index), real.bits // 8)


def _store_pair(w: RoutineWriter, address: Value, real: Value, imaginary: Value) -> None:
    align = real.type.bits // 8
    w.f.store(real, address, align)
    w.f.store(imaginary, w.f.offset(address, real.type, 1), align)


def _write_pairs(w: RoutineWriter, target: Value, source: Value, imaginary: Value, size: Value) -> None:
    """Write eigenvectors as complex numbers. For a pair of conjugate eigenvalues (the one with positive imaginary
    part first), LAPACK returns the real part of the first vector and then its imaginary part."""
    f = w.f
    nothing = constant(0.0, w.element.float)
    with f.loop(constant(0, i64), size) as row, f.loop(constant(0, i64), size) as column:
        sign = _real(w, imaginary, column)
        first, second = f.fcmp("ogt", sign, nothing), f.fcmp("olt", sign, nothing)
        real_column = f.sub(column, f.zext(second, i64))
        real = _real(w, source, f.add(f.mul(real_column, size), row))
        other = _real(w, source, f.add(f.mul(f.add(column, f.zext(first, i64)), size), row))
        part = f.select(first, other, f.select(second, f.fneg(other), nothing))
        index = f.add(f.mul(row, size), column)
        _store_pair(w, w.at(target, index, 2 * w.element.bytes), real, part)


_EIG: dict[str, Any] = {
    "scratch": ["matrix", "real parts", "imaginary parts", "left", "right", "work", "reals"],
    "fields": ["size", "work size"],
}


@family("eig", operands=1, results=1, **_EIG)
def eig(w: RoutineWriter) -> None:
    """Compute eigenvalues."""
    write_eig(w, left=False, right=False)


@family("eig_left", operands=1, results=2, **_EIG)
def eig_left(w: RoutineWriter) -> None:
    """Compute eigenvalues and left eigenvectors."""
    write_eig(w, left=True, right=False)


@family("eig_right", operands=1, results=2, **_EIG)
def eig_right(w: RoutineWriter) -> None:
    """Compute eigenvalues and right eigenvectors."""
    write_eig(w, left=False, right=True)


@family("eig_both", operands=1, results=3, **_EIG)
def eig_both(w: RoutineWriter) -> None:
    """Compute eigenvalues, left and right eigenvectors."""
    write_eig(w, left=True, right=True)


def plan_eig(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    size = x.shape[-1]
    left, right = (equation.params[f"compute_{side}_eigenvectors"] for side in ("left", "right"))
    asked = Work(x.dtype, "geev")
    some, work = asked.some, asked.elements()
    jobs = ("V" if left else "N", "V" if right else "N")
    values, rest = ([some], [asked.reals()]) if x.dtype.kind == "c" else ([some, some], [])
    (work_size,) = asked.ask(
        *jobs, size, some, size, *values, some, size, some, size, work, -1, *rest, answers=[work]
    )  # fmt: skip
    bytes, real = x.dtype.itemsize, asked.real.itemsize
    scratch = {
        "matrix": size * size * bytes,
        "real parts": size * real,
        "imaginary parts": size * real,
        "left": left * size * size * bytes,
        "right": right * size * size * bytes,
        "work": work_size * bytes,
        "reals": 2 * size * real,
    }
    routines = {(False, False): eig, (True, False): eig_left, (False, True): eig_right, (True, True): eig_both}
    same = [(0, n) for n in range(1, 1 + left + right)] if x.dtype.kind == "c" else []
    chosen = routines[bool(left), bool(right)]
    fields = {"size": size, "work size": work_size}
    cost = (25 if left or right else 10) * size**3 + ITERATION_WORK
    return plan_batched(chosen, equation, fields, scratch, work=cost, in_place=same)


def write_schur(w: RoutineWriter, vectors: bool) -> None:
    """Write the Schur form and, if `vectors`, the unitary Schur vectors; nan if an element of the matrix is not
    finite."""
    f, (x,) = w.f, w.operands
    size, matrix = w["size"], w.scratch["matrix"]
    total = f.mul(size, size)

    def fail() -> None:
        for result in w.results:
            w.fill_nan(result, total)

    def work() -> None:
        w.transpose(matrix, size, x, size, size, size)
        values = w.scratch["values"]
        parts = [values] if w.element.is_complex else [values, w.at(values, size)]
        rest = [w.scratch["reals"]] if w.element.is_complex else []
        # Job "N": no eigenvalue is selected, so LAPACK uses neither the callback nor the array of flags.
        failed = w.lapack(
            "gees", "V" if vectors else "N", "N", zero(pointer), size, matrix, size, 0, *parts,
            w.scratch["vectors"], size, w.scratch["work"], w["work size"], *rest, zero(pointer),
        )  # fmt: skip

        def finish() -> None:
            for result, source in zip(w.results, (matrix, w.scratch["vectors"]), strict=False):
                w.transpose(result, size, source, size, size, size)

        w.unless(failed, finish, fail)

    w.unless(f.not_(w.is_finite(x, total)), work, fail)


_SCHUR: dict[str, Any] = {
    "scratch": ["matrix", "vectors", "values", "work", "reals"],
    "fields": ["size", "work size"],
}


@family("schur", operands=1, results=1, **_SCHUR)
def schur(w: RoutineWriter) -> None:
    """Compute the Schur form alone."""
    write_schur(w, vectors=False)


@family("schur_vectors", operands=1, results=2, **_SCHUR)
def schur_vectors(w: RoutineWriter) -> None:
    """Compute the Schur form and the Schur vectors."""
    write_schur(w, vectors=True)


def plan_schur(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    size, vectors = x.shape[-1], equation.params["compute_schur_vectors"]
    asked = Work(x.dtype, "gees")
    some, work = asked.some, asked.elements()
    values, rest = ([some], [asked.reals()]) if x.dtype.kind == "c" else ([some, some], [])
    (work_size,) = asked.ask(
        "V" if vectors else "N", "N", None, size, some, size, 0, *values, some, size, work, -1, *rest, None,
        answers=[work],
    )  # fmt: skip
    bytes = x.dtype.itemsize
    scratch = {
        "matrix": size * size * bytes,
        "vectors": vectors * size * size * bytes,
        "values": 2 * size * bytes,
        "work": work_size * bytes,
        "reals": size * asked.real.itemsize,
    }
    chosen = schur_vectors if vectors else schur
    same = [(0, n) for n in range(1 + vectors)]
    fields = {"size": size, "work size": work_size}
    cost = (25 if vectors else 10) * size**3 + ITERATION_WORK
    return plan_batched(chosen, equation, fields, scratch, work=cost, in_place=same)


@family("hessenberg", operands=1, results=2, scratch=["matrix", "work"], fields=["size", "work size"])
def hessenberg(w: RoutineWriter) -> None:
    """Compute the Hessenberg form with the reflectors below it, and the reflectors' coefficients tau."""
    (x,), (out, taus) = w.operands, w.results
    size, matrix = w["size"], w.scratch["matrix"]
    w.transpose(matrix, size, x, size, size, size)
    w.lapack("gehrd", size, 1, size, matrix, size, taus, w.scratch["work"], w["work size"])
    w.transpose(out, size, matrix, size, size, size)


def plan_hessenberg(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    size = x.shape[-1]
    asked = Work(x.dtype, "gehrd")
    some, work = asked.some, asked.elements()
    (work_size,) = asked.ask(size, 1, size, some, size, some, work, -1, answers=[work])
    fields = {"size": size, "work size": work_size}
    scratch = {"matrix": size * size * x.dtype.itemsize, "work": work_size * x.dtype.itemsize}
    return plan_batched(hessenberg, equation, fields, scratch, work=10 * size**3 / 3, in_place=[(0, 0)])
