"""A job: its hosts, what it does when a process fails or a signal arrives, and its restarts."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from weft.base.joining import wire
from weft.base.joining.coordinator import Coordinator
from weft.base.joining.reactor import Link, Pipe, Reactor
from weft.base.joining.wire import Address
from weft.launch.children import Exit, Lines
from weft.launch.nodes import LocalNode, Node, RemoteNode, Work, variables_for_others
from weft.launch.options import Options, remote_command, share
from weft.launch.output import Output, say

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED = (signal.SIGUSR1, signal.SIGUSR2)
# Seconds between SIGTERM and SIGKILL for processes that have not ended after a failure.
LAST_SECONDS = 3.0
# A second signal that comes later than this after the first kills at once.
DELIBERATE_SECONDS = 1.0
LOCAL = ("localhost", "127.0.0.1", "::1")


def node_token(options: Options) -> str:
    """Return the secret between launchers of hosts that are started by other means."""
    return os.environ.get("WEFT_JOB_TOKEN") or f"{options.nodes} nodes"


class Job:
    """Processes on all hosts, started and ended together."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.reactor = Reactor()
        self.output = Output(options.has_prefix, options.log_directory)
        self.identity, self._secret = secrets.token_hex(4), secrets.token_hex(16)
        self._signals: list[int] = []
        self.is_stopping = False  # whether a signal has ended the job
        self._remote: dict[int, subprocess.Popen[bytes]] = {}
        self._visitors: dict[int, RemoteNode] = {}
        self.names, self.counts = self._plan()
        self.nodes: list[Node | None] = [None] * len(self.names)
        many = any(name is not None for name in self.names)
        wanted = options.rendezvous
        # Port 0 is any free one; processes get it with the address.
        listener = wire.listen("" if many else "127.0.0.1", wanted.port if wanted is not None else 0)
        self.coordinator = Coordinator(listener, options.processes, self._token(0), self.reactor)
        self.coordinator.visitor_token = node_token(options)
        self.coordinator.on_visitor = self._receive_node
        host = wanted.host if wanted is not None else _reachable_name(self.names) if many else "127.0.0.1"
        self.address = Address(host, self.coordinator.port)

    def _plan(self) -> tuple[list[str | None], list[int]]:
        """Return the names of the hosts (None is this one) and their numbers of processes."""
        options = self.options
        if options.hosts:
            counts = share(options.processes, [h.slots for h in options.hosts])
            used = [(h.name, count) for h, count in zip(options.hosts, counts, strict=True) if count]
            local = LOCAL if "ssh" in options.remote else ()
            return [None if name in local else name for name, _ in used], [count for _, count in used]
        counts = share(options.processes, [None] * options.nodes)
        return [None if i == 0 else f"node {i}" for i in range(options.nodes)], counts

    def _token(self, attempt: int) -> str:
        return f"{self._secret}.{attempt}"

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run the job, with its restarts; return its exit code."""
        code = 1
        with self._hear_signals():
            try:
                for attempt in range(self.options.restarts + 1):
                    code = self._run_once(attempt)
                    left = self.options.restarts - attempt - 1
                    if code == 0 or self.is_stopping or left < 0:
                        break
                    say(f"ended with code {code}; starting again, {left} restarts left")
            finally:
                self._close(code)
        return code

    def _run_once(self, attempt: int) -> int:
        self.output.begin(attempt)
        if attempt:
            self.coordinator.restart(self._token(attempt))
        try:
            nodes = self._connect()
        except TimeoutError as error:
            say(str(error))
            return 1
        first = 0
        for node, count in zip(nodes, self.counts, strict=True):
            node.start(self._work(attempt, range(first, first + count), isinstance(node, LocalNode)))
            first += count
        return Run(self, nodes).wait()

    def _work(self, attempt: int, ranks: range, is_here: bool) -> Work:
        options = self.options
        settings = {
            "WEFT_COORDINATOR_ADDRESS": str(self.address),
            "WEFT_NUM_PROCESSES": str(options.processes),
            "WEFT_JOB_TOKEN": self._token(attempt),
            "WEFT_JOB_ID": self.identity,
            "WEFT_RESTART_COUNT": str(attempt),
        }
        if options.devices is not None:
            settings["WEFT_NUM_CPU_DEVICES"] = str(options.devices)
        if options.interface is not None:
            settings["WEFT_NETWORK_INTERFACE"] = options.interface
        by_ssh = bool(options.hosts) and not is_here
        if by_ssh:
            settings = {**variables_for_others(os.environ), **settings}
        return Work(attempt, list(ranks), options.command, settings, os.getcwd() if by_ssh else None)

    # -- hosts -----------------------------------------------------------------------------------------------------

    def _connect(self) -> list[Node]:
        """Return all hosts, after their launchers have connected; raise TimeoutError with those that have not."""
        for i, name in enumerate(self.names):
            node = self.nodes[i]
            if name is None and node is None:
                self.nodes[i] = LocalNode(self.reactor, self.output.write, self._hear_pmi)
            elif node is None or (isinstance(node, RemoteNode) and node.is_lost):
                self.nodes[i] = self._reach(i, name or "") if self.options.hosts else self._visitors.pop(i, None)
        deadline = time.monotonic() + self.options.timeout
        while any(node is None for node in self.nodes):
            if time.monotonic() > deadline or self._signals:
                missing = [i for i, node in enumerate(self.nodes) if node is None]
                names = ", ".join(f"node {i}" for i in missing)
                raise TimeoutError(f"{names} did not connect to {self.address} within {self.options.timeout:.0f} s")
            self.reactor.step(0.1)
            for i in [i for i, node in enumerate(self.nodes) if node is None]:
                self.nodes[i] = self._visitors.pop(i, None)
        return [node for node in self.nodes if node is not None]

    def _reach(self, index: int, host: str) -> RemoteNode:
        """Start an agent on a host; its messages go through the input and output of the command that reaches it."""
        path = os.environ.get("PYTHONPATH")
        variables = ["env", f"PYTHONPATH={path}"] if path else []
        agent = [*variables, self.options.python or sys.executable, "-m", "weft.launch", "--agent"]
        mine, other = socket.socketpair()
        with other:
            process = subprocess.Popen(
                remote_command(self.options.remote, host, agent),
                stdin=other.fileno(),
                stdout=other.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        assert process.stderr is not None
        lines = Lines(lambda line: say(f"{host}: {line.decode(errors='replace').rstrip()}"))
        with process.stderr:
            Pipe(self.reactor, os.dup(process.stderr.fileno()), lines.feed)
        self._remote[index] = process
        return RemoteNode(host, Link(self.reactor, mine), self.output.write, self._hear_pmi)

    def _receive_node(self, hello: dict[str, Any], link: Link) -> None:
        """Handle the launcher of another host that connects."""
        rank, expected = hello.get("rank"), len(self.names)
        if self.options.hosts or not isinstance(rank, int) or not 0 < rank < expected or hello.get("size") != expected:
            link.send(wire.encode({"refused": f"node {rank} of {hello.get('size')} is not one of {expected} nodes"}))
            link.close_when_sent()
            return
        taken = self.nodes[rank]
        if rank in self._visitors or (isinstance(taken, RemoteNode) and not taken.is_lost):
            link.send(wire.encode({"refused": f"node {rank} has connected already; each needs its own --node-rank"}))
            link.close_when_sent()
            return
        name = f"node {rank} ({hello.get('where')})"
        self._visitors[rank] = RemoteNode(name, link, self.output.write, self._hear_pmi)

    def _hear_pmi(self, rank: int, line: str) -> None:
        """Handle a command of PMI of a process that initializes MPI by itself."""
        for other, reply in self.coordinator.pmi.handle(rank, line):
            node = self.nodes[bisect.bisect_right([*itertools.accumulate(self.counts)], other)]
            if node is not None:
                node.answer_pmi(other, reply)

    def _close(self, code: int) -> None:
        for node in [*self.nodes, *self._visitors.values()]:
            if node is not None:
                node.end(code)
        until = time.monotonic() + LAST_SECONDS
        while any(isinstance(n, RemoteNode) and not n.is_lost for n in self.nodes) and time.monotonic() < until:
            self.reactor.step(0.05)
        for process in self._remote.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.coordinator.release()
        self.output.close()

    # -- signals ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _hear_signals(self) -> Iterator[None]:
        """Collect signals in the block, but those that were ignored before."""
        before = {s: signal.getsignal(s) for s in (*ENDING, *PASSED) if signal.getsignal(s) is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, lambda number, frame: self._signals.append(number))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def take_signals(self) -> list[int]:
        """Return the signals that have arrived since the last call, here or at other launchers."""
        found, self._signals = self._signals, []
        if self.output.is_broken and not self.is_stopping:
            found.append(signal.SIGTERM)  # its reader has ended, as in `python -m weft.launch ... | head`
        for node in self.nodes:
            if isinstance(node, RemoteNode) and node.received_signal is not None:
                found.append(node.received_signal)
                node.received_signal = None
        self.is_stopping |= any(number in ENDING for number in found)
        return found


class Run:
    """One start of all processes, until all have ended."""

    def __init__(self, job: Job, nodes: list[Node]) -> None:
        self._job, self._nodes, self._options = job, nodes, job.options
        self._left = job.options.processes
        self._code = 0
        self._failed_at = self._stopped_at = self._terminated_at = float("inf")

    def wait(self) -> int:
        """Wait until all processes have ended; return the code of the first failure, or 0."""
        while self._left:
            self._job.reactor.step(0.02)
            self._job.coordinator.check()
            for number in self._job.take_signals():
                self._pass_signal(number)
            for node in self._nodes:
                for ended in node.poll():
                    self._handle_end(ended)
            self._escalate(time.monotonic())
        return self._code

    def _handle_end(self, ended: Exit) -> None:
        self._left -= 1
        if ended.code == 0:
            if ended.rank not in self._job.coordinator.members:
                text = f"Process {ended.rank} ({ended.where}) has ended without weft.distributed.initialize."
                self._job.coordinator.fail(text, (ended.rank,))
            return
        if self._code:
            return
        self._code = ended.code
        how = f"ended with code {ended.code}" if ended.code <= 128 else f"was killed by {_signal_name(ended.code)}"
        what = f"process {ended.rank} ({ended.where}) {how}" + (f": {ended.text}" if ended.text else "")
        if self._job.is_stopping:
            return
        say(what + (f"; ending the other {self._left}" if self._left else ""))
        self._failed_at = time.monotonic()
        self._job.coordinator.fail(f"{what[0].upper()}{what[1:]}, before all processes had joined.", (ended.rank,))

    def _pass_signal(self, number: int) -> None:
        now = time.monotonic()
        if number not in ENDING:
            self._signal(number)
        elif self._stopped_at == float("inf"):
            self._stopped_at = now
            self._signal(number)
        elif now - self._stopped_at > DELIBERATE_SECONDS:
            self._kill()

    def _escalate(self, now: float) -> None:
        """End the processes that have had time enough."""
        if now > self._stopped_at + self._options.stop_after:
            self._kill()
        elif now > self._stopped_at + self._options.grace:
            self._kill(only_stopped=True)
        if now > self._failed_at + self._options.grace and self._terminated_at == float("inf"):
            self._terminated_at = now
            self._kill(only_stopped=True)
            self._signal(signal.SIGTERM)
        if now > self._terminated_at + LAST_SECONDS:
            self._kill()

    def _signal(self, number: int) -> None:
        for node in self._nodes:
            node.signal(number)

    def _kill(self, only_stopped: bool = False) -> None:
        for node in self._nodes:
            node.kill(only_stopped)


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return f"signal {code - 128}" if code < 255 else "the end of its launcher"


def _reachable_name(names: list[str | None]) -> str:
    """Return the address of this host on the way to the first other one; no packet is sent."""
    other = next(name for name in names if name is not None)
    for target in (other, "192.0.2.1"):
        with contextlib.suppress(OSError):
            family, _, _, _, address = socket.getaddrinfo(target.rpartition("@")[2], 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return socket.gethostname()
