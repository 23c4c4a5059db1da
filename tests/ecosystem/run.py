"""Runs one program of tests/ecosystem/programs and prints its numbers, or the times of its steps, as JSON.

python -m tests.ecosystem.run optax_mlp                          on JAX, where that is installed
python -m weft.as_jax -m tests.ecosystem.run optax_mlp           on Weft
yes 0.02 | head -50 | python -m weft.as_jax -m tests.ecosystem.run optax_mlp --time
                                                                 milliseconds of a step, 50 times over 20 ms of steps
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

PROGRAMS = sorted(path.stem for path in pathlib.Path(__file__).with_name("programs").glob("*.py"))


def serve_times(program: Any, warm: float) -> None:
    """Print a line once the program is warm, then one for each line read: wall and CPU milliseconds of a step.

    A line says for how many seconds to run steps. Compilation may go on while steps run, hence `warm` seconds before.
    """
    step = program.make()
    _run_steps(step, warm)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        start, used = time.perf_counter(), time.process_time()
        count = _run_steps(step, float(line))
        wall, processor = time.perf_counter() - start, time.process_time() - used
        print(json.dumps({"wall": wall / count * 1e3, "cpu": processor / count * 1e3}), flush=True)


def _run_steps(step: Callable[[], Any], seconds: float) -> int:
    """Run steps to their end; return their number."""
    count, end = 0, time.perf_counter() + seconds
    while count == 0 or time.perf_counter() < end:
        last = step()
        count += 1
    float(_first_leaf(last))
    return count


def _first_leaf(value: Any) -> Any:
    """Return a number that depends on the step, to wait for."""
    return value.ravel()[0] if hasattr(value, "ravel") else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of steps before the first that is timed")
    options = parser.parse_args()
    program = importlib.import_module(f"tests.ecosystem.programs.{options.program}")
    if options.time:
        serve_times(program, options.warm)
    else:
        print(json.dumps(program.numbers()))


if __name__ == "__main__":
    main()
