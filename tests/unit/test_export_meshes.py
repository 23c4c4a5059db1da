"""Exports of programs over meshes: read back, called on other devices and meshes, differentiated, and malformed."""

import random

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.unit.test_export import mutated
from weft import lax
from weft.errors import FileFormatError
from weft.export import deserialize, export, symbolic_shape
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

struct = weft.ShapeDtypeStruct
EIGHT = struct((8,), np.float32)


def mesh_over(first=0, shape=(4,), names=("x",), kind=AxisType.Auto):
    count = int(np.prod(shape))
    return Mesh(np.array(weft.devices()[first : first + count]).reshape(shape), names, (kind,) * len(names))


def put(value, mesh, *spec):
    return weft.device_put(np.asarray(value, np.float32), NamedSharding(mesh, P(*spec)))


def loss(x, w):
    return lax.psum(jnp.sin(x * w).sum(), "x")


def exported_loss():
    mapped = weft.shard_map(loss, mesh=mesh_over(), in_specs=(P("x"), P()), out_specs=P())
    return export(weft.jit(mapped))(EIGHT, struct((), np.float32)), mapped


def test_shard_map_is_read_back_and_differentiated():
    exported, mapped = exported_loss()
    again = deserialize(exported.serialize(vjp_order=1))
    assert again.nr_devices == exported.nr_devices == again.vjp().nr_devices == 4
    x, w = put(np.arange(8), mesh_over(), "x"), np.float32(2)
    np.testing.assert_allclose(again.call(x, w), np.sin(np.arange(8) * 2).sum(), rtol=1e-5)
    for found, expected in zip(weft.grad(again.call, (0, 1))(x, w), weft.grad(mapped, (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(weft.jit(weft.vmap(again.call, (None, 0)))(x, np.arange(3, dtype="f4"))[0], 0.0)
    assert bytes(again.serialize()) == bytes(exported.serialize())


def test_shardings_are_read_back():
    split = NamedSharding(mesh_over(shape=(2, 2), names=("x", "y")), P(None, ("y", "x")))
    whole = NamedSharding(split.mesh, P())
    f = weft.jit(lambda x: lax.with_sharding_constraint(x * 2, split), in_shardings=split, out_shardings=whole)
    again = deserialize(export(f)(struct((3, 8), np.float32)).serialize(vjp_order=1))
    other = mesh_over(4, (2, 2), ("x", "y"))
    assert again.in_shardings_jax(other) == [NamedSharding(other, P(None, ("y", "x")))]
    assert again.out_shardings_jax(other) == [NamedSharding(other, P())]
    flat = mesh_over(4)
    with pytest.raises(ValueError, match="No spec over the axes"):  # another order of devices
        again.in_shardings_jax(flat)
    x = np.arange(24, dtype="f4").reshape(3, 8)
    for mesh, spec in ((other, (None, "x")), (flat, (None, "x")), (flat, ())):
        out = again.call(put(x, mesh, *spec))
        assert sorted(d.id for d in out.devices()) == [4, 5, 6, 7]
        np.testing.assert_array_equal(out, 2 * x)
    np.testing.assert_array_equal(weft.grad(lambda v: again.call(v).sum())(put(x, other)), np.full((3, 8), 2.0))


def test_the_number_of_devices_is_checked():
    exported, _ = exported_loss()
    for x in (np.arange(8, dtype="f4"), put(np.arange(8), mesh_over(0, (2,)), "x")):
        with pytest.raises(ValueError, match=r"exported for 4 devices .* context with [12] devices"):
            exported.call(x, np.float32(1))
    with weft.set_mesh(mesh_over()):
        np.testing.assert_allclose(exported.call(np.zeros(8, "f4"), np.float32(1)), 0.0)


def test_explicit_axes_are_types_of_the_file():
    mesh = mesh_over(shape=(2, 2), names=("x", "y"), kind=AxisType.Explicit)
    with weft.set_mesh(mesh):
        x, w = put(np.arange(8).reshape(4, 2), mesh, "x", "y"), put(np.arange(4).reshape(2, 2), mesh, "y", None)
        f = weft.jit(lambda x, w: jnp.sin(jnp.dot(x, w, out_sharding=P("x", None))))
        again = deserialize(export(f)(x, w).serialize(vjp_order=1))
        assert again.in_avals == (weft.typeof(x), weft.typeof(w))
        assert weft.typeof(again.call(x, w)) == weft.typeof(f(x, w))
        for found, expected in zip(
            weft.grad(lambda *a: again.call(*a).sum(), (0, 1))(x, w),
            weft.grad(lambda *a: f(*a).sum(), (0, 1))(x, w),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sizes_may_be_symbolic_over_a_mesh():
    mesh = mesh_over()
    body = lambda x: lax.psum(x, "x") + lax.ppermute(x, "x", [(0, 1), (1, 2)])
    f = weft.jit(weft.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    again = deserialize(export(f)(struct(symbolic_shape("4*a, b - 1"), np.float32)).serialize())
    for rows, columns in ((4, 2), (8, 1), (12, 0)):
        x = put(np.arange(rows * columns).reshape(rows, columns), mesh, "x")
        np.testing.assert_array_equal(again.call(x), f(x))
    e = export(weft.jit(lambda x: jnp.cumsum(x), in_shardings=NamedSharding(mesh, P("x"))))
    again = deserialize(e(struct(symbolic_shape("n - 1"), np.float32)).serialize())
    for n in (0, 1, 2, 7):  # unevenly
        np.testing.assert_array_equal(again.call(put(np.arange(n), mesh)), np.cumsum(np.arange(n)))


def test_an_export_inside_of_another():
    exported, _ = exported_loss()
    outer = export(weft.jit(lambda x: exported.call(x, 1.0) * 2))(EIGHT)
    assert outer.nr_devices == 4
    out = deserialize(outer.serialize()).call(put(np.ones(8), mesh_over(), "x"))
    np.testing.assert_allclose(out, 16 * np.sin(1.0), rtol=1e-5)


def test_malformed_files_raise_one_class_of_errors():
    rng = random.Random(5)
    mesh = mesh_over(kind=AxisType.Explicit)
    with weft.set_mesh(mesh):
        typed = export(weft.jit(lambda x: weft.reshard(jnp.sin(x), P())))(put(np.ones(8), mesh, "x"))
    files = [bytes(e.serialize()) for e in (exported_loss()[0], typed)]
    refused = 0
    for _ in range(300):
        try:
            deserialize(mutated(rng.choice(files), rng))
        except FileFormatError:
            refused += 1
    assert refused > 200
