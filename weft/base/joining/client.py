"""A process that joins a job at the address of its coordinator."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from weft.base.errors import ArgumentError, ProcessFailureError
from weft.base.joining import wire
from weft.base.joining.coordinator import BEAT_SECONDS, Coordinator
from weft.base.joining.wire import Address, RefusedError

# Seconds between attempts to connect, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
# Seconds for an answer where another service may have taken the port, before the next one is tried.
OTHER_SERVICE_SECONDS = 2.0
# Seconds that a process gives the coordinator, beyond the deadline, to name the missing.
COURTESY = 2.0


class Place(NamedTuple):
    """Index of a process in a job, and how it finds the others.

    `addresses` are tried in turn, since a port that was not chosen by hand may be in use.
    """

    addresses: tuple[Address, ...]
    size: int
    rank: int
    token: str = ""
    bind: Address | None = None  # where process 0 listens, by default at all addresses of its host
    has_coordinator: bool = False  # whether the launcher is the coordinator, instead of process 0


class Joining:
    """Connection to the coordinator while processes join; it ends with `finish`."""

    def __init__(self, place: Place, where: str, seconds: float) -> None:
        self.place = place
        self.failure: tuple[str, tuple[int, ...]] | None = None
        self.coordinator: Coordinator | None = None  # that of process 0, if it is this one
        self.deadline = time.monotonic() + seconds
        self._where, self._seconds = where, seconds
        self._go = threading.Event()
        self._finished = False
        if place.rank == 0 and not place.has_coordinator:
            self.coordinator = _serve(place)
        self._address, self._connection = self._connect()
        threading.Thread(target=self._listen, name="weft joining", daemon=True).start()
        threading.Thread(target=self._beat, name="weft beat", daemon=True).start()

    @property
    def own_address(self) -> str:
        """Address of this host that the coordinator sees, which other hosts reach too."""
        return str(self._connection.getsockname()[0])

    def wait_for_all(self) -> None:
        """Wait until all processes are here; raise ProcessFailureError with those that are not."""
        while not self._go.wait(0.05):
            self.check()
        self.check()

    def check(self) -> None:
        """Raise ProcessFailureError if joining has failed."""
        if self.failure is None and time.monotonic() > self.deadline + COURTESY:
            self.failure = f"The coordinator at {self._address} does not answer any more.", (0,)
        if self.failure is not None:
            raise ProcessFailureError(
                self.failure[0],
                failed_processes=self.failure[1],
                fix=(
                    "look for the error of those processes: each must call weft.distributed.initialize",
                    "weft.distributed.initialize(initialization_timeout=seconds)   to wait longer",
                ),
            )

    def open_pmi(self) -> int:
        """Open a connection for PMI; return its file, which MPI closes."""
        connection = wire.connect(self._address, self.place.token, self._hello("pmi"), wire.HANDSHAKE_SECONDS)
        return connection.detach()

    def finish(self) -> None:
        """Declare that this process has joined; it is not watched any more."""
        self._finished = True
        with contextlib.suppress(OSError):
            self._connection.sendall(wire.encode({"joined": True}))
        self._hang_up()

    def close(self) -> None:
        """Leave, and end the coordinator if it is here: joining has failed."""
        self._finished = True
        self._hang_up()
        if self.coordinator is not None:
            self.coordinator.dismiss_all()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        self._connection.close()

    # -- connection ------------------------------------------------------------------------------------------------

    def _hello(self, role: str) -> dict[str, object]:
        left = max(self.deadline - time.monotonic(), 0.0)
        place = {
            "role": role,
            "rank": self.place.rank,
            "size": self.place.size,
            "seconds": left,
            "limit": self._seconds,
        }
        return {**place, "where": self._where, "host": wire.host_identity()}

    def _connect(self) -> tuple[Address, socket.socket]:
        """Connect to the first address where the coordinator answers, before the deadline."""
        pause, reason = FIRST_PAUSE, "it was not tried"
        while True:
            for address in self._candidates():
                limit = wire.HANDSHAKE_SECONDS if len(self.place.addresses) == 1 else OTHER_SERVICE_SECONDS
                limit = min(max(self.deadline - time.monotonic(), 0.1), limit)
                try:
                    return address, wire.connect(address, self.place.token, self._hello("process"), limit)
                except RefusedError as error:
                    if len(self.place.addresses) == 1:
                        raise ArgumentError(str(error), received=f"coordinator_address={str(address)!r}") from None
                    reason = f"{address}: {error}"
                except (OSError, ValueError) as error:
                    reason = f"{address}: {error or type(error).__name__}"
            if time.monotonic() + pause > self.deadline:
                raise ProcessFailureError(
                    f"Process 0, the coordinator, did not answer within {self._seconds:.0f} s.",
                    received=reason,
                    failed_processes=(0,),
                    fix="let process 0 call weft.distributed.initialize with this address, which all hosts can reach",
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _candidates(self) -> Sequence[Address]:
        if self.coordinator is not None:
            return (self._local_address(self.coordinator),)
        return self.place.addresses

    def _local_address(self, coordinator: Coordinator) -> Address:
        """Return the address at which this process reaches its own coordinator: by preference that of the others."""
        port = coordinator.port
        bound = self.place.bind.host if self.place.bind is not None else ""
        if bound not in ("", "::", "0.0.0.0"):
            return Address(bound, port)
        host = next((a.host for a in self.place.addresses if a.port == port), "localhost")
        try:
            socket.getaddrinfo(host, port)
            return Address(host, port)
        except OSError:
            return Address("localhost", port)

    def _listen(self) -> None:
        data = b""
        while not self._finished:
            try:
                received = self._connection.recv(1 << 16)
            except OSError:
                received = b""
            if not received:
                if not self._finished and self.failure is None:
                    self.failure = (
                        f"The coordinator at {self._address} has ended before all processes had joined.",
                        (0,),
                    )
                    self._go.set()
                return
            *lines, data = (data + received).split(b"\n")
            for line in lines:
                message = wire.decode(line)
                if "failure" in message and self.failure is None:
                    self.failure = message["failure"][0], tuple(message["failure"][1])
                if message.keys() & {"failure", "go"}:
                    self._go.set()

    def _beat(self) -> None:
        with contextlib.suppress(OSError):
            while not self._finished and self.failure is None:
                self._connection.sendall(wire.encode({"beat": True}))
                time.sleep(BEAT_SECONDS)


def _serve(place: Place) -> Coordinator:
    """Start the coordinator in this process, at the first port that is free."""
    refused = []
    for address in place.addresses:
        bind = place.bind or Address("", address.port)
        try:
            listener = wire.listen(bind.host, bind.port or address.port)
        except OSError as error:
            refused.append(
                f"{bind.host or 'all addresses'}, port {bind.port or address.port}: {error.strerror or error}"
            )
            continue
        coordinator = Coordinator(listener, place.size, place.token)
        coordinator.serve()
        return coordinator
    raise ArgumentError(
        "Process 0 must be able to listen at the port of coordinator_address.",
        received="; ".join(refused),
        fix="coordinator_address='host:port' with a free port, or coordinator_bind_address for one interface",
    )
