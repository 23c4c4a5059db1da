"""Comparisons: a boolean for each pair of elements."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ops.elementwise import Comparison
from weft.ops.scalar import COMPUTED_IN, bfloat16, complex_ramp
from weft.ops.shape import ramp


def compared(function: Callable[..., Any]) -> Any:
    """An `eval` rule for a comparison; types that NumPy does not know are compared in a wider one, which is exact."""

    def evaluated(*arrays: Any) -> Any:
        wider = COMPUTED_IN.get(arrays[0].dtype)
        return function(*arrays) if wider is None else function(*[a.astype(wider) for a in arrays])

    return staticmethod(evaluated)


class PairComparison(Comparison):
    """A comparison of two arrays of one dtype."""

    kinds = "biuf"
    zero_derivative = True

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1])
        yield Sample(ramp(3), ramp(3)[1])
        yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32)[::-1].copy())
        yield Sample(np.array([True, False]), np.array([True, True]))
        yield Sample(np.array([np.nan, 1, -0.0], np.float32), np.array([np.nan, np.nan, 0], np.float32))
        yield Sample(ramp(3, dtype=bfloat16), ramp(3, dtype=bfloat16))
        yield Sample(ramp(0), ramp(0))


class Equality(PairComparison):
    """Equality also compares complex numbers and random keys."""

    kinds = "biufck"

    def samples(self) -> Any:
        yield from super().samples()
        yield Sample(complex_ramp(3), complex_ramp(3)[::-1])


@primitive
class eq(Equality):
    """Whether elements are equal; nan is equal to nothing."""

    eval = compared(operator.eq)


@primitive
class ne(Equality):
    """Whether elements differ; nan differs from everything."""

    eval = compared(operator.ne)


@primitive
class lt(PairComparison):
    """Whether the first element is less."""

    eval = compared(np.less)


@primitive
class le(PairComparison):
    """Whether the first element is less or equal."""

    eval = compared(np.less_equal)


@primitive
class gt(PairComparison):
    """Whether the first element is greater."""

    eval = compared(np.greater)


@primitive
class ge(PairComparison):
    """Whether the first element is greater or equal."""

    eval = compared(np.greater_equal)


@primitive
class is_finite(Comparison):
    """Whether an element is neither infinite nor nan."""

    kinds = "f"
    zero_derivative = True
    eval = compared(np.isfinite)

    def samples(self) -> Any:
        yield Sample(np.array([0, np.inf, -np.inf, np.nan, 1], np.float32))
        yield Sample(np.array([0, np.inf, np.nan], bfloat16))
        yield Sample(np.float32(2).reshape(()))
