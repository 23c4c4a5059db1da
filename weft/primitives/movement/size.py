"""Sizes as numbers: the size of a dimension as an operand, although only the caller of a program knows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import conversion, dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.dimension import Dimension
from weft.indexing.expression import Expression, value_range
from weft.indexing.guards import current
from weft.indexing.ranges import Range
from weft.ir.flow import OperandRanges
from weft.ir.fusing import UNFUSED, Machine, Properties
from weft.ir.kinds import Constant
from weft.ir.primitive import Params, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.sharding.factors import AxisFactors


@primitive
class size(Constant):
    """Value of `expression`, an integer over sizes, as a number of a dtype, rounded once. With known sizes it is a
    literal: in traces for known shapes, and in the program of one size."""

    zero_derivative = True
    introduces = ()
    negative_zero = False
    weight = 0
    foldable = True

    def type(self, *, expression: Dimension, dtype: Any, weak_type: bool) -> ArrayType:
        if dtypes.kind(dtype) not in "iufc":
            raise ArgumentTypeError(f"A size is an integer, float or complex number, not {dtypes.name(dtype)}.")
        return array_type((), dtype, weak_type)

    def literal(self, params: Params) -> Any:
        return None if isinstance(params["expression"], Expression) else self.eval(**params)

    def eval(self, *, expression: Dimension, dtype: Any, weak_type: bool) -> Any:
        if isinstance(expression, Expression):
            raise ArgumentTypeError(
                f"The size {expression} is symbolic: it is a number only in traced programs.",
                fix="compute with it inside of a function that is traced for it",
            )
        # Through int64, which NumPy and kernels round from once.
        return np.asarray(expression, np.int64).astype(dtypes.storage(dtype))

    def factors(self, *, expression: Dimension, dtype: Any, weak_type: bool) -> AxisFactors:
        return AxisFactors((), ((),))

    def bounds(self, operands: OperandRanges, *, expression: Dimension, dtype: Any, weak_type: bool) -> Range:
        return value_range(expression) if dtypes.kind(dtype) in "iu" else Range.EVERYTHING

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return UNFUSED

    def samples(self) -> Any:
        yield Sample(expression=7, dtype=np.dtype(np.int32), weak_type=True)
        yield Sample(expression=300, dtype=np.dtype(np.float32), weak_type=False)
        yield Sample(expression=3, dtype=dtypes.bfloat16, weak_type=False)


def size_value(expression: Expression, dtype: Any = None, weak: bool = True) -> Any:
    """Return a symbolic size as an array of rank 0, of a dtype or weakly typed like a Python integer. If sizes are
    decided, raise for a value out of the dtype's range, as an integer does."""
    found = dtypes.default_int_dtype() if dtype is None else dtype
    answers = current.answers
    if answers is not None and dtypes.kind(found) in "iu" and answers.cover(expression):
        limits = dtypes.iinfo(found)
        if not limits.min <= expression <= limits.max:
            conversion.coerce_value(answers.value(expression), found)
    return size(expression=expression, dtype=found, weak_type=weak)
