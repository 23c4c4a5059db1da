"""Events for listeners: occurrences, durations and values. `weft.monitoring` is the public API.

Without listeners an event costs one check of an empty tuple. Event names are JAX's, so that listeners written for JAX
work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from weft.base.forks import held

TRACING = "/jax/core/compile/jaxpr_trace_duration"
COMPILING = "/jax/core/compile/backend_compile_duration"
CACHE_REQUEST = "/jax/compilation_cache/compile_requests_use_cache"
CACHE_HIT = "/jax/compilation_cache/cache_hits"
CACHE_MISS = "/jax/compilation_cache/cache_misses"
CACHE_RETRIEVAL = "/jax/compilation_cache/cache_retrieval_time_sec"

Listener = Callable[..., None]


class Listeners:
    """The callbacks for one kind of event, in order of registration."""

    def __init__(self) -> None:
        self._lock = held(threading.Lock())
        self.all: tuple[Listener, ...] = ()

    def register(self, callback: Listener) -> None:
        """Call a function for each event from now on."""
        with self._lock:
            self.all = (*self.all, callback)

    def unregister(self, callback: Listener) -> None:
        """Remove a callback; raise ValueError if it is not registered."""
        with self._lock:
            if callback not in self.all:
                raise ValueError(f"{callback!r} is not registered as a listener.")
            self.all = tuple(other for other in self.all if other != callback)

    def clear(self) -> None:
        """Remove all callbacks."""
        with self._lock:
            self.all = ()

    def tell(self, *event: Any, **details: Any) -> None:
        """Call all callbacks with an event."""
        for callback in self.all:
            callback(*event, **details)


happened, durations, values, spans = Listeners(), Listeners(), Listeners(), Listeners()


def took(event: str, seconds: float, **details: Any) -> None:
    """Report an operation that took `seconds` and ended now."""
    if durations.all:
        durations.tell(event, seconds, **details)
    if spans.all:
        now = time.time()
        spans.tell(event, now - seconds, now, **details)
