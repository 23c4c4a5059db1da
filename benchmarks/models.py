"""Models used by several benchmarks: a loss written for Weft and JAX, and NumPy parameters.

Each model has a function that takes a library and returns the loss, and one that returns its arguments; the first
argument is the parameters, a tree of float32 arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from libraries import Library

Function = Callable[..., Any]
CONVOLUTIONS = ((3, 96, 1), (3, 96, 1), (3, 96, 2), (3, 192, 1), (3, 192, 1), (3, 192, 2), (3, 192, 1), (1, 192, 1))
DIMENSION_NUMBERS = ("NHWC", "HWIO", "NHWC")


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.normal(size=shape) * scale).astype(np.float32)


def fused(f: Library) -> Function:
    """Make a small function that is compiled to one kernel."""
    return lambda x: f.np.tanh(x) * f.np.exp(-x * x) + f.np.sin(x)


def mlp(f: Library) -> Function:
    def loss(params: Any, x: Any, y: Any) -> Any:
        for weights, bias in params:
            x = f.np.tanh(x @ weights + bias)
        return ((x - y) ** 2).mean()

    return loss


def mlp_arguments(layers: int = 12, width: int = 64, batch: int = 32) -> tuple[Any, ...]:
    rng = generator()
    params = [(normal(rng, width, width, scale=0.1), normal(rng, width, scale=0.1)) for _ in range(layers)]
    return params, normal(rng, batch, width), normal(rng, batch, width)


def normalised(f: Library, x: Any, scale: Any, shift: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * f.lax.rsqrt(variance + 1e-5) * scale + shift


def cross_entropy(f: Library, logits: Any, labels: Any) -> Any:
    chosen = f.np.take_along_axis(f.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def transformer(f: Library, heads: int = 4) -> Function:
    """Make a causal transformer whose layers are unrolled in a Python loop."""

    def attention(p: Any, x: Any) -> Any:
        batch, length, width = x.shape
        split = (batch, length, heads, width // heads)
        q, k, v = (part.reshape(split).transpose(0, 2, 1, 3) for part in f.np.split(x @ p["qkv"], 3, -1))
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // heads))
        causal = np.tril(np.ones((length, length), bool))
        weights = f.nn.softmax(f.np.where(causal, scores, np.float32(-1e9)))
        return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["out"]

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        x = params["embedding"][tokens]
        for p in params["layers"]:
            x = x + attention(p, normalised(f, x, p["scale1"], p["shift1"]))
            hidden = f.nn.gelu(normalised(f, x, p["scale2"], p["shift2"]) @ p["up"] + p["bias"])
            x = x + hidden @ p["down"]
        return cross_entropy(f, x @ params["embedding"].T, labels)

    return loss


def transformer_arguments(
    layers: int, width: int = 64, batch: int = 2, length: int = 32, vocabulary: int = 128
) -> tuple[Any, ...]:
    rng = generator()
    scale = width**-0.5

    def layer() -> dict[str, np.ndarray]:
        return {
            "qkv": normal(rng, width, 3 * width, scale=scale),
            "out": normal(rng, width, width, scale=scale),
            "up": normal(rng, width, 4 * width, scale=scale),
            "bias": normal(rng, 4 * width, scale=0.1),
            "down": normal(rng, 4 * width, width, scale=scale / 2),
            **{name: normal(rng, width, scale=0.1) + np.float32(1) for name in ("scale1", "scale2")},
            **{name: normal(rng, width, scale=0.1) for name in ("shift1", "shift2")},
        }

    params = {"embedding": normal(rng, vocabulary, width, scale=scale), "layers": [layer() for _ in range(layers)]}
    tokens = rng.integers(0, vocabulary, (batch, length + 1)).astype(np.int32)
    return params, tokens[:, :-1], tokens[:, 1:]


def all_convolutions(f: Library) -> Function:
    """Make the net of "Striving for Simplicity" for CIFAR-10: only convolutions, and a mean over space at the end."""

    def loss(params: Any, x: Any, labels: Any) -> Any:
        strides = [stride for _, _, stride in CONVOLUTIONS] + [1]
        for i, ((weights, bias), stride) in enumerate(zip(params, strides, strict=True)):
            x = f.nn.relu(x) if i else x
            x = f.lax.conv_general_dilated(x, weights, (stride, stride), "SAME", dimension_numbers=DIMENSION_NUMBERS)
            x = x + bias
        return cross_entropy(f, x.mean((1, 2)), labels)

    return loss


def all_convolutions_arguments(batch: int = 32, size: int = 32, narrower: int = 1) -> tuple[Any, ...]:
    rng = generator()
    params, channels = [], 3
    for side, wanted, _ in (*CONVOLUTIONS, (1, 10 * narrower, 1)):
        width = wanted // narrower
        scale = (2 / (side * side * channels)) ** 0.5
        params.append((normal(rng, side, side, channels, width, scale=scale), np.zeros(width, np.float32)))
        channels = width
    return params, normal(rng, batch, size, size, 3), rng.integers(0, 10, batch).astype(np.int32)


def lstm(f: Library) -> Function:
    """Make an LSTM over a sequence by scan, and the squared error of its last output."""

    def loss(params: Any, xs: Any, y: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, g, o, keep = f.np.split(x @ params["input"] + h @ params["state"] + params["bias"], 4, -1)
            c = f.nn.sigmoid(keep) * c + f.nn.sigmoid(i) * f.np.tanh(g)
            return (f.nn.sigmoid(o) * f.np.tanh(c), c), None

        zero = f.np.zeros((xs.shape[1], params["state"].shape[0]), f.np.float32)
        (h, _), _ = f.lax.scan(step, (zero, zero), xs)
        return ((h @ params["out"] - y) ** 2).mean()

    return loss


def lstm_arguments(length: int = 50, batch: int = 16, inputs: int = 32, units: int = 64) -> tuple[Any, ...]:
    rng = generator()
    params = {
        "input": normal(rng, inputs, 4 * units, scale=inputs**-0.5),
        "state": normal(rng, units, 4 * units, scale=units**-0.5),
        "bias": normal(rng, 4 * units, scale=0.1),
        "out": normal(rng, units, inputs, scale=units**-0.5),
    }
    return params, normal(rng, length, batch, inputs), normal(rng, batch, inputs)


def train_step(f: Library, loss: Function) -> Function:
    """Make a step of gradient descent: the loss and the new parameters."""

    def step(params: Any, *batch: Any) -> Any:
        value, gradient = f.top.value_and_grad(loss)(params, *batch)
        return value, f.top.tree.map(lambda p, g: p - np.float32(0.01) * g, params, gradient)

    return step
