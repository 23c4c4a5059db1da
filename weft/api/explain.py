"""Explanations of cache misses: how a new signature differs from the nearest earlier one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from weft.api.call import Signature
from weft.base import tree
from weft.base.source import Location
from weft.ir.types import Shape

logger = logging.getLogger("weft")

PARTS = {"static": "static arguments", "settings": "settings", "axes": "named axes"}


def log_miss(cause: str, location: Location | None) -> None:
    """Log why a call is staged."""
    at = f" at {location.describe()}" if location is not None else ""
    logger.warning("%s", f"TRACING CACHE MISS{at}: {cause}")


def explain_difference(name: str, signature: Signature, earlier: Sequence[Signature], paths: Sequence[str]) -> str:
    """Return the reason for a cache miss: the first call, or how the nearest earlier signature differs.

    If several are equally near, the first one counts.
    """
    if not earlier:
        return (
            f"{name} was never staged before. If it was, the function object is new on each call: "
            "define it (and its jit) once, outside of loops."
        )
    nearest = min(earlier, key=lambda other: distance(signature, other))
    found = differences(signature, nearest, paths)
    return f"{name} was staged before ({len(earlier)} signatures); the nearest differs in\n  " + "\n  ".join(found[:5])


def distance(signature: Signature, other: Signature) -> tuple[int, int]:
    """Return how far apart two signatures are: the number of parts that differ, then the differences of types.

    An argument with the same shape and another dtype is nearer than one with another shape and another dtype.
    """
    parts = sum(getattr(signature, part) != getattr(other, part) for part in PARTS)
    if signature.in_tree != other.in_tree:
        return 1 + parts, 0
    types = 0
    for new, old in zip(signature.types, other.types, strict=False):
        if new != old:
            types += 1 + (not alike(new.shape, old.shape)) + (new.dtype != old.dtype)
    return parts, types


def alike(shape: Shape, other: Shape) -> bool:
    """Return whether two shapes are the same. Symbolic sizes are compared as objects: those of two exports cannot be
    computed with together."""
    return len(shape) == len(other) and all(
        a is b or (isinstance(a, int) and isinstance(b, int) and a == b) for a, b in zip(shape, other, strict=True)
    )


def differences(signature: Signature, other: Signature, paths: Sequence[str]) -> list[str]:
    """Return the differences between two signatures, one line each."""
    lines: list[str] = []
    if signature.in_tree != other.in_tree:
        found = tree.equality_errors_of_structures(signature.in_tree, other.in_tree)
        lines.extend(
            f"the structure of the arguments{tree.keystr(d.path)}: now {d.first}, before {d.second} ({d.why})"
            for d in found[:3]
        )
        if not found:
            lines.append("the structure of the arguments")
    else:
        for path, new, old in zip(paths, signature.types, other.types, strict=False):
            if new != old:
                weak = " (weak type)" if new.strong() == old.strong() and new.weak_type else ""
                lines.append(f"{path}: now {new.short()}{weak}, before {old.short()}")
    for part, text in PARTS.items():
        new, old = getattr(signature, part), getattr(other, part)
        if new != old:
            lines.append(f"{text}: now {new}, before {old}")
    return lines
