"""Programs on a GPU that is simulated: the runtime's part, with the interpreter's results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu, simulated_gpus
from weft import lax
from weft.base.errors import DonatedArrayError, OutOfMemoryError
from weft.compiler.compile import compile_program
from weft.compiler.target.cuda.loops import find_loops
from weft.compiler.target.cuda.lower import source_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper
from weft.runtime.cuda import driver
from weft.runtime.cuda.executable import MOST_GRAPHS
from weft.sharding.device import Device


def nested(x: Any, count: Any) -> Any:
    """A loop whose length is known only then, with a scan, a branch and counters in it."""

    def body(i: Any, carry: Any) -> Any:
        total, rows = carry
        total, rows = lax.scan(lambda c, row: (c + wnp.mean(row), row * wnp.tanh(c) + i), total, rows)
        rows = lax.cond(total > 0, lambda r: r[::-1] + 1, lambda r: r * 0.5, rows)
        return wnp.tanh(total), rows

    return lax.fori_loop(0, count, body, (wnp.float32(0.5), x))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    with simulated_gpu(monkeypatch) as found:
        yield found


def loss(w: Any, x: Any) -> Any:
    return wnp.sum(wnp.tanh(x @ w) ** 2)


def test_arrays_live_there(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    assert weft.devices("gpu") == weft.devices("cuda") == [device]
    x = weft.device_put(np.arange(6, dtype=np.float32).reshape(2, 3), device)
    assert x.device is device and x.committed and driver.calls == ["in 24"]
    np.testing.assert_array_equal(np.asarray(x), np.arange(6).reshape(2, 3))
    np.asarray(x)
    assert driver.calls == ["in 24", "out 24"]  # once
    back = weft.device_put(x, weft.devices()[0])
    assert back.device.platform == "cpu"


def test_programs_run_there(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    f = weft.jit(weft.value_and_grad(loss))
    expected, expected_gradient = f(w, x)
    there = [weft.device_put(a, device) for a in (w, x)]
    for _ in range(3):  # the general way, and the dispatcher
        value, gradient = f(*there)
        assert value.device is device and gradient.device is device
        np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=1e-6)
        np.testing.assert_allclose(np.asarray(gradient), np.asarray(expected_gradient), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(there[0] + 1), w + 1)  # outside of programs
    assert (there[0] + 1).device is device


def test_loops_branches_and_callbacks(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    x = weft.device_put(np.arange(4, dtype=np.float32), device)

    def program(x: Any) -> Any:
        total, stacked = lax.scan(lambda c, a: (c + a, c * a), wnp.float32(1), x)
        grown = lax.while_loop(lambda c: wnp.sum(c) < 100, lambda c: c * 2 + 1, x)
        chosen = lax.cond(total > 3, lambda: grown + 1, lambda: grown)
        called = weft.pure_callback(lambda v: np.asarray(v) * 3, weft.ShapeDtypeStruct((4,), np.float32), chosen)
        return total, stacked, called

    for one, other in zip(weft.jit(program)(x), weft.jit(program)(np.arange(4, dtype=np.float32)), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_rows_of_scans_are_at_any_address(gpu: tuple[Device, SimulatedDriver]) -> None:
    """A row of 30 numbers starts at a multiple of 8 bytes, and one of three at one of four; vectors are 16."""
    device, _ = gpu
    x = np.arange(5 * 6 * 3, dtype=np.float32).reshape(5, 18)

    def program(x: Any) -> Any:
        scan = lax.scan(lambda c, row: (c + row.sum(), row * 2), wnp.float32(0), wnp.tile(x[:, :15], (1, 2)))
        nested = lax.scan(
            lambda c, rows: lax.scan(lambda d, row: (d + row, row + d), c, rows), x[0, :3], x[:, None, :3]
        )
        return scan, nested

    there, here = (weft.tree.leaves(weft.jit(program)(a)) for a in (weft.device_put(x, device), x))
    for one, other in zip(there, here, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)


def test_donated_memory_is_taken(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    step = weft.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = weft.device_put(np.ones(1000, np.float32), device)
    pointer = x._pointer
    y = step(x)
    assert x.is_deleted() and y._pointer == pointer
    with pytest.raises(DonatedArrayError):
        x + 1
    np.testing.assert_array_equal(np.asarray(y), np.full(1000, 3, np.float32))


def test_programs_are_recorded_once_for_their_addresses(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    f = weft.jit(lambda x: lax.fori_loop(0, 3, lambda i, v: v * 2 + i, wnp.tanh(x)).sum())
    x = weft.device_put(np.arange(6, dtype=np.float32), device)
    expected = np.asarray(f(np.arange(6, dtype=np.float32)))
    for call in range(6):
        driver.calls.clear()
        np.testing.assert_allclose(np.asarray(f(x)), expected, rtol=1e-6)
        assert ("record" in driver.calls) == (call == 1) and ("start" in driver.calls) == (call >= 1), call
    other = weft.device_put(np.ones(6, np.float32), device)
    driver.calls.clear()
    f(other)
    assert "start" not in driver.calls  # other addresses
    for _ in range(3):  # results and temporaries may have changed places
        np.testing.assert_allclose(np.asarray(f(x)), expected, rtol=1e-6)
    assert "start" in driver.calls


def test_only_so_many_graphs_are_retained(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    f = weft.jit(lambda x: x + 1)
    arrays = [weft.device_put(np.full(5, i, np.float32), device) for i in range(MOST_GRAPHS + 2)]
    for _ in range(2):
        for i, x in enumerate(arrays):
            for _ in range(3):
                assert np.asarray(f(x))[0] == i + 1
    assert driver.calls.count("record") == 2 * len(arrays)  # each was forgotten when it came again
    x = arrays[0]
    results = [f(x) for _ in range(20)]  # all of them live: no address comes twice
    assert all(np.asarray(r)[0] == 1 for r in results)


def test_loops_of_several_blocks_are_compiled() -> None:
    """They wait for each other at a counter in memory, and LLVM accepts their text, which no simulated GPU reads."""
    target = hopper()
    jaxpr = weft.make_jaxpr(nested)(weft.ShapeDtypeStruct((7, 40_000), np.float32), 5)
    program = compile_program(jaxpr, [False, False], target).program
    (code,) = find_loops(program, target, 132, lambda step: False).values()
    assert code.blocks > 1
    assert ".entry" in ptx(source_text(code.symbol, code, target), target)


def test_loops_are_kernels(gpu: tuple[Device, SimulatedDriver]) -> None:
    """Small ones of one block, larger ones of several; what calls Python is decided by the host."""
    device, driver = gpu

    doubled = weft.jit(lambda x: lax.while_loop(lambda v: v[0] < 100, lambda v: v * 2, x))
    for n in (3, 8200):  # a block has 2048 threads' work of four numbers each
        ones = weft.device_put(np.ones(n, np.float32), device)
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(doubled(ones)), np.full(n, 128, np.float32))
        assert "loop" in driver.calls and "start" in driver.calls
        driver.calls.clear()

    def called(v: Any) -> Any:
        return weft.pure_callback(lambda a: np.asarray(a) * 2, weft.ShapeDtypeStruct((3,), np.float32), v)

    f = weft.jit(lambda x: lax.while_loop(lambda v: v[0] < 100, called, x))
    x = weft.device_put(np.ones(3, np.float32), device)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(f(x)), np.full(3, 128, np.float32))
    assert "record" not in driver.calls and "loop" not in driver.calls


def test_nested_loops_and_branches_are_one_kernel(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = np.random.default_rng(0).normal(size=(7, 30)).astype(np.float32)
    there, here = (weft.jit(nested)(a, 5) for a in (weft.device_put(x, device), x))
    assert driver.calls.count("loop") == 1
    for one, other in zip(there, here, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5)


def test_donated_arguments_of_dispatchers(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    step = weft.jit(lambda x, y: (x * 2 + y, y.sum()), donate_argnums=0)
    x, y = (weft.device_put(np.full(1000, v, np.float32), device) for v in (0, 1))
    pointer = x._pointer
    for i in range(6):
        before = x
        x, total = step(x, y)
        assert before.is_deleted() and x._pointer == pointer and float(total) == 1000, i
        with pytest.raises(DonatedArrayError):
            step(before, y)
    np.testing.assert_array_equal(np.asarray(x), 63)
    assert 1 <= driver.calls.count("record") <= 2
    with pytest.raises(DonatedArrayError, match="must not be another argument"):
        step(x, x)
    with pytest.raises(DonatedArrayError):
        step(y, before)


def test_memory_is_used_again_and_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_gpu(monkeypatch, capacity=1 << 20) as (device, driver):
        for _ in range(10):  # 4 MB in all
            x = weft.device_put(np.ones(100_000, np.float32), device)
        assert len(driver.memory) == 2
        with pytest.raises(OutOfMemoryError, match="on the GPU"):
            weft.device_put(np.ones(1_000_000, np.float32), device)
        assert len(driver.memory) == 1  # what was free was returned before it was tried again
        np.testing.assert_array_equal(np.asarray(x)[:3], 1)


def test_a_program_is_loaded_to_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs share what was compiled, and have their own memory, code and constants."""
    with simulated_gpus(monkeypatch, 2) as gpus:
        f = weft.jit(lambda x: x * 2 + np.arange(3, dtype=np.float32))
        for device, driver in gpus:
            result = f(weft.device_put(np.ones(3, np.float32), device))
            assert result.device is device and result._pointer in driver.memory
            np.testing.assert_array_equal(np.asarray(result), [2, 3, 4])
            assert driver.calls.count("load") == 1


def test_what_no_library_computes_is_evaluated_on_the_host(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(np.diag(np.arange(3, dtype=np.float32)), device)
    found = weft.jit(lambda x: wnp.linalg.svd(x)[1] * 2)(x)
    np.testing.assert_allclose(np.asarray(found), [4, 2, 0], atol=1e-6)
    assert found.device is device and "record" not in driver.calls


def test_without_a_gpu() -> None:
    if driver.count():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="There is no GPU here"):
        weft.devices("gpu")


def test_scalars_are_copied_once(gpu: tuple[Device, SimulatedDriver]) -> None:
    """Operands of operations outside of programs: -0 and 0 are different ones, and so are their types."""
    device, driver = gpu
    x = weft.device_put(np.ones(4, np.float32), device)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(x * 2.5), np.full(4, 2.5, np.float32))
        assert not np.signbit(np.asarray(x * 0.0)).any() and np.signbit(np.asarray(x * -0.0)).all()
    before = driver.calls.count("in 4")
    np.asarray(x * 2.5)
    assert driver.calls.count("in 4") == before
    np.testing.assert_array_equal(np.asarray(x + np.arange(4, dtype=np.float32)), np.arange(1, 5))
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        x + 1
