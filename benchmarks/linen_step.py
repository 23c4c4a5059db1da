"""Train step of a small MLP and of a small CNN: Weft's linen and optim against Flax and Optax on JAX, in one run.

For each: tracing the step, its first call, and later calls.

python benchmarks/linen_step.py [--quick]
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Line, Result, Times, compare
from report import text_table

import weft
import weft.linen
import weft.numpy as wnp
import weft.optim
from weft.runtime.cpu import tiers

try:
    import flax
    import flax.linen
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    sys.exit("benchmarks/linen_step.py compares with Flax and Optax on JAX: install flax and optax beside Weft.")

# The library, its NumPy, its optimizers and its modules.
SIDES = {"weft": (weft, wnp, weft.optim, weft.linen), "jax": (jax, jnp, optax, flax.linen)}


def models(nn: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return the modules and the shapes of their inputs, from the same source for both libraries."""

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for width in (256, 256, 128):
                x = nn.relu(nn.LayerNorm()(nn.Dense(width)(x)))
            return nn.Dense(10)(x)

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for width in (16, 32):
                x = nn.Conv(width, (3, 3))(x)
                x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
                x = nn.max_pool(x, (2, 2), (2, 2))
            x = x.reshape((x.shape[0], -1))
            return nn.Dense(10)(nn.relu(nn.Dense(64)(x)))

    return {"MLP 128-256-256-128-10": (MLP(), (64, 128)), "CNN 16-32-64-10": (CNN(), (32, 16, 16, 3))}


def step_of(lib: Any, xnp: Any, optim: Any, module: Any) -> tuple[Any, Callable[..., Any]]:
    """Return an Adam optimizer, and a training step as a function of variables, state, inputs and labels."""
    optimizer = optim.adam(1e-3)

    def step(variables: Any, state: Any, x: Any, labels: Any) -> Any:
        others = {name: value for name, value in variables.items() if name != "params"}

        def loss(params: Any) -> Any:
            logits, changed = module.apply({"params": params, **others}, x, mutable=list(others))
            picked = xnp.take_along_axis(lib.nn.log_softmax(logits), labels[:, None], axis=-1)
            return -picked.mean(), changed

        (value, changed), grads = lib.value_and_grad(loss, has_aux=True)(variables["params"])
        updates, state = optimizer.update(grads, state, variables["params"])
        return {"params": optim.apply_updates(variables["params"], updates), **changed}, state, value

    return optimizer, step


def results_of(name: str, repeats: int) -> list[Result]:
    traces: dict[str, Callable[[], object]] = {}
    calls: dict[str, Callable[[], object]] = {}
    first: dict[str, Times] = {}
    for side, (lib, xnp, optim, nn) in SIDES.items():
        module, shape = models(nn)[name]
        rng = np.random.default_rng(0)
        x = xnp.asarray(rng.normal(size=shape).astype(np.float32))
        labels = xnp.asarray(rng.integers(0, 10, shape[0]).astype(np.int32))
        variables = module.init(lib.random.key(0), x)
        optimizer, step = step_of(lib, xnp, optim, module)
        arguments = (variables, optimizer.init(variables["params"]), x, labels)
        # A new function each time, so that the trace is not cached.
        traces[side] = lambda lib=lib, step=step, args=arguments: lib.make_jaxpr(lambda *a: step(*a))(*args)
        run = lib.jit(step)
        start = time.perf_counter()
        lib.block_until_ready(run(*arguments))
        first[side] = Times.of([time.perf_counter() - start])
        for _ in range(2):  # Weft recompiles with optimization when a function is called again
            lib.block_until_ready(run(*arguments))
        tiers.wait()
        calls[side] = lambda lib=lib, run=run, args=arguments: lib.block_until_ready(run(*args))
    return [
        compare(Line(f"trace, step of {name}", traces, 1.0, max(3, repeats // 5))),
        Result(f"first call, step of {name}", first, 1.0),
        compare(Line(f"call, step of {name}", calls, 0.8, repeats)),
    ]


def results(quick: bool) -> Iterator[Result]:
    for name in models(weft.linen):
        yield from results_of(name, 10 if quick else 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    measured = list(results(parser.parse_args().quick))
    print(
        f"Weft {weft.__version__} against Flax {flax.__version__} and Optax {optax.__version__} on JAX "
        f"{jax.__version__}, Python {platform.python_version()}, {platform.machine()}\n"
    )
    print(text_table(measured))


if __name__ == "__main__":
    main()
