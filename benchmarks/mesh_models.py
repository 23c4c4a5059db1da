"""Training steps of an MLP and of a transformer for programs on meshes, for Weft and JAX, with NumPy parameters.

Each model returns a loss, parameters and a batch; how they are split is up to the benchmark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LAYERS = 4


class Model(NamedTuple):
    """Loss of parameters and a batch."""

    loss: Callable[..., Any]
    params: Any
    batch: Any


def step_of(lib: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    """Make a step of gradient descent: new parameters and the loss."""

    def step(params: Any, batch: Any) -> Any:
        value, gradients = lib.value_and_grad(loss)(params, batch)
        return lib.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, gradients), value

    return step


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return (random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)


def mlp(lib: Any, layers: int = LAYERS, size: int = 512, rows: int = 256) -> Model:
    """Make layers of one size: a list of weights `w` and biases `b`."""
    random = np.random.default_rng(0)
    params = [{"w": normal(random, size, size), "b": np.zeros(size, np.float32)} for _ in range(layers)]
    jnp = lib.numpy

    def loss(params: Any, batch: Any) -> Any:
        h, y = batch
        for layer in params:
            h = jnp.tanh(h @ layer["w"] + layer["b"])
        return jnp.mean((h - y) ** 2)

    return Model(loss, params, (normal(random, rows, size), normal(random, rows, size)))


def transformer(lib: Any, layers: int = LAYERS, rows: int = 16) -> Model:
    """Make a decoder with an embedding that is its output layer too; every layer has the keys q, k, v, o, up, down, n1
    and n2."""
    vocabulary, size, heads, length, hidden = 256, 128, 8, 64, 512
    random = np.random.default_rng(0)
    head = size // heads
    layer = lambda: {
        **{name: normal(random, size, heads, head) for name in ("q", "k", "v")},
        "o": normal(random, heads, head, size),
        "up": normal(random, size, hidden),
        "down": normal(random, hidden, size),
        **{name: np.ones(size, np.float32) for name in ("n1", "n2")},
    }
    params = {"embedding": normal(random, vocabulary, size), "layers": [layer() for _ in range(layers)]}
    jnp, lax = lib.numpy, lib.lax

    def norm(x: Any, scale: Any) -> Any:
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale

    def loss(params: Any, tokens: Any) -> Any:
        x, mask = params["embedding"][tokens], jnp.tril(jnp.ones((length, length), bool))
        for p in params["layers"]:
            h = norm(x, p["n1"])
            q, k, v = (jnp.einsum("btd,dhk->bhtk", h, p[name]) for name in "qkv")
            scores = jnp.where(mask, jnp.einsum("bhtk,bhsk->bhts", q, k) * head**-0.5, -1e9)
            scores = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
            scores = scores / scores.sum(-1, keepdims=True)
            x = x + jnp.einsum("bhtk,hkd->btd", jnp.einsum("bhts,bhsk->bhtk", scores, v), p["o"])
            x = x + jnp.maximum(norm(x, p["n2"]) @ p["up"], 0) @ p["down"]
        logits = x @ params["embedding"].T
        logits = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
        logs = logits - jnp.log(jnp.exp(logits).sum(-1, keepdims=True))
        return -jnp.mean(jnp.take_along_axis(logs[:, :-1], tokens[:, 1:, None], -1))

    return Model(loss, params, random.integers(0, vocabulary, (rows, length)).astype(np.int32))


def transformer_specs(P: Any, f: Any, t: Any, layers: int = LAYERS) -> Any:
    """Return the specs of a transformer's parameters: stored split over `f`, and tensor parallel over `t`."""
    own = {"q": P(f, t), "k": P(f, t), "v": P(f, t), "o": P(t, None, f), "up": P(f, t), "down": P(t, f)}
    return {"embedding": P(t, f), "layers": [{**own, "n1": P(), "n2": P()}] * layers}
