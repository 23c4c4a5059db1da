"""Packing an operand of a contraction into tiles of 16 rows of 64 bytes, zeros where it ends inside of a tile.

left tile     row: a row of the matrix, 64 bytes along K
right tile    row: 4 bytes along K (a group) of each of 16 columns
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.contractions.contraction_loops import ContractionAxis, Coordinates
from weft.compiler.emit.contractions.microkernel import unravel
from weft.compiler.emit.contractions.tile_matrices import Matrices, TileOperand
from weft.compiler.emit.copied_dtypes import bits_dtype, find_copied_dtypes, get_bits
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import TILE_BYTES, TILE_ROWS, Buffer, Index, LoopKind, Value
from weft.ir.jaxpr import Jaxpr, Literal


def pack(fusion: Fusion, m: Matrices, steps: int) -> list[int]:
    """Emit the kernel that packs both operands, each into `steps` tiles along K (missing ones are zeros), and return
    their scratch buffers. An iteration of its loop over threads writes the tiles of 16 rows or columns.
    """
    writer = fusion.writer("pack", final=True, copied=_copied_values(fusion.jaxpr, (m.left.atom, m.right.atom)))
    k = writer.k
    parts = [PackedOperand(writer, m, operand, steps) for operand in (m.left, m.right)]
    scratch = [fusion.new_scratch(part.dtype, part.panels * part.panel_size) for part in parts]
    targets = [writer.scratch(n) for n in scratch]
    with k.loop(sum(part.panels for part in parts), kind=LoopKind.THREADS) as task:
        is_left = k.compute("lt", k.position(task), k.constant(parts[0].panels, "int64"))
        with k.when(is_left):
            parts[0].write(targets[0], Index.of(task))
        with k.when(k.compute("not", is_left)):
            parts[1].write(targets[1], task - parts[0].panels)
    return scratch


def _copied_values(jaxpr: Jaxpr, atoms: Sequence[Any]) -> dict[Any, Any]:
    """Return the kernel dtypes of values that are only copied on the way from the fusion's arguments to `atoms`."""
    needed, chosen = set(atoms), []
    for equation in reversed(jaxpr.eqns):
        if any(v in needed for v in equation.outvars):
            chosen.append(equation)
            needed.update(a for a in equation.invars if type(a) is not Literal)
    found = find_copied_dtypes(Jaxpr((), jaxpr.invars, list(atoms), list(reversed(chosen))))
    computed = {v.aval.dtype for e in chosen for v in (*e.invars, *e.outvars)} - found.keys()  # type: ignore[attr-defined]
    return {a.aval.dtype: bits_dtype(a.aval.dtype) for a in atoms if a.aval.dtype not in computed} | found


class PackedOperand:
    """Packing of one operand into `steps` tiles along K, in any kernel."""

    def __init__(self, writer: KernelWriter, m: Matrices, operand: TileOperand, steps: int) -> None:
        self.m, self.operand, self.steps = m, operand, steps
        self.is_left = operand is m.left
        self.row, self.group, self.inner, self.across = m.row, m.group, m.inner, operand.across
        # Contiguous elements lie along K, or along the operand's free axis.
        self.along_k = operand.access.stride(self.inner) == 1
        self.writer, self.k = writer, writer.k
        self.dtype = np.dtype(np.uint16) if operand.dtype == dtypes.bfloat16 else operand.dtype
        self.tile_size = TILE_BYTES // self.dtype.itemsize
        self.panel_size = steps * self.tile_size
        self.counts = [*(a.size for a in operand.leading), m.panels(operand)]
        self.panels = prod(self.counts)
        self.target: Buffer

    def write(self, target: Buffer, task: Index) -> None:
        """Pack panel number `task`, counted over all leading axes, to its offset in `target`."""
        *indices, panel = unravel(self.k, task, self.counts)
        leading = dict(zip(self.operand.leading, indices, strict=True))
        self.panel(target, task * self.panel_size, leading, panel)

    def panel(
        self, target: Buffer, begin: Index, leading: dict[ContractionAxis, Index], panel: Index, count: int = 1
    ) -> None:
        """Pack the tiles of `count` panels, of 16 rows or columns each, one after the other from offset `begin` on.
        Panels that share lines of memory are read in the same step along K.
        """
        self.target = target
        m, k = self.m, self.k
        outer, inner_steps = m.k_axes[:-1], -(-self.inner.size // self.row)
        whole = (self.across.size // TILE_ROWS, self.inner.size // self.row)
        with k.loop(m.steps) as i:
            *outer_indices, step = unravel(k, Index.of(i), [*(a.size for a in outer), inner_steps])
            coords = {**leading, **dict(zip(outer, outer_indices, strict=True))}
            for n in range(count):
                start = begin + n * self.panel_size + i * self.tile_size
                self.tile(coords, panel + n, step, start, whole, (self.counts[-1], inner_steps))
        if self.steps > m.steps:
            zero = k.constant(0, self.dtype)
            for n in range(count):
                rest = begin + n * self.panel_size + m.steps * self.tile_size
                with k.loop((self.steps - m.steps) * self.tile_size, kind=LoopKind.LANES, width=self.row) as lane:
                    k.store(target, rest + lane, zero)

    def tile(
        self,
        coords: dict[ContractionAxis, Index],
        panel: Index,
        step: Index,
        start: Index,
        whole: tuple[int, int],
        counts: Any,
    ) -> None:
        """Pack one tile, whole or at an edge."""
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
        """Read an element in the dtype in which it is stored."""
        value = self.operand.element(self.writer, Coordinates({**coords, self.across: across, self.inner: inner}))
        return value if value.dtype == self.dtype else get_bits(self.k, value)

    def edge_tile(self, coords: dict[ContractionAxis, Index], panel: Index, step: Index, start: Index) -> None:
        """Fill a tile at an edge with zeros, then copy the existing elements one by one."""
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
        """Return the number of groups from an index along K to the end; the last may be partial."""
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
            rows = [self.interleave(short[n : n + self.group]) for n in range(0, row, self.group)]
        if self.along_k != self.is_left:
            rows = transpose_groups(k, rows, self.group)
        with k.loop(row, kind=LoopKind.LANES, width=row, carries=rows) as (lane, inside):
            for n, value in enumerate(inside):
                k.store(self.target, start + n * row + lane, value)
            k.carry(*inside)

    def vectors(self, width: int, count: int, value: Callable[[int, Any], Value]) -> list[Value]:
        """Load several vectors."""
        k = self.k
        empty = [k.constant(0, self.dtype)] * count
        with k.loop(width, kind=LoopKind.LANES, width=width, carries=empty) as (lane, _):
            return list(k.carry(*(value(n, lane) for n in range(count))))

    def interleave(self, vectors: Sequence[Value]) -> Value:
        """Interleave vectors so that each lane's elements form a group."""
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


def transpose_groups(k: KernelBuilder, rows: Sequence[Value], group: int) -> list[Value]:
    """Transpose a square of vectors in which `group` lanes stay together. Each round exchanges blocks half as long as
    the round before.
    """
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
