"""Worker processes, which receive tasks and send results through a pipe.

Each worker writes the arrays of a result into an anonymous file in memory, and the parent copies them out before it
sends the next task. So a killed process leaves nothing behind, and no array keeps a file open. A worker ends when its
pipe closes or its parent has ended for whatever reason.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import pickle
import random
import signal
import tempfile
import traceback
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from weft.data.order import bits
from weft.data.workers import WorkerFailureError
from weft.errors import ArgumentError

GLOBAL = 2**32  # purpose of the seeds of a worker's global generators, distinct from the purposes in order.py
LARGE_BYTES = 4096  # smaller arrays go through the pipe
TERMINATION_SECONDS = 2.0
PARENT_SECONDS = 1.0  # interval at which a worker checks that its parent exists
_processes: weakref.WeakSet[Any] = weakref.WeakSet()


class RemoteTraceback(Exception):
    """The text of a traceback in a worker process, as the cause of the exception in this process."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


# ------------------------------------------------------------------------------------------------------------ messages


class SharedFile:
    """An anonymous file in memory that two processes share."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("weft.data")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())

    def __reduce__(self) -> Any:  # to a process that is being spawned
        return _rebuild_file, (reduction.DupFd(self.descriptor),)

    def write(self, views: list[memoryview]) -> None:
        """Replace the contents."""
        offset = 0
        for view in views:
            while view.nbytes:
                written = os.pwrite(self.descriptor, view, offset)
                view, offset = view[written:], offset + written

    def read(self, sizes: list[int]) -> list[np.ndarray]:
        """Return the contents as byte arrays of these sizes."""
        offset, found = 0, []
        for size in sizes:
            array = np.empty(size, np.uint8)
            found.append(array)
            view = array.data
            while view.nbytes:
                count = os.preadv(self.descriptor, [view], offset)
                if not count:
                    raise EOFError
                view, offset = view[count:], offset + count
        return found

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


def _rebuild_file(duplicate: Any) -> SharedFile:
    found = SharedFile.__new__(SharedFile)
    found.descriptor = duplicate.detach()
    return found


def _send(connection: Connection, file: SharedFile, value: Any) -> None:
    """Send a value: small arrays through the pipe, large ones through the file."""
    buffers: list[pickle.PickleBuffer] = []

    def is_inside(buffer: pickle.PickleBuffer) -> bool:
        """Return whether a buffer goes through the pipe."""
        if buffer.raw().nbytes < LARGE_BYTES:
            return True
        buffers.append(buffer)
        return False

    text = pickle.dumps(value, 5, buffer_callback=is_inside)
    views = [buffer.raw() for buffer in buffers]
    file.write(views)
    connection.send((text, [view.nbytes for view in views]))


def _receive(connection: Connection, file: SharedFile) -> Any:
    text, sizes = connection.recv()
    return pickle.loads(text, buffers=file.read(sizes))


# ------------------------------------------------------------------------------------------------------ in the process


def _serve(
    connection: Connection, file: SharedFile, others: list[Any], parent: int, prepare: Callable[[Any], Any]
) -> None:
    """Run the worker process.

    `others` are the parent's pipe ends and the files of other workers, which a forked process inherits and closes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    for other in others:
        other.close()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended or closed it
        while os.getppid() == parent:
            if not connection.poll(PARENT_SECONDS):
                continue
            task = _receive(connection, file)
            _answer(connection, file, task, prepare)
            del task


def _seed_globals(task: Any, seed: int) -> None:
    """Seed the global generators for a task; forked workers would draw equal numbers otherwise."""
    words = bits(seed, task.epoch, task.batch, GLOBAL).random_raw(2)
    np.random.seed([int(word) & 0xFFFF_FFFF for word in words])
    random.seed(int(words[0]))


def _answer(connection: Connection, file: SharedFile, task: Any, prepare: Callable[[Any], Any]) -> None:
    try:
        _seed_globals(task, getattr(prepare, "seed", 0))
        result = prepare(task)
        _send(connection, file, (True, result))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except BaseException as error:
        text = traceback.format_exc()
        _send(connection, file, (False, (_portable(error), text)))


def _portable(error: BaseException) -> bytes:
    """Pickle an exception, or a RuntimeError with its text if it cannot be pickled."""
    try:
        text = pickle.dumps(error)
        pickle.loads(text)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return text


# ------------------------------------------------------------------------------------------------------- in the parent


class ProcessExecutor:
    """Worker process `index`, as a function from a task to its result."""

    def __init__(self, index: int, count: int, prepare: Callable[[Any], Any], method: str, others: list[Any]) -> None:
        self.index, self.count = index, count
        context: Any = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.file = SharedFile()
        self.closing = False
        inherited = [*others, self.connection] if method == "fork" else []
        self.process = context.Process(
            target=_serve,
            args=(theirs, self.file, inherited, os.getpid(), prepare),
            name=f"weft.data worker {index}",
            daemon=True,
        )
        try:
            with warnings.catch_warnings():
                # Python warns about forking with threads; Weft handles its own threads at forks.
                warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
                self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.connection.close()
            self.file.close()
            raise ArgumentError(
                "The source or a transform cannot be sent to a worker process.",
                received=str(error),
                fix=(
                    "define functions and classes at the top of a module, not inside of functions",
                    "Loader(..., worker_type='fork') or worker_type='thread'",
                ),
            ) from error
        finally:
            theirs.close()
        _processes.add(self.process)

    def __call__(self, task: Any) -> Any:
        try:
            _send(self.connection, self.file, task)
            # Children of the worker may keep the pipe open, so wait for the end of the worker process too.
            ready = wait([self.connection, self.process.sentinel])
            if self.connection not in ready:
                raise EOFError
            succeeded, result = _receive(self.connection, self.file)
        except (EOFError, BrokenPipeError, ConnectionResetError, OSError) as error:
            raise self._death(task) from (None if isinstance(error, EOFError) else error)
        if succeeded:
            return result
        text, trace = result
        failure = pickle.loads(text)
        failure.__cause__ = RemoteTraceback(trace)
        failure.add_note(f"In worker {self.index} of {self.count} (process {self.process.pid}) of a weft.data.Loader.")
        raise failure

    def _death(self, task: Any) -> WorkerFailureError:
        if self.closing:
            return WorkerFailureError("The batch is lost: the loader was closed while a worker prepared it.")
        self.process.join(TERMINATION_SECONDS)
        code = self.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}" + (" (often because memory ran out)" if name == "SIGKILL" else "")
        else:
            how = f"ended with code {code}"
        return WorkerFailureError(
            f"Worker {self.index} of {self.count} (process {self.process.pid}) {how} while it prepared"
            f" {task.describe()}.",
            fix=(
                "worker_type='thread' to see where it fails",
                'if __name__ == "__main__": around the main program, if it ended at its start',
            ),
        )

    def stop(self, by_force: bool = True) -> None:
        """Begin to end the process; `by_force` if a thread still waits for its result."""
        self.closing = True
        if by_force:
            self.process.terminate()
        else:
            self.connection.close()

    def close(self, grace: float = 0.0) -> None:
        """Wait up to `grace` seconds for the process to end, then terminate it. No thread may use it any more."""
        self.connection.close()
        self.process.join(grace)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(TERMINATION_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()
        self.file.close()


def start(count: int, prepare: Callable[[Any], Any], method: str) -> list[ProcessExecutor]:
    """Start worker processes."""
    executors: list[ProcessExecutor] = []
    try:
        for i in range(count):
            others: list[Any] = [each for e in executors for each in (e.connection, e.file)]
            executors.append(ProcessExecutor(i, count, prepare, method, others))
    except BaseException:
        for executor in executors:
            executor.stop()
            executor.close()
        raise
    return executors


def _forget() -> None:
    """Forget the workers of the parent in a forked process, which Python would end at its exit."""
    children: set[Any] = getattr(multiprocessing.process, "_children", set())
    children.difference_update(_processes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
