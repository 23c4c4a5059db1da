"""Singular values and vectors."""

from __future__ import annotations

from typing import Any

from weft.compiler.target.cpu.library.batches import ITERATION_WORK, Work, batched
from weft.compiler.target.cpu.library.writer import Writer, family
from weft.compiler.target.library_call import LibraryCall, arrays_of
from weft.ir.jaxpr import Equation


def write_svd(w: Writer) -> None:
    """The values numbered `start` and following, from large to small, and their vectors, if these are results.

    They are nan if an element of the matrix is not finite: LAPACK may never come back from one with an infinity.
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
def singular_values(w: Writer) -> None:
    """Singular values alone."""
    write_svd(w)


@family("svd", operands=1, results=3, **_SVD)
def svd(w: Writer) -> None:
    """Singular values, left vectors (columns) and right ones (rows, conjugated)."""
    write_svd(w)


def plan_svd(equation: Equation) -> LibraryCall:
    (x,) = arrays_of(equation.invars)
    results = arrays_of(equation.outvars)
    rows, columns = x.shape[-2:]
    small, large = min(rows, columns), max(rows, columns)
    start, end = equation.params["subset_by_index"] or (0, small)
    full, vectors = equation.params["full_matrices"], equation.params["compute_uv"]
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
        # What LAPACK's description asks for; a query does not tell.
        "reals": small * max(7, 5 * small + 7, 2 * large + 2 * small + 1) * real if rest else 0,
        "integers": 8 * small * 4,
    }
    same = [(0, n) for n, t in enumerate(results) if n and t.shape == x.shape]
    cost = (20 if vectors else 4) * rows * columns * small + ITERATION_WORK
    return batched(svd if vectors else singular_values, equation, fields, scratch, work=cost, in_place=same)
