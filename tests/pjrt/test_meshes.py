"""Meshes over a plugin's devices: sharded arrays, partitioned programs, collectives, donation."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import NamedSharding, P, errors, lax
from weft.sharding import Mesh
from weft.sharding.device import Device

VALUE = np.arange(64.0, dtype=np.float32).reshape(8, 8) / 8
SPECS = [P(), P("a"), P("b"), P("a", "b"), P("b", "a"), P(("a", "b")), P(None, ("b", "a"))]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_arrays_are_split_and_gathered(spec: P, mesh: Mesh) -> None:
    x = weft.device_put(VALUE, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(x, VALUE)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(shard.data, VALUE[shard.index])
        assert shard.data.device is shard.device
    for other in SPECS:
        np.testing.assert_array_equal(weft.device_put(x, NamedSharding(mesh, other)), VALUE)


def test_uneven_shards(mesh: Mesh) -> None:
    value = VALUE[:5, :3]
    x = weft.device_put(value, NamedSharding(mesh, P("a", "b")))
    np.testing.assert_array_equal(x, value)
    np.testing.assert_allclose(weft.jit(lambda x: wnp.sin(x).sum(axis=0))(x), np.sin(value).sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_partitioned_programs(spec: P, mesh: Mesh) -> None:
    def f(x):
        y = wnp.tanh(x @ x.T)
        return y.sum(axis=1), wnp.sort(y, axis=0), wnp.flip(x, 0) + wnp.cumsum(x, axis=1)

    x = weft.device_put(VALUE, NamedSharding(mesh, spec))
    for found, expected in zip(weft.jit(f)(x), f(VALUE), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose((x * 2 + 1).mean(axis=0), (VALUE * 2 + 1).mean(axis=0), rtol=1e-6)


def test_devices_in_another_order(devices: list[Device]) -> None:
    mesh = Mesh(np.array(devices[:4])[[2, 0, 3, 1]], ("a",))
    x = weft.device_put(VALUE, NamedSharding(mesh, P("a")))
    shift = weft.shard_map(
        lambda x: lax.ppermute(x, "a", [(i, (i + 1) % 4) for i in range(4)]) + lax.axis_index("a"),
        mesh=mesh,
        in_specs=P("a"),
        out_specs=P("a"),
    )
    expected = np.roll(VALUE, 2, axis=0) + np.repeat(np.arange(4), 2)[:, None]
    np.testing.assert_array_equal(weft.jit(shift)(x), expected)


@pytest.mark.parametrize("axis", ["a", "b", ("a", "b")], ids=str)
def test_collectives(axis, mesh: Mesh) -> None:
    size = int(np.prod([mesh.shape[a] for a in ([axis] if isinstance(axis, str) else axis)]))
    one = isinstance(axis, str)

    def f(x):
        found = [lax.psum(x, axis), lax.pmax(x, axis), lax.pmin(x, axis), lax.pmean(x, axis)]
        if one:
            found += [
                lax.all_gather(x, axis).sum(axis=0),
                lax.psum_scatter(wnp.tile(x, (size, 1)), axis, tiled=True),
                lax.all_to_all(wnp.tile(x, (size, 1)), axis, 0, 0, tiled=True)[: x.shape[0]],
                lax.ppermute(x, axis, [(i, (i + 1) % size) for i in range(size)]),
                x + lax.axis_index(axis),
            ]
        return [r.reshape(x.shape) for r in found]

    spec = P("a", "b")
    mapped = lambda mesh: weft.jit(weft.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    here = Mesh(np.array(weft.devices("cpu")[:8]).reshape(2, 4), ("a", "b"))
    for found, expected in zip(mapped(mesh)(VALUE), mapped(here)(VALUE), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_training_step_with_donation(mesh: Mesh) -> None:
    def step(w, x, y):
        loss, g = weft.value_and_grad(lambda w: wnp.mean((wnp.tanh(x @ w) - y) ** 2))(w)
        return w - 0.1 * g, loss

    rng = np.random.default_rng(0)
    w, x, y = (rng.normal(size=s).astype(np.float32) for s in ((8, 4), (16, 8), (16, 4)))
    put = lambda value, *spec: weft.device_put(value, NamedSharding(mesh, P(*spec)))
    sharded = put(w, None, "b"), put(x, "a"), put(y, "a", "b")
    run = weft.jit(step, donate_argnums=0)
    state, expected = sharded[0], w
    for _ in range(4):
        before = state
        state, loss = run(state, *sharded[1:])
        expected, known = step(expected, x, y)
        assert before.is_deleted() and state.sharding.is_equivalent_to(sharded[0].sharding, 2)
        np.testing.assert_allclose(state, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loss, known, rtol=1e-5)


def test_constants_and_keys(mesh: Mesh) -> None:
    table = wnp.arange(8.0)
    f = weft.jit(lambda x, key: x * table + weft.random.normal(key, x.shape))
    x = weft.device_put(VALUE, NamedSharding(mesh, P("a", "b")))
    np.testing.assert_allclose(f(x, weft.random.key(0)), f(VALUE, weft.random.key(0)), rtol=1e-5, atol=1e-6)


def test_meshes_of_one_device(device: Device) -> None:
    x = weft.device_put(VALUE, NamedSharding(Mesh(np.array([device]), ("a",)), P("a")))
    np.testing.assert_allclose(weft.jit(lambda x: x.sum(axis=0))(x), VALUE.sum(axis=0))


def test_more_parts_than_devices_are_refused(mesh: Mesh) -> None:
    x = weft.device_put(VALUE, NamedSharding(mesh, P("a")))
    with weft.reproducible(8):
        with pytest.raises(errors.NotSupportedError, match="reproducible"):
            weft.jit(lambda x: x.sum(axis=0))(x)
