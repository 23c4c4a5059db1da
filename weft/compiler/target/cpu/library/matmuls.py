"""Contractions by BLAS: which axes become rows, columns and what is summed over, and which are loops around.

A contraction is a matmul if the axes of each kind can be traversed with one stride. Those of the batch need not be:
they, and free axes that lie apart, are loops around the matmul. Where memory does not allow that, an operand
has to be transposed first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.target.cpu.library.batches import MOST, TooLarge
from weft.compiler.target.cpu.library.writer import LETTERS
from weft.compiler.target.library_call import LibraryCall, arrays_of
from weft.ir.jaxpr import Equation
from weft.primitives.contraction.contract import free_axes

# Products smaller than this, as what remains inside of loops over free axes, are worth a transposition instead.
LEAST_INNER = 128**3
# The result of a matmul is computed in tiles, which depend on nothing but its shape. Each packs what it reads, so
# small ones are slow: at 512 x 512 that costs 5 to 10 %, at 256 x 256 more than 25 %.
TILE_SIDE = 512
# There are at least two, and more (up to so many) if each has at least this many multiplications, some milliseconds.
MOST_SPLIT, TILE_WORK = 16, 1 << 28
# But a tile is not smaller than this.
LEAST_SIDE = 128
# A tile of a matrix-vector product reads so many elements of the matrix; and it has so many outputs, if the elements
# for one are not side by side, but those for several are.
TILE_ELEMENTS, TILE_OUTPUTS = 1 << 18, 1024

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Dimension:
    """Axes traversed as one: the size, and strides in the left operand, the right one and the result (0: not there)."""

    size: int
    lhs: int
    rhs: int
    out: int


@dataclass(frozen=True)
class Matmul:
    """C[i, j] = sum of A[i, l] B[l, j], inside of loops."""

    rows: Dimension
    columns: Dimension
    summed: Dimension
    loops: tuple[Dimension, ...]

    @property
    def inner(self) -> int:
        """Multiplications of one matmul."""
        return self.rows.size * self.columns.size * self.summed.size


ONE = Dimension(1, 0, 0, 0)


def merged(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Neighbours that are traversed as one; axes of size 1 do not matter."""
    groups: list[Dimension] = []
    for d in dimensions:
        if d.size == 1:
            continue
        last = groups[-1] if groups else None
        if last and (last.lhs, last.rhs, last.out) == (d.lhs * d.size, d.rhs * d.size, d.out * d.size):
            groups[-1] = Dimension(last.size * d.size, d.lhs, d.rhs, d.out)
        else:
            groups.append(d)
    return groups


def strides_of(shape: Sequence[int]) -> list[int]:
    """The strides of a dense array, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def leading_stride(rows: int, columns: int, row_stride: int, column_stride: int) -> tuple[bool, int] | None:
    """How BLAS reads a matrix: whether its columns are what lies side by side, and the stride of the other; or None."""
    if column_stride == 1 or columns == 1:
        return False, row_stride if rows > 1 else columns
    if row_stride == 1 or rows == 1:
        return True, column_stride
    return None


class Operands:
    """A contraction whose operands may have been permuted: `lhs` and `rhs` say in which order their axes lie."""

    def __init__(self, equation: Equation, lhs: Axes, rhs: Axes) -> None:
        left, right = arrays_of(equation.invars)
        (lhs_summed, rhs_summed), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
        lhs_free, rhs_free = free_axes(len(left.shape), len(right.shape), equation.params["dimension_numbers"])
        out = strides_of(arrays_of(equation.outvars)[0].shape)
        at_lhs, at_rhs = _placed(left.shape, lhs), _placed(right.shape, rhs)
        rows_from, columns_from = len(lhs_batch), len(lhs_batch) + len(lhs_free)
        self.batch = [
            Dimension(left.shape[i], at_lhs[i], at_rhs[j], out[n])
            for n, (i, j) in enumerate(zip(lhs_batch, rhs_batch, strict=True))
        ]
        self.rows = [Dimension(left.shape[i], at_lhs[i], 0, out[rows_from + n]) for n, i in enumerate(lhs_free)]
        self.columns = [Dimension(right.shape[j], 0, at_rhs[j], out[columns_from + n]) for n, j in enumerate(rhs_free)]
        # The order of the sum is free: that of the left operand's memory, or of the right one's.
        self.summed = [
            Dimension(left.shape[i], at_lhs[i], at_rhs[j], 0) for i, j in zip(lhs_summed, rhs_summed, strict=True)
        ]

    def matmul(self) -> Matmul | None:
        """The largest matmul in it, or None if there is none."""
        orders = [sorted(self.summed, key=lambda d: -d.lhs), sorted(self.summed, key=lambda d: -d.rhs)]
        summed = min((merged(order) for order in orders), key=len)
        if len(summed) > 1:
            return None
        rows, columns = merged(self.rows), merged(self.columns)
        total = summed[0] if summed else ONE
        # The columns of the result have to lie side by side, so they are the last group.
        right = columns[-1] if columns else ONE
        if leading_stride(total.size, right.size, total.rhs, right.rhs) is None:
            return None
        good = [d for d in rows or [ONE] if leading_stride(d.size, total.size, d.lhs, total.lhs) is not None]
        if not good:
            return None
        left = max(good, key=lambda d: d.size)
        around = [d for d in rows if d is not left] + [d for d in columns if d is not right]
        return Matmul(left, right, total, (*merged(self.batch), *around))


def _placed(shape: Sequence[int], order: Axes) -> list[int]:
    """The stride of each axis if the axes lie in this order."""
    strides = strides_of([shape[axis] for axis in order])
    return [strides[order.index(axis)] for axis in range(len(shape))]


def matmul_of(equation: Equation) -> tuple[Matmul, tuple[Axes | None, Axes | None]]:
    """The contraction as a matmul, and the permutations of operands that it takes."""
    left, right = arrays_of(equation.invars)
    (lhs_summed, rhs_summed), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
    lhs_free, rhs_free = free_axes(len(left.shape), len(right.shape), equation.params["dimension_numbers"])
    plain = tuple(range(len(left.shape))), tuple(range(len(right.shape)))
    operands = Operands(equation, *plain)
    candidates: list[tuple[int, Axes, Axes]] = [(0, *plain)]
    for order in _orders(lhs_summed), _orders(rhs_summed):
        lhs = (*lhs_batch, *lhs_free, *(lhs_summed[n] for n in order))
        rhs = (*rhs_batch, *(rhs_summed[n] for n in order), *rhs_free)
        candidates += [
            (left.bytes, lhs, plain[1]),
            (right.bytes, plain[0], rhs),
            (left.bytes + right.bytes, lhs, rhs),
        ]
    whole = math.prod(d.size for d in (*operands.rows, *operands.columns, *operands.summed))
    for _, lhs, rhs in sorted(candidates, key=lambda candidate: candidate[0]):
        matmul = Operands(equation, lhs, rhs).matmul()
        # More memory is copied only for a matmul that would be too small otherwise.
        if matmul is not None and matmul.inner >= min(whole, LEAST_INNER):
            return matmul, (None if lhs == plain[0] else lhs, None if rhs == plain[1] else rhs)
    raise InternalError(f"No order of axes makes {equation} a matmul.", stage="library")


def _orders(axes: Axes) -> list[int]:
    return sorted(range(len(axes)), key=axes.__getitem__)


# -------------------------------------------------------------------------------------------------------------- plans

# Parameters of a matmul, and then of each of its loops; those of a matrix-vector product.
MATMUL = (
    "rows", "columns", "summed", "lhs transpose", "rhs transpose", "lhs stride", "rhs stride", "out stride",
    "lhs step", "rhs step", "tile rows", "tile columns", "tiles down", "tiles across", "loops",
)  # fmt: skip
MATVEC = (
    "outputs", "summed", "transpose", "stride", "vector stride", "out stride", "matrix", "step", "tile", "tiles",
    "loops",
)  # fmt: skip


def plan_matmul(equation: Equation) -> LibraryCall:
    """A contraction of float32, float64, complex64 or complex128, as tiles that are independent of each other."""
    left, right = arrays_of(equation.invars)
    (out,) = arrays_of(equation.outvars)
    if not left.dtype == right.dtype == out.dtype or out.dtype not in LETTERS:
        raise InternalError(f"BLAS has no matmul of {left} and {right} with result {out}.", stage="library")
    matmul, permutations = matmul_of(equation)
    sizes = [matmul.rows.size, matmul.columns.size, matmul.summed.size]
    strides = [d for each in (matmul.rows, matmul.columns, matmul.summed) for d in (each.lhs, each.rhs, each.out)]
    if max(*sizes, *strides) > MOST:
        raise TooLarge
    vector = 1 in sizes[:2]
    name, parameters, tiles = (_vector if vector else _matrix)(matmul)
    loops = [value for d in matmul.loops for value in (d.size, d.lhs, d.rhs, d.out)]
    transposed = permutations if any(p is not None for p in permutations) else ()
    return LibraryCall(
        routine=f"weft_{name}_{LETTERS[np.dtype(out.dtype)]}_tiles",
        parameters=(*parameters, len(matmul.loops), *loops),
        tiles=tiles * math.prod(d.size for d in matmul.loops),
        permutations=transposed,
    )


def _reading(rows: Dimension, columns: Dimension, operand: str) -> tuple[bool, int]:
    found = leading_stride(rows.size, columns.size, getattr(rows, operand), getattr(columns, operand))
    assert found is not None
    return found


def _matrix(matmul: Matmul) -> tuple[str, list[int], int]:
    rows, columns, summed = matmul.rows, matmul.columns, matmul.summed
    lhs_transposed, lhs_stride = _reading(rows, summed, "lhs")
    rhs_transposed, rhs_stride = _reading(summed, columns, "rhs")
    tile_rows, tile_columns = tile_of(rows.size, columns.size, summed.size)
    down, across = -(-rows.size // tile_rows), -(-columns.size // tile_columns)
    values: dict[str, Any] = {
        "rows": rows.size,
        "columns": columns.size,
        "summed": summed.size,
        "lhs transpose": ord("T" if lhs_transposed else "N"),
        "rhs transpose": ord("T" if rhs_transposed else "N"),
        "lhs stride": lhs_stride,
        "rhs stride": rhs_stride,
        "out stride": rows.out,
        # From one row of the left operand, and one column of the right one, to the next.
        "lhs step": rows.lhs,
        "rhs step": columns.rhs,
        "tile rows": tile_rows,
        "tile columns": tile_columns,
        "tiles down": down,
        "tiles across": across,
    }
    return "product", [values[name] for name in MATMUL[:-1]], down * across


def tile_of(rows: int, columns: int, summed: int) -> tuple[int, int]:
    """Tiles of about equal size, the sides of which are multiples of what kernels of BLAS work on."""
    down, across = -(-rows // TILE_SIDE), -(-columns // TILE_SIDE)
    wanted = min(max(2, rows * columns * summed // TILE_WORK), MOST_SPLIT)
    while down * across < wanted:
        height, width = rows // down, columns // across
        if max(height, width) < 2 * LEAST_SIDE:
            break
        if height >= width:
            down *= 2
        else:
            across *= 2
    return _even(rows, down), _even(columns, across)


def _even(size: int, pieces: int) -> int:
    return min(size, -(-size // pieces // 32) * 32)


def _vector(matmul: Matmul) -> tuple[str, list[int], int]:
    rows, columns, summed = matmul.rows, matmul.columns, matmul.summed
    if columns.size == 1:  # a matrix times a column
        outputs, matrix, step, vector_stride, out_stride = rows, "lhs", rows.lhs, summed.rhs, rows.out
    else:
        outputs, matrix, step, vector_stride, out_stride = columns, "rhs", columns.rhs, summed.lhs, columns.out
    transposed, stride = _reading(outputs, summed, matrix)
    least = TILE_OUTPUTS if transposed else 16
    tile = min(outputs.size, max(least, -(-TILE_ELEMENTS // max(summed.size, 1) // 16) * 16))
    tiles = -(-outputs.size // tile)
    values: dict[str, Any] = {
        "outputs": outputs.size,
        "summed": summed.size,
        # What lies side by side is a column of the matrix for BLAS.
        "transpose": ord("N" if transposed else "T"),
        "stride": stride,
        "vector stride": max(vector_stride, 1),
        "out stride": max(out_stride, 1),
        "matrix": 0 if matrix == "lhs" else 1,
        "step": step,
        "tile": tile,
        "tiles": tiles,
    }
    return "product_vector", [values[name] for name in MATVEC[:-1]], tiles
