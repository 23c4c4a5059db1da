"""Python's collector of reference cycles, which compilations do without: they make many objects and few cycles, and the
collector would go through all that are there, again and again."""

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
_lock = held(threading.RLock())  # a signal's handler may come in between
_pauses = 0


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """While this or another thread is inside, cycles are not collected, unless they are asked for (`gc.collect`). Who
    has switched the collector off finds it off afterwards."""
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
    """The function, during which the collector is paused."""

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
    """Other threads, which may have been inside, are gone."""
    global _pauses
    if _pauses:
        _pauses = 0
        gc.enable()


in_child(_forked)
