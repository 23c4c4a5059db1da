"""Shared parts of the examples here: eight virtual devices, two small models with their data, and a training loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.sharding import AxisType, Mesh

weft.config.update("num_cpu_devices", 8)  # before devices are first asked for

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 32, 32, 4, 16, 16


def mesh(**axes: int) -> Mesh:
    """Make a mesh whose axes the compiler splits programs over."""
    return weft.make_mesh(tuple(axes.values()), tuple(axes), (AxisType.Auto,) * len(axes))


def sgd(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Make a training step: new parameters and the loss."""

    def step(params: Any, *batch: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, *batch)
        return weft.tree.map(lambda p, g: p - 0.3 * g, params, gradients), value

    return step


def train(step: Callable[..., Any], params: Any, batches: Iterator[Any], put: Callable[[Any], Any] = tuple) -> Any:
    """Return the losses of all steps; `put` places a batch on its devices."""
    losses = []
    for batch in batches:
        params, value = step(params, *put(batch))
        losses.append(float(value))
    return losses


def report(name: str, losses: list[float], expected: list[float], step: Any = None, *args: Any) -> None:
    """Compare with one device, and print the bytes that a step sends."""
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert losses[-1] < losses[0]
    if step is not None:
        sent = step.lower(*args).compile().communication
        print(f"{name}: each device sends {sent.total_bytes / 1e3:.1f} kB a step in {sent.counts()}")
    print(f"final loss {losses[-1]:.5f} on 8 devices, {expected[-1]:.5f} on one")


# -- a perceptron that learns a function ---------------------------------------------------------------------------


def mlp_params(width: int = 64, layers: int = 4) -> list[dict[str, Any]]:
    random = np.random.RandomState(0)
    draw = lambda *shape: random.randn(*shape).astype(np.float32) / np.sqrt(width)
    return [{"w": draw(width, width), "b": draw(width)} for _ in range(layers)]


def mlp(params: Any, x: Any) -> Any:
    for layer in params:
        x = wnp.tanh(x @ layer["w"] + layer["b"])
    return x


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return ((mlp(params, x) - y) ** 2).mean()


def mlp_batches(steps: int, width: int = 64) -> Iterator[Any]:
    x = np.random.RandomState(1).randn(32, width).astype(np.float32)
    return itertools.repeat((x, np.tanh(np.roll(x, 1, -1))), steps)


# -- a transformer that learns to repeat what it has read -----------------------------------------------------------


def transformer_params(layers: int = 1) -> dict[str, Any]:
    random = np.random.RandomState(0)

    def draw(*shape: int) -> Any:
        return random.randn(*shape).astype(np.float32) / np.float32(np.sqrt(WIDTH))

    features = WIDTH // HEADS
    return {
        "embed": draw(VOCABULARY, WIDTH),
        "layers": [
            {
                **{name: draw(WIDTH, HEADS, features) for name in ("query", "key", "value")},
                "out": draw(HEADS, features, WIDTH),
                "up": draw(WIDTH, 4 * WIDTH),
                "down": draw(4 * WIDTH, WIDTH),
            }
            for _ in range(layers)
        ],
    }


def normed(x: Any) -> Any:
    return x * weft.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Compute causal attention of arrays with dimensions for batch, heads, positions and features."""
    scores = wnp.einsum("bhqf,bhkf->bhqk", q, k) * q.shape[-1] ** -0.5
    allowed = wnp.tril(wnp.ones(scores.shape[-2:], bool))
    return wnp.einsum("bhqk,bhkf->bhqf", weft.nn.softmax(wnp.where(allowed, scores, -1e9), -1), v)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -(weft.nn.log_softmax(logits, -1) * weft.nn.one_hot(labels, VOCABULARY)).sum(-1)


def transformer_loss(
    params: Any,
    tokens: Any,
    attend: Callable[..., Any] = attention,
    between: Callable[[Any], Any] = lambda x: x,
    losses: Callable[..., Any] = cross_entropy,
) -> Any:
    """Return the loss of predicting each token from those before. `between` is applied to the residual stream between
    blocks, `losses` to logits and labels."""
    x = between(params["embed"][tokens])
    for layer in params["layers"]:
        q, k, v = (wnp.einsum("btd,dhf->bhtf", normed(x), layer[name]) for name in ("query", "key", "value"))
        x = between(x + wnp.einsum("bhtf,hfd->btd", attend(q, k, v), layer["out"]))
        x = between(x + wnp.maximum(normed(x) @ layer["up"], 0) @ layer["down"])
    logits = normed(x) @ params["embed"].T
    return losses(logits, wnp.roll(tokens, -1, 1))[:, :-1].mean()


def transformer_batches(steps: int) -> Iterator[Any]:
    half = np.random.RandomState(1).randint(0, VOCABULARY, (BATCH, LENGTH // 2)).astype(np.int32)
    return itertools.repeat((np.concatenate([half, half], 1),), steps)
