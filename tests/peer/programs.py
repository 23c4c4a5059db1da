"""Training programs that Weft and JAX both run, written against a NumPy-like module."""

from __future__ import annotations

from typing import Any


def adam(
    step: int, params: Any, gradients: Any, state: Any, tree_map: Any, xnp: Any, rate: float = 1e-2
) -> tuple[Any, Any]:
    """Take one hand-written Adam step; `state` is the pair of running moments."""
    first, second = state
    first = tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    correct_first, correct_second = 1 - 0.9**step, 1 - 0.999**step
    params = tree_map(
        lambda p, m, v: p - rate * (m / correct_first) / (xnp.sqrt(v / correct_second) + 1e-8), params, first, second
    )
    return params, (first, second)


def cnn_loss(lib: Any, params: Any, images: Any, labels: Any) -> Any:
    """Two convolutions, max pooling, a dense layer, cross entropy."""
    lax, xnp, nn = lib.lax, lib.numpy, lib.nn
    x = images
    for kernel, bias in params["conv"]:
        x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = nn.relu(x + bias)
        x = lax.reduce_window(x, -xnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    weights, bias = params["dense"]
    logits = x @ weights + bias
    return -xnp.mean(xnp.sum(nn.log_softmax(logits) * nn.one_hot(labels, 10), axis=-1))


def transformer_loss(lib: Any, params: Any, tokens: Any) -> Any:
    """Compute the next-token cross entropy of a decoder of two blocks."""
    lax, xnp, nn = lib.lax, lib.numpy, lib.nn

    def norm(x: Any, scale: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale

    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    length = inputs.shape[1]
    x = params["embed"][inputs] + params["position"][:length]
    mask = xnp.tril(xnp.ones((length, length), bool))
    for block in params["blocks"]:
        y = norm(x, block["scale1"])
        query, key, value = (xnp.einsum("btd,dhk->bthk", y, block[n]) for n in ("query", "key", "value"))
        scores = xnp.einsum("bthk,bshk->bhts", query, key) / query.shape[-1] ** 0.5
        weights = nn.softmax(xnp.where(mask, scores, -1e9), axis=-1)
        x = x + xnp.einsum("bhts,bshk,hkd->btd", weights, value, block["out"])
        y = norm(x, block["scale2"])
        x = x + nn.gelu(y @ block["up"]) @ block["down"]
    logits = x @ params["embed"].T
    chosen = xnp.take_along_axis(nn.log_softmax(logits), targets[..., None], axis=-1)
    return -chosen.mean()


def train(lib: Any, loss: Any, params: Any, batches: Any) -> list[float]:
    """Losses of a few jitted, donating Adam steps."""
    tree_map = lib.tree.map

    def step(i: Any, params: Any, state: Any, *batch: Any) -> Any:
        value, gradients = lib.value_and_grad(lambda p: loss(lib, p, *batch))(params)
        params, state = adam(i, params, gradients, state, tree_map, lib.numpy)
        return value, params, state

    jitted = lib.jit(step, donate_argnums=(1, 2))
    params = tree_map(lib.numpy.asarray, params)
    state = (tree_map(lib.numpy.zeros_like, params), tree_map(lib.numpy.zeros_like, params))
    losses = []
    for i, batch in enumerate(batches, 1):
        value, params, state = jitted(lib.numpy.float32(i), params, state, *map(lib.numpy.asarray, batch))
        losses.append(float(value))
    return losses
