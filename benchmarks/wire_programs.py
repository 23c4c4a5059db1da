"""Programs on meshes by a description of a few fields, for Weft and JAX: what `bytes_beside_jax.py` compares.

A description is data (`Case`), so that two processes build the same program from its text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

WIDTH, HIDDEN, HEADS, VOCABULARY, LENGTH = 64, 256, 8, 192, 16


@dataclass(frozen=True)
class Case:
    """One program: a model, how it is split, and how it is run.

    Attributes:
        model: "mlp" (residual blocks with a bias), "dense" (tanh layers) or "transformer".
        way: "dp", "fsdp" (parameters are stored split along their largest dimension), "fsdp_first" (along their first
            one), "tp", "fsdp_tp" or "zero1" (only the state of the optimizer is split).
        run: "forward", "loss", "grad", "sgd" or "adam".
        layers: number of layers.
        batch: rows of the batch; those of JAX are rounded up to what splits evenly.
        mesh: sizes of the axes d and t; t is 1 where there is none.
        remat: whether each layer is rematerialised.
        scan: whether layers are stacked, and run by a scan.
        accumulate: number of microbatches whose gradients are added up.
    """

    model: str
    way: str
    run: str
    layers: int = 3
    batch: int = 64
    mesh: tuple[int, int] = (8, 1)
    remat: bool = False
    scan: bool = False
    accumulate: int = 1

    def __str__(self) -> str:
        axes = "x".join(str(n) for n in self.mesh if n > 1)
        more = [name for name in ("remat", "scan") if getattr(self, name)]
        more += [f"accumulate {self.accumulate}"] if self.accumulate > 1 else []
        return " ".join([self.model, self.way, self.run, f"{self.layers} layers, batch {self.batch} on {axes}", *more])

    @property
    def parts(self) -> int:
        """Number of parts into which the batch is split."""
        return self.mesh[0] * self.accumulate

    def even(self) -> Case:
        """Return the case with a batch that splits evenly."""
        return Case(**{**asdict(self), "batch": -(-self.batch // self.parts) * self.parts})


class Built(NamedTuple):
    """A function, the shapes of its arguments, and their specs."""

    function: Callable[..., Any]
    shapes: tuple[Any, ...]
    specs: tuple[Any, ...]


def build(lib: Any, case: Case) -> Built:
    """Build the program of a case for a library with JAX's interface."""
    P, tree = lib.sharding.PartitionSpec, lib.tree_util
    apply, params, specs, data, data_spec = {"mlp": mlp, "dense": dense, "transformer": transformer}[case.model](
        lib, case
    )
    if case.way in ("fsdp", "zero1"):
        skip = 1 if case.scan else 0
        specs = tree.tree_map(lambda x: largest(P, x.shape, skip * (len(x.shape) > 1), case.mesh[0]), params)
    stored, specs = specs, specs if case.way != "zero1" else tree.tree_map(lambda _: P(), specs, is_leaf=is_spec(P))
    jnp = lib.numpy

    def loss(params: Any, *data: Any) -> Any:
        out = apply(params, *data)
        return jnp.mean(out**2) if case.model != "transformer" else out

    def gradients(params: Any, *data: Any) -> Any:
        if case.accumulate == 1:
            return lib.value_and_grad(loss)(params, *data)
        parts = tree.tree_map(lambda x: x.reshape(case.accumulate, -1, *x.shape[1:]), data)

        def add(total: Any, part: Any) -> Any:
            return tree.tree_map(jnp.add, total, lib.value_and_grad(loss)(params, *part)), None

        zero = (jnp.zeros(()), tree.tree_map(jnp.zeros_like, params))
        return lib.lax.scan(add, zero, parts)[0]

    def sgd(params: Any, *data: Any) -> Any:
        value, grads = gradients(params, *data)
        return tree.tree_map(lambda p, g: p - 0.1 * g, params, grads), value

    def adam(state: Any, *data: Any) -> Any:
        value, g = gradients(state["p"], *data)
        m = tree.tree_map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], g)
        v = tree.tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], g)
        p = tree.tree_map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), state["p"], m, v)
        return {"p": p, "m": m, "v": v}, value

    functions = {"forward": apply, "loss": loss, "grad": lambda *a: gradients(*a)[1], "sgd": sgd, "adam": adam}
    data_specs = (data_spec,) * len(data)
    if case.run == "adam":
        state = {"p": params, "m": params, "v": params}
        return Built(adam, (state, *data), ({"p": specs, "m": stored, "v": stored}, *data_specs))
    return Built(functions[case.run], (params, *data), (specs, *data_specs))


def largest(P: Any, shape: tuple[int, ...], skip: int, count: int) -> Any:
    """Return the spec that splits the largest dimension, but for the first `skip`, over d."""
    sizes = [n if d >= skip and n % count == 0 else 0 for d, n in enumerate(shape)]
    d = sizes.index(max(sizes))
    return P(*(None,) * d, "d") if max(sizes) else P()


def is_spec(P: Any) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, P)


def floats(lib: Any, *shape: int) -> Any:
    return lib.ShapeDtypeStruct(shape, np.float32)


def run_layers(lib: Any, case: Case, body: Callable[..., Any], params: Any, x: Any) -> Any:
    """Apply a layer with each of the parameters, which are a list or stacked."""
    if case.remat:
        body = lib.checkpoint(body)
    if case.scan:
        return lib.lax.scan(lambda h, p: (body(h, p), None), x, params)[0]
    for p in params:
        x = body(x, p)
    return x


def layered(lib: Any, case: Case, layer: Any, specs: Any) -> Any:
    """Return the parameters of all layers and their specs."""
    P, tree = lib.sharding.PartitionSpec, lib.tree_util
    if not case.scan:
        return [layer] * case.layers, [specs] * case.layers
    stacked = tree.tree_map(lambda s: lib.ShapeDtypeStruct((case.layers, *s.shape), s.dtype), layer)
    return stacked, tree.tree_map(lambda s: P(None, *s), specs, is_leaf=is_spec(P))


def axes_for(case: Case) -> tuple[str | None, str | None]:
    """Return the axis over which parameters are stored, and the one over which layers are computed."""
    stored = "d" if case.way in ("fsdp_first", "fsdp_tp") else None
    return stored, {"tp": "d", "fsdp_tp": "t"}.get(case.way)


def mlp(lib: Any, case: Case) -> Any:
    P, (f, t) = lib.sharding.PartitionSpec, axes_for(case)
    layer = {"w1": floats(lib, WIDTH, HIDDEN), "b1": floats(lib, HIDDEN), "w2": floats(lib, HIDDEN, WIDTH)}
    if t is None:
        specs = {"w1": P(f), "b1": P(f), "w2": P(f)}
    else:
        specs = {"w1": P(f, t), "b1": P(t), "w2": P(t, f)}
    params, specs = layered(lib, case, layer, specs)
    jnp = lib.numpy

    def apply(params: Any, x: Any) -> Any:
        body = lambda x, p: x + jnp.maximum(x @ p["w1"] + p["b1"], 0) @ p["w2"]
        return run_layers(lib, case, body, params, x)

    data_spec = P() if case.way == "tp" else P("d")
    return apply, params, specs, (floats(lib, case.batch, WIDTH),), data_spec


def dense(lib: Any, case: Case) -> Any:
    P, (f, t) = lib.sharding.PartitionSpec, axes_for(case)
    layer = {"w": floats(lib, WIDTH, WIDTH), "b": floats(lib, WIDTH)}
    params, specs = layered(lib, case, layer, {"w": P(f, t), "b": P(t if t else f)})
    body = lambda x, p: lib.numpy.tanh(x @ p["w"] + p["b"])
    data_spec = P() if case.way == "tp" else P("d")
    apply = lambda params, x: run_layers(lib, case, body, params, x)
    return apply, params, specs, (floats(lib, case.batch, WIDTH),), data_spec


def transformer(lib: Any, case: Case) -> Any:
    P, (f, t), jnp, lax = lib.sharding.PartitionSpec, axes_for(case), lib.numpy, lib.lax
    head = WIDTH // HEADS
    layer = {
        **{name: floats(lib, WIDTH, HEADS, head) for name in ("q", "k", "v")},
        "o": floats(lib, HEADS, head, WIDTH),
        **{name: floats(lib, WIDTH, HIDDEN) for name in ("up", "gate")},
        "down": floats(lib, HIDDEN, WIDTH),
        **{name: floats(lib, WIDTH) for name in ("n1", "n2")},
    }
    own = {**dict.fromkeys("qkv", P(f, t)), "o": P(t, None, f), "up": P(f, t), "gate": P(f, t), "down": P(t, f)}
    layers, layer_specs = layered(lib, case, layer, {**own, "n1": P(), "n2": P()})
    params = {"embedding": floats(lib, VOCABULARY, WIDTH), "layers": layers, "last": floats(lib, WIDTH)}
    specs = {"embedding": P(t, f), "layers": layer_specs, "last": P()}

    def norm(x: Any, scale: Any) -> Any:
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale

    def block(x: Any, p: Any) -> Any:
        mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        h = norm(x, p["n1"])
        q, k, v = (jnp.einsum("btd,dhk->bhtk", h, p[name]) for name in "qkv")
        scores = jnp.where(mask, jnp.einsum("bhtk,bhsk->bhts", q, k) * head**-0.5, -1e9)
        scores = jnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
        scores = scores / scores.sum(-1, keepdims=True)
        x = x + jnp.einsum("bhtk,hkd->btd", jnp.einsum("bhts,bhsk->bhtk", scores, v), p["o"])
        h = norm(x, p["n2"])
        return x + (jnp.tanh(h @ p["gate"]) * (h @ p["up"])) @ p["down"]

    def loss(params: Any, tokens: Any) -> Any:
        x = run_layers(lib, case, block, params["layers"], params["embedding"][tokens[:, :-1]])
        logits = norm(x, params["last"]) @ params["embedding"].T
        logits = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
        logs = logits - jnp.log(jnp.exp(logits).sum(-1, keepdims=True))
        return -jnp.mean(jnp.take_along_axis(logs, tokens[:, 1:, None], -1))

    tokens = lib.ShapeDtypeStruct((case.batch, LENGTH + 1), np.int32)
    return loss, params, specs, (tokens,), P() if case.way == "tp" else P("d")


def draw(seed: int) -> Case:
    """Draw a case."""
    choose = random.Random(seed)
    way = choose.choice(("dp", "fsdp", "fsdp", "fsdp_first", "tp", "fsdp_tp", "fsdp_tp", "zero1"))
    model = choose.choice(("mlp", "mlp", "dense", "transformer"))
    run = "adam" if way == "zero1" else choose.choice(("forward", "loss", "grad", "sgd", "sgd", "adam"))
    if model == "transformer" and run == "forward":
        run = "loss"
    mesh = choose.choice(((4, 2), (2, 4))) if way == "fsdp_tp" else (8, 1)
    rows = choose.choice((8, 32, 128, 512, 2048, 8192) if model != "transformer" else (8, 16, 64, 256, 1024))
    accumulate = choose.choice((1, 1, 1, 4)) if run in ("grad", "sgd", "adam") and rows >= 128 else 1
    if accumulate == 1 and choose.random() < 0.3:
        rows += choose.choice((-3, 1, 2))
    layers = choose.choice((1, 2, 3, 6))
    return Case(
        model, way, run, layers, rows, mesh, choose.random() < 0.4, layers > 1 and choose.random() < 0.4, accumulate
    )
