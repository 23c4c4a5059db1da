"""Runs of a compiled program to learn how long its steps take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.program.ir import Step
from weft.compiler.target.cpu.stamp import StepTime
from weft.runtime.evaluate import storage
from weft.runtime.executable import Executable

MOST_RUNS = 50
SECONDS = 0.5


class Measurement(NamedTuple):
    """Medians over runs: of the whole program as it runs without stamps, and of each step, all of its turns added."""

    runs: int
    seconds: float
    steps: list[tuple[Step, int, float]]


def measure(executable: Executable, values: Sequence[Any], donated: Sequence[bool]) -> Measurement:
    """Run the program a few times. One with effects runs once, so that they happen once."""
    once = bool(executable.compilation.traced.effects)
    if not once:
        executable.optimise()

    def arrays() -> list[Any]:
        """The arguments; those that the program may overwrite are copies."""
        given = [storage(v, t) for v, t in zip(values, executable.in_types, strict=True)]
        return [np.array(a) if donated and donated[n] else a for n, a in enumerate(given)]

    if not once:
        executable.timed(arrays())  # loads what is loaded on use, and touches the memory
    logs: list[list[StepTime]] = []
    whole: list[float] = []
    end = time.perf_counter() + SECONDS
    while not logs or (not once and len(logs) < MOST_RUNS and time.perf_counter() < end):
        given = arrays()
        start = time.perf_counter()
        _, log = executable.timed(given)
        whole.append(time.perf_counter() - start)
        logs.append(log.times)
        if not once:
            given = arrays()
            start = time.perf_counter()
            executable(given)
            whole[-1] = time.perf_counter() - start
    steps = []
    for times in zip(*logs, strict=True):
        taken = statistics.median(time.nanoseconds for time in times) * 1e-9
        steps.append((times[0].step, times[0].runs, taken))
    return Measurement(len(logs), statistics.median(whole), steps)
