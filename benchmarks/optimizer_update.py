"""Adam update over 200 leaves, Weft against Optax on JAX in one run: tracing, the first call, and later calls.

python benchmarks/optimizer_update.py [--quick]
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from measure import Line, Result, Times, compare
from report import text_table

import weft
import weft.numpy as wnp
import weft.optim as optim
from weft.runtime.cpu import tiers

try:
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    sys.exit("benchmarks/optimizer_update.py compares with Optax on JAX: install jax and optax beside Weft.")

LEAVES = 200


def parameters(xnp: Any, size: int) -> dict[str, Any]:
    """Return square matrices and their bias vectors, 200 leaves in total."""
    rng = np.random.default_rng(0)
    tree = {}
    for i in range(LEAVES // 2):
        matrix = rng.normal(size=(size, size)).astype(np.float32)
        tree[f"layer{i}"] = {"kernel": xnp.asarray(matrix), "bias": xnp.zeros(size, xnp.float32)}
    return tree


def update_of(library: Any, rate: float) -> Any:
    """Make a training step without the gradient: update, then apply."""
    optimizer = library.adamw(rate, weight_decay=1e-3)

    def update(grads: Any, state: Any, params: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return library.apply_updates(params, updates), state

    return optimizer, update


def first_call(lib: Any, library: Any, xnp: Any, size: int) -> float:
    """Return the seconds of the first call of a compiled update: trace, compile, run."""
    params = parameters(xnp, size)
    optimizer, update = update_of(library, 1e-3)
    state = optimizer.init(params)
    lib.clear_caches()
    start = time.perf_counter()
    lib.block_until_ready(lib.jit(update)(params, state, params))
    return time.perf_counter() - start


def lines(size: int, repeats: int) -> list[Line]:
    ours, theirs = parameters(wnp, size), parameters(jnp, size)
    our_optimizer, our_update = update_of(optim, 1e-3)
    their_optimizer, their_update = update_of(optax, 1e-3)
    our_state, their_state = our_optimizer.init(ours), their_optimizer.init(theirs)
    our_jit, their_jit = weft.jit(our_update), jax.jit(their_update)

    for _ in range(3):  # Weft recompiles with optimization when a function is called again
        our_jit(ours, our_state, ours)
    tiers.wait()

    def traced(lib: Any, update: Any, params: Any, state: Any) -> Any:
        # A new function each time, so that the trace is not cached.
        return lambda: lib.make_jaxpr(lambda *a: update(*a))(params, state, params)

    return [
        Line(
            f"trace, AdamW over {LEAVES} leaves",
            {
                "weft": traced(weft, our_update, ours, our_state),
                "jax": traced(jax, their_update, theirs, their_state),
            },
            1.0,
            repeats,
        ),
        Line(
            f"jit call, AdamW over {LEAVES} leaves, {size}x{size}",
            {
                "weft": lambda: weft.block_until_ready(our_jit(ours, our_state, ours)),
                "jax": lambda: jax.block_until_ready(their_jit(theirs, their_state, theirs)),
            },
            0.8,
            repeats,
        ),
        Line(
            f"init, AdamW over {LEAVES} leaves",
            {
                "weft": lambda: our_optimizer.init(ours),
                "jax": lambda: jax.block_until_ready(their_optimizer.init(theirs)),
            },
            1.0,
            repeats,
        ),
    ]


def results(quick: bool) -> Iterator[Result]:
    repeats = 3 if quick else 10
    once = {"weft": first_call(weft, optim, wnp, 16), "jax": first_call(jax, optax, jnp, 16)}
    times = {side: Times.of([seconds]) for side, seconds in once.items()}
    yield Result(f"first jit call, AdamW over {LEAVES} leaves", times, 1.0)
    for line in [*lines(16, repeats), *lines(256, repeats)[1:2]]:
        yield compare(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    args = parser.parse_args()
    measured = list(results(args.quick))
    print(
        f"Weft {weft.__version__} against Optax {optax.__version__} on JAX {jax.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}\n"
    )
    print(text_table(measured))


if __name__ == "__main__":
    main()
