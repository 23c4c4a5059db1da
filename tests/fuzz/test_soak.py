"""Memory stays bounded with thousands of shapes, short-lived functions, and failures."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.target.cpu import kernels
from weft.runtime.cpu import executable, memory, tiers

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


@pytest.fixture(autouse=True)
def no_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable caches, so that what they retain is not measured."""
    monkeypatch.setattr(kernels, "_latest", deque(maxlen=16))
    before = weft.config.compilation_cache
    weft.config.update("compilation_cache", False)
    yield
    weft.config.update("compilation_cache", before)


def resident() -> int:
    """Bytes of this process in memory, without what could be given back."""
    tiers.wait(60)
    gc.collect()
    memory.clear_all()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(work: Callable[[int], None], count: int, warm: int) -> float:
    """Bytes per iteration, after some iterations that fill caches: the less of two halves, since what a background
    thread allocates once is no leak."""
    for i in range(warm):
        work(i)
    found, half = [], count // 2
    for part in range(2):
        before = resident()
        for i in range(warm + part * half, warm + (part + 1) * half):
            work(i)
        found.append((resident() - before) / half)
    return min(found)


def check_short_lived(count: int) -> None:
    """Functions that are jitted, called until they have a dispatcher and better code, and dropped."""

    def work(i: int) -> None:
        jitted = weft.jit(lambda x: wnp.sum(wnp.tanh(x) * i, -1))
        x = np.ones((2, 3 + i % 5), np.float32)
        for _ in range(3):
            jitted(x)

    assert growth(work, count, count // 4) < 20_000


def check_shapes(count: int) -> None:
    """Call one function with many shapes and forget it: the code of each is freed."""

    def function(x: Any) -> Any:
        return wnp.sum(x * 2 + 1, 0) - x[0]

    def work(i: int) -> None:
        jitted = weft.jit(function)
        jitted(np.ones((2, i + 1), np.float32))
        if i % 20 == 19:
            jitted.clear_cache()

    grown = growth(work, count, max(count // 3, 100))
    assert grown < 40_000, f"{grown} bytes for each shape"


def test_short_lived_functions() -> None:
    check_short_lived(120)


def test_many_shapes() -> None:
    check_shapes(100)


@pytest.mark.slow
def test_many_more_shapes() -> None:
    check_short_lived(3000)
    check_shapes(4000)


def test_code_is_freed_with_its_programs() -> None:
    """Kernels that no program has are forgotten, but for the latest."""
    jitted = weft.jit(lambda x: wnp.cumsum(x * 5 - 3))
    jitted(np.ones(37, np.float32))
    names = {kernel.name for kernel in kernels._latest}
    assert names and names <= {key[2] for key in kernels._compiled}
    jitted.clear_cache()
    gc.collect()
    assert names <= {key[2] for key in kernels._compiled}
    kernels._latest.clear()
    gc.collect()
    assert not names & {key[2] for key in kernels._compiled}


def test_calls_do_not_leak_memory() -> None:
    """Results, temporaries, tapes and callbacks of thousands of calls go with them."""

    def loss(x: Any) -> Any:
        y = lax.while_loop(lambda c: wnp.sum(c) < 1000.0, lambda c: c * 2 + 1, wnp.abs(x))
        return wnp.sum(lax.scan(lambda c, r: (c + r * r, c * r), x[0], y)[1])

    jitted = weft.jit(weft.grad(loss))
    plain = weft.jit(lambda x: x * 2)
    x, large = np.ones((5, 6), np.float32), np.ones((300, 300), np.float32)

    def work(i: int) -> None:
        for _ in range(20):
            jitted(x)
            plain(large)

    assert growth(work, 30, 10) < 6000


def test_what_loops_on_meshes_store_is_freed() -> None:
    """The derivative of a loop whose number of iterations nobody knows stores each of them, on every device."""

    def loss(x: Any) -> Any:
        return lax.while_loop(lambda c: c[1] < 20, lambda c: (wnp.sin(c[0]) * 1.01, c[1] + 1), (x, 0))[0].sum()

    mesh = weft.make_mesh((4, 2), ("x", "y"), (weft.sharding.AxisType.Auto,) * 2)
    x = weft.device_put(np.ones((256, 256), np.float32), weft.NamedSharding(mesh, weft.P("x", "y")))
    gradient = weft.jit(weft.grad(loss))
    # 20 iterations of 256 KB each.
    assert growth(lambda i: gradient(x), 20, 4) < 1_000_000


def test_failures_do_not_leak_memory() -> None:
    """A callback that raises leaves nothing behind, nor does its program once it is gone."""

    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    def work(i: int) -> None:
        jitted = weft.jit(lambda x: weft.pure_callback(fail, weft.ShapeDtypeStruct(x.shape, x.dtype), x * i))
        with pytest.raises(Exception, match="no"):
            jitted(np.ones(1000, np.float32))

    calls = len(executable._hosts)
    assert growth(work, 60, 20) < 40_000
    gc.collect()
    assert len(executable._hosts) <= calls + 2
