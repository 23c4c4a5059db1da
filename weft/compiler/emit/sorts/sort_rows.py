"""Common parts of all sorts: rows, their scratch memory, and the description of a sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Fusion, KernelWriter, storage
from weft.compiler.emit.sorts.sort_encoding import SortField, SortOrder, pack, split_stages
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.ir.jaxpr import Var
from weft.primitives.movement.sort import top_k

# Threads share rows in at most this many blocks, each with scratch of its own.
BLOCKS = 16

# Maps the length of an array's rows to the offset of this row in the array.
Row = Callable[[int], Index]


@dataclass(frozen=True)
class SortRows:
    """Rows of `length` elements, `inner` apart: the sorted dimension of an array of outer * length * inner elements."""

    outer: int
    length: int
    inner: int

    @property
    def count(self) -> int:
        return self.outer * self.inner

    @property
    def blocks(self) -> int:
        """How many blocks the rows are shared out in."""
        return -(-self.count // self._in_block)

    @property
    def _in_block(self) -> int:
        return -(-self.count // BLOCKS)

    @contextmanager
    def each(self, k: KernelBuilder) -> Iterator[tuple[Index, Row]]:
        """Open loops over blocks and the rows in them; yield the block and the row."""
        size = self._in_block
        with k.loop(self.blocks, kind=LoopKind.THREADS) as block:
            limit = None if self.blocks * size == self.count else Index(self.count) - block * size
            with k.loop(size, limit=limit) as i:
                row_index = block * size + i
                yield Index.of(block), get_row(k, self, row_index)

    @contextmanager
    def across(self, k: KernelBuilder, width: int) -> Iterator[tuple[Index, Row]]:
        """Open loops over rows that lie side by side, one row a lane. Yield the offset of a row's first element in
        scratch for `pieces(width) * width` rows, where its elements are `width` apart, and the row.
        """
        with k.loop(self.pieces(width), kind=LoopKind.THREADS) as piece:
            outer, part = divide(k, Index.of(piece), self.pieces(width) // self.outer)
            whole = self.inner % width == 0
            limit = None if whole else Index(self.inner) - part * width
            with k.loop(width, kind=LoopKind.LANES, width=width, limit=limit) as lane:
                start = part * width + lane
                offset = piece * (self.length * width) + lane
                yield offset, lambda length: outer * (length * self.inner) + start

    def pieces(self, width: int) -> int:
        """Return the number of loops over lanes, each of at most `width` rows that lie side by side."""
        return self.outer * -(-self.inner // width)


def get_row(k: KernelBuilder, rows: SortRows, i: Index) -> Row:
    """Return the i-th row."""
    outer, inner = (Index(), i) if rows.outer == 1 else divide(k, i, rows.inner)
    return lambda length: outer * (length * rows.inner) + inner


def divide(k: KernelBuilder, index: Index, by: int) -> tuple[Index, Index]:
    """Return quotient and remainder of an index that is not negative."""
    if by == 1:
        return index, Index()
    dividend, divisor = k.position(index), k.constant(by, dtypes.int64)
    return Index.of(k.compute("div", dividend, divisor)), Index.of(k.compute("rem", dividend, divisor))


@dataclass(frozen=True)
class SortTask:
    """Description of a sort: the keys and their order, the number of elements selected from each row, and the
    results: each an operand in the new order, or the order itself (None)."""

    fusion: Fusion
    keys: tuple[Any, ...]
    order: SortOrder
    selected: int
    results: tuple[tuple[Var, Any], ...]
    rows: SortRows

    @property
    def stages(self) -> list[list[SortField]]:
        """The words that elements are compared by, the most significant first."""
        return split_stages([storage(key) for key in self.keys])

    def element(self, writer: KernelWriter, atom: Any, row: Row, i: Any) -> Value:
        """Load an element of an operand."""
        return writer.k.load(writer.argument(atom), row(self.rows.length) + Index.of(i) * self.rows.inner)

    def word(self, writer: KernelWriter, stage: list[SortField], row: Row, i: Any) -> Value:
        """Return the word of an element that a stage compares."""
        return pack(writer.k.scalars, stage, lambda key: self.element(writer, self.keys[key], row, i), self.order)

    def store(
        self, writer: KernelWriter, v: Var, row: Row, i: Any, value: Value, condition: Value | None = None
    ) -> None:
        """Write an element of a result."""
        offset = row(self.selected) + Index.of(i) * self.rows.inner
        writer.k.store(writer.result(v), offset, value, condition)

    def store_results(
        self, writer: KernelWriter, row: Row, i: Any, origin: Any, condition: Value | None = None
    ) -> None:
        """Write all results at index i of a row: the elements at index `origin` of the operands."""
        k = writer.k
        for v, source in self.results:
            if source is None:
                index = origin if isinstance(origin, Value) else k.position(origin)
                value = k.scalars.convert(index, storage(v))
            else:
                value = self.element(writer, source, row, origin)
            self.store(writer, v, row, i, value, condition)


def describe_task(fusion: Fusion) -> SortTask:
    """Describe the hero: its operands, parameters and the results that are needed."""
    hero = fusion.hero
    assert hero is not None
    params, operands = hero.params, tuple(hero.invars)
    shape: tuple[int, ...] = operands[0].aval.shape  # type: ignore[attr-defined]
    sources: tuple[Any, ...]
    if hero.primitive is top_k:
        axis, selected, order = params["axis"], params["k"], SortOrder.DESCENDING
        keys, sources = operands, (operands[0], None)
    else:
        axis, order = params["dimension"], SortOrder.ASCENDING
        selected, keys, sources = shape[axis], operands[: params["num_keys"]], operands
    outer, inner = 1, 1
    for size in shape[:axis]:
        outer *= size
    for size in shape[axis + 1 :]:
        inner *= size
    pairs = zip(hero.outvars, sources, strict=True)
    results = tuple((v, source) for v, source in pairs if v in fusion.results)
    return SortTask(fusion, keys, order, selected, results, SortRows(outer, shape[axis], inner))
