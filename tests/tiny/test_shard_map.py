"""`shard_map` on a mesh of virtual devices: values, derivatives, vmap, and the errors."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError, ShardingTypeError
from weft.sharding import AxisType, Mesh
from weft.sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)


A = onp.arange(24, dtype=onp.float32).reshape(8, 3) / 7
W = onp.linspace(-1, 1, 9, dtype=onp.float32).reshape(3, 3)


def mean_of_sines(a: Any, w: Any) -> Any:
    return lax.pmean(np.sin(a @ w).mean(), "x")


@pytest.mark.parametrize("check_vma", [True, False])
def test_derivatives_are_those_of_the_whole(mesh: Mesh, check_vma: bool) -> None:
    f = weft.shard_map(mean_of_sines, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), check_vma=check_vma)
    whole = lambda a, w: np.sin(a @ w).mean()
    onp.testing.assert_allclose(f(A, W), whole(A, W), rtol=1e-5)
    for argnum in (0, 1):
        onp.testing.assert_allclose(weft.grad(f, argnum)(A, W), weft.grad(whole, argnum)(A, W), atol=1e-6)
    hessian = weft.hessian(f, 1)(A, W)
    onp.testing.assert_allclose(hessian, weft.hessian(whole, 1)(A, W), atol=1e-5)
    tangents = (A * 2, W + 1)
    onp.testing.assert_allclose(weft.jvp(f, (A, W), tangents)[1], weft.jvp(whole, (A, W), tangents)[1], rtol=1e-4)


def test_vmap_and_jit(mesh: Mesh) -> None:
    f = weft.shard_map(mean_of_sines, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    both = np.stack([A, A + 1])
    expected = [f(A, W), f(A + 1, W)]
    for mapped in (weft.vmap(f, in_axes=(0, None)), weft.jit(weft.vmap(f, in_axes=(0, None)))):
        onp.testing.assert_allclose(mapped(both, W), expected, rtol=1e-5)


@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y")), P(("y", "x")), P("y", "x")], ids=str)
def test_parts_over_two_axes_and_axis_index(mesh: Mesh, spec: P) -> None:
    x = onp.arange(64, dtype=onp.float32).reshape(8, 8)
    f = lambda x: x * 10 + (2 * lax.axis_index("x") + lax.axis_index("y"))
    result = weft.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)(x)
    expected = onp.empty_like(x)
    sharding = weft.NamedSharding(mesh, spec)
    for device, index in sharding.devices_indices_map(x.shape).items():
        (i,), (j,) = onp.nonzero(mesh.devices == device)
        expected[index] = x[index] * 10 + 2 * i + j
    onp.testing.assert_array_equal(result, expected)


def test_a_result_that_varies_names_the_line(mesh: Mesh) -> None:
    with pytest.raises(ShardingTypeError, match=r"(?s)result 0 .* varies along it.*psum"):
        weft.shard_map(lambda x: x.sum(), mesh=mesh, in_specs=P("x"), out_specs=P())(A)
    with pytest.raises(ShardingTypeError, match=r"axis_index"):
        weft.shard_map(lambda: lax.axis_index("y"), mesh=mesh, in_specs=(), out_specs=P())()


def test_errors(mesh: Mesh) -> None:
    with pytest.raises(ShardingTypeError, match="not a multiple of 4"):
        weft.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(np.ones(6))
    with pytest.raises(ArgumentError, match="not an axis of the mesh"):
        weft.shard_map(lambda x: x, mesh=mesh, in_specs=P("z"), out_specs=P("x"))(np.ones(8))
    with pytest.raises(ArgumentError, match="needs a mesh"):
        weft.shard_map(lambda x: x, in_specs=P("x"), out_specs=P("x"))(np.ones(8))
    with weft.set_mesh(mesh):
        assert weft.shard_map(lambda x: x + 1, in_specs=P("x"), out_specs=P("x"))(np.ones(8)).shape == (8,)
