"""Why a jitted function is staged again: the nearest earlier signature and what differs from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from weft.base import tree
from weft.base.source import Location

logger = logging.getLogger("weft")

PARTS = ("argument structure", "argument types", "static arguments", "settings", "named axes")


def explain_miss(cause: str, location: Location | None) -> None:
    """Log why this call is staged."""
    at = f" at {location.describe()}" if location is not None else ""
    logger.warning("%s", f"TRACING CACHE MISS{at}: {cause}")


def reason(name: str, key: Any, earlier: Sequence[Any], paths: Sequence[str]) -> str:
    """One or a few lines: never seen, or the differences from the nearest earlier signature; of several that are
    as near, the first."""
    if not earlier:
        return (
            f"{name} was never staged before. If it was, the function object is new on each call: "
            "define it (and its jit) once, outside of loops."
        )
    nearest = min(earlier, key=lambda other: distance(key, other))
    found = differences(key, nearest, paths)
    return f"{name} was staged before ({len(earlier)} signatures); the nearest differs in\n  " + "\n  ".join(found[:5])


def distance(key: Any, other: Any) -> tuple[int, int]:
    """How far apart two signatures are: the parts that differ as a whole count before those of argument types, of which
    the same shape with another dtype is nearer than another shape and another dtype."""
    if key[0] != other[0]:
        return 1 + sum(new != old for new, old in zip(key[2:], other[2:], strict=True)), 0
    types = 0
    for new, old in zip(key[1], other[1], strict=False):
        if new != old:
            types += 1 + (new.shape != old.shape) + (new.dtype != old.dtype)
    return sum(new != old for new, old in zip(key[2:], other[2:], strict=True)), types


def differences(key: Any, other: Any, paths: Sequence[str]) -> list[str]:
    """What differs between two signatures, one line each."""
    lines: list[str] = []
    if key[0] != other[0]:
        found = tree.equality_errors_of_structures(key[0], other[0])
        lines.extend(
            f"the structure of the arguments{tree.keystr(d.path)}: now {d.first}, before {d.second} ({d.why})"
            for d in found[:3]
        )
        lines.extend(["the structure of the arguments"] * (3 if not found else 0))
    else:
        for path, new, old in zip(paths, key[1], other[1], strict=False):
            if new != old:
                weak = " (weak type)" if new.strong() == old.strong() and new.weak_type else ""
                lines.append(f"{path}: now {new.short()}{weak}, before {old.short()}")
    for part, new, old in zip(PARTS[2:], key[2:], other[2:], strict=True):
        if new != old:
            lines.append(f"{part}: now {new}, before {old}")
    return lines
