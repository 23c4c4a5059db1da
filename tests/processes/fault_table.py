"""Faults of processes as data, and what all others must say about each, in how many seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DEATH, STOP, DIFFERENCE = 2.0, 15.0, 5.0  # seconds until all others are told
END = 20.0  # seconds until all processes have ended after that, unless the fault says otherwise
DIED = r"Process {rank} \(host [^)]*, pid \d+\) has died"
ENDED = r"Process {rank} \(host [^)]*, pid \d+\) has ended \({how}"
MISSING = r"[Pp]rocess {rank} \(host [^)]*\) (was killed by SIGKILL|has ended without weft)"
SILENT = r"Process {rank} \(host [^)]*, pid \d+\) does not answer for \d+ s"
LATE = r"Process {rank} \(host [^)]*, pid \d+\) is not in "
CUT = r"Process \d+ \(host [^)]*, pid \d+\) does not answer for \d+ s: its host confirms nothing"
DEADLOCK = r"all processes wait for messages of each other, for \d+ s: process 0 waits for process"
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
        cut: whether each process has a host, and the network of the faulty ones is cut.
        code: exit code of the launcher, where one is certain.
        heal: seconds after which the network is there again.
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
    cut: bool = False
    heal: float | None = None
    code: int | None = None


def ended(how: str) -> str:
    return ENDED.replace("{how}", how)


TABLE = [
    # Before all have joined.
    Fault("killed before initialize", "early_kill", 1, MISSING, 5.0),
    Fault("raises before initialize", "early_raise", 1, "FileNotFoundError: no data on this host", 5.0),
    Fault("first raises before initialize", "early_raise", 0, "FileNotFoundError: no data on this host", 5.0),
    Fault("ends before initialize", "early_exit", 1, MISSING, 5.0),
    Fault("stopped before initialize", "early_stop", 1, r"[Pp]rocess {rank}", STOP, settings={"JOIN": "8"}),
    Fault("killed while joining", "joining", 1, MISSING, 5.0),
    # Deaths.
    Fault("killed", "kill", 1, DIED, DEATH, code=137),
    Fault("first killed", "kill", 0, DIED, DEATH),
    Fault("one of three killed", "kill", 2, DIED, DEATH, count=3),
    Fault("two of three killed", "kill", 1, r"Process [12] \(host [^)]*\) has died", DEATH, (2,), 3),
    Fault("first and another of three killed", "kill", 0, r"Process [01] \(host [^)]*\) has died", DEATH, (1,), 3),
    Fault("killed by another thread", "thread_kill", 1, DIED, DEATH),
    Fault("killed while others sleep", "idle_kill", 1, DIED, DEATH),
    Fault("segmentation fault", "segfault", 1, DIED, DEATH, code=139),
    Fault("abort()", "sigabrt", 1, DIED, DEATH),
    Fault("SIGTERM", "sigterm", 1, DIED, DEATH, code=143),
    Fault("interrupted", "sigint", 1, ended("KeyboardInterrupt"), DEATH),
    Fault("os._exit", "os_exit", 1, DIED, DEATH, code=4),
    Fault("sys.exit(3)", "exit_3", 1, ended(""), DEATH, code=3),
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
    # Networks. All sides must be told.
    Fault("network cut", "cut", 1, CUT, STOP, cut=True),
    Fault("network of the first cut", "cut", 0, CUT, STOP, cut=True),
    Fault("network of one of three cut", "cut", 2, CUT, STOP, count=3, cut=True),
    Fault("network between two of three cut", "cut_pair", 1, DEADLOCK, STOP, (2,), 3, settings=ENDING, cut=True),
    Fault("network cut while all sleep", "cut_idle", 1, CUT, STOP, cut=True),
    Fault("network cut in a save", "save_cut", 1, CUT, STOP, saves=True, cut=True),
    Fault("network cut for 5 s", "cut_short", 1, "", STOP, goes_on=True, cut=True, heal=5.0, end=60),
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
