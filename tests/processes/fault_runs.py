"""Runs of the table of faults with real processes.

python -m tests.processes.fault_runs [--times 5] [--only NAME] [--slack 1] [--list]
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
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from tests.processes.fault_table import TABLE, Fault
from tests.processes.hosts import Host, can_make_hosts, hosts
from tests.processes.launching import ROOT, SCRIPTS, environment
from weft import checkpointing

LATEST = 150.0  # seconds that a run may take: longer is a hang


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

    def find(self, pattern: re.Pattern[str], began: float) -> float | None:
        """Return how many seconds after a time the first line with a pattern came, or None."""
        return next((when - began for when, line in self.found if when >= began and pattern.search(line)), None)

    def close(self) -> None:
        """Read to the end, as far as it comes."""
        self._thread.join(5)


@contextlib.contextmanager
def launch_fault(fault: Fault, folder: pathlib.Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Launch the processes of a fault, by weft.launch or, where the network is cut, each by itself on a host; at the
    end kill what is left of them."""
    ranks = ",".join(map(str, (fault.rank, *fault.others)))
    script = [str(SCRIPTS / "faulty.py"), fault.what, ranks, str(folder)]
    with contextlib.ExitStack() as stack:
        if fault.cut:
            found = stack.enter_context(hosts(fault.count))
            # Process ids of their own keep processes from finding each other on this machine, as on real hosts.
            apart = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, *script]
            commands = [host.command(*apart) for host in found]
            joining = {"JAX_COORDINATOR_ADDRESS": f"{found[0].address}:4567", "JAX_NUM_PROCESSES": str(fault.count)}
            variables = [{**ON_HOSTS, **joining, "JAX_PROCESS_ID": str(rank)} for rank in range(fault.count)]
            threading.Thread(target=cut_links, args=(fault, folder, found), daemon=True).start()
        else:
            commands = [[sys.executable, "-m", "weft.launch", "-n", str(fault.count), *script]]
            variables = [{}]
        started = [
            subprocess.Popen(
                command,
                env=environment(**fault.settings, **own),
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            for command, own in zip(commands, variables, strict=True)
        ]
        try:
            yield started
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            for pid in read_pids(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            for process in started:
                process.wait()
                assert process.stderr is not None
                process.stderr.close()


# The hosts share the memory of this machine, which Weft and UCX would find.
ON_HOSTS = {"WEFT_DISTRIBUTED_TRANSPORT": "messages", "WEFT_NETWORK_INTERFACE": "eth0", "UCX_TLS": "tcp,self"}


def cut_links(fault: Fault, folder: pathlib.Path, found: Sequence[Host]) -> None:
    """Cut the network of the faulty processes when they have joined, and perhaps heal it."""
    until = time.time() + LATEST
    while len(list(folder.glob("ready.*"))) < fault.count:
        if time.time() > until:
            return
        time.sleep(0.05)
    ranks = (fault.rank, *fault.others)
    if fault.what == "cut_pair":
        found[ranks[0]].lose(found[ranks[1]])
        found[ranks[1]].lose(found[ranks[0]])
    else:
        for rank in ranks:
            found[rank].set_link("down")
    (folder / "fault.cut").write_text(f"{time.time()}")
    if fault.heal is not None:
        time.sleep(fault.heal)
        for rank in ranks:
            found[rank].set_link("up")


def read_pids(folder: pathlib.Path) -> list[str]:
    file = folder / "pids"
    return file.read_text().split() if file.exists() else []


def run_fault(fault: Fault, folder: pathlib.Path, slack: float = 1.0) -> Outcome:
    """Run a fault, and compare what happens with the table; all limits are multiplied by `slack`."""
    wrong: list[str] = []
    with launch_fault(fault, folder) as started:
        lines = [Lines(process.stderr) for process in started if process.stderr is not None]
        until = time.time() + LATEST
        codes = [wait_until(process, until) for process in started]
        ended = time.time()
        if None in codes:
            wrong.append(f"not all have ended in {LATEST:.0f} s")
        while any(map(is_alive, read_pids(folder))) and time.time() < ended + 5:
            time.sleep(0.05)
        left = [pid for pid in read_pids(folder) if is_alive(pid)]
        if left:
            wrong.append(f"processes {left} are left")
        if not wrong:
            for own in lines:
                own.close()
    text = "".join(line for own in lines for _, line in own.found)
    code = max(codes, key=lambda c: -1 if c is None else abs(c)) if None not in codes else -1
    faults = [float(file.read_text()) for file in folder.glob("fault.*")]
    if not faults:
        return Outcome(None, 0.0, code or 0, [*wrong, "the fault has not happened"], text)
    told = None
    if fault.said:
        said = re.compile(fault.said.replace("{rank}", str(fault.rank)))
        each = [own.find(said, min(faults)) for own in lines]
        known = [seconds for seconds in each if seconds is not None]
        if len(known) < len(each):
            wrong.append(f"{len(each) - len(known)} of {len(each)} do not say {said.pattern!r}")
        else:
            told = max(known)
            if told > fault.told * slack:
                wrong.append(f"told after {told:.1f} s, not {fault.told:.0f} s")
    end = ended - min(faults) - (told or 0.0)
    if end > fault.end * slack:
        wrong.append(f"ended {end:.1f} s later, not {fault.end:.0f} s")
    if (code == 0) != fault.goes_on:
        wrong.append(f"the code is {code}")
    if fault.code not in (None, code):
        wrong.append(f"the code is {code}, not {fault.code}")
    if fault.saves:
        wrong += list(find_damage(folder / "steps"))
    return Outcome(told, end, code or 0, wrong, text)


def wait_until(process: subprocess.Popen[bytes], until: float) -> int | None:
    """Return the code of a process, or None if it runs for longer."""
    try:
        return process.wait(max(until - time.time(), 0.1))
    except subprocess.TimeoutExpired:
        return None


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
        if fault.cut and not can_make_hosts():
            print(f"{fault.name:40} skipped: needs the right to make network namespaces")
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
