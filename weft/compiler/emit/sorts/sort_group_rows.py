"""Sort of rows by groups of threads in local memory, and selection of the first elements of longer rows.

The words of a row are in local memory, and so is the order of its elements, which radix sort permutes digit by digit.
The tiles of a long row are sorted separately; candidates for the first elements are sorted again, until one tile has
all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.emit.sorts.sort_encoding import SortField, stage_bits, stage_dtype
from weft.compiler.emit.sorts.sort_rows import Row, SortTask, get_row
from weft.compiler.emit.sorts.sort_tiles import INT32, UINT16, UINT32, UINT64, TileRanks
from weft.compiler.kernel.ir import Buffer, Index, LoopKind, Value, Variable

# Lanes of a group, and elements of each at least; bits of a digit.
LANES, ELEMENTS, DIGIT = 256, 4, 8
# Elements of a tile: of words of 32 and of 64 bits.
TILE, TILE_OF_LONG = 4096, 2048
# Up to this many elements are selected tile by tile.
MOST_SELECTED = 512
# Index that marks no element.
NONE = (1 << 32) - 1


def most_elements(task: SortTask) -> int:
    """Return the greatest number of elements that a group of threads sorts."""
    return TILE if all(stage_dtype(stage) == UINT32 for stage in task.stages) else TILE_OF_LONG


def emit_group_rows(task: SortTask) -> None:
    """Emit a kernel with a group of threads for each row."""
    rows = task.rows
    sorter = TileSort(task, "sort_rows", rows.length)
    with sorter.k.loop(rows.count, kind=LoopKind.THREADS) as i:
        row = get_row(sorter.k, rows, Index.of(i))
        sorter.sort(row, rows.length, None, lambda i: (Index.of(i), None))
        sorter.store_results(row)


def emit_group_selection(task: SortTask) -> None:
    """Emit kernels that find the first elements of long rows."""
    rows, selected = task.rows, task.selected
    tile, length, candidates = most_elements(task), rows.length, None
    while length > tile:
        tiles = -(-length // tile)
        sorter = TileSort(task, "sort_candidates", tile)
        found = task.fusion.new_scratch(UINT32, rows.count * tiles * selected)
        with sorter.k.loop(rows.count * tiles, kind=LoopKind.THREADS) as i:
            r, first = sorter.k.digits(Index.of(i), (rows.count, tiles))
            row = get_row(sorter.k, rows, r)
            limit = None if length % tile == 0 else Index(length) - first * tile
            sorter.sort(row, tile, limit, sorter.origins(candidates, r * length + first * tile, first * tile))
            sorter.store_origins(found, (r * tiles + first) * selected)
        candidates, length = found, tiles * selected
    sorter = TileSort(task, "sort_rows", length)
    with sorter.k.loop(rows.count, kind=LoopKind.THREADS) as i:
        row = get_row(sorter.k, rows, Index.of(i))
        sorter.sort(row, length, None, sorter.origins(candidates, Index.of(i) * length, Index()))
        sorter.store_results(row)


# Element of a row that is the i-th of a tile, and the condition that it exists (None: always).
Origins = Callable[[Index], tuple[Index, Value | None]]


class TileSort:
    """Writer of a kernel that sorts tiles of at most `most` elements."""

    def __init__(self, task: SortTask, name: str, most: int) -> None:
        self.task, self.writer = task, task.fusion.writer(name, final=True)
        self.k = k = self.writer.k
        size = 32 * ELEMENTS
        while size < most:
            size *= 2
        lanes = min(LANES, size // ELEMENTS)
        self.ranks = TileRanks(k, lanes, size // lanes, min(DIGIT, lanes.bit_length() - 1))
        self.size = size
        long = any(stage_dtype(stage) == UINT64 for stage in task.stages)
        self.codes = k.local("words", UINT64 if long else UINT32, size)
        # Order of elements; each lane's slice of it and of the digits, in registers only.
        self.order = k.local("order", UINT16, size)
        self.held: tuple[Buffer, Buffer] = k.local("held", UINT16, size), k.local("digits", UINT32, size)
        # Elements of the sorted tile, the last of them, and whether the tile is full.
        self.origin_of: Origins | None = None
        self.last, self.whole = k.constant(0, INT32), True

    def origins(self, candidates: int | None, offset: Index, first: Index) -> Origins:
        """Return the elements of a tile that begins at `first`, or those in scratch memory from an offset on."""
        if candidates is None:
            return lambda i: (first + i, None)
        k, buffer = self.k, self.writer.scratch_input(candidates)

        def origin(i: Index) -> tuple[Index, Value | None]:
            found = k.load(buffer, offset + i)
            holds = k.compute("ne", found, k.constant(NONE, UINT32))
            return Index.of(k.compute("select_n", holds, k.constant(0, UINT32), found)), holds

        return origin

    def sort(self, row: Row, count: int, limit: Index | None, origin_of: Origins) -> None:
        """Sort `count` elements of a row, or as many as `limit` says."""
        k, s, ranks = self.k, self.k.scalars, self.ranks
        self.origin_of = origin_of
        self.last = k.position((Index(count) if limit is None else limit) - 1, INT32)
        if limit is not None:
            self.last = k.compute("min", self.last, k.constant(count - 1, INT32))
        self.whole = limit is None and count == self.size
        with ranks.over(self.size) as i:
            k.store(self.order, i, s.convert(k.position(i, INT32), UINT16))
        held, digits = self.held
        for stage in reversed(self.task.stages):
            with ranks.over(self.size) as i:
                k.store(self.codes, i, self.word(stage, row, i))
            with k.loop(-(-stage_bits(stage) // ranks.bits)) as n:
                dtype = self.codes.dtype
                # The mask changes nothing, but bounds the shift by the width of the word, so that it is not checked.
                most = k.constant(8 * dtype.itemsize - 1, dtype)
                shift = k.compute("and", s.convert(k.position(n * ranks.bits), dtype), most)

                def get_digit(i: Variable, element: Index, shift: Value = shift) -> Value:
                    own = k.load(self.order, element)
                    word = s.shift_right_logical(k.load(self.codes, own), shift)
                    mask = k.constant((1 << ranks.bits) - 1, word.dtype)
                    digit = s.convert(k.compute("and", word, mask), UINT32)
                    k.store(held, i, own)
                    k.store(digits, i, digit)
                    return digit

                ranks.rank(get_digit)
                ranks.add_up()
                with ranks.over(self.size) as i:
                    k.store(self.order, ranks.index(i, k.load(digits, i)), k.load(held, i))

    def word(self, stage: list[SortField], row: Row, i: Variable) -> Value:
        """Return the word of an element; an index past the end has the greatest word, which sorts last."""
        k, s = self.k, self.k.scalars
        assert self.origin_of is not None
        at, inside = self.clamp(k.position(i, INT32))
        origin, holds = self.origin_of(at)
        word = s.convert(self.task.word(self.writer, stage, row, origin), self.codes.dtype)
        for condition in (inside, holds):
            if condition is not None:
                most = k.constant((1 << 8 * word.dtype.itemsize) - 1, word.dtype)
                word = k.compute("select_n", condition, most, word)
        return word

    def clamp(self, at: Value) -> tuple[Index, Value | None]:
        """Clamp the index of an element to the tile; also return the condition that it was inside (None: always)."""
        if self.whole:
            return Index.of(at), None
        k = self.k
        return Index.of(k.compute("min", at, self.last)), k.compute("le", at, self.last)

    def first(self, body: Callable[[Variable, Value, Value | None], None]) -> None:
        """Call `body` for each selected element with its destination, its position in the tile, and the condition
        that it exists."""
        k, ranks, selected = self.k, self.ranks, self.task.selected
        whole = selected % ranks.lanes == 0
        with ranks.over(-(-selected // ranks.lanes) * ranks.lanes) as i:
            wanted = None if whole else k.compute("lt", k.position(i, INT32), k.constant(selected, INT32))
            body(i, k.scalars.convert(k.load(self.order, i), INT32), wanted)

    def store_results(self, row: Row) -> None:
        """Write the results of a row."""

        def body(i: Variable, own: Value, wanted: Value | None) -> None:
            assert self.origin_of is not None
            origin, _ = self.origin_of(self.clamp(own)[0])
            self.task.store_results(self.writer, row, i, self.k.position(origin), wanted)

        self.first(body)

    def store_origins(self, scratch: int, at: Index) -> None:
        """Write which elements of the row are the first ones of a tile."""
        k = self.k

        def body(i: Variable, own: Value, wanted: Value | None) -> None:
            assert self.origin_of is not None
            index, inside = self.clamp(own)
            origin, holds = self.origin_of(index)
            value = k.scalars.convert(k.position(origin), UINT32)
            for condition in (inside, holds):
                if condition is not None:
                    value = k.compute("select_n", condition, k.constant(NONE, UINT32), value)
            k.store(self.writer.scratch(scratch), at + i, value, wanted)

        self.first(body)
