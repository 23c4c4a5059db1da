"""Benchmarks in new processes: imports, first calls without a cache, and a second process with the disk cache."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from libraries import TITLES
from measure import Result, Times

Sample = tuple[float, float]
HERE = pathlib.Path(__file__).resolve().parent
# Disable the disk caches, so that each process compiles everything.
NO_CACHES = {"WEFT_COMPILATION_CACHE": "0", "JAX_ENABLE_COMPILATION_CACHE": "0"}


def on_disk(folder: str) -> dict[str, str]:
    """Return settings with which both libraries cache everything in a folder. By default JAX skips fast
    compilations."""
    return {
        "WEFT_COMPILATION_CACHE": "1",
        "WEFT_COMPILATION_CACHE_DIR": f"{folder}/weft",
        "JAX_ENABLE_COMPILATION_CACHE": "1",
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def run(command: Sequence[str], settings: dict[str, str]) -> Sample:
    """Run a Python process and return the wall-clock and CPU time that it prints. Python bytecode is cached, as it is
    for users."""
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
        measure(side)  # writes the Python bytecode
    return Result("import", interleaved(sides, repeats, measure), 0.4)


def first(side: str, case: str, layers: int, settings: dict[str, str]) -> Sample:
    return run([str(HERE / "first_call.py"), side, case, str(layers)], settings)


def first_calls(sides: Sequence[str], repeats: int, layers: Sequence[int]) -> Iterator[Result]:
    """Measure first calls. `layers` are the numbers of layers of the transformer; the last two determine the cost of
    one more layer."""

    def measured(case: str, num_layers: int, count: int) -> dict[str, Times]:
        return interleaved(sides, count, lambda side: first(side, case, num_layers, NO_CACHES))

    yield Result("first call of a process, small fused function", measured("start", 1, repeats))
    yield Result("first call, small fused function", measured("fused", 1, repeats), 0.35)
    yield Result("first call, value_and_grad of 12-layer MLP", measured("mlp", 12, repeats), 0.4)
    transformers = {n: measured("transformer", n, 1 if n > 4 else min(repeats, 3)) for n in layers}
    for num_layers, times in transformers.items():
        bound = 0.15 if num_layers == layers[-1] else None
        yield Result(f"first call, value_and_grad of transformer, {num_layers} layers", times, bound)
    if len(layers) > 1:
        low, high = layers[-2:]
        times = {s: per_layer(transformers[low][s], transformers[high][s], high - low) for s in sides}
        yield Result("first call, one more layer of it", times, 0.1)


def per_layer(low: Times, high: Times, steps: int) -> Times:
    """Return the difference of two measurements per layer."""
    work = None if low.work is None or high.work is None else (high.work - low.work) / steps
    return Times((high.median - low.median) / steps, (high.best - low.best) / steps, work)


def second_processes(sides: Sequence[str], repeats: int) -> Iterator[Result]:
    for case, num_layers, title in (("mlp", 12, "12-layer MLP"), ("transformer", 4, "transformer, 4 layers")):
        with tempfile.TemporaryDirectory() as folder:
            settings = on_disk(folder)
            for side in sides:
                first(side, case, num_layers, settings)
                if not any(pathlib.Path(folder, side).rglob("*")):
                    raise RuntimeError(f"{TITLES[side]} wrote nothing to its cache on disk")
            times = interleaved(
                sides,
                repeats,
                lambda side, *at: first(side, case, num_layers, settings),  # noqa: B023 (called at once)
            )
            yield Result(f"second process, value_and_grad of {title}", times, 0.25)
