"""Memory that the processes of a host share: each has one segment, which the others map.

A segment is an anonymous file in memory, sparse and as large as the host's memory. So it grows without messages, is
limited by memory only (`/dev/shm` has 64 MB in many containers), and is freed with the processes, however they end.
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
# The first page has a token that identifies the segment, for processes that map it.
TOKEN_BYTES = 16
# Most bytes of pages that free chunks keep.
MOST_POOLED = 1 << 28


class Segment:
    """Mapped segment; `words` are its 64-bit integers."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.map = mmap.mmap(descriptor, size)
        self.words = memoryview(self.map).cast("q")
        self.address: int = np.frombuffer(self.map, np.uint8).__array_interface__["data"][0]


class OwnSegment(Segment):
    """Segment of this process. The caller uses its first `reserved` bytes, and chunks are allocated from the rest."""

    def __init__(self, reserved: int, readers: int) -> None:
        self._descriptor = os.memfd_create("weft")
        self._size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        os.ftruncate(self._descriptor, self._size)
        super().__init__(self._descriptor, self._size)
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.map[:TOKEN_BYTES] = self.token
        self._head = _round_up(readers * WORD, LINE)
        self._end = _round_up(PAGE + reserved, PAGE)
        self._free: dict[int, list[Chunk]] = {}
        self._pooled = 0
        self._unread: deque[Chunk] = deque()
        self.unread_bytes = 0

    def locate(self) -> list[Any]:
        """Return what another process of the host needs to open the segment."""
        return [os.getpid(), self._descriptor, self._size, self.token.hex()]

    def take(self, nbytes: int) -> Chunk:
        """Allocate a chunk for `nbytes` bytes that no process reads any more."""
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
            self._end = _round_up(self._end + pages, PAGE)
        if not chunk.is_populated:
            try:
                # Without it, a lack of memory would be a signal at the first write.
                os.posix_fallocate(self._descriptor, chunk.offset, pages)
            except OSError:
                raise out_of_memory("messages between processes", nbytes) from None
            chunk.is_populated = True
        return chunk

    def give(self, chunk: Chunk) -> None:
        """Return a chunk, which is reused when all receivers have read it."""
        self._unread.append(chunk)
        self.unread_bytes += chunk.pages

    def reclaim(self) -> None:
        """Free the chunks that all receivers have read."""
        for _ in range(len(self._unread)):
            chunk = self._unread.popleft()
            if not chunk.is_read():
                self._unread.append(chunk)
                continue
            self.unread_bytes -= chunk.pages
            if self._pooled + chunk.pages > MOST_POOLED:
                first = _round_up(chunk.offset, mmap.PAGESIZE)
                self.map.madvise(mmap.MADV_REMOVE, first, (chunk.offset + chunk.pages - first) & -mmap.PAGESIZE)
                chunk.forget()
            else:
                self._pooled += chunk.pages
            self._free.setdefault(chunk.pages, []).append(chunk)


class Chunk:
    """Chunk of a segment. It begins with a word for each process of the host: the number of messages in the chunk that
    the process has read since it exists."""

    __slots__ = ("_segment", "_sent", "address", "data", "is_populated", "offset", "pages")

    def __init__(self, segment: OwnSegment, offset: int, pages: int, head: int) -> None:
        self._segment, self.offset, self.pages = segment, offset, pages
        self.data = offset + head
        self.address = segment.address + self.data
        self.is_populated = False
        self._sent: dict[int, int] = {}

    def sent_to(self, reader: int) -> None:
        """Count a message in this chunk for a reader, given by its index among those of the host."""
        self._sent[reader] = self._sent.get(reader, 0) + 1

    def is_read(self) -> bool:
        """Return whether all messages in the chunk have been read."""
        words, first = self._segment.words, self.offset // WORD
        return all(words[first + reader] == count for reader, count in self._sent.items())

    def forget(self) -> None:
        """Reset the counts: the pages were freed, and are zero when they are used again."""
        self.is_populated = False
        self._sent.clear()


def open_segment(described: Iterable[Any]) -> Segment | None:
    """Map the segment of another process of this host; return None if that is impossible."""
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
    # In another PID namespace the number may be another process.
    return segment if segment.map[:TOKEN_BYTES].hex() == token else None


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
