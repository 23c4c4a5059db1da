"""Products of sparse arrays and their gradients, against JAX in the same process, timed alternately.

python benchmarks/sparse.py [--quick] [--only WORD ...]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jax_sparse

import weft
import weft.numpy as wnp
from weft.experimental import sparse as weft_sparse

SECONDS, QUICK_SECONDS = 1.0, 0.2


class Program(NamedTuple):
    """Function of a library (its module, its arrays, its sparse arrays), and NumPy arguments."""

    name: str
    build: Callable[[Any, Any, Any], Callable[..., Any]]
    arguments: tuple[np.ndarray, ...]


def entries(rows: int, columns: int, count: int, batch: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw data and sorted indices of a random pattern."""
    rng = np.random.default_rng(0)
    lead = (batch,) if batch else ()
    flat = np.sort(rng.integers(0, rows * columns, (*lead, count)), axis=-1)
    indices = np.stack([flat // columns, flat % columns], axis=-1).astype(np.int32)
    return rng.standard_normal((*lead, count)).astype(np.float32), indices


def programs() -> list[Program]:
    rng = np.random.default_rng(1)
    size, count = 10_000, 500_000
    data, indices = entries(size, size, count)
    vector = rng.standard_normal(size).astype(np.float32)
    matrix = rng.standard_normal((size, 64)).astype(np.float32)
    small, small_indices = entries(100, 100, 1000)
    batch, batch_indices = entries(256, 256, 4000, 32)
    others = rng.standard_normal((32, 256, 16)).astype(np.float32)

    def product(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        return lambda d, i, v: s.BCOO((d, i), shape=(size, size), indices_sorted=True) @ v

    def transposed(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        return lambda d, i, v: s.BCOO((d, i), shape=(size, size)).T @ v

    def gradient(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        f = product(lib, np_, s)
        return lib.grad(lambda d, v, i: (f(d, i, v) ** 2).sum(), argnums=(0, 1))

    def tiny(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        return lambda d, i, v: s.BCOO((d, i), shape=(100, 100)) @ v

    def batched(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        numbers = (((2,), (1,)), ((0,), (0,)))
        return lambda d, i, v: s.bcoo_dot_general(s.BCOO((d, i), shape=(32, 256, 256)), v, dimension_numbers=numbers)

    def dense(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        return lambda d, i: s.BCOO((d, i), shape=(size, 1000)).todense()

    def duplicates(lib: Any, np_: Any, s: Any) -> Callable[..., Any]:
        return lambda d, i: s.bcoo_sum_duplicates(s.BCOO((d, i), shape=(size, size)), nse=count)

    return [
        Program("matrix @ vector", product, (data, indices, vector)),
        Program("matrix @ matrix of 64", product, (data, indices, matrix)),
        Program("transpose @ vector", transposed, (data, indices, vector)),
        Program("gradient of |matrix @ vector|^2", gradient, (data, vector, indices)),
        Program("gradient of |matrix @ matrix|^2", gradient, (data, matrix, indices)),
        Program("small matrix @ vector", tiny, (small, small_indices, vector[:100])),
        Program("32 matrices @ matrices of 16", batched, (batch, batch_indices, others)),
        Program("todense", dense, (data, indices % np.array([size, 1000], np.int32))),
        Program("sum_duplicates", duplicates, (data, indices)),
    ]


def measure(program: Program, seconds: float) -> tuple[float, float]:
    """Return the medians of the seconds that Weft and JAX take."""
    runs = [
        (weft.jit(program.build(weft, wnp, weft_sparse)), [wnp.asarray(a) for a in program.arguments], weft),
        (jax.jit(program.build(jax, jnp, jax_sparse)), [jnp.asarray(a) for a in program.arguments], jax),
    ]
    times: list[list[float]] = [[], []]
    results = [lib.block_until_ready(f(*args)) for f, args, lib in runs]
    for a, b in zip(weft.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for taken, (f, args, lib) in zip(times, runs, strict=True):
            start = time.perf_counter()
            lib.block_until_ready(f(*args))
            taken.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--quick", action="store_true", help="less time for each program")
    ask.add_argument("--only", nargs="*", default=[], help="programs whose names have one of these words")
    options = ask.parse_args()
    print(f"{'program':36} {'weft':>10} {'jax':>10} {'weft / jax':>11}")
    for program in programs():
        if options.only and not any(word in program.name for word in options.only):
            continue
        own, peer = measure(program, QUICK_SECONDS if options.quick else SECONDS)
        print(f"{program.name:36} {own * 1e6:7.0f} us {peer * 1e6:7.0f} us {own / peer:11.2f}", flush=True)


if __name__ == "__main__":
    main()
