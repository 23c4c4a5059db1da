"""Singular values and vectors.

LAPACK's `gesdd` reduces a square matrix to a bidiagonal one, computes the vectors of that one, and transforms them
back. For larger real matrices the last step is ours: threads share blocks of vectors, as for eigenvectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.compiler.target.cpu.library.batches import ITERATION_WORK, Work, plan_batched
from weft.compiler.target.cpu.library.hermitian import choose_multiplier, scale
from weft.compiler.target.cpu.library.merges import load, store
from weft.compiler.target.cpu.library.reflectors import (
    BUFFERS,
    REFLECTORS,
    VECTORS,
    Reflectors,
    count_blocks,
    scratch_of_blocks,
)
from weft.compiler.target.cpu.library.writer import RoutineOperations, RoutineWriter, family
from weft.compiler.target.library_call import DenseArray, LibraryCall, get_arrays
from weft.compiler.target.llvm import Value, constant, i64
from weft.ir.jaxpr import Equation

# Least size for which our own last step is used.
LEAST_STEPS = 128
# How far below the diagonal the reflectors of each side begin.
BELOW = {"left": 0, "right": 1}


def write_svd(w: RoutineWriter) -> None:
    """Write `count` singular values from index `start` on, in descending order, and their vectors, if these are
    results.

    They are nan if an element of the matrix is not finite: LAPACK may never return from a matrix with an infinity.
    """
    f, (x,), (values, *vectors) = w.f, w.operands, w.results
    rows, columns, right, start, count = (w[name] for name in ("rows", "columns", "right", "start", "count"))
    real = w.element.real

    def fail() -> None:
        w.fill_nan(values, count, real)
        if vectors:
            w.fill_nan(vectors[0], f.mul(rows, w["num left"]))
            w.fill_nan(vectors[1], f.mul(w["num right"], columns))

    def work() -> None:
        matrix, found, u, v = (w.scratch[name] for name in ("matrix", "values", "u", "v"))
        w.transpose(matrix, rows, x, columns, rows, columns)
        rest = [w.scratch["reals"]] if w.element.is_complex else []
        failed = w.lapack(
            "gesdd", w.character(w["job"]), rows, columns, matrix, rows, found, u, rows, v, right,
            w.scratch["work"], w["work size"], *rest, w.scratch["integers"],
        )  # fmt: skip

        def finish() -> None:
            w.copy(values, w.at(found, start, real.bytes), count, real.bytes)
            if vectors:
                w.transpose(vectors[0], w["num left"], w.at(u, f.mul(start, rows)), rows, w["num left"], rows)
                w.transpose(vectors[1], columns, w.at(v, start), right, columns, w["num right"])

        w.unless(failed, finish, fail)

    w.unless(f.not_(w.is_finite(x, f.mul(rows, columns))), work, fail)


_SVD: dict[str, Any] = {
    "scratch": ["matrix", "values", "u", "v", "work", "reals", "integers"],
    "fields": ["rows", "columns", "right", "num left", "num right", "start", "count", "job", "work size"],
}


@family("singular_values", operands=1, results=1, **_SVD)
def singular_values(w: RoutineWriter) -> None:
    """Compute singular values alone."""
    write_svd(w)


@family("svd", operands=1, results=3, **_SVD)
def svd(w: RoutineWriter) -> None:
    """Compute singular values, left vectors (columns) and right vectors (rows, conjugated)."""
    write_svd(w)


def _reflectors(p: RoutineOperations, captured: Mapping[str, Value], side: str) -> Reflectors:
    """Return one side's reflectors of the reduction to bidiagonal form; those of the right side are its rows."""
    matrix = captured["matrix" if side == "left" else "turned"]
    buffers = {name: captured[f"{side} {name}"] for name in BUFFERS}
    return Reflectors(p, matrix, captured[f"{side} taus"], captured["size"], BELOW[side], buffers)


def _solve(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Compute the singular values and vectors of the bidiagonal matrix (item 0), or a block of reflectors."""
    f, size, none = p.f, captured["size"], constant(0, i64)
    with f.when(f.icmp("eq", item, none)):
        nothing = captured["integers"]  # this job does not use two of the arrays
        failed = p.lapack(
            "bdsdc", "U", "I", size, captured["values"], captured["beside"], captured["u"], size, captured["v"], size,
            nothing, nothing, captured["work"], captured["integers"],
        )  # fmt: skip
        f.store(f.zext(failed, i64), captured["failed"], 8)
    block = f.sub(item, constant(1, i64))
    for side, first in (("left", none), ("right", captured["left blocks"])):
        inside = f.and_(f.icmp("sge", block, first), f.icmp("slt", block, f.add(first, captured[f"{side} blocks"])))
        with f.when(inside):
            _reflectors(p, captured, side).write_block(f.sub(block, first))


def _transform(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Transform some vectors of one side to those of the matrix."""
    f, size, count = p.f, captured["size"], captured["count"]
    is_right = f.icmp("sge", item, captured["panels"])
    begin = f.mul(f.urem(item, captured["panels"]), constant(VECTORS, i64))
    width = f.smin(f.sub(count, begin), constant(VECTORS, i64))
    first = f.add(captured["start"], begin)
    work = p.at(captured["transforms"], f.mul(item, constant(VECTORS * REFLECTORS, i64)))
    with f.when(is_right):  # the result's rows are columns here
        own = p.at(captured["right vectors"], f.mul(begin, size))
        p.transpose(own, size, p.at(captured["v"], first), size, size, width)
        _reflectors(p, captured, "right").apply(captured["right blocks"], own, width, work)
    with f.when(f.not_(is_right)):
        own = p.at(captured["u"], f.mul(first, size))
        _reflectors(p, captured, "left").apply(captured["left blocks"], own, width, work)
        p.transpose(p.at(captured["left vectors"], begin), count, own, size, width, size)


@family(
    "svd_steps",
    operands=1,
    results=3,
    scratch=[
        "matrix", "turned", "values", "beside", "left taus", "right taus", "u", "v",
        *(f"{side} {name}" for side in BELOW for name in BUFFERS), "transforms", "work", "integers",
    ],
    fields=["size", "start", "count", "left blocks", "right blocks", "panels", "work size"],
)  # fmt: skip
def svd_steps(w: RoutineWriter) -> None:
    """Compute `svd` of square real matrices, in steps that threads share."""
    f, (x,), (values, left, right) = w.f, w.operands, w.results
    size, count, none, one = w["size"], w["count"], constant(0, i64), constant(1, i64)
    area, element = f.mul(size, size), w.element.float
    matrix, found = w.scratch["matrix"], w.scratch["values"]
    magnitude = w.largest(x, area)
    failed = f.alloca(i64, align=8)
    captured = {
        **w.scratch,
        **{name: w[name] for name in w.family.fields if name != "work size"},
        "failed": failed,
        "left vectors": left,
        "right vectors": right,
    }

    def fail() -> None:
        w.fill_nan(values, count)
        w.fill_nan(left, f.mul(size, count))
        w.fill_nan(right, f.mul(count, size))

    def work() -> None:
        w.transpose(matrix, size, x, size, size, size)
        multiplier = choose_multiplier(w, magnitude)
        with f.when(f.fcmp("one", multiplier, constant(1.0, element)), unlikely=True):
            scale(w, matrix, area, multiplier)
        w.lapack(
            "gebrd", size, size, matrix, size, found, w.scratch["beside"], w.scratch["left taus"],
            w.scratch["right taus"], w.scratch["work"], w["work size"],
        )  # fmt: skip
        w.transpose(w.scratch["turned"], size, matrix, size, size, size)
        f.store(none, failed, 8)
        w.share("solve", f.add(one, f.add(w["left blocks"], w["right blocks"])), captured, _solve)

        def finish() -> None:
            w.share("transform", f.mul(w["panels"], constant(2, i64)), captured, _transform)
            with f.loop(none, count) as n, f.when(w.goes_on()):
                store(w, f.fdiv(load(w, found, f.add(w["start"], n)), multiplier), values, n)

        w.unless(f.icmp("ne", f.load(i64, failed, 8), none), finish, fail)

    w.unless(f.not_(f.fcmp("olt", magnitude, constant(float("inf"), element))), work, fail)


def _plan_steps(equation: Equation, x: DenseArray, start: int, end: int) -> LibraryCall:
    size, count = x.shape[-1], end - start
    asked = Work(x.dtype, "gebrd")
    some, work = asked.some, asked.elements()
    (work_size,) = asked.ask(size, size, some, size, some, some, some, some, work, -1, answers=[work])
    panels, bytes = -(-count // VECTORS), x.dtype.itemsize
    fields = {
        "size": size,
        "start": start,
        "count": count,
        **{f"{side} blocks": count_blocks(size, below) for side, below in BELOW.items()},
        "panels": panels,
        "work size": work_size,
    }
    scratch = {
        **dict.fromkeys(("matrix", "turned", "u", "v"), size * size * bytes),
        **dict.fromkeys(("values", "beside", "left taus", "right taus"), size * bytes),
        **{
            f"{side} {name}": room
            for side, below in BELOW.items()
            for name, room in scratch_of_blocks(size, below, bytes).items()
        },
        "transforms": 2 * panels * VECTORS * REFLECTORS * bytes,
        # Sizes from the documentation of `bdsdc`; there is no query.
        "work": max(work_size, 3 * size * size + 4 * size) * bytes,
        "integers": 8 * size * 4,
    }
    same = [(0, n) for n, t in enumerate(get_arrays(equation.outvars)) if n and t.shape == x.shape]
    return plan_batched(svd_steps, equation, fields, scratch, work=20 * size**3, in_place=same)


def plan_svd(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    results = get_arrays(equation.outvars)
    rows, columns = x.shape[-2:]
    small, large = min(rows, columns), max(rows, columns)
    start, end = equation.params["subset_by_index"] or (0, small)
    full, vectors = equation.params["full_matrices"], equation.params["compute_uv"]
    if vectors and rows == columns >= LEAST_STEPS and x.dtype.kind == "f":
        return _plan_steps(equation, x, start, end)
    job = ("A" if full else "S") if vectors else "N"
    left, right = (rows, columns) if full else (small, small)
    num_left, num_right = (results[1].shape[-1], results[2].shape[-2]) if vectors else (0, 0)
    asked = Work(x.dtype, "gesdd")
    some, work = asked.some, asked.elements()
    rest = [asked.reals()] if x.dtype.kind == "c" else []
    (work_size,) = asked.ask(
        job, rows, columns, some, rows, some, some, rows, some, right, work, -1, *rest, asked.integers(),
        answers=[work],
    )  # fmt: skip
    bytes, real = x.dtype.itemsize, asked.real.itemsize
    fields = {
        "rows": rows,
        "columns": columns,
        "right": right,
        "num left": num_left,
        "num right": num_right,
        "start": start,
        "count": end - start,
        "job": ord(job),
        "work size": work_size,
    }
    scratch = {
        "matrix": rows * columns * bytes,
        "values": small * real,
        "u": vectors * rows * left * bytes,
        "v": vectors * right * columns * bytes,
        "work": work_size * bytes,
        # Size from LAPACK's documentation; a query does not return it.
        "reals": small * max(7, 5 * small + 7, 2 * large + 2 * small + 1) * real if rest else 0,
        "integers": 8 * small * 4,
    }
    same = [(0, n) for n, t in enumerate(results) if n and t.shape == x.shape]
    cost = (20 if vectors else 4) * rows * columns * small + ITERATION_WORK
    return plan_batched(svd if vectors else singular_values, equation, fields, scratch, work=cost, in_place=same)
