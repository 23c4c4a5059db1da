"""Python's collector of reference cycles, which compilations do without: they make many objects and few cycles, and the
collector would go through all that are there, again and again."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from weft.base.forks import held, in_child

_lock = held(threading.Lock())
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
