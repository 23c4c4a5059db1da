"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices.

Matrices are transposed on the way to LAPACK and its results on the way back, so that signs and phases of vectors are
those that NumPy and SciPy give, who do the same.

`syevd` of LAPACK reduces a matrix to a tridiagonal one, cuts that into halves again and again, merges the eigenvectors
of two halves to those of the whole, and transforms them back. It has threads only inside of single matmuls, and those
are not for us (`guard`). So larger matrices go the same way in steps of our own: parts of the tridiagonal matrix,
blocks of merges (`merges`), and blocks of eigenvectors are what threads share. What a step computes does not depend on
their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler.target.cpu.library.batches import ITERATION_WORK, Work, batched
from weft.compiler.target.cpu.library.merges import (
    MERGES,
    NUMBERS,
    integers_of_merges,
    load,
    merge_level,
    note,
    part,
    store,
    work_of_merges,
)
from weft.compiler.target.cpu.library.writer import Pieces, Writer, family
from weft.compiler.target.library_call import Array, LibraryCall, arrays_of
from weft.compiler.target.llvm import Value, constant, i32, i64
from weft.ir.jaxpr import Equation

# From this size on the steps are ours.
LEAST_STEPS = 128
# How many reflectors are applied together, and to how many vectors at once.
REFLECTORS, VECTORS = 32, 32
# Into how many matrices the tridiagonal one is cut: a merge takes two.
PARTS = 2 * MERGES


def _fail(w: Writer) -> None:
    w.fill_nan(w.results[0], w.f.mul(w["size"], w["count"]))
    w.fill_nan(w.results[1], w["count"], w.element.real)


@family(
    "eigh",
    operands=1,
    results=2,
    scratch=["matrix", "values", "work", "reals", "integers"],
    fields=["size", "triangle", "start", "count", "work size", "real size", "integer size"],
)
def eigh(w: Writer) -> None:
    """Vectors and values numbered `start` and following; nan if an element of the matrix is not finite."""
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


# ------------------------------------------------------------------------------------------------- steps of our own


def _range(float_type: Any) -> tuple[float, float]:
    """Magnitudes between which squares neither overflow nor lose digits, as LAPACK has them."""
    limits = np.finfo(float_type)
    small = float(limits.tiny) / float(limits.eps)
    return float(np.sqrt(small)), float(np.sqrt(1 / small))


def _scale(p: Pieces, reals: Value, count: Value, multiplier: Value) -> None:
    with p.f.loop(constant(0, i64), count) as n:
        store(p, p.f.fmul(load(p, reals, n), multiplier), reals, n)


def _multiplier(w: Writer, found: Value) -> Value:
    """What the matrix is multiplied by, so that its largest magnitude, which was found, is one that LAPACK can
    square."""
    f, element = w.f, w.element.float
    low, high = (constant(bound, element) for bound in _range(w.element.real.dtype))
    small = f.and_(f.fcmp("olt", found, low), f.fcmp("ogt", found, constant(0.0, element)))
    bound = f.select(small, low, f.select(f.fcmp("ogt", found, high), high, found))
    return f.select(f.fcmp("oeq", bound, found), constant(1.0, element), f.fdiv(bound, found))


def _solve(p: Pieces, captured: Mapping[str, Value], item: Value) -> None:
    """The eigenvalues and vectors of a part, sorted."""
    f, real = p.f, Pieces(p.f, p.element.real)
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


def _sort(w: Writer, diagonal: Value, order: Value, size: Value) -> None:
    """Put the positions of eigenvalues into their order. They are in order but for what was rounded off, so each is
    shifted past few others, if any."""
    f, none, one = w.f, constant(0, i64), constant(1, i64)

    def value_of(position: Value) -> Value:
        return load(w, diagonal, f.sub(f.sext(position, i64), one))

    with f.loop(one, size) as n:
        position = f.load(i32, f.offset(order, i32, n), 4)
        key = value_of(position)
        with f.repeat(n) as region:
            (free,) = region.values
            inside = f.icmp("sgt", free, none)
            before = f.load(i32, f.offset(order, i32, f.smax(f.sub(free, one), none)), 4)
            larger = f.and_(inside, f.fcmp("ogt", value_of(before), key))
            with f.when(larger):
                f.store(before, f.offset(order, i32, free), 4)
            region.again(larger, f.sub(free, one))
        f.store(position, f.offset(order, i32, free), 4)


def _reflectors(p: Pieces, captured: Mapping[str, Value], block: Value) -> tuple[Value, Value, Value, Value]:
    """A block of reflectors: the first of them, how many there are, of how many elements, and where. Each is below the
    element next to the diagonal, which it has a one for."""
    f, size = p.f, captured["size"]
    first = f.mul(block, constant(REFLECTORS, i64))
    rows = f.sub(f.sub(size, constant(1, i64)), first)
    at = p.at(captured["matrix"], f.add(f.mul(first, size), f.add(first, constant(1, i64))))
    return first, f.smin(rows, constant(REFLECTORS, i64)), rows, at


def _write_block(p: Pieces, captured: Mapping[str, Value], block: Value) -> None:
    """A block of reflectors as I - UVᴴ: Vᴴ, whose rows they are, and U. LAPACK has `larft` and `larfb` for blocks, but
    each of their many small steps takes a lock of OpenBLAS: with 14 threads `larft` took a hundred times as long."""
    f, none, one = p.f, constant(0, i64), constant(1, i64)
    first, count, rows, reflectors = _reflectors(p, captured, block)
    size, stride = captured["size"], constant(REFLECTORS, i64)
    begin = f.mul(block, constant(REFLECTORS**2, i64))
    inner, triangle = (p.at(captured[name], begin) for name in ("inner", "triangles"))
    panel = f.mul(first, size)
    adjoint, product = (p.at(captured[name], panel) for name in ("adjoints", "products"))
    with f.loop(none, count) as column:
        top = p.at(reflectors, f.mul(column, size))
        p.clear(top, column)
        _store_element(p, [constant(1.0, p.element.float), constant(0.0, p.element.float)], top, column)
    p.transpose(adjoint, stride, reflectors, size, count, rows)
    if p.element.is_complex:
        with f.loop(none, rows) as row, f.loop(none, count) as column:
            index = f.add(f.mul(f.add(f.mul(row, stride), column), constant(2, i64)), one)
            store(p, f.fneg(load(p, adjoint, index)), adjoint, index)
    unit, nothing = p.scalar("unit", 1.0), p.scalar("zero", 0.0)
    p.blas("gemm", "N", "N", count, count, rows, unit, adjoint, stride, reflectors, size, nothing, inner, stride)
    _write_triangle(p, count, p.at(captured["taus"], first), inner, triangle)
    p.blas("gemm", "N", "N", rows, count, count, unit, reflectors, size, triangle, stride, nothing, product, size)


def _write_triangle(p: Pieces, count: Value, taus: Value, inner: Value, triangle: Value) -> None:
    """What LAPACK calls T of a block of reflectors, from their inner products and scales. A column is that of the next
    reflector, as those before it leave it."""
    f, none, one = p.f, constant(0, i64), constant(1, i64)
    at = lambda row, column: f.add(f.mul(column, constant(REFLECTORS, i64)), row)
    zero = constant(0.0, p.element.float)
    with f.loop(none, count) as column:
        scale = _load_element(p, taus, column)
        with f.loop(none, column) as row:
            with f.loop(row, column, carried=[zero] * p.element.parts) as n:
                term = _times(p, _load_element(p, triangle, at(row, n)), _load_element(p, inner, at(n, column)))
                n.give(*(f.fadd(a, b) for a, b in zip(n.values, term, strict=True)))
            found = [f.fneg(part) for part in _times(p, scale, n.results)]
            _store_element(p, found, triangle, at(row, column))
        _store_element(p, scale, triangle, at(column, column))
        p.clear(p.at(triangle, at(f.add(column, one), column)), f.sub(f.sub(count, column), one))


def _load_element(p: Pieces, elements: Value, index: Value) -> list[Value]:
    """The parts of an element."""
    first = p.f.mul(index, constant(p.element.parts, i64))
    return [load(p, elements, p.f.add(first, constant(n, i64))) for n in range(p.element.parts)]


def _store_element(p: Pieces, parts: Sequence[Value], elements: Value, index: Value) -> None:
    """Store an element of the dtype, which may need the first part only."""
    first = p.f.mul(index, constant(p.element.parts, i64))
    for n in range(p.element.parts):
        store(p, parts[n], elements, p.f.add(first, constant(n, i64)))


def _times(p: Pieces, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
    """The product of two elements."""
    f = p.f
    if not p.element.is_complex:
        return [f.fmul(a[0], b[0])]
    return [
        f.fsub(f.fmul(a[0], b[0]), f.fmul(a[1], b[1])),
        f.fadd(f.fmul(a[0], b[1]), f.fmul(a[1], b[0])),
    ]


def _transform(p: Pieces, captured: Mapping[str, Value], item: Value) -> None:
    """Some eigenvectors of the tridiagonal matrix, in order, as those of the matrix."""
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
    unit, nothing, minus = p.scalar("unit", 1.0), p.scalar("zero", 0.0), p.scalar("minus", -1.0)
    with f.loop(constant(0, i64), captured["blocks"]) as n:
        first, count, rows, _ = _reflectors(p, captured, f.sub(f.sub(captured["blocks"], one), n))
        adjoint, product = (p.at(captured[name], f.mul(first, size)) for name in ("adjoints", "products"))
        target = p.at(own, f.add(first, one))
        p.blas(
            "gemm", "N", "N", count, width, rows, unit, adjoint, REFLECTORS, target, size, nothing, work, REFLECTORS,
        )  # fmt: skip
        p.blas(
            "gemm", "N", "N", rows, width, count, minus, product, size, work, REFLECTORS, unit, target, size,
        )  # fmt: skip
    p.transpose(p.at(captured["results"], begin), captured["count"], own, size, width, size)


@family(
    "eigh_steps",
    operands=1,
    results=2,
    scratch=[
        "matrix", "diagonal", "beside", "taus", "vectors", "inner", "triangles", "adjoints", "products", "panels",
        "transforms", "reduction", "work", "order", "integers",
    ],
    fields=[
        "size", "start", "count", "blocks", "panels", "reduction size", "part work", "part integers",
    ],
)  # fmt: skip
def eigh_steps(w: Writer) -> None:
    """As `eigh`, from the lower triangle, in steps that threads share."""
    f, (x,), (vectors, values) = w.f, w.operands, w.results
    size, none, one = w["size"], constant(0, i64), constant(1, i64)
    element, real = w.element.float, Pieces(f, w.element.real)
    matrix, diagonal, beside = w.scratch["matrix"], w.scratch["diagonal"], w.scratch["beside"]
    failed = f.alloca(i64, PARTS, 8)
    magnitude = w.largest(x, f.mul(size, size))
    captured = {
        **w.scratch,
        **{name: w[name] for name in w.family.fields if name != "panels"},
        "failed": failed,
        "numbers": f.alloca(i64, MERGES * NUMBERS, 8),
        "results": vectors,
    }

    def any_failed() -> Value:
        total = f.load(i64, failed, 8)
        for n in range(1, PARTS):
            total = f.or_(total, f.load(i64, f.offset(failed, i64, n), 8))
        return f.icmp("ne", total, none)

    def work() -> None:
        w.transpose(matrix, size, x, size, size, size)
        multiplier = _multiplier(w, magnitude)
        with f.when(f.fcmp("one", multiplier, constant(1.0, element)), unlikely=True):
            _scale(w, matrix, f.mul(f.mul(size, size), constant(w.element.parts, i64)), multiplier)
        off = f.sub(size, one)
        w.lapack(
            "sytrd", "L", size, matrix, size, diagonal, beside, w.scratch["taus"],
            w.scratch["reduction"], w["reduction size"],
        )  # fmt: skip
        magnitudes = [real.largest(diagonal, size), real.largest(beside, off)]
        larger = f.select(f.fcmp("ogt", *magnitudes), *magnitudes)
        norm = f.select(f.fcmp("oeq", larger, constant(0.0, element)), constant(1.0, element), larger)
        inverse = f.fdiv(constant(1.0, element), norm)
        _scale(w, diagonal, size, inverse)
        _scale(w, beside, off, inverse)
        # Without what joins them the parts are matrices of their own, apart from the same amount on both sides.
        for item in range(1, PARTS):
            cut, _ = part(f, size, constant(item, i64), MERGES.bit_length())
            before = f.sub(cut, one)
            joint = f.fabs(load(w, beside, before))
            for n in (before, cut):
                store(w, f.fsub(load(w, diagonal, n), joint), diagonal, n)
        w.clear(w.scratch["vectors"], f.mul(size, size), w.element.real.bytes)

        def begin(p: Pieces, inside: Mapping[str, Value], item: Value) -> None:
            first = p.f.icmp("slt", item, constant(PARTS, i64))
            with p.f.when(first):
                _solve(p, inside, item)
            with p.f.when(p.f.not_(first)):
                _write_block(p, inside, p.f.sub(item, constant(PARTS, i64)))

        for index in range(PARTS):
            f.store(none, f.offset(failed, i64, index), 8)
        w.share("begin", f.add(constant(PARTS, i64), w["blocks"]), captured, begin)
        levels = constant(MERGES.bit_length(), i64)
        with f.loop(none, levels) as level, f.when(f.and_(w.goes_on(), f.not_(any_failed()))):
            merge_level(w, captured, f.lshr(constant(MERGES, i64), level))
        with f.when(f.and_(w.goes_on(), f.not_(any_failed()))):
            _sort(w, diagonal, w.scratch["order"], size)
        w.unless(any_failed(), lambda: finish(norm, multiplier), lambda: _fail(w))

    def finish(norm: Value, multiplier: Value) -> None:
        w.share("transform", w["panels"], captured, _transform)
        with f.loop(none, w["count"]) as n, f.when(w.goes_on()):
            position = f.load(i32, f.offset(w.scratch["order"], i32, f.add(w["start"], n)), 4)
            value = load(w, diagonal, f.sub(f.sext(position, i64), one))
            store(w, f.fdiv(f.fmul(value, norm), multiplier), values, n)

    w.unless(f.not_(f.fcmp("olt", magnitude, constant(float("inf"), element))), work, lambda: _fail(w))


# --------------------------------------------------------------------------------------------------------------- plans


def plan_eigh(equation: Equation) -> LibraryCall:
    (x,) = arrays_of(equation.invars)
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
    return batched(eigh, equation, fields, scratch, work=9 * size**3 + ITERATION_WORK, in_place=same)


def _plan_steps(equation: Equation, x: Array, start: int, end: int) -> LibraryCall:
    size, count = x.shape[-1], end - start
    asked = Work(x.dtype, "sytrd")
    some, work = asked.some, asked.elements()
    (reduction,) = asked.ask("L", size, some, size, some, some, some, work, -1, answers=[work])
    longest = -(-size // PARTS)
    blocks, panels = -(-(size - 1) // REFLECTORS), -(-count // VECTORS)
    # What LAPACK's description asks for; there is no query.
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
        "inner": blocks * REFLECTORS**2 * bytes,
        "triangles": blocks * REFLECTORS**2 * bytes,
        "adjoints": blocks * REFLECTORS * size * bytes,
        "products": blocks * REFLECTORS * size * bytes,
        "panels": size * count * bytes,
        "transforms": panels * VECTORS * REFLECTORS * bytes,
        "reduction": reduction * bytes,
        "work": max(work_of_merges(size), PARTS * part_work) * real,
        "order": size * 4,
        "integers": max(integers_of_merges(size), PARTS * part_integers) * 4,
    }
    same = [(0, 0)] if count == size else []
    return batched(eigh_steps, equation, fields, scratch, work=9 * size**3, in_place=same)
