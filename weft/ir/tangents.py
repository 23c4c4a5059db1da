"""Arithmetic of tangents and cotangents, including symbolic zeros."""

from __future__ import annotations

from typing import Any

from weft.ir.hooks import hooks
from weft.ir.registry import lookup
from weft.ir.zeros import Zero


def instantiate(tangent: Any) -> Any:
    """Convert a symbolic zero to an array of zeros; return anything else unchanged.

    Replicated zeros fit a split type, because each device takes its part. They do not fit an unreduced or reduced type,
    so the zeros for those are created with their sharding.
    """
    if type(tangent) is not Zero:
        return tangent
    sharding = getattr(tangent.aval, "explicit_sharding", None)
    if sharding is not None and (sharding.spec.unreduced or sharding.spec.reduced):
        return split_zeros(tangent)
    return hooks.zeros(tangent.aval)


def split_zeros(tangent: Any) -> Any:
    """Instantiate a symbolic zero with the sharding of its type, for operations whose operands must be split alike."""
    sharding = getattr(tangent.aval, "explicit_sharding", None) if type(tangent) is Zero else None
    zeros = hooks.zeros(tangent.aval) if type(tangent) is Zero else tangent
    return zeros if sharding is None else lookup("reshard")(zeros, sharding=sharding, source=None)


def accumulate(x: Any, y: Any) -> Any:
    """Add two tangents or cotangents of one value; either may be a symbolic zero."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    return hooks.add(x, y)
