"""Rules for forward mode, partial evaluation, rematerialisation and reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from weft.base.dataclass import dataclass
from weft.ir.missing_rule import missing
from weft.ir.rules.bindable import Bindable, Operands, Params
from weft.ir.tangents import accumulate, split_zeros
from weft.ir.types import Type
from weft.ir.zeros import Zero


@dataclass(frozen=True)
class Split:
    """Result of partial evaluation of one equation: a known and an unknown equation.

    `known` (primitive, params) takes the operands at `known_in` and returns the known results followed by residuals;
    None if there is nothing to compute. `unknown` takes the operands listed in `unknown_in`, in that order, and returns
    the unknown results: an index >= 0 is an operand of the equation, `~k` is residual k.
    """

    known: tuple[Any, Params] | None
    known_in: tuple[int, ...]
    unknown: tuple[Any, Params]
    unknown_in: tuple[int, ...]
    unknown_out: tuple[bool, ...]
    residual_types: tuple[Type, ...] = ()


@dataclass(frozen=True)
class RematSplit:
    """Equation that rematerialisation computes twice, split so that saved values are not computed again.

    `first` (primitive, params) takes the operands and returns the results, then additional values; the values at
    `stored` are saved. `second` takes the operands listed in `second_in` (an index >= 0 is an operand of the equation,
    `~k` is saved value k) and returns the results. `whole` lists the results of the equation that are saved themselves.
    """

    first: tuple[Any, Params]
    first_types: tuple[Type, ...]
    stored: tuple[int, ...]
    second: tuple[Any, Params]
    second_in: tuple[int, ...]
    whole: tuple[int, ...] = ()


class Differentiation(Bindable):
    """Derivatives of an operation. `linear`, `zero_derivative` or `partial` suffice for most; `jvp` is general."""

    # Operands in which the operation is linear: in each of them separately if `multilinear` (mul), else jointly (add).
    linear: ClassVar[Operands] = ()
    multilinear: ClassVar[bool] = False
    # The derivative of the float result is zero wherever it exists (floor, sign).
    zero_derivative: ClassVar[bool] = False

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any, **params: Any) -> Any:
        """Return the tangent of the result, given the operands' tangents (`Zero` where they vanish), the result and the
        operands."""
        if self.zero_derivative:
            return Zero.of(out.aval)
        if self.linear and not self.multilinear:
            linear = range(len(args)) if self.linear == "all" else self.linear
            if all(type(t) is Zero for i, t in enumerate(tangents) if i in linear):
                return Zero.of(out.aval)
            return self(*(split_zeros(t) if i in linear else args[i] for i, t in enumerate(tangents)), **params)
        total: Any = None
        for position, tangent in enumerate(tangents):
            if type(tangent) is Zero:
                continue
            term = self.partial(position, tangent, out, *args, **params)
            if type(term) is Zero:
                continue
            total = term if total is None else accumulate(total, term)
        return Zero.of(out.aval) if total is None else total

    def partial(self, i: int, tangent: Any, out: Any, *args: Any, **params: Any) -> Any:
        """Return the contribution of operand i's tangent to the tangent of the result."""
        if self.multilinear and (self.linear == "all" or i in self.linear):
            return self(*args[:i], tangent, *args[i + 1 :], **params)
        raise missing(f"`{self.name}` is not differentiable in operand {i}: it has no `jvp` or `partial` rule.")

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        """Split the equation given which operands are unknown; None leaves all of it on the unknown side."""
        return None

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Callable[[Any], bool]) -> RematSplit | None:
        """Split the equation so that recomputing it reuses the inner values that `saveable` allows to save; None if it
        saves none."""
        return None

    def transpose(self, cotangent: Any, *args: Any, **params: Any) -> Sequence[Any]:
        """Return the cotangents of the operands that are `Linear`, in which the operation is linear, and None for all
        others."""
        raise missing(f"`{self.name}` has no transpose rule: it is not linear in the operands given.")
