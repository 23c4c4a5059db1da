"""The processes that run one program together: waits, an all-gather of bytes, and the order of common sections."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from weft.base.errors import JaxRuntimeError, ProcessFailureError, ProgramMismatchError
from weft.runtime.processes.page import Details, Page
from weft.runtime.processes.transport import Message, OneProcess, Request, Transport, TransportError
from weft.sharding import device as sharding_device

if TYPE_CHECKING:
    from weft.runtime.processes.control import Control
    from weft.runtime.processes.order import Order

# Tags of messages that gather bytes, and that compare an order; the tags of programs are above.
LENGTH, BYTES, ORDER, FIRST_DATA = 1, 2, 3, 16
# A wait polls `SPINS` times at once, then every 50 microseconds, and after `IMPATIENT` seconds every millisecond.
SPINS, IMPATIENT = 2000, 0.2
# Seconds that the control thread has to find the reason when a message fails.
DIAGNOSIS = 3.0


class World:
    """The processes, their transport and their control thread."""

    def __init__(self, transport: Transport, control: Control | None = None) -> None:
        self.transport = transport
        self.control = control
        self.rank, self.size = transport.rank, transport.size
        # Processes enter common sections in one order, so one thread at a time.
        self.lock = threading.RLock()
        self.page = control.page if control is not None else Page(transport.rank)
        self._chain = 0
        self.ends: list[Callable[[], None]] = []  # functions that wait for the work of this process before it ends
        self.orders: dict[tuple[int, ...], Order] = {}  # by the ranks of processes with asynchronous work
        self.deadline: float | None = None  # deadline for all to join, by the monotonic clock
        self.check_joining: Callable[[], object] = bool  # raises if another process fails while they join

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(
        self, request: Request, peers: Sequence[int], doing: str | Callable[[], str], started: bool = False
    ) -> None:
        """Wait for a request; raise if a failure becomes known.

        `started`: once started, it makes progress in all processes without them, as work of GPUs does.
        """
        self.wait_any([request], peers, doing, started)

    @property
    def doing(self) -> str:
        """Current or last section of this process, for messages."""
        return self.page.doing

    def wait_any(
        self,
        requests: Sequence[Request],
        peers: Sequence[int],
        doing: str | Callable[[], str],
        started: bool = False,
    ) -> int:
        """Wait for any of several requests, and return its index. `doing` names the section in messages."""
        try:
            for i, request in enumerate(requests):
                if request.test():
                    return i
            with self.page.waiting(peers, doing if isinstance(doing, str) else doing(), started):
                return self._poll(requests)
        except TransportError as error:
            lost = error
        self.raise_lost(lost, doing if isinstance(doing, str) else doing())

    def raise_lost(self, error: TransportError, doing: str) -> NoReturn:
        """Raise the error for a failed transport: its reason if that becomes known, or else that messages were lost."""
        self._diagnose(str(error), doing, error.lost)
        if error.lost is not None:
            who = f"Processes {list(error.lost)}" if error.lost else "Some processes"
            raise ProcessFailureError(f"{who} have died, in {doing}: {error}.", failed_processes=error.lost) from None
        if error.fix is not None:
            raise JaxRuntimeError(f"Devices of several processes cannot do {doing}: {error}.", fix=error.fix) from None
        raise ProgramMismatchError(
            f"Messages between processes do not fit or were lost, in {doing}: {error}.",
            fix="let all processes call the same functions in the same order, with arguments of the same types",
        ) from None

    def _poll(self, requests: Sequence[Request]) -> int:
        spins, start = 0, time.monotonic()
        while True:
            for i, request in enumerate(requests):
                if request.test():
                    return i
            self.raise_failure()
            if self.deadline is not None and time.monotonic() > self.deadline:
                wait = self.page.wait
                missing = f" of processes {list(wait[0])}, in {wait[1]}" if wait else ""
                raise ProcessFailureError(
                    f"All processes must join in time; there is no answer{missing}.",
                    failed_processes=wait[0] if wait else (),
                    fix="weft.distributed.initialize(initialization_timeout=seconds), called by all processes",
                )
            spins += 1
            if spins < SPINS:
                os.sched_yield()
            else:
                time.sleep(0.00005 if time.monotonic() - start < IMPATIENT else 0.001)

    def raise_failure(self) -> None:
        """Raise if a process is known to have died or diverged."""
        if self.control is not None and self.control.verdict is not None:
            self.control.verdict.raise_()
        self.check_joining()

    def _diagnose(self, error: str, doing: str, lost: Sequence[int] | None) -> None:
        """Give the control thread time to find out why a message failed; less if the transport knows it."""
        if self.control is not None:
            with self.page.waiting([p for p in range(self.size) if p != self.rank], f"{doing} ({error})"):
                self.control.settle(DIAGNOSIS if lost is None else DIAGNOSIS / 6)
        self.raise_failure()

    # -- all-gather ------------------------------------------------------------------------------------------------

    def all_gather(self, data: bytes, ranks: Sequence[int] | None = None, doing: str = "all_gather") -> list[bytes]:
        """Gather the bytes of each process, in the order of `ranks` (default: all), by a binary tree to the first
        process and back."""
        members = list(range(self.size) if ranks is None else ranks)
        own, count = members.index(self.rank), len(members)
        with self.lock:
            collected = {own: data}
            step = 1
            while step < count and not own & step:
                if own + step < count:
                    collected.update(_unpack(self._receive(members[own + step], doing)))
                step *= 2
            if own:
                self._send(members[own - step], _pack(collected), doing)
                collected = _unpack(self._receive(members[own - step], doing))
            everything = _pack(collected)
            while step > 1:
                step //= 2
                if own + step < count:
                    self._send(members[own + step], everything, doing)
        return [collected[i] for i in range(count)]

    def _send(self, peer: int, data: bytes, doing: str) -> None:
        length, content = np.array([len(data)], np.int64), np.frombuffer(data, np.uint8)
        sends = [Message(peer, LENGTH, length.ctypes.data, length.nbytes)]
        if data:
            sends.append(Message(peer, BYTES, content.ctypes.data, content.nbytes))
        self.wait(self.transport.start(sends, []), [peer], doing)

    def _receive(self, peer: int, doing: str) -> bytes:
        length = np.zeros(1, np.int64)
        self.wait(self.transport.start([], [Message(peer, LENGTH, length.ctypes.data, length.nbytes)]), [peer], doing)
        data = np.empty(int(length[0]), np.uint8)
        if data.size:
            self.wait(self.transport.start([], [Message(peer, BYTES, data.ctypes.data, data.nbytes)]), [peer], doing)
        return data.tobytes()

    # -- order -----------------------------------------------------------------------------------------------------

    def record(
        self, ranks: Sequence[int], what: str, digest: str, line: str | None, details: Details | None = None
    ) -> str:
        """Record that these processes enter a section with this digest; return the digest of all their sections.

        The control thread compares it with the records of the others.
        """
        chain = self.page.record(tuple(ranks), what, digest, line, details)
        self._chain = int(chain[:15], 16)
        return chain

    def data_tag(self, index: int) -> int:
        """Return the tag for messages of the current call.

        Tags of other calls, or of another order of calls, differ, so that processes that have diverged wait instead of
        receiving each other's data.
        """
        return FIRST_DATA + (self._chain + index) % (self.transport.tags - FIRST_DATA)


def _pack(collected: dict[int, bytes]) -> bytes:
    return b"".join(struct.pack("<qq", i, len(data)) + data for i, data in collected.items())


def _unpack(data: bytes) -> dict[int, bytes]:
    collected, at = {}, 0
    while at < len(data):
        i, length = struct.unpack_from("<qq", data, at)
        at += 16
        collected[i] = data[at : at + length]
        at += length
    return collected


def digest_text(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_world = World(OneProcess())


def current() -> World:
    """Return the processes that this one belongs to: only itself until `weft.distributed.initialize`."""
    return _world


def enter(world: World) -> None:
    """Make this process one of several from now on."""
    global _world
    _world = world
    sharding_device.set_process_index(world.rank)


@contextlib.contextmanager
def together(
    ranks: Sequence[int] | None, what: str, digest: str = "", line: str | None = None, world: World | None = None
) -> Iterator[World]:
    """Enter a section that these processes (default: all) execute together, in the same order as other sections."""
    world = world or current()
    with world.lock:
        world.raise_failure()
        if world.size > 1:
            world.record(tuple(range(world.size)) if ranks is None else ranks, what, digest or digest_text(what), line)
        world.page.sections += 1
        try:
            yield world
        finally:
            world.page.sections -= 1
