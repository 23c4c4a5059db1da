"""Runs one program of tests/ecosystem/programs and prints its numbers, or the times of its steps, as JSON.

python -m tests.ecosystem.run optax_mlp                          on JAX, where that is installed
python -m weft.as_jax -m tests.ecosystem.run optax_mlp           on Weft
python -m weft.as_jax -m tests.ecosystem.run optax_mlp --time    milliseconds of a step, in several repetitions
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import time
from typing import Any

PROGRAMS = sorted(path.stem for path in pathlib.Path(__file__).with_name("programs").glob("*.py"))


def step_times(program: Any, repetitions: int = 7, seconds: float = 1.0, warm: float = 3.0) -> list[float]:
    """Milliseconds of a step in each repetition, after `warm` seconds: compilation may go on while steps run."""
    step = program.make()
    start = time.perf_counter()
    while time.perf_counter() - start < warm:
        last = step()
    float(_first_leaf(last))
    times = []
    for _ in range(repetitions):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / repetitions or count == 0:
            last = step()
            count += 1
        float(_first_leaf(last))
        times.append((time.perf_counter() - start) / count * 1e3)
    return times


def _first_leaf(value: Any) -> Any:
    """A number that depends on the step, to wait for."""
    return value.ravel()[0] if hasattr(value, "ravel") else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    program = importlib.import_module(f"tests.ecosystem.programs.{options.program}")
    print(json.dumps({"times": step_times(program)} if options.time else program.numbers()))


if __name__ == "__main__":
    main()
