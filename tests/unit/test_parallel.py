"""Patterns of programs on many devices: each example trains as on one device, and each function does what it says."""

from __future__ import annotations

import importlib
import pathlib
from types import ModuleType
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft import parallel
from weft.errors import ArgumentError
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


@pytest.mark.parametrize("causal", [False, True])
def test_ring_attention_and_its_derivative(causal: bool) -> None:
    mesh = weft.make_mesh((4,), ("s",), (AxisType.Auto,), devices=weft.devices()[:4])
    q, k, v = draw(2, 16, 8), draw(2, 16, 8), draw(2, 16, 4)

    allowed = onp.tril(onp.ones((16, 16), bool)) | (not causal)

    def whole(q: Any, k: Any, v: Any) -> Any:
        scores = np.einsum("bqd,bkd->bqk", q, k) / 8**0.5
        return weft.nn.softmax(np.where(allowed, scores, -np.inf), -1) @ v

    spec = P(None, "s")
    ring = weft.shard_map(
        lambda q, k, v: parallel.ring_attention(q, k, v, "s", causal), mesh=mesh, in_specs=spec, out_specs=spec
    )
    results = [
        weft.jit(weft.value_and_grad(lambda q, k, v, f=f: (f(q, k, v) ** 2).sum(), (0, 1, 2)))(q, k, v)
        for f in (ring, whole)
    ]
    for a, b in zip(*map(weft.tree.leaves, results), strict=True):
        onp.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize(("schedule", "count"), [("gpipe", 2), ("interleaved", 6), ("1f1b", 2)])
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
