"""Truncated Newton-CG on one thread: Weft and JAX with one text, beside the same algorithm in Python over NumPy.

python benchmarks/newton_cg.py

A fit is one jitted program: Newton's steps are a `while_loop`, conjugate gradients a `while_loop` inside, the product
of the Hessian with a vector is a `jvp` of a `grad`, and the line search halves. Python's side is the same
algorithm with derivatives written by hand. Numbers are float64. Each side runs in processes of its own, pinned to one
core; rounds of processes are interleaved. Seconds are those that the processor worked: on one core they are the time of
a quiet machine, also when it is not quiet. All sides must find the same minimum, or there is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from faces import PEERS, Faces, installed, load
from newton_problems import Problem, problems
from report import newton_table

Function = Callable[..., Any]
STEPS, TURNS, HALVINGS = 50, 200, 30
TOLERANCE = 1e-7
DECREASE = 1e-4
ONE_THREAD = {
    "WEFT_NUM_THREADS": "1",
    "WEFT_ENABLE_X64": "1",
    "JAX_ENABLE_X64": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def minimise(f: Faces, loss: Function) -> Function:
    """The fit as a function of (start, *data) that can be jitted; gives x, the value, and steps and turns taken."""
    xnp, lax = f.np, f.lax

    def fit(start: Any, *data: Any) -> Any:
        def value(x: Any) -> Any:
            return loss(x, *data)

        gradient = f.top.grad(value)

        def direction(x: Any, slope: Any) -> Any:
            """Newton's equation by conjugate gradients, the more exactly the nearer the minimum is."""
            size = xnp.sqrt(xnp.dot(slope, slope))
            enough = xnp.minimum(0.5, xnp.sqrt(size)) * size

            def going(state: Any) -> Any:
                _, rest, _, turns, bent = state
                return (xnp.dot(rest, rest) > enough * enough) & (turns < TURNS) & ~bent

            def turn(state: Any) -> Any:
                found, rest, way, turns, _ = state
                curved = f.top.jvp(gradient, (x,), (way,))[1]
                curvature, squares = xnp.dot(way, curved), xnp.dot(rest, rest)
                bent = curvature <= 0  # not convex here: keep what there is, and at first the steepest descent
                length = xnp.where(bent, xnp.where(turns == 0, 1.0, 0.0), squares / curvature)
                found, rest = found + length * way, rest + length * curved
                return found, rest, -rest + xnp.dot(rest, rest) / squares * way, turns + 1, bent

            return lax.while_loop(going, turn, (xnp.zeros_like(x), slope, -slope, 0, False))

        def searched(x: Any, now: Any, way: Any, descent: Any) -> Any:
            def worse(state: Any) -> Any:
                length, then, halvings = state
                return (then > now + DECREASE * length * descent) & (halvings < HALVINGS)

            def halve(state: Any) -> Any:
                length, _, halvings = state
                return length / 2, value(x + length / 2 * way), halvings + 1

            length, then, _ = lax.while_loop(worse, halve, (xnp.asarray(1.0), value(x + way), 0))
            return x + length * way, then

        def going(state: Any) -> Any:
            _, _, slope, steps, _ = state
            return (xnp.dot(slope, slope) > TOLERANCE**2) & (steps < STEPS)

        def step(state: Any) -> Any:
            x, now, slope, steps, turns = state
            way, _, _, more, _ = direction(x, slope)
            x, now = searched(x, now, way, xnp.dot(slope, way))
            return x, now, gradient(x), steps + 1, turns + more

        x, now, _, steps, turns = lax.while_loop(going, step, (start, value(start), gradient(start), 0, 0))
        return x, now, steps, turns

    return fit


def minimise_in_python(problem: Problem) -> tuple[np.ndarray, float, int, int]:
    """The same, line by line, in Python over NumPy."""
    x, data = problem.start, problem.data
    now, slope = problem.value(x, *data), problem.gradient(x, *data)
    steps = total = 0
    while np.dot(slope, slope) > TOLERANCE**2 and steps < STEPS:
        size = np.sqrt(np.dot(slope, slope))
        enough = min(0.5, np.sqrt(size)) * size
        found, rest, way, turns, bent = np.zeros_like(x), slope, -slope, 0, False
        while np.dot(rest, rest) > enough * enough and turns < TURNS and not bent:
            curved = problem.product(x, way, *data)
            curvature, squares = np.dot(way, curved), np.dot(rest, rest)
            bent = curvature <= 0
            length = (1.0 if turns == 0 else 0.0) if bent else squares / curvature
            found, rest = found + length * way, rest + length * curved
            way = -rest + np.dot(rest, rest) / squares * way
            turns += 1
        descent = np.dot(slope, found)
        length, halvings = 1.0, 0
        then = problem.value(x + found, *data)
        while then > now + DECREASE * length * descent and halvings < HALVINGS:
            length, halvings = length / 2, halvings + 1
            then = problem.value(x + length * found, *data)
        x, now = x + length * found, then
        slope = problem.gradient(x, *data)
        steps, total = steps + 1, total + turns
    return x, now, steps, total


def prepared(side: str, problem: Problem) -> Callable[[], Any]:
    if side == "numpy":
        return lambda: minimise_in_python(problem)
    f = load(side)
    fit = f.top.jit(minimise(f, problem.loss(f)))
    own = [f.np.asarray(x) for x in (problem.start, *problem.data)]
    for _ in range(3):
        f.top.block_until_ready(fit(*own))
    if side == "weft":
        from weft.runtime.cpu import tiers

        tiers.wait()
    return lambda: f.top.block_until_ready(fit(*own))


def timed(side: str, number: int, small: bool, seconds: float) -> dict[str, Any]:
    """One side of one fit, run again and again for about `seconds`."""
    run = prepared(side, problems(small)[number])
    x, value, steps, turns = run()
    samples: list[float] = []
    while not samples or sum(samples) < seconds:
        start = time.process_time()
        run()
        samples.append(time.process_time() - start)
    return {
        "seconds": statistics.median(samples),
        "x": np.asarray(x).tolist(),
        "value": float(value),
        "steps": int(steps),
        "turns": int(turns),
    }


def fits(peers: Sequence[str], quick: bool, small: bool) -> list[dict[str, Any]]:
    """A row for each fit: seconds of each side, and what it found."""
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    sides = [side for side in ("numpy", "jax", "weft") if side == "weft" or side in peers]
    rows = []
    for number, problem in enumerate(problems(small)):
        rounds: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(1 if quick else 3):
            for side in sides:
                command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--side", side, "--fit", str(number)]
                command += ["--core", str(core)] if core is not None else []
                command += ["--small"] if small else []
                done = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
                rounds[side].append(json.loads(done.stdout))
        found = {side: taken[-1] for side, taken in rounds.items()}
        for side in sides:
            if not np.allclose(found[side]["x"], found["weft"]["x"], 1e-4, 1e-4):
                raise AssertionError(f"{problem.name}: {side} and weft do not find the same minimum: {found}")
        rows.append(
            {
                "name": problem.name,
                "paper": problem.paper,
                "seconds": {side: statistics.median(t["seconds"] for t in taken) for side, taken in rounds.items()},
                **{key: {side: found[side][key] for side in sides} for key in ("value", "steps", "turns")},
            }
        )
    return rows


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--quick", action="store_true", help="one round of processes")
    ask.add_argument("--small", action="store_true", help="tiny problems, whose times mean nothing")
    ask.add_argument("--json", type=pathlib.Path, help="write the rows to this file")
    ask.add_argument("--side", choices=("numpy", "jax", "weft"), help="time one side of one fit in this process")
    ask.add_argument("--fit", type=int, default=0)
    ask.add_argument("--core", type=int)
    given = ask.parse_args()
    if given.side:
        if given.core is not None:
            os.sched_setaffinity(0, {given.core})
        print(json.dumps(timed(given.side, given.fit, given.small, 0.0 if given.small else 1.0)))
        return
    rows = fits([peer for peer in PEERS if installed(peer)], given.quick or given.small, given.small)
    print(newton_table(rows, page=False))
    for row in rows:
        print(f"{row['name']}: steps {row['steps']}, turns {row['turns']}, value {row['value']}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
