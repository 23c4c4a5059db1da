"""Patterns of programs on many devices: each example trains as on one device, and each function does what it says."""

from __future__ import annotations

import importlib
import operator
import pathlib
from types import ModuleType
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft import parallel
from weft.errors import ArgumentError
from weft.parallel.zero_bubble import FORWARD, IDLE, INPUT, PARAMETERS, make_timetable
from weft.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec as P

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "parallel"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "training")
RANDOM = onp.random.RandomState(0)


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


def draw(*shape: int) -> Any:
    return RANDOM.randn(*shape).astype(onp.float32)


@pytest.mark.parametrize("name", SCRIPTS)
def test_examples_have_the_losses_of_one_device(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    loaded(name, monkeypatch).main(short=True)
    assert "final loss" in capsys.readouterr().out
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.startswith('"""') and len(text.splitlines()) <= 100


def test_fsdp_splits_the_largest_even_dimension() -> None:
    mesh = AbstractMesh((4, 2), ("data", "model"))
    state = {"a": onp.zeros((8, 16)), "b": onp.zeros((6, 12)), "c": onp.zeros(3), "d": onp.zeros(()), "e": draw(8, 8)}
    found = {name: s.spec for name, s in parallel.fsdp(state, mesh).items()}
    assert found == {"a": P(None, "data"), "b": P(None, "data"), "c": P(), "d": P(), "e": P("data", None)}
    assert parallel.fsdp(state, mesh, min_size=100)["e"].spec == P()
    rules = parallel.tensor_parallel(state, mesh, {"a": P(None, "model"), "b": P("model")})
    both = {name: s.spec for name, s in parallel.fsdp(state, mesh, base=rules).items()}
    assert (both["a"], both["b"]) == (P("data", "model"), P("model", "data"))
    with pytest.raises(ArgumentError, match="no axis 'rows'"):
        parallel.fsdp(state, mesh, "rows")
    assert parallel.data_parallel({"x": onp.zeros((6, 2))}, mesh)["x"].spec == P("data")
    with pytest.raises(ArgumentError, match="has no dimension 0"):
        parallel.data_parallel({"x": onp.zeros(())}, mesh)


def test_rules_must_match_once() -> None:
    mesh = AbstractMesh((4, 2), ("data", "model"))
    params = {"layers": [{"up": onp.zeros((4, 8)), "down": onp.zeros((8, 4))}]}
    found = parallel.tensor_parallel(params, mesh, {"up$": P(None, "model"), "^layers/0/down": P("model")})
    assert [s.spec for s in weft.tree.leaves(found)] == [P("model"), P(None, "model")]
    with pytest.raises(ArgumentError, match=r"(?s)'upp' matches no path.*layers/0/up"):
        parallel.tensor_parallel(params, mesh, {"upp": P("model")})
    with pytest.raises(ArgumentError, match="at most one pattern must match 'layers/0/down'"):
        parallel.tensor_parallel(params, mesh, {"down": P("model"), "layers": P("model")})
    with pytest.raises(ArgumentError, match="at most one entry per dimension"):
        parallel.tensor_parallel(params, mesh, {"up": P(None, None, "model")})


@pytest.mark.parametrize("causal, layout", [(False, "contiguous"), (True, "contiguous"), (True, "zigzag")])
def test_ring_attention_and_its_derivative(causal: bool, layout: str) -> None:
    mesh = weft.make_mesh((4,), ("s",), (AxisType.Auto,), devices=weft.devices()[:4])
    q, k, v = draw(2, 16, 8), draw(2, 16, 8), draw(2, 16, 4)

    allowed = onp.tril(onp.ones((16, 16), bool)) | (not causal)

    def whole(q: Any, k: Any, v: Any) -> Any:
        scores = np.einsum("bqd,bkd->bqk", q, k) / 8**0.5
        return weft.nn.softmax(np.where(allowed, scores, -np.inf), -1) @ v

    spec = P(None, "s")

    def ring(q: Any, k: Any, v: Any) -> Any:
        body = lambda q, k, v: parallel.ring_attention(q, k, v, "s", causal, layout=layout)
        mapped = weft.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
        if layout == "contiguous":
            return mapped(q, k, v)
        return parallel.zigzag_inverse(mapped(*(parallel.zigzag(x, 4) for x in (q, k, v))), 4)

    results = [
        weft.jit(weft.value_and_grad(lambda q, k, v, f=f: (f(q, k, v) ** 2).sum(), (0, 1, 2)))(q, k, v)
        for f in (ring, whole)
    ]
    for a, b in zip(*map(weft.tree.leaves, results), strict=True):
        onp.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_zigzag_computes_half_of_what_a_causal_ring_computes() -> None:
    mesh, spec = AbstractMesh((8,), ("s",)), P(None, "s")

    def flops(layout: str) -> float:
        body = lambda q: parallel.ring_attention(q, q, q, "s", causal=True, layout=layout)
        mapped = weft.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
        found: float = weft.plan(mapped, weft.ShapeDtypeStruct((2, 1024, 32), onp.float32), mesh=mesh).flops
        return found

    # Own pieces take three blocks of four, those of each of the seven other devices two.
    assert flops("zigzag") < 0.62 * flops("contiguous")
    with pytest.raises(ArgumentError, match="must divide the length"):
        parallel.zigzag(onp.zeros((2, 12)), 4)
    with pytest.raises(ArgumentError, match="the layout is unknown"):
        flops("snake")


@pytest.mark.parametrize("dtype", [onp.float32, onp.float16])
def test_cross_entropy_of_split_classes(dtype: Any) -> None:
    mesh = weft.make_mesh((2, 4), ("d", "t"), (AxisType.Auto,) * 2)
    logits, labels = (8 * draw(6, 5, 32)).astype(dtype), RANDOM.randint(0, 32, (6, 5)).astype(onp.int32)

    def split(logits: Any, labels: Any) -> Any:
        body = lambda x, y: parallel.cross_entropy(x, y, "t")
        specs = (P("d", None, "t"), P("d"))
        return weft.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P("d"))(logits, labels).mean()

    def whole(logits: Any, labels: Any) -> Any:
        logs = weft.nn.log_softmax(logits.astype(onp.float32))
        return -np.take_along_axis(logs, labels[..., None], -1).mean()

    found, expected = (weft.jit(weft.value_and_grad(f))(logits, labels) for f in (split, whole))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        onp.testing.assert_allclose(a, b, rtol=1e-5 if dtype == onp.float32 else 1e-2, atol=1e-6)
    sent = weft.jit(weft.grad(split)).lower(logits, labels).compile().communication
    assert sent.total_bytes < logits.size * 4 / 2 / 4


@pytest.mark.parametrize("size, count", [(1, 3), (2, 2), (2, 7), (4, 4), (4, 16), (8, 8), (8, 24), (3, 1)])
def test_zero_bubble_timetables(size: int, count: int) -> None:
    """Every step is done once, after what it needs, on no more than the devices' slots, in about one tick a step."""
    table = make_timetable(size, count)
    at = {
        (step, i, table.rows[tick, i]): tick
        for tick in range(len(table.steps))
        for i, step in enumerate(table.steps[tick])
        if step != IDLE
    }
    assert len(at) == 3 * size * count == (table.steps != IDLE).sum()
    for (step, i, row), tick in at.items():
        if step == FORWARD and i:
            assert at[FORWARD, i - 1, row] < tick
        if step == INPUT:
            assert at[FORWARD, i, row] < tick and (i == size - 1 or at[INPUT, i + 1, row] < tick)
        if step == PARAMETERS:
            assert at[INPUT, i, row] < tick
    assert table.stored <= size
    if count >= size:
        assert len(table.steps) <= 3 * count + size + 1 < 3 * (count + 2 * (size - 1)) + 2 * (size < 3) * 3


@pytest.mark.parametrize("remat", [False, True])
def test_zero_bubble_stores_residuals_of_as_many_microbatches_as_devices(remat: bool) -> None:
    mesh = weft.make_mesh((4,), ("stage",), (AxisType.Auto,), devices=weft.devices()[:4])
    layers = {"w": draw(4, 8, 8), "b": draw(4, 8)}
    x, t = draw(16, 8), draw(16, 8)
    block = lambda p, x: np.tanh(x @ p["w"] + p["b"]) * x
    f = parallel.pipeline(block, 8, "zero_bubble", mesh=mesh, loss=squares, remat=remat)

    def whole(layers: Any, x: Any) -> Any:
        for i in range(4):
            x = block(weft.tree.map(operator.itemgetter(i), layers), x)
        return squares(x, t)

    found = weft.jit(weft.value_and_grad(f, (0, 1)))(layers, x, t)
    expected = weft.jit(weft.value_and_grad(whole, (0, 1)))(layers, x)
    for a, b in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        onp.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    def temporaries(count: int) -> int:
        f = parallel.pipeline(
            block, count, "zero_bubble", mesh=AbstractMesh((4,), ("stage",)), loss=squares, remat=remat
        )
        rows = weft.ShapeDtypeStruct((4 * count, 8), onp.float32)
        return weft.plan(
            weft.grad(f), layers, rows, rows, mesh=AbstractMesh((4,), ("stage",))
        ).memory.temp_size_in_bytes

    # Batches and their cotangents grow with the microbatches; what each stores of its stages does not.
    assert temporaries(64) - temporaries(32) < 6 * 32 * 4 * 8 * 4


def stage(layer: Any, x: Any) -> Any:
    return np.tanh(x @ layer)


def one_device(layers: Any, x: Any) -> Any:
    for layer in layers:
        x = stage(layer, x)
    return x


def squares(y: Any, t: Any) -> Any:
    return ((y - t) ** 2).mean()


@pytest.fixture(scope="module")
def stages() -> Mesh:
    return weft.make_mesh((2, 2), ("stage", "data"), (AxisType.Auto,) * 2, devices=weft.devices()[:4])


@pytest.mark.parametrize(("schedule", "count"), [("gpipe", 2), ("interleaved", 6), ("1f1b", 2), ("zero_bubble", 2)])
def test_schedules_have_the_gradients_of_one_device(schedule: str, count: int, stages: Mesh) -> None:
    layers, x, t = draw(count, 4, 4), draw(16, 4), draw(16, 4)
    f = parallel.pipeline(stage, 4, schedule, mesh=stages, loss=squares, data_axis="data")
    found = weft.jit(weft.value_and_grad(f, (0, 1)))(layers, x, t)
    expected = weft.jit(weft.value_and_grad(lambda p, x: squares(one_device(p, x), t), (0, 1)))(layers, x)
    for a, b in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        assert onp.abs(b).max() > 0
        onp.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    onp.testing.assert_allclose(f(layers, x, t), expected[0], rtol=1e-5)


def test_one_forward_one_backward_stores_no_more_for_more_microbatches() -> None:
    mesh, struct = AbstractMesh((4,), ("stage",)), weft.ShapeDtypeStruct

    def loss(y: Any, labels: Any) -> Any:
        return -(weft.nn.log_softmax(y) * weft.nn.one_hot(labels, 64)).sum(-1).mean()

    def temporaries(schedule: str, count: int) -> int:
        f = weft.value_and_grad(parallel.pipeline(stage, count, schedule, mesh=mesh, loss=loss))
        rows = struct((16 * count, 64), onp.float32), struct((16 * count,), onp.int32)
        return weft.plan(f, struct((4, 64, 64), onp.float32), *rows, mesh=mesh).memory.temp_size_in_bytes

    assert temporaries("1f1b", 32) < 1.1 * temporaries("1f1b", 8) < 0.5 * temporaries("gpipe", 8)


def test_a_pipeline_without_loss_returns_the_batch(stages: Mesh) -> None:
    layers, x = draw(4, 4, 4), draw(12, 4)
    f = parallel.pipeline(stage, 2, "interleaved", mesh=stages, data_axis="data")
    onp.testing.assert_allclose(f(layers, x), one_device(layers, x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="needs the loss"):
        parallel.pipeline(stage, 2, "1f1b", mesh=stages)
    with pytest.raises(ArgumentError, match="multiple of the devices"):
        parallel.pipeline(stage, 3, "interleaved", mesh=stages)
    with pytest.raises(ArgumentError, match="schedule is unknown"):
        parallel.pipeline(stage, 3, "zigzag", mesh=stages)
    with pytest.raises(ArgumentError, match="4 stages"):
        parallel.pipeline(stage, 2, mesh=stages)(layers, x)
    with pytest.raises(ArgumentError, match="evenly into microbatches"):
        parallel.pipeline(stage, 5, mesh=stages)(layers[:2], x)


def test_tokens_beyond_the_capacity_get_zeros() -> None:
    mesh = weft.make_mesh((2,), ("e",), (AxisType.Auto,), devices=weft.devices()[:2])
    x, choice = draw(8, 4), onp.array([0, 0, 0, 1, 1, 1, 1, 1], onp.int32)
    weights = draw(2, 4, 4)

    def f(weights: Any, x: Any, choice: Any) -> Any:
        return parallel.expert_parallel(lambda w, x: x @ w, weights, x, choice, "e", 2)

    found = weft.jit(weft.shard_map(f, mesh=mesh, in_specs=P("e"), out_specs=P("e")))(weights, x, choice)
    expected = onp.einsum("td,tde->te", x, weights[choice])
    expected[[2, 6, 7]] = 0  # each device sends two to an expert
    onp.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
