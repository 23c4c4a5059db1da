"""Eigenvalues and eigenvectors of tridiagonal matrices from those of their halves, in steps that threads share.

This is the algorithm of LAPACK's `laed1`. Deflation comes first (`laed2`); the remaining eigenvalues are roots of the
secular equation. A level is all merges that do not depend on each other; threads share blocks of the columns of all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.compiler.target.cpu.library.writer import RoutineOperations, RoutineWriter
from weft.compiler.target.llvm import Function, Value, constant, double, i32, i64

# Number of merges in the first level.
MERGES = 4
# Columns of a merge in one block.
COLUMNS = 32
# Results of `laed2` for a merge: the rank after deflation, and its columns of each of three kinds.
COUNTS = 4
# `laed2` writes one count for each kind of column into its last integer array, however short that is.
KINDS = 4


def load(p: RoutineOperations, reals: Value, index: Value | int) -> Value:
    """Load a real number of an array."""
    return p.f.load(p.element.float, _at(p, reals, index), p.element.float.bits // 8)


def store(p: RoutineOperations, value: Value, reals: Value, index: Value | int) -> None:
    """Store a real number in an array."""
    p.f.store(value, _at(p, reals, index), p.element.float.bits // 8)


def _at(p: RoutineOperations, reals: Value, index: Value | int) -> Value:
    return p.at(reals, index, p.element.real.bytes)


def part(f: Function, size: Value, index: Value, halvings: int) -> tuple[Value, Value]:
    """Return the start and the size of a part of a tridiagonal matrix that is halved `halvings` times. The first half
    is never the larger one, as merges require."""
    none, one = constant(0, i64), constant(1, i64)
    start, length = none, size
    for n in reversed(range(halvings)):
        second = f.and_(f.lshr(index, constant(n, i64)), one)
        first = f.lshr(length, one)
        start = f.add(start, f.mul(second, first))
        length = f.select(f.icmp("eq", second, none), first, f.sub(length, first))
    return start, length


def note(p: RoutineOperations, status: Value, captured: Mapping[str, Value], item: Value | int) -> None:
    """Record whether an item failed."""
    p.f.store(p.f.zext(status, i64), p.f.offset(captured["failed"], i64, item), 8)


def work_of_merges(size: int) -> int:
    """Return the largest number of real numbers that the merges of a level work with: for each four rows, the vectors
    of its parts, and those of the merge."""
    counts = [1 << n for n in range(MERGES.bit_length())]
    lengths = [-(-size // count) for count in counts]
    return max(c * (4 * n + n * n + 2 * (n - n // 2) ** 2) for c, n in zip(counts, lengths, strict=True))


def integers_of_merges(size: int) -> int:
    """Return the largest number of integers that the merges of a level work with."""
    counts = [1 << n for n in range(MERGES.bit_length())]
    return max(c * (3 * n + max(n, KINDS)) for c, n in zip(counts, (-(-size // c) for c in counts), strict=True))


def merge_level(w: RoutineWriter, captured: Mapping[str, Value], merges: Value) -> None:
    """Run all merges of a level, from `MERGES` in the first level to one in the last. Eigenvalues are not sorted;
    `order` has their positions, counted from 1 in each merge. `captured` has the arrays, and `counts`."""
    f, one, size = w.f, constant(1, i64), captured["size"]
    longest = f.udiv(f.sub(f.add(size, merges), one), merges)
    larger = f.sub(longest, f.lshr(longest, one))
    rows = f.mul(longest, f.add(longest, constant(4, i64)))
    inside = {
        **captured,
        "merges": merges,
        "work of merge": f.add(rows, f.mul(constant(2, i64), f.mul(larger, larger))),
        "integers of merge": f.add(f.mul(longest, constant(3, i64)), f.smax(longest, constant(KINDS, i64))),
    }
    blocks = f.udiv(f.add(longest, constant(COLUMNS - 1, i64)), constant(COLUMNS, i64))
    items = {**inside, "blocks of merge": blocks}
    w.share("prepare", merges, inside, _prepare)
    for name, step in (("roots", _roots), ("weights", _weights), ("merged", _write_vectors)):
        w.share(name, f.mul(blocks, merges), items, step)
    with f.loop(constant(0, i64), merges) as merge, f.when(w.goes_on()):
        _write_positions(w, inside, merge)


@dataclass(frozen=True)
class _Merge:
    """Arrays and sizes of one merge. `joint` is the element that joins its halves; the first has `cut` rows."""

    size: Value  # stride between columns
    length: Value
    cut: Value
    diagonal: Value
    vectors: Value
    order: Value
    joint: Value
    z: Value
    poles: Value
    weights: Value
    columns: Value  # columns of the parts' vectors, grouped by kind
    orders: tuple[Value, ...]
    counts: Value

    @staticmethod
    def of(p: RoutineOperations, captured: Mapping[str, Value], index: Value) -> _Merge:
        """Return the merge of an index in its level."""
        f, real, one, size = p.f, RoutineOperations(p.f, p.element.real), constant(1, i64), captured["size"]
        start, length = part(f, size, index, 0)
        for halvings in range(1, MERGES.bit_length()):
            is_level = f.icmp("eq", captured["merges"], constant(1 << halvings, i64))
            found = part(f, size, index, halvings)
            start, length = f.select(is_level, found[0], start), f.select(is_level, found[1], length)
        cut = f.lshr(length, one)
        work = real.at(captured["work"], f.mul(index, captured["work of merge"]))
        z, poles, weights, columns = (real.at(work, f.mul(length, constant(n, i64))) for n in range(4))
        integers = f.offset(captured["integers"], i32, f.mul(index, captured["integers of merge"]))
        return _Merge(
            size,
            length,
            cut,
            real.at(captured["diagonal"], start),
            real.at(captured["vectors"], f.mul(start, f.add(size, one))),
            f.offset(captured["order"], i32, start),
            real.at(captured["beside"], f.sub(f.add(start, cut), one)),
            z,
            poles,
            weights,
            columns,
            tuple(f.offset(integers, i32, f.mul(length, constant(n, i64))) for n in range(4)),
            f.offset(captured["counts"], i64, f.mul(index, constant(COUNTS, i64))),
        )

    def count(self, p: RoutineOperations, index: int) -> Value:
        """Return a result of `laed2`."""
        return p.f.load(i64, p.f.offset(self.counts, i64, index), 8)

    def own(self, p: RoutineOperations) -> tuple[Value, Value, Value, Value]:
        """Return the number of columns with rows in the first part, and in the second; the address of the second part's
        columns, and of the memory after them."""
        f, real = p.f, RoutineOperations(p.f, p.element.real)
        kinds = [self.count(p, n) for n in (1, 2, 3)]
        upper, lower = f.add(kinds[0], kinds[1]), f.add(kinds[1], kinds[2])
        first = f.mul(self.cut, upper)
        behind = f.add(first, f.mul(f.sub(self.length, self.cut), lower))
        return upper, lower, real.at(self.columns, first), real.at(self.columns, behind)


def _prepare(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Deflate a merge. A rest of one or two columns is merged at once."""
    f, real, none, one = p.f, RoutineOperations(p.f, p.element.real), constant(0, i64), constant(1, i64)
    m = _Merge.of(p, captured, item)
    remaining = f.alloca(i32, align=4)
    # z is the last row of the first part's vectors, and the first row of the second part's.
    with f.loop(none, m.length) as n:
        row = f.select(f.icmp("slt", n, m.cut), f.sub(m.cut, one), m.cut)
        store(real, load(real, m.vectors, f.add(f.mul(n, m.size), row)), m.z, n)
    status = real.lapack(
        "laed2", remaining, m.length, m.cut, m.diagonal, m.vectors, m.size, m.order, m.joint,
        m.z, m.poles, m.weights, m.columns, *m.orders,
    )  # fmt: skip
    note(p, status, captured, item)
    rank = f.select(status, none, f.sext(f.load(i32, remaining, 4), i64))
    kinds = [f.sext(f.load(i32, f.offset(m.orders[3], i32, n), 4), i64) for n in range(3)]
    for position, found in enumerate((rank, *kinds)):
        f.store(found, f.offset(m.counts, i64, position), 8)
    with f.when(f.and_(f.icmp("slt", rank, constant(3, i64)), f.icmp("sgt", rank, none))):
        wrong = real.lapack(
            "laed3", rank, m.length, m.cut, m.diagonal, m.vectors, m.size, m.joint, m.poles, m.columns, m.orders[1],
            m.orders[3], m.weights, m.own(p)[3],
        )  # fmt: skip
        note(p, wrong, captured, item)


def _write_positions(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Write the positions of a merge's eigenvalues in sorted order."""
    f, real, none = p.f, RoutineOperations(p.f, p.element.real), constant(0, i64)
    m = _Merge.of(p, captured, item)
    rank = m.count(p, 0)
    with f.when(f.icmp("eq", rank, none)), f.loop(none, m.length) as n:
        f.store(f.trunc(f.add(n, constant(1, i64)), i32), f.offset(m.order, i32, n), 4)
    with f.when(f.icmp("sgt", rank, none)):
        real.auxiliary("lamrg", rank, f.sub(m.length, rank), m.diagonal, 1, -1, m.order)


def _block(
    p: RoutineOperations, captured: Mapping[str, Value], item: Value
) -> tuple[_Merge, Value, Value, Value, Value]:
    """Return the merge of an item, its rank, its index, and the range of columns of the item, which is empty if the
    columns were merged at once."""
    f = p.f
    blocks = captured["blocks of merge"]
    index = f.udiv(item, blocks)
    m = _Merge.of(p, captured, index)
    rank = m.count(p, 0)
    begin = f.mul(f.urem(item, blocks), constant(COLUMNS, i64))
    end = f.smin(f.add(begin, constant(COLUMNS, i64)), rank)
    return m, rank, index, begin, f.select(f.icmp("slt", rank, constant(3, i64)), begin, f.smax(begin, end))


def _roots(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Compute some eigenvalues, and their distances from all poles: a column for each."""
    f, real = p.f, RoutineOperations(p.f, p.element.real)
    m, rank, index, begin, end = _block(p, captured, item)
    with f.loop(begin, end) as n:
        failed = real.lapack(
            "laed4", rank, f.add(n, constant(1, i64)), m.poles, m.weights, real.at(m.vectors, f.mul(n, m.size)),
            m.joint, real.at(m.diagonal, n),
        )  # fmt: skip
        with f.when(failed, unlikely=True):
            note(p, failed, captured, index)


def _weights(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Compute some weights of poles, for which the rounded eigenvalues are exact: products over all columns of a
    row."""
    f, real = p.f, RoutineOperations(p.f, p.element.real)
    m, rank, _, begin, end = _block(p, captured, item)
    at = lambda row, column: f.add(f.mul(column, m.size), row)
    with f.loop(begin, end) as row:
        store(real, load(real, m.vectors, at(row, row)), m.z, row)
    with f.when(f.icmp("slt", begin, end)), f.loop(constant(0, i64), rank) as column:
        pole = load(real, m.poles, column)
        with f.loop(begin, end) as row, f.when(f.icmp("ne", row, column)):
            apart = f.fsub(load(real, m.poles, row), pole)
            ratio = f.fdiv(load(real, m.vectors, at(row, column)), apart)
            store(real, f.fmul(load(real, m.z, row), ratio), m.z, row)
    with f.loop(begin, end) as row:
        root = f.sqrt(f.fneg(load(real, m.z, row)))
        store(real, f.copysign(root, load(real, m.weights, row)), m.z, row)


def _write_vectors(p: RoutineOperations, captured: Mapping[str, Value], item: Value) -> None:
    """Compute some eigenvectors of the merge, and from them those of the tridiagonal matrix."""
    f, real, none, one = p.f, RoutineOperations(p.f, p.element.real), constant(0, i64), constant(1, i64)
    m, rank, _, begin, end = _block(p, captured, item)
    upper, lower, columns_below, behind = m.own(p)
    own = real.at(behind, f.mul(begin, m.length))
    with f.loop(begin, end) as column:
        vector = real.at(m.vectors, f.mul(column, m.size))
        with f.loop(none, rank, carried=[constant(0.0, double)]) as n:
            part = f.fdiv(load(real, m.z, n), load(real, vector, n))
            store(real, part, own, n)
            wide = part if part.type is double else f.fpext(part, double)
            n.give(f.fadd(n.values[0], f.fmul(wide, wide)))
        length = f.sqrt(n.results[0])
        norm = length if real.element.float is double else f.fptrunc(length, real.element.float)
        with f.loop(none, rank) as n:
            chosen = f.sub(f.sext(f.load(i32, f.offset(m.orders[1], i32, n), 4), i64), one)
            store(real, f.fdiv(load(real, own, chosen), norm), vector, n)
    width = f.sub(end, begin)
    panel = real.at(m.vectors, f.mul(begin, m.size))
    unit, nothing = real.scalar("unit", 1.0), real.scalar("zero", 0.0)

    def multiply(first: Value, count: Value, matrix: Value, target: Value, rows: Value) -> None:
        with f.loop(none, width) as n:
            source = real.at(panel, f.add(f.mul(n, m.size), first))
            real.copy(real.at(own, f.mul(n, count)), source, count)
        stride = f.smax(count, one)
        real.blas(
            "gemm", "N", "N", rows, width, count, unit, matrix, rows, own, stride, nothing, target, m.size,
        )  # fmt: skip

    with f.when(f.icmp("sgt", width, none)):
        below = f.sub(m.length, m.cut)
        multiply(m.count(p, 1), lower, columns_below, real.at(panel, m.cut), below)
        multiply(none, upper, m.columns, panel, m.cut)
