"""Contractions of bfloat16 and of bytes by tile registers (x86's AMX).

One kernel packs both operands into tiles of 16 rows of 64 bytes, zeros where a matrix ends inside of a tile. Another
one multiplies tiles, with the sums of 32 x 32 elements in registers over a chunk of K, and computes the epilogue.

    left tile     row: a row of the matrix, 64 bytes along K
    right tile    row: 4 bytes along K (a group) of each of 16 columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.contractions.contraction_loops import (
    Access,
    ContractionAxis,
    ContractionLoops,
    Coordinates,
    OperandReader,
    access,
    store_at,
)
from weft.compiler.emit.contractions.microkernel import unravelled
from weft.compiler.emit.copied_dtypes import bits_dtype, bits_of, copied_dtypes
from weft.compiler.emit.emission import Fusion, Writer
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import TILE_BYTES, TILE_ROW_BYTES, TILE_ROWS, Index, LoopKind, TileMatmul, Value
from weft.compiler.kernel.tiles import SUPPORTED
from weft.ir.jaxpr import Jaxpr, Literal

# With fewer multiplications, or more padding, packing does not pay.
LEAST_WORK, MOST_PADDING = 1 << 17, 2.0
GROUP_BYTES = 4
# The most results of a task, and the least number of tasks; bytes of operands that a task reuses from the second cache,
# and the least tiles along K of such a chunk.
MOST_TASK, TASKS = 512 * 512, 96
CHUNK_BYTES, LEAST_CHUNK = 768 << 10, 8


@dataclass(frozen=True)
class Operand:
    """One operand of a contraction: its atom in the fusion, its elements as they are stored, the axes that are its own,
    and those that lead (batch axes, and all but one of its own)."""

    atom: Any
    element: OperandReader
    access: Access
    across: ContractionAxis
    leading: tuple[ContractionAxis, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.atom.aval.dtype)


@dataclass(frozen=True)
class Matrices:
    """What is multiplied: `k_axes` are the axes along K, the last of which tiles run along."""

    contraction: ContractionLoops
    left: Operand
    right: Operand
    k_axes: tuple[ContractionAxis, ...]

    @property
    def inner(self) -> ContractionAxis:
        return self.k_axes[-1]

    @property
    def row(self) -> int:
        """Elements in a row of a tile."""
        return TILE_ROW_BYTES // self.left.dtype.itemsize

    @property
    def group(self) -> int:
        """Elements along K that a tile of the right operand has side by side."""
        return GROUP_BYTES // self.left.dtype.itemsize

    @property
    def steps(self) -> int:
        """Tiles along K, over all its axes."""
        return prod(a.size for a in self.k_axes[:-1]) * -(-self.inner.size // self.row)

    def tiles(self, operand: Operand) -> int:
        """How many tiles are multiplied side by side: two, if there are two."""
        return 2 if operand.across.size > TILE_ROWS else 1

    def panels(self, operand: Operand) -> int:
        """Tiles along the operand's own axis, in whole blocks of those that go together."""
        together = self.tiles(operand)
        return -(-operand.across.size // (TILE_ROWS * together)) * together


def matrices(
    fusion: Fusion, contraction: ContractionLoops, atoms: tuple[Any, Any], elements: tuple[OperandReader, OperandReader]
) -> Matrices | None:
    """The contraction as a matmul of packed matrices, if that is possible and pays. `elements` are the operands'
    elements in their own dtypes."""
    kinds = [np.dtype(a.aval.dtype) for a in atoms]
    if any(d not in SUPPORTED for d in kinds) or (kinds[0] == dtypes.bfloat16) != (kinds[1] == dtypes.bfloat16):
        return None
    # Integers wrap, so sums of 32 bits do for all shorter ones.
    floats, compute = kinds[0] == dtypes.bfloat16, contraction.compute
    if compute != dtypes.float32 if floats else dtypes.kind(compute) not in "iu" or compute.itemsize > 4:
        return None
    k_axes = contraction.k_axes
    if not k_axes or contraction.multiplications < LEAST_WORK:
        return None
    found = [access(fusion, element, contraction.axes) for element in elements]
    # Tiles run along the axis of K that is read one after the other, if there is one.
    near = [a for a in k_axes if any(f.stride(a) == 1 for f in found)]
    inner = max(near or k_axes, key=lambda a: a.size)
    own = [[a for a in contraction.free if f.stride(a) and not g.stride(a)] for f, g in (found, reversed(found))]
    operands = []
    for atom, element, meets, mine in zip(atoms, elements, found, own, strict=True):
        # What is side by side in memory is read together: along K, or along an axis of the operand's own.
        across = mine if meets.stride(inner) == 1 else [a for a in mine if meets.stride(a) == 1]
        if not across:
            return None
        leading = tuple(a for a in contraction.free if a in meets.strides and a is not across[-1])
        operands.append(Operand(atom, element, meets, across[-1], leading))
    left, right = operands
    result = Matrices(contraction, left, right, (*(a for a in k_axes if a is not inner), inner))
    padded = result.steps * result.row * prod(a.size for a in contraction.free)
    for operand in operands:
        padded = padded // operand.across.size * result.panels(operand) * TILE_ROWS
    return result if padded <= MOST_PADDING * contraction.multiplications else None


@dataclass(frozen=True)
class Schedule:
    """What one iteration of the loop over threads takes: blocks of tiles along each side, and tiles along K before the
    next chunk of it; `chunks` chunks are all of K."""

    blocks: tuple[int, int]
    chunk: int
    chunks: int


def schedule(m: Matrices, others: int) -> Schedule:
    """The largest tasks of which there are enough, since a task reads its operands from beyond the second cache. They
    are as near to squares as they can be; a chunk of K stays in that cache."""
    sides = [m.panels(operand) // m.tiles(operand) for operand in (m.left, m.right)]
    elements = [m.tiles(operand) * TILE_ROWS for operand in (m.left, m.right)]
    task = [1, 1]

    def tasks(blocks: Sequence[int]) -> int:
        return others * prod(-(-side // block) for side, block in zip(sides, blocks, strict=True))

    while True:
        grown = [[2 * task[0], task[1]], [task[0], 2 * task[1]]]
        grown.sort(key=lambda blocks: abs(blocks[0] * elements[0] - blocks[1] * elements[1]))
        fitting = [
            blocks
            for blocks in grown
            if all(block < 2 * side for block, side in zip(blocks, sides, strict=True))
            and blocks[0] * elements[0] * blocks[1] * elements[1] <= MOST_TASK
            and tasks(blocks) >= TASKS
        ]
        if not fitting:
            break
        task = fitting[0]
    row_bytes = sum(block * size for block, size in zip(task, elements, strict=True)) * TILE_ROW_BYTES
    chunk = max(LEAST_CHUNK, CHUNK_BYTES // row_bytes)
    chunks = -(-m.steps // chunk)
    return Schedule((min(task[0], sides[0]), min(task[1], sides[1])), -(-m.steps // chunks), chunks)


def emit_matrices_by_tiles(fusion: Fusion, m: Matrices) -> None:
    """Emit the kernels: one that packs, and one that multiplies and computes the epilogue."""
    leading = tuple(a for a in m.contraction.free if a not in (m.left.across, m.right.across))
    plan = schedule(m, prod(a.size for a in leading))
    packed = _pack(fusion, m, plan.chunk * plan.chunks)
    _Multiply(fusion, m, plan, packed, leading).write()


def _ravel(axes: Sequence[ContractionAxis], indices: dict[ContractionAxis, Index]) -> Index:
    """The indices along several axes as one."""
    total = Index()
    for axis in axes:
        total = total * axis.size + indices[axis]
    return total


# --------------------------------------------------------------------------------------------------------- multiplying


class _Multiply:
    """The kernel that multiplies tiles. Sums are in memory of each task: of one block, if K is not split, else of
    all of the task."""

    def __init__(
        self, fusion: Fusion, m: Matrices, plan: Schedule, packed: Sequence[int], leading: Sequence[ContractionAxis]
    ) -> None:
        self.m, self.plan, self.leading = m, plan, leading
        self.operands = (m.left, m.right)
        self.writer = fusion.writer("tiles", final=True)
        self.k: KernelBuilder = self.writer.k
        self.together = [m.tiles(operand) for operand in self.operands]
        self.sides = [m.panels(operand) // count for operand, count in zip(self.operands, self.together, strict=True)]
        self.sizes = [count * TILE_ROWS for count in self.together]
        self.counts = [
            *(a.size for a in leading),
            *(-(-side // block) for side, block in zip(self.sides, plan.blocks, strict=True)),
        ]
        self.stride = self.sizes[1] * (plan.blocks[1] if plan.chunks > 1 else 1)
        self.area = self.stride * self.sizes[0] * (plan.blocks[0] if plan.chunks > 1 else 1)
        dtype = np.float32 if m.left.dtype == dtypes.bfloat16 else np.int32
        sums = fusion.new_scratch(dtype, prod(self.counts) * self.area)
        self.sums = self.writer.scratch(sums)
        self.packed = [self.writer.scratch_input(scratch) for scratch in packed]
        self.at: dict[ContractionAxis, Index] = {}
        self.task = self.first_row = self.first_column = Index()

    def write(self) -> None:
        k, plan = self.k, self.plan
        with k.loop(prod(self.counts), kind=LoopKind.THREADS) as task:
            self.task = Index.of(task)
            *indices, row, column = unravelled(k, self.task, self.counts)
            self.at = dict(zip(self.leading, indices, strict=True))
            self.first_row, self.first_column = row * plan.blocks[0], column * plan.blocks[1]
            if plan.chunks == 1:
                with self.blocks() as (row, column):
                    self.multiply(row, column, Index(), accumulate=False)
                    self.finish(row, column)
                return
            with self.blocks() as (row, column):
                self.multiply(row, column, Index(), accumulate=False)
            with k.loop(plan.chunks, start=1) as chunk, self.blocks() as (row, column):
                self.multiply(row, column, Index.of(chunk), accumulate=True)
            with self.blocks() as (row, column):
                self.finish(row, column)

    @contextmanager
    def blocks(self) -> Iterator[tuple[Index, Index]]:
        """Loops over the blocks of a task; yields their indices in it."""
        k, (rows, columns) = self.k, self.plan.blocks
        ends = [
            Index(side) - first if side % block else None
            for side, first, block in zip(self.sides, (self.first_row, self.first_column), (rows, columns), strict=True)
        ]
        with k.loop(columns, limit=ends[1]) as column, k.loop(rows, limit=ends[0]) as row:
            yield Index.of(row), Index.of(column)

    def corner(self, row: Index, column: Index) -> Index:
        """Where the sums of a block begin."""
        inside = row * (self.sizes[0] * self.stride) + column * self.sizes[1] if self.plan.chunks > 1 else Index()
        return self.task * self.area + inside

    def multiply(self, row: Index, column: Index, chunk: Index, accumulate: bool) -> None:
        """A block of tiles over a chunk of K."""
        m, plan = self.m, self.plan
        tile = TILE_BYTES // m.left.dtype.itemsize
        panel = plan.chunk * plan.chunks * tile
        at = [
            (_ravel(operand.leading, self.at) * m.panels(operand) + block * count) * panel + chunk * (plan.chunk * tile)
            for operand, block, count in zip(
                self.operands, (self.first_row + row, self.first_column + column), self.together, strict=True
            )
        ]
        self.k.tile_matmul(
            TileMatmul(
                self.sums, self.corner(row, column), self.stride,
                self.packed[0], at[0], panel,
                self.packed[1], at[1], panel,
                self.together[0], self.together[1], plan.chunk, (m.left.dtype, m.right.dtype), accumulate,
            )
        )  # fmt: skip

    def finish(self, row: Index, column: Index) -> None:
        """Write the results of a block."""
        k, m = self.k, self.m
        firsts = (self.first_row + row) * self.sizes[0], (self.first_column + column) * self.sizes[1]
        ends = [
            Index(operand.across.size) - first if operand.across.size % size else None
            for operand, first, size in zip(self.operands, firsts, self.sizes, strict=True)
        ]
        width = min(self.writer.lanes, self.sizes[1])
        with k.loop(self.sizes[0], limit=ends[0]) as i:
            with k.loop(self.sizes[1], kind=LoopKind.LANES, width=width, limit=ends[1]) as j:
                indices = {**self.at, m.left.across: firsts[0] + i, m.right.across: firsts[1] + j}
                total = k.load(self.sums, self.corner(row, column) + i * self.stride + j)
                store_at(self.writer, m.contraction, m.contraction.result_index(indices), total)


# ------------------------------------------------------------------------------------------------------------- packing


def _pack(fusion: Fusion, m: Matrices, steps: int) -> list[int]:
    """The kernel that packs both operands, each into `steps` tiles along K (those beyond it are zeros); returns the
    scratch memory of each. One iteration of its loop over threads writes the tiles of 16 rows or columns."""
    writer = fusion.writer("pack", final=True, copied=_only_copied(fusion.jaxpr, (m.left.atom, m.right.atom)))
    k = writer.k
    parts = [_Pack(fusion, writer, m, operand, steps) for operand in (m.left, m.right)]
    with k.loop(sum(part.panels for part in parts), kind=LoopKind.THREADS) as task:
        is_left = k.compute("lt", k.position(task), k.constant(parts[0].panels, "int64"))
        with k.when(is_left):
            parts[0].write(Index.of(task))
        with k.when(k.compute("not", is_left)):
            parts[1].write(task - parts[0].panels)
    return [part.scratch for part in parts]


def _only_copied(jaxpr: Jaxpr, atoms: Sequence[Any]) -> dict[Any, Any]:
    """Dtypes of values that are only copied, from arguments of the fusion to these values."""
    needed, chosen = set(atoms), []
    for equation in reversed(jaxpr.eqns):
        if any(v in needed for v in equation.outvars):
            chosen.append(equation)
            needed.update(a for a in equation.invars if type(a) is not Literal)
    found = copied_dtypes(Jaxpr((), jaxpr.invars, list(atoms), list(reversed(chosen))))
    computed = {v.aval.dtype for e in chosen for v in (*e.invars, *e.outvars)} - found.keys()  # type: ignore[attr-defined]
    return {a.aval.dtype: bits_dtype(a.aval.dtype) for a in atoms if a.aval.dtype not in computed} | found


class _Pack:
    """Packs one operand, in a kernel that both share."""

    def __init__(self, fusion: Fusion, writer: Writer, m: Matrices, operand: Operand, steps: int) -> None:
        self.m, self.operand, self.steps = m, operand, steps
        self.is_left = operand is m.left
        self.row, self.group, self.inner, self.across = m.row, m.group, m.inner, operand.across
        # Elements side by side in memory are along K, or along the operand's own axis.
        self.along_k = operand.access.stride(self.inner) == 1
        self.writer, self.k = writer, writer.k
        self.dtype = np.dtype(np.uint16) if operand.dtype == dtypes.bfloat16 else operand.dtype
        self.tile_size = TILE_BYTES // self.dtype.itemsize
        self.counts = [*(a.size for a in operand.leading), m.panels(operand)]
        self.panels = prod(self.counts)
        self.scratch = fusion.new_scratch(self.dtype, self.panels * steps * self.tile_size)
        self.target = writer.scratch(self.scratch)

    def write(self, task: Index) -> None:
        """Pack all tiles of a panel."""
        m, k = self.m, self.k
        outer, inner_steps = m.k_axes[:-1], -(-self.inner.size // self.row)
        whole = (self.across.size // TILE_ROWS, self.inner.size // self.row)
        *indices, panel = unravelled(k, task, self.counts)
        with k.loop(m.steps) as i:
            *outer_indices, step = unravelled(k, Index.of(i), [*(a.size for a in outer), inner_steps])
            coords = dict(zip((*self.operand.leading, *outer), (*indices, *outer_indices), strict=True))
            start = (task * self.steps + i) * self.tile_size
            self.tile(coords, panel, step, start, whole, (self.counts[-1], inner_steps))
        if self.steps > m.steps:
            zero = k.constant(0, self.dtype)
            with k.loop((self.steps - m.steps) * self.tile_size, kind=LoopKind.LANES, width=self.row) as lane:
                k.store(self.target, (task * self.steps + m.steps) * self.tile_size + lane, zero)

    def tile(
        self,
        coords: dict[ContractionAxis, Index],
        panel: Index,
        step: Index,
        start: Index,
        whole: tuple[int, int],
        counts: Any,
    ) -> None:
        """One tile: a whole one, or one at an edge."""
        k = self.k
        if whole == counts:
            self.whole_tile(coords, panel, step, start)
            return
        inside = None
        for index, bound, count in zip((panel, step), whole, counts, strict=True):
            if bound < count:
                below = k.compute("lt", k.position(index), k.constant(bound, "int64"))
                inside = below if inside is None else k.compute("and", inside, below)
        assert inside is not None
        if all(whole):
            with k.when(inside):
                self.whole_tile(coords, panel, step, start)
        with k.when(k.compute("not", inside)):
            self.edge_tile(coords, panel, step, start)

    def value(self, coords: dict[ContractionAxis, Index], across: Index, inner: Index) -> Value:
        """An element, as it is stored."""
        value = self.operand.element(self.writer, Coordinates({**coords, self.across: across, self.inner: inner}))
        return value if value.dtype == self.dtype else bits_of(self.k, value)

    def edge_tile(self, coords: dict[ContractionAxis, Index], panel: Index, step: Index, start: Index) -> None:
        """Zeros, and then what there is, element by element."""
        k, group = self.k, self.group
        zero = k.constant(0, self.dtype)
        with k.loop(self.tile_size, kind=LoopKind.LANES, width=self.row) as lane:
            k.store(self.target, start + lane, zero)
        first, begin = panel * TILE_ROWS, step * self.row
        with k.loop(TILE_ROWS, limit=Index(self.across.size) - first) as i:
            with k.loop(TILE_ROWS, limit=self.groups_left(begin)) as j:
                left = Index(self.inner.size) - begin - j * group if self.inner.size % group else None
                with k.loop(group, limit=left) as e:
                    offset = i * self.row + j * group + e if self.is_left else j * self.row + i * group + e
                    k.store(self.target, start + offset, self.value(coords, first + i, begin + j * group + e))

    def groups_left(self, begin: Index) -> Index:
        """How many groups there are from an index along K on, the last of which need not be whole."""
        k = self.k
        left = k.position(Index(self.inner.size + self.group - 1) - begin)
        return Index.of(k.compute("div", left, k.constant(self.group, "int64")))

    def whole_tile(self, coords: dict[ContractionAxis, Index], panel: Index, step: Index, start: Index) -> None:
        k, row = self.k, self.row
        first, begin = panel * TILE_ROWS, step * row
        if self.along_k and self.is_left:
            with k.loop(row, kind=LoopKind.LANES, width=row) as lane:
                for n in range(TILE_ROWS):
                    k.store(self.target, start + n * row + lane, self.value(coords, first + n, begin + lane))
            return
        if self.along_k:
            rows = self.vectors(row, TILE_ROWS, lambda n, lane: self.value(coords, first + n, begin + lane))
        else:
            short = self.vectors(TILE_ROWS, row, lambda n, lane: self.value(coords, first + lane, begin + n))
            rows = [self.interleaved(short[n : n + self.group]) for n in range(0, row, self.group)]
        if self.along_k != self.is_left:
            rows = transposed_groups(k, rows, self.group)
        with k.loop(row, kind=LoopKind.LANES, width=row, carries=rows) as (lane, inside):
            for n, value in enumerate(inside):
                k.store(self.target, start + n * row + lane, value)
            k.carry(*inside)

    def vectors(self, width: int, count: int, value: Callable[[int, Any], Value]) -> list[Value]:
        """Several vectors from memory."""
        k = self.k
        empty = [k.constant(0, self.dtype)] * count
        with k.loop(width, kind=LoopKind.LANES, width=width, carries=empty) as (lane, _):
            return list(k.carry(*(value(n, lane) for n in range(count))))

    def interleaved(self, vectors: Sequence[Value]) -> Value:
        """Element by element of all vectors: a group of each lane."""
        k, lanes, size = self.k, TILE_ROWS, 1
        rows = list(vectors)
        while len(rows) > 1:
            chosen = [
                n for lane in range(lanes) for n in (*range(lane * size, lane * size + size),
                                                     *range((lanes + lane) * size, (lanes + lane) * size + size))
            ]  # fmt: skip
            rows = [k.shuffle(pair, chosen) for pair in zip(rows[::2], rows[1::2], strict=True)]
            size *= 2
        return rows[0]


def transposed_groups(k: KernelBuilder, rows: Sequence[Value], group: int) -> list[Value]:
    """A square of vectors transposed, where `group` lanes stay together: blocks are exchanged in rounds, each half as
    long as those before."""
    vectors, side = list(rows), len(rows)
    distance = side // 2
    while distance:
        for n in (n for n in range(side) if not n & distance):
            pair = (vectors[n], vectors[n + distance])
            low = [c if not c & distance else side + c - distance for c in range(side)]
            high = [c + distance if not c & distance else side + c for c in range(side)]
            vectors[n], vectors[n + distance] = (
                k.shuffle(pair, [c * group + e for c in chosen for e in range(group)]) for chosen in (low, high)
            )
        distance //= 2
    return vectors
