"""Sharded arrays: creation, shards, and functions that accept them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError, DonatedArrayError, ImmutableArrayError, ShardingTypeError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

DEVICES = [weft.Device(i, "cpu") for i in range(8)]
MESH = Mesh(np.array(DEVICES).reshape(4, 2), ("x", "y"))
EXPLICIT = MESH.update(axis_types=(AxisType.Explicit,) * 2)
VALUES = np.arange(32, dtype=np.float32).reshape(8, 4)
SPECS = [P(), P("x"), P("x", "y"), P(None, "y"), P(("y", "x")), P("y", None)]
each_mesh = pytest.mark.parametrize("mesh", [MESH, EXPLICIT], ids=["auto", "explicit"])


def put(spec: P, mesh: Mesh = MESH, value: Any = VALUES) -> Any:
    return weft.device_put(value, NamedSharding(mesh, spec))


@each_mesh
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_each_device_has_its_part(spec: P, mesh: Mesh) -> None:
    array = put(spec, mesh)
    assert isinstance(array, weft.Array) and array.shape == (8, 4) and array.dtype == np.float32
    assert array.sharding is NamedSharding(mesh, spec) and array.committed and array.devices() == set(DEVICES)
    assert array.is_fully_addressable and array.is_fully_replicated == (spec == P())
    indices = array.sharding.devices_indices_map((8, 4))
    shards = array.addressable_shards
    assert [s.device for s in shards] == DEVICES and array.global_shards == shards
    for i, shard in enumerate(shards):
        assert shard.index == indices[shard.device] and shard.data is array.addressable_data(i)
        assert shard.data.device == shard.device and shard.data.committed
        np.testing.assert_array_equal(shard.data, VALUES[shard.index])
        copies = [s.replica_id for s in shards if s.index == shard.index]
        assert copies == list(range(len(copies)))
    np.testing.assert_array_equal(np.asarray(array), VALUES)
    assert repr(array) == repr(wnp.asarray(VALUES)) and array.tolist() == VALUES.tolist()


@each_mesh
def test_functions_accept_sharded_arrays(mesh: Mesh) -> None:
    array, plain = put(P("x", "y"), mesh), wnp.asarray(VALUES)
    functions: list[Any] = [
        lambda x: x + 1,
        lambda x: 1 - x,
        weft.jit(lambda x: wnp.sin(x).sum()),
        weft.grad(lambda x: (x**3).sum()),
        lambda x: weft.lax.cond(x.sum() > 0, wnp.sin, wnp.cos, x),
        lambda x: weft.jit(lambda x: x.sum(1)).lower(x).compile()(x),
        weft.device_get,
    ]
    if mesh.are_all_axes_auto:  # where axes are Explicit, these have to say how their results are split
        functions += [
            lambda x: x[1:3, 0],
            lambda x: x @ x.T,
            lambda x: x.at[2].set(0),
            lambda x: list(x)[3],
            weft.vmap(lambda row: row.sum()),
            lambda x: weft.jit(lambda: x * 2)(),
        ]
    for function in functions:
        np.testing.assert_allclose(function(array), function(plain), rtol=1e-5)
    assert float(put(P(), mesh, 1.5)) == 1.5 and bool(put(P(), mesh, True)) and len(array) == 8
    doubled = weft.jit(lambda x: x * 2)
    for _ in range(4):  # the first calls, and those that find code of their own
        np.testing.assert_array_equal(doubled(array), VALUES * 2)
        np.testing.assert_array_equal(doubled(plain), VALUES * 2)


@each_mesh
def test_scan_takes_slices_of_whole_dimensions(mesh: Mesh) -> None:
    def total(x: Any) -> Any:
        return weft.lax.scan(lambda c, row: (c + row.sum(), c), 0.0, x)[1]

    np.testing.assert_array_equal(total(put(P(None, "y"), mesh)), total(VALUES))
    if mesh is EXPLICIT:
        with pytest.raises(ShardingTypeError, match="dimension 0, which must not be split, but it is split over 'x'"):
            total(put(P("x"), mesh))


def test_types_say_explicit_axes() -> None:
    assert weft.typeof(put(P("x", "y"), EXPLICIT)).short() == "f32[8@x,4@y]"
    assert weft.typeof(put(P("x", "y"), MESH)).short() == "f32[8,4]"  # over Auto axes the compiler decides
    with pytest.raises(ShardingTypeError, match="split over 'x' and 'y'"):
        weft.jit(lambda a, b: a + b)(put(P("x"), EXPLICIT), put(P("y"), EXPLICIT))


def test_putting_again() -> None:
    array = put(P("x", "y"))
    assert put(P("x", "y"), value=array) is array and weft.device_put(array) is array
    other = put(P(None, "y"), value=array)
    np.testing.assert_array_equal(other.addressable_data(1), VALUES[:, 2:])
    whole = weft.device_put(array, weft.devices()[0])
    assert whole.sharding == SingleDeviceSharding(weft.devices()[0]) and not hasattr(whole, "_parts")
    np.testing.assert_array_equal(whole, VALUES)
    assert weft.device_put(array, SingleDeviceSharding(weft.devices()[0])).shape == (8, 4)
    both = weft.device_put({"a": VALUES, "b": array}, NamedSharding(MESH, P("y")))
    assert both["a"].sharding is both["b"].sharding and both["a"].addressable_data(0).shape == (4, 4)


def test_trees_are_put_by_trees() -> None:
    values = {"w": VALUES, "b": [np.ones(4), np.zeros(8)]}
    first, second = NamedSharding(MESH, P("x")), NamedSharding(MESH, P("y"))
    result = weft.device_put(values, {"w": first, "b": second})  # a prefix: both of b
    assert result["w"].sharding is first and [b.sharding for b in result["b"]] == [second] * 2
    result = weft.device_put(values, {"w": first, "b": [None, second]})
    assert result["b"][0].sharding == SingleDeviceSharding(weft.devices()[0]) and result["b"][1].sharding is second
    with pytest.raises(ValueError):
        weft.device_put(values, {"w": first})
    with pytest.raises(ArgumentError, match="cannot move an array"):
        weft.device_put(put(P("x")), weft.Device(9, "cpu"))
    with pytest.raises(ArgumentError, match="a device or a sharding"):
        weft.device_put(VALUES, "cpu")


def test_host_memory() -> None:
    sharding = NamedSharding(MESH, P("x"), memory_kind="pinned_host")
    array = weft.device_put(VALUES, sharding)
    assert array.sharding.memory_kind == "pinned_host" and array.aval.short() == "f32<host>[8,4]"
    assert weft.device_put(array, sharding.with_memory_kind("device")).aval.short() == "f32[8,4]"
    np.testing.assert_array_equal(weft.jit(lambda x: x * 2)(array), VALUES * 2)
    with pytest.raises(ShardingTypeError, match="must be in one memory space"):
        weft.jit(lambda a, b: a + b)(array, put(P("x")))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.complex64, wnp.bfloat16, np.uint32])
def test_all_dtypes(dtype: Any) -> None:
    value = (VALUES % 2).astype(dtype)
    array = put(P("x", "y"), value=value)
    assert array.dtype == dtype and array.addressable_data(5).dtype == dtype
    np.testing.assert_array_equal(np.asarray(array), value)


def test_keys() -> None:
    keys = weft.random.split(weft.random.key(0), 8)
    array = put(P("x"), value=keys)
    assert array.dtype == keys.dtype and array.addressable_data(0).shape == (2,)
    assert weft.random.bits(array[3]) == weft.random.bits(keys[3])
    np.testing.assert_array_equal(weft.random.key_data(array), weft.random.key_data(keys))


def test_copies_and_pickles() -> None:
    array = put(P("x"))
    again = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(again, VALUES)
    for result in (copy.copy(array), copy.deepcopy(array)):
        assert result.sharding is array.sharding and result is not array
        result.delete()
    np.testing.assert_array_equal(array, VALUES)
    with pytest.raises(ImmutableArrayError):
        array[0] = 1


def test_deleted_and_donated() -> None:
    array = put(P("x"))
    np.testing.assert_array_equal(weft.jit(lambda x: x + 1, donate_argnums=0)(array), VALUES + 1)
    assert array.is_deleted()
    with pytest.raises(DonatedArrayError, match="was donated"):
        array + 1
    array = put(P("x"))
    assert weft.block_until_ready(array) is array
    array.delete()
    with pytest.raises(DonatedArrayError, match="was deleted"):
        array.addressable_data(0)
    assert "deleted" in repr(array)


def test_parts_of_other_processes() -> None:
    devices = [weft.Device(i, "cpu", process_index=i // 4) for i in range(8)]
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    array = put(P("x"), mesh)
    assert not array.is_fully_addressable and len(array.addressable_shards) == 4 and len(array.global_shards) == 8
    assert [s.data is None for s in array.global_shards] == [False] * 4 + [True] * 4
    np.testing.assert_array_equal(array.addressable_data(2), VALUES[2:4])
    with pytest.raises(ArgumentError, match="addressable_shards"):
        np.asarray(array)
    assert "sharding=" in repr(array) and "shape=(8, 4)" in repr(array)
    np.testing.assert_array_equal(put(P(), mesh), VALUES)


def test_arrays_from_single_device_arrays() -> None:
    sharding = NamedSharding(MESH, P("x"))
    calls: list[Any] = []

    def part(index: Any) -> np.ndarray:
        calls.append(index)
        return VALUES[index]

    array = weft.make_array_from_callback((8, 4), sharding, part)
    assert len(calls) == 4 and array.sharding is sharding
    np.testing.assert_array_equal(array, VALUES)
    parts = [shard.data for shard in array.addressable_shards]
    np.testing.assert_array_equal(weft.make_array_from_single_device_arrays((8, 4), sharding, parts), VALUES)
    with pytest.raises(ArgumentError, match="8 devices"):
        weft.make_array_from_single_device_arrays((8, 4), sharding, parts[:2])
    with pytest.raises(ArgumentError, match="Shard 0"):
        weft.make_array_from_single_device_arrays((8, 8), sharding, parts)
    with pytest.raises(ArgumentTypeError, match="every shard must be an array on a single device"):
        weft.make_array_from_single_device_arrays((8, 4), sharding, [VALUES[:2]] * 8)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: put(P("x"), EXPLICIT, np.ones(7)), "7 elements, which do not split evenly into 4"),
        (lambda: put(P("x", "y"), value=np.ones(8)), "2 dimensions.* a value of rank 1"),
        (lambda: put(P(), Mesh([weft.Device(0, "cuda")], "x")), r"there is no CudaDevice\(id=0\)"),
        (lambda: put(P("x")).unsafe_buffer_pointer(), "no single address"),
    ],
)
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


@pytest.mark.parametrize("word", ["device", "out_sharding"])
def test_creation_functions_take_shardings(word: str) -> None:
    sharding = NamedSharding(MESH, P("x"))
    where: Any = {word: sharding}
    like = wnp.ones((8, 4))
    result = [
        wnp.zeros((8, 4), **where),
        wnp.ones((8, 4), **where),
        wnp.empty((8, 4), **where),
        wnp.full((8, 4), 2, **where),
        wnp.arange(8, **where),
        wnp.array(VALUES, **where),
        wnp.asarray(VALUES.tolist(), **where),
        wnp.zeros_like(like, **where),
        wnp.ones_like(like, **where),
        wnp.full_like(like, 3, **where),
    ]
    if word == "device":
        result += [wnp.linspace(0, 1, 8, **where), wnp.eye(8, **where), wnp.astype(like, int, **where)]
        result += [wnp.empty_like(like, **where), like.to_device(sharding), wnp.from_dlpack(VALUES, **where)]
    for array in result:
        assert array.sharding is sharding and array.addressable_data(0).shape[0] == 2
    np.testing.assert_array_equal(result[4], np.arange(8))


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"device": "cpu"}, "a Device or a Sharding"),
        ({"out_sharding": P("x")}, "PartitionSpec in out_sharding needs a mesh"),
        ({"device": weft.devices()[0], "out_sharding": NamedSharding(MESH, P("x"))}, "Pass device or out_sharding"),
        ({"device": weft.Device(0, "cuda")}, "cannot move an array"),
    ],
)
def test_invalid_shardings_of_creation_functions(where: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        wnp.zeros(8, **where)


def test_an_array_of_one_device_has_one_part() -> None:
    array = wnp.ones((2, 3))
    (shard,) = array.addressable_shards
    assert shard.data is array and shard.index == (slice(None), slice(None)) and shard.replica_id == 0
    assert array.global_shards == array.addressable_shards


def test_parts_are_taken_from_the_devices_they_are_on() -> None:
    sharding = NamedSharding(Mesh(DEVICES[:2], "x"), P("x"))
    parts = [weft.device_put(VALUES[:4], DEVICES[0]), weft.device_put(VALUES[4:], DEVICES[1])]
    result = weft.make_array_from_single_device_arrays(VALUES.shape, sharding, parts)
    assert all(result.addressable_data(i) is part for i, part in enumerate(parts))
    # Each part knows its device, so their order does not matter; those that know none come where one is left.
    for order in (parts[::-1], [wnp.asarray(VALUES[4:]), parts[0]], [parts[1], wnp.asarray(VALUES[:4])]):
        result = weft.make_array_from_single_device_arrays(VALUES.shape, sharding, order)
        np.testing.assert_array_equal(result, VALUES)
    with pytest.raises(ArgumentError, match="Shard 1 must not be committed to the device of another shard"):
        weft.make_array_from_single_device_arrays(VALUES.shape, sharding, [parts[0], parts[0]])
    elsewhere = weft.device_put(VALUES[4:], DEVICES[2])
    with pytest.raises(ArgumentError, match="Shard 1 must be committed to a device of the sharding"):
        weft.make_array_from_single_device_arrays(VALUES.shape, sharding, [parts[0], elsewhere])
    with pytest.raises(ArgumentError, match="no CpuDevice"):
        weft.device_put(VALUES, NamedSharding(Mesh([weft.Device(99, "cpu")], "x"), P("x")))


@each_mesh
def test_eager_operations_have_one_program_for_each_type_sharding_and_setting(mesh: Mesh) -> None:
    from weft.runtime import evaluate

    evaluate._sharded_programs.clear()
    programs = lambda: len(evaluate._sharded_programs)
    for spec, count in ((P("x"), 1), (P("x"), 1), (P("x", None), 2), (P("y"), 3)):
        array = put(spec, mesh)
        np.testing.assert_array_equal(array * array, VALUES * VALUES)
        assert programs() == count
    with weft.debug_nans(True), pytest.raises(FloatingPointError):
        wnp.sqrt(-1 - put(P("x"), mesh))
    np.testing.assert_array_equal(np.isnan(wnp.sqrt(-1 - put(P("x"), mesh))), True)
    # A committed operand is an error after a call of the same types too.
    array + VALUES
    with pytest.raises(ArgumentError, match="committed to a single device"):
        array + weft.device_put(VALUES, DEVICES[3])
