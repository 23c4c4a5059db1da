"""Start by the launcher of an MPI, which processes of Open MPI need in order to join."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from weft.launch.children import share_cores
from weft.launch.options import Options
from weft.launch.output import say

# MPICH's launcher kills all processes of a host as soon as one of them fails, whatever its options are. So each process
# runs in a shell that reports the failure later, after the others have reported which process has died, and where. The
# shell ignores signals: they are for the process, and a shell that ends by one makes the launcher's processes fail.
_LINGERS = 'trap : INT TERM USR1; "$@" || { code=$?; trap "" INT USR1; sleep 2; exit $code; }'


def mpiexec(name: str = "mpiexec") -> str | None:
    """Find the launcher of MPI: beside the Python interpreter (that of a wheel), or else on the PATH."""
    beside = pathlib.Path(sys.executable).parent
    return shutil.which(name, path=str(beside)) or shutil.which(name)


def version(launcher: str) -> str:
    """Return what a launcher says about itself."""
    return subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout


def is_open_mpi() -> bool:
    """Return whether the MPI of this environment has Open MPI's launcher."""
    # MPICH's wheel has this program beside the launcher, so the launcher need not be started to know.
    if pathlib.Path(sys.executable).with_name("mpichversion").exists():
        return False
    launcher = mpiexec()
    return launcher is not None and "Open MPI" in version(launcher)


def command(launcher: str, count: int, arguments: Sequence[str]) -> list[str]:
    """Return the command by which a launcher starts `count` processes of Python."""
    # Weft reports which process has died, and ends the others or continues; launchers would end them before.
    options, shell = _surviving(launcher)
    return [launcher, *options, "-n", str(count), *shell, sys.executable, *arguments]


def _surviving(launcher: str) -> tuple[list[str], list[str]]:
    """Return options of a launcher, and a command prefix, that keep the other processes alive when one has died."""
    if pathlib.Path(launcher).name == "srun":
        return [], []
    text = version(launcher)
    open_mpi = re.search(r"Open MPI\) (\d+)", text)
    if open_mpi:
        return ["--with-ft", "ulfm"] if int(open_mpi[1]) >= 5 else [], []
    return (["-disable-auto-cleanup"], ["sh", "-c", _LINGERS, "sh"]) if "HYDRA" in text.upper() else ([], [])


def run(options: Options) -> int:
    """Start the processes by a launcher of MPI. Without restarts it replaces this process."""
    name = "mpiexec" if options.launcher == "auto" else options.launcher
    launcher = mpiexec(name)
    if launcher is None:
        say(f"there must be {name} beside Python or on the PATH; --launcher weft needs none")
        return 2
    settings = {**share_cores(options.processes, os.environ), **os.environ}
    if options.devices is not None:
        settings["WEFT_NUM_CPU_DEVICES"] = str(options.devices)
    started = command(launcher, options.processes, options.command)
    if not options.restarts and os.name == "posix":
        sys.stdout.flush()
        sys.stderr.flush()
        # The launcher replaces this process, so it gets all signals, and its exit code is ours.
        os.execve(launcher, started, {**settings, "WEFT_RESTART_COUNT": "0"})
    for restart in range(options.restarts + 1):
        code, is_stopping = _run(started, {**settings, "WEFT_RESTART_COUNT": str(restart)})
        if code == 0 or is_stopping or restart == options.restarts:
            break
        say(f"ended with code {code}; starting again, {options.restarts - restart - 1} restarts left")
    return code


def _run(started: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bool]:
    """Run a launcher; return its exit code as shells have it, and whether a signal has ended it.

    It receives the signals of this process, and has as much time as it needs.
    """
    received: list[int] = []
    early: list[int] = []  # signals before the launcher was started
    running: list[subprocess.Popen[bytes]] = []

    def forward(signum: int, frame: object) -> None:
        received.append(signum)
        if not running:
            early.append(signum)
        # Signals of a terminal go to all of its processes: a second one would end them at once.
        elif signum == signal.SIGTERM or not _has_terminal():
            running[0].send_signal(signum)

    ending = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    heard = [s for s in ending if signal.getsignal(s) is not signal.SIG_IGN]
    before = {s: signal.signal(s, forward) for s in heard}
    try:
        running.append(subprocess.Popen(started, env=dict(environment)))
        for signum in early[:1]:
            running[0].send_signal(signum)
        code = running[0].wait()
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
    return (code if code >= 0 else 128 - code), bool(received)


def _has_terminal() -> bool:
    """Return whether this process is in the foreground group of a terminal, which receives its signals."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
