"""Rules about the numbers in results: error bounds, ranges, nan and inf, negative zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from weft.base import dtypes
from weft.indexing.ranges import Range
from weft.ir.flow import Condition, OperandRanges, union
from weft.ir.rules.bindable import Bindable, Operands, Params, positions
from weft.ir.types import Type


class Numerics(Bindable):
    """What passes may assume about the values of results. Every default is the weakest assumption."""

    # Operands whose elements make up the results; which element is where depends on indices alone. Computes nothing.
    copies: ClassVar[Operands] = ()
    # The result is the operand: compiled code omits the operation, only derivatives and checks treat it specially.
    identity: ClassVar[bool] = False
    # Each element of a result depends only on the operands' elements at the same index and on scalars.
    pointwise: ClassVar[bool] = False
    # Error bound of compiled code in units in the last place of the result, by the name of the operands' dtype; "" is
    # the default for all dtypes.
    ulp: ClassVar[dict[str, float]] = {"": 0.0}
    # Which of "nan" and "inf" a result can contain although no operand does.
    introduces: ClassVar[tuple[str, ...]] = ("nan", "inf")
    # Operands whose NaNs propagate to the result: to the same index, or to the element they are reduced to.
    keeps_nan: ClassVar[Operands] = ()
    # A float result can be -0.0.
    negative_zero: ClassVar[bool] = True

    def exact(self, types: Sequence[Type], params: Params) -> bool:
        """Return whether `eval` and compiled code agree in every bit on operands of these types.

        True for integers, and for float dtypes whose error bound `ulp` is at most 0.5: then every rounding is IEEE's
        and no order of summation matters.
        """
        for t in types:
            dtype = getattr(t, "dtype", None)
            if dtype is not None and dtypes.kind(dtype) in "fc":
                if self.ulp.get(dtypes.name(dtype), self.ulp.get("", 0.0)) > 0.5:
                    return False
        return True

    def bounds(self, operands: OperandRanges, **params: Any) -> Range:
        """Return the range of the integers in a result, before wraparound."""
        if self.identity:
            return operands(0)
        copied = positions(self.copies, len(operands.types))
        return union([operands.anywhere(i) for i in copied]) if copied else Range.EVERYTHING

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        """Return the range of the value that `condition` asks about, given that this operation's boolean result is
        `holds`."""
        return Range.EVERYTHING

    def introduced(self, params: Params, intended: bool = True) -> tuple[str, ...]:
        """Return which of "nan" and "inf" a result can contain although no operand does.

        Without `intended`, values that the user asked for, such as the fill value of a gather, do not count.
        """
        return () if self.identity else self.introduces

    def nan_operands(self, params: Params) -> Operands:
        """Return the indices of operands whose NaNs propagate to the result."""
        return "all" if self.identity else self.keeps_nan

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        """Return whether no element of the result can be -0.0. `known` returns the same for an operand, as far as it
        can be proved."""
        return not self.negative_zero
