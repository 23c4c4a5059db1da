"""The processes that run one program together, as one of them sees it: waiting for the others, gathering bytes of all,
and the order of what they do together."""

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
from weft.runtime.processes.page import Page
from weft.runtime.processes.transport import Message, OneProcess, Request, Transport, TransportError
from weft.sharding import device as sharding_device

if TYPE_CHECKING:
    from weft.runtime.processes.control import Control
    from weft.runtime.processes.order import Order

# Tags of messages that gather bytes, and of those that compare an order; those of programs are above.
LENGTH, BYTES, ORDER, FIRST_DATA = 1, 2, 3, 16
# A wait asks again at once so many times, then every 50 microseconds, and after so many seconds every millisecond.
SPINS, IMPATIENT = 2000, 0.2
# How long the others are asked what is wrong when a message fails.
DIAGNOSIS = 3.0


class World:
    """The processes, with what carries their messages and what watches over them."""

    def __init__(self, transport: Transport, control: Control | None = None) -> None:
        self.transport = transport
        self.control = control
        self.rank, self.size = transport.rank, transport.size
        # What processes do together they do in one order, so one thread at a time.
        self.lock = threading.RLock()
        self.page = control.page if control is not None else Page(transport.rank)
        self._chain = 0
        self.ends: list[Callable[[], None]] = []  # what waits for work of this process before it ends
        self.orders: dict[tuple[int, ...], Order] = {}  # of processes whose work goes on by itself
        self.deadline: float | None = None  # until when all must be here, by the monotonic clock

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(
        self, request: Request, peers: Sequence[int], doing: str | Callable[[], str], started: bool = False
    ) -> None:
        """Return when a request has ended. Raises what is known to have failed meanwhile. `started` says that it goes
        on by itself in all processes that have started it."""
        self.wait_any([request], peers, doing, started)

    @property
    def doing(self) -> str:
        """What this process does with others, or did last."""
        return self.page.doing

    def wait_any(
        self,
        requests: Sequence[Request],
        peers: Sequence[int],
        doing: str | Callable[[], str],
        started: bool = False,
    ) -> int:
        """The index of a request that has ended, which is waited for. `doing` says in what, if it has to be said."""
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
        """Raise what is known of the reason for which a transport has failed, or that messages were lost."""
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
                raise ProcessFailureError(
                    "Not all processes were there in time.",
                    fix="weft.distributed.initialize(initialization_timeout=seconds), called by all processes",
                )
            spins += 1
            if spins < SPINS:
                os.sched_yield()
            else:
                time.sleep(0.00005 if time.monotonic() - start < IMPATIENT else 0.001)

    def raise_failure(self) -> None:
        """Raise if it is known that a process has died or does something else."""
        if self.control is not None and self.control.verdict is not None:
            self.control.verdict.raise_()

    def _diagnose(self, error: str, doing: str, lost: Sequence[int] | None) -> None:
        """Give the control thread time to find out why a message failed; less where the transport knows it."""
        if self.control is not None:
            with self.page.waiting([p for p in range(self.size) if p != self.rank], f"{doing} ({error})"):
                self.control.settle(DIAGNOSIS if lost is None else DIAGNOSIS / 6)
        self.raise_failure()

    # -- bytes of all ----------------------------------------------------------------------------------------------

    def all_gather(self, data: bytes, ranks: Sequence[int] | None = None, doing: str = "all_gather") -> list[bytes]:
        """What each process passes, in the order of `ranks`, by default all of them. It goes up a binary tree to the
        first process, and back."""
        members = list(range(self.size) if ranks is None else ranks)
        own, count = members.index(self.rank), len(members)
        with self.lock:
            collected = {own: data}
            step = 1
            while step < count and not own & step:
                if own + step < count:
                    collected.update(_unpacked(self._receive(members[own + step], doing)))
                step *= 2
            if own:
                self._send(members[own - step], _packed(collected), doing)
                collected = _unpacked(self._receive(members[own - step], doing))
            everything = _packed(collected)
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

    def record(self, ranks: Sequence[int], what: str, digest: str, line: str | None) -> str:
        """Note that these processes now do something together, identified by a digest; returns the digest of all that
        they have done. The control thread compares it with what the others have noted."""
        chain = self.page.record(tuple(ranks), what, digest, line)
        self._chain = int(chain[:15], 16)
        return chain

    def data_tag(self, index: int) -> int:
        """The tag of messages of the present call: those of another call, or of another order of calls, do not match,
        so that processes which do different things wait instead of taking each other's data."""
        return FIRST_DATA + (self._chain + index) % (self.transport.tags - FIRST_DATA)


def _packed(collected: dict[int, bytes]) -> bytes:
    return b"".join(struct.pack("<qq", i, len(data)) + data for i, data in collected.items())


def _unpacked(data: bytes) -> dict[int, bytes]:
    collected, at = {}, 0
    while at < len(data):
        i, length = struct.unpack_from("<qq", data, at)
        at += 16
        collected[i] = data[at : at + length]
        at += length
    return collected


def digest_of(text: str) -> str:
    """A short digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_world = World(OneProcess())


def current() -> World:
    """The processes that this one belongs to; it is alone until `weft.distributed.initialize`."""
    return _world


def enter(world: World) -> None:
    """Be one of several processes from now on."""
    global _world
    _world = world
    sharding_device.set_process_index(world.rank)


@contextlib.contextmanager
def together(
    ranks: Sequence[int] | None, what: str, digest: str = "", line: str | None = None, world: World | None = None
) -> Iterator[World]:
    """A section that these processes (default: all) go through together, in the same order as other such sections."""
    world = world or current()
    with world.lock:
        world.raise_failure()
        if world.size > 1:
            world.record(tuple(range(world.size)) if ranks is None else ranks, what, digest or digest_of(what), line)
        world.page.sections += 1
        try:
            yield world
        finally:
            world.page.sections -= 1
