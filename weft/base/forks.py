"""Make forks safe at any moment.

A forked process has a single thread: locks that other threads held stay locked forever, and modules that they were
importing stay incomplete.

This is the only module that handles forks. A fork waits until no other thread is in a critical section: it acquires all
locks that are registered here, and checks that no thread is importing Weft or a package that Weft loads lazily. Both
processes release the locks afterwards. Long work, such as compiling a program, does not delay a fork: it holds these
locks only for short sections, and the new process repeats what a thread was computing when it needs the result.
"""

from __future__ import annotations

# These two modules register fork hooks that acquire locks which threads need for imports. Hooks before a fork run in
# reverse order of registration, so importing the modules first makes their hooks run after ours.
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
# A fork waits while another thread imports one of these packages.
LAZILY_LOADED = ("weft", "llvmlite", "numpy", "scipy")
# Seconds: the total time that a fork waits; the time for one lock before it releases all and retries, because the
# holder of that lock may need another one; how long other threads give way to a fork; their polling interval.
PATIENCE, ATTEMPT, COURTESY, GLANCE = 60.0, 0.05, 1.0, 0.001
_locks: list[Lockable] = []
# Held while a lock is registered, and during forks, so that no unknown lock can be acquired meanwhile.
_adding = threading.RLock()
_taken: list[Callable[[], None]] = []
# Threads that are about to fork. Others poll it, because a lock or an event could itself be held during a fork.
_forking: set[int] = set()


def in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Register a function to be called in each forked process, if the platform supports it. Usable as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


def before(function: Callable[[], None]) -> Callable[[], None]:
    """Register a function to be called before each fork, before the locks are acquired. Usable as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=function)
    return function


def held(lock: AnyLock) -> AnyLock:
    """Register a lock to be acquired during each fork, so that no thread is in its section; return the lock. Only for
    locks that are held for short times."""
    with _adding:
        if not any(other is lock for other in _locks):  # two threads may register one lock, which must be acquired once
            _locks.append(lock)
    return lock


def let_fork() -> None:
    """Wait while another thread is about to fork.

    Threads that hold registered locks repeatedly for longer times call this before each acquisition, without holding
    any: locks are not fair, so a fork that needs several of them might never find all of them free.
    """
    deadline = 0.0
    while _forking - {threading.get_ident()}:
        now = time.monotonic()
        deadline = deadline or now + COURTESY
        if now > deadline:
            return
        time.sleep(GLANCE)


class RenewedLock:
    """A lock for long work, which forks do not wait for: a forked process gets a new, free lock in `current`.

    A thread that forks while it holds the lock releases, in the child, the object that it acquired.
    """

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
    """Acquire everything, or nothing."""
    if not _take(_adding) or not all(_take(lock) for lock in list(_locks)):
        _let_go()
        return False
    if _imports is not None:
        _imports.acquire_lock()  # no other thread can begin an import while it is held
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
    """Return whether another thread is importing one of `LAZILY_LOADED`. Relies on a private table of Python; returns
    False if that is missing."""
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
