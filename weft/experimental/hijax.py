"""Operations whose rules are methods of one class, under the names of `jax.experimental.hijax`.

Values of types that programs define themselves are not among them: what enters a program is an array.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.api.custom_rules import SymbolicZero
from weft.api.user_primitive import AxisData, UserPrimitive
from weft.base.publish import publish as _publish
from weft.ir.primitive import missing
from weft.ir.tangents import instantiate
from weft.transforms.batch import batch_flat
from weft.transforms.jvp import as_list

__all__ = ["HiPrimitive", "control_flow_allowed_effects", "instantiate_zeros"]


class HiPrimitive:
    """Operation defined by a class: a subclass has its rules as methods, and its instances are bound.

    `abstract_eval(*avals, **params)` returns the type of the result, or a list of types where `multiple_results`, and a
    set of effects. `to_lojax(*args, **params)` is the operation in terms of others. `jvp(primals, tangents, **params)`
    returns results and their tangents, `transpose(cotangent, *args, **params)` a cotangent for each operand; `vmap`
    batches what `to_lojax` computes.

    >>> import weft, weft.numpy as wnp
    >>> from weft.experimental.hijax import HiPrimitive
    >>> class Square(HiPrimitive):
    ...     def abstract_eval(self, x):
    ...         return x, set()
    ...     def to_lojax(self, x):
    ...         return x * x
    ...     def jvp(self, primals, tangents):
    ...         return self.bind(*primals), 2 * primals[0] * tangents[0]
    >>> float(weft.grad(Square("square").bind)(3.0))
    6.0
    """

    multiple_results = False

    def __init__(self, name: str):
        self.name = name
        primitive = self._primitive = UserPrimitive(name)
        primitive.def_effectful_abstract_eval(lambda *avals, **params: self.abstract_eval(*avals, **params))
        primitive.rules["lowering"] = lambda *args, **params: self.to_lojax(*args, **params)
        primitive.rules["batch"] = self._batch
        kind = type(self)
        if kind.jvp is not HiPrimitive.jvp:
            primitive.rules["jvp"] = lambda primals, tangents, **params: self.jvp(primals, tangents, **params)
        if kind.transpose is not HiPrimitive.transpose:
            primitive.rules["transpose"] = lambda cotangent, *args, **params: self.transpose(cotangent, *args, **params)

    def bind(self, *args: Any, **params: Any) -> Any:
        """Perform the operation under whatever transformation is active."""
        self._primitive.multiple_results = self.multiple_results  # type: ignore[misc]
        return self._primitive.bind(*args, **params)

    def is_high(self, *args: Any, **params: Any) -> bool:
        """Return whether `to_lojax` computes the operation: always True."""
        return True

    def abstract_eval(self, *avals: Any, **params: Any) -> Any:
        """Return the type of the result and a set of effects."""
        raise missing(f"{type(self).__name__} needs an abstract_eval, which returns the type of `{self.name}`.")

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        """Compute the operation in terms of others."""
        raise missing(f"{type(self).__name__} needs a to_lojax, which computes `{self.name}`.")

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> Any:
        """Return the results and their tangents."""
        raise missing(f"{type(self).__name__} has no jvp, so that `{self.name}` is not differentiable.")

    def transpose(self, cotangent: Any, *args: Any, **params: Any) -> Any:
        """Return a cotangent for each operand in which the operation is linear, and None for the others."""
        raise missing(f"{type(self).__name__} needs a transpose for reverse mode of `{self.name}`.")

    def _batch(self, axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
        outs, out_dims = batch_flat(lambda *own: as_list(self.to_lojax(*own, **params)), axis._axis, args, dims)
        return (outs, out_dims) if self.multiple_results else (outs[0], out_dims[0])

    def __repr__(self) -> str:
        return self.name


class EffectTypeSet:
    """Kinds of effects."""

    def __init__(self) -> None:
        self._types: set[type] = set()

    def add_type(self, effect_type: type) -> None:
        """Add a kind."""
        self._types.add(effect_type)

    def remove_type(self, effect_type: type) -> None:
        """Take a kind out."""
        self._types.discard(effect_type)

    def contains(self, effect: Any) -> bool:
        """Return whether an effect is of one of the registered kinds."""
        return isinstance(effect, tuple(self._types))

    def filter_in(self, effects: Iterable[Any]) -> list[Any]:
        """Return the effects that are of one of the kinds."""
        return [e for e in effects if self.contains(e)]

    def filter_not_in(self, effects: Iterable[Any]) -> list[Any]:
        """Return the effects that are of none of the kinds."""
        return [e for e in effects if not self.contains(e)]


# Effects that programs declare permitted in loops and branches. Here all are, since effects run in order.
control_flow_allowed_effects = EffectTypeSet()


def instantiate_zeros(tangent: Any) -> Any:
    """Convert a symbolically zero tangent or cotangent to zeros; return any other unchanged."""
    return tangent.instantiate() if isinstance(tangent, SymbolicZero) else instantiate(tangent)


_publish(__name__)
