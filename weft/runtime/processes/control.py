"""The control thread: heartbeats over sockets, separate from the messages of programs.

Every process sends its state (its *page*) to process 0 four times a second, and process 0 sends a heartbeat to all.
Process 0 detects processes that have died (closed socket), that are silent (`watch`), that have diverged (digests of
common sections differ), and that others wait for while they wait for nothing (`judging`); it broadcasts a verdict,
which waiting threads raise. The others watch process 0.
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
from typing import Any

from weft.base.errors import ProcessFailureError
from weft.base.joining import wire
from weft.base.settings import config
from weft.runtime.processes import judging
from weft.runtime.processes.fence import Fence
from weft.runtime.processes.links import Link, reachable_address, read_line
from weft.runtime.processes.page import NOTHING_YET, Difference, Page, Verdict, first_difference
from weft.runtime.processes.watch import Watch

BEAT = 0.25  # seconds between heartbeats
SHOWN_FRAMES = 12
# Seconds that processes have to report a difference themselves, by a comparison in which all of them are or only one.
COMPARISON, COMPARISON_OF_ONE = 5.0, 1.0
ANSWER = 2.0  # seconds that a process has to answer a question


def python_stack() -> str:
    """Format the Python stack of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "  (no Python frames)\n"
    return "".join(traceback.format_stack(frame)[-SHOWN_FRAMES:])


def say(text: str) -> None:
    """Write a line to stderr at once, so that lines of processes do not mix.

    The reader may be gone, such as a launcher that has died: then do nothing.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class _Barrier:
    """Barrier that this process has called: whether all are there, and the errors of those that failed before."""

    def __init__(self) -> None:
        self.passed = threading.Event()
        self.failures: dict[int, str] = {}


class Control:
    """Control thread of one process. `where` describes the host of each process, and `identities` has what `fence`
    needs to find processes of this host. A process that is silent for `timeout` seconds counts as dead."""

    def __init__(
        self,
        rank: int,
        where: Sequence[str],
        timeout: float,
        listener: socket.socket | None,
        identities: Sequence[Sequence[Any]] = (),
    ) -> None:
        self.page = Page(rank)
        self.rank, self.size, self._where = rank, len(where), where
        self.verdict: Verdict | None = None
        self.everybody_ended = threading.Event()
        self.sync_step: int | None = None  # the step at which all processes stop, once one of them is preempted
        self.preemption = False
        self._steps_known = threading.Event()
        self._changed = threading.Event()
        self._alarm, self._bell = socket.socketpair()  # a byte ends the thread's wait for messages
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        self._timeout = timeout
        self._listener = listener
        self._links: dict[int, Link] = {}
        self._fence = Fence(identities, rank)
        self._watch = Watch(timeout, self._fence)
        self._reported: set[int] = set()
        self._reports_deadlock = True
        self._asked: dict[int, tuple[float, str]] = {}
        self._steps: dict[int, int] = {}
        self._writing_outbox = threading.Lock()
        self._outbox: list[dict[str, Any]] = []  # messages of other threads, which this one sends
        self._writing_barriers = threading.Lock()
        self._barrier_counts: dict[str, int] = {}
        self._barriers: dict[tuple[str, int], _Barrier] = {}
        self._arrived: dict[tuple[str, int], dict[int, judging.Arrival]] = {}
        self._differ_since: float | None = None
        self._difference: tuple[Difference, float] | None = None  # and when its details were asked for
        self._details: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._run, name="weft control", daemon=True)
        self._stopped = False
        # Functions that are called after a failure, and the threads that run them.
        self._writing_acts = threading.Lock()
        self._acts: list[Callable[[], None]] = []
        self._acting: list[threading.Thread] = []
        # Open MPI's launcher leaves its processes behind when it is killed; that of MPICH does not.
        self._launcher = os.getppid() if "OMPI_COMM_WORLD_SIZE" in os.environ and len(where) > 1 else None

    # -- start and end ---------------------------------------------------------------------------------------------

    @staticmethod
    def listen(bind: str | None, reachable: str | None = None) -> tuple[socket.socket, str]:
        """Return a listening socket for the other processes, and its address and secret as text.

        It is at the address `bind` of this host, by default at all. `reachable` is an address that the others reach.
        """
        listener = wire.listen(bind or "", 0)
        host = bind or reachable or reachable_address()
        return listener, json.dumps([host, listener.getsockname()[1], secrets.token_hex(16)])

    def start(self, address: str, deadline: float) -> None:
        """Connect, and start the thread. Process 0 waits for all others."""
        host, port, token = json.loads(address)
        if self.rank == 0:
            self._links[0] = Link(None)
        try:
            if self._listener is not None:
                self._accept(self._listener, token, deadline)
            elif self.rank:
                connection = socket.create_connection((host, port), max(deadline - time.monotonic(), 0.1))
                connection.sendall(f"{token} {self.rank}\n".encode())
                self._links[0] = Link(connection)
        except OSError as error:
            missing = [r for r in range(self.size) if r not in self._links] if self.rank == 0 else [0]
            names = ", ".join(self._name(r) for r in missing)
            raise ProcessFailureError(
                f"All processes must join in time; there is no connection to {names}: {error}.",
                received=f"process 0 listens at {host}, port {port}",
                failed_processes=missing,
                fix=(
                    "weft.distributed.initialize(initialization_timeout=seconds), called by all processes",
                    "coordinator_bind_address='an address of process 0 that the other hosts can reach'",
                ),
            ) from None
        for link in self._links.values():
            link.heard = time.monotonic()
        self._thread.start()

    def _accept(self, listener: socket.socket, token: str, deadline: float) -> None:
        while len(self._links) < self.size:
            listener.settimeout(max(deadline - time.monotonic(), 0.1))
            connection, _ = listener.accept()
            connection.settimeout(5)
            greeting = read_line(connection).split()
            if len(greeting) == 2 and secrets.compare_digest(greeting[0], token):
                self._links[int(greeting[1])] = Link(connection)
            else:
                connection.close()
        listener.close()

    def end(self, error: str | None) -> None:
        """Announce that this process ends, by this error or without one."""
        self.page.failed = error is not None
        self.page.ended = error or "without an error"
        self._wake()

    def _wake(self) -> None:
        """Let the thread beat now."""
        self._changed.set()
        with contextlib.suppress(OSError):  # a full pipe wakes it too
            self._bell.send(b"!")

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

    def barrier(self, name: str, failure: str | None = None) -> dict[int, str]:
        """Wait until all processes have called it with this name as often as this one.

        It is independent of the order of programs, so any thread may call it.

        Args:
            name: the name of the barrier.
            failure: the error by which this process failed before the barrier, for the others.

        Returns:
            The errors of the processes that have failed, by rank.
        """
        with self._writing_barriers:
            count = self._barrier_counts[name] = self._barrier_counts.get(name, 0) + 1
            own = self._barriers.setdefault((name, count), _Barrier())
        self._post({"barrier": [name, count, failure]})
        while not own.passed.wait(0.1):
            if self.verdict is not None:
                self.verdict.raise_()
        with self._writing_barriers:
            self._barriers.pop((name, count), None)
        return own.failures

    def _post(self, message: dict[str, Any]) -> None:
        """Let the control thread send a message to process 0."""
        with self._writing_outbox:
            self._outbox.append(message)
        self._wake()

    def _pass_barrier(self, rank: int, name: str, count: int, failure: str | None) -> None:
        arrived = self._arrived.setdefault((name, count), {})
        arrived[rank] = judging.Arrival(time.monotonic(), failure)
        if len(arrived) == self.size:
            del self._arrived[name, count]
            self._broadcast({"passed": [name, count, judging.list_failures(arrived)]})

    def _leave_barrier(self, name: str, count: int, failures: list[tuple[int, str]]) -> None:
        with self._writing_barriers:
            own = self._barriers[name, count]
        own.failures = dict(failures)
        own.passed.set()

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
        with selectors.DefaultSelector() as selector, self._alarm, self._bell:
            for rank, link in self._links.items():
                if link.socket is not None:
                    selector.register(link.socket, selectors.EVENT_READ, rank)
            selector.register(self._alarm, selectors.EVENT_READ)
            sent = 0.0
            while not self._stopped:
                for key, _ in selector.select(0.05):
                    if key.fileobj is self._alarm:
                        with contextlib.suppress(OSError):
                            self._alarm.recv(1 << 10)
                    else:
                        self._read(key.data, selector)
                self._watch.pause(self._links)
                if self._launcher not in (None, os.getppid()):
                    say(f"weft: process {self.rank}: the launcher has died")
                    os._exit(113)
                if time.monotonic() - sent >= BEAT or self._changed.is_set():
                    self._changed.clear()
                    sent = time.monotonic()
                    self._beat()
                for link in self._links.values():
                    link.flush()
        for link in self._links.values():
            link.close()

    def _beat(self) -> None:
        """Send what other threads have posted and the page; judge those that this process watches."""
        with self._writing_outbox:
            posted, self._outbox = self._outbox, []
        for message in posted:
            self._tell_first(message)
        if self.rank:
            self._tell_first({"page": self.page.to_json()})
            if self.verdict is None:
                self._judge_silence([0])
        else:
            self._handle(0, {"page": self.page.to_json()})
            doing = {"wait": self.page.wait and [[], self.page.wait[1]], "doing": self.page.doing}
            for rank in range(1, self.size):
                self._links[rank].send({"beat": doing}, droppable=True)
            self._judge()

    def _tell_first(self, message: dict[str, Any]) -> None:
        if self.rank == 0:
            self._handle(0, message)
        else:
            self._links[0].send(message)

    def _broadcast(self, message: dict[str, Any]) -> None:
        for rank in self._links:
            if rank != 0:
                self._links[rank].send(message)
        self._handle(0, message)

    def _tell(self, rank: int, message: dict[str, Any]) -> None:
        if rank == self.rank:
            self._handle(rank, message)
        else:
            self._links[rank].send(message)

    def _read(self, rank: int, selector: selectors.BaseSelector) -> None:
        """Handle the messages of a process, or the end of its socket."""
        link = self._links[rank]
        assert link.socket is not None
        messages = link.receive()
        if messages is None:
            selector.unregister(link.socket)
            link.close()
            self._lost(rank)
        for message in messages or ():
            self._handle(rank, message)

    def _lost(self, rank: int) -> None:
        """Handle the closed socket of a process."""
        if self.everybody_ended.is_set() or self._stopped:
            return
        if rank == 0 or self._links[rank].page.get("ended") is None:
            self._fail(Verdict("died", f"{self._name(rank)} has died; {self._last(rank)}.", (rank,)))

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        for kind, value in message.items():
            match kind:
                case "page" | "beat":
                    self._links[rank].page = value
                    self._links[rank].heard = time.monotonic()
                case "verdict":
                    self._fail_here(Verdict(value[0], value[1], tuple(value[2]), value[3]))
                case "report":
                    say(value)
                case "stack?":
                    self._tell_first({"stack": python_stack()})
                case "stack":
                    self._report_stuck(rank, value)
                case "details?":
                    self._tell_first({"details": self.page.find_details(*value)})
                case "details":
                    self._details[rank] = value
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
                    self._leave_barrier(*value)
                case "fence":
                    for silent in value:
                        self._fence.kill(silent)
                case "abort":
                    time.sleep(2 * BEAT)  # the others find out too, before this looks like a death
                    self._handle(rank, {"fence": value})
                    os._exit(113)

    def _fail(self, verdict: Verdict) -> None:
        if self.rank:
            self._fail_here(verdict)
        elif self.verdict is None:
            self._broadcast({"verdict": [verdict.kind, verdict.text, list(verdict.processes), verdict.received]})

    def _fail_here(self, verdict: Verdict) -> None:
        if self.verdict is None:
            with self._writing_acts:  # a thread that sees the verdict finds its functions started
                for act in self._acts:
                    self._act(act)
                self.verdict = verdict
            if self.page.ended is None:
                say(f"weft: process {self.rank}: {verdict.text}")

    # -- verdicts --------------------------------------------------------------------------------------------------

    def _name(self, rank: int) -> str:
        return f"Process {rank} ({self._where[rank]})"

    def _last(self, rank: int) -> str:
        page = self._links[rank].page
        wait = page.get("wait")
        doing = f"waiting in {wait[1]}, in" if wait else "done with, or in,"
        last = page.get("doing", NOTHING_YET)
        # It may have begun something since.
        here = "" if last == self.page.doing else f"; process {self.rank} was in {self.page.doing}"
        return f"when last heard of it was {doing} {last}{here}"

    def _judge(self) -> None:
        """Compare the pages of all processes, and broadcast what follows."""
        now = time.monotonic()
        pages = {rank: link.page for rank, link in self._links.items() if link.page}
        checks = self._judge_order, self._judge_ended, self._judge_silent, self._judge_stuck, self._judge_deadlock
        for check in checks:
            if self.verdict is None:
                check(pages, now)
        if len(pages) == self.size and all(page["ended"] is not None for page in pages.values()):
            self._broadcast({"ended": True})
        if not self.preemption and any(page["preempted"] for page in pages.values()):
            self._broadcast({"step?": True})

    def _judge_order(self, pages: dict[int, Any], now: float) -> None:
        if self._difference is None:
            found = judging.find_difference(pages, lambda a, b: self._is_compared(now, a, b))
            if found is None:
                return
            self._difference = found, now
            for rank, _ in (found.first, found.second):
                self._tell(rank, {"details?": [found.ranks, found.number]})
        found, asked = self._difference
        ranks = [found.first[0], found.second[0]]
        if not all(rank in self._details for rank in ranks) and now - asked < ANSWER:
            return
        first, second = (self._details.get(rank) for rank in ranks)
        received = None
        if first and second and first[0] != second[0]:
            received = first_difference(first, ranks[0], second, ranks[1])
        does = [f"{self._name(r)} does {what}".replace("P", "p", 1) for r, what in (found.first, found.second)]
        text = f"Processes do different things together: {does[0]}, {does[1]} (call {found.number})."
        self._fail(Verdict("mismatch", text, (), received))

    def _is_compared(self, now: float, *ranks: int) -> bool:
        """Return whether processes that differ are in a comparison, which reports the difference in detail."""
        comparing = [self._links[rank].page["comparing"] for rank in ranks]
        if not any(comparing):
            return False
        since = self._differ_since = self._differ_since or now
        return now - since < (COMPARISON if all(comparing) else COMPARISON_OF_ONE)

    def _judge_ended(self, pages: dict[int, Any], now: float) -> None:
        found = judging.find_absent(pages, self._arrived)
        if found is not None:
            text = f"{self._name(found.rank)} has ended ({pages[found.rank]['ended']}) while others wait for it"
            self._fail(Verdict("died", f"{text} in {found.what}.", (found.rank,)))

    def _judge_silent(self, pages: dict[int, Any], now: float) -> None:
        self._judge_silence([rank for rank, page in pages.items() if rank and page["ended"] is None])

    def _judge_silence(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            for finding in self._watch.look(self._links, self._name(rank), self._last(rank), rank):
                tell_all = self._broadcast if self.rank == 0 else lambda message: self._handle(self.rank, message)
                if finding.kind == "report":
                    tell_all({"report": f"weft: {finding.text}"})
                elif finding.kind == "stuck":
                    self._abort(rank, finding.text, tell_all)
                else:
                    self._fail(Verdict("died", finding.text, (rank,)))
                    tell_all({"fence": [rank, *self._watch.silent_ranks()]})  # they must not come back, and write files

    def _judge_stuck(self, pages: dict[int, Any], now: float) -> None:
        late = judging.find_late(pages, self._arrived, config.stuck_after, now)
        self._reported &= late.keys()
        for rank, (what, seconds, count) in late.items():
            if rank not in self._reported and rank not in self._watch.silent_ranks():
                self._reported.add(rank)
                self._asked[rank] = now, f"is not in {what}, for {seconds:.0f} s; {count} others wait"
                self._tell(rank, {"stack?": True})
            elif rank in self._asked and now - self._asked[rank][0] > ANSWER:
                self._report_stuck(rank, "  (it does not answer)\n")
            if config.abort_after and seconds > config.abort_after:
                self._abort(rank, f"{self._name(rank)} is stuck", self._broadcast)

    def _judge_deadlock(self, pages: dict[int, Any], now: float) -> None:
        found = judging.find_deadlock(pages, self.size, config.stuck_after)
        if found is not None and self._reports_deadlock:
            text = f"weft: all processes wait for messages of each other, for {found.seconds:.0f} s: {found.what}"
            self._broadcast({"report": text})
        if found is not None and config.abort_after and found.seconds > config.abort_after:
            self._abort(-1, "the processes wait for each other", self._broadcast)
        self._reports_deadlock = found is None

    def _report_stuck(self, rank: int, stack: str) -> None:
        asked = self._asked.pop(rank, None)
        if asked is not None:
            self._broadcast({"report": f"weft: {self._name(rank)} {asked[1]}. It is in:\n{stack}"})

    def _abort(self, rank: int, why: str, tell_all: Callable[[dict[str, Any]], None]) -> None:
        tell_all({"report": f"weft: aborting all processes, since {why} (abort_after)"})
        tell_all({"abort": [rank, *self._watch.silent_ranks()]})
