"""Overhead of `checks`: programs that gather and scatter, with and without checks, timed alternately.

The goal is 5 % on programs that gather. "Control" is the ratio of two programs without checks, which shows the noise.

python benchmarks/checks.py [--quick] [--nans] [--threads N] [--only WORD ...]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.runtime.cpu import tiers

AT_MOST = 1.05
SECONDS, QUICK_SECONDS = 1.0, 0.2
LARGE, SMALL = 1_000_000, 1000


class Program(NamedTuple):
    """Function to compile, and its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def lookups(count: int) -> Iterator[Program]:
    rng = np.random.default_rng(0)
    x = wnp.asarray(rng.normal(size=count).astype(np.float32))
    indices = wnp.asarray(rng.integers(0, count, count).astype(np.int32))
    rows = wnp.asarray(rng.normal(size=(count // 64, 64)).astype(np.float32))
    some = wnp.asarray(rng.integers(0, rows.shape[0], rows.shape[0]).astype(np.int32))
    columns = wnp.asarray(rng.integers(0, 64, rows.shape).astype(np.int32))
    yield Program("gather rows of 64", lambda x, i: x[i], (rows, some))
    yield Program("gather scalars", lambda x, i: x[i], (x, indices))
    yield Program("gather scalars, and use them", lambda x, i: wnp.tanh(x[i]) * 2.0, (x, indices))
    yield Program("gather at (i * 7 + 3) % n", lambda x, i: x[(i * 7 + 3) % x.shape[0]], (x, indices))
    yield Program("gather at i + 1, wrapped by where", lambda x, i: x[wnp.where(i + 1 < count, i + 1, 0)], (x, indices))
    yield Program("gather pairs", lambda x, i, j: x[i, j], (rows, some[:, None], columns))
    yield Program("take_along_axis", lambda x, i: wnp.take_along_axis(x, i, axis=1), (rows, columns))
    yield Program("vmap of gathers", weft.vmap(lambda x, i: x[i]), (rows, columns))
    yield Program("sum of gathered rows", lambda x, i: x[i].sum(), (rows, some))
    hops = 16
    yield Program("16 gathers after each other", lambda i: lax.fori_loop(0, hops, lambda _, j: i[j], i), (indices,))


def writes(count: int) -> Iterator[Program]:
    rng = np.random.default_rng(1)
    x = wnp.asarray(rng.normal(size=count).astype(np.float32))
    indices = wnp.asarray(rng.integers(0, count, count).astype(np.int32))
    rows = wnp.asarray(rng.normal(size=(count // 64, 64)).astype(np.float32))
    some = wnp.asarray(rng.integers(0, rows.shape[0], rows.shape[0]).astype(np.int32))
    groups = wnp.asarray(rng.integers(0, 1000, count).astype(np.int32))
    yield Program("scatter-add of rows of 64", lambda x, i, u: x.at[i].add(u), (rows, some, rows))
    yield Program("scatter-add of scalars", lambda x, i, u: x.at[i].add(u), (x, indices, x))
    yield Program("scatter-set of scalars", lambda x, i, u: x.at[i].set(u), (x, indices, x))
    yield Program(
        "histogram: 1 added at (i * 7) % 1000", lambda i: wnp.zeros(1000).at[(i * 7) % 1000].add(1.0), (indices,)
    )
    yield Program("segment_sum", lambda x, i: wnp.zeros(1000).at[i].add(x), (x, groups))
    yield Program("gradient of gathered rows", weft.grad(lambda x, i: (x[i] ** 2).sum()), (rows, some))


def loops(count: int) -> Iterator[Program]:
    rng = np.random.default_rng(2)
    table = wnp.asarray(rng.normal(size=(1000, 64)).astype(np.float32))
    weights = wnp.asarray((rng.normal(size=(64, 64)) / 8).astype(np.float32))
    tokens = wnp.asarray(rng.integers(0, 1000, (count // 1000, 8)).astype(np.int32))
    x = wnp.asarray(rng.normal(size=count).astype(np.float32))
    starts = wnp.asarray(rng.integers(0, count - 64, count // 100).astype(np.int32))

    def recurrent(table: Any, weights: Any, tokens: Any) -> Any:
        def step(h: Any, token: Any) -> tuple[Any, Any]:
            h = wnp.tanh(h @ weights + table[token])
            return h, h.sum()

        return lax.scan(step, wnp.zeros((8, 64), "float32"), tokens)

    def windows(x: Any, starts: Any) -> Any:
        return lax.scan(lambda s, i: (s + lax.dynamic_slice(x, (i,), (64,)), None), wnp.zeros(64), starts)[0]

    def chase(x: Any, i: Any) -> Any:
        return lax.fori_loop(0, i.shape[0], lambda n, s: s + x[i[n]], 0.0)

    yield Program("embedding of 8 tokens in a scan", recurrent, (table, weights, tokens))
    yield Program("dynamic_slice of 64 in a scan", windows, (x, starts))
    yield Program("one element per iteration of a loop", chase, (x, starts))


def models(count: int) -> Iterator[Program]:
    rng = np.random.default_rng(3)
    width, heads, length, batch, vocabulary = 64, 4, 64 if count > SMALL else 8, 8 if count > SMALL else 2, 1000

    def normal(*shape: int) -> Any:
        return wnp.asarray((rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32))

    layer = {"qkv": normal(width, 3 * width), "out": normal(width, width)}
    layer |= {"up": normal(width, 4 * width), "down": normal(4 * width, width)}
    params = {"table": normal(vocabulary, width), "places": normal(length, width), "layers": [layer, dict(layer)]}
    tokens = wnp.asarray(rng.integers(0, vocabulary, (batch, length)).astype(np.int32))

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def loss(params: Any, tokens: Any) -> Any:
        x = params["table"][tokens] + params["places"]
        for layer in params["layers"]:
            split = (normed(x) @ layer["qkv"]).reshape(batch, length, 3, heads, width // heads)
            q, k, v = (split[:, :, n].transpose(0, 2, 1, 3) for n in range(3))
            scores = weft.nn.softmax(q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // heads)))
            x = x + (scores @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ layer["out"]
            x = x + weft.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]
        logits = normed(x) @ params["table"].T
        return -wnp.take_along_axis(weft.nn.log_softmax(logits), tokens[..., None], -1).mean()

    def step(params: Any, tokens: Any) -> Any:
        value, grads = weft.value_and_grad(loss)(params, tokens)
        return value, weft.tree.map(lambda p, g: p - 1e-3 * g, params, grads)

    yield Program("token lookup and mean of 8", lambda t, i: t[i].mean(1), (params["table"], tokens.reshape(-1, 8)))
    yield Program("train step of a small transformer", step, (params, tokens))


def nan_checks(count: int) -> Iterator[Program]:
    rng = np.random.default_rng(4)
    x = wnp.asarray(rng.normal(size=count).astype(np.float32))
    rows = wnp.asarray(rng.normal(size=(count // 1000, 1000)).astype(np.float32))
    square = wnp.asarray(rng.normal(size=(256 if count > SMALL else 8,) * 2).astype(np.float32))
    yield Program("nan: x y + x", lambda x: x * x + x, (x,))
    yield Program("nan: tanh(x) exp(-x x) + sin(x)", lambda x: wnp.tanh(x) * wnp.exp(-x * x) + wnp.sin(x), (x,))
    yield Program("nan: softmax", weft.nn.softmax, (rows,))
    yield Program("nan: tanh(x @ x)", lambda x: wnp.tanh(x @ x), (square,))


def caller(program: Program, checks: bool, nans: bool) -> Callable[[int], float]:
    """Return a function of a count that calls the warm, compiled program that often and returns the seconds per
    call."""
    compiled, arguments = weft.jit(lambda *args: program.function(*args)), program.arguments

    def seconds(count: int) -> float:
        with weft.checks(checks), weft.debug_nans(nans):
            start = time.perf_counter()
            for _ in range(count):
                compiled(*arguments)
            weft.effects_barrier()
            return (time.perf_counter() - start) / count

    seconds(3)  # Weft recompiles with optimization when a function is called again
    tiers.wait()
    return seconds


def measure(program: Program, budget: float, nans: bool) -> tuple[float, float, float]:
    """Return the median time without checks, and the ratios of the time with checks and of the control to it."""
    setting = (False, True) if nans else (True, False)
    sides = [caller(program, False, False), caller(program, *setting), caller(program, False, False)]
    once = min(sides[0](1) for _ in range(3))
    count = max(1, int(5e-4 / once))
    rounds = max(5, int(budget / (3 * count * once)))
    taken: list[list[float]] = [[], [], []]
    for i in range(rounds):
        for side in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1))[i % 4]:
            taken[side].append(sides[side](count))
    plain, checked, control = (statistics.median(t) for t in taken)
    return plain, checked / plain, control / plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--check", action="store_true", help="tiny arrays, to test that everything runs")
    parser.add_argument("--nans", action="store_true", help="debug_nans instead of checks")
    parser.add_argument("--threads", type=int, help="number of threads (default: the setting)")
    parser.add_argument("--only", nargs="+", help="only programs with one of these words in their names")
    args = parser.parse_args()
    if args.threads:
        weft.config.update("num_threads", args.threads)
    count, budget = (SMALL, 0.0) if args.check else (LARGE, QUICK_SECONDS if args.quick else SECONDS)
    print(f"{'':44s}{'plain':>12s}{'checked':>12s}{'ratio':>8s}{'control':>9s}")
    for make in (lookups, writes, loops, models, nan_checks):
        for program in make(count):
            if args.only and not any(word in program.name for word in args.only):
                continue
            plain, ratio, control = measure(program, budget, args.nans)
            mark = "" if ratio <= AT_MOST or args.check else "  <- above 1.05"
            times = f"{plain * 1e6:>9.1f} us{plain * ratio * 1e6:>9.1f} us"
            print(f"{program.name:44s}{times}{ratio:>8.2f}{control:>9.2f}{mark}", flush=True)


if __name__ == "__main__":
    main()
