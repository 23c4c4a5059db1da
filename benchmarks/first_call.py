"""The first call of a function in a fresh process: `python first_call.py LIBRARY CASE LAYERS` prints the seconds,
and the seconds that processors worked, all threads together.

Before the clock starts the library is imported, the arguments are its arrays, and one unrelated function was compiled,
so that what a process pays once (devices, LLVM, threads) is not counted. The case "start" does not compile that
function: its time is the first call of all. The clock runs from the call of a freshly jitted function to its finished
result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import models
import numpy as np
from faces import Faces, load

CASES: dict[str, Callable[[Faces, int], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "start": lambda f, layers: (models.fused(f), (np.ones(1000, np.float32),)),
    "fused": lambda f, layers: (models.fused(f), (np.ones(1000, np.float32),)),
    "mlp": lambda f, layers: (f.top.value_and_grad(models.mlp(f)), models.mlp_arguments(layers)),
    "transformer": lambda f, layers: (
        f.top.value_and_grad(models.transformer(f)),
        models.transformer_arguments(layers),
    ),
}


def first_call(f: Faces, case: str, layers: int) -> tuple[float, float]:
    function, arguments = CASES[case](f, layers)
    arguments = f.top.block_until_ready(f.top.tree.map(f.np.asarray, arguments))
    if case != "start":
        f.top.block_until_ready(f.top.jit(lambda x: x * x - 3)(f.np.arange(5.0)))
    start, worked = time.perf_counter(), time.process_time()
    f.top.block_until_ready(f.top.jit(function)(*arguments))
    return time.perf_counter() - start, time.process_time() - worked


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("library", choices=("weft", "jax"))
    ask.add_argument("case", choices=CASES)
    ask.add_argument("layers", type=int, nargs="?", default=1)
    given = ask.parse_args()
    print(*first_call(load(given.library), given.case, given.layers))


if __name__ == "__main__":
    main()
