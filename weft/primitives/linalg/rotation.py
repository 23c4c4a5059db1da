"""Rotation of eigenvectors and singular vectors by a change of the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.arithmetic import abs as abs_, mul, sub
from weft.primitives.elementwise.bitwise import and_, or_
from weft.primitives.elementwise.compare import le
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import Composite
from weft.primitives.linalg.cholesky import general
from weft.primitives.linalg.matrix import adjoint, as_columns, as_dtype, as_rows, inverse_gaps, scalar, zeros_like
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.reduction.reduce_extrema import reduce_max

# Cotangents that differ by at most this many units, times the size of the matrix, are the same.
ROUNDING = 4


@primitive
class rotation(Composite):
    """Rotation x[i, j] / (values[j] - values[i]) of vectors, and the change of values unchanged.

    Equal values make the rotation infinite, and NaN where it is used: a finite number would be wrong for functions of
    vectors and values, such as f(w) on the diagonal between v and vᴴ, which do have a derivative. The transpose knows
    more. If the values are not used, a well defined function of the vectors alone depends on the space of all vectors
    of equal values, not on the choice among them, and their rotation does not contribute to its derivative.
    """

    multiple_results = True

    def decompose(self, x: Any, change: Any, values: Any) -> Sequence[Any]:
        return [mul(as_dtype(inverse_gaps(values, x.shape), x.dtype), x), change]

    def transpose(self, cotangents: Sequence[Any], x: Any, change: Any, values: Any) -> Sequence[Any]:
        turned, changed = cotangents
        passed = changed if is_linear(change) else None
        if type(turned) is Zero or not is_linear(x):
            return [Zero(x.aval.cotangent()) if is_linear(x) else None, passed, None]
        back = mul(as_dtype(inverse_gaps(values, turned.shape), turned.dtype), turned)
        if type(changed) is Zero:
            back = select_n(_is_free(turned, values), back, zeros_like(back))
        return [back, passed, None]

    def samples(self) -> Any:
        yield Sample(general(3, 3), np.array([0.5, 1.25, 0.75], np.float32), np.array([1, 2.5, 4], np.float32))
        yield Sample(
            general(2, 2, 2, dtype=np.complex64), np.ones((2, 2), np.float32), np.array([[1, 2], [3, 5]], np.float32)
        )


def _is_free(turned: Any, values: Any) -> Any:
    """Return a mask of the pairs of vectors whose rotation into each other changes nothing: both directions have the
    same cotangent, up to rounding, or nearly so where values are equal up to rounding.

    The gap of numerically equal values depends on how the matrix was computed, and is not known here. But where the
    cotangents are the same, the discarded term is rounding divided by the gap: it is large only where nothing else
    remains.
    """
    shape = turned.shape
    epsilon = float(np.finfo(values.dtype).eps)
    gaps = abs_(sub(as_rows(values, shape), as_columns(values, shape)))
    difference = abs_(sub(turned, adjoint(turned)))
    rounding = _largest(abs_(values), 1, shape[-1] * epsilon, shape)
    same = le(difference, _largest(abs_(turned), 2, ROUNDING * shape[-1] * epsilon, shape))
    nearly = le(difference, _largest(abs_(turned), 2, epsilon**0.5, shape))
    return or_(same, and_(le(gaps, rounding), nearly))


def _largest(sizes: Any, count: int, factor: float, shape: Sequence[Any]) -> Any:
    """Return a fraction of the largest element along the last `count` axes, broadcast to matrices of `shape`."""
    rank = len(sizes.shape)
    found = reduce_max(sizes, axes=tuple(range(rank - count, rank)))
    scaled = mul(found, scalar(factor, found))
    return broadcast_in_dim(scaled, shape=tuple(shape), broadcast_dimensions=tuple(range(len(shape) - 2)))
