"""The control thread: heartbeats over sockets, separate from the messages of programs.

Every process sends its state (its *page*) to process 0 four times a second. Process 0 detects processes that have died
(closed socket), that have diverged (digests of common sections differ), and that others wait for while they wait for
nothing; it broadcasts a verdict, which waiting threads raise.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import ProcessFailureError
from weft.base.settings import config
from weft.runtime.processes.page import NOTHING_YET, Page, Verdict

BEAT = 0.25  # seconds between heartbeats
SHOWN_FRAMES = 12
COMPARISON = 5.0  # seconds that processes have to report a difference themselves, by a comparison


def python_stack() -> str:
    """Format the Python stack of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "  (no Python frames)\n"
    return "".join(traceback.format_stack(frame)[-SHOWN_FRAMES:])


def say(text: str) -> None:
    """Write a line to stderr. The reader may be gone, such as a launcher that has died: then do nothing."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


@dataclass
class _Peer:
    """State of another process, as process 0 knows it."""

    socket: socket.socket | None
    page: dict[str, Any] = field(default_factory=dict)
    heard: float = field(default_factory=time.monotonic)
    data: bytes = b""


class Control:
    """Control thread of one process. `where` describes the host of each process; one that is silent for `timeout`
    seconds counts as dead."""

    def __init__(self, rank: int, where: Sequence[str], timeout: float, listener: socket.socket | None) -> None:
        self.page = Page(rank)
        self.rank, self.size, self._where = rank, len(where), where
        self.verdict: Verdict | None = None
        self.everybody_ended = threading.Event()
        self.sync_step: int | None = None  # the step at which all processes stop, once one of them is preempted
        self.preemption = False
        self._steps_known = threading.Event()
        self._changed = threading.Event()
        self._timeout = timeout
        self._listener = listener
        self._peers: dict[int, _Peer] = {}
        self._reported: set[int] = set()
        self._asked: dict[int, tuple[float, str]] = {}
        self._steps: dict[int, int] = {}
        self._writing = threading.Lock()
        self._outbox: list[dict[str, Any]] = []  # messages of other threads, which this one sends
        self._writing_barriers = threading.Lock()
        self._barrier_counts: dict[str, int] = {}
        self._barriers: dict[tuple[str, int], threading.Event] = {}
        self._arrived: dict[tuple[str, int], dict[int, float]] = {}  # the processes at each barrier, and since when
        self._differ_since: float | None = None
        self._stopped = False
        # Functions that are called after a failure, and the threads that run them.
        self._writing_acts = threading.Lock()
        self._acts: list[Callable[[], None]] = []
        self._acting: list[threading.Thread] = []
        # Open MPI's launcher leaves its processes behind when it is killed; that of MPICH does not.
        self._launcher = os.getppid() if "OMPI_COMM_WORLD_SIZE" in os.environ and len(where) > 1 else None

    # -- start and end ---------------------------------------------------------------------------------------------

    @staticmethod
    def listen(bind: str | None) -> tuple[socket.socket, str]:
        """Return a listening socket for the other processes, and its address and secret as text."""
        listener = socket.create_server((bind or "", 0), backlog=1024)
        host = bind or _reachable_address()
        return listener, json.dumps([host, listener.getsockname()[1], secrets.token_hex(16)])

    def start(self, address: str, deadline: float) -> None:
        """Connect, and start the thread. Process 0 waits for all others."""
        host, port, token = json.loads(address)
        if self.rank == 0:
            self._peers[0] = _Peer(None)
        if self._listener is not None:
            self._listener.settimeout(max(deadline - time.monotonic(), 0.1))
            while len(self._peers) < self.size:
                connection, _ = self._listener.accept()
                connection.settimeout(5)
                greeting = _line(connection).split()
                if len(greeting) == 2 and secrets.compare_digest(greeting[0], token):
                    self._peers[int(greeting[1])] = _Peer(connection)
                else:
                    connection.close()
            self._listener.close()
        elif self.rank:
            connection = socket.create_connection((host, port), max(deadline - time.monotonic(), 0.1))
            connection.sendall(f"{token} {self.rank}\n".encode())
            self._peers[0] = _Peer(connection)
        for peer in self._peers.values():
            if peer.socket is not None:
                peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.socket.settimeout(5)
        threading.Thread(target=self._run, name="weft control", daemon=True).start()

    def end(self, error: str | None) -> None:
        """Announce that this process ends, by this error or without one."""
        self.page.failed = error is not None
        self.page.ended = error or "without an error"
        self._changed.set()

    def stop(self) -> None:
        """End the thread: this process is not monitored any more."""
        self._stopped = True
        self.verdict = self.verdict or Verdict("died", "The processes were shut down (weft.distributed.shutdown).")

    def settle(self, seconds: float) -> None:
        """Wait for a verdict, at most this long."""
        until = time.monotonic() + seconds
        while self.verdict is None and time.monotonic() < until:
            time.sleep(0.02)

    def call_on_failure(self, act: Callable[[], None]) -> None:
        """Register a function that a thread of its own calls when a failure is known."""
        with self._writing_acts:
            if act not in self._acts:
                self._acts.append(act)
                if self.verdict is not None:
                    self._act(act)

    def _act(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=act, name="weft failure", daemon=True)
        self._acting.append(thread)
        thread.start()

    def join_failure_calls(self, seconds: float) -> bool:
        """Wait for the functions that failures call, at most this long; return whether all have ended."""
        until = time.monotonic() + seconds
        for thread in self._acting:
            thread.join(max(until - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._acting)

    def barrier(self, name: str) -> None:
        """Wait until all processes have called it with this name as often as this one.

        It is independent of the order of programs, so any thread may call it.
        """
        with self._writing_barriers:
            count = self._barrier_counts[name] = self._barrier_counts.get(name, 0) + 1
            done = self._barriers.setdefault((name, count), threading.Event())
        self._outbox.append({"barrier": [name, count]})
        self._changed.set()
        while not done.wait(0.1):
            if self.verdict is not None:
                self.verdict.raise_()
        with self._writing_barriers:
            self._barriers.pop((name, count), None)

    def _pass_barrier(self, rank: int, name: str, count: int) -> None:
        arrived = self._arrived.setdefault((name, count), {})
        arrived[rank] = time.monotonic()
        if len(arrived) == self.size:
            del self._arrived[name, count]
            self._broadcast({"passed": [name, count]})

    # -- preemption ------------------------------------------------------------------------------------------------

    def reached_sync_point(self, step: int) -> bool:
        """Return whether all processes stop at this step, since one of them is preempted."""
        if threading.current_thread() is threading.main_thread() and not self.page.preempted:
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, lambda *_: self._preempt())
        with self.page.steps:
            announced = self.preemption
            if not announced:
                self.page.step = step
        if announced and not self._steps_known.wait(self._timeout):
            raise ProcessFailureError("The processes did not agree on a step to stop at.")
        return announced and step == self.sync_step

    def _preempt(self) -> None:
        self.page.preempted = True
        self._changed.set()

    def _report_step(self) -> None:
        with self.page.steps:
            self.preemption = True
            self._tell_first({"step": -1 if self.page.step is None else self.page.step})

    def _collect_step(self, rank: int, step: int) -> None:
        self._steps[rank] = step
        if len(self._steps) == self.size:
            self._broadcast({"sync_step": max(self._steps.values()) + 1})

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, peer in self._peers.items():
                if peer.socket is not None:
                    selector.register(peer.socket, selectors.EVENT_READ, rank)
            sent = 0.0
            while not self._stopped:
                for key, _ in selector.select(0.05):
                    connection = self._peers[key.data].socket
                    if not self._read(key.data) and connection is not None:
                        selector.unregister(connection)
                        connection.close()
                if self._launcher not in (None, os.getppid()):
                    say(f"weft: process {self.rank}: the launcher has died")
                    os._exit(113)
                if time.monotonic() - sent >= BEAT or self._changed.is_set():
                    self._changed.clear()
                    sent = time.monotonic()
                    while self._outbox:
                        self._tell_first(self._outbox.pop(0))
                    self._tell_first({"page": self.page.to_json()})
                    if self.rank == 0:
                        self._judge()

    def _tell_first(self, message: dict[str, Any]) -> None:
        if self.rank == 0:
            self._handle(0, message)
        else:
            self._write(0, message)

    def _write(self, rank: int, message: dict[str, Any]) -> None:
        connection = self._peers[rank].socket
        if connection is not None:
            # A closed socket is found by reading.
            with self._writing, contextlib.suppress(OSError):
                connection.sendall(json.dumps(message).encode() + b"\n")

    def _broadcast(self, message: dict[str, Any]) -> None:
        for rank in self._peers:
            if rank != 0:
                self._write(rank, message)
        self._handle(0, message)

    def _read(self, rank: int) -> bool:
        """Handle the messages of a process; return whether its socket is still open."""
        peer = self._peers[rank]
        assert peer.socket is not None
        try:
            data = peer.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            peer.socket = None
            self._lost(rank)
            return False
        *lines, peer.data = (peer.data + data).split(b"\n")
        peer.heard = time.monotonic()
        for line in lines:
            self._handle(rank, json.loads(line))
        return True

    def _lost(self, rank: int) -> None:
        """Handle the closed socket of a process."""
        if self.everybody_ended.is_set() or self._stopped:
            return
        if self.rank == 0:
            ended = self._peers[rank].page.get("ended")
            if ended is None:
                self._fail("died", f"{self._name(rank)} has died; {self._last(rank)}.", (rank,))
        else:
            text = f"{self._name(0)} has died or ended; it was the one that watched over the others."
            self._fail("died", text, (0,))

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        for kind, value in message.items():
            match kind:
                case "page":
                    self._peers[rank].page = value
                    self._peers[rank].heard = time.monotonic()
                case "verdict":
                    self._fail_here(Verdict(value[0], value[1], tuple(value[2])))
                case "report":
                    say(value)
                case "stack?":
                    self._tell_first({"stack": python_stack()})
                case "stack":
                    self._report_stuck(rank, value)
                case "ended":
                    self.everybody_ended.set()
                case "step?":
                    self._report_step()
                case "step":
                    self._collect_step(rank, value)
                case "sync_step":
                    self.sync_step = value
                    self._steps_known.set()
                case "barrier":
                    self._pass_barrier(rank, *value)
                case "passed":
                    with self._writing_barriers:
                        self._barriers[value[0], value[1]].set()
                case "abort":
                    os._exit(113)

    def _fail(self, kind: str, text: str, processes: Sequence[int] = ()) -> None:
        if self.rank == 0:
            if self.verdict is None:
                self._broadcast({"verdict": [kind, text, list(processes)]})
        else:
            self._fail_here(Verdict(kind, text, tuple(processes)))

    def _fail_here(self, verdict: Verdict) -> None:
        if self.verdict is None:
            with self._writing_acts:  # a thread that sees the verdict finds its functions started
                for act in self._acts:
                    self._act(act)
                self.verdict = verdict
            if self.page.ended is None:
                say(f"weft: process {self.rank}: {verdict.text}")

    # -- verdicts of process 0 -------------------------------------------------------------------------------------

    def _name(self, rank: int) -> str:
        return f"Process {rank} ({self._where[rank]})"

    def _last(self, rank: int) -> str:
        page = self._peers[rank].page
        wait = page.get("wait")
        doing = f"waiting in {wait[1]}, in" if wait else "done with, or in,"
        last = page.get("doing", NOTHING_YET)
        # It may have begun something since.
        here = "" if last == self.page.doing else f"; process 0 was in {self.page.doing}"
        return f"when last heard of it was {doing} {last}{here}"

    def _judge(self) -> None:
        """Compare the pages of all processes, and broadcast what follows."""
        now = time.monotonic()
        pages = {rank: peer.page for rank, peer in self._peers.items() if peer.page}
        for check in (self._judge_order, self._judge_ended, self._judge_silence, self._judge_stuck):
            if self.verdict is None:
                check(pages, now)
        if len(pages) == self.size and all(page["ended"] is not None for page in pages.values()):
            self._broadcast({"ended": True})
        if not self.preemption and any(page["preempted"] for page in pages.values()):
            self._broadcast({"step?": True})

    def _judge_order(self, pages: dict[int, Any], now: float) -> None:
        seen: dict[tuple[Any, int], tuple[int, str, str]] = {}
        for rank, page in sorted(pages.items()):
            for ranks, entries in page["records"]:
                for count, chain, what in entries:
                    before = seen.setdefault((tuple(ranks), count), (rank, chain, what))
                    if before[1] != chain and not self._is_compared(now, before[0], rank):
                        names = [self._name(r).replace("P", "p", 1) for r in (before[0], rank)]
                        text = f"{names[0]} does {before[2]}, {names[1]} does {what}"
                        self._fail("mismatch", f"Processes do different things together: {text} (call {count}).")
                        return

    def _is_compared(self, now: float, *ranks: int) -> bool:
        """Return whether processes that differ are in a comparison, which reports the difference in detail."""
        if not any(self._peers[rank].page["comparing"] for rank in ranks):
            return False
        since = self._differ_since = self._differ_since or now
        return now - since < COMPARISON

    def _judge_ended(self, pages: dict[int, Any], now: float) -> None:
        for rank, page in pages.items():
            if page["ended"] is None:
                continue
            # A process that ended without an error has sent all messages of the sections that it took part in.
            waiting = [
                r
                for r, p in pages.items()
                if p["ended"] is None
                and p["wait"]
                and rank in p["wait"][0]
                and (page["failed"] or _has_begun_more(p, page))
            ]
            if waiting:
                text = f"{self._name(rank)} has ended ({page['ended']}) while others wait for it"
                self._fail("died", f"{text} in {pages[waiting[0]]['wait'][1]}.", (rank,))

    def _judge_silence(self, pages: dict[int, Any], now: float) -> None:
        for rank, peer in self._peers.items():
            if rank and peer.socket is not None and now - peer.heard > self._timeout:
                text = f"{self._name(rank)} has not been heard of for {now - peer.heard:.0f} s; {self._last(rank)}."
                self._fail("died", text, (rank,))

    def _judge_stuck(self, pages: dict[int, Any], now: float) -> None:
        patience = config.stuck_after
        late: dict[int, tuple[str, float, int]] = {}
        for page in pages.values():
            if page["wait"] is None or page["wait"][2] < patience:
                continue
            for rank in page["wait"][0]:
                other = pages.get(rank)
                if other is not None and other["wait"] is None and other["ended"] is None:
                    if page["wait"][3] and not other["sections"] and not _has_begun_more(page, other):
                        continue  # it has started everything that the others wait for
                    what, seconds, count = late.get(rank, (page["wait"][1], 0.0, 0))
                    late[rank] = what, max(seconds, page["wait"][2]), count + 1
        for (name, _), arrived in self._arrived.items():
            seconds = now - min(arrived.values())
            for rank in pages if seconds >= patience else ():
                if rank not in arrived:
                    late.setdefault(rank, (f"the barrier {name!r}", seconds, len(arrived)))
        self._reported &= late.keys()
        for rank, (what, seconds, count) in late.items():
            if rank not in self._reported:
                self._reported.add(rank)
                self._asked[rank] = now, f"is not in {what}, for {seconds:.0f} s; {count} others wait"
                if rank == 0:
                    self._report_stuck(0, python_stack())
                else:
                    self._write(rank, {"stack?": True})
            elif rank in self._asked and now - self._asked[rank][0] > 2:
                self._report_stuck(rank, "  (it does not answer)\n")
            if config.abort_after and seconds > config.abort_after:
                self._broadcast_abort(rank)

    def _report_stuck(self, rank: int, stack: str) -> None:
        asked = self._asked.pop(rank, None)
        if asked is not None:
            self._broadcast({"report": f"weft: {self._name(rank)} {asked[1]}. It is in:\n{stack}"})

    def _broadcast_abort(self, rank: int) -> None:
        text = f"weft: aborting all processes, since {self._name(rank)} is stuck (abort_after)"
        self._broadcast({"report": text})
        self._broadcast({"abort": True})


def _has_begun_more(page: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a process has begun a section with another one that the other has not begun."""
    counts = {tuple(ranks): entries[-1][0] for ranks, entries in other["records"]}
    return any(
        other["rank"] in ranks and entries[-1][0] > counts.get(tuple(ranks), 0) for ranks, entries in page["records"]
    )


def _line(connection: socket.socket) -> str:
    """Read the first line that a process sends, and no more."""
    data = b""
    with contextlib.suppress(OSError):
        while len(data) < 100 and (byte := connection.recv(1)) not in (b"", b"\n"):
            data += byte
    return data.decode(errors="replace")


def _reachable_address() -> str:
    """Return an address of this host that other hosts can reach."""
    for find in (_routed_address, lambda: socket.gethostbyname(socket.gethostname())):
        with contextlib.suppress(OSError):
            return find()
    return "127.0.0.1"


def _routed_address() -> str:
    """Return the address of the interface that routes to other hosts; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
