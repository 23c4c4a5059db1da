"""Programs on meshes in several threads, stopped, failing, after a fork, and many times over."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
import time
import traceback
import warnings
import weakref
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft import errors
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

X = onp.random.RandomState(0).randn(64, 32).astype(onp.float32)
SUMS = X.reshape(8, 8, 32).sum(0)


def mesh_of(*shape: int, names: str = "xy") -> Mesh:
    return weft.make_mesh(shape, tuple(names[: len(shape)]), (AxisType.Auto,) * len(shape))


def summed(mesh: Mesh) -> Any:
    return weft.jit(weft.shard_map(lambda a: lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))


def test_threads_share_meshes_and_programs() -> None:
    """Six threads on two meshes: programs of their own, and one that all of them call."""
    meshes, failed = [mesh_of(8), mesh_of(4, 2)], []
    shared, total = weft.jit(lambda x: x * 2), summed(meshes[0])

    def work(i: int) -> None:
        try:
            for k in range(3):
                x = weft.device_put(X * (i + 1), NamedSharding(meshes[i % 2], P("x")))
                own = weft.jit(lambda x: np.tanh(x @ x.T / 64).sum(0) + i + k)(x)  # noqa: B023
                whole = X * (i + 1)
                onp.testing.assert_allclose(own, onp.tanh(whole @ whole.T / 64).sum(0) + i + k, rtol=1e-3, atol=1e-3)
                onp.testing.assert_array_equal(shared(x), 2 * whole)
                onp.testing.assert_allclose(total(whole), SUMS * (i + 1), rtol=1e-4, atol=1e-4)
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed and not any(t.is_alive() for t in threads), failed[:1]


def endless(mesh: Mesh, body: Any) -> Any:
    loop = lambda x: lax.fori_loop(0, 1 << 30, lambda i, c: body(c), x)
    return weft.shard_map(loop, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no such signals on this system")
@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda c: lax.psum(c, "x") * 0.125, (8,)),
        (lambda c: np.tanh(c @ c) + lax.pmean(c, "x") * 0.1, (256, 32)),
    ],
    ids=["numbers", "matrices"],
)
def test_ctrl_c_stops_devices_that_communicate(body: Any, shape: tuple[int, ...]) -> None:
    mesh, x = mesh_of(8), onp.ones(shape, onp.float32)
    compiled = weft.jit(endless(mesh, body)).lower(x).compile()
    sent: list[float] = []

    def interrupt() -> None:
        time.sleep(0.1)
        sent.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    took = time.monotonic() - sent[0]
    thread.join()
    assert took < 5  # 0.03 s on an idle machine
    onp.testing.assert_allclose(summed(mesh)(X), SUMS, rtol=1e-4, atol=1e-4)


def test_an_exception_on_one_device_is_raised_with_its_line() -> None:
    mesh = mesh_of(8)

    def fails(i: Any, x: Any) -> Any:
        if i == 5:
            raise ValueError("device five")
        return x

    def body(x: Any) -> Any:
        y = weft.pure_callback(fails, weft.ShapeDtypeStruct(x.shape, x.dtype), lax.axis_index("x"), x)
        return y + lax.psum(x, "x")

    f = weft.jit(weft.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    for _ in range(2):
        with pytest.raises(
            errors.JaxRuntimeError, match=r"(?s)ValueError: device five.*test_mesh_lifetime.py:\d+:  y ="
        ):
            f(X)

    def whole(x: Any) -> Any:
        y = x + 1
        return y + weft.io_callback(lambda v: fails(5, v), weft.ShapeDtypeStruct((), onp.float32), x)

    with pytest.raises(errors.JaxRuntimeError, match=r"(?s)device five.*test_mesh_lifetime.py:\d+:  return y \+ weft"):
        weft.jit(whole)(weft.device_put(X, NamedSharding(mesh, P("x"))))
    onp.testing.assert_allclose(summed(mesh)(X), SUMS, rtol=1e-4, atol=1e-4)


def test_too_little_memory_is_an_error() -> None:
    mesh = mesh_of(8)
    much = weft.jit(lambda x: np.zeros((1 << 20, 1 << 20)) + x, out_shardings=NamedSharding(mesh, P("x")))
    for call in (
        lambda: much(onp.float32(1)),
        lambda: weft.device_put(onp.broadcast_to(onp.float32(1), (1 << 20, 1 << 20)), NamedSharding(mesh, P("x"))),
    ):
        with pytest.raises(errors.OutOfMemoryError, match=r"512\.0 GiB"):
            call()
    onp.testing.assert_allclose(summed(mesh)(X), SUMS, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_runs_programs_of_its_parent_and_others() -> None:
    mesh = mesh_of(8)
    total = summed(mesh)
    total(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's, about threads
        child = os.fork()
    if child == 0:
        try:
            onp.testing.assert_allclose(total(X), SUMS, rtol=1e-4, atol=1e-4)
            own = weft.jit(lambda x: np.sin(x).sum())(weft.device_put(X, NamedSharding(mesh, P("x"))))
            onp.testing.assert_allclose(own, onp.sin(X).sum(), rtol=1e-4, atol=1e-4)
            os._exit(0)
        finally:
            os._exit(3)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child hangs")


def memory() -> float:
    """Megabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("calls", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow(calls: int) -> None:
    mesh = mesh_of(8)
    put = lambda x: weft.device_put(x, NamedSharding(mesh, P("x")))
    step = weft.jit(lambda x, y: (x * 0.5 + y, (x * y).sum()), donate_argnums=0)
    more, total = weft.jit(lambda x: x + 1, donate_argnums=0), summed(mesh)
    mean = weft.pmap(lambda x: lax.pmean(x, "i"), axis_name="i")
    small, large, y = put(onp.ones((64, 64), onp.float32)), put(onp.ones((512, 512), onp.float32)), put(X)

    def run(count: int) -> None:
        nonlocal small, large
        for _ in range(count):
            small, _ = step(small, small + 1)
            large = more(large)
            total(y)
            mean(X[:8])
            weft.device_put(weft.device_put(X, NamedSharding(mesh, P(None, "x"))), NamedSharding(mesh, P("x")))

    run(60)
    gc.collect()
    before = memory()
    run(calls)
    assert memory() - before < 12, f"{memory() - before} MB more after {calls} calls"


def test_meshes_and_their_arrays_are_collected() -> None:
    def used(k: int) -> list[weakref.ref]:
        mesh = mesh_of(4, 2, names=f"{chr(97 + k)}{chr(65 + k)}")
        x = weft.device_put(onp.ones((8, 8), onp.float32), NamedSharding(mesh, P(mesh.axis_names[0])))
        y = weft.jit(lambda x: x * 2 + x.sum())(x)
        return [weakref.ref(mesh), weakref.ref(x), weakref.ref(y)]

    meshes, *arrays = zip(*[used(k) for k in range(3)], strict=True)
    gc.collect()
    assert not [r for own in arrays for r in own if r() is not None]
    weft.clear_caches()  # how arrays are laid out on a mesh is remembered, of so many
    gc.collect()
    assert not [r for r in meshes if r() is not None]
