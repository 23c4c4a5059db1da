"""On a real GPU (`make test-gpu`): loops and branches that call libraries are conditional nodes of graphs."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.test_nodes import IMAGES, KERNEL, PROGRAMS, SIZE, A
from weft import lax
from weft.compiler.target.cuda import targets
from weft.runtime.cuda import driver, graph_plan


@pytest.fixture(autouse=True)
def small_matmuls_by_libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In loops too; and few steps are unrolled."""
    if not driver.count():
        pytest.skip("there is no GPU")
    monkeypatch.setattr(targets, "LEAST_MATMUL_IN_LOOP", SIZE**3)
    monkeypatch.setattr(graph_plan, "LONGEST", 20)
    targets.of_capability.cache_clear()
    with weft.default_matmul_precision("highest"):
        yield
    targets.of_capability.cache_clear()


def waits_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what the host reads from now on."""
    found: list[int] = []
    copy_out = driver.Driver.copy_out

    def counted(self: Any, value: np.ndarray, address: int) -> None:
        found.append(value.nbytes)
        copy_out(self, value, address)

    monkeypatch.setattr(driver.Driver, "copy_out", counted)
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_nodes_have_the_values_of_cpus(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.device_put(A, weft.devices("gpu")[0])
    f = weft.jit(program)
    expected = [np.asarray(leaf) for leaf in weft.tree.leaves(f(A))]
    waits = waits_of(monkeypatch)
    for call in range(4):
        waits.clear()
        found = weft.tree.leaves(f(x))
        assert not (call and waits)  # the host decides in the first call only
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-3, atol=1e-4)


def calls(a: Any) -> Any:
    """Every library whose calls are recorded, in one loop."""

    def body(carry: Any) -> Any:
        x, q, image, i = carry
        lower = wnp.tril(a) + 2 * wnp.eye(SIZE)
        x = lax.linalg.triangular_solve(lower, x @ a, left_side=True, lower=True)
        x = wnp.real(wnp.fft.ifft(wnp.fft.fft(x) * 3))
        q = weft.nn.dot_product_attention(q, q, q)
        image = lax.conv_general_dilated(image, KERNEL / 8, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return x, q, image, i + 1

    q = wnp.tile(a, (1, 2)).reshape(1, SIZE, 1, 64).astype("bfloat16")
    x, q, image, i = lax.while_loop(lambda carry: carry[3] < 5, body, (a, q, wnp.asarray(IMAGES), 0))
    return x, q.astype("float32"), image, i


def test_libraries_are_recorded_in_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.device_put(A, weft.devices("gpu")[0])
    f = weft.jit(calls)
    expected = [np.asarray(leaf) for leaf in f(A)]
    np.asarray(f(x)[0])
    waits = waits_of(monkeypatch)
    found = f(x)
    assert not waits
    for one, other, tolerance in zip(found, expected, (1e-4, 2e-2, 1e-4, 0), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=tolerance * np.abs(other).max())


def test_a_branch_that_was_never_taken() -> None:
    """What libraries load on first use is loaded while the graph is recorded, or when it runs."""

    def program(flag: Any, x: Any) -> Any:
        return lax.cond(flag > 0, lambda x: wnp.abs(wnp.fft.fft(x @ x)), lambda x: x + 1, x)

    gpu = weft.devices("gpu")[0]
    f, x = weft.jit(program), weft.device_put(A, gpu)
    flags = [weft.device_put(np.float32(value), gpu) for value in (-1, 1)]
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(f(flags[0], x)), A + 1)
    np.testing.assert_allclose(np.asarray(f(flags[1], x)), np.abs(np.fft.fft(A @ A)), rtol=1e-3, atol=1e-3)


def multiplied(a: Any, count: Any) -> Any:
    return lax.while_loop(lambda c: c[1] < count, lambda c: (wnp.tanh(c[0] @ a), c[1] + 1), (a, 0))


def test_profiles_of_nodes() -> None:
    gpu = weft.devices("gpu")[0]
    x, count = weft.device_put((A, np.int32(100)), gpu)
    f = weft.jit(multiplied)
    expected = np.asarray(f(x, count)[0])
    with weft.profile(quiet=True) as profile:
        for _ in range(3):
            found = f(x, count)[0]
    np.testing.assert_array_equal(np.asarray(found), expected)
    (loop,) = [k for k in profile.kernels if "while" in k.name]
    assert loop.runs == 3 and 1e-4 < loop.seconds / 3 < 1e-1


def test_interrupts_end_nodes() -> None:
    gpu = weft.devices("gpu")[0]
    x, few, many = weft.device_put((A, np.int32(3), np.int32(2**31 - 1)), gpu)
    f = weft.jit(multiplied)
    expected = [np.asarray(f(x, few)[0]) for _ in range(2)]
    f(x, few)[0].block_until_ready()
    threading.Timer(0.5, _thread.interrupt_main).start()
    start = time.perf_counter()
    endless = f(x, many)[0]
    assert time.perf_counter() - start < 0.3  # nobody waits
    with pytest.raises(KeyboardInterrupt):
        endless.block_until_ready()
    assert time.perf_counter() - start < 0.5 + 0.2
    assert endless.is_deleted()
    np.testing.assert_array_equal(np.asarray(f(x, few)[0]), expected[0])
