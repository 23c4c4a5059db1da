"""Memory that the processes of a host share: each has one segment, which the others map.

A segment is an anonymous file in memory, as large as the host's memory and empty: pages are there once they are used.
So it grows without telling anybody, is limited by nothing but memory (`/dev/shm` has 64 MB in many containers), and is
gone when the processes are, however they end.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.runtime.memory import out_of_memory

PAGE = 4096
LINE = 64  # bytes of a cache line
WORD = 8
# The first page has a token, by which a process knows that it has mapped the segment that it was told of.
TOKEN_BYTES = 16
# Free chunks keep their pages up to so many bytes.
MOST_POOLED = 1 << 28


class Segment:
    """A mapped segment; `words` are its 64-bit integers."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.map = mmap.mmap(descriptor, size)
        self.words = memoryview(self.map).cast("q")
        self.address: int = np.frombuffer(self.map, np.uint8).__array_interface__["data"][0]


class OwnSegment(Segment):
    """The segment of this process, `reserved` bytes of which are its caller's; chunks come from the rest of it."""

    def __init__(self, reserved: int, readers: int) -> None:
        self._descriptor = os.memfd_create("weft")
        self._size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        os.ftruncate(self._descriptor, self._size)
        super().__init__(self._descriptor, self._size)
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.map[:TOKEN_BYTES] = self.token
        self._head = _rounded_up(readers * WORD, LINE)
        self._end = _rounded_up(PAGE + reserved, PAGE)
        self._free: dict[int, list[Chunk]] = {}
        self._pooled = 0
        self._unread: deque[Chunk] = deque()
        self.unread_bytes = 0

    def described(self) -> list[Any]:
        """How another process of the host finds it."""
        return [os.getpid(), self._descriptor, self._size, self.token.hex()]

    def take(self, nbytes: int) -> Chunk:
        """A chunk that nobody reads, with room for so many bytes."""
        self.reclaim()
        pages = 1 << max(nbytes + self._head - 1, 1).bit_length()
        pages = max(pages, PAGE)
        if pages > PAGE and nbytes + self._head <= pages // 4 * 3:
            pages = pages // 4 * 3  # two classes an octave
        free = self._free.get(pages)
        if free:
            chunk = free.pop()
            if chunk.is_populated:
                self._pooled -= pages
        else:
            chunk = Chunk(self, self._end, pages, self._head)
            self._end = _rounded_up(self._end + pages, PAGE)
        if not chunk.is_populated:
            try:
                # Without it, memory that is not there would be a signal where it is first written.
                os.posix_fallocate(self._descriptor, chunk.offset, pages)
            except OSError:
                raise out_of_memory("what processes send each other", nbytes) from None
            chunk.is_populated = True
        return chunk

    def give(self, chunk: Chunk) -> None:
        """Have a chunk back when all who are sent it have read it."""
        self._unread.append(chunk)
        self.unread_bytes += chunk.pages

    def reclaim(self) -> None:
        """Free the chunks that have been read."""
        for _ in range(len(self._unread)):
            chunk = self._unread.popleft()
            if not chunk.is_read():
                self._unread.append(chunk)
                continue
            self.unread_bytes -= chunk.pages
            if self._pooled + chunk.pages > MOST_POOLED:
                first = _rounded_up(chunk.offset, mmap.PAGESIZE)
                self.map.madvise(mmap.MADV_REMOVE, first, (chunk.offset + chunk.pages - first) & -mmap.PAGESIZE)
                chunk.forget()
            else:
                self._pooled += chunk.pages
            self._free.setdefault(chunk.pages, []).append(chunk)


class Chunk:
    """A part of a segment. It begins with a word for each process of the host: how many messages in it that process has
    read, ever."""

    __slots__ = ("_segment", "_sent", "address", "data", "is_populated", "offset", "pages")

    def __init__(self, segment: OwnSegment, offset: int, pages: int, head: int) -> None:
        self._segment, self.offset, self.pages = segment, offset, pages
        self.data = offset + head
        self.address = segment.address + self.data
        self.is_populated = False
        self._sent: dict[int, int] = {}

    def sent_to(self, reader: int) -> None:
        """Note that a reader, by its index among those of the host, is sent a message in this chunk."""
        self._sent[reader] = self._sent.get(reader, 0) + 1

    def is_read(self) -> bool:
        """Whether all messages in it have been read."""
        words, first = self._segment.words, self.offset // WORD
        return all(words[first + reader] == count for reader, count in self._sent.items())

    def forget(self) -> None:
        """Its pages are gone, and zero when they are there again."""
        self.is_populated = False
        self._sent.clear()


def opened(described: Iterable[Any]) -> Segment | None:
    """The segment of another process of this host, or None if it cannot be mapped here."""
    pid, descriptor, size, token = described
    try:
        own = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(own).st_size != size:
            return None
        segment = Segment(own, size)
    except (OSError, ValueError):
        return None
    finally:
        os.close(own)
    # Another process may have the number in this namespace.
    return segment if segment.map[:TOKEN_BYTES].hex() == token else None


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
