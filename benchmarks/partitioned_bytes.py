"""What a training step sends on eight devices, by the partitioner's own account, beside what JAX sends.

    python benchmarks/partitioned_bytes.py

The steps are those of an MLP and of a transformer, without any constraint inside: data parallel, parameters stored
split (fsdp), tensor parallel, and both. Nothing is run. JAX's figures are of version 0.10.2 for the same steps: bytes
that one device sends, read off the collectives of the compiled program.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as onp

import weft
import weft.lax as lax
import weft.numpy as np
from weft.compiler.partition.driver import prepared
from weft.compiler.partition.partition import Partitioned, partition
from weft.sharding.spec import dims_of

P = weft.P
JAX = {
    ("mlp", "dp"): 7.35,
    ("mlp", "fsdp"): 7.75,
    ("mlp", "tp"): 2.75,
    ("mlp", "fsdp x tp"): 4.86,
    ("transformer", "dp"): 5.97,
    ("transformer", "fsdp"): 57.70,
    ("transformer", "tp"): 23.88,
    ("transformer", "fsdp x tp"): 32.20,
}


class Step(NamedTuple):
    """A training step, and how its parameters and its batch are split over a mesh with these axes."""

    model: str
    label: str
    function: Callable[..., Any]
    params: Any
    batch: Any
    specs: Any
    batch_spec: Any
    mesh: Mapping[str, int]


def step_of(loss: Callable[..., Any]) -> Callable[..., Any]:
    """One step of gradient descent: new parameters and the loss."""

    def step(params: Any, batch: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, batch)
        return weft.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, gradients), value

    return step


def mlp(devices: int, size: int = 512, layers: int = 4, rows: int = 256) -> Iterator[Step]:
    params = {f"w{i}": onp.zeros((size, size), onp.float32) for i in range(layers)}
    params |= {f"b{i}": onp.zeros(size, onp.float32) for i in range(layers)}
    batch = (onp.zeros((rows, size), onp.float32), onp.zeros((rows, size), onp.float32))

    def loss(params: Any, batch: Any) -> Any:
        h, y = batch
        for i in range(layers):
            h = np.tanh(h @ params[f"w{i}"] + params[f"b{i}"])
        return np.mean((h - y) ** 2)

    def specs(weights: Sequence[Any], biases: Sequence[Any]) -> Any:
        """Those of even and of odd layers."""
        found = {f"w{i}": weights[i % 2] for i in range(layers)}
        return found | {f"b{i}": biases[i % 2] for i in range(layers)}

    one, two = {"d": devices}, {"d": devices // 2, "t": 2}
    for label, own, batch_spec, mesh in (
        ("dp", specs([P()] * 2, [P()] * 2), P("d"), one),
        ("fsdp", specs([P("d")] * 2, [P("d")] * 2), P("d"), one),
        ("tp", specs([P(None, "d"), P("d")], [P("d"), P()]), P(), one),
        ("fsdp x tp", specs([P("d", "t"), P("t", "d")], [P("t"), P("d")]), P("d"), two),
    ):
        yield Step("mlp", label, step_of(loss), params, batch, own, (batch_spec,) * 2, mesh)


def transformer(devices: int, layers: int = 4, rows: int = 16) -> Iterator[Step]:
    vocabulary, width, heads, length, hidden = 256, 128, 8, 64, 512
    head = width // heads
    shapes: dict[str, tuple[int, ...]] = {name: (width, heads, head) for name in "qkv"}
    shapes |= {
        "o": (heads, head, width),
        "up": (width, hidden),
        "down": (hidden, width),
        "n1": (width,),
        "n2": (width,),
    }
    layer = {name: onp.zeros(shape, onp.float32) for name, shape in shapes.items()}
    params = {"emb": onp.zeros((vocabulary, width), onp.float32), "layers": [layer] * layers}

    def norm(x: Any, scale: Any) -> Any:
        return x * lax.rsqrt(np.mean(x * x, -1, keepdims=True) + 1e-6) * scale

    def loss(params: Any, tokens: Any) -> Any:
        x, mask = params["emb"][tokens], np.tril(np.ones((length, length), bool))
        for own in params["layers"]:
            h = norm(x, own["n1"])
            q, k, v = (np.einsum("btd,dhk->bhtk", h, own[name]) for name in "qkv")
            scores = np.where(mask, np.einsum("bhtk,bhsk->bhts", q, k) * head**-0.5, -1e9)
            scores = np.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
            scores = scores / scores.sum(-1, keepdims=True)
            x = x + np.einsum("bhtk,hkd->btd", np.einsum("bhts,bhsk->bhtk", scores, v), own["o"])
            x = x + np.maximum(norm(x, own["n2"]) @ own["up"], 0) @ own["down"]
        z = x @ params["emb"].T
        z = z - lax.stop_gradient(z.max(-1, keepdims=True))
        log_probabilities = z - np.log(np.exp(z).sum(-1, keepdims=True))
        return -np.mean(np.take_along_axis(log_probabilities[:, :-1], tokens[:, 1:, None], -1))

    def specs(f: Any, t: Any) -> Any:
        own = {name: P(f, t) for name in (*"qkv", "up")} | {"o": P(t, None, f), "down": P(t, f), "n1": P(), "n2": P()}
        return {"emb": P(t, f), "layers": [own] * layers}

    tokens = onp.zeros((rows, length), onp.int32)
    one, two = {"d": devices}, {"d": devices // 2, "t": 2}
    for label, own, batch_spec, mesh in (
        ("dp", specs(None, None), P("d"), one),
        ("fsdp", specs("d", None), P("d"), one),
        ("tp", specs(None, "d"), P(), one),
        ("fsdp x tp", specs("d", "t"), P("d"), two),
    ):
        yield Step("transformer", label, step_of(loss), params, tokens, own, batch_spec, mesh)


def partitioned(step: Step) -> tuple[Partitioned, int, float]:
    """The program of one device, of how many equations it was made, and the seconds that took."""
    jaxpr = prepared(weft.make_jaxpr(step.function)(step.params, step.batch))
    flat = [s for s in weft.tree_util.tree_leaves((step.specs, step.batch_spec), is_leaf=lambda x: isinstance(x, P))]
    state = len(weft.tree_util.tree_leaves(step.params))
    in_dims = [dims_of(s, len(v.aval.shape)) for s, v in zip(flat, jaxpr.invars, strict=True)]  # type: ignore[attr-defined]
    stored = [i < state for i in range(len(in_dims))]
    start = time.perf_counter()
    result = partition(jaxpr, step.mesh, in_dims, [*in_dims[:state], ()], stored)
    return result, len(jaxpr.eqns), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=8)
    devices = parser.parse_args().devices
    for step in (*mlp(devices), *transformer(devices)):
        result, equations, seconds = partitioned(step)
        megabytes = sum(c.bytes for c in result.communication) / 1e6
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(c.kind for c in result.communication).items())
        peer = f"JAX {JAX[step.model, step.label]:6.2f}" if devices == 8 else ""
        print(
            f"{step.model:12} {step.label:10} {megabytes:7.3f} MB  {peer}  "
            f"{seconds / equations * 1e6:4.0f} us an equation ({equations})  {kinds}"
        )


if __name__ == "__main__":
    main()
