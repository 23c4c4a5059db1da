"""Runs of a compiled program to learn how long its steps take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.compiler.program.ir import Step
from weft.compiler.program.times import StepTime
from weft.runtime.array import ConcreteArray
from weft.runtime.device import Placement
from weft.runtime.evaluate import storage

MOST_RUNS = 50
SECONDS = 0.5


class Measurement(NamedTuple):
    """Fastest run with timestamps: its seconds, and those of each of its steps, summed over iterations.

    All are of one run, so that steps are parts of the whole. Stalls hit now this step and now that one, so medians of
    steps would not add up to that of the whole. `median` is that of runs without timestamps; where it is much more, the
    machine was busy.
    """

    runs: int
    seconds: float
    median: float
    steps: list[tuple[Step, int, float]]


def measure(executable: Any, values: Sequence[Any], donated: Sequence[bool], placement: Placement) -> Measurement:
    """Run the program a few times. One with effects runs once, so that they happen once."""
    on_host = placement.memory_backend.reads_host
    stored = [
        value if isinstance(value, ConcreteArray) and not on_host else storage(value, aval)
        for value, aval in zip(values, executable.in_types, strict=True)
    ]
    once = bool(executable.compilation.traced.effects)
    if not once:
        executable.optimise()

    def arrays() -> list[Any]:
        """Return the arguments, copied where the program may overwrite them."""
        return executable.own_arguments(stored, donated, placement)

    if not once:
        executable.run_timed(arrays(), 0, None, placement)  # loads what is loaded on use, and touches the memory
    runs: list[tuple[float, list[StepTime]]] = []
    whole: list[float] = []
    end = time.perf_counter() + SECONDS
    while not runs or (not once and len(runs) < MOST_RUNS and time.perf_counter() < end):
        buffers = arrays()
        start = time.perf_counter()
        _, log = executable.run_timed(buffers, 0, None, placement)
        runs.append((time.perf_counter() - start, log.times))
        if not once:
            buffers = arrays()
            start = time.perf_counter()
            for array in executable(buffers, None, placement):
                if isinstance(array, ConcreteArray):
                    array.block_until_ready()
            whole.append(time.perf_counter() - start)
    seconds, times = min(runs, key=lambda run: run[0])
    steps = [(found.step, found.runs, found.nanoseconds * 1e-9) for found in times]
    return Measurement(len(runs), seconds, statistics.median(whole) if whole else seconds, steps)


def measure_calls(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], changes: bool
) -> Measurement:
    """Call a program for many devices a few times, as a whole: its steps have no times. One that `changes` something
    is not called."""
    if changes:
        return Measurement(0, 0.0, 0.0, [])
    function(*args, **kwargs)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while not times or (len(times) < MOST_RUNS and time.perf_counter() < end):
        start = time.perf_counter()
        function(*args, **kwargs)
        times.append(time.perf_counter() - start)
    return Measurement(len(times), min(times), statistics.median(times), [])
