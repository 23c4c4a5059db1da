"""Start a script in several processes: `python -m weft.launch -n 4 train.py arguments`."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

from weft.base.errors import ArgumentError


def mpiexec() -> str | None:
    """Find the launcher of MPI: beside the Python interpreter (that of a wheel), or else on the PATH."""
    beside = pathlib.Path(sys.executable).parent
    return shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec") or shutil.which("srun")


# MPICH's launcher kills all processes of a host as soon as one of them fails, whatever its options are. So each process
# runs in a shell that reports the failure later, after the others have reported which process has died, and where. The
# shell ignores signals: they are for the process, and a shell that ends by one makes the launcher's processes fail.
_LINGERS = 'trap : INT TERM USR1; "$@" || { code=$?; trap "" INT USR1; sleep 2; exit $code; }'


def command(launcher: str, count: int, arguments: Sequence[str]) -> list[str]:
    """Return the command by which a launcher starts `count` processes of Python."""
    # Weft reports which process has died, and ends the others or continues; launchers would end them before.
    options, shell = _surviving(launcher)
    return [launcher, *options, "-n", str(count), *shell, sys.executable, *arguments]


def _surviving(launcher: str) -> tuple[list[str], list[str]]:
    """Return options of a launcher, and a command prefix, that keep the other processes alive when one has died."""
    if pathlib.Path(launcher).name == "srun":
        return [], []
    told = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    open_mpi = re.search(r"Open MPI\) (\d+)", told)
    if open_mpi:
        return ["--with-ft", "ulfm"] if int(open_mpi[1]) >= 5 else [], []
    return (["-disable-auto-cleanup"], ["sh", "-c", _LINGERS, "sh"]) if "HYDRA" in told.upper() else ([], [])


def environment(count: int) -> dict[str, str]:
    """Return the environment of the processes, which share the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > cores:
        print(
            f"weft.launch: {count} processes on {cores} cores: they wait for each other by polling, which is slow "
            "when they share cores. One process with several devices (WEFT_NUM_CPU_DEVICES) is faster.",
            file=sys.stderr,
        )
    share = str(max(1, cores // count))
    return {"WEFT_NUM_THREADS": share, "OPENBLAS_NUM_THREADS": share, **os.environ}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes, and return the exit code of the launcher.

    Without restarts the launcher replaces this process.
    """
    parser = argparse.ArgumentParser(prog="python -m weft.launch", description=__doc__)
    parser.add_argument("-n", "--processes", type=int, required=True, help="number of processes")
    parser.add_argument("-d", "--devices", type=int, help="CPU devices of each process (WEFT_NUM_CPU_DEVICES)")
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module, as in python -m")
    parser.add_argument("-r", "--restarts", type=int, default=0, help="most restarts of all processes after a failure")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.processes < 1:
        parser.error("-n must be at least 1")
    launcher = mpiexec()
    if launcher is None:
        raise ArgumentError(
            "weft.launch needs an mpiexec beside Python or on the PATH; there is none.",
            fix="pip install 'weft-jit[mpi]'   or the MPI of the system",
        )
    settings = environment(options.processes)
    if options.devices is not None:
        settings["WEFT_NUM_CPU_DEVICES"] = str(options.devices)
    script = ["-m", options.script] if options.module else [options.script]
    started = command(launcher, options.processes, [*script, *options.arguments])
    if not options.restarts and os.name == "posix":
        sys.stdout.flush()
        sys.stderr.flush()
        # The launcher replaces this process, so it gets all signals, and its exit code is ours.
        os.execve(launcher, started, {**settings, "WEFT_RESTART": "0"})
    for restart in range(options.restarts + 1):
        code, told_to_end = _run(started, {**settings, "WEFT_RESTART": str(restart)})
        if code == 0 or told_to_end or restart == options.restarts:
            break
        left = options.restarts - restart - 1
        print(f"weft.launch: ended with code {code}; starting again, {left} restarts left", file=sys.stderr, flush=True)
    return code


def _run(started: Sequence[str], environment: dict[str, str]) -> tuple[int, bool]:
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
        running.append(subprocess.Popen(started, env=environment))
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


if __name__ == "__main__":
    sys.exit(main())
