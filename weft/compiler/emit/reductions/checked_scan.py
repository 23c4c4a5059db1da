"""Running products of floats, whose numbers are zero, finite, infinite or NaN as one multiplication after the other
has them.

Vectors and blocks combine products in another order: after a zero, a product that overflows by itself is NaN, and
one that underflows by itself is zero, or has few digits, before it meets a large number. So the products of vectors are
checked. A chunk of some vectors in which one of them leaves the safe range is computed again, one element after the
other. Where what comes before is zero, infinite or NaN, it stays that, or becomes NaN: then only zeros, infinities, NaN
and signs of elements count, and these can be combined in any order. So a product that underflows in the end, as most
long ones do, has one chunk that is slow. (Below the normal numbers a product may be zero earlier than one by one.)

Blocks: the first kernel finds the product of each, its sign, and the smallest and largest product on the way there. The
second finds what is before each block from these, and computes a block again if its products do not fit with what comes
before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import KernelWriter
from weft.compiler.emit.reductions.reduction_space import AxisIndices
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.indexing.expression import Expression

if TYPE_CHECKING:
    from weft.compiler.emit.reductions.cumulative import Scan

# Vectors of a chunk.
CHUNK_VECTORS = 32


class MagnitudeBounds(NamedTuple):
    """Magnitudes from `low` to `high`."""

    low: Any
    high: Any


@dataclass
class ScanBranch:
    """Result of a branch: the value set inside it, else the previous value."""

    result: Value


@dataclass(frozen=True)
class Summary:
    """Summary of a block: its product; its sign, or 0 if there are zeros, infinities or NaN; and the smallest (0 if
    some have too few digits) and largest magnitude of the partial products."""

    total: Value
    sign: Value
    least: Value
    greatest: Value

    @property
    def values(self) -> list[Value]:
        return [self.total, self.sign, self.least, self.greatest]


class CheckedScan:
    """Steps of a scan of products, in one kernel."""

    def __init__(self, scan: Scan, writer: KernelWriter) -> None:
        self.scan, self.writer, self.k, self.dtype = scan, writer, writer.k, scan.wide
        info = np.finfo(self.dtype)
        # Quotients of two numbers in the safe range are normal ones.
        safe = 2.0 ** (info.maxexp // 2 - 2)
        self.safe = MagnitudeBounds(1 / safe, safe)
        self.smallest, self.normal = info.tiny, MagnitudeBounds(info.tiny, info.max)
        self.finite = MagnitudeBounds(info.smallest_subnormal, info.max)
        self.unsigned = np.dtype(f"u{self.dtype.itemsize}")

    def constant(self, value: Any) -> Value:
        return self.k.constant(value, self.dtype)

    def both(self, a: Value, b: Value) -> Value:
        return self.k.compute("and", a, b)

    def negate(self, a: Value) -> Value:
        return self.k.compute("not", a)

    def is_between(self, magnitude: Value, bounds: MagnitudeBounds) -> Value:
        """Return whether a magnitude is within bounds; false for NaN."""
        s = self.k.scalars
        return self.both(s.ge(magnitude, self.constant(bounds.low)), s.le(magnitude, self.constant(bounds.high)))

    def is_absorbing(self, x: Value) -> Value:
        """Return whether a factor is zero, infinite or NaN: a running product from it on keeps its magnitude or
        becomes NaN.
        """
        return self.negate(self.is_between(self.k.scalars.abs(x), self.finite))

    def magnitude_bits(self, x: Value) -> Value:
        """Return the bits of a magnitude, which have the order of numbers; those of NaN are the largest."""
        return self.k.scalars.bitcast(self.k.scalars.abs(x), self.unsigned)

    def distance(self, x: Value, bounds: MagnitudeBounds) -> Value:
        """Return how far the bits of a magnitude are above those of the lower bound. Magnitudes below it wrap around
        to the largest numbers, so one maximum tells whether all were between the bounds.
        """
        return self.k.scalars.sub(self.magnitude_bits(x), self.k.constant(self.bits(bounds.low), self.unsigned))

    def bits(self, x: Any) -> int:
        return int(self.dtype.type(x).view(self.unsigned))

    def is_outside(self, farthest: Value, bounds: MagnitudeBounds) -> Value:
        most = self.bits(bounds.high) - self.bits(bounds.low)
        return self.k.scalars.gt(farthest, self.k.constant(most, farthest.dtype))

    @contextmanager
    def branch(self, condition: Value, otherwise: Value) -> Iterator[ScanBranch]:
        """Open a branch that runs where a scalar condition holds; the body sets the result by `then`."""
        times = self.k.scalars.convert(condition, np.dtype(np.int64))
        found = ScanBranch(otherwise)
        with self.k.loop(1, carries=[otherwise], limit=Index.of(times)):
            yield found
            (found.result,) = self.k.carry(found.result)

    # -- rows and blocks -------------------------------------------------------------------------------------------

    def write_scan(
        self, indices: AxisIndices, start: Value, part: tuple[Index, Any] | None = None, stored: bool = True
    ) -> Value:
        """Scan with vectors along the axis, or along a block of whole chunks of it; return the last product."""
        scan, axis = self.scan, self.scan.axis
        assert axis is not None
        first, size = part or (Index(), axis.size)
        chunk = chunk_size(scan, size)
        with self.k.loop(-(-size // chunk), carries=[start]) as (c, (before,)):
            begin = first + Index.of(c) * chunk
            absorbing = self.is_absorbing(before)
            found, unsafe = self.vectors(indices, before, absorbing, begin, chunk, stored)
            with self.branch(self.both(unsafe, self.negate(absorbing)), found) as again:
                again.result = scan.serial(self.writer, indices, before, (begin, chunk), stored)
            (last,) = self.k.carry(again.result)
        return last

    def vectors(
        self, indices: AxisIndices, before: Value, absorbing: Value, begin: Index, chunk: Any, stored: bool
    ) -> tuple[Value, Value]:
        """Scan a chunk by vectors; return the last product and whether one of them left the safe range."""
        scan, k, s = self.scan, self.k, self.k.scalars
        axis, width = scan.axis, scan.width
        assert axis is not None
        limit = None if _divides(chunk, axis.size) else Index(axis.size) - begin
        scale = s.select_n(absorbing, self.constant(1), s.abs(before))
        carries = [before, *[k.constant(0, self.unsigned)] * 2]
        with k.loop(chunk, kind=LoopKind.LANES, width=width, carries=carries, limit=limit) as (i, carried):
            so_far, of_lanes, of_totals = carried
            index = scan.index(self.writer, {**indices, axis: begin + i})
            lanes = scan.prefixes(self.writer, s.mul(scan.element(self.writer, index), scale), i)
            total = s.mul(so_far, lanes)
            if stored:
                scan.store(self.writer, index, total)
            last, of_lanes, of_totals = k.carry(
                s.mul(so_far, k.last(lanes)),
                s.max(of_lanes, self.distance(lanes, self.safe)),
                s.max(of_totals, self.distance(total, self.normal)),
            )
        # All lanes have the last product.
        last, of_lanes, of_totals = (k.reduce_lanes("max", v, width) for v in (last, of_lanes, of_totals))
        # A product below the normal numbers has lost its digits. Rounded after each element it may stay there for long.
        normal = s.ge(s.abs(before), self.constant(self.smallest))
        unsafe = self.both(self.is_outside(of_totals, self.normal), normal)
        return last, k.compute("or", self.is_outside(of_lanes, self.safe), unsafe)

    def summary(self, indices: AxisIndices, along: bool, begin: Index, block: Any) -> Summary:
        """Summarise a complete block, with vectors along the axis or one element after the other."""
        scan, k, s = self.scan, self.k, self.k.scalars
        axis = scan.axis
        assert axis is not None
        kind, width = (LoopKind.LANES, scan.width) if along else (LoopKind.SERIAL, 1)
        one, zero = self.constant(1), k.constant(0, self.unsigned)
        one_bits = k.constant(self.bits(1), self.unsigned)
        carries = [one, zero, zero, zero, one_bits, one_bits]
        with k.loop(block, kind=kind, width=width, carries=carries) as (i, carried):
            so_far, signs, of_elements, of_lanes, least, greatest = carried
            x = scan.element(self.writer, scan.index(self.writer, {**indices, axis: begin + i}))
            lanes = scan.prefixes(self.writer, x, i) if along else x
            total = s.mul(so_far, lanes)
            magnitude = self.magnitude_bits(total)
            found = k.carry(
                s.mul(so_far, k.last(lanes)) if along else total,
                k.compute("xor", signs, s.bitcast(x, self.unsigned)),
                s.max(of_elements, self.distance(x, self.finite)),
                s.max(of_lanes, self.distance(lanes, self.safe)) if along else of_lanes,
                s.min(least, magnitude),
                s.max(greatest, magnitude),
            )
        if along:
            ops = ("max", "xor", "max", "max", "min", "max")
            found = tuple(k.reduce_lanes(op, value, width) for op, value in zip(ops, found, strict=True))
        total, signs, of_elements, of_lanes, least, greatest = found
        least, greatest = s.bitcast(least, self.dtype), s.bitcast(greatest, self.dtype)
        top = k.constant(1 << 8 * self.dtype.itemsize - 1, self.unsigned)
        sign = s.select_n(s.ge(signs, top), one, self.constant(-1))
        return Summary(
            total,
            s.select_n(self.is_outside(of_elements, self.finite), sign, self.constant(0)),
            s.select_n(self.is_outside(of_lanes, self.safe), least, self.constant(0)),
            greatest,
        )

    def after(self, before: Value, block: Summary, indices: AxisIndices, along: bool, part: tuple[Index, Any]) -> Value:
        """Combine the product of everything before a block with the block."""
        k, s, smallest = self.k, self.k.scalars, self.constant(self.smallest)
        magnitude, absorbing = s.abs(before), self.is_absorbing(before)
        digits = k.compute("or", s.lt(magnitude, smallest), s.ge(s.mul(magnitude, block.least), smallest))
        fits = self.both(digits, s.ge(block.least, smallest))
        fits = self.both(fits, s.le(s.mul(magnitude, block.greatest), self.constant(self.normal.high)))
        fits = s.select_n(absorbing, fits, s.ne(block.sign, self.constant(0)))
        found = s.mul(before, s.select_n(absorbing, block.total, block.sign))
        with self.branch(self.negate(fits), found) as again:
            scanned = self.write_scan if along else partial(self.scan.serial, self.writer)
            again.result = scanned(indices, before, part, stored=False)
        return again.result


def chunk_size(scan: Scan, size: Any) -> Any:
    """Return the number of elements in a chunk of a row or block."""
    chunk = CHUNK_VECTORS * scan.width
    return chunk if isinstance(size, Expression) else min(chunk, size)


def whole_chunks(scan: Scan, block: int) -> int:
    """Round the size of a block up to whole chunks."""
    chunk = CHUNK_VECTORS * scan.width
    return -(-block // chunk) * chunk


def _divides(chunk: Any, size: Any) -> bool:
    return not isinstance(size, Expression) and size % chunk == 0
