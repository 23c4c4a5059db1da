"""Ranks of the elements of a tile on targets whose lanes are threads, the building block of their radix sorts.

A tile has some elements per lane. Each run of `RANKED_LANES` lanes has consecutive elements and its own table of digit
counts. Prefix sums over all tables give the index of the first element with each digit in each run, so that the sort is
stable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import RANKED_LANES, Index, LoopKind, Value, Variable

UINT16, UINT32, UINT64, INT32 = np.dtype(np.uint16), dtypes.uint32, dtypes.uint64, dtypes.int32
# Shift of the sums over other tiles above those of the own tile, if one integer holds both.
ABOVE = 32


class TileRanks:
    """Ranks of `lanes * rounds` elements by a digit. With `sums`, prefix sums are uint64."""

    def __init__(self, k: KernelBuilder, lanes: int, rounds: int, bits: int, sums: Any = UINT32) -> None:
        self.k, self.lanes, self.rounds, self.bits = k, lanes, rounds, bits
        self.size, self.tables = lanes * rounds, lanes // RANKED_LANES
        # The entries of a table: loops over them have whole vectors.
        self.entries = max(lanes, 1 << bits)
        self.counters = k.local("counters", UINT32, self.tables * self.entries)
        self.ranks = k.local("ranks", UINT32, self.size)
        self.sums = [k.local(f"sums{n}", sums, self.entries) for n in range(2)]

    def over(self, count: int) -> AbstractContextManager[Variable]:
        """Open a loop over lanes whose vectors are all whole."""
        assert count % self.lanes == 0
        return self.k.loop(count, kind=LoopKind.LANES, width=self.lanes)

    def element(self, i: Variable) -> tuple[Index, Index]:
        """Return the offset of a lane's table, and the element that the lane has in the i-th iteration."""
        k = self.k
        at = k.position(i, INT32)

        def low(value: Value, below: int) -> Value:
            return k.compute("and", value, k.constant(below - 1, INT32))

        def high(value: Value, by: int) -> Value:
            return k.compute("shift_right_logical", value, k.constant(by.bit_length() - 1, INT32))

        table, vector = high(low(at, self.lanes), RANKED_LANES), high(at, self.lanes)
        first = Index.of(table) * (self.rounds * RANKED_LANES) + Index.of(vector) * RANKED_LANES
        return Index.of(table) * self.entries, first + Index.of(low(at, RANKED_LANES))

    def rank(self, get_digit: Callable[[Variable, Index], Value]) -> None:
        """Count digits; `get_digit` returns that of an element, from the iteration and the index of the element."""
        k = self.k
        with self.over(self.tables * self.entries) as n:
            k.store(self.counters, n, k.constant(0, UINT32))
        with self.over(self.size) as i:
            table, element = self.element(i)
            k.store(self.ranks, i, k.rank(self.counters, table, get_digit(i, element), self.bits))

    def add_up(self, others: Callable[[Variable], Value] | None = None) -> None:
        """Make of counts the indices of first elements. `others` returns what else is summed, for each digit."""
        k, s, dtype = self.k, self.k.scalars, self.sums[0].dtype
        with self.over(self.entries) as digit:
            total = k.load(self.counters, digit)
            for n in range(1, self.tables):
                total = s.add(total, k.load(self.counters, digit + n * self.entries))
            total = s.convert(total, dtype)
            if others is not None:
                total = s.add(total, s.shift_left(s.convert(others(digit), dtype), s.constant(ABOVE, dtype)))
            k.store(self.sums[0], digit, total)
        step = 1
        while step < self.entries:
            source, target = self.sums
            with self.over(self.entries) as digit:
                far = k.compute("ge", k.position(digit, INT32), k.constant(step, INT32))
                before = k.load(source, digit - step, far, k.constant(0, dtype))
                k.store(target, digit, s.add(k.load(source, digit), before))
            self.sums, step = [target, source], 2 * step
        with self.over(self.entries) as digit:
            start = s.convert(self.before(digit), UINT32)
            for n in range(self.tables):
                held = k.load(self.counters, digit + n * self.entries)
                k.store(self.counters, digit + n * self.entries, start)
                start = s.add(start, held)

    def before(self, digit: Variable) -> Value:
        """Return the sum of the counts before a digit."""
        k = self.k
        later = k.compute("ge", k.position(digit, INT32), k.constant(1, INT32))
        return k.load(self.sums[0], digit - 1, later, k.constant(0, self.sums[0].dtype))

    def index(self, i: Variable, digit: Value) -> Value:
        """Return the index in the sorted tile of an iteration's element."""
        k = self.k
        table, _ = self.element(i)
        return k.compute("add", k.load(self.counters, table + digit), k.load(self.ranks, i))
