"""Benchmarks of single operations: elementwise, reductions, sorting, data movement, matmuls and convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from bench import Bench, Function
from libraries import Library
from measure import Line
from models import DIMENSION_NUMBERS, fused, normalised


def maps(bench: Bench) -> Iterator[Line]:
    count = bench.size(4_000_000, 1000)
    x, y = bench.normal(count), bench.normal(count)
    positive = np.abs(x) + np.float32(0.1)

    for name in ("sin", "cos", "tanh", "exp"):
        yield bench.line(
            f"{name}, 4M",
            lambda f, name=name: getattr(f.np, name),
            x,
            at_most=0.5,
            numpy=getattr(np, name),
            torch=lambda t, name=name: getattr(t, name),
        )
    yield bench.line("log, 4M", lambda f: f.np.log, positive, at_most=0.5, numpy=np.log, torch=lambda t: t.log)
    yield bench.line(
        "pow, 4M", lambda f: f.np.power, positive, y, at_most=0.5, numpy=np.power, torch=lambda t: t.pow, repeats=12
    )
    yield bench.line("erf, 4M", lambda f: f.lax.erf, x, at_most=0.5, torch=lambda t: t.erf)
    yield bench.line(
        "tanh(x) exp(-x x) + sin(x), 4M",
        fused,
        x,
        at_most=0.5,
        repeats=12,
        numpy=lambda x: np.tanh(x) * np.exp(-x * x) + np.sin(x),
        torch=lambda t: lambda x: t.tanh(x) * t.exp(-x * x) + t.sin(x),
    )
    yield bench.line(
        "x + 1, 4M", lambda f: lambda x: x + 1, x, at_most=0.8, numpy=lambda x: x + 1, torch=lambda t: lambda x: x + 1
    )
    yield bench.line(
        "x y + x, 4M",
        lambda f: lambda x, y: x * y + x,
        x,
        y,
        at_most=0.8,
        numpy=lambda x, y: x * y + x,
        torch=lambda t: lambda x, y: x * y + x,
    )


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def numpy_layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + shift


def reductions(bench: Bench) -> Iterator[Line]:
    side = bench.size(1024, 32)
    x, square = bench.normal(bench.size(4_000_000, 1000)), bench.normal(side, side)
    yield bench.line("sum, 4M", lambda f: f.np.sum, x, at_most=0.9, numpy=np.sum, torch=lambda t: t.sum)
    yield bench.line(
        "softmax, 1024 x 1024",
        lambda f: f.nn.softmax,
        square,
        at_most=0.8,
        numpy=numpy_softmax,
        torch=lambda t: lambda x: t.softmax(x, -1),
    )
    yield bench.line(
        "layernorm, 1024 x 1024",
        lambda f: lambda *args: normalised(f, *args),
        square,
        bench.normal(side),
        bench.normal(side),
        at_most=0.5,
        numpy=numpy_layer_norm,
        torch=lambda t: lambda x, scale, shift: t.nn.functional.layer_norm(x, x.shape[-1:], scale, shift),
    )
    yield bench.line(
        "transpose, 1024 x 1024",
        lambda f: lambda x: x.T + 0,
        square,
        at_most=0.6,
        numpy=lambda x: np.ascontiguousarray(x.T),
        torch=lambda t: lambda x: x.T.contiguous(),
    )
    yield bench.line(
        "column sum, 4096 x 1024",
        lambda f: lambda x: x.sum(0),
        bench.normal(4 * side, side),
        at_most=0.9,
        numpy=lambda x: x.sum(0),
        torch=lambda t: lambda x: x.sum(0),
    )


def orders(bench: Bench) -> Iterator[Line]:
    x = bench.normal(bench.size(4_000_000, 1000))
    yield bench.line(
        "cumsum, 4M",
        lambda f: f.np.cumsum,
        x,
        at_most=0.2,
        repeats=8,
        numpy=np.cumsum,
        torch=lambda t: lambda x: x.cumsum(0),
    )
    yield bench.line(
        "argmax, 4M", lambda f: f.np.argmax, x, at_most=0.1, repeats=8, numpy=np.argmax, torch=lambda t: t.argmax
    )
    million = bench.normal(bench.size(1_000_000, 1000))
    yield bench.line(
        "sort, 1M",
        lambda f: f.np.sort,
        million,
        at_most=0.06,
        repeats=4,
        numpy=np.sort,
        torch=lambda t: lambda x: x.sort()[0],
    )
    yield bench.line(
        "argsort, 1M",
        lambda f: f.np.argsort,
        million,
        at_most=0.12,
        repeats=4,
        numpy=np.argsort,
        torch=lambda t: t.argsort,
    )
    yield bench.line(
        "top_k 8, 1000 x 1000",
        lambda f: lambda x: tuple(f.lax.top_k(x, 8)),
        bench.normal(bench.size(1000, 10), bench.size(1000, 50)),
        at_most=0.3,
        torch=lambda t: lambda x: tuple(t.topk(x, 8)),
    )
    kinds = bench.size(1000, 10)
    yield bench.line(
        "unique, 1M integers of 1000",
        lambda f: lambda x: f.np.unique(x, size=kinds, fill_value=0),
        bench.rng.integers(0, kinds, million.size).astype(np.int32),
        at_most=0.2,
        repeats=4,
        numpy=np.unique,
        torch=lambda t: t.unique,
    )


def data_movement(bench: Bench) -> Iterator[Line]:
    height, count, million = bench.size(50_000, 100), bench.size(16_384, 64), bench.size(1_000_000, 1000)
    table, updates = bench.normal(height, 64), bench.normal(count, 64)
    rows = bench.rng.integers(0, height, count).astype(np.int32)
    flat, indices = bench.normal(million), bench.rng.integers(0, million, million).astype(np.int32)
    yield bench.line(
        "gather rows, 16k x 64",
        lambda f: lambda t, i: t[i],
        table,
        rows,
        at_most=0.5,
        numpy=lambda t, i: t[i],
        torch=lambda torch: lambda t, i: t[i],
    )
    yield bench.line(
        "gather scalars, 1M",
        lambda f: lambda t, i: t[i],
        flat,
        indices,
        at_most=1.0,
        numpy=lambda t, i: t[i],
        torch=lambda torch: lambda t, i: t[i],
    )

    def numpy_scatter(t: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        result = t.copy()
        np.add.at(result, i, u)
        return result

    yield bench.line(
        "scatter-add rows, 16k x 64",
        lambda f: lambda t, i, u: t.at[i].add(u),
        table,
        rows,
        updates,
        at_most=1.0,
        repeats=10,
        numpy=numpy_scatter,
        torch=lambda torch: lambda t, i, u: t.index_add(0, i, u),
    )
    yield bench.line(
        "scatter-add scalars, 1M",
        lambda f: lambda t, i: t.at[i].add(t),
        flat,
        indices,
        at_most=1.0,
        repeats=10,
        numpy=lambda t, i: numpy_scatter(t, i, t),
        torch=lambda torch: lambda t, i: t.index_add(0, i, t),
    )
    segments = bench.size(1000, 10)
    # As in jax.ops.segment_sum.
    yield bench.line(
        "segment sum, 1M into 1000",
        lambda f: lambda x, i: f.np.zeros(segments, f.np.float32).at[i].add(x),
        flat,
        (indices % segments).astype(np.int32),
        at_most=1.0,
        repeats=10,
        numpy=lambda x, i: np.bincount(i, x, segments),
        torch=lambda torch: lambda x, i: torch.zeros(segments).index_add(0, i, x),
    )


def matmuls(bench: Bench) -> Iterator[Line]:
    sizes = (
        (16, 0.25, 20),
        (32, 0.25, 20),
        (64, 0.25, 20),
        (128, 0.8, 20),
        (256, 0.8, 20),
        (1024, 1.05, 8),
        (2048, 1.05, 4),
    )
    for size, bound, repeats in sizes[:3] if bench.small else sizes:
        operands = bench.normal(size, size), bench.normal(size, size)
        yield bench.line(
            f"matmul, {size}",
            lambda f: f.np.matmul,
            *operands,
            at_most=bound,
            repeats=repeats,
            numpy=np.matmul,
            torch=lambda t: t.matmul,
        )
    batch = bench.normal(bench.size(64, 3), 64, 64), bench.normal(bench.size(64, 3), 64, 64)
    yield bench.line(
        "matmul, 64 of 64", lambda f: f.np.matmul, *batch, at_most=0.5, numpy=np.matmul, torch=lambda t: t.matmul
    )
    side = bench.size(1024, 32)

    def short(f: Library) -> Function:
        return lambda a, b: f.np.matmul(a.astype(f.np.bfloat16), b.astype(f.np.bfloat16))

    # Operands are converted inside, a thousandth of the work, since NumPy has no bfloat16.
    yield bench.line(
        "matmul, 1024, bfloat16", short, bench.normal(side, side), bench.normal(side, side), at_most=1.1, repeats=6
    )


def convolutions(bench: Bench) -> Iterator[Line]:
    batch, side, channels = bench.size(32, 2), bench.size(32, 8), bench.size(64, 4)
    image, kernel = bench.normal(batch, side, side, channels), bench.normal(3, 3, channels, channels)
    cotangent, depthwise_kernel = bench.normal(batch, side, side, channels), bench.normal(3, 3, 1, channels)

    def convolve(f: Library, groups: int = 1) -> Function:
        return lambda x, w: f.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=DIMENSION_NUMBERS, feature_group_count=groups
        )

    def gradient(f: Library, argnum: int) -> Function:
        # The convolution is linear in each operand, so its value is not needed and not computed.
        return lambda x, w, c: f.top.grad(lambda x, w: (convolve(f)(x, w) * c).sum(), argnum)(x, w)

    def by_torch(t: Any, groups: int = 1) -> Function:
        def run(x: Any, w: Any) -> Any:
            out = t.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1, groups=groups)
            return out.permute(0, 2, 3, 1)

        return run

    def torch_gradient(t: Any, argnum: int) -> Function:
        def run(x: Any, w: Any, c: Any) -> Any:
            x, w, c = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), c.permute(0, 3, 1, 2)
            if argnum:
                return t.nn.grad.conv2d_weight(x, w.shape, c, padding=1).permute(2, 3, 1, 0)
            return t.nn.grad.conv2d_input(x.shape, w, c, padding=1).permute(0, 2, 3, 1)

        return run

    yield bench.line("convolution", convolve, image, kernel, at_most=0.8, repeats=6, torch=by_torch)
    for name, argnum, bound in (("input", 0, 0.8), ("weights", 1, 0.3)):
        yield bench.line(
            f"convolution, gradient of {name}",
            lambda f, argnum=argnum: gradient(f, argnum),
            image,
            kernel,
            cotangent,
            at_most=bound,
            repeats=6,
            torch=lambda t, argnum=argnum: torch_gradient(t, argnum),
        )
    yield bench.line(
        "convolution, depthwise",
        lambda f: convolve(f, channels),
        image,
        depthwise_kernel,
        at_most=0.1,
        repeats=6,
        torch=lambda t: by_torch(t, channels),
    )
