"""Apply faults to the compiler, one at a time, and show which test detects each: `make test-faults`.

Every fault is put into a copy of the package, with a folder of its own for compiled code, and judged by the tests of
`subset.py` until one of them fails. What was found is written to build/faults, so that a run that was stopped goes on
where it was. The status is not 0 if too few faults are found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass

from tests.faults.subset import FIRST, STATE, stages
from tests.faults.table import Fault, faults

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "faults" / "results.jsonl"
# So many of a hundred must be found.
WANTED = 0.95
# Seconds after which a fault is one that lets programs hang, and kilobytes of addresses that a program which does may
# take: each thread has some, and there are as many threads as processors.
PATIENCE, MOST_MEMORY = 300.0, (6 << 20) + (os.cpu_count() or 1) * (1 << 18)
SURVIVED, BROKEN = "SURVIVED", "BROKEN"
# A fault changes the package, and with it the rotation of tests and the seeds of fresh programs: not here.
SAME_TESTS = {"WEFT_TEST_ROTATION": "0", "WEFT_FUZZ_SEED": "10000000"}


@dataclass(frozen=True)
class Verdict:
    """Outcome of a fault: the test that detected it and how (it failed, died, hung), or that it survived."""

    key: str
    name: str
    how: str
    test: str
    seconds: float

    @property
    def found(self) -> bool:
        return self.how not in (SURVIVED, BROKEN)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only these faults, without a look at the package as it is"
    )
    parser.add_argument("--near", action="store_true", help="only the tests that are near to a fault: a quick look")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults at a time")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument("--baseline", action="store_true", help="only run the subset on the package as it is")
    options = parser.parse_args(arguments)
    chosen = [f for f in faults() if not options.only or f.name in options.only]
    unknown = {*(options.only or ())} - {f.name for f in chosen}
    if unknown:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    state, before = state_of_files(), earlier()
    if not options.only:
        sound = known(before, key_of(None, state)) or record(run(None, state))
        if sound.how != SURVIVED:
            print(f"The package fails the subset as it is: {sound.how} {sound.test}")
            return 2
        print(f"The subset takes {sound.seconds:.0f} s on the package as it is.", flush=True)
    if options.baseline:
        return 0
    verdicts = judge(chosen, state, before, options.jobs, options.near)
    return summary(chosen, verdicts)


def judge(chosen: Sequence[Fault], state: str, before: Sequence[Verdict], jobs: int, near: bool) -> dict[str, Verdict]:
    """Return a verdict for every fault, printed as they come. Faults that no test `near` to them detects are not
    recorded."""
    last = {v.name: v.test for v in before if v.found}
    verdicts: dict[str, Verdict] = {}
    waiting: list[Fault] = []
    for fault in chosen:
        verdict = known(before, key_of(fault, state))
        if verdict is None:
            waiting.append(fault)
        else:
            verdicts[fault.name] = show(verdict)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        runs = [pool.submit(run, fault, state, last.get(fault.name, ""), near) for fault in waiting]
        try:
            for done in as_completed(runs):
                verdict = done.result()
                verdicts[verdict.name] = show(verdict)
                if verdict.found or not near:
                    record(verdict)
        except BaseException:
            for one in runs:
                one.cancel()
            raise
    return verdicts


def show(verdict: Verdict) -> Verdict:
    print(f"{verdict.name:28} {verdict.how:9} {verdict.test}  ({verdict.seconds:.0f} s)", flush=True)
    return verdict


def summary(chosen: Sequence[Fault], verdicts: dict[str, Verdict]) -> int:
    """Print what is left to be said, and give the status."""
    lost = [f for f in chosen if not verdicts[f.name].found]
    print(f"\n{len(chosen) - len(lost)} of {len(chosen)} faults are found.")
    for fault in lost:
        print(f"{verdicts[fault.name].how}: {fault.name} ({fault.file}): {fault.breaks}")
    return 0 if len(chosen) - len(lost) >= WANTED * len(chosen) else 1


# ------------------------------------------------------------------------------------------------------------ one fault

_copying = threading.Lock()


def run(fault: Fault | None, state: str, first: str = "", near: bool = False) -> Verdict:
    """Judge a fault (None: the package as it is), beginning with the test that found it last time."""
    with tempfile.TemporaryDirectory(prefix="weft-fault-") as name:
        folder = pathlib.Path(name)
        with _copying:
            for part in ("weft", "tests"):
                shutil.copytree(ROOT / part, folder / part)
            shutil.copy2(ROOT / "pyproject.toml", folder)
        if fault is not None:
            path = folder / fault.file
            path.write_text(fault.applied(path.read_text()))
        start = time.monotonic()
        for paths in stages(fault.file if fault else "", first)[: 1 if near else None]:
            how, test = outcome(*pytest(folder, paths, first))
            if how != SURVIVED:
                break
        return Verdict(key_of(fault, state), fault.name if fault else "", how, test, time.monotonic() - start)


def pytest(folder: pathlib.Path, paths: Sequence[str], first: str) -> tuple[int | None, str]:
    """Run a part of the subset on a copy; return the status (None: timeout) and what the plugin wrote."""
    said = folder / "state.txt"
    said.write_text("")
    variables = {"WEFT_COMPILATION_CACHE_DIR": str(folder / "cache"), STATE: str(said), FIRST: first, **SAME_TESTS}
    quiet = ["-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", "-x", *quiet, "-p", "tests.faults.subset", *paths]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -v {MOST_MEMORY}; exec "$@"', "sh", *command],
            cwd=folder,
            env={**os.environ, **variables, "PYTHONPATH": str(folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(PATIENCE)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status = None
    return status, said.read_text()


def outcome(status: int | None, log: str) -> tuple[str, str]:
    """Return how a run ended, and with which test."""
    last: dict[str, str] = {}
    for line in log.splitlines():
        word, _, test = line.partition(" ")
        last[word] = test
    if status == 0:
        return SURVIVED, ""
    if "failed" in last:
        return "failed", last["failed"]
    if "start" in last:
        return ("hung" if status is None else f"died {status}"), last["start"]
    # A package that cannot be imported is no fault that somebody could miss.
    return BROKEN, last.get("broken", f"status {status}")


# ------------------------------------------------------------------------------------------------------ what was found


def state_of_files() -> str:
    """Return a digest of everything that a verdict depends on besides the fault."""
    result = hashlib.blake2b(digest_size=16)
    for path in sorted([*(ROOT / "weft").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        if path != pathlib.Path(__file__):
            result.update(path.read_bytes())
    return result.hexdigest()


def key_of(fault: Fault | None, state: str) -> str:
    return hashlib.blake2b(f"{state} {fault}".encode(), digest_size=16).hexdigest()


def earlier() -> list[Verdict]:
    if not RESULTS.exists():
        return []
    return [Verdict(**json.loads(line)) for line in RESULTS.read_text().splitlines()]


def known(verdicts: Iterable[Verdict], key: str) -> Verdict | None:
    return next((v for v in verdicts if v.key == key), None)


def record(verdict: Verdict) -> Verdict:
    with RESULTS.open("a") as file:
        file.write(json.dumps(asdict(verdict)) + "\n")
    return verdict


if __name__ == "__main__":
    sys.exit(main())
