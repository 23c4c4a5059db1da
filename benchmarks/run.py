"""`make bench`: Weft beside JAX in one run. Prints a table and writes the numbers as JSON.

python benchmarks/run.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from lines import GROUPS
from measure import Line, Result, compare, table

import weft
import weft.numpy as wnp

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(
        "benchmarks/run.py compares with JAX, which is not installed here: run `make bench`, which installs it beside."
    )


def mlp(layers: int, xnp: Any) -> tuple[Any, Any]:
    """Loss and arguments of a plain multi-layer perceptron, 64 wide."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        for weights, bias in params:
            x = xnp.tanh(x @ weights + bias)
        return xnp.mean((x - y) ** 2)

    rng = np.random.default_rng(0)
    params = [
        (xnp.asarray(rng.normal(size=(64, 64)).astype(np.float32)), xnp.zeros(64, xnp.float32)) for _ in range(layers)
    ]
    return loss, (params, xnp.ones((32, 64), xnp.float32), xnp.zeros((32, 64), xnp.float32))


def tracing_lines() -> list[Line]:
    ours, our_args = mlp(12, wnp)
    theirs, their_args = mlp(12, jnp)

    def fresh(lib: Any, loss: Any, args: Any) -> Any:
        # A new function each time, so that no cache of traces answers.
        return lambda: lib.make_jaxpr(lib.value_and_grad(lambda *a: loss(*a)))(*args)

    def forward(lib: Any, loss: Any, args: Any) -> Any:
        return lambda: lib.make_jaxpr(lambda *a: loss(*a))(*args)

    return [
        Line("trace, 12-layer MLP", forward(weft, ours, our_args), forward(jax, theirs, their_args), 1.0),
        Line("trace, value_and_grad of 12-layer MLP", fresh(weft, ours, our_args), fresh(jax, theirs, their_args), 1.0),
        Line(
            "trace, vmap of grad of 12-layer MLP",
            lambda: weft.make_jaxpr(weft.vmap(weft.grad(lambda *a: ours(*a)), (None, 0, 0)))(
                our_args[0], wnp.ones((8, 32, 64)), wnp.ones((8, 32, 64))
            ),
            lambda: jax.make_jaxpr(jax.vmap(jax.grad(lambda *a: theirs(*a)), (None, 0, 0)))(
                their_args[0], jnp.ones((8, 32, 64)), jnp.ones((8, 32, 64))
            ),
        ),
    ]


def calling_lines() -> list[Line]:
    ours, theirs = wnp.ones(8), jnp.ones(8)
    tree = {f"block{i}": {f"w{j}": np.ones(4, np.float32) for j in range(4)} for i in range(10)}
    our_tree, their_tree = weft.tree.map(wnp.asarray, tree), jax.tree.map(jnp.asarray, tree)
    our_jit, their_jit = weft.jit(lambda x: x + 1), jax.jit(lambda x: x + 1)
    our_tree_jit, their_tree_jit = weft.jit(lambda t: t), jax.jit(lambda t: t)
    return [
        Line("flatten a tree of 40 leaves", lambda: weft.tree.flatten(our_tree), lambda: jax.tree.flatten(their_tree)),
        Line("eager x + 1, 8 floats", lambda: ours + 1, lambda: (theirs + 1).block_until_ready()),
        Line("jit call, one array", lambda: our_jit(ours), lambda: their_jit(theirs).block_until_ready()),
        Line(
            "jit call, tree of 40 leaves in and out",
            lambda: our_tree_jit(our_tree),
            lambda: jax.block_until_ready(their_tree_jit(their_tree)),
        ),
        Line(
            "array from a list of 3",
            lambda: wnp.array([1.0, 2.0, 3.0]),
            lambda: jnp.array([1.0, 2.0, 3.0]).block_until_ready(),
        ),
    ]


def import_result(repeats: int) -> Result:
    """Seconds to import each library in a fresh process, best of a few."""

    def best(module: str) -> float:
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", code]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # warm: bytecode is kept
        runs = [
            float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
            for _ in range(repeats + 1)
        ]
        return min(runs)

    return Result("import", best("weft"), best("jax"), None)


def budgets() -> list[str]:
    """The budgets of the design, measured on Weft alone: lines for the report."""
    loss, args = mlp(12, wnp)

    def median_of(function: Any) -> float:
        function()
        times = []
        for _ in range(20):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    forward = median_of(lambda: weft.make_jaxpr(lambda *a: loss(*a))(*args))
    equations = len(weft.make_jaxpr(loss)(*args).eqns)
    both = median_of(lambda: weft.make_jaxpr(weft.value_and_grad(lambda *a: loss(*a)))(*args))
    return [
        f"trace: {forward / equations * 1e6:.1f} us an equation (budget 30)",
        f"jvp and transpose: {(both - forward) / forward:.1f} x trace (budget 3)",
    ]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--json", help="write the numbers to this file")
    ask.add_argument("--quick", action="store_true", help="few repeats")
    ask.add_argument("--only", nargs="*", help=f"groups of compiled code: {', '.join(GROUPS)}; nothing else is timed")
    given = ask.parse_args()
    results: list[Result] = []
    if given.only is None:
        results.append(import_result(2 if given.quick else 5))
    lines = [] if given.only is not None else [*tracing_lines(), *calling_lines()]
    # Lines of compiled code are made one after the other, so that memory of one is free for the next.
    compiled = itertools.chain.from_iterable(make() for name, make in GROUPS.items() if name in (given.only or GROUPS))
    for line in itertools.chain(lines, compiled):
        results.append(compare(dataclasses.replace(line, repeats=3) if given.quick else line))
        print(table(results[-1:], "JAX").splitlines()[-1], flush=True)
    print()
    print(
        f"Weft {weft.__version__} beside JAX {jax.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}\n"
    )
    print(table(results, "JAX"))
    print()
    for line in budgets():
        print(line)
    if given.json:
        rows = [
            {"name": r.name, "weft_s": r.ours, "jax_s": r.theirs, "ratio": r.ratio, "at_most": r.at_most}
            for r in results
        ]
        with open(given.json, "w") as file:
            json.dump({"weft": weft.__version__, "jax": jax.__version__, "lines": rows}, file, indent=1)


if __name__ == "__main__":
    main()
