"""Lines of compiled code: the same function, written over a NumPy face, jitted by Weft and by JAX.

A line is a function of (array library, its lax, its nn) and its arguments, so that both sides run the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from measure import Line

import weft
import weft.lax
import weft.nn
import weft.numpy
import weft.random
from weft.runtime import tiers

Function = Callable[..., Any]


class Faces(NamedTuple):
    """The parts of a library that lines are written over."""

    np: Any
    lax: Any
    nn: Any
    random: Any
    top: Any


WEFT = Faces(weft.numpy, weft.lax, weft.nn, weft.random, weft)
JAX = Faces(jax.numpy, jax.lax, jax.nn, jax.random, jax)
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def line(
    name: str, write: Callable[[Faces], Function], *args: Any, at_most: float | None = None, repeats: int = 20
) -> Line:
    """Both libraries on the same arguments, compiled and warm."""
    ours, theirs = weft.jit(write(WEFT)), jax.jit(write(JAX))
    our_args = weft.tree.map(weft.numpy.asarray, args)
    their_args = jax.tree.map(jax.numpy.asarray, args)
    for _ in range(3):  # Weft replaces its first code by better one when a function is called again
        ours(*our_args)
    tiers.wait()
    return Line(
        name,
        lambda: weft.block_until_ready(ours(*our_args)),
        lambda: jax.block_until_ready(theirs(*their_args)),
        at_most,
        repeats,
    )


def maps() -> Iterator[Line]:
    x, y = normal(4_000_000), normal(4_000_000)
    positive = np.abs(x) + 0.1
    for name in ("sin", "cos", "tanh", "exp"):
        yield line(f"{name}, 4M", lambda f, name=name: lambda x: getattr(f.np, name)(x), x, at_most=0.5)
    yield line("log, 4M", lambda f: f.np.log, positive, at_most=0.5)
    yield line("pow, 4M", lambda f: f.np.power, positive, y, at_most=0.5)
    yield line("erf, 4M", lambda f: f.lax.erf, x, at_most=0.5)
    yield line("tanh(x) exp(-x x) + sin(x), 4M", lambda f: lambda x: f.np.tanh(x) * f.np.exp(-x * x) + f.np.sin(x), x)
    yield line("x + 1, 4M", lambda f: lambda x: x + 1, x, at_most=0.8)
    yield line("x y + x, 4M", lambda f: lambda x, y: x * y + x, x, y, at_most=0.8)


def folds() -> Iterator[Line]:
    x, square = normal(4_000_000), normal(1024, 1024)
    yield line("sum, 4M", lambda f: f.np.sum, x, at_most=0.9)
    yield line("softmax, 1024 x 1024", lambda f: f.nn.softmax, square, at_most=0.8)

    def layer_norm(f: Faces) -> Function:
        def normalised(x: Any, scale: Any, shift: Any) -> Any:
            mean = x.mean(-1, keepdims=True)
            variance = ((x - mean) ** 2).mean(-1, keepdims=True)
            return (x - mean) * f.lax.rsqrt(variance + 1e-5) * scale + shift

        return normalised

    yield line("layernorm, 1024 x 1024", layer_norm, square, normal(1024), normal(1024), at_most=0.5)
    yield line("transpose, 1024 x 1024", lambda f: lambda x: x.T + 0, square, at_most=0.6)
    yield line("column sum, 4096 x 1024", lambda f: lambda x: x.sum(0), normal(4096, 1024), at_most=0.9)
    yield line("cumsum, 4M", lambda f: f.np.cumsum, x, at_most=0.2, repeats=8)
    yield line("argmax, 4M", lambda f: f.np.argmax, x, at_most=0.1, repeats=8)
    million = normal(1_000_000)
    yield line("sort, 1M", lambda f: f.np.sort, million, at_most=0.06, repeats=4)
    yield line("argsort, 1M", lambda f: f.np.argsort, million, at_most=0.12, repeats=4)
    yield line("top_k 8, 1000 x 1000", lambda f: lambda x: f.lax.top_k(x, 8), normal(1000, 1000), at_most=0.3)


def moves() -> Iterator[Line]:
    table = normal(50_000, 64)
    rows = rng.integers(0, 50_000, 16_384).astype(np.int32)
    flat, places = normal(1_000_000), rng.integers(0, 1_000_000, 1_000_000).astype(np.int32)
    updates = normal(16_384, 64)
    yield line("gather rows, 16k x 64", lambda f: lambda t, i: t[i], table, rows, at_most=0.5)
    yield line("gather scalars, 1M", lambda f: lambda t, i: t[i], flat, places, at_most=1.0)
    yield line(
        "scatter-add rows, 16k x 64", lambda f: lambda t, i, u: t.at[i].add(u), table, rows, updates, at_most=1.0
    )
    yield line("scatter-add scalars, 1M", lambda f: lambda t, i: t.at[i].add(t), flat, places, at_most=1.0)


def products() -> Iterator[Line]:
    for size, bound, repeats in ((16, 0.25, 20), (64, 0.25, 20), (128, 0.8, 20), (256, 0.8, 20), (1024, 1.05, 8)):
        yield line(
            f"matmul, {size}",
            lambda f: f.np.matmul,
            normal(size, size),
            normal(size, size),
            at_most=bound,
            repeats=repeats,
        )
    yield line("matmul, 64 of 64", lambda f: f.np.matmul, normal(64, 64, 64), normal(64, 64, 64), at_most=0.5)

    def convolve(f: Faces) -> Function:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lambda x, w: f.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    image, kernel = normal(32, 32, 32, 64), normal(3, 3, 64, 64)
    yield line("convolution", convolve, image, kernel, at_most=0.8, repeats=6)

    def gradient(f: Faces, number: int) -> Function:
        return f.top.grad(lambda x, w: (convolve(f)(x, w) * x).sum() if number else convolve(f)(x, w).sum(), number)

    yield line("convolution, gradient of input", lambda f: gradient(f, 0), image, kernel, at_most=0.8, repeats=6)
    yield line("convolution, gradient of weights", lambda f: gradient(f, 1), image, kernel, at_most=0.3, repeats=6)


def loops() -> Iterator[Line]:
    def rnn(f: Faces) -> Function:
        def step(weights: Any, h: Any, x: Any) -> Any:
            h = f.np.tanh(h @ weights + x)
            return h, h.sum()

        return lambda w, xs: f.lax.scan(lambda h, x: step(w, h, x), xs[0], xs)[1].sum()

    weights, inputs = normal(32, 32) * 0.1, normal(1000, 32)
    yield line("scan, 1000 steps of an RNN of 32", rnn, weights, inputs, at_most=0.4)
    yield line("its gradient", lambda f: f.top.grad(rnn(f)), weights, inputs, at_most=0.5)

    def sines(f: Faces) -> Function:
        return lambda x: f.lax.fori_loop(0, 10_000, lambda i, c: f.np.sin(c), x)

    yield line("10,000 turns of sin on 16 floats", sines, normal(16), at_most=0.7)
    yield line(
        "random normal, 1M",
        lambda f: lambda s: f.random.normal(f.random.PRNGKey(s), (1_000_000,)),
        np.int32(0),
        at_most=0.7,
    )
    batch, sides = normal(10_000, 3, 3) + 3 * np.eye(3, dtype=np.float32), normal(10_000, 3, 1)
    yield line("10,000 solves of 3 x 3", lambda f: f.np.linalg.solve, batch, sides, at_most=0.5, repeats=8)
    yield line("rfft, 1M", lambda f: f.np.fft.rfft, normal(1_000_000), at_most=1.1, repeats=8)
    spd = (lambda a: a @ a.T + 512 * np.eye(512, dtype=np.float32))(normal(512, 512))
    yield line("cholesky, 512", lambda f: f.np.linalg.cholesky, spd, at_most=1.05, repeats=8)


def steps() -> Iterator[Line]:
    def mlp_step(f: Faces) -> Function:
        def loss(params: Any, x: Any, y: Any) -> Any:
            for w, b in params:
                x = f.np.tanh(x @ w + b)
            return ((x - y) ** 2).mean()

        def step(params: Any, x: Any, y: Any) -> Any:
            value, gradient = f.top.value_and_grad(loss)(params, x, y)
            return value, f.top.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

        return step

    params = [(normal(64, 64) * 0.1, normal(64) * 0.1) for _ in range(12)]
    yield line("train step, 12-layer MLP", mlp_step, params, normal(32, 64), normal(32, 64), at_most=0.8)


GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "maps": maps,
    "folds": folds,
    "moves": moves,
    "products": products,
    "loops": loops,
    "steps": steps,
}
