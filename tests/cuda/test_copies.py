"""Copies through pinned rings on a machine whose streams run in any order that events allow, and not before somebody
waits: what is overwritten too early, or read before it is there, shows."""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

from weft.base.errors import OutOfMemoryError
from weft.runtime.cuda import copies
from weft.runtime.cuda.copies import Copies


class Event:
    """Which of its marks was asked for last, and which has happened."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.marked, self.happened = machine, 0, 0

    def synchronize(self) -> None:
        marked = self.marked
        self.machine.run_until(lambda: self.happened >= marked)


class Stream:
    """Work that waits to be run: what it waits for, and what it does."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.work: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()

    def start(self, action: Callable[[], None], ready: Callable[[], bool] = lambda: True) -> None:
        self.work.append((ready, action))

    def copy(self, target: int, source: int, size: int) -> None:
        self.start(lambda: ctypes.memmove(target, source, size))  # type: ignore[arg-type, return-value]

    copy_in = copy_out = copy

    def mark(self, event: Event) -> None:
        event.marked += 1
        count = event.marked
        self.start(lambda: setattr(event, "happened", count))

    def wait(self, event: Event) -> None:
        count = event.marked
        self.start(lambda: None, lambda: event.happened >= count)

    def synchronize(self) -> None:
        self.machine.run_until(lambda: not self.work)


class Machine:
    """Streams and memory."""

    def __init__(self, seed: int, room: int = 1 << 30) -> None:
        self.random, self.room = random.Random(seed), room
        self.memory: list[np.ndarray] = []
        self.streams: list[Stream] = []
        self.stream = self.new_stream()

    def new_stream(self) -> Stream:
        self.streams.append(Stream(self))
        return self.streams[-1]

    def event(self, timed: bool = True) -> Event:
        return Event(self)

    def allocate_pinned(self, size: int) -> int:
        self.memory.append(np.full(size, 0xFF, np.uint8))
        return int(self.memory[-1].ctypes.data)

    def allocate(self, size: int) -> int:
        self.room -= size
        if self.room < 0:
            raise OutOfMemoryError("There is no memory left on the GPU.")
        return self.allocate_pinned(size)

    def is_idle(self) -> bool:
        return not self.stream.work

    def run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            ready = [s for s in self.streams if s.work and s.work[0][0]()]
            assert ready, "nobody can go on"
            self.random.choice(ready).work.popleft()[1]()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 100 bytes, and small copies of 10."""
    sizes = {"SMALL": 10, "MEDIUM": 50, "DIRECT_SLOTS": 2, "CHUNK": 100, "SLOTS": 3, "STAGED": 2, "OF_ONE_THREAD": 30}
    for name, value in sizes.items():
        monkeypatch.setattr(copies, name, value)


def numbers(count: int, first: int) -> np.ndarray:
    return (np.arange(count) + first).astype(np.uint8)


@pytest.mark.parametrize("room", [1 << 20, 150, 0])
def test_copies_are_in_the_order_of_work(room: int) -> None:
    """Programs are simulated by copies in the stream of all work: they read what was copied before, and what they read
    is not overwritten before they did, although the host goes on."""
    for seed in range(20):
        machine = Machine(seed, room)
        moved = Copies(machine, lambda: None)  # type: ignore[arg-type]
        for size in (7, 40, 90, 100, 730):
            (memory, *results) = (machine.allocate_pinned(size) for _ in range(5))
            for i, result in enumerate(results):
                value = numbers(size, 50 * i)
                moved.copy_in(memory, value)
                value[:] = 0  # who has called it may change it
                machine.stream.copy(result, memory, size)
            for i, result in enumerate(results):
                found = np.zeros(size, np.uint8)
                moved.copy_out(found, result)
                np.testing.assert_array_equal(found, numbers(size, 50 * i))


def test_copies_to_the_host_do_not_wait_for_later_work() -> None:
    machine = Machine(0)
    moved = Copies(machine, lambda: None)  # type: ignore[arg-type]
    memory, found, held = machine.allocate_pinned(730), np.zeros(730, np.uint8), object()
    moved.copy_in(memory, numbers(730, 3))
    later = moved.copy_out_later(found, memory, held)
    machine.stream.start(lambda: None, lambda: False)  # a program that does not end
    assert later.result(10) is None
    np.testing.assert_array_equal(found, numbers(730, 3))


def test_several_small_copies_are_waited_for_once() -> None:
    machine = Machine(0)
    moved = Copies(machine, lambda: None)  # type: ignore[arg-type]
    memory, found = machine.allocate_pinned(8), [np.zeros(n, np.uint8) for n in (5, 3)]
    moved.copy_in(memory, numbers(8, 0))
    moved.copy_out_together([(found[0], memory), (found[1], memory + 5)])
    np.testing.assert_array_equal(np.concatenate(found), numbers(8, 0))


@pytest.mark.parametrize("size", [8, 40])
def test_small_copies_do_not_wait(size: int) -> None:
    machine = Machine(0)
    moved = Copies(machine, lambda: None)  # type: ignore[arg-type]
    memory = machine.allocate_pinned(size)
    machine.stream.start(lambda: None, lambda: False)  # a program that does not end
    moved.copy_in(memory, numbers(size, 0))
    assert len(machine.stream.work) == 3


def test_chunks_are_copied_beside_programs() -> None:
    """As many as there are slots on the GPU and of the host, which is not held up."""
    machine = Machine(0)
    moved = Copies(machine, lambda: None)  # type: ignore[arg-type]
    memory = machine.allocate_pinned(500)
    machine.stream.start(lambda: None, lambda: False)  # a program that does not end
    moved.copy_in(memory, numbers(500, 0))
    with pytest.raises(AssertionError, match="nobody can go on"):
        moved.copy_in(memory, numbers(100, 0))
