"""Lines that need fresh processes: imports, first calls with no cache, and a second process with the cache on disk."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from faces import TITLES
from measure import Result, Times

Sample = tuple[float, float]
HERE = pathlib.Path(__file__).resolve().parent
# Nothing is read from disk or kept there, so that each process compiles everything.
NO_CACHES = {"WEFT_COMPILATION_CACHE": "0", "JAX_ENABLE_COMPILATION_CACHE": "0"}


def on_disk(folder: str) -> dict[str, str]:
    """Both libraries keep everything they compile in a folder. JAX leaves out what was quickly made if not told."""
    return {
        "WEFT_COMPILATION_CACHE": "1",
        "WEFT_COMPILATION_CACHE_DIR": f"{folder}/weft",
        "JAX_ENABLE_COMPILATION_CACHE": "1",
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def run(command: Sequence[str], settings: dict[str, str]) -> Sample:
    """The time and the work that a Python process prints. Bytecode is kept, as it is for users."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, *command], env=environment | settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    seconds, work = map(float, done.stdout.split())
    return seconds, work


def interleaved(sides: Sequence[str], repeats: int, measure: Callable[[str], Sample]) -> dict[str, Times]:
    samples: dict[str, list[Sample]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            samples[side].append(measure(side))
    return {side: Times.of([s for s, _ in taken], [work for _, work in taken]) for side, taken in samples.items()}


def imports(sides: Sequence[str], repeats: int) -> Result:
    def measure(side: str) -> Sample:
        clocks = "time.perf_counter(), time.process_time()"
        code = f"import time; t, w = {clocks}; import {side}; u, v = {clocks}; print(u - t, v - w)"
        return run(["-c", code], {})

    for side in sides:
        measure(side)  # writes the bytecode
    return Result("import", interleaved(sides, repeats, measure), 0.4)


def first(side: str, case: str, layers: int, settings: dict[str, str]) -> Sample:
    return run([str(HERE / "first_call.py"), side, case, str(layers)], settings)


def first_calls(sides: Sequence[str], repeats: int, layers: Sequence[int]) -> Iterator[Result]:
    """`layers` are the depths of the transformer; the cost of one more layer is between the last two."""

    def measured(case: str, depth: int, count: int) -> dict[str, Times]:
        return interleaved(sides, count, lambda side: first(side, case, depth, NO_CACHES))

    yield Result("first call of a process, small fused function", measured("start", 1, repeats))
    yield Result("first call, small fused function", measured("fused", 1, repeats), 0.35)
    yield Result("first call, value_and_grad of 12-layer MLP", measured("mlp", 12, repeats), 0.4)
    deep = {depth: measured("transformer", depth, 1 if depth > 4 else min(repeats, 3)) for depth in layers}
    for depth, times in deep.items():
        bound = 0.15 if depth == layers[-1] else None
        yield Result(f"first call, value_and_grad of transformer, {depth} layers", times, bound)
    if len(layers) > 1:
        low, high = layers[-2:]
        yield Result(
            "first call, one more layer of it", {s: slope(deep[low][s], deep[high][s], high - low) for s in sides}, 0.1
        )


def slope(low: Times, high: Times, steps: int) -> Times:
    """What one step costs between two measurements."""
    work = None if low.work is None or high.work is None else (high.work - low.work) / steps
    return Times((high.median - low.median) / steps, (high.best - low.best) / steps, work)


def second_processes(sides: Sequence[str], repeats: int) -> Iterator[Result]:
    for case, depth, title in (("mlp", 12, "12-layer MLP"), ("transformer", 4, "transformer, 4 layers")):
        with tempfile.TemporaryDirectory() as folder:
            settings = on_disk(folder)
            for side in sides:
                first(side, case, depth, settings)
                if not any(pathlib.Path(folder, side).rglob("*")):
                    raise RuntimeError(f"{TITLES[side]} wrote nothing to its cache on disk")
            times = interleaved(
                sides,
                repeats,
                lambda side, *at: first(side, case, depth, settings),  # noqa: B023 (called at once)
            )
            yield Result(f"second process, value_and_grad of {title}", times, 0.25)
