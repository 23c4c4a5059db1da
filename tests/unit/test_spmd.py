"""Programs on many devices: what they compute, where results are, what happens when devices do not agree."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.base.settings import overrides
from weft.errors import JaxRuntimeError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

RANDOM = onp.random.RandomState(1)
A, W = RANDOM.randn(8, 16).astype(onp.float32), RANDOM.randn(16, 32).astype(onp.float32)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)


def put(x: Any, mesh: Mesh, *spec: Any) -> Any:
    return weft.device_put(x, NamedSharding(mesh, P(*spec)))


def test_computation_follows_data(mesh: Mesh) -> None:
    f = weft.jit(lambda a, w: np.tanh(a @ w))
    result = f(put(A, mesh, "x"), put(W, mesh, None, "y"))
    assert result.sharding == NamedSharding(mesh, P("x", "y"))
    onp.testing.assert_allclose(result, onp.tanh(A @ W), rtol=1e-5, atol=1e-6)
    assert [s.data.shape for s in result.addressable_shards] == [(2, 16)] * 8
    whole = f(A, W)
    assert not isinstance(whole.sharding, NamedSharding)
    onp.testing.assert_allclose(result, whole, rtol=1e-5, atol=1e-6)


def test_operations_outside_of_programs_are_in_parts_too(mesh: Mesh) -> None:
    a = put(A, mesh, "x", "y")
    assert (a + 1).sharding == a.sharding
    onp.testing.assert_array_equal(a + 1, A + 1)
    onp.testing.assert_allclose(a.sum(0), A.sum(0), rtol=1e-5)
    assert a.T.sharding == NamedSharding(mesh, P("y", "x"))
    onp.testing.assert_array_equal(a[2:5, ::3], A[2:5, ::3])


def test_gradients_and_loops(mesh: Mesh) -> None:
    def loss(w: Any, a: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return np.tanh(carry @ w @ w.T / 16), None

        return (lax.scan(body, a, None, length=3)[0] ** 2).mean()

    expected = weft.jit(weft.value_and_grad(loss))(W, A)
    for spec in ((), (None, "y"), ("x",)):
        value, gradient = weft.jit(weft.value_and_grad(loss))(put(W, mesh, *spec), put(A, mesh, "x"))
        onp.testing.assert_allclose(value, expected[0], rtol=1e-5)
        onp.testing.assert_allclose(gradient, expected[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "collective",
    [
        lambda x: lax.psum(x, "x"),
        lambda x: lax.psum(x, ("x", "y")),
        lambda x: lax.pmax(x, "y") + lax.pmin(x, "x"),
        lambda x: lax.all_gather(x, "x", axis=1, tiled=True)[:, :8],
        lambda x: lax.psum_scatter(np.concatenate([x] * 4), "x", tiled=True),
        lambda x: lax.all_to_all(np.stack([x, x * 2]), "y", 0, 1).sum(1),
        lambda x: lax.ppermute(x, "x", [(0, 1), (1, 2), (3, 0)]),
        lambda x: x * (lax.axis_index("x") + 10 * lax.axis_index("y")),
    ],
    ids=["psum", "psum of two", "pmax pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute", "axis_index"],
)
def test_collectives_between_devices_are_those_of_vmap(mesh: Mesh, collective: Any) -> None:
    """Without devices, on a mesh that is abstract, a body runs under `vmap`: the order of sums may differ."""
    x = RANDOM.randn(8, 16).astype(onp.float32)
    f = weft.shard_map(collective, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    abstract = mesh.abstract_mesh
    g = weft.shard_map(collective, mesh=abstract, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    onp.testing.assert_allclose(weft.jit(f)(x), weft.jit(g)(x), rtol=1e-6, atol=1e-6)


def test_collectives_in_loops_and_branches(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        def body(carry: Any) -> Any:
            i, y = carry
            y = lax.cond(
                i % 2 == 0, lambda y: lax.psum(y, "x") / 4, lambda y: lax.ppermute(y, "y", [(0, 1), (1, 0)]), y
            )
            return i + 1, y

        return lax.while_loop(lambda c: c[0] < 5, body, (0, x))[1]

    specs: dict[str, Any] = {"in_specs": P("x", "y"), "out_specs": P("x", "y"), "check_vma": False}
    on_devices = weft.jit(weft.shard_map(f, mesh=mesh, **specs))(A)
    by_meaning = weft.jit(weft.shard_map(f, mesh=mesh.abstract_mesh, **specs))(A)
    onp.testing.assert_allclose(on_devices, by_meaning, rtol=1e-6)


def test_devices_along_an_axis_may_take_other_ways(mesh: Mesh) -> None:
    """Along `x` they loop different numbers of times; they communicate along `y` only."""

    def f(x: Any) -> Any:
        count = lax.axis_index("x") + 1
        return lax.fori_loop(0, count, lambda i, y: lax.psum(y, "y") / 2 + 1, x)

    specs: dict[str, Any] = {"in_specs": P("x", "y"), "out_specs": P("x", "y"), "check_vma": False}
    result = weft.jit(weft.shard_map(f, mesh=mesh, **specs))(A)
    expected = A.copy().reshape(4, 2, 2, 8)
    for i in range(4):
        for _ in range(i + 1):
            expected[i] = (expected[i].sum(1, keepdims=True) / 2 + 1).repeat(2, 1)
    onp.testing.assert_allclose(result, expected.reshape(8, 16), rtol=1e-5)


def test_devices_that_wait_for_each_other_are_an_error(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        return lax.cond(lax.axis_index("x") < 2, lambda y: lax.psum(y, "x"), lambda y: y * 2, x)

    specs: dict[str, Any] = {"in_specs": P("x", "y"), "out_specs": P("x", "y"), "check_vma": False}
    with pytest.raises(JaxRuntimeError, match=r"(?s)devices \[0, 1, 2, 3\] at psum.*devices \[4, 5, 6, 7\] ended"):
        weft.jit(weft.shard_map(f, mesh=mesh, **specs))(A)


def test_donated_arguments_give_their_memory(mesh: Mesh) -> None:
    x = put(onp.ones((512, 512), onp.float32), mesh, "x", "y")
    before = {s.data.unsafe_buffer_pointer() for s in x.addressable_shards}
    y = weft.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert {s.data.unsafe_buffer_pointer() for s in y.addressable_shards} == before
    assert (onp.asarray(y) == 2).all()


def test_state_is_returned_as_it_came(mesh: Mesh) -> None:
    """Parameters that are split for memory stay so; the batch says how a step is computed."""

    def step(params: Any, batch: Any) -> Any:
        loss = lambda params: np.mean(np.tanh(np.tanh(batch @ params[0]) @ params[1]) ** 2)
        value, gradients = weft.value_and_grad(loss)(params)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], value

    weights = [RANDOM.randn(16, 16).astype(onp.float32) for _ in range(2)]
    params = [put(w, mesh, ("x", "y")) for w in weights]
    compiled, expected = weft.jit(step), weights
    for _ in range(3):
        params, value = compiled(params, put(A, mesh, ("x", "y")))
        expected, whole = weft.jit(step)(expected, A)
        assert all(p.sharding == NamedSharding(mesh, P(("x", "y"))) for p in params)
        onp.testing.assert_allclose(value, whole, rtol=1e-5)
    for p, e in zip(params, expected, strict=True):
        onp.testing.assert_allclose(p, e, rtol=1e-4, atol=1e-6)


def test_bits_do_not_depend_on_threads(mesh: Mesh) -> None:
    x = put(RANDOM.randn(64, 64).astype(onp.float32), mesh, "x", "y")
    f = lambda x: (np.sin(x) @ np.cos(x)).sum(0)
    results = []
    for threads in (1, 2):
        with overrides(num_threads=threads):
            results += [onp.asarray(weft.jit(lambda x: f(x))(x)) for _ in range(3)]
    assert all((r == results[0]).all() for r in results)


def test_python_is_called_once(mesh: Mesh) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        weft.debug.callback(lambda v: seen.append(v.shape), x)
        total = weft.io_callback(lambda v: onp.float32(v.sum()), weft.ShapeDtypeStruct((), onp.float32), x)
        return x + total

    result = weft.jit(f)(put(A, mesh, "x", "y"))
    onp.testing.assert_allclose(result, A + A.sum(), rtol=1e-4, atol=1e-5)
    weft.effects_barrier()
    assert seen == [(8, 16)]
    seen.clear()
    body = weft.shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    weft.jit(body)(A)
    weft.effects_barrier()
    assert seen == [(2, 8)] * 8  # inside of shard_map each device calls it


def test_arguments_may_be_on_another_mesh_of_the_same_devices(mesh: Mesh) -> None:
    other = weft.make_mesh((8,), ("d",), (AxisType.Auto,))
    f = weft.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    onp.testing.assert_allclose(weft.jit(f)(put(A, other, "d")), A.reshape(4, 2, 16).sum(0), rtol=1e-5)
    fewer = weft.make_mesh((4,), ("d",), (AxisType.Auto,), devices=weft.devices()[:4])
    with pytest.raises(ValueError, match="must be on one mesh"):
        weft.jit(f)(put(A, fewer, "d"))


def test_arrays_that_are_not_contiguous(mesh: Mesh) -> None:
    """Transposed and broadcast arrays are views of other memory."""
    double = weft.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P(), out_specs=P())
    onp.testing.assert_array_equal(double(np.asarray(A).T), A.T * 2)
    total = weft.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    onp.testing.assert_array_equal(weft.grad(lambda x: total(x).sum())(A), onp.ones_like(A))
    split = put(onp.broadcast_to(A[:, :1], (8, 16)).T, mesh, "x")
    onp.testing.assert_array_equal(split + 1, onp.broadcast_to(A[:, 0], (16, 8)) + 1)


def loop(x: Any) -> Any:
    """Run a loop with an unknown number of iterations: its derivative stores each of them."""
    step = lambda c: (np.sin(c[0]) * 1.01, c[1] + 1)
    return lax.while_loop(lambda c: c[1] < 20, step, (x, 0))[0].sum()


def test_what_a_loop_has_stored_is_on_one_device(mesh: Mesh) -> None:
    """Outside of `jit` the forward pass returns it to the backward pass."""
    onp.testing.assert_allclose(weft.grad(weft.jit(loop))(put(A, mesh, "x", "y")), weft.grad(loop)(A), rtol=1e-4)


def test_compilations_for_meshes_are_logged(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    with weft.log_compiles(True):
        weft.jit(lambda x: x * 3)(put(A, mesh, "x", "y"))
    assert any("Finished compiling" in record.message for record in caplog.records)
