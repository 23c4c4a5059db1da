"""What makes a fork safe at any moment. A forked process has one thread: locks that other threads held stay taken for
ever, and modules that they were importing stay half there.

This is the one place that knows of forks. A fork waits for a moment in which no other thread is in a section that it
must not be caught in: it takes all locks that were named here, and sees to it that nobody is importing Weft or what
Weft loads lazily. Both processes let go of them afterwards. Long work, such as compiling a program, is not waited for
as a whole: it holds these locks for parts of it only, and what a thread was computing is computed again in the new
process when it is asked for.
"""

from __future__ import annotations

# These two have hooks of their own. Hooks that run before a fork run in the reverse order of their registration, and
# those take locks that threads need to import: so they must run after the one here.
import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Lockable(Protocol):
    """A `threading.Lock` or `RLock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


AnyLock = TypeVar("AnyLock", bound=Lockable)
# Packages whose import by another thread a fork waits for.
LAZILY_LOADED = ("weft", "llvmlite", "numpy", "scipy")
# How long a fork waits in all, and for one lock before it lets the others go and tries again: whoever has that one may
# need another. How long others let it go first, and how often they look.
PATIENCE, ATTEMPT, COURTESY, GLANCE = 60.0, 0.05, 1.0, 0.001
_locks: list[Lockable] = []
# Held while a lock is added to them, and during forks: one that a fork does not know of could be taken meanwhile.
_adding = threading.RLock()
_taken: list[Callable[[], None]] = []
# Threads that are about to fork. Others look at it again and again: a lock or an event could be taken during a fork.
_forking: set[int] = set()


def in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in each forked process, where the system has such; to be used as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


def before(function: Callable[[], None]) -> Callable[[], None]:
    """Have a function called before each fork, and before the locks are taken; to be used as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=function)
    return function


def held(lock: AnyLock) -> AnyLock:
    """Have a lock taken during each fork, so that nobody is in its section then; returns the lock. For those that are
    held for short times only."""
    with _adding:
        if not any(other is lock for other in _locks):  # two threads may name one, and it cannot be taken twice
            _locks.append(lock)
    return lock


def let_fork() -> None:
    """Let a thread go first that is about to fork. Who holds such locks again and again, for longer times, calls this
    before each of them, with none of them held: locks are not fair, and a fork that needs several of them might never
    find all of them free."""
    deadline = 0.0
    while _forking - {threading.get_ident()}:
        now = time.monotonic()
        deadline = deadline or now + COURTESY
        if now > deadline:
            return
        time.sleep(GLANCE)


class RenewedLock:
    """A lock for long work, which a fork does not wait for: a forked process has another, `current`, that nobody holds.
    Whoever forks while they hold it let go of the one that they took."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = threading.RLock()
        in_child(self._renew)

    def _renew(self) -> None:
        self.current = threading.RLock()


def _before() -> None:
    deadline = time.monotonic() + PATIENCE
    _forking.add(threading.get_ident())
    while not _take_all() and time.monotonic() < deadline:
        time.sleep(GLANCE)


def _take_all() -> bool:
    """Take everything, or nothing."""
    if not _take(_adding) or not all(_take(lock) for lock in list(_locks)):
        _let_go()
        return False
    if _imports is not None:
        _imports.acquire_lock()  # who holds it lets nobody begin to import
        _taken.append(_imports.release_lock)
        if _others_import():
            _let_go()
            return False
    return True


def _take(lock: Lockable) -> bool:
    if not lock.acquire(timeout=ATTEMPT):
        return False
    _taken.append(lock.release)
    return True


def _let_go() -> None:
    while _taken:
        _taken.pop()()


def _after_in_parent() -> None:
    _let_go()
    _forking.discard(threading.get_ident())


def _after_in_child() -> None:
    _let_go()
    _forking.clear()


def _others_import() -> bool:
    """Whether another thread is importing something of ours. Python has no public name for it; where it is not as known
    here, nobody waits."""
    me = threading.get_ident()
    locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
    for name, reference in list(locks.items()):
        if name.partition(".")[0] in LAZILY_LOADED:
            owner = getattr(reference(), "owner", None)
            if owner is not None and owner != me:
                return True
    return False


_imports: Any = sys.modules.get("_imp")
if not hasattr(_imports, "acquire_lock"):
    _imports = None
_bootstrap: Any = sys.modules.get("importlib._bootstrap") or sys.modules.get("_frozen_importlib")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
