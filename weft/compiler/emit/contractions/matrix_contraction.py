"""Contractions by groups of threads and the matrix units of the target (`GroupMatmul`).

A group has a tile of the result. Operands are read in place if they are contiguous along K or across it and aligned to
16 bytes; otherwise an earlier kernel copies them. The sums of a tile end in local memory, from which the threads of the
group read them row by row and compute the epilogue.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.contractions.contraction_loops import (
    ArgumentView,
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    OperandAccess,
    OperandReader,
    access,
    finish,
)
from weft.compiler.emit.contractions.microkernel import add_parts
from weft.compiler.emit.contractions.symbolic_plan import is_symbolic
from weft.compiler.emit.emission import Fusion, KernelWriter, kernel_dtype
from weft.compiler.emit.maps.loop import nest
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, GroupMatmul, Index, LoopKind, MatmulOperand
from weft.primitives.contraction.precision import allows_tf32

# Matrix units do not pay off with fewer multiplications (of all matrices, or of one) or more padding.
LEAST_WORK, LEAST_MATRIX, MOST_PADDING = 1 << 21, 1 << 17, 4.0
# The same in loops, where teams that share sums are faster; and multiplications from which a loop need not be one
# kernel, which limits the size of tiles.
LEAST_LOOP_WORK, LARGE_WORK = 1 << 24, 1 << 28
# Cost model. PROCESSORS of a large GPU. ALONE: rounds that a tile takes if it has a processor to itself, relative to
# two tiles that share one. READING: cost of loading one row or column of a tile per element of K, in multiply-adds.
# FINISHING: cost of a tile's prologue and epilogue, in elements of K.
PROCESSORS, ALONE, READING, FINISHING = 132, 5 / 3, 56, 256
# Candidate numbers of slices of K, each of at least LEAST_TERMS terms. Another kernel adds their sums.
PARTS, LEAST_TERMS, ADDING, ANOTHER_KERNEL = (1, 2, 4, 8, 16), 512, 5, 1 << 21
# Alignment of operands in bytes, and padding between rows of sums in elements.
PIECE, SUM_PADDING = 16, 8
# Rows of tiles whose groups are adjacent, so that they share columns of the right operand in the cache.
MOST_NEIGHBOURS = 8


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile, bytes along K per copy, number of copies in flight, and threads."""

    rows: int
    columns: int
    chunk_bytes: int
    copies: int
    threads: int = 128

    @property
    def local_bytes(self) -> int:
        """The local memory that it takes at most."""
        copied = (self.rows + self.columns) * (self.chunk_bytes + PIECE) * self.copies
        return max(copied, self.rows * (self.columns + SUM_PADDING) * 4)


# Larger tiles load less; smaller ones are for few tiles or little local memory.
TILES = (
    Tile(128, 128, 128, 3),
    Tile(128, 128, 64, 4),
    Tile(128, 64, 128, 3),
    Tile(128, 64, 64, 3),
    Tile(64, 64, 128, 3),
    Tile(64, 64, 64, 3),
    Tile(64, 32, 128, 4),
    Tile(32, 64, 128, 4),
    Tile(32, 32, 128, 4),
    Tile(64, 32, 64, 2),
)


@dataclass(frozen=True)
class MatrixOperand:
    """Operand of the contraction: its elements, its access pattern, its free axis, and its location if matrix units
    read it in place."""

    element: OperandReader
    access: OperandAccess
    dtype: np.dtype[Any]
    own: ContractionAxis
    source: ArgumentView | None
    k_stride: int = 0


@dataclass(frozen=True)
class MatrixPlan:
    """Operands, tiles, and the number of slices of K."""

    left: MatrixOperand
    right: MatrixOperand
    tile: Tile
    parts: int


def matrix_plan(
    fusion: Fusion, contraction: ContractionLoops, atoms: tuple[Any, Any], elements: tuple[OperandReader, OperandReader]
) -> MatrixPlan | None:
    """Plan a contraction by matrix units; return None if they cannot or should not compute it. `elements` read the
    operands' elements in their own dtypes.
    """
    units, hero = fusion.target.matrices, fusion.hero
    assert hero is not None
    kinds = {kernel_dtype(atom, fusion.copied) for atom in atoms}
    if len(kinds) != 1 or not kinds <= units.dtypes or contraction.compute != dtypes.float32:
        return None
    (dtype,) = kinds
    if dtype == dtypes.float32 and not allows_tf32(dtype, hero.params.get("precision")):
        return None
    found = [access(fusion, element, contraction.axes) for element in elements]
    least = LEAST_LOOP_WORK if units.in_loops else LEAST_WORK
    if is_symbolic(contraction, (found[0], found[1])) or contraction.multiplications < least:
        return None
    own = [[a for a in contraction.free if f.stride(a) and not g.stride(a)] for f, g in (found, reversed(found))]
    # Columns are the contiguous axis of the result.
    if not contraction.k_axes or not own[0] or not own[1] or own[1][-1] is not contraction.free[-1]:
        return None
    axes = max(own[0], key=lambda axis: axis.size), own[1][-1]
    if math.prod(axis.size for axis in (*axes, *contraction.k_axes)) < LEAST_MATRIX:
        return None
    shape = _shape(fusion, contraction, axes, dtype)
    if shape is None:
        return None
    left, right = (
        _operand(element, of, dtype, axis, contraction) for element, of, axis in zip(elements, found, axes, strict=True)
    )
    return MatrixPlan(left, right, *shape)


def _shape(
    fusion: Fusion,
    contraction: ContractionLoops,
    axes: tuple[ContractionAxis, ContractionAxis],
    dtype: np.dtype[Any],
) -> tuple[Tile, int] | None:
    """Choose the tile and the number of parts of K with the least estimated time over all processors; return None if
    there is too much padding.
    """
    units = fusion.target.matrices
    in_loop = units.in_loops and contraction.multiplications < LARGE_WORK
    room = units.loop_bytes if in_loop else units.local_bytes
    results = math.prod(axis.size for axis in contraction.free)
    length = math.prod(axis.size for axis in contraction.k_axes)
    others = results // math.prod(axis.size for axis in axes)

    def count(tile: Tile) -> int:
        return others * -(-axes[0].size // tile.rows) * -(-axes[1].size // tile.columns)

    def cost(shape: tuple[Tile, int]) -> float:
        tile, parts = shape
        rounds = max(-(-count(tile) * parts // PROCESSORS), ALONE)
        one = max(tile.rows * tile.columns, READING * (tile.rows + tile.columns))
        added = ANOTHER_KERNEL + ADDING * parts * results if parts > 1 else 0
        return rounds * (one * length / parts + FINISHING * tile.rows * tile.columns) + added

    def fits(shape: tuple[Tile, int]) -> bool:
        tile, parts = shape
        padding = count(tile) * tile.rows * tile.columns / results
        # Slices of K are whole chunks.
        whole = length >= parts * LEAST_TERMS and length * dtype.itemsize % (parts * tile.chunk_bytes) == 0
        return tile.local_bytes <= room and padding <= MOST_PADDING and (parts == 1 or (whole and not units.in_loops))

    return min(filter(fits, [(tile, parts) for tile in TILES for parts in PARTS]), key=cost, default=None)


def _operand(
    element: OperandReader,
    found: OperandAccess,
    dtype: np.dtype[Any],
    own: ContractionAxis,
    contraction: ContractionLoops,
) -> MatrixOperand:
    """Describe an operand: with its source if matrix units can read it in place, else without."""
    source = found.source
    k_stride = 0 if source is None else _collapse_stride(contraction.k_axes, source)
    if source is None or not k_stride:
        return MatrixOperand(element, found, dtype, own, None)
    strides = {axis: stride for axis, stride in source.strides.items() if axis not in contraction.k_axes}
    apart = [*strides.values(), k_stride, source.offset]
    # Either its free axis or K is contiguous; all other strides are multiples of the copied segment.
    near = 1 in (strides.get(own), k_stride) and apart.count(1) == 1
    aligned = all(n == 1 or (n >= 0 and n * dtype.itemsize % PIECE == 0) for n in apart)
    if not near or not aligned or source.offset == 1 or not strides.get(own, 0):
        return MatrixOperand(element, found, dtype, own, None)
    return MatrixOperand(element, found, dtype, own, source, k_stride)


def _collapse_stride(axes: tuple[ContractionAxis, ...], source: ArgumentView) -> int:
    """Return the stride of several axes collapsed into one, 0 if they cannot be collapsed."""
    strides = [source.strides.get(axis, 0) for axis in axes]
    together = all(
        stride == inner * axis.size for stride, inner, axis in zip(strides, strides[1:], axes[1:], strict=False)
    )
    return int(strides[-1]) if together else 0


@dataclass(frozen=True)
class _Copied:
    """Operand in scratch memory: its offset along each axis, and the stride of K."""

    scratch: int
    strides: dict[ContractionAxis, int]
    k_stride: int


def _copy(fusion: Fusion, contraction: ContractionLoops, operand: MatrixOperand) -> _Copied:
    """Emit a kernel that copies an operand, in its own order, so that rows start at multiples of 16 bytes."""
    writer = fusion.writer("pack")
    own, k_axes = operand.own, contraction.k_axes
    leading = [a for a in contraction.free if a in operand.access.strides and a is not own]
    along_k = operand.access.stride(own) != 1
    length = math.prod(axis.size for axis in k_axes)
    near = length if along_k else own.size
    piece = PIECE // operand.dtype.itemsize
    padded = -(-near // piece) * piece
    strides, stride = ({own: padded}, padded * own.size) if along_k else ({own: 1}, padded * length)
    k_stride = 1 if along_k else padded
    for axis in reversed(leading):
        strides[axis] = stride
        stride *= axis.size
    scratch = fusion.new_scratch(operand.dtype, stride)
    order = [*leading, own, *k_axes] if along_k else [*leading, *k_axes, own]

    def body(index: tuple[Index, ...]) -> None:
        at = dict(zip(order, index, strict=True))
        k = Index()
        for axis in k_axes:
            k = k * axis.size + at[axis]
        target = k * k_stride
        for axis, apart in strides.items():
            target = target + at[axis] * apart
        writer.k.store(writer.scratch(scratch), target, operand.element(writer, Coordinates(at)))

    nest(writer.k, [axis.size for axis in order], writer.lanes, body)
    return _Copied(scratch, strides, k_stride)


def emit_contraction_by_matrix_units(fusion: Fusion, contraction: ContractionLoops, plan: MatrixPlan) -> None:
    """Emit the kernel of a contraction, with the epilogue that the fusion has, and before it those that copy operands
    which cannot be read where they are."""
    sides = plan.left, plan.right
    copied = [None if side.source is not None else _copy(fusion, contraction, side) for side in sides]
    writer = fusion.writer("matrices", final=True)
    k, tile = writer.k, plan.tile
    stride = tile.columns + SUM_PADDING
    sums = k.local("sums", np.float32, tile.rows * stride)
    axes, sizes = (plan.left.own, plan.right.own), (tile.rows, tile.columns)
    others = [axis for axis in contraction.free if axis not in axes]
    blocks = [-(-axis.size // size) for axis, size in zip(axes, sizes, strict=True)]
    near = math.gcd(MOST_NEIGHBOURS, blocks[0])
    counts = [plan.parts, *(axis.size for axis in others), blocks[0] // near, blocks[1], near]
    size = math.prod(contraction.shape)
    partial = fusion.new_scratch(np.float32, plan.parts * size) if plan.parts > 1 else 0
    with k.loop(math.prod(counts), kind=LoopKind.THREADS) as group:
        part, *outer, row, column, neighbour = _digits(k, Index.of(group), counts)
        at = dict(zip(others, outer, strict=True))
        firsts = (row * near + neighbour) * tile.rows, column * tile.columns
        limits = [
            Index(axis.size) - first if axis.size % size else None
            for axis, first, size in zip(axes, firsts, sizes, strict=True)
        ]
        k_size = math.prod(axis.size for axis in contraction.k_axes) // plan.parts
        left, right = (
            _matmul_operand(writer, side, copy, {**at, side.own: first}, part * k_size, limit)
            for side, copy, first, limit in zip(sides, copied, firsts, limits, strict=True)
        )
        chunk = tile.chunk_bytes // plan.left.dtype.itemsize
        copies = max(2, min(tile.copies, -(-k_size // chunk)))
        k.matmul(GroupMatmul(sums, stride, left, right, *sizes, k_size, chunk, copies, tile.threads))
        # Loops over a single partial tile end with the result, so that rows provably do not overlap.
        ends = [min(axis.size, size) for axis, size in zip(axes, sizes, strict=True)]
        left_over = [
            None if axis.size <= size else limit for axis, size, limit in zip(axes, sizes, limits, strict=True)
        ]
        with (
            k.loop(ends[0], limit=left_over[0]) as i,
            k.loop(ends[1], kind=LoopKind.LANES, width=tile.columns, limit=left_over[1]) as j,
        ):
            total = k.load(sums, i * stride + j)
            indices = {**at, axes[0]: firsts[0] + i, axes[1]: firsts[1] + j}
            if plan.parts == 1:
                finish(writer, contraction, indices, total)
            else:
                k.store(writer.scratch(partial), part * size + contraction.result_offset(indices), total)
    if plan.parts > 1:
        add_parts(fusion, contraction, plan.parts, partial)


def _digits(k: KernelBuilder, index: Index, counts: list[int]) -> list[Index]:
    """Unravel a row-major index into indices below `counts`; counts of 1 need no division."""
    several = [count for count in counts if count > 1]
    found = iter(k.digits(index, several) if several else ())
    return [next(found) if count > 1 else Index() for count in counts]


def _matmul_operand(
    writer: KernelWriter,
    side: MatrixOperand,
    copied: _Copied | None,
    at: dict[ContractionAxis, Index],
    k: Index,
    limit: Index | None,
) -> MatmulOperand:
    """Build the `GroupMatmul` operand of a tile that starts at indices `at` and index `k` along K."""
    buffer: Buffer
    if copied is None:
        assert side.source is not None
        buffer, offset, strides, k_stride = (
            writer.argument(side.source.argument), side.source.offset, side.source.strides, side.k_stride
        )  # fmt: skip
    else:
        buffer, offset, strides, k_stride = writer.scratch_input(copied.scratch), 0, copied.strides, copied.k_stride
    index = Index(offset) + k * k_stride
    for axis, i in at.items():
        index = index + i * strides.get(axis, 0)
    return MatmulOperand(buffer, index, int(strides[side.own]), k_stride, limit)
