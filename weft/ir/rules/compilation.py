"""Rules for the compiler: definitions, fusion, cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.ir.element import Element
from weft.ir.fusing import CONTROLS, UNFUSED, Machine, Properties, element_count
from weft.ir.rules.bindable import Bindable, Params
from weft.ir.types import ArrayType


class Compilation(Bindable):
    """How an operation is lowered, fused and costed. Families implement most of these rules."""

    # The parameter that holds the called jaxpr, for plain calls: inlining replaces the call by the jaxpr's equations.
    opens: ClassVar[str | None] = None
    # An equivalent in terms of other operations, with the same bits, that is compiled instead, or None.
    definition: ClassVar[Callable[..., Any] | None] = None
    # Folded at compile time where all operands are known and small.
    foldable: ClassVar[bool] = False
    # Cost of one element of the result, in additions; 0 for copies.
    weight: ClassVar[float] = 1
    # Index of the operand that holds index vectors, whose components kernels read one by one (gather, scatter).
    index_operand: ClassVar[int | None] = None

    def live_operands(
        self, live_results: Sequence[bool], params: Params
    ) -> tuple[list[bool], Params, list[bool]] | None:
        """Remove dead code inside of the equation. Return (operands still needed, new params, results that remain), or
        None if nothing can be removed."""
        return None

    def define(self, equation: Any) -> Callable[..., Any] | None:
        """Return the function that defines the equation in terms of other operations, or None if it is compiled as it
        is."""
        return self.definition

    def fusion(self, equation: Any, target: Machine) -> Properties:
        """Return how fusion treats the equation. By default it is unfused, and a library or `eval` computes it."""
        return CONTROLS if self.higher_order else UNFUSED

    def value_at(self, element: Element, **params: Any) -> Any:
        """Compute one element of a result inside of a kernel. Called only for operations that `fusion` allows to be
        computed at an index."""
        raise InternalError(f"`{self.name}` has no value at an index; the fusion pass must not put it here.")

    def element_weight(self, params: Params) -> float:
        """Return the cost of one element of the result, in additions of real numbers."""
        return self.weight

    def flops(self, equation: Any) -> float:
        """Return the cost of computing the results, which are arrays, in additions."""
        return element_cost(equation) * element_count(equation.outvars[0].aval.shape)

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        """Return the bytes read of each operand and the bytes written in total, given the sizes of operands and results
        in bytes."""
        return operands, sum(results)


def element_cost(equation: Any) -> float:
    """Return the cost of one element of an equation's result, in additions; complex numbers cost four times as much."""
    weight: float = equation.primitive.element_weight(equation.params)
    if not weight or not equation.outvars:
        return weight
    aval = equation.outvars[0].aval
    return weight * 4 if isinstance(aval, ArrayType) and dtypes.kind(aval.dtype) == "c" else weight
