"""Contractions of bfloat16 and 8-bit integers as matmuls of tiles: the operands in terms of tile registers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.contractions.contraction_loops import (
    ContractionAxis,
    ContractionLoops,
    OperandAccess,
    OperandReader,
    access,
)
from weft.compiler.emit.emission import Fusion
from weft.compiler.kernel.ir import TILE_ROW_BYTES, TILE_ROWS
from weft.compiler.kernel.tiles import SUPPORTED

# Tiles do not pay off with fewer multiplications or more padding.
LEAST_WORK, MOST_PADDING = 1 << 17, 2.0
GROUP_BYTES = 4


@dataclass(frozen=True)
class TileOperand:
    """Operand of a contraction: its atom in the fusion, its elements as stored, its free axes, and its leading axes
    (batch axes, and all but one of the free ones)."""

    atom: Any
    element: OperandReader
    access: OperandAccess
    across: ContractionAxis
    leading: tuple[ContractionAxis, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        result: np.dtype[Any] = np.dtype(self.atom.aval.dtype)
        return result


@dataclass(frozen=True)
class Matrices:
    """Operands of a contraction as matrices of tiles. `k_axes` are the axes along K; tiles run along the last of
    them."""

    contraction: ContractionLoops
    left: TileOperand
    right: TileOperand
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

    @property
    def loads_left(self) -> bool:
        """Whether tiles of the left operand are loaded from where it is: rows of an argument, in whole tiles."""
        source = self.left.access.source
        return (
            source is not None
            and len(self.k_axes) == 1
            and source.strides.get(self.inner) == 1
            and source.strides.get(self.left.across, 0) > 0
            and self.inner.size % self.row == 0
            and self.left.across.size % (TILE_ROWS * self.tiles(self.left)) == 0
        )

    def tiles(self, operand: TileOperand) -> int:
        """Return how many tiles of an operand are multiplied together: 2, or 1 if there is only one."""
        return 2 if operand.across.size > TILE_ROWS else 1

    def panels(self, operand: TileOperand) -> int:
        """Return the number of tiles along the operand's own axis, rounded up to whole blocks."""
        together = self.tiles(operand)
        return -(-operand.across.size // (TILE_ROWS * together)) * together


def matrices(
    fusion: Fusion, contraction: ContractionLoops, atoms: tuple[Any, Any], elements: tuple[OperandReader, OperandReader]
) -> Matrices | None:
    """Describe the contraction as a matmul of packed matrices; return None if that is impossible or does not pay.
    `elements` read the operands' elements in their own dtypes.
    """
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
    # Tiles run along the contiguous axis of K, if any.
    near = [a for a in k_axes if any(f.stride(a) == 1 for f in found)]
    inner = max(near or k_axes, key=lambda a: a.size)
    own = [[a for a in contraction.free if f.stride(a) and not g.stride(a)] for f, g in (found, reversed(found))]
    operands = []
    for atom, element, meets, mine in zip(atoms, elements, found, own, strict=True):
        # Contiguous elements are loaded together: along K, or along a free axis of the operand.
        across = mine if meets.stride(inner) == 1 else [a for a in mine if meets.stride(a) == 1]
        if not across:
            return None
        leading = tuple(a for a in contraction.free if a in meets.strides and a is not across[-1])
        operands.append(TileOperand(atom, element, meets, across[-1], leading))
    left, right = operands
    result = Matrices(contraction, left, right, (*(a for a in k_axes if a is not inner), inner))
    padded = result.steps * result.row * prod(a.size for a in contraction.free)
    for operand in operands:
        padded = padded // operand.across.size * result.panels(operand) * TILE_ROWS
    return result if padded <= MOST_PADDING * contraction.multiplications else None
