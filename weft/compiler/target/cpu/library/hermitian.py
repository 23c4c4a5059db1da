"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices.

Matrices are transposed before LAPACK is called and its results afterwards, as NumPy and SciPy do, so that signs and
phases of vectors agree with theirs.

LAPACK's `syevd` reduces a matrix to a tridiagonal one, divides that into halves recursively, merges the eigenvectors of
two halves to those of the whole, and transforms them back. It uses threads only inside of single matmuls, where we do
not allow them (`guard`). So larger matrices take the same algorithm in steps of our own: threads share parts of the
tridiagonal matrix, blocks of merges (`merges`), and blocks of eigenvectors. The result of a step does not depend on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.compiler.target.cpu.library.batches import ITERATION_WORK, Work, plan_batched
from weft.compiler.target.cpu.library.merges import (
    COUNTS,
    MERGES,
    integers_of_merges,
    load,
    merge_level,
    note,
    part,
    store,
    work_of_merges,
)
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
from weft.compiler.target.llvm import Value, constant, i32, i64
from weft.ir.jaxpr import Equation

# Least size for which our own steps are used.
LEAST_STEPS = 128
# Number of matrices into which the tridiagonal one is divided: a merge takes two.
PARTS = 2 * MERGES


def _fail(w: RoutineWriter) -> None:
    w.fill_nan(w.results[0], w.f.mul(w["size"], w["count"]))
    w.fill_nan(w.results[1], w["count"], w.element.real)


@family(
    "eigh",
    operands=1,
    results=2,
    scratch=["matrix", "values", "work", "reals", "integers"],
    fields=["size", "triangle", "start", "count", "work size", "real size", "integer size"],
)
def eigh(w: RoutineWriter) -> None:
    """Compute `count` eigenvectors and eigenvalues from index `start` on; nan if an element of the matrix is not
    finite."""
    f, (x,), (vectors, values) = w.f, w.operands, w.results
    size, start, count = w["size"], w["start"], w["count"]

    def work() -> None:
        matrix, found = w.scratch["matrix"], w.scratch["values"]
        w.transpose(matrix, size, x, size, size, size)
        reals = [w.scratch["reals"], w["real size"]] if w.element.is_complex else []
        failed = w.lapack(
            "syevd", "V", w.character(w["triangle"]), size, matrix, size, found,
            w.scratch["work"], w["work size"], *reals, w.scratch["integers"], w["integer size"],
        )  # fmt: skip

        def finish() -> None:
            w.transpose(vectors, count, w.at(matrix, f.mul(start, size)), size, count, size)
            real = w.element.real.bytes
            w.copy(values, w.at(found, start, real), count, real)

        w.unless(failed, finish, lambda: _fail(w))

    w.unless(f.not_(w.is_finite(x, f.mul(size, size))), work, lambda: _fail(w))


# ------------------------------------------------------------------------------------------------- parallel steps


def _range(float_type: Any) -> tuple[float, float]:
    """Return the magnitudes between which squares neither overflow nor lose digits, as LAPACK defines them."""
    limits = np.finfo(float_type)
    small = float(limits.tiny) / float(limits.eps)
    return float(np.sqrt(small)), float(np.sqrt(1 / small))


def scale(p: RoutineOperations, reals: Value, count: Value, multiplier: Value) -> None:
    """Multiply `count` real numbers in place."""
    with p.f.loop(constant(0, i64), count) as n:
        store(p, p.f.fmul(load(p, reals, n), multiplier), reals, n)


def choose_multiplier(w: RoutineWriter, found: Value) -> Value:
    """Return the factor for the matrix that brings its largest magnitude, `found`, into LAPACK's safe range for
    squares."""
    f, element = w.f, w.element.float
    low, high = (constant(bound, element) for bound in _range(w.element.real.dtype))
    small = f.and_(f.fcmp("olt", found, low), f.fcmp("ogt", found, constant(0.0, element)))
    bound = f.select(small, low, f.select(f.fcmp("ogt", found, high), high, found))
    return f.select(f.fcmp("oeq", bound, found), constant(1.0, element), f.fdiv(bound, found))


def _solve(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Compute the eigenvalues and eigenvectors of one part, sorted."""
    f, real = p.f, RoutineOperations(p.f, p.element.real)
    size = captured["size"]
    start, length = part(f, size, item, MERGES.bit_length())
    corner = f.mul(start, f.add(size, constant(1, i64)))
    status = real.lapack(
        "stedc", "I", length, real.at(captured["diagonal"], start), real.at(captured["beside"], start),
        real.at(captured["vectors"], corner), size,
        real.at(captured["work"], f.mul(item, captured["part work"])), captured["part work"],
        f.offset(captured["integers"], i32, f.mul(item, captured["part integers"])), captured["part integers"],
    )  # fmt: skip
    note(p, status, captured, item)
    with f.loop(constant(0, i64), length) as n:
        position = f.offset(captured["order"], i32, f.add(start, n))
        f.store(f.trunc(f.add(n, constant(1, i64)), i32), position, 4)


def _sort(w: RoutineWriter, diagonal: Value, order: Value, size: Value) -> None:
    """Sort the positions of eigenvalues by an insertion sort. Apart from rounding errors they are in order, so each
    moves past few others, if any."""
    f, none, one = w.f, constant(0, i64), constant(1, i64)

    def load_value(position: Value) -> Value:
        return load(w, diagonal, f.sub(f.sext(position, i64), one))

    with f.loop(one, size) as n:
        position = f.load(i32, f.offset(order, i32, n), 4)
        key = load_value(position)
        with f.repeat(n) as region:
            (free,) = region.values
            inside = f.icmp("sgt", free, none)
            before = f.load(i32, f.offset(order, i32, f.smax(f.sub(free, one), none)), 4)
            larger = f.and_(inside, f.fcmp("ogt", load_value(before), key))
            with f.when(larger):
                f.store(before, f.offset(order, i32, free), 4)
            region.again(larger, f.sub(free, one))
        f.store(position, f.offset(order, i32, free), 4)


def _reflectors(p: RoutineOperations, captured: Mapping[str, Value]) -> Reflectors:
    """Return the reflectors of the reduction to tridiagonal form."""
    return Reflectors(p, captured["matrix"], captured["taus"], captured["size"], 1, captured)


def _transform(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Transform a block of the tridiagonal matrix's eigenvectors, in order, to those of the matrix."""
    f, size, one = p.f, captured["size"], constant(1, i64)
    begin = f.mul(item, constant(VECTORS, i64))
    width = f.smin(f.sub(captured["count"], begin), constant(VECTORS, i64))
    own = p.at(captured["panels"], f.mul(begin, size))
    real = p.element.real.bytes
    with f.loop(constant(0, i64), width) as n:
        position = f.offset(captured["order"], i32, f.add(f.add(captured["start"], begin), n))
        column = f.sub(f.sext(f.load(i32, position, 4), i64), one)
        source, target = p.at(captured["vectors"], f.mul(column, size), real), p.at(own, f.mul(n, size))
        if p.element.is_complex:
            with f.loop(constant(0, i64), size) as row:
                parts = f.mul(row, constant(2, i64))
                store(p, load(p, source, row), target, parts)
                store(p, constant(0.0, p.element.float), target, f.add(parts, one))
        else:
            p.copy(target, source, size)
    work = p.at(captured["transforms"], f.mul(item, constant(VECTORS * REFLECTORS, i64)))
    _reflectors(p, captured).apply(captured["blocks"], own, width, work)
    p.transpose(p.at(captured["results"], begin), captured["count"], own, size, width, size)


@family(
    "eigh_steps",
    operands=1,
    results=2,
    scratch=[
        "matrix", "diagonal", "beside", "taus", "vectors", *BUFFERS, "panels", "transforms", "reduction", "work",
        "order", "integers",
    ],
    fields=[
        "size", "start", "count", "blocks", "panels", "reduction size", "part work", "part integers",
    ],
)  # fmt: skip
def eigh_steps(w: RoutineWriter) -> None:
    """Compute `eigh` from the lower triangle, in steps that threads share."""
    f, (x,), (vectors, values) = w.f, w.operands, w.results
    size, none, one = w["size"], constant(0, i64), constant(1, i64)
    element, real = w.element.float, RoutineOperations(f, w.element.real)
    matrix, diagonal, beside = w.scratch["matrix"], w.scratch["diagonal"], w.scratch["beside"]
    failed = f.alloca(i64, PARTS, 8)
    magnitude = w.largest(x, f.mul(size, size))
    captured = {
        **w.scratch,
        **{name: w[name] for name in w.family.fields if name != "panels"},
        "failed": failed,
        "counts": f.alloca(i64, MERGES * COUNTS, 8),
        "results": vectors,
    }

    def has_failed() -> Value:
        total = f.load(i64, failed, 8)
        for n in range(1, PARTS):
            total = f.or_(total, f.load(i64, f.offset(failed, i64, n), 8))
        return f.icmp("ne", total, none)

    def work() -> None:
        w.transpose(matrix, size, x, size, size, size)
        multiplier = choose_multiplier(w, magnitude)
        with f.when(f.fcmp("one", multiplier, constant(1.0, element)), unlikely=True):
            scale(w, matrix, f.mul(f.mul(size, size), constant(w.element.parts, i64)), multiplier)
        off = f.sub(size, one)
        w.lapack(
            "sytrd", "L", size, matrix, size, diagonal, beside, w.scratch["taus"],
            w.scratch["reduction"], w["reduction size"],
        )  # fmt: skip
        magnitudes = [real.largest(diagonal, size), real.largest(beside, off)]
        larger = f.select(f.fcmp("ogt", *magnitudes), *magnitudes)
        norm = f.select(f.fcmp("oeq", larger, constant(0.0, element)), constant(1.0, element), larger)
        inverse = f.fdiv(constant(1.0, element), norm)
        scale(w, diagonal, size, inverse)
        scale(w, beside, off, inverse)
        # Without the elements that join them the parts are independent matrices, after subtracting these on both sides.
        for item in range(1, PARTS):
            cut, _ = part(f, size, constant(item, i64), MERGES.bit_length())
            before = f.sub(cut, one)
            joint = f.fabs(load(w, beside, before))
            for n in (before, cut):
                store(w, f.fsub(load(w, diagonal, n), joint), diagonal, n)
        w.clear(w.scratch["vectors"], f.mul(size, size), w.element.real.bytes)

        def begin(p: RoutineOperations, inside: Mapping[str, Value], item: Value) -> None:
            first = p.f.icmp("slt", item, constant(PARTS, i64))
            with p.f.when(first):
                _solve(p, inside, item)
            with p.f.when(p.f.not_(first)):
                _reflectors(p, inside).write_block(p.f.sub(item, constant(PARTS, i64)))

        for index in range(PARTS):
            f.store(none, f.offset(failed, i64, index), 8)
        w.share("begin", f.add(constant(PARTS, i64), w["blocks"]), captured, begin)
        levels = constant(MERGES.bit_length(), i64)
        with f.loop(none, levels) as level, f.when(f.and_(w.goes_on(), f.not_(has_failed()))):
            merge_level(w, captured, f.lshr(constant(MERGES, i64), level))
        with f.when(f.and_(w.goes_on(), f.not_(has_failed()))):
            _sort(w, diagonal, w.scratch["order"], size)
        w.unless(has_failed(), lambda: finish(norm, multiplier), lambda: _fail(w))

    def finish(norm: Value, multiplier: Value) -> None:
        w.share("transform", w["panels"], captured, _transform)
        with f.loop(none, w["count"]) as n, f.when(w.goes_on()):
            position = f.load(i32, f.offset(w.scratch["order"], i32, f.add(w["start"], n)), 4)
            value = load(w, diagonal, f.sub(f.sext(position, i64), one))
            store(w, f.fdiv(f.fmul(value, norm), multiplier), values, n)

    w.unless(f.not_(f.fcmp("olt", magnitude, constant(float("inf"), element))), work, lambda: _fail(w))


# --------------------------------------------------------------------------------------------------------------- plans


def plan_eigh(equation: Equation) -> LibraryCall:
    (x,) = get_arrays(equation.invars)
    size = x.shape[-1]
    start, end = equation.params["subset_by_index"] or (0, size)
    triangle = "L" if equation.params["lower"] else "U"
    if triangle == "L" and size >= LEAST_STEPS:
        return _plan_steps(equation, x, start, end)
    asked = Work(x.dtype, "syevd")
    some, work, reals, integers = asked.some, asked.elements(), asked.reals(), asked.integers()
    middle: list[Any] = [reals, -1] if x.dtype.kind == "c" else []
    found = asked.ask(
        "V", triangle, size, some, size, some, work, -1, *middle, integers, -1,
        answers=[work, *middle[:1], integers],
    )  # fmt: skip
    work_size, real_size, integer_size = found[0], found[1] if middle else 1, found[-1]
    fields = {
        "size": size,
        "triangle": ord(triangle),
        "start": start,
        "count": end - start,
        "work size": work_size,
        "real size": real_size,
        "integer size": integer_size,
    }
    scratch = {
        "matrix": size * size * x.dtype.itemsize,
        "values": size * asked.real.itemsize,
        "work": work_size * x.dtype.itemsize,
        "reals": real_size * asked.real.itemsize,
        "integers": integer_size * 4,
    }
    same = [(0, 0)] if end - start == size else []
    return plan_batched(eigh, equation, fields, scratch, work=9 * size**3 + ITERATION_WORK, in_place=same)


def _plan_steps(equation: Equation, x: DenseArray, start: int, end: int) -> LibraryCall:
    size, count = x.shape[-1], end - start
    asked = Work(x.dtype, "sytrd")
    some, work = asked.some, asked.elements()
    (reduction,) = asked.ask("L", size, some, size, some, some, some, work, -1, answers=[work])
    longest = -(-size // PARTS)
    blocks, panels = count_blocks(size, 1), -(-count // VECTORS)
    # Sizes from LAPACK's documentation; there is no query.
    part_work, part_integers = longest * longest + 4 * longest + 1, 5 * longest + 3
    fields = {
        "size": size,
        "start": start,
        "count": count,
        "blocks": blocks,
        "panels": panels,
        "reduction size": reduction,
        "part work": part_work,
        "part integers": part_integers,
    }
    bytes, real = x.dtype.itemsize, asked.real.itemsize
    scratch = {
        "matrix": size * size * bytes,
        "diagonal": size * real,
        "beside": size * real,
        "taus": size * bytes,
        "vectors": size * size * real,
        **scratch_of_blocks(size, 1, bytes),
        "panels": size * count * bytes,
        "transforms": panels * VECTORS * REFLECTORS * bytes,
        "reduction": reduction * bytes,
        "work": max(work_of_merges(size), PARTS * part_work) * real,
        "order": size * 4,
        "integers": max(integers_of_merges(size), PARTS * part_integers) * 4,
    }
    same = [(0, 0)] if count == size else []
    return plan_batched(eigh_steps, equation, fields, scratch, work=9 * size**3, in_place=same)
