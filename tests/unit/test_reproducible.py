"""`reproducible`: the same bits on 1, 2, 4 and 8 devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

RANDOM = onp.random.default_rng(0)
X = RANDOM.normal(size=(32, 24)).astype(onp.float32)
Y = RANDOM.normal(size=(32, 8)).astype(onp.float32)


def mesh_of(*counts: int) -> Mesh:
    axes = ("d", "t")[: len(counts)]
    count = int(onp.prod(counts))
    return weft.make_mesh(counts, axes, (AxisType.Auto,) * len(counts), devices=weft.devices()[:count])


def put(values: Any, specs: Any, mesh: Mesh) -> Any:
    """Trees of arrays split as a tree of specs, which is a prefix, says."""
    shardings = weft.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, P))
    return weft.device_put(values, shardings)


def trained(
    loss: Callable[..., Any], params: Any, batch: Any, specs: Any, mesh: Mesh, reproducible: Any, steps: int = 3
) -> list[onp.ndarray]:
    """Return the losses and the parameters after some steps of gradient descent."""

    def step(params: Any, *batch: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, *batch)
        return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    function = weft.jit(step, reproducible=reproducible)
    params, batch, losses = put(params, specs[0], mesh), put(batch, specs[1], mesh), []
    for _ in range(steps):
        params, value = function(params, *batch)
        losses.append(onp.asarray(value))
    return [*losses, *(onp.asarray(p) for p in weft.tree.leaves(params))]


def same_bits(results: Sequence[Sequence[onp.ndarray]]) -> bool:
    return all(a.tobytes() == b.tobytes() for other in results[1:] for a, b in zip(results[0], other, strict=True))


MLP = {
    name: RANDOM.normal(size=shape).astype(onp.float32) / 4
    for name, shape in {"up": (24, 40), "bias": (40,), "down": (40, 8)}.items()
}


def mlp(params: Any, x: Any, y: Any) -> Any:
    h = np.tanh(x @ params["up"] + params["bias"])
    return np.mean((h @ params["down"] - y) ** 2)


SPECS = {
    "dp": (P(), P("d")),
    "fsdp": (P("d"), P("d")),
    "tp": ({"up": P(None, "d"), "bias": P("d"), "down": P("d")}, P()),
}


@pytest.mark.parametrize("pattern", SPECS)
def test_training_steps_of_an_mlp(pattern: str) -> None:
    results = [trained(mlp, MLP, (X, Y), SPECS[pattern], mesh_of(n), 8) for n in (1, 2, 4, 8)]
    assert same_bits(results)
    whole = trained(mlp, MLP, (X, Y), SPECS["dp"], mesh_of(1), None)
    for a, b in zip(results[0], whole, strict=True):
        onp.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


WIDTH, HEADS, LENGTH = 16, 8, 6
SHAPES = {"embed": (20, WIDTH), "qkv": (WIDTH, 3, HEADS, 2), "out": (HEADS, 2, WIDTH), "up": (WIDTH, 32)}
TRANSFORMER = {n: RANDOM.normal(size=s).astype(onp.float32) / 4 for n, s in {**SHAPES, "down": (32, WIDTH)}.items()}
TOKENS = RANDOM.integers(0, 20, (16, LENGTH + 1)).astype(onp.int32)


def normal(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(np.mean(centred**2, -1, keepdims=True) + 1e-5)


def transformer(params: Any, tokens: Any) -> Any:
    """Compute the loss of one block with random dropout, next tokens predicted by the transposed embedding."""
    h = params["embed"][tokens[:, :-1]]
    q, k, v = np.einsum("bld,dchk->cblhk", normal(h), params["qkv"])
    scores = np.einsum("blhk,bmhk->bhlm", q, k)
    weights = weft.nn.softmax(np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), scores, -1e9))
    h = h + np.einsum("bhlm,bmhk,hkd->bld", weights, v, params["out"])
    hidden = weft.nn.gelu(normal(h) @ params["up"])
    hidden = np.where(weft.random.bernoulli(weft.random.key(0), 0.9, hidden.shape), hidden / 0.9, 0)
    logits = weft.nn.log_softmax(normal(h + hidden @ params["down"]) @ params["embed"].T)
    return -np.take_along_axis(logits, tokens[:, 1:, None], -1).mean()


@pytest.mark.parametrize("pattern", ["dp", "fsdp", "tp"])
def test_training_steps_of_a_transformer(pattern: str) -> None:
    specs: Any = {
        "dp": (P(), P("d")),
        "fsdp": ({"embed": P(None, "d"), "qkv": P("d"), "out": P("d"), "up": P("d"), "down": P("d")}, P("d")),
        "tp": ({"embed": P(), "qkv": P(None, None, "d"), "out": P("d"), "up": P(None, "d"), "down": P("d")}, P()),
    }[pattern]
    assert same_bits([trained(transformer, TRANSFORMER, (TOKENS,), specs, mesh_of(n), 8, 2) for n in (1, 2, 8)])


def test_convolutions_and_reductions() -> None:
    images = RANDOM.normal(size=(16, 3, 9, 9)).astype(onp.float32)

    def loss(params: Any, x: Any) -> Any:
        out = lax.conv(x, params["w"], (1, 1), "SAME")
        scale = np.var(out, (0, 2, 3), keepdims=True)
        return np.sum(np.cumsum(out / scale, 0) ** 2) / 1e4 + np.prod(1 + x.mean((1, 2, 3)) ** 2)

    params = {"w": RANDOM.normal(size=(4, 3, 3, 3)).astype(onp.float32)}
    assert same_bits([trained(loss, params, (images,), (P(), P("d")), mesh_of(n), 8, 2) for n in (1, 4, 8)])


def test_axes_of_a_mesh_have_parts_each() -> None:
    specs = ({"up": P("d", "t"), "bias": P("t"), "down": P("t", "d")}, P("d"))
    results = [
        trained(mlp, MLP, (X, Y), specs, mesh_of(*counts), {"d": 4, "t": 2}, 2)
        for counts in ((1, 1), (2, 1), (1, 2), (4, 2))
    ]
    assert same_bits(results)


def test_one_device_without_a_mesh() -> None:
    def function(x: Any, y: Any) -> Any:
        return np.sin(x).T @ y, x.sum(0), x + 1

    on_mesh = weft.jit(function, reproducible=8)(*put((X, Y), P("d"), mesh_of(8)))
    alone = weft.jit(function, reproducible=8, in_shardings=(P("d"), P("d")))
    for _ in range(4):  # calls by a dispatcher too
        assert same_bits([[onp.asarray(a) for a in on_mesh], [onp.asarray(a) for a in alone(X, Y)]])
    compiled = alone.lower(X, Y).compile()
    assert len(compiled.communication) == 2 and same_bits([compiled(X, Y), [onp.asarray(a) for a in on_mesh]])
    (_, _, shifted) = alone(X, Y)
    assert shifted.devices() == {weft.devices()[0]} and shifted.sharding.spec == P("d")


def test_the_setting_holds_for_all_programs_and_for_operations() -> None:
    with weft.reproducible(8):
        sums = [onp.asarray(put(X, P("d"), mesh_of(n)).sum()) for n in (1, 2, 8)]
        products = [onp.asarray(weft.jit(lambda x: x.T @ x)(put(X, P("d"), mesh_of(n)))) for n in (1, 2, 8)]
    assert same_bits([[a] for a in sums]) and same_bits([[a] for a in products])
    onp.testing.assert_allclose(products[0], X.T @ X, rtol=1e-5)


def test_donated_arguments_are_deleted() -> None:
    x = put(X, P("d"), mesh_of(2))
    y = weft.jit(lambda x: x + 1, donate_argnums=0, reproducible=8)(x)
    assert x.is_deleted() and (onp.asarray(y) == X + 1).all()


def test_errors_where_bits_would_differ() -> None:
    function = lambda x: x.sum(0)
    with pytest.raises(
        ArgumentError, match=r"(?s)6 parts cannot be shared evenly among 4 devices along 'd'.*1, 2, 3 or 6"
    ):
        weft.jit(function, reproducible=6)(put(X, P("d"), mesh_of(4)))
    with pytest.raises(ArgumentError, match=r"dimension 0 of x has 20 elements.*into 8 parts over 'd'"):
        weft.jit(lambda x: x.sum(0), reproducible=8)(put(X[:20], P("d"), mesh_of(4)))
    with pytest.raises(ArgumentError, match=r"dimension 0 of result 0 has 20 elements"):
        weft.jit(lambda x: x[:20], reproducible=8, out_shardings=NamedSharding(mesh_of(4), P("d")))(X)
    mesh = mesh_of(4)
    body = weft.shard_map(lambda x: lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    with pytest.raises(ArgumentError, match=r"shard_map over 'd' runs a body for each of 4 devices"):
        weft.jit(body, reproducible=8)(X)
    assert (onp.asarray(weft.jit(body, reproducible=4)(X)) == onp.asarray(weft.jit(body)(X))).all()
    with pytest.raises(ArgumentError, match=r"(?s)no argument or constraint says what is split.*in_shardings"):
        weft.jit(function, reproducible=8)(X)
    with pytest.raises(ArgumentError, match="reproducible names the axis 'z', which the mesh does not have"):
        weft.jit(function, reproducible={"z": 8})(put(X, P("d"), mesh_of(2)))
    with pytest.raises(ArgumentError, match="x is split over 'd', 't' in one dimension"):
        weft.jit(lambda x: x * 2, reproducible=4)(put(X, P(("d", "t")), mesh_of(2, 2)))
    for wrong in ("x", -1, True, {"d": 0}):
        with pytest.raises(ArgumentError, match="reproducible must be a number of parts"):
            weft.jit(function, reproducible=wrong)


def test_repeated_calls_with_arrays_on_a_mesh_of_one_device() -> None:
    function = weft.jit(lambda x: x + 1)
    x = put(X, P("d"), mesh_of(1))
    for _ in range(4):
        assert (onp.asarray(function(x)) == X + 1).all()
