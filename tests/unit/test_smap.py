"""`smap`: shard_map over one axis, with dimensions named as for vmap."""

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.sharding import AxisType


@pytest.fixture
def mesh():
    if len(weft.devices()) < 4:
        pytest.skip("needs four devices")
    with weft.set_mesh(weft.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)):
        yield


x = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_one_axis(mesh):
    total = weft.smap(lambda v: lax.psum(v.sum(0), "x"), in_axes=0, out_axes=None, axis_name="x")
    np.testing.assert_allclose(weft.jit(total)(x), x.sum(0))
    columns = weft.smap(lambda v, s: v * s, in_axes=(-1, None), out_axes=1, axis_name="y")
    np.testing.assert_allclose(weft.jit(columns)(x, jnp.float32(2)), x * 2)
    nested = weft.smap(
        weft.smap(lambda v: lax.psum(v, ("x", "y")), in_axes=1, out_axes=1, axis_name="y"),
        in_axes=0,
        out_axes=0,
        axis_name="x",
    )
    parts = x.reshape(2, 2, 2, 3).sum((0, 2))
    np.testing.assert_allclose(weft.jit(nested)(x), np.tile(parts, (2, 2)))


def test_trees_and_mistakes(mesh):
    f = weft.smap(lambda d: {"y": d["a"] + d["b"]}, in_axes=({"a": 0, "b": 1},), out_axes={"y": 0}, axis_name="x")
    with pytest.raises(ValueError):
        f({"a": x[:2], "b": x[:, :4]})
    square = x[:, :4]
    g = weft.smap(lambda d: {"y": d["a"].sum() + d["b"]}, in_axes=({"a": 0, "b": 1},), out_axes={"y": 1}, axis_name="x")
    assert g({"a": square, "b": square})["y"].shape == (4, 4)
    with pytest.raises(ValueError, match="must not be negative"):
        weft.smap(lambda v: v, in_axes=0, out_axes=-1, axis_name="x")
