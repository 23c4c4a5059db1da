"""Search for shardings finds what people have found: data parallel, ZeRO, and Megatron's pairing."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft.errors import ArgumentError
from weft.sharding import AbstractMesh, AxisType, PartitionSpec as P, search

Struct = weft.ShapeDtypeStruct
MESH = AbstractMesh((8,), ("x",))


def step(params: Any, momentum: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for w in params:
            h = np.tanh(h @ w)
        return ((h - y) ** 2).mean()

    value, gradients = weft.value_and_grad(loss)(params)
    momentum = weft.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return weft.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum, value


def arguments(width: int, hidden: int, batch: int) -> Any:
    shapes = [(width, hidden), (hidden, width)] * 2
    state = [Struct(shape, onp.float32) for shape in shapes]
    return state, state, *[Struct((batch, width), onp.float32)] * 2


def found(*args: Any, **options: Any) -> Any:
    return search(step, *args, mesh=MESH, donate_argnums=(0, 1), time=5, **options)


def test_with_a_large_batch_state_is_stored_split() -> None:
    """ZeRO: the batch is split, and so is what is stored, since then each device updates a part of it."""
    result = found(*arguments(512, 2048, 8192))
    params, momentum, x, y = result.specs
    assert x == y == P("x")
    assert params == momentum and all("x" in spec for spec in momentum)
    assert set(result.plan.communication.counts()) == {"all_gather", "reduce_scatter", "psum"}
    assert result.cost < result.starts["data parallel over x"]
    assert "in_shardings = (" in repr(result) and "data parallel over x" in repr(result)


def test_without_state_the_batch_is_split_and_nothing_is_sent() -> None:
    def f(layers: Any, x: Any) -> Any:
        for w in layers:
            x = np.tanh(x @ w)
        return x.sum(-1)

    state, _, x, _ = arguments(512, 2048, 8192)
    result = search(f, state, x, mesh=MESH, time=5)
    assert result.constraints() == {"layers[*]": P(), "x": P("x")}
    assert not result.plan.communication


def test_with_a_small_batch_and_little_memory_matmuls_are_paired() -> None:
    """Megatron: columns, then rows, and one sum for each pair."""
    result = found(*arguments(2048, 8192, 64), memory="400MB")
    pairing = [P(None, "x"), P("x")] * 2
    assert result.specs == (pairing, pairing, P(), P())
    assert set(result.plan.communication.counts()) == {"psum"}
    assert result.cost < min(result.starts.values()) and result.fits
    assert result.starts["copies over x"][0] > 0
    assert result.plan.memory.peak_memory_in_bytes < 400e6


def test_without_time_what_is_found_fits_into_memory() -> None:
    result = search(step, *arguments(2048, 8192, 64), mesh=MESH, donate_argnums=(0, 1), time=0, memory="400MB")
    assert result.fits and "rows over x" not in result.starts


def test_what_is_found_runs_as_it_is_printed() -> None:
    mesh = weft.make_mesh((4, 2), ("d", "t"), (AxisType.Auto,) * 2)

    def f(layers: Any, x: Any) -> Any:
        for w in layers:
            x = np.tanh(x @ w)
        return x

    random = onp.random.RandomState(0)
    layers, x = [random.randn(16, 16).astype(onp.float32) for _ in range(2)], onp.ones((8, 16), onp.float32)
    result = search(f, layers, x, mesh=mesh, time=2)
    pasted: dict[str, Any] = {}
    exec(repr(result), {"P": P}, pasted)
    assert pasted["in_shardings"] == result.specs
    onp.testing.assert_allclose(weft.jit(f, in_shardings=result.in_shardings)(layers, x), f(layers, x), rtol=1e-5)
    with pytest.raises(ArgumentError, match="number of bytes"):
        search(f, layers, x, mesh=mesh, memory="plenty")


def test_jit_searches_for_shardings_at_the_first_call(caplog: pytest.LogCaptureFixture) -> None:
    rng = onp.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(onp.float32) / 8
    params, momentum = [normal(64, 128), normal(128, 64)], [onp.zeros((64, 128), "f"), onp.zeros((128, 64), "f")]
    x, y = normal(512, 64), normal(512, 64)
    searched = weft.jit(step, sharding="search", donate_argnums=(0, 1))
    expected: Any = (params, momentum, None)
    with weft.set_mesh(weft.make_mesh((8,), ("x",))), caplog.at_level("WARNING", "weft"):
        result: Any = (params, momentum, None)
        for _ in range(3):
            result = searched(*result[:2], x, y)
            expected = weft.jit(step)(*expected[:2], x, y)
        specs = searched.found.specs
    with weft.set_mesh(weft.make_mesh((8,), ("x",), (AxisType.Auto,))):
        compiled = searched.lower(params, momentum, x, y).compile()
    onp.testing.assert_allclose(result[2], expected[2], rtol=1e-5)
    assert [p.sharding.spec for p in result[0]] == specs[0]
    assert len(compiled.communication) == len(searched.found.plan.communication)
    assert sum("in_shardings = (" in record.getMessage() for record in caplog.records) == 1
    with pytest.raises(ArgumentError, match="needs a mesh"):
        weft.jit(step, sharding="search")(params, momentum, x, y)
    with pytest.raises(ArgumentError, match='sharding must be "search"'):
        weft.jit(step, sharding="search", static_argnums=0)
    with pytest.raises(ArgumentError, match="positional"), weft.set_mesh(weft.make_mesh((8,), ("x",))):
        searched(params, momentum, x, y=y)


def transformer(width: int, heads: int, length: int, batch: int, layers: int = 1) -> tuple[Any, ...]:
    """Return a step of a small transformer with momentum, and its arguments."""
    head, hidden = width // heads, 4 * width
    shapes: dict[str, tuple[int, ...]] = {name: (width, heads, head) for name in "qkv"}
    shapes |= {"o": (heads, head, width), "up": (width, hidden), "down": (hidden, width), "norm": (width,)}
    state = [{name: Struct(shape, onp.float32) for name, shape in shapes.items()} for _ in range(layers)]

    def loss(layers: Any, x: Any) -> Any:
        for own in layers:
            h = x * own["norm"] / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6)
            q, k, v = (np.einsum("btd,dhk->bhtk", h, own[name]) for name in "qkv")
            weights = weft.nn.softmax(np.einsum("bhtk,bhsk->bhts", q, k) * head**-0.5)
            x = x + np.einsum("bhtk,hkd->btd", np.einsum("bhts,bhsk->bhtk", weights, v), own["o"])
            x = x + weft.nn.gelu(x @ own["up"]) @ own["down"]
        return (x**2).mean()

    def step(layers: Any, momentum: Any, x: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(layers, x)
        momentum = weft.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return weft.tree.map(lambda p, m: p - 0.1 * m, layers, momentum), momentum, value

    return step, state, state, Struct((batch, length, width), onp.float32)


@pytest.mark.slow
def test_a_transformer_is_paired_where_memory_is_scarce() -> None:
    """Megatron: queries, keys, values and the first matmul by columns, what follows them by rows."""
    found = search(*transformer(1024, 16, 32, 2), mesh=MESH, donate_argnums=(0, 1), time=60, memory="60MB")
    (layer, *_), _, x = found.specs
    columns, rows = P(None, "x"), P("x")
    assert x == P()
    assert {n: layer[n] for n in layer if n != "norm"} == dict.fromkeys([*"qkv", "up"], columns) | {
        "o": rows,
        "down": rows,
    }


@pytest.mark.slow
def test_the_state_of_a_transformer_is_stored_split_where_its_batch_is_large() -> None:
    """ZeRO."""
    found = search(*transformer(2048, 16, 128, 2048), mesh=MESH, donate_argnums=(0, 1), time=60)
    _, momentum, x = found.specs
    assert x == P("x")
    large = [spec for own in momentum for name, spec in own.items() if name != "norm"]
    assert all("x" in spec for spec in large)


def gradient_step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for layer in params:
            h = h + np.maximum(h @ layer["up"], 0) @ layer["down"]
        return (h * h).mean()

    return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))


def residual_blocks(batch: int) -> Any:
    layer = {"up": Struct((2048, 8192), onp.float32), "down": Struct((8192, 2048), onp.float32)}
    return [layer] * 2, Struct((batch, 2048), onp.float32)


def test_tensor_parallelism_is_found_on_many_devices() -> None:
    """The hidden dimension of both weights of a block is split over one axis, and their estimates are compared."""
    mesh = AbstractMesh((8, 8), ("d", "t"))
    result = search(gradient_step, *residual_blocks(512), mesh=mesh, donate_argnums=0, time=20)
    tensor, fsdp = (result.starts[f"FSDP over d, {role} over t"] for role in ("tensor parallel", "FSDP"))
    assert result.cost < tensor < fsdp
    for layer in result.specs[0]:
        hidden = [{*(e if type(e) is tuple else (e,))} for e in ((*layer["up"], None)[1], layer["down"][0])]
        assert (hidden[0] & hidden[1]) - {None}


@pytest.mark.parametrize("memory", ["60MB", "22MB", "16MB"])
def test_fits_says_what_the_plan_says(memory: str) -> None:
    mesh = AbstractMesh((8, 8), ("d", "t"))
    result = search(gradient_step, *residual_blocks(512), mesh=mesh, donate_argnums=0, time=5, memory=memory)
    assert result.fits == (result.plan.peak_memory <= float(memory[:-2]) * 1e6)
    assert ("needs more than" in repr(result)) == (not result.fits)
