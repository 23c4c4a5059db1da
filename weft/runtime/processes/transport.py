"""Transports: how processes send bytes to each other.

A transport is small: rank and size, messages of known sizes between two processes, and an end. Everything else is built
on it once, in `world` and in the exchange of a backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.base.errors import InternalError

# Messages of at most this many bytes are copied: that is faster than sharing their location and counting reads.
SMALL = 448


class SharedChunk(Protocol):
    """Memory that processes of this host read in place. It is reused when all receivers have read it."""

    address: int


class Message(NamedTuple):
    """Bytes to or from a process. Messages match by tag, and those of equal tags in the order in which they are
    started.

    The memory at the address must not change until the request has ended. `chunk` is the shared memory that contains
    it, if any. A message that is received without an `address` from a near process is borrowed: it is read in the
    memory of that process, unless it is small.
    """

    peer: int
    tag: int
    address: int | None
    nbytes: int
    chunk: SharedChunk | None = None


class Request(Protocol):
    """Pending messages."""

    def test(self) -> bool:
        """Make progress, and return whether all messages have ended.

        Then memory that was sent may be overwritten, and memory that was received is there.
        """
        ...

    def borrowed_addresses(self) -> Sequence[int]:
        """Return the addresses of borrowed messages, in order, once they have ended."""
        ...

    def release(self) -> None:
        """Declare borrowed messages and sent chunks as read: their owners may overwrite them."""
        ...


class TransportError(RuntimeError):
    """Failure of a transport to deliver a message. `lost` has the processes that have died, as far as they are known,
    and is None if none has. `fix` is the remedy for an error that a library reports."""

    def __init__(self, what: str, lost: Sequence[int] | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.lost = None if lost is None else tuple(lost)
        self.fix = fix


class Transport(Protocol):
    """Carrier of messages between processes: MPI, shared memory, or nothing for one process."""

    name: str  # with the version: it must be the same in all processes
    rank: int
    size: int
    tags: int  # exclusive bound of tags
    near: frozenset[int]  # processes whose messages can be borrowed

    def take(self, nbytes: int) -> SharedChunk:
        """Allocate memory for messages to near processes, which need not be copied then."""
        ...

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        """Start to send and receive; return at once."""
        ...

    def shrink(self, seconds: float) -> Transport:
        """Return a transport for the surviving processes, which call it together and wait for each other this long.

        Raise TransportError if the transport cannot go on.
        """
        ...

    def close(self) -> None:
        """Free the resources of the transport; all processes call it together."""
        ...


class Messages:
    """Base of transports without shared memory."""

    near: frozenset[int] = frozenset()

    def take(self, nbytes: int) -> SharedChunk:
        raise InternalError("This transport has no shared memory.", stage="run")

    def shrink(self, seconds: float) -> Transport:
        raise TransportError("there are no other processes")


class NothingBorrowed:
    """Base of requests that only receive at addresses; by itself, a request without messages."""

    def test(self) -> bool:
        return True

    def borrowed_addresses(self) -> Sequence[int]:
        return ()

    def release(self) -> None:
        """Do nothing: no message is borrowed."""


class OneProcess(Messages):
    """Transport of a single process."""

    name = "one process"
    rank = 0
    size = 1
    tags = 1

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        if sends or receives:
            raise InternalError("A process without others cannot send a message.", stage="run")
        return NothingBorrowed()

    def close(self) -> None:
        """Do nothing: there are no resources."""
