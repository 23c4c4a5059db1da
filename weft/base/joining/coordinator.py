"""The coordinator of a job: it collects the processes that join, names those that do not, and answers PMI-1.

It runs in a thread of process 0, or in the launcher. Processes are watched until all have joined; afterwards only PMI
is answered, which MPI needs once more when it is finalized.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.joining import wire
from weft.base.joining.pmi import FINALIZED, LONGEST_VALUE, PmiServer
from weft.base.joining.reactor import Link, Reactor

# A process that joins sends a line this often, so that one that is stopped can be told from one that waits.
BEAT_SECONDS, SILENT_SECONDS = 1.0, 4.0


class Member:
    """Process that joins: its connection, where it runs, and when it was last heard."""

    def __init__(self, link: Link, hello: dict[str, Any]) -> None:
        self.link = link
        self.where = str(hello.get("where", "host unknown"))
        self.host = str(hello.get("host", ""))
        self.heard = time.monotonic()
        self.is_in = False


def name_processes(ranks: Sequence[int]) -> str:
    """Return "Process 3" or "Processes 1, 3", the first few of many."""
    shown = ", ".join(map(str, ranks[:20])) + (", ..." if len(ranks) > 20 else "")
    return f"Process {shown}" if len(ranks) == 1 else f"Processes {shown}"


class Coordinator:
    """Coordinator of `size` processes that know `token`, at a listening socket.

    `on_visitor` receives the hello and the link of clients with other roles, which know `visitor_token`.
    """

    def __init__(self, listener: socket.socket, size: int, token: str, reactor: Reactor | None = None) -> None:
        self.size, self.token = size, token
        self.visitor_token = token
        self.members: dict[int, Member] = {}
        self.failure: tuple[str, tuple[int, ...]] | None = None
        self.on_visitor: Callable[[dict[str, Any], Link], None] | None = None
        self._reactor = reactor or Reactor()
        self._listener = listener
        self._greeted: dict[Link, float] = {}  # connections that have not introduced themselves, and their deadlines
        self.pmi = PmiServer(size)
        self._pmi_links: dict[int, Link] = {}
        self._pmi_lost: set[int] = set()
        self._seconds, self._deadline = 0.0, float("inf")
        self._closed = threading.Event()
        self.is_released = False
        listener.setblocking(False)
        self._reactor.watch(listener.fileno(), self._accept)

    # -- life ------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer in a thread of its own until `close`."""
        threading.Thread(target=self._run, name="weft coordinator", daemon=True).start()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._reactor.step(0.2)
            self.check()
        self.release()
        self._reactor.close()

    def close(self) -> None:
        """End the thread of `serve`."""
        self._closed.set()

    def release(self) -> None:
        """Close all connections and the listening socket."""
        self.hang_up()
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        self.is_released = True

    def hang_up(self) -> None:
        """Close all connections of processes; the socket still listens."""
        for link in [*self._greeted, *(m.link for m in self.members.values()), *self._pmi_links.values()]:
            link.close()
        self._greeted.clear()

    def restart(self, token: str) -> None:
        """Forget all processes, and collect those of another start, which know another token."""
        self.hang_up()
        self.token, self.failure = token, None
        self.members, self.pmi, self._pmi_links, self._pmi_lost = {}, PmiServer(self.size), {}, set()
        self._deadline = float("inf")

    def dismiss_all(self, seconds: float = 0.0) -> None:
        """Answer ahead that PMI is finalized: MPICH asks for it when a process exits, and this one may have ended.

        Wait this long for the other processes to ask before.
        """
        until = time.monotonic() + seconds
        while {*self._pmi_links} - {0} - self.pmi.finalized - self._pmi_lost and time.monotonic() < until:
            time.sleep(0.01)
        for rank in self._pmi_links.keys() - self.pmi.finalized - self._pmi_lost:
            self._pmi_links[rank].send(f"{FINALIZED}\n".encode())

    @property
    def port(self) -> int:
        """Port at which it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def has_gathered(self) -> bool:
        """Whether all processes have come, and may initialize MPI."""
        return len(self.members) == self.size

    @property
    def is_complete(self) -> bool:
        """Whether all processes have joined."""
        return self.has_gathered and all(m.is_in for m in self.members.values())

    # -- connections -----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link, nonce = Link(self._reactor, connection), secrets.token_hex(16)
        self._greeted[link] = time.monotonic() + wire.HANDSHAKE_SECONDS
        link.on_line = lambda line: self._introduce(link, nonce, line)
        link.on_end = lambda: self._dismiss(link)
        link.send(f"{wire.GREETING} {nonce}\n".encode())

    def _dismiss(self, link: Link) -> None:
        self._greeted.pop(link, None)
        link.close()

    def _introduce(self, link: Link, nonce: str, line: bytes) -> None:
        """Handle the first line of a connection: a hello with its proof."""
        try:
            message = wire.decode(line)
            text, proof = str(message["hello"]), str(message["proof"])
            hello = json.loads(text)
            token = self.token if hello.get("role") in ("process", "pmi") else self.visitor_token
            answer = wire.prove(token, "coordinator", str(message["nonce"]))
        except (ValueError, KeyError, AttributeError):
            return self._dismiss(link)  # another protocol
        if not hmac.compare_digest(proof.encode(), wire.prove(token, "client", nonce, text).encode()):
            return self._refuse(link, "This process does not know the token of the job (WEFT_JOB_TOKEN).")
        objection = self._object(hello)
        if objection is not None:
            return self._refuse(link, objection)
        self._greeted.pop(link, None)
        link.on_line, link.on_end = (lambda line: None), (lambda: None)
        link.send(wire.encode({"proof": answer}))
        match hello.get("role"):
            case "process":
                self._admit(link, hello)
            case "pmi":
                self._serve_pmi(link, hello["rank"])
            case _ if self.on_visitor is not None:
                self.on_visitor(hello, link)
            case _:
                link.close()

    def _refuse(self, link: Link, text: str) -> None:
        self._greeted.pop(link, None)
        link.on_end = lambda: None
        link.send(wire.encode({"refused": text}))
        link.close_when_sent()

    def _object(self, hello: dict[str, Any]) -> str | None:
        """Return why a process may not join, or None if it may."""
        if hello.get("role") not in ("process", "pmi"):
            return None
        rank, size = hello.get("rank"), hello.get("size")
        if size != self.size:
            return f"The coordinator expects {self.size} processes, and this one was started as one of {size}."
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            return f"The index of a process must be from 0 to {self.size - 1}; got {rank}."
        taken = self.members.get(rank)
        if hello["role"] == "process" and taken is not None:
            return f"Process {rank} has joined already, from {taken.where}; every process needs an index of its own."
        return None

    # -- processes -------------------------------------------------------------------------------------------------

    def _admit(self, link: Link, hello: dict[str, Any]) -> None:
        rank, seconds = hello["rank"], float(hello.get("seconds", 300.0))
        if self.failure is not None:
            link.send(wire.encode({"failure": self.failure}))
        self.members[rank] = Member(link, hello)
        link.on_line = lambda line: self._hear(rank, line)
        link.on_end = lambda: self._lose(rank)
        if time.monotonic() + seconds < self._deadline:
            self._seconds, self._deadline = float(hello.get("limit", seconds)), time.monotonic() + seconds
        if self.has_gathered and self.failure is None:
            mapping = wire.process_mapping([self.members[r].host for r in range(self.size)])
            if len(mapping) < LONGEST_VALUE:
                self.pmi.values["PMI_process_mapping"] = mapping
            self._tell({"go": True})

    def _hear(self, rank: int, line: bytes) -> None:
        member = self.members[rank]
        member.heard = time.monotonic()
        with contextlib.suppress(ValueError):
            member.is_in |= "joined" in wire.decode(line)
        if self.is_complete:
            self._deadline = float("inf")

    def _lose(self, rank: int) -> None:
        """Handle the end of a process that joins."""
        if not self.members[rank].is_in:
            text = f"Process {rank} ({self.members[rank].where}) has ended before all processes had joined"
            self.fail(f"{text}{self._describe_missing()}.", (rank,))

    def _describe_missing(self) -> str:
        missing = [r for r in range(self.size) if r not in self.members]
        return f"; {name_processes(missing).lower()} had not come yet" if missing else ""

    def check(self) -> None:
        """Handle deadlines that have passed."""
        now = time.monotonic()
        for link in [link for link, deadline in self._greeted.items() if deadline < now]:
            self._dismiss(link)
        if now < self._deadline or self.failure is not None:
            return
        missing = [r for r in range(self.size) if r not in self.members]
        waiting = [r for r, m in self.members.items() if not m.is_in]
        silent = [r for r in waiting if now - self.members[r].heard > SILENT_SECONDS]
        late = missing or silent or waiting
        where = ", ".join(f"{r} ({self.members[r].where})" for r in late if r in self.members)
        did = "did not join" if missing else f"did not initialize MPI, {where},"
        self.fail(f"{name_processes(late)} of {self.size} {did} within {self._seconds:.0f} s.", tuple(late))

    def fail(self, text: str, ranks: Sequence[int]) -> None:
        """Tell all processes that joining has failed, with the indices of the culprits."""
        if self.failure is None and not self.is_complete:
            self.failure = text, tuple(ranks)
            self._tell({"failure": self.failure})

    def _tell(self, message: dict[str, Any]) -> None:
        # Process 0 last: it may be this one, and end at once.
        for _, member in sorted(self.members.items(), reverse=True):
            member.link.send(wire.encode(message))

    # -- PMI -------------------------------------------------------------------------------------------------------

    def _serve_pmi(self, link: Link, rank: int) -> None:
        self._pmi_links[rank] = link
        link.on_line = lambda line: self._answer_pmi(rank, line)
        link.on_end = lambda: self._pmi_lost.add(rank)

    def _answer_pmi(self, rank: int, line: bytes) -> None:
        for other, reply in self.pmi.handle(rank, line.decode(errors="replace")):
            if other in self._pmi_links:
                self._pmi_links[other].send(f"{reply}\n".encode())
