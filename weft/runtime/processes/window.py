"""Shared memory as a transport: processes of one host read each other's messages in place.

A message is in a chunk of the sender's segment. An entry in a ring (one for each ordered pair of processes) gives its
location, and the receiver counts in the chunk the messages that it has read. Small messages are in the entry itself.
Each word is written by one process only, so there are no locks. Messages to other hosts use the transport beneath.
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
from weft.runtime.processes.fence import host_identifier
from weft.runtime.processes.segment import LINE, PAGE, WORD, Chunk, OwnSegment, Segment, open_segment
from weft.runtime.processes.transport import SMALL, Message, Messages, Request, Transport, TransportError

ENTRIES = 256  # of a ring
# The words of an entry: its number, written last; tag, offset and size of a message; and the offset of its chunk, or -1
# if the message is in the entry, behind these words.
INDEX, TAG, OFFSET, NBYTES, CHUNK = range(5)
HEAD_BYTES = LINE
ENTRY_BYTES = HEAD_BYTES + SMALL
LINE_WORDS, ENTRY_WORDS = LINE // WORD, ENTRY_BYTES // WORD
# A process whose unread messages have more bytes waits.
MOST_UNREAD = 1 << 28


class WindowTransport(Messages):
    """Transport within a host by shared memory, and by the transport `beneath` between hosts. `others` are the segments
    of the other processes of the host."""

    def __init__(self, beneath: Transport, own: OwnSegment | None, others: dict[int, Segment]) -> None:
        self.beneath = beneath
        self._barrier = threading.Lock()
        self._barrier.acquire()
        self.rank, self.size, self.tags = beneath.rank, beneath.size, beneath.tags
        self.name = f"{beneath.name}, shared memory"
        self.near = frozenset(others)
        self._own: Any = own  # None only if no other process is on this host
        self._others = others
        self._sent = dict.fromkeys(others, 0)
        self._taken = dict.fromkeys(others, 0)
        # Entries: tag, offset or content, size and chunk of messages.
        self._unsent: dict[int, deque[tuple[int, Any, int, int]]] = {rank: deque() for rank in others}
        self._arrived: dict[tuple[int, int], deque[tuple[Any, int, int]]] = {}
        # Each segment has a cache line for each process with the number of its entries that were taken, and a ring for
        # each process.
        self._rings = PAGE // WORD + self.size * LINE_WORDS

    def _fence(self) -> None:
        """Order earlier reads and writes of this thread before later ones, for other processors too.

        Releasing and acquiring a lock is a release and an acquire of the same word.
        """
        self._barrier.release()
        self._barrier.acquire()

    def _taken_word(self, peer: int) -> int:
        """Return the index of the word with the number of entries that were taken from a process."""
        return PAGE // WORD + peer * LINE_WORDS

    def _entry_word(self, peer: int, index: int) -> int:
        """Return the index of the first word of an entry for a process."""
        return self._rings + (peer * ENTRIES + index % ENTRIES) * ENTRY_WORDS

    def take(self, nbytes: int) -> Chunk:
        """Allocate a chunk of this process's segment."""
        result: Chunk = self._own.take(nbytes)
        return result

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        """Start to send and receive; return at once."""
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
        """Return chunks, which are reused when all receivers have read them."""
        for chunk in chunks:
            self._own.give(chunk)

    def _send(self, message: Message, chunks: dict[Any, Chunk]) -> None:
        """Send the location of a message to a process. Ordinary memory is copied once for all receivers."""
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
        """Write the pending entries for a process to its ring, as far as it has room."""
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
        """Take the entries that processes have written to their rings."""
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

    def receive(self, message: Message) -> tuple[int, int] | None:
        """Receive a message, and return its address and chunk; None if it is not there yet.

        It is copied if the receiver has an address for it.
        """
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
        """Count a message in a chunk of another process's segment as read."""
        self._fence()
        self._others[peer].words[chunk // WORD + self.rank] += 1

    def is_sent(self) -> bool:
        """Return whether all entries are written and the unread messages are few enough."""
        for peer, unsent in self._unsent.items():
            if unsent:
                self._write_entries(peer)
        if self._own.unread_bytes > MOST_UNREAD:
            self._own.reclaim()
        return self._own.unread_bytes <= MOST_UNREAD and not any(self._unsent.values())

    def shrink(self, seconds: float) -> Transport:
        """Return the transport beneath without the processes that have died; shared memory must be mapped again."""
        return self.beneath.shrink(seconds)

    def close(self) -> None:
        """Close the transport beneath; segments are freed with the process."""
        self.beneath.close()


class WindowRequest:
    """Pending messages; those of other hosts are `beneath`. `chunks` contain sent messages, and `lent` those that the
    sender reads too until it releases the request."""

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
        """Make progress, and return whether all messages have ended."""
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
                found = transport.receive(message)
                if found is None:
                    return False
                self._missing.pop()
                if message.address is None:
                    self._borrowed.append((message.peer, *found))
        return transport.is_sent()

    def borrowed_addresses(self) -> Sequence[int]:
        """Return the addresses of borrowed messages."""
        return [address for _, address, _ in self._borrowed]

    def release(self) -> None:
        """Return borrowed messages to their owners, and lent chunks to the segment."""
        self._transport.give(self._lent)
        self._lent = []
        for peer, _, chunk in self._borrowed:
            self._transport.has_read(peer, chunk)
        self._borrowed.clear()


def with_windows(beneath: Transport, gather: Callable[[bytes], list[bytes]]) -> Transport:
    """Return a transport by shared memory for processes that can map each other's segments.

    `gather` is an all-gather of bytes by the transport beneath.
    """
    if beneath.size == 1:
        return beneath
    choice, host = config.distributed_transport, host_identifier()
    own: OwnSegment | None = None
    if choice != "messages" and hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError, ValueError):  # a limit of addresses
            own = OwnSegment(beneath.size * (LINE + ENTRIES * ENTRY_BYTES), beneath.size)
    told = [json.loads(t) for t in gather(json.dumps([choice, host, own and own.locate()]).encode())]
    if len({choice for choice, _, _ in told}) > 1:
        raise ProgramMismatchError(
            "All processes must have the same setting distributed_transport.",
            received="distributed_transport: " + ", ".join(f"process {r}: {told[r][0]!r}" for r in range(len(told))),
            fix="WEFT_DISTRIBUTED_TRANSPORT in the environment of all processes",
        )
    found: dict[int, Segment] = {}
    for rank, (_, their_host, described) in enumerate(told):
        if own is not None and rank != beneath.rank and their_host == host and described:
            segment = open_segment(described)
            if segment is not None:
                found[rank] = segment
    reached = [json.loads(t) for t in gather(json.dumps(list(found)).encode())]
    others = {rank: segment for rank, segment in found.items() if beneath.rank in reached[rank]}
    if choice == "shared_memory" and len(others) < beneath.size - 1:
        missing = [r for r in range(beneath.size) if r != beneath.rank and r not in others]
        raise ArgumentError(
            "Processes must share memory with distributed_transport='shared_memory'.",
            received=f"process {beneath.rank}, which cannot map the memory of processes {missing}",
            fix="distributed_transport='auto', which sends messages between processes without shared memory",
        )
    return WindowTransport(beneath, own, others) if any(reached) else beneath
