"""Workers: batch i goes to worker i mod w, and results come in order. A worker is a thread; for worker processes it is
a thread that talks to one (processes.py)."""

from __future__ import annotations

import collections
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from typing import Any

from weft.errors import WeftError

GRACE_SECONDS = 5.0  # how long a pool that is closed waits for what its workers do


class WorkerFailureError(WeftError, RuntimeError):
    """A worker of a loader has ended without a result, or takes longer than it may. The position of the loader is that
    behind the last batch that was delivered: iterating over the restored loader starts new workers."""


def _serve(tasks: queue.SimpleQueue[Any], execute: Callable[[Any], Any]) -> None:
    """The thread of a worker."""
    while (job := tasks.get()) is not None:
        future, task = job
        if future.set_running_or_notify_cancel():
            try:
                result = execute(task)
            except BaseException as error:
                future.set_exception(error)
                del error
            else:
                future.set_result(result)
                del result
        del future, task, job  # nothing is held while there is nothing to do


class Pool:
    """Threads that each execute tasks in order. `executors` has one function for each; those with `close` are closed
    with the pool."""

    def __init__(self, executors: Sequence[Callable[[Any], Any]], timeout: float | None = None) -> None:
        self.timeout = timeout
        self.process = os.getpid()
        self.executors = executors
        self._tasks: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in executors]
        self._threads = [
            threading.Thread(target=_serve, args=(tasks, execute), name=f"weft.data worker {i}", daemon=True)
            for i, (tasks, execute) in enumerate(zip(self._tasks, executors, strict=True))
        ]
        self._finalizer = weakref.finalize(self, _close, self._tasks, self._threads, executors, self.process)
        for thread in self._threads:
            thread.start()

    @property
    def is_open(self) -> bool:
        """Whether it can take tasks: it is not closed, and this is no forked process."""
        return self._finalizer.alive and self.process == os.getpid()

    def run(self, tasks: Iterator[Any], window: int) -> Iterator[tuple[Any, Any]]:
        """Each task with its result, in order. At most `window` tasks are under way or wait for who uses them."""
        pending: collections.deque[tuple[Any, Future[Any]]] = collections.deque()
        try:
            for i, task in enumerate(tasks):
                future: Future[Any] = Future()
                self._tasks[i % len(self._tasks)].put((future, task))
                pending.append((task, future))
                del task, future
                if len(pending) >= window:
                    yield self._result(*pending.popleft())
            while pending:
                yield self._result(*pending.popleft())
        finally:
            for _, future in pending:
                future.cancel()

    def _result(self, task: Any, future: Future[Any]) -> tuple[Any, Any]:
        try:
            return task, future.result(self.timeout)
        except FutureTimeoutError:
            if future.done():  # the worker's own
                raise
            raise WorkerFailureError(
                f"A worker has not finished {task.describe()} after {self.timeout} seconds.",
                fix="Loader(..., timeout=None) if that may take longer",
            ) from None
        finally:
            del future  # a traceback of its exception has this frame

    def close(self) -> None:
        """End all workers: when they have finished what they do, or by force."""
        if self._finalizer.detach() is not None:
            _close(self._tasks, self._threads, self.executors, self.process, GRACE_SECONDS)


def _close(
    tasks: list[queue.SimpleQueue[Any]],
    threads: list[threading.Thread],
    executors: Sequence[Any],
    process: int,
    grace: float = 0.0,
) -> None:
    """End workers; also called when nobody has the pool any more, and then without waiting."""
    if process != os.getpid():
        return
    for inbox in tasks:
        inbox.put(None)
    deadline = time.monotonic() + grace
    for thread, execute in zip(threads, executors, strict=True):
        if thread is threading.current_thread():
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if hasattr(execute, "stop"):
            execute.stop(by_force=thread.is_alive())
            thread.join()  # what it waits for is gone
            execute.close(max(0.0, deadline - time.monotonic()))
