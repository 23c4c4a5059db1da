"""Meshes of simulated GPUs: arrays in parts, programs with shardings, and collectives by a stand-in of NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpus
from tests.cuda.stand_ins.nccl import NcclStandIn
from tests.cuda.stand_ins.objects import Function
from weft import lax
from weft.runtime import dlpack
from weft.runtime.cuda import communicators, spmd
from weft.runtime.cuda.libraries.nccl import Nccl
from weft.sharding import PartitionSpec as P
from weft.sharding.device import Device

Gpus = list[tuple[Device, SimulatedDriver]]


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gpus, NcclStandIn]]:
    with simulated_gpus(monkeypatch, 4) as gpus:
        stand_in = NcclStandIn()
        library = Nccl(lambda name: stand_in)
        monkeypatch.setattr(communicators, "nccl", lambda: library)
        yield gpus, stand_in


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    with simulated_gpus(monkeypatch, 1) as (found,):
        yield found


X = np.arange(64, dtype=np.float32).reshape(4, 4, 4)

# Collectives along an axis of 4, of parts of shape (4, 4): what each device has of X.
COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "psum": lambda x: lax.psum(x, "i"),
    "psum of integers": lambda x: lax.psum(x.astype(np.int32), "i"),
    "psum of complex numbers": lambda x: lax.psum(x + 2j * x, "i"),
    "psum in half": lambda x: lax.psum(x.astype("bfloat16"), "i"),
    "pmax": lambda x: lax.pmax(x * (1 - x), "i"),
    "pmin": lambda x: lax.pmin(x - 3, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "all_gather, tiled": lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
    "all_gather, last": lambda x: lax.all_gather(x, "i", axis=2),
    "psum_scatter": lambda x: lax.psum_scatter(x, "i", tiled=True),
    "psum_scatter, last": lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "psum_scatter, one": lambda x: lax.psum_scatter(x, "i", scatter_dimension=1),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True),
    "all_to_all, turned": lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all, last": lambda x: lax.all_to_all(x, "i", 0, 1),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "ppermute of some": lambda x: lax.ppermute(x, "i", [(2, 0), (0, 3)]),
    "pbroadcast": lambda x: lax.pbroadcast(x, "i", 2),
    "groups": lambda x: lax.psum(x, "i", axis_index_groups=[[0, 2], [3, 1]]),
    "index": lambda x: x * lax.axis_index("i"),
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda i, c: lax.psum(c, "i") * 0.5 + x, x),
    "in a while": lambda x: lax.while_loop(lambda c: lax.pmax(c[0, 0], "i") < 100, lambda c: lax.psum(c, "i") + 1, x),
    "in a branch": lambda x: lax.cond(lax.psum(x[0, 0], "i") > 3, lambda c: lax.psum(c, "i"), lambda c: c * 2, x),
}


def mapped(f: Callable[[Any], Any], mesh: Any) -> Any:
    def body(x: Any) -> Any:
        return f(x[0])[None]

    return weft.jit(weft.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_are_those_of_vmap(four: tuple[Gpus, NcclStandIn], name: str) -> None:
    gpus, _ = four
    mesh = weft.make_mesh((4,), ("i",), devices=[device for device, _ in gpus])
    f = COLLECTIVES[name]
    found = mapped(f, mesh)(X)
    assert found.devices() == {device for device, _ in gpus}
    expected = weft.vmap(f, axis_name="i")(X)
    np.testing.assert_allclose(
        np.asarray(found).astype(np.complex64), np.asarray(expected).astype(np.complex64), rtol=1e-6
    )


def test_arrays_in_parts(four: tuple[Gpus, NcclStandIn]) -> None:
    gpus, _ = four
    devices = [device for device, _ in gpus]
    mesh = weft.make_mesh((2, 2), ("i", "j"), devices=devices, axis_types=(weft.sharding.AxisType.Auto,) * 2)
    for shape, spec in (((4, 6), P("i", "j")), ((5, 3), P("j")), ((4, 4), P(None, ("i", "j"))), ((3,), P())):
        value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        x = weft.device_put(value, weft.NamedSharding(mesh, spec))
        np.testing.assert_array_equal(np.asarray(x), value)
        assert [s.data.device for s in x.addressable_shards] == devices
        y = weft.jit(lambda a: a * 2 + 1)(x)
        assert y.devices() == set(devices)
        np.testing.assert_array_equal(np.asarray(y), value * 2 + 1)
        assert x.block_until_ready() is x and x.is_ready()


def test_a_step_of_training(four: tuple[Gpus, NcclStandIn]) -> None:
    """Batches are split, gradients are summed by NCCL, parameters are donated."""
    gpus, stand_in = four
    mesh = weft.make_mesh(
        (4,), ("data",), devices=[device for device, _ in gpus], axis_types=(weft.sharding.AxisType.Auto,)
    )
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)

    def step(w: Any, x: Any) -> Any:
        value, gradient = weft.value_and_grad(lambda w: wnp.mean(wnp.tanh(x @ w) ** 2))(w)
        return w - 0.1 * gradient, value

    weights = weft.device_put(w, weft.NamedSharding(mesh, P()))
    batch = weft.device_put(x, weft.NamedSharding(mesh, P("data")))
    on_mesh = weft.jit(step, donate_argnums=0)
    here = w
    for _ in range(3):
        before = weights
        weights, value = on_mesh(weights, batch)
        here, expected = weft.jit(step)(here, x)
        assert before.is_deleted() and weights.devices() == {device for device, _ in gpus}
        np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(weights), np.asarray(here), rtol=1e-5)
    assert ["ncclAllReduce"] in stand_in.calls


def test_what_the_library_reports(four: tuple[Gpus, NcclStandIn]) -> None:
    gpus, stand_in = four
    mesh = weft.make_mesh((4,), ("i",), devices=[device for device, _ in gpus])
    stand_in.__dict__["ncclAllReduce"] = Function(lambda *arguments: 2)
    with pytest.raises(weft.errors.JaxRuntimeError) as raised:
        mapped(COLLECTIVES["psum"], mesh)(X)
    text = " ".join(str(raised.value).split())
    assert "cannot do psum at test_meshes.py" in text and "in ncclAllReduce: what ncclGetErrorString says (2)" in text
    assert "NCCL_DEBUG=INFO" in text


def test_stretches_between_collectives_are_graphs(four: tuple[Gpus, NcclStandIn]) -> None:
    """Steps that change registers before a collective, and steps after it that read them."""
    gpus, stand_in = four
    mesh = weft.make_mesh((4,), ("i",), devices=[device for device, _ in gpus])

    def f(x: Any) -> Any:
        y = lax.scan(lambda c, row: (c + row, c * row), x[0] * 0, x)[1]
        total = lax.psum(y, "i")
        return lax.scan(lambda c, row: (c * 0.5 + row, c), total[0], total + lax.sort(x, dimension=0))[1]

    expected = weft.vmap(f, axis_name="i")(X)
    on_mesh, x = mapped(f, mesh), weft.device_put(X, weft.NamedSharding(mesh, P("i")))
    for _ in range(6):
        np.testing.assert_allclose(np.asarray(on_mesh(x)), np.asarray(expected), rtol=1e-6)
    for _, driver in gpus:
        assert driver.calls.count("record") == 2 and driver.calls.count("start") > 4
        assert "collective" not in driver.calls
    assert stand_in.calls == 6 * [["ncclAllReduce"]]


def test_a_mesh_of_one_gpu(one: tuple[Device, SimulatedDriver]) -> None:
    """It needs no library, and programs are recorded."""
    device, driver = one
    mesh = weft.make_mesh((1,), ("i",), devices=[device])
    x = weft.device_put(X, weft.NamedSharding(mesh, P("i")))
    assert x.devices() == {device}
    f = weft.jit(lambda x: wnp.sum(x * 2, 0))
    for _ in range(6):
        total = f(x)
        assert total.devices() == {device}
        np.testing.assert_array_equal(np.asarray(total), X.sum(0) * 2)
    assert "record" in driver.calls and "start" in driver.calls
    for name in ("psum", "all_gather, tiled", "psum_scatter", "in a loop"):
        g = COLLECTIVES[name]
        found = weft.jit(weft.shard_map(g, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))
        for _ in range(2):
            expected = weft.vmap(g, axis_name="i")(X[None])[0]
            np.testing.assert_array_equal(np.asarray(found(x)), np.asarray(expected))
    none = weft.shard_map(lambda x: lax.ppermute(x, "i", []), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_array_equal(np.asarray(weft.jit(none)(x)), 0 * X)
    gradient = weft.jit(weft.grad(lambda x: wnp.sum(wnp.sin(x) ** 2)))(x)
    np.testing.assert_allclose(np.asarray(gradient), np.sin(2 * X), atol=1e-5)
    np.testing.assert_array_equal(np.asarray(weft.device_put(total, weft.devices("cpu")[0])), np.asarray(total))
    assert (x + 1).devices() == {device}
    # The mesh has no other device, so arrays that are committed to it are where they should be.
    beside = weft.device_put(X, device)
    copies = driver.calls.count("in 256")
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda a, b: a + b)(x, beside)), 2 * X)
    there = weft.device_put(beside, weft.NamedSharding(mesh, P("i")))
    assert there.unsafe_buffer_pointer() == beside.unsafe_buffer_pointer()
    assert driver.calls.count("in 256") == copies and there.__dlpack_device__() == (2, 0)
    assert dlpack._get_tensor(there.__dlpack__()).data == beside.unsafe_buffer_pointer()


def test_the_library_with_one_gpu(one: tuple[Device, SimulatedDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of NCCL are recorded in graphs."""
    device, driver = one
    stand_in = NcclStandIn()
    monkeypatch.setattr(communicators, "nccl", lambda: Nccl(lambda name: stand_in))
    monkeypatch.setattr(spmd.CudaDevicesExecutable, "uses_library_alone", True)
    mesh = weft.make_mesh((1,), ("i",), devices=[device])
    f = weft.jit(weft.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
    x = weft.device_put(X, weft.NamedSharding(mesh, P("i")))
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(f(x)), X)
    assert "collective" in driver.calls and ["ncclAllReduce"] in stand_in.calls
