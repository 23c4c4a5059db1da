"""Meshes, partition specs and shardings: their meaning, comparison, and errors."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

import weft
from tests.messages import without_source
from weft.errors import ArgumentError, ArgumentTypeError, JaxprSyntaxError, ShardingTypeError
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.parser import equal, parse
from weft.ir.printer import to_text
from weft.ir.types import ArrayType, TapeType, array_type
from weft.ir.verifier import verify
from weft.sharding import (
    AbstractMesh,
    AxisType,
    ManualAxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    PartitionSpec as P,
    SingleDeviceSharding,
)
from weft.sharding.device import MemorySpace
from weft.sharding.layout import Layout, Shard
from weft.sharding.manual import NONE

DEVICES = [weft.Device(i, "cpu") for i in range(8)]
MESH = Mesh(np.array(DEVICES).reshape(4, 2), ("x", "y"))
SPECS = [P(), P("x"), P("x", "y"), P(None, "x"), P(("x", "y")), P(("y", "x"), None), P("y", "x"), P(None, ("y", "x"))]


def cut(sharding: NamedSharding, array: np.ndarray) -> dict[weft.Device, np.ndarray]:
    """Return the part of an array on each device, from the meaning of a spec: split dimension by dimension, axis by
    axis."""
    parts = {}
    for coordinates in np.ndindex(*MESH.axis_sizes):
        part = array
        for dim, entry in enumerate(sharding.spec):
            for name in (entry if isinstance(entry, tuple) else (entry,)) if entry else ():
                axis = MESH.axis_names.index(name)
                part = np.split(part, MESH.axis_sizes[axis], dim)[coordinates[axis]]
        parts[MESH.devices[coordinates]] = part
    return parts


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_indices_of_shards(spec: PartitionSpec) -> None:
    sharding = NamedSharding(MESH, spec)
    array = np.arange(16 * 8).reshape(16, 8)
    expected = cut(sharding, array)
    indices = sharding.devices_indices_map(array.shape)
    assert list(indices) == DEVICES
    for device, index in indices.items():
        np.testing.assert_array_equal(array[index], expected[device])
        assert array[index].shape == sharding.shard_shape(array.shape)
    assert sharding.is_fully_replicated == all(part.shape == array.shape for part in expected.values())


@pytest.mark.parametrize("first", SPECS, ids=str)
@pytest.mark.parametrize("second", SPECS, ids=str)
def test_equivalent_is_the_same_parts(first: PartitionSpec, second: PartitionSpec) -> None:
    one, other = NamedSharding(MESH, first), NamedSharding(MESH, second)
    same = one.devices_indices_map((16, 8)) == other.devices_indices_map((16, 8))
    assert one.is_equivalent_to(other, 2) == same
    assert (one is other) == (first == second) == (one == other)


def test_equal_shardings_are_identical() -> None:
    assert Mesh(np.array(DEVICES).reshape(4, 2), ["x", "y"]) is MESH
    assert AbstractMesh((4, 2), ("x", "y")) is MESH.abstract_mesh
    sharding = NamedSharding(MESH, P("x"))
    assert NamedSharding(MESH, P(("x",)), memory_kind="device") is sharding
    assert NamedSharding(MESH, P("x"), memory_kind="pinned_host") is not sharding
    assert sharding.with_memory_kind("pinned_host").with_memory_kind("device") is sharding
    assert ManualAxisType(varying={"x"}) is ManualAxisType(varying=frozenset({"x"}))
    assert ManualAxisType() is NONE and not NONE
    for item in (sharding, MESH, MESH.abstract_mesh, NONE.update(varying={"x"})):
        assert pickle.loads(pickle.dumps(item)) is item
    for item in (P("x", None, unreduced={"y"}), P(P.UNCONSTRAINED), SingleDeviceSharding(DEVICES[1])):
        assert pickle.loads(pickle.dumps(item)) == item and hash(pickle.loads(pickle.dumps(item))) == hash(item)


def test_meshes_with_other_axes_differ() -> None:
    explicit = MESH.update(axis_types=(AxisType.Explicit, AxisType.Auto))
    assert explicit != MESH and explicit.explicit_axes == ("x",) and explicit.auto_axes == ("y",)
    assert MESH.abstract_mesh.update_axis_types({"x": AxisType.Explicit}) is explicit.abstract_mesh
    assert MESH.are_all_axes_auto and not explicit.are_all_axes_auto
    assert MESH.update(axis_names=("a", "b")).shape == {"a": 4, "b": 2}
    assert not MESH.devices.flags.writeable


def test_devices_of_other_processes() -> None:
    devices = [weft.Device(i, "cpu", process_index=i // 4) for i in range(8)]
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    sharding = NamedSharding(mesh, P("x"))
    assert mesh.is_multi_process and mesh.local_devices == devices[:4] and mesh.local_mesh.shape == {"x": 2, "y": 2}
    assert not sharding.is_fully_addressable and sharding.addressable_devices == set(devices[:4])
    assert list(sharding.addressable_devices_indices_map((8,))) == devices[:4]
    assert NamedSharding(mesh.local_mesh, P("x")).is_fully_addressable
    interleaved = Mesh([devices[i] for i in (0, 4, 1, 5)], "x")
    with pytest.raises(ArgumentError, match="must be a block of the mesh"):
        interleaved.local_mesh


def test_one_device() -> None:
    sharding = SingleDeviceSharding(DEVICES[1])
    assert sharding.devices_indices_map((3, 4)) == {DEVICES[1]: (slice(None), slice(None))}
    assert sharding.is_equivalent_to(NamedSharding(Mesh(DEVICES[1:2], "q"), P()), 2)
    assert not sharding.is_equivalent_to(SingleDeviceSharding(DEVICES[0]), 2)
    assert sharding == SingleDeviceSharding(DEVICES[1], memory_kind="device")


def test_layouts_and_shards_are_data() -> None:
    assert Layout([1, 0]) == Layout((1, 0)) and Layout((1, 0)).update(tiling=[(8,)]).tiling == ((8,),)
    with pytest.raises(ArgumentError, match="each of the 3 dimensions"):
        Layout((0, 1)).check_compatible_aval((2, 3, 4))
    assert Shard(DEVICES[0], (slice(0, 2),), 0, 1.0) == Shard(DEVICES[0], (slice(0, 2),), 0, 2.0)


EXPLICIT = MESH.update(axis_types=(AxisType.Explicit,) * 2)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: NamedSharding(MESH, P("z")), "axis: z of .* is not found in mesh, whose axes are 'x', 'y'"),
        (lambda: NamedSharding(MESH, P("x", "x")), "duplicate entries for `x`"),
        (lambda: NamedSharding(MESH, P(("x", "x"))), "duplicate entries for `x`"),
        (lambda: NamedSharding(EXPLICIT, P(unreduced={"z"})), "axis: z of"),
        (lambda: NamedSharding(MESH, P(unreduced={"x"})), "An unreduced or reduced axis must be Explicit"),
        (lambda: NamedSharding(MESH, P("x"), memory_kind="disk"), "must be a kind of memory"),
        (lambda: NamedSharding(MESH, P("x", "y")).shard_shape((8,)), "2 dimensions.* a value of rank 1"),
        (lambda: NamedSharding(MESH, P("x")).check_even((7,)), "7 elements, which do not split evenly into 4"),
        (lambda: NamedSharding(MESH.abstract_mesh, P("x")).device_set, "has no devices"),
        (lambda: MESH.abstract_mesh.devices, "has no devices"),
        (lambda: Mesh(MESH.devices, ("x",)), "a name for each dimension"),
        (lambda: Mesh(MESH.devices, ("x", "x")), "different names"),
        (lambda: Mesh([DEVICES[0], DEVICES[0]], "x"), "each device once"),
        (lambda: Mesh(MESH.devices, ("x", "y"), (AxisType.Auto,)), "an AxisType for each"),
        (lambda: AbstractMesh((4, 2), ("x",)), "a name for each"),
        (lambda: P("x", unreduced={"x"}), "split over and unreduced over"),
        (lambda: P(unreduced={"x"}, reduced={"x"}), "unreduced and reduced"),
        (lambda: list(P("x", unreduced={"y"})), "leaves out"),
        (lambda: ManualAxisType(varying={"x"}, reduced={"x"}), "both varying and reduced"),
    ],
)
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text) as caught:
        make()
    assert "test_sharding.py" in str(caught.value.at)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: NamedSharding(MESH, "x"), r"P\('x'\)"),
        (lambda: NamedSharding(DEVICES, P("x")), "needs a mesh"),
        (lambda: Mesh([0, 1], "x"), "made of devices"),
        (lambda: SingleDeviceSharding("cpu"), "needs a device"),
        (lambda: P(unreduced="x"), "a set of axes"),
        (lambda: ManualAxisType(varying="x"), "a set of axes"),
    ],
)
def test_mistakes_of_type(make: Any, text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=text):
        make()


# -- types ----------------------------------------------------------------------------------------------------------

F32 = np.dtype(np.float32)
WHOLE = P()
AXES = AbstractMesh((2, 2, 2, 2), ("x", "y", "z", "w"), (AxisType.Explicit,) * 3 + (AxisType.Manual,))


def typed(shape: tuple[int, ...], spec: PartitionSpec = WHOLE, weak: bool = False, **states: Any) -> ArrayType:
    return array_type(shape, F32, weak, NamedSharding(AXES, spec), ManualAxisType(**states))


TYPES = {
    "f32[8@x,4]": typed((8, 4), P("x")),
    "f32[8@(x,y),4@z]": typed((8, 4), P(("x", "y"), "z")),
    "f32[8,4@x]{U:y, R:z}": typed((8, 4), P(None, "x", unreduced={"y"}, reduced={"z"}), weak=True),
    "f32[8@x]{V:w}": typed((8,), P("x"), varying={"w"}),
    "f32[2]{V:(a,w)}": typed((2,), varying={"w", "a"}),
    "f32<host>[2]": array_type((2,), F32, memory_space=MemorySpace.Host),
    "f32<any>[]{V:w}": array_type((), F32, False, None, ManualAxisType(varying={"w"}), MemorySpace.Any),
}


@pytest.mark.parametrize("text", TYPES)
def test_a_type_says_where_its_array_is(text: str) -> None:
    aval = TYPES[text]
    assert aval.short() == text and not aval.is_plain
    assert aval.plain is array_type(aval.shape, F32, aval.weak_type) and aval.plain.is_plain
    assert aval.with_placement() is aval and pickle.loads(pickle.dumps(aval)) is aval
    assert aval != aval.plain and not aval.matches(aval.plain)


@pytest.mark.parametrize("aval", [*TYPES.values(), array_type((3,), F32, True)], ids=lambda t: t.short())
def test_related_types_keep_where_the_array_is(aval: ArrayType) -> None:
    placement = (aval.explicit_sharding, aval.manual, aval.memory_space)
    integers = aval.with_dtype(np.dtype(np.int32))
    for result in (aval.strong(), integers, integers.tangent(), aval.tangent()):
        assert (result.explicit_sharding, result.manual, result.memory_space) == placement
    assert aval.with_dimension(0, 5).without((0,)) is aval is aval.with_dimension(0, 5).without_dimension(0)
    assert aval.with_dimension(len(aval.shape), 5).spec.partitions == (*aval.spec.partitions, None)
    assert aval.cotangent().cotangent() is aval
    assert aval.cotangent().spec == aval.spec.to_ct_spec() and aval.cotangent().manual is aval.manual.to_ct_mat()
    assert aval.plain_of_shape((7,)).is_plain


@pytest.mark.parametrize("aval", TYPES.values(), ids=lambda t: t.short())
def test_replicated_values_may_be_passed_for_sharded_ones(aval: ArrayType) -> None:
    summed = aval.spec.unreduced | aval.spec.reduced | aval.manual.unreduced | aval.manual.reduced
    assert aval.accepts(aval) and aval.accepts(aval.strong())
    assert aval.accepts(aval.plain) == (not summed and aval.memory_space is None)
    assert not aval.plain.accepts(aval) and not aval.accepts(aval.plain.with_dtype(np.dtype(np.int32)))
    assert TapeType(aval).accepts(TapeType(aval.plain)) == aval.accepts(aval.plain)


def test_replicated_types_are_plain() -> None:
    plain = array_type((8, 4), F32)
    for spec in (P(), P(None, None), P(P.UNCONSTRAINED)):
        assert typed((8, 4), spec) is plain
    assert array_type((8, 4), F32, False, NamedSharding(MESH, P("x", "y"))) is plain  # Auto: the compiler's to say
    assert array_type((8, 4), F32, False, SingleDeviceSharding(DEVICES[0])) is plain
    assert array_type((8, 4), F32, memory_space=MemorySpace.Device) is plain
    assert array_type((8, 4), F32, False, NamedSharding(EXPLICIT, P("x"))).sharding == NamedSharding(
        EXPLICIT.abstract_mesh, P("x", None)
    )


def test_a_struct_has_the_type_of_its_sharding() -> None:
    struct = weft.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(EXPLICIT, P("x")))
    assert struct.aval.short() == "f32[8@x,4]"
    assert weft.ShapeDtypeStruct.like(struct.aval).aval is struct.aval
    assert struct.update(dtype=np.int32).aval.short() == "i32[8@x,4]"
    inside = ManualAxisType(varying={"x"})
    assert weft.ShapeDtypeStruct((8,), np.float32, manual_axis_type=inside).aval.vma == {"x"}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: typed((8,), P("x", "y")), "2 dimensions.* a value of rank 1"),
        (lambda: typed((7,), P("x")), "7 elements, which do not split evenly into 2"),
        (
            lambda: weft.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(MESH, P("x", "y"))),
            "a value of rank 1",
        ),
    ],
)
def test_a_sharding_fits_its_type(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


def test_jaxprs_with_shardings_are_parsed_back() -> None:
    other = AbstractMesh((2,), ("x",), (AxisType.Explicit,))
    types = [
        typed((4,), unreduced={"w"}),  # before a mesh is declared
        *TYPES.values(),
        typed((4,), P("x"), unreduced={"w"}),
        TapeType(typed((4,), P("x"))),
        array_type((4,), F32, False, NamedSharding(other, P("x"))),
    ]
    variables = [Var(t) for t in types]
    program = Jaxpr((), variables, variables, [], [])
    table: list[Any] = []
    text = to_text(program, full=True, table=table)
    assert "lambda[mesh:@" in text and "f32[8@(x,y),4@z]" in text and "tape<f32[4@x]>" in text
    again = parse(text, table)
    assert equal(program, again) and [v.aval for v in again.invars] == types


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{ lambda ; a:f32[8@x]. let  in (a,) }", "a mesh `lambda"),
        ("{ lambda[mesh:@0] ; a:f32[8@q]. let  in (a,) }", "axis: q of"),
        ("{ lambda[mesh:@0] ; a:f32[7@x]. let  in (a,) }", "split evenly"),
        ("{ lambda[mesh:@0] ; a:f32[8@x,8@x]. let  in (a,) }", "duplicate entries for `x`"),
    ],
)
def test_mistakes_in_texts_of_types(text: str, complaint: str) -> None:
    with pytest.raises(JaxprSyntaxError, match=complaint):
        parse(text, [AXES])


# -- programs ----------------------------------------------------------------------------------------------------------

TWO = AbstractMesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2)


def struct(shape: tuple[int, ...], *spec: Any) -> weft.ShapeDtypeStruct:
    return weft.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(TWO, P(*spec)))


BATCH, WEIGHTS = struct((8, 4), "x"), struct((4, 6), None, "y")
ROW, ROWS = struct((8,), "x"), struct((4, 8), None, "x")


def scanned(c: Any, x: Any) -> Any:
    return weft.lax.scan(lambda c, row: (weft.numpy.sin(c * row), c), c, x)


def doubled(c: Any) -> Any:
    """Doubled until the sum is large: a loop of unknown length."""
    return weft.lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 2, c)


@pytest.mark.parametrize(
    ("function", "operands", "results"),
    [
        (lambda x: (x * 2).sum(0), [BATCH], ["f32[4]"]),
        (lambda x, w: weft.numpy.tanh(x @ w), [BATCH, WEIGHTS], ["f32[8@x,6@y]"]),
        (weft.jit(lambda x: weft.nn.softmax(x)), [BATCH], ["f32[8@x,4]"]),
        (weft.vmap(weft.numpy.sin, in_axes=1), [BATCH], ["f32[4,8@x]"]),
        (weft.grad(lambda x: (weft.nn.softmax(x) ** 2).sum()), [BATCH], ["f32[8@x,4]"]),
        (lambda x: weft.jvp(weft.numpy.sin, (x,), (x,)), [BATCH], ["f32[8@x,4]"] * 2),
        (lambda x: weft.lax.scan(lambda c, a: (c + a, c * a), x[:, 0], x.T), [BATCH], ["f32[8@x]", "f32[4,8@x]"]),
        (lambda x: weft.lax.cond(x.sum() > 0, weft.numpy.sin, weft.numpy.cos, x), [BATCH], ["f32[8@x,4]"]),
        (lambda x: weft.lax.fori_loop(0, 3, lambda i, y: y + x, x), [BATCH], ["f32[8@x,4]"]),
        (weft.checkpoint(lambda x: weft.numpy.sin(x)), [BATCH], ["f32[8@x,4]"]),
        # What is made whole in reverse mode, zeros and ones, may be passed for what is split.
        (weft.grad(lambda c, x: scanned(c, x)[0].sum(), (0, 1)), [ROW, ROWS], ["f32[8@x]", "f32[4,8@x]"]),
        (weft.grad(lambda c, x: (scanned(c, x)[1] ** 2).sum(), (0, 1)), [ROW, ROWS], ["f32[8@x]", "f32[4,8@x]"]),
        (lambda c, x: weft.jvp(scanned, (c, x), (c, x))[1], [ROW, ROWS], ["f32[8@x]", "f32[4,8@x]"]),
        (weft.grad(lambda c: weft.checkpoint(weft.numpy.sin)(c).sum()), [ROW], ["f32[8@x]"]),
        (weft.grad(lambda c: doubled(c).sum()), [ROW], ["f32[8@x]"]),
        (weft.hessian(lambda c: (c**3).sum()), [ROW], ["f32[8@x,8]"]),
        (weft.grad(lambda c: weft.nn.relu(c).sum()), [ROW], ["f32[8@x]"]),
    ],
)
def test_types_of_traced_jaxprs_are_sharded(function: Any, operands: Any, results: list[str]) -> None:
    jaxpr = verify(weft.make_jaxpr(function)(*operands))
    assert [v.aval.short() for v in jaxpr.outvars] == results
    table: list[Any] = []
    assert equal(jaxpr, parse(to_text(jaxpr, full=True, table=table), table))


@pytest.mark.parametrize(
    ("function", "operands", "text", "fix"),
    [
        (lambda a, b: a + b, [BATCH, struct((8, 4), "y")], "split over 'x' and 'y'", "reshard(b, P('x', None))"),
        (
            lambda a, b: a + b,
            [BATCH, struct((8, 4), None, "x")],
            "split twice over 'x'",
            "reshard(b, P('x', None))   sends",
        ),
        (
            lambda a, b: a.T @ b,
            [BATCH, BATCH],
            "sums over dimension 1 of .* of `b`",
            "reshard(b, P(None, None))   sends",
        ),
        (lambda a: weft.numpy.sort(a, 0), [BATCH], "needs dimension 0 of `a` whole", "P(None, None)"),
        (weft.numpy.linalg.det, [struct((2, 4, 4), None, "x")], "whole", "P(None, None, None)"),
        (
            weft.vmap(lambda a, b: a + b),
            [BATCH, struct((8, 4), "y")],
            "mapped dimensions .* split alike",
            "reshard",
        ),
    ],
)
def test_operations_that_would_communicate_are_errors(function: Any, operands: Any, text: str, fix: str) -> None:
    with pytest.raises(ShardingTypeError) as caught:
        weft.make_jaxpr(function)(*operands)
    assert re.search(text, without_source(caught.value))
    fixes = caught.value.fix
    assert any(fix in line for line in ([fixes] if isinstance(fixes, str) else fixes)) and caught.value.received
    assert "test_sharding.py" in caught.value.at


def test_types_under_the_names_of_jax() -> None:
    aval = array_type((2, 3), F32)
    assert aval.sharding.mesh.empty and aval.sharding.is_fully_replicated and aval.explicit_sharding is None
    assert aval.update(shape=(2,)) is array_type((2,), F32) and aval.update(dtype=np.dtype(np.int32)).dtype == np.int32
    assert aval.to_tangent_aval() is aval and aval.to_cotangent_aval() is aval
    for placed in TYPES.values():
        assert placed.update() is placed
    # A value that is split nowhere may be asked for where another one is.
    drawn = weft.random.normal(weft.random.key(0), (2,), out_sharding=weft.typeof(weft.numpy.ones(2)).sharding)
    assert drawn.shape == (2,)


def test_devices_have_clients_and_memories() -> None:
    device = weft.devices()[0]
    assert device.client == weft.devices()[-1].client and device.client.platform == "cpu"
    kinds = [memory.kind for memory in device.addressable_memories()]
    assert device.default_memory().kind in kinds and device.memory("pinned_host").device is device
    with pytest.raises(ValueError, match="no memory of kind"):
        device.memory("disk")
