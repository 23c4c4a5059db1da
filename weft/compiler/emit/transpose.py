"""The emitter of transposes: square tiles that are read along the operand's rows and written along the result's.

Hero: `transpose`; there may be several with one permutation. A tile is read as vectors along the dimension that is last
in the operand, turned round in registers, and worked on and stored as vectors along the dimension that is last in the
result. So memory is touched in whole lines on both sides. What does not fill a tile, and programs that compute so much
that a tile of copies of it would be long code, are visited along the result with loads that are apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.emission import Emission, Fusion, Writer, storage
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.values import Place, expanded, space_of
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Kind, Value
from weft.ops.elementwise import Elementwise
from weft.ops.families import inverse_permutation

# The longest side of a tile.
SIDE = 16
# Computing equations beyond which tiles are not copied out.
SMALL_PROGRAM = 10
# Elements in a row of a block that is visited with loads apart: what its lines need fits the first cache.
BLOCK = 64


class Axes:
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

    def index(self, places: dict[int, Index]) -> Place:
        """An index of the result's space. Of a group only the last dimension counts, beyond its own size: positions in
        memory are what they would be, in operand and result."""
        found = {group[-1]: places[n] for n, group in enumerate(self.groups)}
        return tuple(found.get(axis, Index()) for axis, d in enumerate(self.full) if d != 1)


def _uniform(fusion: Fusion) -> bool:
    """Whether everything is read at the index of the result or of the hero's operand, as it stands in memory."""
    hero: Any = fusion.hero
    program = fusion.program
    spaces = (space_of(hero.outvars[0]), space_of(hero.invars[0]), ())
    plain = all(_is_hero(fusion, e) or isinstance(e.primitive, Elementwise) for e in program.eqns)
    return plain and all(space_of(v) in spaces for v in program.invars)


def _is_hero(fusion: Fusion, equation: Any) -> bool:
    hero: Any = fusion.hero
    same = equation.primitive is hero.primitive and equation.params == hero.params
    return same and equation.invars[0].aval.shape == hero.invars[0].aval.shape


def emit_transpose(fusion: Fusion) -> Emission:
    """Kernels for whole tiles and for what is left of them."""
    axes = Axes(fusion)
    side = tile_side(fusion)
    rows, columns = axes.sizes[axes.read], axes.sizes[axes.written]
    work = sum(isinstance(e.primitive, Elementwise) for e in fusion.program.eqns)
    whole_rows, whole_columns = rows - rows % side, columns - columns % side
    if work > SMALL_PROGRAM or not whole_rows or not whole_columns:
        if math.prod(axes.sizes):
            writer = fusion.writer("transpose_apart")
            _visit_apart(writer, axes, (0, rows), (0, columns), threads=True)
        return fusion.finish(in_place=pointwise_pairs(fusion.program))
    writer = fusion.writer("transpose")
    _visit_tiles(writer, axes, side)
    if whole_rows < rows or whole_columns < columns:
        edges = fusion.writer("transpose_edges")
        if whole_rows < rows:
            _visit_apart(edges, axes, (whole_rows, rows), (0, columns), threads=False)
        if whole_columns < columns:
            _visit_apart(edges, axes, (0, whole_rows), (whole_columns, columns), threads=False)
    return fusion.finish(in_place=pointwise_pairs(fusion.program))


def tile_side(fusion: Fusion) -> int:
    """The side of a tile: the lanes of a register, of the widest elements that are turned."""
    widest = max(storage(e.outvars[0]).itemsize for e in fusion.program.eqns if _is_hero(fusion, e))
    return max(4, min(SIDE, fusion.vector_bytes // widest))


# ------------------------------------------------------------------------------------------------------- whole tiles


def _visit_tiles(writer: Writer, axes: Axes, side: int) -> None:
    """Loops over tiles, the longest of the outer ones over threads."""
    counts = {n: axes.sizes[n] for n in axes.others}
    counts[axes.written] = axes.sizes[axes.written] // side
    counts[axes.read] = axes.sizes[axes.read] // side
    outer = [*axes.others, axes.written]
    first = max(outer, key=lambda n: counts[n])
    order = [first, *(n for n in outer if n != first), axes.read]

    def inner(position: int, places: dict[int, Index]) -> None:
        if position == len(order):
            _tile(writer, axes, side, places)
            return
        number = order[position]
        with writer.k.loop(counts[number], kind=Kind.SERIAL if position else Kind.THREADS) as i:
            step = side if number in (axes.read, axes.written) else 1
            inner(position + 1, {**places, number: i * step})

    inner(0, {})


def _tile(writer: Writer, axes: Axes, side: int, places: dict[int, Index]) -> None:
    """Read a tile, turn it, and store it."""
    k, values, fusion = writer.k, writer.values, writer.fusion
    heroes = [e for e in fusion.program.eqns if _is_hero(fusion, e)]
    hero: Any = heroes[0]
    inverse = inverse_permutation(hero.params["permutation"])

    def operand_index(index: Place) -> Place:
        full = expanded(hero.outvars[0], index)
        return tuple(full[axis] for axis in inverse)

    codes = [code_dtype(storage(e.outvars[0])) for e in heroes]
    empty = [k.constant(0, dtype) for dtype in codes for _ in range(side)]
    with k.loop(side, kind=Kind.LANES, width=side, carries=empty) as (lane, _):
        read = []
        for e, dtype in zip(heroes, codes, strict=True):
            for number in range(side):
                place = {**places, axes.read: places[axes.read] + lane, axes.written: places[axes.written] + number}
                read.append(_code(k, values.at(e.invars[0], operand_index(axes.index(place))), dtype))
        vectors = k.carry(*read)
    turned = [v for n in range(len(heroes)) for v in transposed(k, vectors[n * side : (n + 1) * side])]
    with k.loop(side, kind=Kind.LANES, width=side, carries=turned) as (lane, inside):
        for number in range(side):
            for n, e in enumerate(heroes):
                made = e.outvars[0]
                values.overrides[made] = _decoded(k, inside[n * side + number], storage(made))
            place = {**places, axes.read: places[axes.read] + number, axes.written: places[axes.written] + lane}
            writer.store_results(axes.index(place))
            for e in heroes:
                del values.overrides[e.outvars[0]]
        k.carry(*inside)


def transposed(k: KernelBuilder, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors: each round interleaves the lanes of vectors that are half the square apart,
    which moves the highest bit of a row's number to the end of the lanes' numbers."""
    side = len(rows)
    halves = [[lane for i in range(start, start + side // 2) for lane in (i, i + side)] for start in (0, side // 2)]
    vectors = list(rows)
    for _ in range(side.bit_length() - 1):
        pairs = zip(vectors[: side // 2], vectors[side // 2 :], strict=True)
        vectors = [k.shuffle(pair, half) for pair in pairs for half in halves]
    return vectors


def code_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What stands for a dtype while it is turned: integers of the size that it has in memory, where lanes have others."""
    if dtypes.kind(dtype) == "b":
        return np.dtype(np.uint8)
    if dtypes.kind(dtype) == "f" and dtypes.itemsize_bits(dtype) in (8, 16):
        return dtypes.as_dtype(f"uint{dtypes.itemsize_bits(dtype)}")
    return dtype


def _code(k: KernelBuilder, value: Value, dtype: np.dtype[Any]) -> Value:
    return k.scalars.convert(value, dtype) if value.dtype == dtypes.bool_ else k.scalars.bitcast(value, dtype)


def _decoded(k: KernelBuilder, code: Value, dtype: np.dtype[Any]) -> Value:
    return k.scalars.convert(code, dtype) if dtype == dtypes.bool_ else k.scalars.bitcast(code, dtype)


# ------------------------------------------------------------------------------------------------------ other elements


def _visit_apart(
    writer: Writer, axes: Axes, rows: tuple[int, int], columns: tuple[int, int], threads: bool
) -> None:
    """Visit a range of both dimensions in blocks, lanes along the result, or along the operand if that is longer by
    far."""
    k, width = writer.k, writer.lanes
    ranges = {axes.read: rows, axes.written: columns}
    lanes, other = axes.written, axes.read
    if (columns[1] - columns[0]) * 2 <= width < rows[1] - rows[0]:
        lanes, other = other, lanes

    def blocks(number: int, position: int) -> Iterator[Any]:
        kind = Kind.THREADS if threads and position == 0 else Kind.SERIAL
        low, high = ranges[number]
        return k.loop(-(-(high - low) // BLOCK), kind=kind)  # type: ignore[return-value]

    def body(places: dict[int, Index], first: Any, second: Any) -> None:
        def within(number: int, block: Any, kind: Kind) -> Any:
            low, high = ranges[number]
            limit = None if (high - low) % BLOCK == 0 else Index(high - low) - block * BLOCK
            return k.loop(BLOCK, kind=kind, width=width if kind is Kind.LANES else 1, limit=limit)

        def place(number: int, block: Any, i: Any) -> Index:
            return block * BLOCK + i + ranges[number][0]

        with within(other, second, Kind.SERIAL) as j, within(lanes, first, Kind.LANES) as i:
            writer.store_results(
                axes.index({**places, lanes: place(lanes, first, i), other: place(other, second, j)})
            )

    def outer(position: int, places: dict[int, Index]) -> None:
        if position == len(axes.others):
            with blocks(lanes, position) as first, blocks(other, position + 1) as second:  # type: ignore[attr-defined]
                body(places, first, second)
            return
        number = axes.others[position]
        kind = Kind.THREADS if threads and position == 0 else Kind.SERIAL
        with k.loop(axes.sizes[number], kind=kind) as i:
            outer(position + 1, {**places, number: Index.of(i)})

    outer(0, {})
