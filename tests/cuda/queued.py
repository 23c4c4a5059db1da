"""Simulated GPUs that work beside the host, for processes that have some of the GPUs of a host each: what is started is
done by a thread for each GPU, in order, and collectives with other processes take until these are there."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cuda.simulated import SimulatedDriver
from tests.cuda.stand_ins.nccl import NcclStandIn
from tests.cuda.stand_ins.network import Network
from weft.runtime.cuda import communicators, driver
from weft.runtime.cuda.libraries.nccl import Nccl
from weft.runtime.cuda.memory_backend import CudaMemoryBackend
from weft.runtime.cuda.unfinished import wait_for_others
from weft.runtime.memory_backend import memory_backends

# What is started and not waited for.
STARTED = ("copy", "copy_rows", "fill", "set_word", "launch", "call", "start", "collective", "copy_in_stream")


class Queue:
    """Work that a thread does, in order."""

    def __init__(self, name: str) -> None:
        self._queue: deque[Callable[[], Any]] = deque()
        self._changed = threading.Condition()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def enqueue(self, work: Callable[[], Any]) -> None:
        """Have a function called when all that was started before has been done."""
        with self._changed:
            self._queue.append(work)
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                work = self._queue[0]
            try:
                work()
            except BaseException as error:
                self.error = self.error or error
            with self._changed:
                self._queue.popleft()
                self._changed.notify_all()

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def drain(self) -> None:
        """As the driver waits: nothing ends it but the end of the work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue)
        if self.error is not None:
            raise AssertionError("the GPU has failed") from self.error


class Beside(Queue):
    """A second stream of a simulated GPU."""

    def __init__(self, driver: SimulatedDriver) -> None:
        super().__init__(f"beside {driver.name}")
        self._driver, self.handle = driver, self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("fill", "copy_rows"):
            raise AttributeError(name)
        function = getattr(SimulatedDriver, name)
        return lambda *arguments: self.enqueue(lambda: function(self._driver, *arguments))


class QueuedDriver(SimulatedDriver):
    """A simulated GPU whose work is done by a thread."""

    def __init__(self, index: int = 0) -> None:
        super().__init__(index)
        self.beside = Beside(self)
        self._work = Queue(self.name)
        self.enqueue = self._work.enqueue
        self.started: list[str] = []  # what was, in the order of the host

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in STARTED or threading.current_thread() is super().__getattribute__("_work").thread:
            return found
        return lambda *arguments: self._start(name, lambda: found(*arguments))

    def _start(self, name: str, work: Callable[[], Any]) -> None:
        self.started.append(name)
        self.enqueue(work)

    def begin_beside(self) -> None:
        event = threading.Event()
        self.enqueue(event.set)
        self.beside.enqueue(event.wait)

    def mark_beside(self) -> threading.Event:
        self.started.append("beside")
        event = threading.Event()
        self.beside.enqueue(event.set)
        return event

    def follow_beside(self, event: threading.Event) -> None:
        self._start("follow", event.wait)

    def is_idle(self) -> bool:
        return self._work.is_empty

    def _drain(self) -> None:
        self._work.drain()
        if self.beside.error is not None:
            raise AssertionError("the GPU has failed") from self.beside.error

    def synchronize(self) -> None:
        wait_for_others(self)
        self._drain()
        super().synchronize()

    def free(self, address: int) -> None:
        self._drain()
        super().free(address)

    def copy_in(self, address: int, value: np.ndarray) -> None:
        copied = value.copy()
        self.enqueue(lambda: SimulatedDriver.copy_in(self, address, copied))

    def copy_out(self, value: np.ndarray, address: int) -> None:
        wait_for_others(self)
        self._drain()
        super().copy_out(value, address)


def install(count: int, sees: Sequence[int] | None = None) -> tuple[dict[int, QueuedDriver], NcclStandIn]:
    """Have this process be on a host with so many GPUs, of which it sees some. Returns the drivers of those that it
    comes to use, and the stand-in for NCCL."""
    names = [f"{i:032x}" for i in (range(count) if sees is None else sees)]
    drivers: dict[int, QueuedDriver] = {}
    stand_in = NcclStandIn(Network())
    library = Nccl(lambda name: stand_in)

    def driver_of(index: int) -> QueuedDriver:
        return drivers.setdefault(index, QueuedDriver(index))

    sys.setswitchinterval(2e-4)  # threads are handed over to more often than the interpreter does it by itself
    replaced: Any = driver
    replaced.count, replaced.get_uuid = lambda: len(names), names.__getitem__
    replaced.get_name = lambda index: "simulated"
    memory_backends.loaded["gpu"] = CudaMemoryBackend(driver_of)
    communicators.nccl = lambda: library  # type: ignore[assignment]
    return drivers, stand_in
