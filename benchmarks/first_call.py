"""First call of a function in a new process: `python first_call.py LIBRARY CASE LAYERS` prints the wall-clock seconds
and the CPU seconds of all threads.

Before timing starts the library is imported, the arguments are its arrays, and an unrelated function has been compiled,
so that one-time costs of a process (devices, LLVM, threads) are not included. The case "start" does not compile that
function: it measures the first call of the process. The time is from calling a newly jitted function to its result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import models
import numpy as np
from libraries import Library, load

CASES: dict[str, Callable[[Library, int], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "start": lambda f, layers: (models.fused(f), (np.ones(1000, np.float32),)),
    "fused": lambda f, layers: (models.fused(f), (np.ones(1000, np.float32),)),
    "mlp": lambda f, layers: (f.top.value_and_grad(models.mlp(f)), models.mlp_arguments(layers)),
    "transformer": lambda f, layers: (
        f.top.value_and_grad(models.transformer(f)),
        models.transformer_arguments(layers),
    ),
}


def first_call(f: Library, case: str, layers: int) -> tuple[float, float]:
    function, arguments = CASES[case](f, layers)
    arguments = f.top.block_until_ready(f.top.tree.map(f.np.asarray, arguments))
    if case != "start":
        f.top.block_until_ready(f.top.jit(lambda x: x * x - 3)(f.np.arange(5.0)))
    start, worked = time.perf_counter(), time.process_time()
    f.top.block_until_ready(f.top.jit(function)(*arguments))
    return time.perf_counter() - start, time.process_time() - worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("weft", "jax"))
    parser.add_argument("case", choices=CASES)
    parser.add_argument("layers", type=int, nargs="?", default=1)
    args = parser.parse_args()
    print(*first_call(load(args.library), args.case, args.layers))


if __name__ == "__main__":
    main()
