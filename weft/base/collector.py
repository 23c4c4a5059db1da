"""Pause Python's cyclic garbage collector during compilation.

Compilations create many objects and few cycles, and the collector would scan all live objects again and again.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from weft.base.forks import held, in_child

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_lock = held(threading.RLock())  # reentrant, because a signal handler may interrupt
_pauses = 0


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Return a context in which automatic collection is paused, as long as any thread is inside.

    Explicit calls of `gc.collect` still collect. A collector that was disabled before stays disabled afterwards.
    """
    global _pauses
    with _lock:
        pauses = _pauses or gc.isenabled()
        if pauses:
            _pauses += 1
            gc.disable()
    try:
        yield
    finally:
        if pauses:
            _resume()


def without_collection(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return the function with the collector paused while it runs."""

    @functools.wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with paused():
            return function(*args, **kwargs)

    return called


def _resume() -> None:
    global _pauses
    with _lock:
        _pauses = max(_pauses - 1, 0)
        if not _pauses:
            gc.enable()


def _forked() -> None:
    """Reset the count in a forked process, where the other threads that were inside do not exist."""
    global _pauses
    if _pauses:
        _pauses = 0
        gc.enable()


in_child(_forked)
