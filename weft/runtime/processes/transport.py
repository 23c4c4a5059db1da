"""Transports: how processes send bytes to each other.

A transport is small: who is here, messages of known sizes between two processes, and an end. All that processes do
together is built on it once, in `world` and in the exchange of a backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.base.errors import InternalError

# Messages of at most so many bytes are copied: that takes less than to say where they are and when they were read.
SMALL = 448


class SharedChunk(Protocol):
    """Memory that processes of this host read where it is. It is used again when all who were sent it have read it."""

    address: int


class Message(NamedTuple):
    """Bytes for a process, or from one: they match by tag, and of equal tags in the order in which they are started.
    The memory at the address stays as it is until the request has ended. `chunk` is the shared memory that it is in, if
    it is. Where `address` is None, what a process that is near sends is borrowed: it is read where that process has it,
    unless it is small.
    """

    peer: int
    tag: int
    address: int | None
    nbytes: int
    chunk: SharedChunk | None = None


class Request(Protocol):
    """Messages under way."""

    def test(self) -> bool:
        """Whether all of them have ended: what was sent may be overwritten, what was received is there. Asking makes
        them progress."""
        ...

    def borrowed(self) -> Sequence[int]:
        """The addresses of what is borrowed, in order, once they have ended."""
        ...

    def release(self) -> None:
        """What is borrowed has been read, and so have the chunks that were sent: their owners may write there again."""
        ...


class TransportError(RuntimeError):
    """A transport could not deliver a message. `lost` says that processes have died, and which of them are known.
    `fix` is what to do about an error that a library reports."""

    def __init__(self, what: str, lost: Sequence[int] | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.lost = None if lost is None else tuple(lost)
        self.fix = fix


class Transport(Protocol):
    """What carries messages between processes: MPI, shared memory, or nothing for one process."""

    name: str  # with its version: processes must agree on it
    rank: int
    size: int
    tags: int  # tags are below
    near: frozenset[int]  # the processes whose messages can be borrowed

    def take(self, nbytes: int) -> SharedChunk:
        """Memory for what is sent to processes that are near, so that it need not be copied."""
        ...

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        """Start to send and receive; returns at once."""
        ...

    def shrunk(self, seconds: float) -> Transport:
        """A transport for the processes that are left when some have died: all of them ask for it together, and wait
        for each other for so long. A `TransportError` says why this transport cannot go on."""
        ...

    def close(self) -> None:
        """Free what the transport has; all processes do so together."""
        ...


class Messages:
    """What transports have in common that only send messages."""

    near: frozenset[int] = frozenset()

    def take(self, nbytes: int) -> SharedChunk:
        raise InternalError("This transport has no shared memory.", stage="run")

    def shrunk(self, seconds: float) -> Transport:
        raise TransportError("there are no other processes")


class NothingBorrowed:
    """What requests have in common that only receive at addresses; by itself, no messages at all."""

    def test(self) -> bool:
        return True

    def borrowed(self) -> Sequence[int]:
        return ()

    def release(self) -> None:
        """There is nothing to give back."""


class OneProcess(Messages):
    """The transport of a process that is alone."""

    name = "one process"
    rank = 0
    size = 1
    tags = 1

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        if sends or receives:
            raise InternalError("A process that is alone was to send a message.", stage="run")
        return NothingBorrowed()

    def close(self) -> None:
        """There is nothing to free."""
