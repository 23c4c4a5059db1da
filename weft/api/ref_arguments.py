"""Mutable arrays that a staged function takes as arguments or closes over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.ir.types import RefType, get_aval
from weft.primitives.control.custom import custom_lin, custom_vjp_call
from weft.trace.refs import Ref, Touched, write_back


class StagedRefs:
    """Mutable arrays of a staged function: flags of the arguments that are mutable, indices of those that it writes,
    and those that it closes over. Values of captured ones are passed after the leaves of the arguments; new values are
    returned after the results, first those of arguments."""

    __slots__ = ("arguments", "captured", "of_values", "written")

    def __init__(self, arguments: tuple[bool, ...], written: Sequence[int], captured: Sequence[Touched]):
        self.arguments, self.written, self.captured = arguments, tuple(written), tuple(captured)
        self.of_values: Any = None  # jitted function of values, for calls outside of all traces

    @property
    def written_count(self) -> int:
        """Number of mutable arrays that are written."""
        return len(self.written) + sum(t.written for t in self.captured)

    def donation_flags(self, flags: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return the donation flags of leaves and captured values: written ones are overwritten in place."""
        own = flags or (False,) * len(self.arguments)
        leaves = [(f and not r) or i in self.written for i, (f, r) in enumerate(zip(own, self.arguments, strict=True))]
        return (*leaves, *(t.written for t in self.captured))

    def operands(self, leaves: Sequence[Any], alone: bool) -> list[Any]:
        """Return the operands of a call; outside of all traces (`alone`) the values that will be overwritten are moved
        out of their references."""
        values = [
            leaf if not isinstance(leaf, Ref) else leaf.taken() if alone and i in self.written else leaf.value
            for i, leaf in enumerate(leaves)
        ]
        return [*values, *(t.ref.taken() if alone and t.written else t.ref.value for t in self.captured)]

    def write_back(self, leaves: Sequence[Any], values: Sequence[Any]) -> None:
        """Store new values in the references."""
        for i, value in zip(self.written, values, strict=False):
            leaves[i].replace(value)
        write_back(self.captured, values[len(self.written) :])


def has_backward_rules(jaxpr: Jaxpr) -> bool:
    """Return whether differentiating a jaxpr may call a user's backward rule."""
    return any(
        equation.primitive in (custom_vjp_call, custom_lin) or any(map(has_backward_rules, subjaxprs(equation.params)))
        for equation in jaxpr.eqns
    )


def function_of_values(jaxpr: Jaxpr, name: str) -> Callable[..., list[Any]]:
    """Return the function that replays a jaxpr."""

    def values(*args: Any) -> list[Any]:
        return replay(jaxpr, *args)

    values.__name__ = name
    return values


def types_with_refs(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the types of leaves, some of which are mutable arrays or descriptions of them."""
    return tuple(RefType(leaf.inner_aval) if isinstance(leaf, Ref) else get_aval(leaf) for leaf in leaves)


def with_ref_arguments(
    flat: Callable[..., list[Any]], types: Sequence[Any], leaves: Sequence[Any] = (), escaped: list[Ref] | None = None
) -> tuple[Callable[..., list[Any]], list[Any], tuple[bool, ...], list[int]]:
    """Convert a flat function of mutable arrays to one of their values, which returns their new values after its
    results. Return it with its types, the flags of arguments that are mutable, and a list that receives the indices of
    those that it writes. `escaped` receives those of `leaves` that a derivative rule holds."""
    arguments = tuple(isinstance(t, RefType) for t in types)
    written: list[int] = []
    if not any(arguments):
        return flat, list(types), arguments, written

    def function(*values: Any) -> list[Any]:
        own = [Ref.of(v) if is_argument else v for v, is_argument in zip(values, arguments, strict=True)]
        results = flat(*own)
        written[:] = [i for i, x in enumerate(own) if isinstance(x, Ref) and x.written]
        for inner, leaf in zip(own, leaves, strict=False):
            if escaped is not None and isinstance(inner, Ref) and isinstance(leaf, Ref) and inner.escaped:
                inner.outer = leaf
                escaped.append(leaf)
        return [*results, *(own[i]._value for i in written)]

    return function, [t.inner_aval if isinstance(t, RefType) else t for t in types], arguments, written
