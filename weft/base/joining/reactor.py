"""Sockets and pipes that one thread watches, with a function for what arrives at each."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable

from weft.base.joining.wire import MOST_LINE


class Reactor:
    """Selector that calls a function when a file is ready."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, file: int, ready: Callable[[], None], events: int = selectors.EVENT_READ) -> None:
        """Call `ready` when the file can be read, or written as `events` says; 0 stops watching it."""
        if not events:
            return self.forget(file)
        try:
            self._selector.modify(file, events, ready)
        except KeyError:
            self._selector.register(file, events, ready)

    def forget(self, file: int) -> None:
        """Stop watching a file."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def step(self, seconds: float) -> None:
        """Wait this long for a file to be ready, and call the functions of those that are."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def close(self) -> None:
        """Close the selector; files stay open."""
        self._selector.close()


class Link:
    """Connection whose lines are passed to `on_line`, without their ends, and whose end calls `on_end` once.

    Both may be replaced. What is sent never blocks: it waits in memory until the peer reads. The connection is a
    socket, or two open files for reading and writing; they are closed with the link.
    """

    def __init__(self, reactor: Reactor, source: socket.socket | int, target: int | None = None) -> None:
        self.on_line: Callable[[bytes], None] = lambda line: None
        self.on_end: Callable[[], None] = lambda: None
        self.is_open = True
        self._reactor = reactor
        self._source = source if isinstance(source, int) else source.detach()
        self._target = self._source if target is None else target
        self._read, self._unsent, self._closes_when_sent = b"", b"", False
        for file in {self._source, self._target}:
            os.set_blocking(file, False)
        reactor.watch(self._source, self._receive)

    def send(self, data: bytes) -> None:
        """Send bytes, now or when the peer reads."""
        if self.is_open:
            self._unsent += data
            self._flush()

    def close_when_sent(self) -> None:
        """Close the connection when the peer has read everything, without calling `on_end`."""
        self._closes_when_sent = True
        self.on_line = lambda line: None
        if self.is_open:
            self._flush()

    def close(self) -> None:
        """Close the connection without calling `on_end`."""
        if self.is_open:
            self.is_open = False
            for file in {self._source, self._target}:
                self._reactor.forget(file)
                os.close(file)

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._target, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # the end is found by reading
        if self._closes_when_sent and not self._unsent:
            return self.close()
        writes = selectors.EVENT_WRITE if self._unsent else 0
        if self._source == self._target:
            self._reactor.watch(self._source, self._handle, selectors.EVENT_READ | writes)
        else:
            self._reactor.watch(self._target, self._flush, writes)

    def _handle(self) -> None:
        if self._unsent:
            self._flush()
        if self.is_open:
            self._receive()

    def _receive(self) -> None:
        try:
            data = os.read(self._source, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            if self.is_open:
                self.on_line(line)
        if self.is_open and (not data or len(self._read) > MOST_LINE):
            self.close()
            self.on_end()


class Pipe:
    """Pipe whose bytes are passed to a function; an empty one is its end."""

    def __init__(self, reactor: Reactor, file: int, receive: Callable[[bytes], None]) -> None:
        self._reactor, self._file, self._receive = reactor, file, receive
        self.is_open = True
        os.set_blocking(file, False)
        reactor.watch(file, self._handle)

    def drain(self) -> None:
        """Receive what is in the pipe now, without waiting, and close it."""
        while self.is_open and self._read():
            pass
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        if self.is_open:
            self.is_open = False
            self._reactor.forget(self._file)
            os.close(self._file)
            self._receive(b"")

    def _handle(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Receive a piece; return whether there was one."""
        try:
            data = os.read(self._file, 1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._receive(data)
        else:
            self.close()
        return bool(data)
