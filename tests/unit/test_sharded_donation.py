"""Donated arguments on meshes: their memory is taken by the general way and by dispatchers alike, unless somebody else
can see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp

pytestmark = pytest.mark.skipif(weft.device_count() < 8, reason="needs 8 devices")


def sharding(*spec: Any) -> Any:
    return weft.NamedSharding(weft.make_mesh((8,), ("d",), (weft.sharding.AxisType.Auto,)), weft.P(*spec))


def pointers(x: Any) -> list[int]:
    """Return the addresses of the parts, without making arrays of them."""
    return np.frombuffer(x.addresses(), np.int64).tolist()


def add_one(x: Any, y: Any) -> Any:
    return x + 1, y * 2


@pytest.mark.parametrize("spec", [("d",), ()])
def test_memory_is_taken_in_every_call(spec: Any) -> None:
    x = weft.device_put(np.zeros((8, 4096), np.float32), sharding(*spec))
    y = weft.device_put(np.ones((8, 2), np.float32), sharding())
    step = weft.jit(add_one, donate_argnums=(0,))
    for i in range(6):
        before, old = pointers(x), x
        x, _ = step(x, y)
        if i or spec:  # copies that share memory are copied once
            assert pointers(x) == before
        with pytest.raises(weft.errors.DonatedArrayError, match="donated"):
            old + 1
    assert len(set(pointers(x))) == 8
    assert (np.asarray(x) == 6).all()


def test_views_of_numpy_are_not_overwritten() -> None:
    step = weft.jit(add_one, donate_argnums=(0, 1))
    x = weft.device_put(np.zeros((8, 4096), np.float32), sharding("d"))
    y = weft.device_put(np.ones((8, 4096), np.float32), sharding())
    seen = []
    for i in range(6):
        seen.append((i, np.asarray(x), np.asarray(x.addressable_data(3)), np.asarray(y)))
        x, y = step(x, y)
    for i, whole, part, doubled in seen:
        assert (whole == i).all()
        assert (part == i).all()
        assert (doubled == 2.0**i).all()


def test_an_argument_that_is_there_twice_is_an_error() -> None:
    step = weft.jit(add_one, donate_argnums=(0,))
    for _ in range(4):
        x = weft.device_put(np.zeros((8, 4096), np.float32), sharding("d"))
        y = weft.device_put(np.zeros((8, 4096), np.float32), sharding("d"))
        step(x, y)
    x = weft.device_put(np.zeros((8, 4096), np.float32), sharding("d"))
    with pytest.raises(weft.errors.DonatedArrayError, match="another argument"):
        step(x, x)


def test_arrays_that_share_parts_are_left_alone() -> None:
    """An equivalent sharding has the same parts: donating one array must not change the other."""
    mesh = sharding().mesh
    step = weft.jit(add_one, donate_argnums=(0,))
    y = weft.device_put(np.ones((8, 2), np.float32), sharding())
    for _ in range(4):
        x = weft.device_put(np.zeros((8, 4096), np.float32), sharding("d"))
        other = weft.device_put(x, weft.NamedSharding(mesh, weft.P("d", None)))
        copy = np.array(other)
        z, _ = step(other, y)
        assert (np.asarray(z) == copy + 1).all()


def test_memory_of_what_is_not_taken_lives_until_the_program_has_run() -> None:
    """Small parts are read, not taken; here nothing but the arrays of parts refers to them."""
    step = weft.jit(lambda x, y: (x + 1, y @ y), donate_argnums=(0,))
    y = weft.device_put(np.eye(256, dtype=np.float32), sharding("d"))
    x = weft.device_put(np.zeros((8, 512), np.float32), sharding("d"))
    for i in range(8):
        parts = [weft.device_put(np.full((1, 512), i, np.float32), d) for d in weft.devices()]
        array = weft.make_array_from_single_device_arrays((8, 512), x.sharding, parts)
        del parts
        x, _ = step(array, y)
        assert (np.asarray(x) == i + 1).all()
        assert array.is_deleted()


def test_small_and_host_arguments_beside_donated_ones() -> None:
    step = weft.jit(lambda s, b: ({k: v + b.sum() for k, v in s.items()}, b), donate_argnums=(0,))
    state = {
        "large": weft.device_put(np.zeros((8, 4096), np.float32), sharding("d")),
        "small": weft.device_put(np.zeros(8, np.float32), sharding("d")),
    }
    for _ in range(5):
        state, _ = step(state, np.ones(3, np.float32))  # a NumPy batch
    batch = weft.device_put(np.ones(8, np.float32), sharding("d"))
    for _ in range(5):
        old = state["small"]
        state, _ = step(state, batch)
        assert old.is_deleted()
    assert (np.asarray(state["large"]) == 55).all()
    assert (np.asarray(state["small"]) == 55).all()


@pytest.mark.parametrize("spec", [(), ("d",), (None, "d"), (("a", "b"),), ("b", "a"), ("a",), (None, "b")])
@pytest.mark.parametrize("columns", [8, 2048])
def test_put_and_back(spec: Any, columns: int) -> None:
    axes = ("d",) if "d" in spec else ("a", "b")
    mesh = weft.make_mesh((8,) if axes == ("d",) else (4, 2), axes, (weft.sharding.AxisType.Auto,) * len(axes))
    value = np.arange(8 * columns, dtype=np.float32).reshape(8, columns)
    x = weft.device_put(value, weft.NamedSharding(mesh, weft.P(*spec)))
    assert (np.asarray(x) == value).all()
    for shard in x.addressable_shards:
        assert (np.asarray(shard.data) == value[shard.index]).all()
    value[:] = 0  # it is a copy
    assert np.asarray(x).any()
    transposed = weft.device_put(np.arange(8 * columns, dtype=np.float32).reshape(8, columns).T.copy().T, x.sharding)
    assert (np.asarray(transposed) == np.asarray(x)).all()
    back = weft.device_put(x, weft.NamedSharding(mesh, weft.P(None, axes[0])))
    assert (np.asarray(wnp.asarray(back)) == np.asarray(x)).all()
