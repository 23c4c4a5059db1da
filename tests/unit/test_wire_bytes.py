"""Partitioned programs send at most the bytes of JAX, and compute what one device computes."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = ("wire_programs", "bytes_beside_jax")
Struct = weft.ShapeDtypeStruct
# Fields of `Case`, and the bytes that a device sends in JAX 0.10.2, as benchmarks/bytes_beside_jax.py prints them.
JAX: list[tuple[dict[str, Any], int]] = [
    ({"model": "mlp", "way": "fsdp", "run": "sgd"}, 229383),
    ({"model": "mlp", "way": "fsdp_tp", "run": "sgd", "mesh": (4, 2)}, 645767),
    ({"model": "mlp", "way": "tp", "run": "sgd", "remat": True}, 143360),
    ({"model": "mlp", "way": "fsdp", "run": "forward", "batch": 4096}, 346752),
    ({"model": "mlp", "way": "fsdp", "run": "loss", "batch": 4096}, 346759),
    ({"model": "mlp", "way": "fsdp_tp", "run": "loss", "mesh": (4, 2)}, 159751),
    ({"model": "dense", "way": "fsdp", "run": "forward", "layers": 1, "batch": 4096}, 14560),
    ({"model": "dense", "way": "fsdp_first", "run": "forward", "layers": 1, "batch": 4096}, 14560),
    ({"model": "mlp", "way": "dp", "run": "grad", "batch": 4096, "remat": True}, 693504),
    ({"model": "mlp", "way": "fsdp", "run": "sgd", "layers": 6, "batch": 32, "scan": True}, 301063),
    ({"model": "mlp", "way": "fsdp", "run": "sgd", "layers": 6, "batch": 32768, "remat": True}, 2774023),
    ({"model": "mlp", "way": "fsdp", "run": "sgd", "layers": 6, "batch": 4096, "remat": True, "scan": True}, 2774023),
    ({"model": "transformer", "way": "fsdp", "run": "loss", "layers": 2}, 545895),
    ({"model": "transformer", "way": "dp", "run": "adam", "layers": 2, "batch": 18}, 1091783),
    ({"model": "transformer", "way": "fsdp", "run": "adam", "layers": 2, "batch": 16, "remat": True}, 2098439),
]


@pytest.fixture(scope="module")
def scripts() -> Iterator[SimpleNamespace]:
    """Modules of benchmarks/, which import each other by plain names as scripts do."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in MODULES})
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("fields, theirs", JAX, ids=lambda x: " ".join(map(str, x.values())) if type(x) is dict else "")
def test_no_more_bytes_than_jax(scripts: Any, fields: dict[str, Any], theirs: int) -> None:
    own, _ = scripts.bytes_beside_jax.weft_bytes(scripts.wire_programs.Case(**fields))
    assert own <= 1.05 * theirs


def compare_with_one_device(scripts: Any, case: Any) -> None:
    """Compare a case on eight devices with the same program on one."""
    built = scripts.wire_programs.build(weft, case)
    random = onp.random.default_rng(0)

    def value(shape: Any) -> Any:
        if onp.dtype(shape.dtype).kind == "i":
            return random.integers(0, scripts.wire_programs.VOCABULARY, shape.shape).astype(onp.int32)
        return (0.1 * onp.abs(random.standard_normal(shape.shape))).astype(onp.float32)

    arguments = weft.tree.map(value, built.shapes)
    sizes, names = scripts.bytes_beside_jax.axes(case)
    mesh = weft.make_mesh(sizes, names, (AxisType.Auto,) * len(names))
    put = lambda x, spec: weft.device_put(x, NamedSharding(mesh, spec))
    placed = weft.tree.map(put, arguments, built.specs)
    expected, found = weft.jit(built.function)(*arguments), weft.jit(built.function)(*placed)
    for one, many in zip(weft.tree.leaves(expected), weft.tree.leaves(found), strict=True):
        onp.testing.assert_allclose(many, one, rtol=2e-4, atol=2e-5, err_msg=str(case))


def small(scripts: Any, seed: int) -> Any:
    """Draw a case whose program runs quickly."""
    case = scripts.wire_programs.draw(seed)
    fields = {**vars(case), "batch": min(case.batch, 40) // case.accumulate * case.accumulate}
    return scripts.wire_programs.Case(**{**fields, "layers": min(case.layers, 2)})


@pytest.mark.parametrize("seed", range(5))
def test_random_programs_compute_what_one_device_does(scripts: Any, seed: int) -> None:
    compare_with_one_device(scripts, small(scripts, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_programs_compute_what_one_device_does(scripts: Any, seed: int) -> None:
    compare_with_one_device(scripts, small(scripts, seed))


def sent(function: Any, *shapes: Any, specs: Any, mesh: Any = None) -> float:
    mesh = AbstractMesh((8,), ("d",)) if mesh is None else mesh
    total: float = weft.plan(function, *shapes, mesh=mesh, in_shardings=specs).communication.total_bytes
    return total


def floats(*shape: int) -> Any:
    return Struct(shape, onp.float32)


@pytest.mark.parametrize("spec", [P(), P("d"), P(None, "d")])
def test_a_barrier_sends_nothing(spec: Any) -> None:
    def barrier(x: Any, w: Any) -> Any:
        x, w = lax.optimization_barrier((x, w))
        return np.tanh(x @ w)

    shapes, specs = (floats(4096, 64), floats(64, 256)), (P("d"), spec)
    assert sent(barrier, *shapes, specs=specs) == sent(lambda x, w: np.tanh(x @ w), *shapes, specs=specs)


def test_results_stay_split_where_weights_and_data_contend() -> None:
    plan = weft.plan(
        lambda w, x: np.tanh(x @ w["a"] + w["b"]),
        {"a": floats(64, 256), "b": floats(256)},
        floats(4096, 64),
        mesh=AbstractMesh((8,), ("d",)),
        in_shardings=({"a": P(None, "d"), "b": P("d")}, P("d")),
    )
    assert plan.out_shardings[0].spec == P("d", None)
    assert plan.communication.total_bytes == 7 / 8 * 4 * (64 * 256 + 256)


@pytest.mark.parametrize("rows", [4, 64, 1024])
def test_gradients_of_what_a_shard_map_broadcasts_are_reduced_before_they_are_summed(rows: int) -> None:
    mesh = weft.make_mesh((8,), ("d",))

    def loss(b: Any, x: Any) -> Any:
        return lax.pmean(np.mean((x + b) ** 2), "d")

    mapped = weft.shard_map(loss, mesh=mesh, in_specs=(P(), P("d")), out_specs=P())
    gradient = weft.grad(mapped)
    assert sent(gradient, floats(256), floats(8 * rows, 256), specs=(P(), P("d")), mesh=mesh) == 2 * 7 / 8 * 1024
    if rows == 4:
        b, x = onp.linspace(0, 1, 256, dtype="f"), onp.linspace(-1, 1, 32 * 256, dtype="f").reshape(32, 256)
        onp.testing.assert_allclose(weft.jit(gradient)(b, x), 2 * (x + b).mean(0) / 256, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("rows", [64, 63, 57])
@pytest.mark.parametrize("mode", ["clip", "drop", "promise_in_bounds"])
def test_updates_of_an_uneven_batch_stay_where_they_are(rows: int, mode: str) -> None:
    """The gradient of an embedding is summed; neither indices nor updates are gathered."""

    def scatter(table: Any, i: Any, x: Any) -> Any:
        return table.at[i].add(x, mode=mode), table.at[i].max(x, mode=mode)

    table, i = onp.ones((6, 5), onp.float32), onp.arange(rows, dtype=onp.int32) % (6 if mode[0] == "p" else 7)
    x = onp.arange(rows * 5, dtype=onp.float32).reshape(rows, 5)
    mesh = weft.make_mesh((8,), ("d",), (AxisType.Auto,))
    split = weft.make_array_from_callback
    put = lambda v: split(v.shape, NamedSharding(mesh, P("d")), lambda index: v[index])
    compiled = weft.jit(scatter).lower(weft.device_put(table, NamedSharding(mesh, P())), put(i), put(x)).compile()
    assert {row.kind for row in compiled.communication} <= {"psum", "pmax"}
    for one, many in zip(weft.jit(scatter)(table, i, x), compiled(table, put(i), put(x)), strict=True):
        onp.testing.assert_array_equal(many, one)


def test_microbatches_are_computed_in_parts() -> None:
    """A batch that is divided into fewer microbatches than devices stays split."""

    def step(w: Any, x: Any) -> Any:
        total = lambda w, x: ((x @ w) ** 2).sum()
        add = lambda sum, x: (sum + weft.grad(total)(w, x), None)
        return lax.scan(add, np.zeros_like(w), x.reshape(4, -1, x.shape[-1]))[0]

    plan = weft.plan(step, floats(64, 64), floats(512, 64), mesh=AbstractMesh((8,), ("d",)), in_shardings=(P(), P("d")))
    whole = weft.plan(step, floats(64, 64), floats(512, 64), mesh=AbstractMesh((8,), ("d",)), in_shardings=(P(), P()))
    assert plan.flops < whole.flops / 4
    assert set(plan.communication.counts()) == {"ppermute", "psum"}


@pytest.mark.parametrize("parts, rest", [(2, ()), (4, (3,)), (8, ()), (1, (2,)), (4, (2, 5))])
@pytest.mark.parametrize("shape, names", [((8,), ("d",)), ((4, 2), ("d", "t"))])
def test_divided_batches_have_their_elements(parts: int, rest: Any, shape: Any, names: Any) -> None:
    mesh = weft.make_mesh(shape, names, (AxisType.Auto,) * len(shape))
    x = onp.arange(parts * 16 * int(onp.prod(rest, dtype=int)) * 6, dtype=onp.float32).reshape(-1, 6)

    def microbatches(x: Any) -> Any:
        divided = x.reshape(parts, 16, *rest, 6)
        return divided, lax.scan(lambda c, part: (c + part.sum(), np.sin(part)), 0.0, divided)

    put = weft.device_put(x, NamedSharding(mesh, P("d", names[-1] if len(names) > 1 else None)))
    with weft.enable_checks(True):
        found = weft.jit(microbatches)(put)
    expected = weft.jit(microbatches)(x)
    for one, many in zip(weft.tree.leaves(expected), weft.tree.leaves(found), strict=True):
        onp.testing.assert_allclose(many, one, rtol=1e-5)
