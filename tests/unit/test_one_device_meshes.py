"""Programs on meshes of one device, and programs over Explicit axes whose arguments are on no mesh: results are where
shardings say. Arrays that were deleted, or made from data of another dtype, say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

DEVICES = weft.devices()
ALONE = Mesh(onp.array(DEVICES[5:6]).reshape(1, 1), ("x", "y"))
X = onp.arange(64, dtype=onp.float32).reshape(8, 8)
split = NamedSharding(ALONE, P("x"))


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a + 1,
        lambda a: a.sum(),
        lambda a: np.sort(a, 0),
        lambda a: weft.jit(lambda x: x)(a),
        lambda a: weft.grad(lambda x: np.sin(x).sum())(a),
        lambda a: lax.scan(lambda c, x: (c + x, x), a[0], a)[0],
        lambda a: lax.cond(True, np.sin, np.cos, a),
        lambda a: a + X,
        lambda a: a + weft.device_put(X, DEVICES[5]),
        lambda a: weft.vmap(lambda r: r @ r)(a),
    ],
)
def test_results_stay_on_a_mesh_of_one_device(function: Callable[..., Any]) -> None:
    result = function(weft.device_put(X, split))
    assert isinstance(result.sharding, NamedSharding) and result.sharding.mesh == ALONE and result.committed
    onp.testing.assert_allclose(result, function(X), rtol=1e-6)


def test_shardings_on_a_mesh_of_one_device_are_obeyed() -> None:
    double = lambda x: x * 2
    for result in (
        weft.jit(double, out_shardings=split)(X),
        weft.jit(double, in_shardings=split)(X),
        weft.jit(lambda x: lax.with_sharding_constraint(x * 2, split))(X),
        weft.shard_map(double, mesh=ALONE, in_specs=P("x"), out_specs=P("x"))(X),
    ):
        assert result.devices() == {DEVICES[5]} and result.sharding.mesh == ALONE
        onp.testing.assert_array_equal(result, X * 2)
    assert weft.jit(double).lower(weft.device_put(X, split)).compile().input_shardings[0][0] == split


def test_arrays_on_a_mesh_of_one_device_and_on_another_device() -> None:
    a, b = weft.device_put(X, split), weft.device_put(X, DEVICES[3])
    for function in (
        lambda: a + b,
        lambda: b + a,
        lambda: weft.jit(lambda x, y: x + y)(b, a),
        lambda: np.where(a > 0, a, b),
    ):
        with pytest.raises(ArgumentError, match="committed to a single device"):
            function()


EXPLICIT = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
MIXED = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))


@pytest.mark.parametrize("mesh", [EXPLICIT, MIXED], ids=["explicit", "mixed"])
@pytest.mark.parametrize("spec", [P("x"), P(), P("x", "y")], ids=str)
def test_arguments_that_are_on_no_mesh(mesh: Mesh, spec: P) -> None:
    """The shardings of results name the devices, whether the mesh is set or not."""
    sharding = NamedSharding(mesh, spec)
    double = weft.jit(lambda x: x * 2, out_shardings=sharding)
    draw = weft.jit(lambda key: weft.random.normal(key, (8, 8)), out_shardings=sharding)
    for result in (double(X), double.lower(X).compile()(X), draw(weft.random.key(0))):
        assert result.committed and result.sharding.is_equivalent_to(sharding, 2)
    onp.testing.assert_array_equal(double(X), X * 2)
    with weft.set_mesh(mesh):
        assert weft.jit(lambda x: x * 2, out_shardings=spec)(X).sharding.is_equivalent_to(sharding, 2)
        if mesh is EXPLICIT:
            assert weft.jit(lambda x: weft.reshard(x * 2, spec))(X).sharding.is_equivalent_to(sharding, 2)


def test_constraints_leave_explicit_axes_as_they_are() -> None:
    """Over a mesh of axes of both kinds a constraint is about the Auto ones; what it says of others is checked."""
    x = weft.device_put(X, NamedSharding(MIXED, P("x")))
    free = P.UNCONSTRAINED
    for wanted, found in (
        (P(None, "y"), P("x", "y")),
        (P("y"), P(("x", "y"))),
        (P(), P("x")),
        (P("x", "y"), P("x", "y")),
        (P(free, "y"), P("x", "y")),
    ):
        constrain = lambda x, wanted=wanted: lax.with_sharding_constraint(x, NamedSharding(MIXED, wanted))
        for result in (weft.jit(constrain)(x), constrain(x)):
            assert result.sharding.is_equivalent_to(NamedSharding(MIXED, found), 2)
            assert weft.typeof(result) == weft.typeof(x)
    with pytest.raises(ValueError, match="must name the sharding"):
        weft.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(MIXED, P(None, "x"))))(x)


def test_parts_of_a_deleted_array() -> None:
    for where in (DEVICES[3], split, NamedSharding(EXPLICIT, P("x"))):
        array = weft.device_put(X, where)
        array.delete()
        for read in (lambda a: a.addressable_shards, lambda a: a.global_shards, lambda a: a.addressable_data(0)):
            with pytest.raises(RuntimeError, match="deleted"):
                read(array)


def test_data_of_another_dtype_than_was_asked_for() -> None:
    sharding = NamedSharding(EXPLICIT, P("x"))
    with pytest.raises(ValueError, match=r"(?s)does not have the requested dtype.*int32 for dtype=float32"):
        weft.make_array_from_callback((8, 8), sharding, lambda index: X[index].astype(int), dtype=onp.float32)
    same = weft.make_array_from_callback((8, 8), sharding, lambda index: X[index].astype(float), dtype="float32")
    onp.testing.assert_array_equal(same, X)
    listed = weft.make_array_from_callback((8, 8), sharding, lambda index: X[index].tolist(), dtype=onp.float16)
    assert listed.dtype == onp.float16
