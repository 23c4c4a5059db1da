"""Lowering to StableHLO: the training step of GPT-2 with 12 layers, Weft against JAX, in turns in one process.

    python benchmarks/stablehlo.py [--layers 12] [--rounds 7]

Weft's time is that of `emit`, from the traced jaxpr to the text; JAX's is that of `lower`, from the traced jaxpr to the
module, without its text. The ratio is of the least CPU times.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import gpt2_step
import numpy as np

from weft.compiler.target.stablehlo import emit

WIDTH, LENGTH, BATCH = 64, 32, 2


def make_trace(name: str, layers: int) -> Callable[[], Any]:
    """Return a function that traces a training step anew."""
    library, numpy, nn, optim = gpt2_step.libraries(name)
    model = gpt2_step.gpt2(library, numpy, nn, layers, WIDTH, LENGTH)
    transformation = optim.adamw(3e-4)
    tokens = np.zeros((BATCH, LENGTH + 1), np.int32)

    def loss(parameters: Any, tokens: Any) -> Any:
        logits = model.apply(parameters, tokens[:, :-1]).astype(numpy.float32)
        return optim.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(parameters: Any, state: Any, tokens: Any) -> Any:
        value, gradients = library.value_and_grad(loss)(parameters, tokens)
        updates, state = transformation.update(gradients, state, parameters)
        return optim.apply_updates(parameters, updates), state, value

    parameters = library.eval_shape(model.init, library.random.key(0), tokens[:1, :-1])
    state = library.eval_shape(transformation.init, parameters)
    return lambda: library.jit(lambda *args: step(*args), donate_argnums=(0, 1)).trace(parameters, state, tokens)


def seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Return the wall-clock and the CPU time of a call."""
    gc.collect()
    start, worked = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - start, time.process_time() - worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        traces = {name: make_trace(name, options.layers) for name in ("weft", "jax")}
    except ImportError:
        sys.exit("benchmarks/stablehlo.py compares with JAX: install jax, flax and optax beside Weft.")
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in traces}
    for _ in range(options.rounds):
        for name, trace in traces.items():
            traced = trace()
            samples[name].append(seconds(lambda t=traced, n=name: emit(t.jaxpr) if n == "weft" else t.lower()))  # type: ignore[misc]
    best = {name: [min(column) for column in zip(*rows, strict=True)] for name, rows in samples.items()}
    for name, (wall, work) in best.items():
        print(f"{name}: {wall * 1e3:.0f} ms, {work * 1e3:.0f} ms of CPU")
    print(f"ratio: {best['weft'][0] / best['jax'][0]:.2f}, of CPU time {best['weft'][1] / best['jax'][1]:.2f}")


if __name__ == "__main__":
    main()
