"""Many random programs on all cores, resumable: `make fuzz N=100000`.

Each process checks one seed after the other and says so before it starts the next; one that dies or hangs is a failure
of that seed, and another takes over. What is done and what failed is in `build/fuzz.json`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import weft
from tests.fuzz.checks import Outcome, case_of, check_case, check_checked, check_jit
from tests.fuzz.generator import NO_RULE, DrawError, Program, generate
from tests.fuzz.reference import TooLong, expected_of
from tests.fuzz.shrink import report

STATE = pathlib.Path("build/fuzz.json")
# Seeds given to a process at a time, and how many it checks before a fresh one takes its place.
CHUNK, LIFETIME = 25, 300
# Every so many programs are run in all ways: threads, tiers, code from disk, and by `weft.jit`.
THOROUGH = 10
# A seed that takes longer hangs.
SECONDS = 600.0


@dataclass
class Result:
    """Outcome of a seed: one word and, for a failure, its message and program."""

    seed: int
    outcome: str
    message: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.outcome in ("failed", "died", "hung")


def check_seed(seed: int, most_shrinking: float = 60.0) -> Result:
    """Draw, trace and judge the program of a seed. A failure is made small."""
    started = time.process_time()
    try:
        program = generate(seed)
    except NO_RULE:
        return Result(seed, "no rule", seconds=time.process_time() - started)
    except DrawError as error:
        return Result(seed, "failed", f"while it was drawn: {error}", error.text)
    try:
        case = case_of(program)
        if program.checks:
            outcome = check_checked(program)
            return Result(seed, f"checks, {word_of(outcome)}", seconds=time.process_time() - started)
        expected = expected_of(case)
    except NO_RULE:
        return Result(seed, "no rule", seconds=time.process_time() - started)
    except TooLong:
        return Result(seed, "too long", seconds=time.process_time() - started)
    except Exception:
        return failure(program, "while it was traced or evaluated", most_shrinking)
    thorough = seed % THOROUGH == 0
    try:
        outcome = check_case(case, thorough, expected)
        if thorough:
            check_jit(program, expected)
    except Exception:
        return failure(program, "", most_shrinking)
    return Result(seed, word_of(outcome), seconds=time.process_time() - started)


def word_of(outcome: Outcome) -> str:
    return ("exact" if outcome.exact else "within budgets") + ("" if outcome.interpreted else ", not interpreted")


def failure(program: Program, when: str, most_shrinking: float) -> Result:
    message = traceback.format_exc(limit=-3)
    return Result(program.seed, "failed", f"{when}\n{message}".strip(), report(program, most_shrinking))


# -------------------------------------------------------------------------------------------------------------- state


@dataclass
class State:
    """Finished seeds, their outcomes, and the failures."""

    first: int = 0
    done: list[list[int]] = field(default_factory=list)  # ranges [begin, end)
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @staticmethod
    def load(path: pathlib.Path) -> State:
        return State(**json.loads(path.read_text())) if path.exists() else State()

    def save(self, path: pathlib.Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".part")
        scratch.write_text(json.dumps(self.__dict__, indent=1))
        scratch.replace(path)

    def add(self, results: list[Result], begin: int, end: int) -> None:
        counts = Counter(self.outcomes)
        counts.update(r.outcome for r in results)
        self.outcomes = dict(counts)
        self.seconds += sum(r.seconds for r in results)
        self.failures += [{"seed": r.seed, "message": r.message, "program": r.text} for r in results if r.failed]
        merged: list[list[int]] = []
        for low, high in sorted([*self.done, [begin, end]]):
            if merged and low <= merged[-1][1]:
                merged[-1][1] = max(high, merged[-1][1])
            else:
                merged.append([low, high])
        self.done = merged

    def left(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of seeds that are still to do, in chunks."""
        todo = []
        for low, high in [*self.done, [end, end]]:
            if begin < low:
                todo += [(n, min(n + CHUNK, low, end)) for n in range(begin, min(low, end), CHUNK)]
            begin = max(begin, high)
        return todo

    @property
    def count(self) -> int:
        return sum(high - low for low, high in self.done)


# ------------------------------------------------------------------------------------------------------------ processes


def serve(pipe: Connection) -> None:
    """Check the seeds of the ranges that a process receives."""
    weft.config.update("compilation_cache", False)
    weft.config.update("num_threads", 1)
    while True:
        found = pipe.recv()
        if found is None:
            return
        for seed in range(*found):
            pipe.send(("at", seed))
            result = check_seed(seed)
            pipe.send(("result", result))
        pipe.send(("done", None))


class Worker:
    """Process, and the range of seeds that it checks."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.range: tuple[int, int] = (0, 0)
        self.results: list[Result] = []
        self.seed, self.since, self.checked = 0, time.monotonic(), 0

    def give(self, chunk: tuple[int, int]) -> None:
        self.range, self.results, self.seed, self.since = chunk, [], chunk[0], time.monotonic()
        self.pipe.send(chunk)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def campaign(count: int, first: int, path: pathlib.Path = STATE, processes: int | None = None) -> int:
    """Check `count` seeds from `first` on, those that the state file has not; 1 if any has ever failed."""
    state = State.load(path)
    todo = state.left(first, first + count)[::-1]
    print(f"{state.count} seeds done before, {sum(b - a for a, b in todo)} to do; state in {path}", flush=True)
    started, finished = time.monotonic(), 0
    workers = [Worker() for _ in range(min(processes or os.cpu_count() or 1, len(todo)))]
    idle, busy = workers, []
    while idle or busy:
        while idle and todo:
            worker = idle.pop()
            worker.give(todo.pop())
            busy.append(worker)
        for worker in idle:
            worker.end()
        idle = []
        ready = wait([w.pipe for w in busy], timeout=5.0)
        for worker in list(busy):
            lost = None
            if worker.pipe in ready:
                lost = receive(worker)
            elif time.monotonic() - worker.since > SECONDS:
                lost = "hung"
            if lost is None:
                continue
            busy.remove(worker)
            begin, end = worker.range
            if lost != "done":
                worker.results.append(
                    Result(worker.seed, lost, f"process {lost}", f"python -m tests.fuzz {worker.seed}")
                )
                end = worker.seed + 1
                if end < worker.range[1]:
                    todo.append((end, worker.range[1]))
            state.add(worker.results, begin, end)
            state.save(path)
            finished += end - begin
            show(worker.results, finished, started, len(state.failures))
            worker.checked += end - begin
            if lost == "done" and worker.checked < LIFETIME:
                idle.append(worker)
            else:
                worker.end()
                idle += [Worker()] if todo else []
    rate = f"{state.seconds / max(state.count, 1) * 1000:.0f} ms of CPU a program"
    print(f"{state.count} seeds done, {rate}: {state.outcomes}; {len(state.failures)} failures")
    for found in state.failures:
        print(f"\nseed {found['seed']} (python -m tests.fuzz {found['seed']}): {found['message']}")
    return 1 if state.failures else 0


def receive(worker: Worker) -> str | None:
    """Take what a process says: "done" at the end of its range, "died" if it is gone, else None."""
    try:
        while worker.pipe.poll():
            what, found = worker.pipe.recv()
            worker.since = time.monotonic()
            if what == "at":
                worker.seed = found
            elif what == "result":
                worker.results.append(found)
            else:
                return "done"
    except (EOFError, ConnectionError):
        return "died"
    return None


def show(results: list[Result], finished: int, started: float, failures: int) -> None:
    for result in results:
        if result.failed:
            print(f"seed {result.seed} {result.outcome}: {result.message.splitlines()[-1][:200]}", flush=True)
    rate = finished / (time.monotonic() - started)
    print(f"{finished} seeds, {rate:.1f} a second, {failures} failures", flush=True)
