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
from weft.runtime import backend
from weft.runtime.cuda import communicators, driver
from weft.runtime.cuda.backend import CudaBackend
from weft.runtime.cuda.libraries.nccl import Nccl
from weft.runtime.cuda.unfinished import wait_for_others

# What is started and not waited for.
STARTED = ("copy", "copy_rows", "fill", "set_word", "launch", "call", "start", "collective", "copy_in_stream")


class QueuedDriver(SimulatedDriver):
    """A simulated GPU whose work is done by a thread."""

    def __init__(self, index: int = 0) -> None:
        self._queue: deque[Callable[[], Any]] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        super().__init__(index)
        self._worker = threading.Thread(target=self._work, name=f"GPU {index}", daemon=True)
        self._worker.start()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in STARTED or threading.current_thread() is super().__getattribute__("_worker"):
            return found
        return lambda *arguments: self.enqueue(lambda: found(*arguments))

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
                self._error = self._error or error
            with self._changed:
                self._queue.popleft()
                self._changed.notify_all()

    def is_idle(self) -> bool:
        return not self._queue

    def _drain(self) -> None:
        """As the driver waits: nothing ends it but the end of the work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue)
        if self._error is not None:
            raise AssertionError("the GPU has failed") from self._error

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
    replaced.count, replaced.hardware_of = lambda: len(names), names.__getitem__
    replaced.name_of = lambda index: "simulated"
    backend._loaded["gpu"] = CudaBackend(driver_of)
    communicators.nccl = lambda: library  # type: ignore[assignment]
    return drivers, stand_in
