"""Operand states along the manual axes of a `shard_map`, and the casts that produce them.

A cast does not communicate, but its transpose may: `pvary` of an invariant value transposes to a sum over devices.
Casts are inserted where operands are bound, so users need not write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.registry import lookup
from weft.ir.types import ArrayType, TapeType, Type, get_aval
from weft.sharding.manual import NONE, ManualAxisType

# The name of a cast primitive and the axes whose state it changes.
Cast = tuple[str, tuple[Any, ...]]


def manual_state(aval: Any) -> ManualAxisType:
    """Return the state of a type along manual axes; for a tape, that of its elements."""
    if isinstance(aval, TapeType):
        return manual_state(aval.element)
    return aval.manual if isinstance(aval, ArrayType) else NONE


def varying_type(aval: Type, axes: frozenset[Any]) -> Type:
    """Return the type that also varies along `axes`, for values that each device chooses for itself."""
    if not axes:
        return aval
    if isinstance(aval, TapeType):
        return TapeType(varying_type(aval.element, axes))
    if not isinstance(aval, ArrayType) or axes <= aval.vma:
        return aval
    state = aval.manual
    return aval.with_placement(manual=state.update(varying=state.varying | axes, reduced=state.reduced - axes))


def casts_to(own: ManualAxisType, varying: frozenset[Any], reduced: frozenset[Any]) -> tuple[Cast, ...]:
    """Return the casts from state `own` to one that varies along `varying` and is reduced along `reduced`. Unreduced
    axes are left as they are, because they need a sum."""
    missing = varying - own.varying - own.unreduced
    found = (
        ("reduced_vary_cast", missing & own.reduced),
        ("pvary", missing - own.reduced),
        ("preduced", reduced - own.vur - varying),
    )
    return tuple((name, tuple(sorted(axes, key=str))) for name, axes in found if axes)


def operand_casts(primitive: Any, types: Sequence[Type], params: Any) -> list[tuple[Cast, ...]] | None:
    """Return the casts of each operand of an operation; None if no operand needs one."""
    if primitive.higher_order:
        wanted = primitive.operand_states(types, params)
        if all(s is NONE for s in wanted):
            return None
        return [casts_to(manual_state(t), s.varying, s.reduced) for t, s in zip(types, wanted, strict=True)]
    if primitive.types_placement or len(types) < 2:
        return None
    states = [manual_state(t) for t in types]
    if all(s is states[0] for s in states):
        return None
    varying = frozenset[Any]().union(*(s.varying for s in states))
    reduced = frozenset[Any]().union(*(s.reduced for s in states))
    if primitive.multilinear:  # the factor of an unreduced value gets an unreduced cotangent
        reduced = reduced.union(*(s.unreduced for s in states))
    return [casts_to(s, varying, reduced - s.unreduced) for s in states]


def cast_operands(primitive: Any, args: Sequence[Any], params: Any) -> Sequence[Any]:
    """Cast operands to their common state along manual axes. Python numbers are left as they are: they fit any state,
    because they have no derivative."""
    casts = operand_casts(primitive, [get_aval(a) for a in args], params)
    if casts is None:
        return args
    return [apply_casts(a, own) if own and hasattr(a, "aval") else a for a, own in zip(args, casts, strict=True)]


def apply_casts(value: Any, casts: Sequence[Cast]) -> Any:
    """Apply a sequence of casts along manual axes to a value."""
    for name, axes in casts:
        value = lookup(name)(value, axes=axes)
    return value


def cast_to_state(value: Any, aval: Type) -> Any:
    """Cast a value to the state of type `aval` along manual axes, as far as that needs no communication."""
    if aval.is_plain:
        return value
    wanted = manual_state(aval)
    return apply_casts(value, casts_to(manual_state(get_aval(value)), wanted.varying, wanted.reduced))
