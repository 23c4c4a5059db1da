"""Cholesky, LU and QR factorisations.

Our matrices are row-major and LAPACK's column-major, so LAPACK sees the transposed matrix. Cholesky works on that as
well; for the others the matrix is transposed before the call and its factors afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.target.cpu.library.batches import Work, plan_batched
from weft.compiler.target.cpu.library.writer import RoutineWriter, family
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.llvm import Value, constant, i32, i64
from weft.ir.jaxpr import Equation

# ------------------------------------------------------------------------------------------------------------ Cholesky


@family("cholesky", operands=1, results=1, fields=["size"])
def cholesky(w: RoutineWriter) -> None:
    """Compute L of x = L Lᴴ. Read by columns x is its own conjugate, and U of Uᴴ U = conj(x), read by rows, is L."""
    f, (x,), (out,) = w.f, w.operands, w.results
    size = w["size"]
    total = f.mul(size, size)
    w.copy(out, x, total)
    failed = w.lapack("potrf", "U", size, out, size)
    with f.when(failed, unlikely=True):
        w.fill_nan(out, total)
    with f.loop(constant(0, i64), size) as row:
        following = f.add(row, constant(1, i64))
        w.clear(w.at(out, f.add(f.mul(row, size), following)), f.sub(size, following))


def plan_cholesky(equation: Equation) -> LibraryCall:
    size = get_arrays(equation.invars)[0].shape[-1]
    return plan_batched(cholesky, equation, {"size": size}, work=size**3 / 3, in_place=[(0, 0)])


# ------------------------------------------------------------------------------------------------------------------ LU


@family("lu", operands=1, results=3, scratch=["matrix"], fields=["rows", "columns", "smaller"])
def lu(w: RoutineWriter) -> None:
    """Compute L and U in one matrix, the row exchanges, and the permutation that they amount to."""
    (x,), (out, pivots, permutation) = w.operands, w.results
    rows, columns, matrix = w["rows"], w["columns"], w.scratch["matrix"]
    w.transpose(matrix, rows, x, columns, rows, columns)
    w.lapack("getrf", rows, columns, matrix, rows, pivots)  # a zero pivot is not an error
    w.transpose(out, columns, matrix, rows, columns, rows)
    w.count_from_zero(pivots, w["smaller"])
    write_permutation(w, pivots, w["smaller"], permutation, rows)


def plan_lu(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    rows, columns = x.shape[-2:]
    fields = {"rows": rows, "columns": columns, "smaller": min(rows, columns)}
    scratch = {"matrix": rows * columns * x.dtype.itemsize}
    work = rows * columns * min(rows, columns)
    return plan_batched(lu, equation, fields, scratch, work=work, in_place=[(0, 0)])


def write_permutation(w: RoutineWriter, pivots: Value, count: Value, permutation: Value, size: Value) -> None:
    """Write the order of rows after exchanging row i with row pivots[i] for each i in turn.

    Negative indices count from the end; an exchange with a row that does not exist is ignored.
    """
    f = w.f
    with f.loop(constant(0, i64), size) as n:
        f.store(f.trunc(n, i32), f.offset(permutation, i32, n), 4)
    with f.loop(constant(0, i64), count) as n:
        index = f.sext(f.load(i32, f.offset(pivots, i32, n), 4), i64)
        other = f.select(f.icmp("slt", index, constant(0, i64)), f.add(index, size), index)
        with f.when(f.icmp("ult", other, size)):
            here, there = f.offset(permutation, i32, n), f.offset(permutation, i32, other)
            first, second = f.load(i32, here, 4), f.load(i32, there, 4)
            f.store(second, here, 4)
            f.store(first, there, 4)


@family("permutation", operands=1, results=1, fields=["count", "size"])
def permutation(w: RoutineWriter) -> None:
    """Compute the permutation of row exchanges. It only uses integers, so the routine's dtype does not matter."""
    write_permutation(w, w.operands[0], w["count"], w.results[0], w["size"])


def plan_permutation(equation: Equation) -> LibraryCall:
    (pivots,), (order,) = get_arrays(equation.invars), get_arrays(equation.outvars)
    count, size = pivots.shape[-1], order.shape[-1]
    fields = {"count": count, "size": size}
    return plan_batched(permutation, equation, fields, work=2 * (count + size), core=1, dtype=np.dtype(np.float32))


# ------------------------------------------------------------------------------------------------------------------ QR


def write_qr(w: RoutineWriter, pivoting: bool) -> None:
    """Write R first, from the upper triangle; then Q in the same memory."""
    f, (x,), (q, r, *order) = w.f, w.operands, w.results
    rows, columns, inner, smaller = w["rows"], w["columns"], w["inner"], w["smaller"]
    matrix, taus, work = w.scratch["matrix"], w.scratch["taus"], w.scratch["work"]
    w.transpose(matrix, rows, x, columns, rows, columns)
    if pivoting:
        w.clear(order[0], columns, size=4)  # all columns are free to be permuted
        rest = [w.scratch["reals"]] if w.element.is_complex else []
        w.lapack("geqp3", rows, columns, matrix, rows, order[0], taus, work, w["work size"], *rest)
        w.count_from_zero(order[0], columns)
    else:
        w.lapack("geqrf", rows, columns, matrix, rows, taus, work, w["work size"])
    w.transpose(r, columns, matrix, rows, columns, inner)
    with f.loop(constant(0, i64), inner) as row:
        w.clear(w.at(r, f.mul(row, columns)), f.smin(row, columns))
    w.lapack("orgqr", rows, inner, smaller, matrix, rows, taus, work, w["work size"])
    w.transpose(q, inner, matrix, rows, inner, rows)


_QR: dict[str, Any] = {
    "scratch": ["matrix", "taus", "work"],
    "fields": ["rows", "columns", "inner", "smaller", "work size"],
}
_PIVOTED = {**_QR, "scratch": [*_QR["scratch"], "reals"]}


@family("qr", operands=1, results=2, **_QR)
def qr(w: RoutineWriter) -> None:
    """Compute Q with orthonormal columns and the triangular R, x = Q R."""
    write_qr(w, pivoting=False)


@family("qr_pivoted", operands=1, results=3, **_PIVOTED)
def pivoted_qr(w: RoutineWriter) -> None:
    """Compute Q, R and the order of columns, x[:, order] = Q R."""
    write_qr(w, pivoting=True)


def plan_qr(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    results = get_arrays(equation.outvars)
    pivoting = equation.params["pivoting"]
    rows, columns = x.shape[-2:]
    inner, smaller = results[0].shape[-1], min(rows, columns)
    factorize, multiply = Work(x.dtype, "geqp3" if pivoting else "geqrf"), Work(x.dtype, "orgqr")
    answer = factorize.elements()
    some = factorize.some
    order = [some] if pivoting else []
    rest = [factorize.reals()] if pivoting and x.dtype.kind == "c" else []
    first = factorize.ask(rows, columns, some, rows, *order, some, answer, -1, *rest, answers=[answer])
    second = multiply.ask(rows, inner, smaller, some, rows, some, answer, -1, answers=[answer])
    size, bytes = max(first[0], second[0]), x.dtype.itemsize
    fields = {"rows": rows, "columns": columns, "inner": inner, "smaller": smaller, "work size": size}
    scratch = {
        "matrix": rows * max(columns, inner) * bytes,
        "taus": smaller * bytes,
        "work": size * bytes,
        "reals": 2 * columns * bytes,
    }
    same = [(0, n) for n, t in enumerate(results[:2]) if t.shape == x.shape]
    routine = pivoted_qr if pivoting else qr
    return plan_batched(routine, equation, fields, scratch, work=4 * rows * columns * smaller, in_place=same)


@family("geqrf", operands=1, results=2, scratch=["matrix", "work"], fields=["rows", "columns", "work size"])
def geqrf(w: RoutineWriter) -> None:
    """Compute R with the reflectors below its diagonal, and the reflectors' coefficients tau."""
    (x,), (out, taus) = w.operands, w.results
    rows, columns, matrix = w["rows"], w["columns"], w.scratch["matrix"]
    w.transpose(matrix, rows, x, columns, rows, columns)
    w.lapack("geqrf", rows, columns, matrix, rows, taus, w.scratch["work"], w["work size"])
    w.transpose(out, columns, matrix, rows, columns, rows)


def plan_geqrf(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    rows, columns = x.shape[-2:]
    asked = Work(x.dtype, "geqrf")
    answer = asked.elements()
    (size,) = asked.ask(rows, columns, asked.some, rows, asked.some, answer, -1, answers=[answer])
    fields = {"rows": rows, "columns": columns, "work size": size}
    scratch = {"matrix": rows * columns * x.dtype.itemsize, "work": size * x.dtype.itemsize}
    work = 2 * rows * columns * min(rows, columns)
    return plan_batched(geqrf, equation, fields, scratch, work=work, in_place=[(0, 0)])
