"""Benchmarks of programs: tracing, calling, loops, numerical routines and training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import models
import numpy as np
from bench import Bench, Function, finished
from libraries import Library
from measure import Line

from weft.runtime.cpu import tiers


def libraries(bench: Bench) -> dict[str, Library]:
    return {"weft": bench.weft} | ({} if bench.jax is None else {"jax": bench.jax})


def own(f: Library, tree: Any) -> Any:
    return f.top.tree.map(f.np.asarray, tree)


def tracing(bench: Bench) -> Iterator[Line]:
    arguments = models.mlp_arguments(bench.size(12, 2))
    examples = (bench.normal(8, 32, 64), bench.normal(8, 32, 64))

    # A new function in each call, so that the trace is not cached.
    def forward(f: Library) -> Callable[[], Any]:
        loss, args = models.mlp(f), own(f, arguments)
        return lambda: f.top.make_jaxpr(lambda *a: loss(*a))(*args)

    def backward(f: Library) -> Callable[[], Any]:
        loss, args = models.mlp(f), own(f, arguments)
        return lambda: f.top.make_jaxpr(f.top.value_and_grad(lambda *a: loss(*a)))(*args)

    def batched(f: Library) -> Callable[[], Any]:
        loss, params, batch = models.mlp(f), own(f, arguments[0]), own(f, examples)
        return lambda: f.top.make_jaxpr(f.top.vmap(f.top.grad(lambda *a: loss(*a)), (None, 0, 0)))(params, *batch)

    for name, make in (
        ("trace, 12-layer MLP", forward),
        ("trace, value_and_grad of 12-layer MLP", backward),
        ("trace, vmap of grad of 12-layer MLP", batched),
    ):
        yield Line(name, {side: make(f) for side, f in libraries(bench).items()}, 1.0)


def calling(bench: Bench) -> Iterator[Line]:
    leaves = {f"block{i}": {f"w{j}": np.ones(4, np.float32) for j in range(4)} for i in range(10)}

    def flatten(f: Library) -> Callable[[], Any]:
        tree = own(f, leaves)
        return lambda: f.top.tree.flatten(tree)

    def eager(f: Library) -> Callable[[], Any]:
        x = f.np.ones(8)
        return finished(f, lambda: x + 1)

    def call(f: Library, function: Function, argument: Any) -> Callable[[], Any]:
        jitted, args = f.top.jit(function), own(f, argument)
        for _ in range(3):
            jitted(args)
        tiers.wait()  # Weft recompiles with optimization when a function is called again
        return finished(f, lambda: jitted(args))

    def array(f: Library) -> Callable[[], Any]:
        return finished(f, lambda: f.np.array([1.0, 2.0, 3.0]))

    def one(f: Library) -> Callable[[], Any]:
        return call(f, lambda x: x + 1, np.ones(8, np.float32))

    def many(f: Library) -> Callable[[], Any]:
        return call(f, lambda tree: f.top.tree.map(lambda x: x, tree), leaves)

    lines: tuple[tuple[str, Callable[[Library], Callable[[], Any]], float | None], ...] = (
        ("jit call, one array", one, 0.4),
        ("jit call, tree of 40 leaves in and out", many, 0.3),
        ("flatten a tree of 40 leaves", flatten, None),
        ("x + 1 outside of jit, 8 floats", eager, None),
        ("array from a list of 3", array, None),
    )
    for name, make, bound in lines:
        yield Line(name, {side: make(f) for side, f in libraries(bench).items()}, bound)


def loops(bench: Bench) -> Iterator[Line]:
    def rnn(f: Library) -> Function:
        def step(weights: Any, h: Any, x: Any) -> Any:
            h = f.np.tanh(h @ weights + x)
            return h, h.sum()

        return lambda w, xs: f.lax.scan(lambda h, x: step(w, h, x), xs[0], xs)[1].sum()

    def numpy_rnn(w: np.ndarray, xs: np.ndarray) -> Any:
        h, total = xs[0], np.float32(0)
        for x in xs:
            h = np.tanh(h @ w + x)
            total += h.sum()
        return total

    weights, inputs = bench.normal(32, 32) * np.float32(0.1), bench.normal(bench.size(1000, 20), 32)
    yield bench.line("scan, 1000 steps of an RNN of 32", rnn, weights, inputs, at_most=0.4, numpy=numpy_rnn)
    yield bench.line("its gradient", lambda f: f.top.grad(rnn(f)), weights, inputs, at_most=0.5)

    count = bench.size(10_000, 10)

    def sines(f: Library) -> Function:
        start = lambda x: (x, np.int32(0))
        return lambda x: f.lax.while_loop(lambda c: c[1] < count, lambda c: (f.np.sin(c[0]), c[1] + 1), start(x))[0]

    yield bench.line("while, 10,000 iterations of sin on 16 floats", sines, bench.normal(16), at_most=0.7)

    side, steps = bench.size(1024, 16), bench.size(20, 4)

    def heat(f: Library) -> Function:
        def around(u: Any) -> Any:
            return sum(f.np.roll(u, shift, axis) for axis in range(u.ndim) for shift in (1, -1)) - 2 * u.ndim * u

        return lambda u: f.lax.fori_loop(0, steps, lambda i, u: u + 0.1 * around(u), u)

    def wave(f: Library) -> Function:
        def step(state: Any, _: Any) -> Any:
            before, u = state
            return (u, 2 * u - before + 0.1 * (f.np.roll(u, 1, 0) + f.np.roll(u, -1, 1) - 2 * u)), None

        return lambda u: f.lax.scan(step, (u, u), None, length=steps)[0][1]

    yield bench.line("heat equation, 20 steps of 1024^2", heat, bench.normal(side, side), at_most=0.5)
    yield bench.line("wave equation, 20 steps of 1024^2", wave, bench.normal(side, side), at_most=0.4)


def routines(bench: Bench) -> Iterator[Line]:
    million, systems, side = bench.size(1_000_000, 1000), bench.size(10_000, 10), bench.size(512, 16)
    bits = np.random.default_rng(0)
    yield bench.line(
        "random normal, 1M",
        lambda f: lambda seed: f.random.normal(f.random.PRNGKey(seed), (million,)),
        np.int32(0),
        at_most=0.7,
        repeats=10,
        numpy=lambda seed: bits.standard_normal(million, np.float32),
        torch=lambda t: lambda seed: t.randn(million),
        differs=("numpy", "torch"),
    )
    matrices = bench.normal(systems, 3, 3) + 3 * np.eye(3, dtype=np.float32)
    yield bench.line(
        "10,000 solves of 3 x 3",
        lambda f: f.np.linalg.solve,
        matrices,
        bench.normal(systems, 3, 1),
        at_most=0.5,
        repeats=8,
        numpy=np.linalg.solve,
        torch=lambda t: t.linalg.solve,
    )
    yield bench.line(
        "rfft, 1M",
        lambda f: f.np.fft.rfft,
        bench.normal(million),
        at_most=1.1,
        repeats=8,
        numpy=np.fft.rfft,
        torch=lambda t: t.fft.rfft,
    )
    root = bench.normal(side, side)
    yield bench.line(
        "cholesky, 512",
        lambda f: f.np.linalg.cholesky,
        root @ root.T + side * np.eye(side, dtype=np.float32),
        at_most=1.05,
        repeats=8,
        numpy=np.linalg.cholesky,
        torch=lambda t: t.linalg.cholesky,
    )


def steps(bench: Bench) -> Iterator[Line]:
    def step(loss: Callable[[Library], Function]) -> Callable[[Library], Function]:
        return lambda f: models.train_step(f, loss(f))

    yield bench.line(
        "train step, 12-layer MLP", step(models.mlp), *models.mlp_arguments(bench.size(12, 2)), at_most=0.8
    )
    text = models.transformer_arguments(bench.size(4, 1), bench.size(128, 8), bench.size(8, 2), bench.size(64, 4))
    yield bench.line("train step, transformer of 4 layers", step(models.transformer), *text, at_most=0.8, repeats=8)
    images = models.all_convolutions_arguments(bench.size(32, 2), bench.size(32, 8), bench.size(1, 48))
    yield bench.line(
        "train step, all-conv CIFAR, batch 32", step(models.all_convolutions), *images, at_most=0.6, repeats=3
    )
    sequences = models.lstm_arguments(bench.size(50, 3), bench.size(16, 2), bench.size(32, 4), bench.size(64, 4))
    yield bench.line("train step, LSTM of 64, 50 steps", step(models.lstm), *sequences, at_most=0.6)
