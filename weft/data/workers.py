"""Workers: batch i goes to worker i mod w, and results are returned in order.

A worker is a thread; a worker process has a thread that communicates with it (processes.py).
"""

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

GRACE_SECONDS = 5.0  # that `close` waits for running tasks


class WorkerFailureError(WeftError, RuntimeError):
    """A worker of a loader ended without a result, or exceeded its timeout.

    The position of the loader is that after the last delivered batch; iterating again starts new workers.
    """


def _serve(tasks: queue.SimpleQueue[Any], execute: Callable[[Any], Any]) -> None:
    """Run the thread of a worker."""
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
        del future, task, job  # an idle worker must not keep data alive


class Pool:
    """Threads that execute tasks in order.

    Each thread has one function of `executors`; executors with `close` are closed with the pool.
    """

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
        """Whether the pool can take tasks: it is not closed, and this is not a forked process."""
        return self._finalizer.alive and self.process == os.getpid()

    def run(self, tasks: Iterator[Any], window: int) -> Iterator[tuple[Any, Any]]:
        """Yield each task with its result, in order. At most `window` tasks are running or finished but not yet
        consumed.
        """
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
            if future.done():  # a TimeoutError that the task itself raised
                raise
            raise WorkerFailureError(
                f"A worker has not finished {task.describe()} after {self.timeout} seconds.",
                fix="Loader(..., timeout=None) if a batch may take longer",
            ) from None
        finally:
            del future  # the traceback of its exception refers to this frame

    def close(self) -> None:
        """End all workers: after their present task within a grace period, else by force."""
        if self._finalizer.detach() is not None:
            _close(self._tasks, self._threads, self.executors, self.process, GRACE_SECONDS)


def _close(
    tasks: list[queue.SimpleQueue[Any]],
    threads: list[threading.Thread],
    executors: Sequence[Any],
    process: int,
    grace: float = 0.0,
) -> None:
    """End workers. A finalizer also calls it for a pool that was collected, without waiting."""
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
            thread.join()  # the result that it waits for can no longer arrive
            execute.close(max(0.0, deadline - time.monotonic()))
