"""Shared parts of the rules of loops: fixpoints over carries, and rearranging the arguments of a loop's body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.ir.jaxpr import Jaxpr, Var, drop_dead
from weft.ir.types import Type

T = TypeVar("T")
Mask = tuple[bool, ...]


def fixpoint(step: Callable[[Mask], tuple[T, Sequence[bool]]], start: Sequence[bool]) -> tuple[T, Mask]:
    """Grow a mask over the carry (nonzero, batched, unknown) until the body does not grow it any more."""
    mask = tuple(start)
    for _ in range(len(mask) + 1):
        result, out = step(mask)
        grown = tuple(a or b for a, b in zip(mask, out, strict=True))
        if grown == mask:
            return result, mask
        mask = grown
    raise AssertionError("a mask over a carry can only grow, so it reaches a fixpoint")


def live_carry(body: Jaxpr, count: int, start: Sequence[bool]) -> tuple[list[bool], Mask]:
    """Return which of the `count` arguments before the carry, and which parts of the carry, a loop needs to compute
    `start`."""

    def step(mask: Mask) -> tuple[list[bool], list[bool]]:
        _, used = drop_dead(body, mask, False)
        return used[:count], used[count:]

    return fixpoint(step, start)


def rearrange(jaxpr: Jaxpr, arguments: Sequence[int]) -> Jaxpr:
    """Reorder the arguments of a jaxpr: new argument k is old argument `arguments[k]`."""
    return jaxpr.replace(invars=[jaxpr.invars[i] for i in arguments])


def with_extra_arguments(jaxpr: Jaxpr, types: Sequence[Type]) -> Jaxpr:
    """Append arguments that the jaxpr ignores."""
    return jaxpr.replace(invars=[*jaxpr.invars, *(Var(t) for t in types)])


def pick(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """Return the values where the mask is set."""
    return [v for v, m in zip(values, mask, strict=True) if m]


def others(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """Return the values where the mask is not set."""
    return [v for v, m in zip(values, mask, strict=True) if not m]


def merge_by_mask(mask: Sequence[bool], where_set: Sequence[Any], where_not: Sequence[Any]) -> list[Any]:
    """Merge two lists by a mask."""
    first, second = iter(where_set), iter(where_not)
    return [next(first) if m else next(second) for m in mask]


def find_unused(jaxpr: Jaxpr) -> set[Var]:
    """Return the arguments that the jaxpr does not read."""
    read = {v for e in jaxpr.eqns for v in e.invars} | set(jaxpr.outvars)
    return {v for v in jaxpr.invars if v not in read}
