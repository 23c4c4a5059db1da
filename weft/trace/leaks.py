"""`check_tracer_leaks`: after a trace has ended, look for tracers that are still referenced."""

from __future__ import annotations

import gc
from typing import Any

from weft.base import errors
from weft.base.source import user_line
from weft.trace.tracer import Tracer


def _find_tracers(trace: Any) -> list[Any]:
    return [t for t in gc.get_referrers(trace) if isinstance(t, Tracer) and t._trace is trace]


def report_leaks(trace: Any) -> None:
    """Raise if tracers of `trace` are still referenced from outside of it."""
    if not _find_tracers(trace):
        return
    gc.collect()  # those that are left may be garbage that refers to itself
    held = _find_tracers(trace)
    if not held:
        return
    lines = []
    for tracer in held:
        source = getattr(tracer, "source", None)
        lines.append(f"{tracer.aval.short()}" + (f" made at {source.describe()}" if source is not None else ""))
    raise errors.UnexpectedTracerError(
        f"{len(held)} traced value(s) leaked from {trace.where}: " + "; ".join(lines[:5]) + ".",
        fix="return values from the traced function instead of storing them outside of it",
        at=user_line(),
        jax="Leaked trace " + ", ".join(lines[:5]),
    )
