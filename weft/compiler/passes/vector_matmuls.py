"""Write products of few vectors with a large matrix as sums, which fuse with their neighbours and read it once.

    dot_general(x[1,K], w[N,K])    ->    reduce_sum(x * w), x broadcast, over K

A decoder's step multiplies one row a sequence by every weight: it takes as long as reading the weights. Where the
weights are contiguous along the sum a reduction reads them in order by all threads, in the dtype that they are stored
in, with what is computed before and after in the same kernel; several vectors are several sums over the same elements.
It is for targets whose groups of threads reduce rows; products of more rows are for matrix units.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base import dtypes
from weft.compiler.passes.data_movement import get_shape, is_static
from weft.compiler.passes.orient import dot
from weft.compiler.patterns import operands
from weft.compiler.rewrite import Match, Rules, everywhere, rewrite, rule
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Atom, Jaxpr
from weft.primitives.contraction.contract import free_axes

# Most vectors, and fewest elements and rows of the matrix.
MOST_VECTORS, LEAST_ELEMENTS, LEAST_FREE = 4, 1 << 16, 64
REAL = frozenset({dtypes.float32, dtypes.bfloat16, dtypes.float16})

x, y = operands("x y")


@rule(dot(x, y))
def sum_matmul(m: Match, x: Atom, y: Atom) -> Any:
    """Sum products with the vectors of one side. In float32, as matrix products of short floats are."""
    (left, right), batched = m.params["dimension_numbers"]
    shapes = [get_shape(x), get_shape(y)]
    types = {a.aval.dtype for a in (x, y)} | {m.type.dtype}  # type: ignore[attr-defined]
    if not left or batched[0] or not types <= REAL or not all(map(is_static, shapes)):
        return None
    free = free_axes(len(shapes[0]), len(shapes[1]), m.params["dimension_numbers"])
    counts = [math.prod(shape[axis] for axis in axes) for shape, axes in zip(shapes, free, strict=True)]
    side = 0 if counts[0] <= counts[1] else 1
    vectors, matrix = (x, y) if side == 0 else (y, x)
    contracted = [left, right] if side == 0 else [right, left]
    # Several vectors are rows of the result, which are computed one by one.
    if counts[side] > MOST_VECTORS or (counts[side] > 1 and side == 1) or counts[1 - side] < LEAST_FREE:
        return None
    rank = len(get_shape(matrix))
    # Sums over other axes are for groups of threads along the contiguous one.
    if math.prod(get_shape(matrix)) < LEAST_ELEMENTS or contracted[1] != tuple(range(rank))[-len(contracted[1]) :]:
        return None
    order = (*free[side], *contracted[0])
    if order != tuple(range(len(order))):
        vectors = m.make("transpose", vectors, permutation=order)
    terms = [get_shape(matrix)[axis] for axis in contracted[1]]
    vectors = _convert(m, m.reshape(vectors, (counts[side], *terms)))
    matrix = _convert(m, matrix)
    rows = [_sum_row(m, vectors, i, matrix, contracted[1]) for i in range(counts[side])]
    total = rows[0] if len(rows) == 1 else m.make("concatenate", *rows, dimension=0)
    return m.reshape(_convert(m, total, m.type.dtype), m.shape)


def _sum_row(m: Match, vectors: Atom, i: int, matrix: Atom, contracted: tuple[int, ...]) -> Atom:
    """Return the products of one vector with all rows of the matrix, as an array with a leading 1."""
    shape = get_shape(vectors)
    vector = vectors
    if shape[0] > 1:
        starts, limits = (i, *(0 for _ in shape[1:])), (i + 1, *shape[1:])
        vector = m.make("slice", vectors, start_indices=starts, limit_indices=limits, strides=None)
    wide = [(axis, n) for axis, n in zip(contracted, shape[1:], strict=True) if n != 1]
    vector = m.reshape(vector, [n for _, n in wide])
    repeated = m.make(
        "broadcast_in_dim", vector, shape=get_shape(matrix), broadcast_dimensions=tuple(axis for axis, _ in wide)
    )
    terms = m.make("mul", repeated, matrix)
    sums = m.make("reduce_sum", terms, axes=tuple(contracted))
    return m.reshape(sums, (1, *get_shape(sums)))


def _convert(m: Match, atom: Atom, dtype: Any = dtypes.float32) -> Atom:
    if atom.aval.dtype == dtype:  # type: ignore[attr-defined]
        return atom
    return m.make("convert_element_type", atom, new_dtype=dtype, weak_type=False)


RULES = Rules(sum_matmul)


@everywhere
def sum_vector_matmuls(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Write products of few vectors as sums where groups of threads reduce. Needs: canonical. Keeps: its form."""
    return rewrite(jaxpr, RULES) if target.group_lanes else jaxpr
