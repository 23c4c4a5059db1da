"""Contractions by BLAS, as tiles that threads share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.target.cpu.library.batches import MOST, TooLarge
from weft.compiler.target.cpu.library.writer import LETTERS
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.matmuls import StridedMatmul, plan_as_matmul, reading
from weft.ir.jaxpr import Equation

# The result of a matmul is computed in tiles that depend on nothing but its shape. Each tile packs its operands, so
# small ones are slow: at 512 x 512 that costs 5 to 10 %, at 256 x 256 more than 25 %.
TILE_SIDE = 512
# There are at least two tiles, and up to MOST_SPLIT if each has at least TILE_WORK multiplications, some milliseconds.
MOST_SPLIT, TILE_WORK = 16, 1 << 28
# Least side of a tile when it is split further.
LEAST_SIDE = 128
# Elements of the matrix that a tile of a matrix-vector product reads; and its least outputs if the elements of one
# output are not contiguous, but those of several are.
TILE_ELEMENTS, TILE_OUTPUTS = 1 << 18, 1024

# Parameters of a matmul, followed by those of its loops; and parameters of a matrix-vector product.
MATMUL = (
    "rows", "columns", "summed", "lhs transpose", "rhs transpose", "lhs stride", "rhs stride", "out stride",
    "lhs step", "rhs step", "tile rows", "tile columns", "tiles down", "tiles across", "loops",
)  # fmt: skip
MATVEC = (
    "outputs", "summed", "transpose", "stride", "vector stride", "out stride", "matrix", "step", "tile", "tiles",
    "loops",
)  # fmt: skip


def plan_matmul(equation: Equation) -> LibraryCall:
    """Plan a contraction of float32, float64, complex64 or complex128 as independent tiles."""
    left, right = get_arrays(equation.invars)
    (out,) = get_arrays(equation.outvars)
    if not left.dtype == right.dtype == out.dtype or out.dtype not in LETTERS:
        raise InternalError(f"BLAS has no matmul of {left} and {right} with result {out}.", stage="library")
    matmul, permutations = plan_as_matmul(equation)
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


def _matrix(matmul: StridedMatmul) -> tuple[str, list[int], int]:
    rows, columns, summed = matmul.rows, matmul.columns, matmul.summed
    lhs_transposed, lhs_stride = reading(rows, summed, "lhs")
    rhs_transposed, rhs_stride = reading(summed, columns, "rhs")
    tile_rows, tile_columns = choose_tile(rows.size, columns.size, summed.size)
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
        # Stride between rows of the lhs, and between columns of the rhs.
        "lhs step": rows.lhs,
        "rhs step": columns.rhs,
        "tile rows": tile_rows,
        "tile columns": tile_columns,
        "tiles down": down,
        "tiles across": across,
    }
    return "product", [values[name] for name in MATMUL[:-1]], down * across


def choose_tile(rows: int, columns: int, summed: int) -> tuple[int, int]:
    """Return the sides of tiles of about equal size, multiples of the block sizes of BLAS kernels."""
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


def _vector(matmul: StridedMatmul) -> tuple[str, list[int], int]:
    rows, columns, summed = matmul.rows, matmul.columns, matmul.summed
    if columns.size == 1:  # a matrix times a column
        outputs, matrix, step, vector_stride, out_stride = rows, "lhs", rows.lhs, summed.rhs, rows.out
    else:
        outputs, matrix, step, vector_stride, out_stride = columns, "rhs", columns.rhs, summed.lhs, columns.out
    transposed, stride = reading(outputs, summed, matrix)
    least = TILE_OUTPUTS if transposed else 16
    tile = min(outputs.size, max(least, -(-TILE_ELEMENTS // max(summed.size, 1) // 16) * 16))
    tiles = -(-outputs.size // tile)
    values: dict[str, Any] = {
        "outputs": outputs.size,
        "summed": summed.size,
        # For BLAS, contiguous elements are a column of the matrix.
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
