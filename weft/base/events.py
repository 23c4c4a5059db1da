"""Events that listeners are told of: that something happened, how long it took, or a value. Without listeners they cost
a look at an empty tuple. `weft.monitoring` is the public side.

Names are those that JAX records, so that its programs' listeners find what they look for.
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
    """Those that are told of one kind of events, in the order in which they were registered."""

    def __init__(self) -> None:
        self._lock = held(threading.Lock())
        self.all: tuple[Listener, ...] = ()

    def register(self, callback: Listener) -> None:
        """Tell a function of events from now on."""
        with self._lock:
            self.all = (*self.all, callback)

    def unregister(self, callback: Listener) -> None:
        """Tell it no more; ValueError if it was not told."""
        with self._lock:
            if callback not in self.all:
                raise ValueError(f"{callback!r} is not registered as a listener.")
            self.all = tuple(other for other in self.all if other != callback)

    def clear(self) -> None:
        """Tell nobody."""
        with self._lock:
            self.all = ()

    def tell(self, *event: Any, **details: Any) -> None:
        """Tell everybody of an event."""
        for callback in self.all:
            callback(*event, **details)


happened, durations, values, spans = Listeners(), Listeners(), Listeners(), Listeners()


def took(event: str, seconds: float, **details: Any) -> None:
    """Tell of something that took so long and ended now."""
    if durations.all:
        durations.tell(event, seconds, **details)
    if spans.all:
        now = time.time()
        spans.tell(event, now - seconds, now, **details)
