"""Transports: how processes send bytes to each other.

A transport is small: who is here, messages of known sizes between two processes, and an end. All that processes do
together is built on it once, in `world`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from weft.base.errors import InternalError


@dataclass(frozen=True)
class Message:
    """Bytes for a process, or from one: they match by tag, and of equal tags in the order in which they are started.
    The buffer stays as it is until the request has ended."""

    peer: int
    tag: int
    buffer: np.ndarray  # of uint8


class Request(Protocol):
    """Messages under way."""

    def test(self) -> bool:
        """Whether all of them have ended: what was sent may be overwritten, what was received is there. Asking makes
        them progress."""
        ...


class TransportError(RuntimeError):
    """A transport could not deliver a message."""


class Transport(Protocol):
    """What carries messages between processes: MPI, NCCL, or nothing for one process."""

    name: str  # with its version: processes must agree on it
    rank: int
    size: int
    tags: int  # tags are below

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        """Start to send and receive; returns at once."""
        ...

    def close(self) -> None:
        """Free what the transport has; all processes do so together."""
        ...


class OneProcess:
    """The transport of a process that is alone."""

    name = "one process"
    rank = 0
    size = 1
    tags = 1

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        raise InternalError("A process that is alone was to send a message.", stage="run")

    def close(self) -> None:
        """There is nothing to free."""
