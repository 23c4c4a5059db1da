"""Shared memory as a transport: processes of one host read each other's messages where they are.

What is sent is in a chunk of the sender's segment; the receiver is told where by an entry in a ring, of which there is
one for each pair of processes, and counts in the chunk what it has read. Small messages are in the entry itself. Each
word is written by one process only, so there are no locks. Messages to other hosts go by the transport beneath.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.base.errors import ArgumentError, ProgramMismatchError
from weft.base.settings import config
from weft.runtime.processes.segment import LINE, PAGE, WORD, Chunk, OwnSegment, Segment, opened
from weft.runtime.processes.transport import SMALL, Message, Messages, Request, Transport, TransportError

ENTRIES = 256  # of a ring
# The words of an entry: which one it is, written last; tag, offset and size of a message; and the offset of its chunk,
# or -1 if the message is in the entry, behind these words.
INDEX, TAG, OFFSET, NBYTES, CHUNK = range(5)
HEAD_BYTES = LINE
ENTRY_BYTES = HEAD_BYTES + SMALL
LINE_WORDS, ENTRY_WORDS = LINE // WORD, ENTRY_BYTES // WORD
# A process that has sent so much which nobody has read yet waits.
MOST_UNREAD = 1 << 28


class WindowTransport(Messages):
    """Messages within a host by shared memory, others by another transport. `others` are the segments of the processes
    that are near."""

    def __init__(self, beneath: Transport, own: OwnSegment | None, others: dict[int, Segment]) -> None:
        self.beneath = beneath
        self._barrier = threading.Lock()
        self._barrier.acquire()
        self.rank, self.size, self.tags = beneath.rank, beneath.size, beneath.tags
        self.name = f"{beneath.name}, shared memory"
        self.near = frozenset(others)
        self._own: Any = own  # None only where nobody is near
        self._others = others
        self._sent = dict.fromkeys(others, 0)
        self._taken = dict.fromkeys(others, 0)
        # Entries: where messages are, or what they are; their sizes; their chunks.
        self._unsent: dict[int, deque[tuple[int, Any, int, int]]] = {rank: deque() for rank in others}
        self._arrived: dict[tuple[int, int], deque[tuple[Any, int, int]]] = {}
        # In each segment there are a line for each process, which says how many of its entries were taken, and the
        # rings for each process.
        self._rings = PAGE // WORD + self.size * LINE_WORDS

    def _fence(self) -> None:
        """What this thread has read and written is before what it reads and writes from now on, for other processors
        too: giving a lock back is a release, and taking it an acquisition, of the same word."""
        self._barrier.release()
        self._barrier.acquire()

    def _taken_word(self, peer: int) -> int:
        """The word in which a process says how many entries of another one it has taken."""
        return PAGE // WORD + peer * LINE_WORDS

    def _entry_word(self, peer: int, index: int) -> int:
        """The first word of an entry for a process."""
        return self._rings + (peer * ENTRIES + index % ENTRIES) * ENTRY_WORDS

    def take(self, nbytes: int) -> Chunk:
        """A chunk of this process's segment."""
        result: Chunk = self._own.take(nbytes)
        return result

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        """Start to send and receive; returns at once."""
        far_sends = [m for m in sends if m.peer not in self.near]
        far_receives = [m for m in receives if m.peer not in self.near]
        chunks: dict[Any, Chunk] = {}
        for message in sends:
            if message.peer in self.near:
                self._send(message, chunks)
        beneath = self.beneath.start(far_sends, far_receives) if far_sends or far_receives else None
        lent = {m.chunk.address for m in sends if m.chunk is not None and m.peer in self.near}
        own = [c for c in chunks.values() if c.address not in lent]
        return WindowRequest(self, beneath, receives, own, [c for c in chunks.values() if c.address in lent])

    def give(self, chunks: Iterable[Chunk]) -> None:
        """Have chunks back when all who were sent them have read them."""
        for chunk in chunks:
            self._own.give(chunk)

    def _send(self, message: Message, chunks: dict[Any, Chunk]) -> None:
        """Tell a process where a message is. What is in ordinary memory is copied once for all who get it."""
        peer, tag, address, nbytes, found = message
        chunk: Any = found
        if chunk is None and nbytes <= SMALL:
            entry = tag, ctypes.string_at(address or 0, nbytes), nbytes, -1
        else:
            if chunk is not None:
                chunks[chunk.address] = chunk
            else:
                chunk = chunks.get((address, nbytes))
                if chunk is None:
                    chunk = chunks[address, nbytes] = self.take(nbytes)
                    ctypes.memmove(chunk.address, address or 0, nbytes)
                address = chunk.address
            chunk.sent_to(peer)
            entry = tag, (address or 0) - self._own.address, nbytes, chunk.offset
        self._unsent[peer].append(entry)
        self._write_entries(peer)

    def _write_entries(self, peer: int) -> None:
        """Write what there is for a process into the ring, as far as it has room."""
        unsent, words = self._unsent[peer], self._own.words
        while unsent:
            sent = self._sent[peer]
            if sent - self._others[peer].words[self._taken_word(self.rank)] >= ENTRIES:
                return
            at = self._entry_word(peer, sent)
            words[at + TAG], where, words[at + NBYTES], words[at + CHUNK] = unsent.popleft()
            if type(where) is bytes:
                self._own.map[at * WORD + HEAD_BYTES : at * WORD + HEAD_BYTES + len(where)] = where
            else:
                words[at + OFFSET] = where
            self._fence()
            words[at + INDEX] = self._sent[peer] = sent + 1

    def collect(self, peers: Iterable[int]) -> None:
        """Take the entries that processes have written."""
        for peer in peers:
            words, first = self._others[peer].words, self._taken[peer]
            taken = first
            while words[at := self._entry_word(self.rank, taken)] == taken + 1:
                self._fence()
                nbytes, chunk = words[at + NBYTES], words[at + CHUNK]
                where: Any = words[at + OFFSET]
                if chunk < 0:
                    where = self._others[peer].map[at * WORD + HEAD_BYTES : at * WORD + HEAD_BYTES + nbytes]
                self._arrived.setdefault((peer, words[at + TAG]), deque()).append((where, nbytes, chunk))
                taken += 1
            if taken != first:
                self._fence()
                self._taken[peer] = self._own.words[self._taken_word(peer)] = taken

    def arrived(self, message: Message) -> tuple[int, int] | None:
        """Where a message and its chunk are, if it is there. What has an address is copied there."""
        key = message.peer, message.tag
        waiting = self._arrived.get(key)
        if not waiting:
            return None
        where, nbytes, chunk = waiting.popleft()
        if not waiting:
            del self._arrived[key]
        if nbytes != message.nbytes:
            what = f"process {message.peer} sent {nbytes} bytes where {message.nbytes} were expected"
            raise TransportError(what)
        if chunk < 0:
            ctypes.memmove(message.address or 0, where, nbytes)
            return 0, chunk
        address = self._others[message.peer].address + where
        if message.address is not None:
            ctypes.memmove(message.address, address, nbytes)
            self.has_read(message.peer, chunk)
        return address, chunk

    def has_read(self, peer: int, chunk: int) -> None:
        """Tell a process that a message in a chunk of its segment has been read."""
        self._fence()
        self._others[peer].words[chunk // WORD + self.rank] += 1

    def is_sent(self) -> bool:
        """Whether others keep up with what this process sends."""
        for peer, unsent in self._unsent.items():
            if unsent:
                self._write_entries(peer)
        if self._own.unread_bytes > MOST_UNREAD:
            self._own.reclaim()
        return self._own.unread_bytes <= MOST_UNREAD and not any(self._unsent.values())

    def shrunk(self, seconds: float) -> Transport:
        """The transport beneath without the processes that have died; shared memory is to be found anew."""
        return self.beneath.shrunk(seconds)

    def close(self) -> None:
        """Segments go with the process."""
        self.beneath.close()


class WindowRequest:
    """Messages under way; those of other hosts are `beneath`, and what is sent is in chunks. Those that are `lent` are
    the sender's, who reads them too until it releases the request."""

    def __init__(
        self,
        transport: WindowTransport,
        beneath: Request | None,
        receives: Sequence[Message],
        chunks: list[Chunk],
        lent: list[Chunk],
    ) -> None:
        self._transport, self._beneath, self._chunks, self._lent = transport, beneath, chunks, lent
        self._missing = [m for m in receives if m.peer in transport.near][::-1]
        self._peers = {m.peer for m in self._missing}
        self._borrowed: list[tuple[int, int, int]] = []  # process, address, chunk

    def test(self) -> bool:
        """Whether all messages have ended."""
        transport = self._transport
        if self._beneath is not None:
            if not self._beneath.test():
                return False
            self._beneath = None
        if self._chunks:
            transport.give(self._chunks)
            self._chunks = []
        if self._missing:
            transport.collect(self._peers)
            while self._missing:
                message = self._missing[-1]
                found = transport.arrived(message)
                if found is None:
                    return False
                self._missing.pop()
                if message.address is None:
                    self._borrowed.append((message.peer, *found))
        return transport.is_sent()

    def borrowed(self) -> Sequence[int]:
        """The addresses of what is borrowed."""
        return [address for _, address, _ in self._borrowed]

    def release(self) -> None:
        """Tell its owners that it has been read."""
        self._transport.give(self._lent)
        self._lent = []
        for peer, _, chunk in self._borrowed:
            self._transport.has_read(peer, chunk)
        self._borrowed.clear()


def with_windows(beneath: Transport, gather: Callable[[bytes], list[bytes]]) -> Transport:
    """A transport by shared memory where processes can map each other's segments. `gather` returns what each process
    passes."""
    if beneath.size == 1:
        return beneath
    choice, host = config.distributed_transport, _host()
    own: OwnSegment | None = None
    if choice != "messages" and hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError, ValueError):  # a limit of addresses
            own = OwnSegment(beneath.size * (LINE + ENTRIES * ENTRY_BYTES), beneath.size)
    told = [json.loads(t) for t in gather(json.dumps([choice, host, own and own.described()]).encode())]
    if len({choice for choice, _, _ in told}) > 1:
        raise ProgramMismatchError(
            "Processes have different settings.",
            received="distributed_transport: " + ", ".join(f"process {r}: {told[r][0]!r}" for r in range(len(told))),
            fix="WEFT_DISTRIBUTED_TRANSPORT in the environment of all processes",
        )
    found: dict[int, Segment] = {}
    for rank, (_, their_host, described) in enumerate(told):
        if own is not None and rank != beneath.rank and their_host == host and described:
            segment = opened(described)
            if segment is not None:
                found[rank] = segment
    reached = [json.loads(t) for t in gather(json.dumps(list(found)).encode())]
    others = {rank: segment for rank, segment in found.items() if beneath.rank in reached[rank]}
    if choice == "shared_memory" and len(others) < beneath.size - 1:
        missing = [r for r in range(beneath.size) if r != beneath.rank and r not in others]
        raise ArgumentError(
            "Processes do not share memory.",
            received=f"distributed_transport='shared_memory'; process {beneath.rank} cannot map that of {missing}",
            fix="distributed_transport='auto', which sends messages where memory is not shared",
        )
    return WindowTransport(beneath, own, others) if any(reached) else beneath


def _host() -> str:
    """What tells this host from others."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
