"""Training loop that logs one step late, with Python between its steps: Weft against JAX in one run.

The step is one of Adam for an MLP. Between two steps Python computes, or waits for data, for about as long as a step
takes; and it reads the loss: that of this step, so that nothing can overlap, or that of the last one. A short program
must not be slower. Weft is measured with and without asynchronous calls (`weft.config.cpu_enable_async_dispatch`).

python benchmarks/asynchrony.py [--quick] [--one-thread]
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Line, Result, compare
from report import text_table

import weft
import weft.numpy as wnp
from weft.runtime.cpu import tiers

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("benchmarks/asynchrony.py compares with JAX: install jax beside Weft.")

WIDTH, BATCH = 256, 128
# The library, its NumPy, and whether Weft's calls may return before the work is done.
SIDES = {"weft": (weft, wnp, True), "jax": (jax, jnp, True), "synchronous": (weft, wnp, False)}


def training(library: Any, xnp: Any) -> tuple[Callable[..., Any], Any, Any]:
    """Return a step, its first state, and a batch."""
    rng = np.random.default_rng(0)
    params = [xnp.asarray(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 16) for _ in range(4)]
    zeros = [xnp.zeros_like(p) for p in params]
    batch = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)

    def loss(params: Any, x: Any) -> Any:
        y = x
        for p in params:
            y = xnp.tanh(y @ p)
        return ((y - x) ** 2).mean()

    @library.jit
    def step(state: Any, x: Any) -> Any:
        params, mean, variance = state
        value, grads = library.value_and_grad(loss)(params, x)
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, grads, strict=True)]
        variance = [0.99 * v + 0.01 * g * g for v, g in zip(variance, grads, strict=True)]
        moved = [p - 1e-3 * m / (v**0.5 + 1e-8) for p, m, v in zip(params, mean, variance, strict=True)]
        return (moved, mean, variance), value

    return step, (params, zeros, zeros), batch


def compute(seconds: float) -> None:
    """Compute in Python for a number of seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(50))


def loop(
    step: Any, state: Any, batch: Any, steps: int, between: Callable[[float], None], seconds: float, late: bool
) -> Callable[[], float]:
    """Run `steps` steps, reading the loss of each or, if `late`, of the one before it."""

    def run() -> float:
        current, last, total = state, None, 0.0
        for _ in range(steps):
            current, value = step(current, batch)
            if not late:
                total += float(value)
            between(seconds)
            if late and last is not None:
                total += float(last)
            last = value
        return total + (float(value) if late else 0.0)

    return run


def with_setting(side: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap a function with the setting of a side."""

    def run() -> Any:
        weft.config.update("cpu_enable_async_dispatch", SIDES[side][2])
        return function()

    return run


def measured(name: str, functions: dict[str, Callable[[], Any]], count: int, repeats: int) -> Result:
    """Measure the time of each function, which does `count` things, per thing."""
    sides = {side: with_setting(side, function) for side, function in functions.items()}
    found = compare(Line(name, sides, 1.0, repeats))
    times = {s: dataclasses.replace(t, median=t.median / count, best=t.best / count) for s, t in found.times.items()}
    return dataclasses.replace(found, times=times)


def results(quick: bool) -> Iterator[Result]:
    repeats, steps = (7, 10) if quick else (25, 20)
    loops = {}
    for side, (library, xnp, _) in SIDES.items():
        loops[side] = training(library, xnp)
        for _ in range(4):
            with_setting(side, loop(*loops[side], 1, compute, 0.0, False))()
        tiers.wait()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        weft.block_until_ready(loops["synchronous"][0](*loops["synchronous"][1:]))
        times.append(time.perf_counter() - start)
    for name, between, seconds, late in (
        ("nothing between, read at once", compute, 0.0, False),
        ("nothing between, read late", compute, 0.0, True),
        ("Python between, read at once", compute, min(times), False),
        ("Python between, read late", compute, min(times), True),
        ("waiting between, read at once", time.sleep, min(times), False),
        ("waiting between, read late", time.sleep, min(times), True),
    ):
        functions = {side: loop(*loops[side], steps, between, seconds, late) for side in SIDES}
        yield measured(f"step, {name}", functions, steps, repeats)
    yield measured("x + 1", {side: short(side) for side in SIDES}, 1000, repeats)


def short(side: str) -> Callable[[], None]:
    """Measure many calls of a short program."""
    library, xnp, _ = SIDES[side]
    function, one = library.jit(lambda x: x + 1), xnp.ones(())
    for _ in range(4):
        with_setting(side, lambda: function(one))()

    def run() -> None:
        for _ in range(1000):
            function(one)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--one-thread", action="store_true", help="programs of Weft in one thread each")
    args = parser.parse_args()
    if args.one_thread:
        weft.config.update("num_threads", 1)
    found = list(results(args.quick))
    print(
        f"Weft {weft.__version__} against JAX {jax.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}\n"
    )
    print(text_table([dataclasses.replace(r, times={s: r.times[s] for s in ("weft", "jax")}) for r in found]))
    print("\nWeft's asynchronous calls against its synchronous ones: ratios of medians and of the best")
    for result in found:
        ours, before = result.times["weft"], result.times["synchronous"]
        ratios = f"{ours.median / before.median:.2f} {ours.best / before.best:.2f}"
        print(f"{result.name:50} {ours.best * 1e6:9.1f} {before.best * 1e6:9.1f} us   {ratios}")


if __name__ == "__main__":
    main()
