"""Truncated Newton-CG on one thread: Weft and JAX with the same source, and the same algorithm in NumPy.

python benchmarks/newton_cg.py

A fit is one jitted function: Newton's method is a `while_loop`, conjugate gradients a `while_loop` inside, a
Hessian-vector product is a `jvp` of a `grad`, and the line search halves the step. The NumPy version is the same
algorithm with hand-written derivatives. All use float64. Each library runs in separate processes, pinned to one
core; rounds of processes are interleaved. Seconds are CPU time: on one core that is the wall-clock time of an idle
machine. It is an error if the libraries do not find the same minimum.
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
from libraries import PEERS, Library, installed, load
from newton_problems import Problem, problems
from report import newton_table

Function = Callable[..., Any]
MAX_STEPS, MAX_ITERATIONS, MAX_HALVINGS = 50, 200, 30
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


def minimise(f: Library, loss: Function) -> Function:
    """Return the fit as a function of (start, *data) that can be jitted, with the results x, loss, and the numbers of
    Newton steps and CG iterations."""
    xnp, lax = f.np, f.lax

    def fit(start: Any, *data: Any) -> Any:
        def value(x: Any) -> Any:
            return loss(x, *data)

        gradient = f.top.grad(value)

        def newton_direction(x: Any, g: Any) -> Any:
            """Solve Newton's equation by conjugate gradients, more accurately near the minimum."""
            size = xnp.sqrt(xnp.dot(g, g))
            tolerance = xnp.minimum(0.5, xnp.sqrt(size)) * size

            def not_converged(state: Any) -> Any:
                _, residual, _, iterations, concave = state
                inexact = xnp.dot(residual, residual) > tolerance * tolerance
                return inexact & (iterations < MAX_ITERATIONS) & ~concave

            def iterate(state: Any) -> Any:
                solution, residual, direction, iterations, _ = state
                hessian_vector = f.top.jvp(gradient, (x,), (direction,))[1]
                curvature, squares = xnp.dot(direction, hessian_vector), xnp.dot(residual, residual)
                concave = curvature <= 0  # not convex: stop; in the first iteration use steepest descent
                length = xnp.where(concave, xnp.where(iterations == 0, 1.0, 0.0), squares / curvature)
                solution, residual = solution + length * direction, residual + length * hessian_vector
                direction = -residual + xnp.dot(residual, residual) / squares * direction
                return solution, residual, direction, iterations + 1, concave

            return lax.while_loop(not_converged, iterate, (xnp.zeros_like(x), g, -g, 0, False))

        def line_search(x: Any, current: Any, direction: Any, descent: Any) -> Any:
            def worse(state: Any) -> Any:
                length, candidate, halvings = state
                return (candidate > current + DECREASE * length * descent) & (halvings < MAX_HALVINGS)

            def halve(state: Any) -> Any:
                length, _, halvings = state
                return length / 2, value(x + length / 2 * direction), halvings + 1

            length, candidate, _ = lax.while_loop(worse, halve, (xnp.asarray(1.0), value(x + direction), 0))
            return x + length * direction, candidate

        def not_converged(state: Any) -> Any:
            _, _, g, steps, _ = state
            return (xnp.dot(g, g) > TOLERANCE**2) & (steps < MAX_STEPS)

        def step(state: Any) -> Any:
            x, current, g, steps, iterations = state
            direction, _, _, more, _ = newton_direction(x, g)
            x, current = line_search(x, current, direction, xnp.dot(g, direction))
            return x, current, gradient(x), steps + 1, iterations + more

        initial = (start, value(start), gradient(start), 0, 0)
        x, current, _, steps, iterations = lax.while_loop(not_converged, step, initial)
        return x, current, steps, iterations

    return fit


def minimise_in_python(problem: Problem) -> tuple[np.ndarray, float, int, int]:
    """Run the same algorithm in NumPy."""
    x, data = problem.start, problem.data
    current, g = problem.value(x, *data), problem.gradient(x, *data)
    steps = total = 0
    while np.dot(g, g) > TOLERANCE**2 and steps < MAX_STEPS:
        size = np.sqrt(np.dot(g, g))
        tolerance = min(0.5, np.sqrt(size)) * size
        solution, residual, direction, iterations, concave = np.zeros_like(x), g, -g, 0, False
        while np.dot(residual, residual) > tolerance * tolerance and iterations < MAX_ITERATIONS and not concave:
            hessian_vector = problem.hessian_vector_product(x, direction, *data)
            curvature, squares = np.dot(direction, hessian_vector), np.dot(residual, residual)
            concave = curvature <= 0
            length = (1.0 if iterations == 0 else 0.0) if concave else squares / curvature
            solution, residual = solution + length * direction, residual + length * hessian_vector
            direction = -residual + np.dot(residual, residual) / squares * direction
            iterations += 1
        descent = np.dot(g, solution)
        length, halvings = 1.0, 0
        candidate = problem.value(x + solution, *data)
        while candidate > current + DECREASE * length * descent and halvings < MAX_HALVINGS:
            length, halvings = length / 2, halvings + 1
            candidate = problem.value(x + length * solution, *data)
        x, current = x + length * solution, candidate
        g = problem.gradient(x, *data)
        steps, total = steps + 1, total + iterations
    return x, current, steps, total


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


def timed(side: str, index: int, small: bool, seconds: float) -> dict[str, Any]:
    """Run one fit in one library repeatedly for about `seconds`."""
    run = prepared(side, problems(small)[index])
    x, value, steps, iterations = run()
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
        "iterations": int(iterations),
    }


def fits(peers: Sequence[str], quick: bool, small: bool) -> list[dict[str, Any]]:
    """Return a row for each fit: the seconds of each library and its results."""
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    sides = [side for side in ("numpy", "jax", "weft") if side == "weft" or side in peers]
    rows = []
    for index, problem in enumerate(problems(small)):
        rounds: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(1 if quick else 3):
            for side in sides:
                command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--side", side, "--fit", str(index)]
                command += ["--core", str(core)] if core is not None else []
                command += ["--small"] if small else []
                done = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
                rounds[side].append(json.loads(done.stdout))
        results = {side: taken[-1] for side, taken in rounds.items()}
        for side in sides:
            if not np.allclose(results[side]["x"], results["weft"]["x"], 1e-4, 1e-4):
                raise AssertionError(f"{problem.name}: {side} and weft do not find the same minimum: {results}")
        rows.append(
            {
                "name": problem.name,
                "paper": problem.paper_speedup,
                "seconds": {side: statistics.median(t["seconds"] for t in taken) for side, taken in rounds.items()},
                **{key: {side: results[side][key] for side in sides} for key in ("value", "steps", "iterations")},
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of processes")
    parser.add_argument("--small", action="store_true", help="tiny problems, for tests")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file")
    parser.add_argument("--side", choices=("numpy", "jax", "weft"), help="time one fit in one library in this process")
    parser.add_argument("--fit", type=int, default=0)
    parser.add_argument("--core", type=int)
    args = parser.parse_args()
    if args.side:
        if args.core is not None:
            os.sched_setaffinity(0, {args.core})
        print(json.dumps(timed(args.side, args.fit, args.small, 0.0 if args.small else 1.0)))
        return
    rows = fits([peer for peer in PEERS if installed(peer)], args.quick or args.small, args.small)
    print(newton_table(rows, page=False))
    for row in rows:
        print(f"{row['name']}: steps {row['steps']}, iterations {row['iterations']}, value {row['value']}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
