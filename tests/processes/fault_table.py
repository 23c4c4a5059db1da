"""Faults of processes as data, and what all others must say about each, in how many seconds.

`python -m tests.processes.fault_table` runs them with real processes: `--times 5`, `--only NAME`, `--list`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import numpy as np

from tests.processes.launching import ROOT, SCRIPTS, environment
from weft import checkpointing

DEATH, STOP, DIFFERENCE = 2.0, 15.0, 5.0  # seconds until all others are told
END = 20.0  # seconds until all processes have ended after that, unless the fault says otherwise
LATEST = 150.0  # seconds that a run may take: longer is a hang
DIED = r"Process {rank} \(host [^)]*, pid \d+\) has died"
ENDED = r"Process {rank} \(host [^)]*, pid \d+\) has ended \({how}"
SILENT = r"Process {rank} \(host [^)]*, pid \d+\) does not answer for \d+ s"
LATE = r"Process {rank} \(host [^)]*, pid \d+\) is not in "
DIFFERENT = r"Processes do different things together|Processes do not agree on what to run"
NOT_WRITTEN = r"received +process {rank} \(host [^)]*, pid \d+\): OSError"
ENDING = {"WEFT_ABORT_AFTER": "14"}


class Fault(NamedTuple):
    """Fault of one or several processes.

    Attributes:
        name: name of the row.
        what: fault, as scripts/faulty.py has it.
        rank: the process that has it, which is named.
        said: pattern that the standard error must have.
        told: seconds from the fault until it is said.
        others: further processes that have the fault.
        count: number of processes.
        end: seconds from the message until all processes have ended.
        goes_on: whether the processes end without an error.
        settings: environment variables.
        saves: whether checkpoints are written, which must be complete afterwards.
    """

    name: str
    what: str
    rank: int
    said: str
    told: float
    others: tuple[int, ...] = ()
    count: int = 2
    end: float = END
    goes_on: bool = False
    settings: Mapping[str, str] = {}
    saves: bool = False


def ended(how: str) -> str:
    return ENDED.replace("{how}", how)


TABLE = [
    # Before all have joined.
    Fault("killed before initialize", "early_kill", 1, r"process(es)? .*{rank}", 5.0),
    Fault("raises before initialize", "early_raise", 1, "FileNotFoundError: no data on this host", 5.0),
    Fault("first raises before initialize", "early_raise", 0, "FileNotFoundError: no data on this host", 5.0),
    Fault("ends before initialize", "early_exit", 1, r"process(es)? .*{rank}", 5.0),
    Fault("killed while joining", "joining", 1, r"process(es)? .*{rank}", 5.0),
    # Deaths.
    Fault("killed", "kill", 1, DIED, DEATH),
    Fault("first killed", "kill", 0, DIED, DEATH),
    Fault("one of three killed", "kill", 2, DIED, DEATH, count=3),
    Fault("two of three killed", "kill", 1, r"Process [12] \(host [^)]*\) has died", DEATH, (2,), 3),
    Fault("first and another of three killed", "kill", 0, r"Process [01] \(host [^)]*\) has died", DEATH, (1,), 3),
    Fault("killed by another thread", "thread_kill", 1, DIED, DEATH),
    Fault("killed while others sleep", "idle_kill", 1, DIED, DEATH),
    Fault("segmentation fault", "segfault", 1, DIED, DEATH),
    Fault("abort()", "sigabrt", 1, DIED, DEATH),
    Fault("SIGTERM", "sigterm", 1, DIED, DEATH),
    Fault("interrupted", "sigint", 1, ended("KeyboardInterrupt"), DEATH),
    Fault("os._exit", "os_exit", 1, DIED, DEATH),
    Fault("sys.exit(3)", "exit_3", 1, ended(""), DEATH),
    Fault("ends too early", "exit_0", 1, ended("without an error"), DEATH),
    Fault("first ends too early", "exit_0", 0, ended("without an error"), DEATH),
    Fault("raises", "raise", 1, ended("ValueError: no more data"), DEATH),
    Fault("first raises", "raise", 0, ended("ValueError: no more data"), DEATH),
    Fault("one of three raises", "raise", 1, ended("ValueError: no more data"), DEATH, count=3),
    Fault("out of memory", "memory", 1, ended("MemoryError"), DEATH),
    # Stops.
    Fault("stopped", "stop", 1, SILENT, STOP, settings=ENDING),
    Fault("first stopped", "stop", 0, SILENT, STOP, settings=ENDING),
    Fault("two of three stopped", "stop", 1, SILENT, STOP, (2,), 3, settings=ENDING),
    Fault("stopped while it waits", "stop_waiting", 1, SILENT, STOP, settings=ENDING),
    Fault("stopped, heartbeat timeout", "stop", 1, SILENT, STOP, settings={"HEARTBEAT": "13"}),
    Fault("first stopped, heartbeat timeout", "stop", 0, SILENT, STOP, settings={"HEARTBEAT": "13"}),
    Fault("stopped and continued", "stop_and_go", 1, SILENT, STOP, end=30, goes_on=True),
    Fault("first stopped and continued", "stop_and_go", 0, SILENT, STOP, end=30, goes_on=True),
    Fault("stopped at the end", "end_stop", 1, SILENT, STOP, settings=ENDING),
    Fault("keeps the lock", "lock", 1, SILENT, STOP, settings=ENDING),
    Fault("first keeps the lock", "lock", 0, SILENT, STOP, settings=ENDING),
    Fault("sleeps", "sleep", 1, LATE, STOP, settings=ENDING),
    Fault("first sleeps", "sleep", 0, LATE, STOP, settings=ENDING),
    Fault("spins", "spin", 1, LATE, STOP, settings=ENDING),
    # Differences.
    Fault("other shape", "shape", 1, r"argument 0 is f32\[1,5\]", DIFFERENCE),
    Fault("first has another shape", "shape", 0, r"argument 0 is f32\[1,5\]", DIFFERENCE),
    Fault("other program", "program", 1, DIFFERENT, DIFFERENCE),
    Fault("other setting", "setting", 1, r"setting enable_x64 is True", DIFFERENCE),
    Fault("other kind of call", "kind", 1, DIFFERENT, DIFFERENCE),
    # Checkpoints.
    Fault("cannot write", "save_limited", 1, NOT_WRITTEN, DIFFERENCE, saves=True),
    Fault("first cannot write", "save_limited", 0, NOT_WRITTEN, DIFFERENCE, saves=True),
    Fault("none can write", "save_limited", 0, "OSError|File too large", DIFFERENCE, (1,), saves=True),
    Fault("cannot write in the background", "save_limited_async", 1, NOT_WRITTEN, DIFFERENCE, saves=True),
    Fault("cannot write Orbax's layout", "save_limited_orbax", 1, NOT_WRITTEN, DIFFERENCE, saves=True),
    Fault("first cannot write the index", "save_index", 0, NOT_WRITTEN, DIFFERENCE, saves=True),
    Fault("killed in a save", "save_kill", 1, DIED, DEATH, saves=True),
    Fault("first killed in a save", "save_kill", 0, DIED, DEATH, saves=True),
    Fault("both killed in a save", "save_kill", 0, "", DEATH, (1,), saves=True),
    Fault("killed in a save in the background", "save_kill_async", 1, DIED, DEATH, saves=True),
    Fault("stopped in a save", "save_stop", 1, SILENT, STOP, settings=ENDING, saves=True),
    Fault("does not come to a save", "save_skip", 1, LATE, STOP, settings=ENDING, saves=True),
    Fault("ends before a save", "save_leave", 1, ended("without an error"), DEATH, saves=True),
]


class Outcome(NamedTuple):
    """What a run of a fault has shown: seconds until it was told and until all had ended, and what is wrong."""

    told: float | None
    end: float
    code: int
    wrong: list[str]
    text: str


def is_alive(pid: str) -> bool:
    """Return whether a process runs or is stopped; one whose exit code is not collected is not alive."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Lines:
    """Lines of a stream, each with the time at which it came."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.found: list[tuple[float, str]] = []
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self.found.append((time.time(), line.decode(errors="replace")))

    def close(self) -> None:
        """Read to the end, as far as it comes."""
        self._thread.join(5)


@contextlib.contextmanager
def launch_fault(fault: Fault, folder: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """Launch the processes of a fault; at the end kill what is left of them."""
    ranks = ",".join(map(str, (fault.rank, *fault.others)))
    command = [sys.executable, "-m", "weft.launch", "-n", str(fault.count), str(SCRIPTS / "faulty.py")]
    with subprocess.Popen(
        [*command, fault.what, ranks, str(folder)],
        env=environment(**fault.settings),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pid in read_pids(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def read_pids(folder: pathlib.Path) -> list[str]:
    file = folder / "pids"
    return file.read_text().split() if file.exists() else []


def run_fault(fault: Fault, folder: pathlib.Path, slack: float = 1.0) -> Outcome:
    """Run a fault, and compare what happens with the table; all limits are multiplied by `slack`."""
    wrong: list[str] = []
    with launch_fault(fault, folder) as process:
        assert process.stderr is not None
        lines = Lines(process.stderr)
        try:
            code = process.wait(LATEST)
        except subprocess.TimeoutExpired:
            code = -1
            wrong.append(f"the launcher has not ended in {LATEST:.0f} s")
        launcher_end = time.time()
        while any(map(is_alive, read_pids(folder))) and time.time() < launcher_end + 5:
            time.sleep(0.05)
        left = [pid for pid in read_pids(folder) if is_alive(pid)]
        if left:
            wrong.append(f"processes {left} are left")
        if code == -1 or left:
            process.kill()
        else:
            lines.close()
    text = "".join(line for _, line in lines.found)
    faults = [float(file.read_text()) for file in folder.glob("fault.*")]
    if not faults:
        return Outcome(None, 0.0, code, [*wrong, "the fault has not happened"], text)
    began = min(faults)
    said = re.compile(fault.said.format(rank=fault.rank) if "{rank}" in fault.said else fault.said)
    told = next((when - began for when, line in lines.found if when >= began and said.search(line)), None)
    if told is None and fault.said:
        wrong.append(f"nothing says {said.pattern!r}")
    elif told is not None and told > fault.told * slack:
        wrong.append(f"told after {told:.1f} s, not {fault.told:.0f} s")
    end = launcher_end - began - (told or 0.0)
    if end > fault.end * slack:
        wrong.append(f"ended {end:.1f} s later, not {fault.end:.0f} s")
    if (code == 0) != fault.goes_on:
        wrong.append(f"the launcher's code is {code}")
    if fault.saves:
        wrong += list(find_damage(folder / "steps"))
    return Outcome(told, end, code, wrong, text)


def find_damage(folder: pathlib.Path) -> Iterator[str]:
    """Read all checkpoints that are listed; yield what is wrong with them."""
    layout = "orbax" if list(folder.glob("*/state")) else "weft"
    manager = checkpointing.CheckpointManager(folder, layout=layout)  # type: ignore[arg-type]
    if not manager.all_steps():
        yield "there is no checkpoint"
    for step in manager.all_steps():
        try:
            tree = manager.restore(step, shardings=None)
            tree = tree["state"] if layout == "orbax" else tree
            rows = np.asarray(tree["w"])
            expected = np.arange(rows.size, dtype=np.float32).reshape(rows.shape) + step
            if int(tree["step"]) != step or not np.array_equal(rows, expected):
                yield f"the checkpoint of step {step} has other values"
        except Exception as error:
            yield f"the checkpoint of step {step} cannot be read: {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the faults of the table, and print a row for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", default="", help="part of the name of faults")
    parser.add_argument("--slack", type=float, default=1.0, help="factor of all limits")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    chosen = [fault for fault in TABLE if options.only in fault.name]
    failed = 0
    for fault in chosen:
        if options.list:
            print(fault.name)
            continue
        outcomes = []
        for _ in range(options.times):
            with tempfile.TemporaryDirectory() as folder:
                outcomes.append(run_fault(fault, pathlib.Path(folder), options.slack))
        bad = [outcome for outcome in outcomes if outcome.wrong]
        failed += bool(bad)
        told = [outcome.told for outcome in outcomes if outcome.told is not None]
        seconds = f"told {min(told):5.2f} to {max(told):5.2f} s" if told else "not told" + 12 * " "
        ends = f"end {max(outcome.end for outcome in outcomes):5.1f} s"
        print(f"{fault.name:40} {seconds}  {ends}  {len(outcomes) - len(bad)} of {len(outcomes)}", flush=True)
        for outcome in bad[:1]:
            print("    " + "; ".join(outcome.wrong), flush=True)
            print("    " + outcome.text[-1500:].replace("\n", "\n    "), flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} faults are as the table says")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
