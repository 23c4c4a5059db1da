"""Background recompilation: a thread compiles better code for programs that are called repeatedly.

A program switches to the better code when it is ready. Both compute the same bits.
"""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any

from weft.base.forks import held, in_child

if TYPE_CHECKING:
    from weft.runtime.cpu.executable import Executable

_waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
_lock = held(threading.RLock())  # a signal handler may run while it is locked
_thread: threading.Thread | None = None
_pending = 0
_idle = threading.Event()
_idle.set()


def improve(executable: Executable) -> None:
    """Schedule better code for a program."""
    global _thread, _pending
    with _lock:
        _pending += 1
        _idle.clear()
        _waiting.put(weakref.ref(executable))
        if _thread is None:
            _thread = threading.Thread(target=_work, name="weft-compiler", daemon=True)
            _thread.start()


def wait(timeout: float | None = None) -> bool:
    """Wait until no compilation is pending; return False on timeout."""
    return _idle.wait(timeout)


def _work() -> None:
    global _pending
    while True:
        reference = _waiting.get()
        if reference is None:
            return
        executable = reference()
        try:
            if executable is not None:
                executable.optimise(yields=True)
        except Exception as error:  # the program keeps its code, and the thread continues with others
            here = threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, here)))
        finally:
            del executable
            with _lock:
                _pending -= 1
                if not _pending:
                    _idle.set()


@atexit.register
def _stop() -> None:
    """End the thread: LLVM must not run while the process exits."""
    thread = _thread
    while not _waiting.empty():
        _waiting.get()
    if thread is not None:
        _waiting.put(None)
        thread.join()


@in_child
def _after_fork() -> None:
    """Reset the state of the thread, which does not survive a fork."""
    global _thread, _pending, _waiting, _idle
    _thread, _pending, _waiting, _idle = None, 0, queue.SimpleQueue(), threading.Event()
    _idle.set()
