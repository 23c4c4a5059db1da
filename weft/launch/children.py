"""The processes of one host: their start, their lines, their ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

from weft.base.joining.reactor import Link, Pipe, Reactor

# A line that grows longer is passed on in parts.
LONGEST_LINE = 1 << 20
_PR_SET_PDEATHSIG = 1
# Last line of a traceback, such as "ValueError: no data".
ERROR = re.compile(rb"[\w.]*(Error|Exception|Interrupt|Exit)\b")


class Lines:
    """Buffer that cuts what a process writes into lines; a carriage return ends one too, as in progress bars."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive, self._rest = receive, b""

    def feed(self, data: bytes) -> None:
        """Add bytes, and pass on the lines that are complete; empty bytes are the end."""
        text = self._rest + data
        if not data:
            self._rest = b""
            if text:
                self._receive(text if text.endswith((b"\n", b"\r")) else text + b"\n")
            return
        # A carriage return at the end may be the first half of an end of line.
        lines = re.findall(rb"[^\r\n]*(?:\r\n|\r(?=[^\n])|\n)", text)
        self._rest = text[sum(map(len, lines)) :]
        for line in lines:
            self._receive(line)
        if len(self._rest) > LONGEST_LINE:
            self._receive(self._rest + b"\n")
            self._rest = b""


class Exit(NamedTuple):
    """End of a process: its index, its exit code as shells have it, where it ran, and the last error it wrote."""

    rank: int
    code: int
    where: str
    text: str = ""


class Child:
    """Process of the job: its index, its pipes, and its exit code in the convention of shells once it has ended."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes], pipes: Sequence[Pipe], pmi: Link) -> None:
        self.rank, self.process, self.pipes, self.pmi = rank, process, pipes, pmi
        self.code: int | None = None
        self.where = f"host {platform.node()}, pid {process.pid}"
        self.last_error = ""

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, without the processes that it has started."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process and all that it has started in its group; also stopped ones end."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        if self.code is None and self._is_over():
            self.kill()
            code = self.process.wait()
            self.code = code if code >= 0 else 128 - code
            for pipe in self.pipes:
                pipe.drain()
            self.pmi.close()
        return self.code

    def _is_over(self) -> bool:
        """Return whether the process has ended. Its number is not used again before it is waited for."""
        if not hasattr(os, "waitid"):
            return self.process.poll() is not None
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def stands_still(self) -> bool:
        """Return whether the process is stopped by a signal, where the system tells."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[:1] == ["T"]
        except OSError:
            return False


class Children:
    """All processes of this host.

    `on_line` receives the index, "out" or "err", and a line with its end; `on_pmi` the index and a command of PMI, for
    programs that use MPI without Weft.
    """

    def __init__(
        self, reactor: Reactor, on_line: Callable[[int, str, bytes], None], on_pmi: Callable[[int, str], None]
    ) -> None:
        self._reactor, self._on_line, self._on_pmi = reactor, on_line, on_pmi
        self.running: dict[int, Child] = {}

    def start(self, ranks: Sequence[int], command: Sequence[str], settings: Mapping[str, str], stdin: bool) -> None:
        """Start a process for each index. With `stdin` the first one reads this process's input, unless it is a
        terminal."""
        library = ctypes.CDLL(None) if sys.platform == "linux" else None

        def die_with_launcher() -> None:
            if library is not None:
                library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        count, shared = len(ranks), share_cores(len(ranks), settings)
        # Lines are put together here, so a process need not collect what it writes.
        shared["PYTHONUNBUFFERED"] = "1"
        for index, rank in enumerate(ranks):
            mine, other = socket.socketpair()
            numbers = {"PROCESS_ID": rank, "LOCAL_PROCESS_ID": index, "LOCAL_NUM_PROCESSES": count}
            own = {f"WEFT_{name}": str(number) for name, number in numbers.items()}
            pmi = {"PMI_FD": str(other.fileno()), "PMI_RANK": str(rank), "PMI_SIZE": settings["WEFT_NUM_PROCESSES"]}
            with other:
                process = subprocess.Popen(
                    [sys.executable, *command],
                    env={**shared, **settings, **own, **pmi},
                    stdin=None if stdin and rank == 0 and not _is_terminal(0) else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=[other.fileno()],
                    preexec_fn=die_with_launcher,  # safe, since this process has one thread
                )
            assert process.stdout is not None and process.stderr is not None
            pipes = [self._pipe(process.stdout, rank, "out"), self._pipe(process.stderr, rank, "err")]
            self.running[rank] = Child(rank, process, pipes, self._link(mine, rank))

    def _link(self, connection: socket.socket, rank: int) -> Link:
        link = Link(self._reactor, connection)
        link.on_line = lambda line: self._on_pmi(rank, line.decode(errors="replace"))
        return link

    def answer_pmi(self, rank: int, line: str) -> None:
        """Send a line of PMI to a process."""
        if rank in self.running:
            self.running[rank].pmi.send(f"{line}\n".encode())

    def _pipe(self, file: IO[bytes], rank: int, stream: str) -> Pipe:
        lines = Lines(lambda line: self._receive(rank, stream, line))
        with file:
            return Pipe(self._reactor, os.dup(file.fileno()), lines.feed)

    def _receive(self, rank: int, stream: str, line: bytes) -> None:
        if stream == "err" and ERROR.match(line):
            self.running[rank].last_error = line.decode(errors="replace").strip()
        self._on_line(rank, stream, line)

    def poll(self) -> list[Exit]:
        """Return the processes that have ended since the last call."""
        ended = [child for child in self.running.values() if child.poll() is not None]
        for child in ended:
            del self.running[child.rank]
        return [Exit(child.rank, child.code or 0, child.where, child.last_error) for child in ended]

    def signal(self, number: int) -> None:
        """Send a signal to all; those that are stopped continue, so that they can handle it."""
        for child in self.running.values():
            child.signal(number)

    def kill(self, only_stopped: bool = False) -> None:
        """Kill all processes, or those that are stopped."""
        for child in self.running.values():
            if not only_stopped or child.stands_still():
                child.kill()


def share_cores(count: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings by which processes of a host share its cores; warn if they are more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > cores and "WEFT_NUM_THREADS" not in settings:
        print(
            f"weft.launch: {count} processes on {cores} cores: they wait for each other by polling, which is slow "
            "when they share cores. One process with several devices (WEFT_NUM_CPU_DEVICES) is faster.",
            file=sys.stderr,
            flush=True,
        )
    threads = str(max(1, cores // count))
    return {"WEFT_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}


def _is_terminal(file: int) -> bool:
    try:
        return os.isatty(file)
    except OSError:
        return True
