"""The emitter of transposes: square tiles that are read along the operand's rows and written along the result's.

Hero: `transpose`; there may be several with one permutation. A tile is read as vectors along the dimension that is last
in the operand, transposed in registers, and worked on and stored as vectors along the dimension that is last in the
result. So memory is touched in whole lines on both sides. What does not fill a tile is visited along the result with
strided loads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.copied_dtypes import bits_dtype
from weft.compiler.emit.emission import Emission, Fusion, KernelWriter, get_size, storage
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.maps.loop import emit_loop
from weft.compiler.emit.values import MultiIndex, expand, get_space, row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, LoopKind, Value
from weft.ir.rules.compilation import element_cost
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import inverse_permutation

# The longest side of a tile, and that of a small array: larger tiles fill lines of memory, but are longer to compile.
SIDE, SHORT_SIDE = 16, 8
SMALL_BYTES = 1 << 20
# Bytes of a register within which shuffles are cheap.
PART_BYTES = 16
# Work on an element (in additions) beyond which the rows of a tile are a loop and not unrolled.
SMALL_WORK = 7
# For groups of threads: bytes of a row of a tile, the least and the most elements that it has, and bytes of a thread's
# vectors that are read at once.
GROUP_BYTES, LEAST_GROUP_SIDE, MOST_GROUP_SIDE, GROUP_READ = 256, 32, 64, 32
# Shortest dimensions that are tiled.
LEAST_SIDE = 8
# Elements per row of a block with strided loads: its cache lines fit L1.
BLOCK = 64


class TransposeAxes:
    """The dimensions of the result that loops see: those that stay together in operand and result are one.

    `read` is the dimension along which the operand is contiguous, `written` that along which the result is.
    """

    def __init__(self, fusion: Fusion) -> None:
        hero: Any = fusion.hero
        self.full = hero.outvars[0].aval.shape
        order = hero.params["permutation"]
        wide = [axis for axis, d in enumerate(self.full) if d != 1]
        # A group is a run of result dimensions that is one in the operand too.
        groups: list[list[int]] = []
        ranks = {axis: rank for rank, axis in enumerate(sorted(wide, key=lambda axis: order[axis]))}
        for axis in wide:
            if groups and ranks[axis] == ranks[groups[-1][-1]] + 1 and _uniform(fusion):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        self.groups = groups
        self.sizes = [math.prod(self.full[axis] for axis in group) for group in groups]
        self.written = len(groups) - 1
        last = max(wide, key=lambda axis: order[axis])
        self.read = next(n for n, group in enumerate(groups) if last in group)
        self.others = [n for n in range(len(groups)) if n not in (self.read, self.written)]

    def index(self, k: KernelBuilder, indices: dict[int, Index]) -> MultiIndex:
        """Return the index in the result's space for indices along the groups of dimensions."""
        parts = [k.unravel(indices[n], [self.full[axis] for axis in group]) for n, group in enumerate(self.groups)]
        return tuple(i for part in parts for i in part)


def _uniform(fusion: Fusion) -> bool:
    """Return whether everything is read at the index of the result or of the hero's operand, in memory order."""
    hero: Any = fusion.hero
    jaxpr = fusion.jaxpr
    spaces = (get_space(hero.outvars[0]), get_space(hero.invars[0]), ())
    plain = all(_is_hero(fusion, e) or isinstance(e.primitive, Elementwise) for e in jaxpr.eqns)
    return plain and all(get_space(v) in spaces for v in jaxpr.invars)


def _is_hero(fusion: Fusion, equation: Any) -> bool:
    hero: Any = fusion.hero
    same = equation.primitive is hero.primitive and equation.params == hero.params
    return same and equation.invars[0].aval.shape == hero.invars[0].aval.shape


def emit_transpose(fusion: Fusion) -> Emission:
    """Emit kernels for whole tiles and for the edges."""
    axes = TransposeAxes(fusion)
    side = tile_side(fusion)
    rows, columns = axes.sizes[axes.read], axes.sizes[axes.written]
    whole_rows, whole_columns = rows - rows % side, columns - columns % side
    if fusion.target.group_lanes:
        if min(rows, columns) < LEAST_SIDE:
            # Threads side by side read whole sectors together: there are as many streams as short rows.
            return emit_loop(fusion)
        _visit_by_groups(fusion, axes)
        return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr))
    before, after = _work(fusion)
    parked = _parking(fusion) if max(before, after) > SMALL_WORK else None
    if not whole_rows or not whole_columns or (parked is None and max(before, after) > SMALL_WORK):
        if math.prod(axes.sizes):
            writer = fusion.writer("transpose_strided")
            _visit_blocks(writer, axes, (0, rows), (0, columns), threads=True)
        return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr))
    writer = fusion.writer("transpose")
    tiles = _Tiles(
        writer,
        axes,
        side,
        parked if before > SMALL_WORK else None,
        parked if after > SMALL_WORK else None,
    )
    tiles.visit()
    if whole_rows < rows or whole_columns < columns:
        edges = fusion.writer("transpose_edges")
        if whole_rows < rows:
            _visit_blocks(edges, axes, (whole_rows, rows), (0, columns), threads=False)
        if whole_columns < columns:
            _visit_blocks(edges, axes, (0, whole_rows), (whole_columns, columns), threads=False)
    # A result that holds parked tiles is written before all operands are read.
    return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr) if parked is None else ())


def _work(fusion: Fusion) -> tuple[float, float]:
    """Return the weight of computing an element before the heroes and after them."""
    needed: set[Any] = set()
    before = after = 0.0
    for equation in reversed(fusion.jaxpr.eqns):
        if _is_hero(fusion, equation):
            needed.update(equation.invars)
        elif needed.intersection(equation.outvars):
            needed.update(equation.invars)
            before += element_cost(equation)
        else:
            after += element_cost(equation)
    return before, after


def _parking(fusion: Fusion) -> Any:
    """Return a result whose memory can hold a tile for a while, None if none can: it must have the elements of the
    only hero.
    """
    heroes = [e for e in fusion.jaxpr.eqns if _is_hero(fusion, e)]
    dtype = fusion.kernel_dtype(heroes[0].outvars[0])
    same = (v for v in fusion.jaxpr.outvars if fusion.kernel_dtype(v) == dtype)
    return next(same, None) if len(heroes) == 1 else None


def tile_side(fusion: Fusion) -> int:
    """Return the side of a tile: the lanes of a register for the widest elements that are transposed."""
    widest = max((e.outvars[0] for e in fusion.jaxpr.eqns if _is_hero(fusion, e)), key=lambda v: storage(v).itemsize)
    size = storage(widest).itemsize
    longest = SHORT_SIDE if size > 2 and get_size(widest) * size < SMALL_BYTES else SIDE
    return max(4, min(longest, fusion.target.vector_bytes // size))


# ------------------------------------------------------------------------------------------------------- whole tiles


class _Tiles:
    """The loops over tiles, and what is done with each.

    With much work, the rows of a tile are not unrolled: the tile is parked in a result, where it belongs anyway, and
    its rows are visited by a loop, before it is transposed (`before` is that result) or after that (`after`).
    """

    def __init__(self, writer: KernelWriter, axes: TransposeAxes, side: int, before: Any, after: Any) -> None:
        self.writer, self.axes, self.side = writer, axes, side
        self.before, self.after = before, after
        self.heroes: list[Any] = [e for e in writer.fusion.jaxpr.eqns if _is_hero(writer.fusion, e)]
        self.inverse = inverse_permutation(self.heroes[0].params["permutation"])

    def visit(self) -> None:
        """Emit loops over all tiles: the longest over threads, the innermost along the operand's rows."""
        axes, side = self.axes, self.side
        counts = {n: axes.sizes[n] for n in axes.others}
        counts |= {n: axes.sizes[n] // side for n in (axes.written, axes.read)}
        order = [*_longest_first([*axes.others, axes.written], counts), axes.read]

        def inner(position: int, indices: dict[int, Index]) -> None:
            if position == len(order):
                self.tile(indices)
                return
            axis = order[position]
            with self.writer.k.loop(counts[axis], kind=LoopKind.SERIAL if position else LoopKind.THREADS) as i:
                step = side if axis in (axes.read, axes.written) else 1
                inner(position + 1, {**indices, axis: i * step})

        inner(0, {})

    def tile(self, indices: dict[int, Index]) -> None:
        """Read a tile, transpose it, and store it."""
        k, side, heroes, kernel_dtype = self.writer.k, self.side, self.heroes, self.writer.fusion.kernel_dtype
        if self.before is not None:
            with k.loop(side) as row, k.loop(side, kind=LoopKind.LANES, width=side) as lane:
                self.park(self.before, self.index(indices, row, lane), self.operand(heroes[0], indices, lane, row))
        codes = [code_dtype(kernel_dtype(e.outvars[0])) for e in heroes]
        empty = [k.constant(0, dtype) for dtype in codes for _ in range(side)]
        with k.loop(side, kind=LoopKind.LANES, width=side, carries=empty) as (lane, _):
            vectors = k.carry(
                *(
                    _code(k, self.read(e, indices, i, lane), dtype)
                    for e, dtype in zip(heroes, codes, strict=True)
                    for i in range(side)
                )
            )
        transposed_rows = [
            v for n in range(len(heroes)) for v in transpose_square(k, vectors[n * side : (n + 1) * side])
        ]
        with k.loop(side, kind=LoopKind.LANES, width=side, carries=transposed_rows) as (lane, inside):
            for i in range(side):
                values = [_decode(k, inside[n * side + i], kernel_dtype(e.outvars[0])) for n, e in enumerate(heroes)]
                if self.after is not None:
                    self.park(self.after, self.index(indices, i, lane), values[0])
                else:
                    self.store(self.index(indices, i, lane), values)
            k.carry(*inside)
        if self.after is not None:
            with k.loop(side) as row, k.loop(side, kind=LoopKind.LANES, width=side) as lane:
                index = self.index(indices, row, lane)
                self.store(index, [self.load_parked(self.after, index)])

    def index(self, indices: dict[int, Index], row: Any, column: Any) -> MultiIndex:
        """Return the result's index of an element of a tile, whose rows are along the written axis."""
        axes = self.axes
        shifted = {axes.read: indices[axes.read] + row, axes.written: indices[axes.written] + column}
        return axes.index(self.writer.k, {**indices, **shifted})

    def operand(self, hero: Any, indices: dict[int, Index], row: Any, column: Any) -> Value:
        """Read the element of the hero's operand that belongs at an element of a tile."""
        full = expand(hero.outvars[0], self.index(indices, row, column))
        return self.writer.values.at(hero.invars[0], tuple(full[axis] for axis in self.inverse))

    def read(self, hero: Any, indices: dict[int, Index], i: int, lane: Any) -> Value:
        """Read a lane of one of the vectors that are transposed."""
        if self.before is not None:
            return self.load_parked(self.before, self.index(indices, i, lane))
        return self.operand(hero, indices, lane, i)

    def store(self, index: MultiIndex, values: Sequence[Value]) -> None:
        """Compute with an element of each hero, and store the results."""
        overrides = self.writer.values.overrides
        overrides.update((e.outvars[0], value) for e, value in zip(self.heroes, values, strict=True))
        self.writer.store_results(index)
        for e in self.heroes:
            del overrides[e.outvars[0]]

    def park(self, v: Any, index: MultiIndex, value: Value) -> None:
        self.writer.store(v, index, value)

    def load_parked(self, v: Any, index: MultiIndex) -> Value:
        return self.writer.k.load(self.writer.result(v), row_major(v.aval.shape, expand(v, index)))


def transpose_square(k: KernelBuilder, rows: Sequence[Value]) -> list[Value]:
    """Transpose a square of vectors.

    Registers consist of parts, between which elements move less easily. So squares as long as a part are transposed
    first, side by side in all parts, and then the parts are exchanged.
    """
    side, dtype = len(rows), rows[0].dtype
    part = min(side, PART_BYTES // (dtype.itemsize // 2 if dtypes.kind(dtype) == "c" else dtype.itemsize))
    transposed_rows: list[Value] = []
    for first in range(0, side, part):
        transposed_rows += _transpose_parts(k, rows[first : first + part], side)
    columns = [_collect_parts(k, transposed_rows[j::part], part, side) for j in range(part)]
    return [columns[i % part][i // part] for i in range(side)]


def _transpose_parts(k: KernelBuilder, rows: Sequence[Value], side: int) -> list[Value]:
    """Transpose the square in each part of as many vectors as a part has elements. A round interleaves vectors that
    are half of them apart, which moves the highest bit of a vector's index to the end of the index of an element.
    """
    vectors, part = list(rows), len(rows)
    half = part // 2
    halves = [
        [lane for first in range(start, side, part) for i in range(first, first + half) for lane in (i, i + side)]
        for start in (0, half)
    ]
    for _ in range(part.bit_length() - 1):
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [k.shuffle(pair, chosen) for pair in pairs for chosen in halves]
    return vectors


def _collect_parts(k: KernelBuilder, vectors: Sequence[Value], part: int, side: int) -> list[Value]:
    """Collect the first parts of all vectors, their second parts, and so on: even parts of neighbours, and odd ones,
    are concatenated until each vector has parts of one index only.
    """
    if len(vectors) == 1:
        return list(vectors)
    sorted_parts = []
    for start in (0, part):
        chosen = [lane for first in range(start, 2 * side, 2 * part) for lane in range(first, first + part)]
        paired = [k.shuffle(pair, chosen) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
        sorted_parts.append(_collect_parts(k, paired, part, side))
    return [vector for pair in zip(*sorted_parts, strict=True) for vector in pair]


def code_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of elements while they are transposed: where lanes and memory differ in size, an integer of
    the size in memory.
    """
    bits = bits_dtype(dtype)
    return dtype if bits is None or dtypes.kind(dtype) == "c" else bits


def _code(k: KernelBuilder, value: Value, dtype: np.dtype[Any]) -> Value:
    return k.scalars.convert(value, dtype) if value.dtype == dtypes.bool_ else k.scalars.bitcast(value, dtype)


def _decode(k: KernelBuilder, code: Value, dtype: np.dtype[Any]) -> Value:
    return k.scalars.convert(code, dtype) if dtype == dtypes.bool_ else k.scalars.bitcast(code, dtype)


# ------------------------------------------------------------------------------------------- tiles of groups of threads


def _visit_by_groups(fusion: Fusion, axes: TransposeAxes) -> None:
    """Transpose one tile per group of threads: read rows into local memory, then write its columns. Rows there are
    one element longer, so that a column spreads over the banks of memory.
    """
    writer = fusion.writer("transpose", final=True)
    k, tiles = writer.k, _Tiles(writer, axes, 0, None, None)
    stored_dtypes = [fusion.kernel_dtype(e.outvars[0]) for e in tiles.heroes]
    fitting = GROUP_BYTES // max(dtype.itemsize for dtype in stored_dtypes)
    side = min(MOST_GROUP_SIDE, max(LEAST_GROUP_SIDE, fitting))
    memory = [k.local(f"tile{n}", code_dtype(dtype), side * (side + 1)) for n, dtype in enumerate(stored_dtypes)]
    most = max(1, GROUP_READ // sum(dtype.itemsize * fusion.target.thread_lanes for dtype in stored_dtypes))
    sizes = {axis: axes.sizes[axis] for axis in (axes.written, axes.read)}
    lengths = {axis: min(side, size) for axis, size in sizes.items()}
    counts = [*(axes.sizes[n] for n in axes.others), *(-(-size // side) for size in sizes.values())]
    with k.loop(math.prod(counts), kind=LoopKind.THREADS) as thread:
        *others, written, read = k.digits(Index.of(thread), counts)
        first = {axes.written: written * side, axes.read: read * side}
        indices = dict(zip(axes.others, others, strict=True)) | first

        def vectors(rows: int, lanes: int, visit: Any) -> None:
            """Visit rows of the tile along one axis, several at a time, with lanes along the other. Rows of a whole
            tile are spaced so that threads of one warp read neighbouring ones.
            """
            step = math.gcd(most, sizes[rows], lengths[rows])
            limits = {n: None if sizes[n] % lengths[n] == 0 else Index(sizes[n]) - first[n] for n in sizes}
            whole = limits[rows] is None
            apart = lengths[rows] // step if whole else 1
            with (
                k.loop(apart if whole else side, step=1 if whole else step, limit=limits[rows]) as row,
                k.loop(lengths[lanes], kind=LoopKind.LANES, width=side, limit=limits[lanes]) as lane,
            ):
                visit([Index.of(row) + n * apart for n in range(step)], Index.of(lane))

        def read_rows(rows: Sequence[Index], lane: Index) -> None:
            found = [_code(k, tiles.operand(e, indices, lane, row), m.dtype) for row in rows
                     for e, m in zip(tiles.heroes, memory, strict=True)]  # fmt: skip
            stores = iter(found)
            for row in rows:
                for buffer in memory:
                    k.store(buffer, row * (side + 1) + lane, next(stores))

        def write_rows(rows: Sequence[Index], lane: Index) -> None:
            for row in rows:
                codes = [k.load(buffer, lane * (side + 1) + row) for buffer in memory]
                values = [_decode(k, code, dtype) for code, dtype in zip(codes, stored_dtypes, strict=True)]
                tiles.store(tiles.index(indices, row, lane), values)

        vectors(axes.written, axes.read, read_rows)
        vectors(axes.read, axes.written, write_rows)


# ------------------------------------------------------------------------------------------------------ other elements


def _visit_blocks(
    writer: KernelWriter, axes: TransposeAxes, rows: tuple[int, int], columns: tuple[int, int], threads: bool
) -> None:
    """Visit a range of both dimensions in blocks, lanes along the result, or along the operand if that is longer by
    far."""
    k, width = writer.k, writer.lanes
    ranges = {axes.read: rows, axes.written: columns}
    lengths = {n: high - low for n, (low, high) in ranges.items()}
    lanes, other = axes.written, axes.read
    if lengths[lanes] * 2 <= width < lengths[other]:
        lanes, other = other, lanes
    counts = {n: axes.sizes[n] for n in axes.others} | {n: -(-lengths[n] // BLOCK) for n in (lanes, other)}
    order = _longest_first([*axes.others, lanes, other], counts)

    def outer(position: int, indices: dict[int, Index]) -> None:
        if position == len(order):
            block(indices)
            return
        kind = LoopKind.THREADS if threads and position == 0 else LoopKind.SERIAL
        with k.loop(counts[order[position]], kind=kind) as i:
            outer(position + 1, {**indices, order[position]: Index.of(i)})

    def block(indices: dict[int, Index]) -> None:
        limits = {
            n: None if lengths[n] % BLOCK == 0 else Index(lengths[n]) - indices[n] * BLOCK for n in (lanes, other)
        }
        first = {n: indices[n] * BLOCK + ranges[n][0] for n in (lanes, other)}
        with (
            k.loop(BLOCK, limit=limits[other]) as j,
            k.loop(BLOCK, kind=LoopKind.LANES, width=width, limit=limits[lanes]) as i,
        ):
            here = {**indices, lanes: first[lanes] + i, other: first[other] + j}
            writer.store_results(axes.index(k, here))

    outer(0, {})


def _longest_first(axes: Sequence[int], counts: dict[int, int]) -> list[int]:
    """Order axes with the longest first, for threads, and the others unchanged."""
    first = max(axes, key=lambda n: counts[n])
    return [first, *(n for n in axes if n != first)]
