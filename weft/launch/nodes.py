"""The hosts of a job, as the first launcher sees them: this one, and others that an agent represents.

An agent is a launcher on another host. It exchanges lines of JSON with the first one, through ssh or a socket: commands
(start, signal, kill, end) against lines, exits and heartbeats.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from weft.base.joining.reactor import Link, Reactor
from weft.base.joining.wire import decode, encode
from weft.launch.children import Children, Exit
from weft.launch.folder import make_directory
from weft.launch.output import Output, say

# Seconds between heartbeats, and of silence after which a host counts as lost.
BEAT, LOST = 2.0, 20.0
OnLine = Callable[[int, str, bytes], None]
OnPmi = Callable[[int, str], None]
# Variables of the first host that describe it, or its user there, and not the job.
OF_HOST = ("HOME", "HOSTNAME", "SHELL", "USER", "LOGNAME", "MAIL", "TERM", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "_")
OF_HOST_PREFIXES = ("SSH_", "XDG_", "DISPLAY", "DBUS_", "SLURM_", "PMI")


class Work(NamedTuple):
    """Processes that a host starts. `settings` are variables besides those that the host has itself."""

    attempt: int
    ranks: Sequence[int]
    command: Sequence[str]
    settings: Mapping[str, str]
    directory: str | None = None


class Node(Protocol):
    """Host of a job."""

    name: str

    def start(self, work: Work) -> None:
        """Start processes."""
        ...

    def poll(self) -> list[Exit]:
        """Return the processes that have ended since the last call."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to all processes."""
        ...

    def kill(self, only_stopped: bool = False) -> None:
        """Kill all processes, or those that are stopped."""
        ...

    def answer_pmi(self, rank: int, line: str) -> None:
        """Send a line of PMI to a process of this host."""
        ...

    def end(self, code: int) -> None:
        """End what represents the host, whose launcher ends with this code."""
        ...


class LocalNode:
    """Host of this launcher itself."""

    def __init__(self, reactor: Reactor, on_line: OnLine, on_pmi: OnPmi, reads_input: bool = True) -> None:
        self.name = "this host"
        self._children = Children(reactor, on_line, on_pmi)
        self._reads_input = reads_input
        self._directory: pathlib.Path | None = None

    def start(self, work: Work) -> None:
        if work.directory is not None:
            os.chdir(work.directory)
        # It stays the same when processes are started again, for state that they hand over.
        if self._directory is None:
            self._directory = make_directory(work.settings["WEFT_JOB_ID"])
        settings = {**os.environ, **work.settings, "WEFT_JOB_DIRECTORY": str(self._directory)}
        self._children.start(work.ranks, work.command, settings, self._reads_input)

    def poll(self) -> list[Exit]:
        return self._children.poll()

    def signal(self, number: int) -> None:
        self._children.signal(number)

    def kill(self, only_stopped: bool = False) -> None:
        self._children.kill(only_stopped)

    def answer_pmi(self, rank: int, line: str) -> None:
        self._children.answer_pmi(rank, line)

    def end(self, code: int) -> None:
        self._children.kill()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class RemoteNode:
    """Host behind an agent."""

    def __init__(self, name: str, link: Link, on_line: OnLine, on_pmi: OnPmi) -> None:
        self.name, self._link, self._on_line, self._on_pmi = name, link, on_line, on_pmi
        self._running: set[int] = set()
        self._exits: list[Exit] = []
        self._heard = self._beat = time.monotonic()
        self.is_lost = False
        self.received_signal: int | None = None
        link.on_line, link.on_end = self._hear, lambda: self._lose("has ended")

    def start(self, work: Work) -> None:
        self._running = set(work.ranks)
        self._link.send(encode({"start": work._asdict()}))

    def poll(self) -> list[Exit]:
        now = time.monotonic()
        if now - self._heard > LOST and not self.is_lost:
            self._link.close()
            self._lose(f"has not been heard of for {LOST:.0f} s")
        if now - self._beat > BEAT:
            self._beat = now
            self._link.send(encode({"beat": True}))
        found, self._exits = self._exits, []
        return found

    def signal(self, number: int) -> None:
        self._link.send(encode({"signal": number}))

    def kill(self, only_stopped: bool = False) -> None:
        self._link.send(encode({"kill": only_stopped}))

    def answer_pmi(self, rank: int, line: str) -> None:
        self._link.send(encode({"pmi": [rank, line]}))

    def end(self, code: int) -> None:
        self._link.send(encode({"end": code}))

    def _hear(self, line: bytes) -> None:
        self._heard = time.monotonic()
        try:
            message = decode(line)
        except ValueError:  # what a login script prints
            say(f"{self.name}: {line.decode(errors='replace')}")
            return
        for kind, value in message.items():
            match kind:
                case "line":
                    self._on_line(value[0], value[1], value[2].encode("latin-1"))
                case "exit":
                    self._running.discard(value[0])
                    self._exits.append(Exit(*value))
                case "pmi":
                    self._on_pmi(*value)
                case "signal":
                    self.received_signal = value

    def _lose(self, reason: str) -> None:
        """Count all processes of the host as dead."""
        if not self.is_lost:
            self.is_lost = True
            text = f"the launcher of {self.name} {reason}"
            self._exits += [Exit(rank, 255, self.name, text) for rank in sorted(self._running)]
            self._running.clear()


class Agent:
    """Launcher of a host that starts what the first launcher says. Lines go to `output`, or to the first launcher."""

    def __init__(self, reactor: Reactor, link: Link, output: Output | None) -> None:
        self._reactor, self._link, self._output = reactor, link, output
        on_pmi = lambda rank, line: self._send({"pmi": [rank, line]})
        self._node = LocalNode(reactor, self._pass, on_pmi, reads_input=False)
        self._heard = self._beat = time.monotonic()
        self._code: int | None = None
        self._received: list[int] = []
        link.on_line, link.on_end = self._hear, self._lose

    def run(self) -> int:
        """Work until the first launcher ends the job or is lost; return the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self._received.append(number))
        while self._code is None:
            self._reactor.step(0.05)
            for found in self._node.poll():
                self._send({"exit": list(found)})
            while self._received:
                self._send({"signal": self._received.pop(0)})
            now = time.monotonic()
            if now - self._beat > BEAT:
                self._beat = now
                self._send({"beat": True})
            if now - self._heard > LOST:
                say(f"the first launcher has not been heard of for {LOST:.0f} s")
                self._code = 1
        self._node.end(self._code)
        return self._code

    def _send(self, message: Mapping[str, Any]) -> None:
        self._link.send(encode(dict(message)))

    def _pass(self, rank: int, stream: str, line: bytes) -> None:
        if self._output is not None:
            self._output.write(rank, stream, line)
        else:
            self._send({"line": [rank, stream, line.decode("latin-1")]})

    def _lose(self) -> None:
        if self._code is None:
            say("the first launcher has ended; ending the processes of this host")
            self._code = 1

    def _hear(self, line: bytes) -> None:
        self._heard = time.monotonic()
        for kind, value in decode(line).items():
            match kind:
                case "start":
                    self._start(Work(**value))
                case "signal":
                    self._node.signal(value)
                case "kill":
                    self._node.kill(value)
                case "pmi":
                    self._node.answer_pmi(*value)
                case "end":
                    self._code = value
                case "refused":
                    say(value)
                    self._code = 1

    def _start(self, work: Work) -> None:
        if self._output is not None:
            self._output.begin(work.attempt)
        try:
            self._node.start(work)
        except OSError as error:
            for rank in work.ranks:
                self._send({"exit": [rank, 126, "not started", f"{error.strerror}: {error.filename}"]})


def variables_for_others(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that processes on other hosts get from this one."""
    return {n: v for n, v in environment.items() if n not in OF_HOST and not n.startswith(OF_HOST_PREFIXES)}
