"""Arrays are allocated, copied, waited for and run by the backend of their device, and by nothing else."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.unit.toys import register_toy
from weft.runtime.cpu.memory_backend import CpuMemoryBackend
from weft.runtime.device import HOME, get_placement
from weft.runtime.execution_backend import execution_backend, execution_backends
from weft.runtime.memory_backend import memory_backend, memory_backends
from weft.runtime.platforms import platforms
from weft.sharding.device import Device

FIRST = weft.devices()[0]
SIZES = [3, 5000]  # a small array is in memory of NumPy or in a chunk, a large one in a block


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods of the CPU's backend that are called, in order."""
    names: list[str] = []

    def recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            names.append(name)
            return method(*args, **kwargs)

        return call

    for name in ("adopt", "copy_from_host", "copy_to_host", "copy_between", "wait", "is_ready", "donated_memory"):
        monkeypatch.setattr(CpuMemoryBackend, name, recorded(name, getattr(CpuMemoryBackend, name)))
    return names


@pytest.mark.parametrize("size", SIZES)
def test_copies_are_the_backend_s(size: int, called: list[str]) -> None:
    value = np.arange(size, dtype=np.float32)
    x = wnp.asarray(value)
    assert called == ["copy_from_host"]
    y = weft.device_put(x, FIRST, may_alias=False)
    assert called.count("copy_between") == 1 and np.asarray(y) is not np.asarray(x)
    called.clear()
    z = weft.jit(lambda x: x + 1)(x)
    np.testing.assert_array_equal(np.asarray(z), value + 1)
    np.asarray(z)
    assert called.count("copy_to_host") == 1  # the result is read once
    called.clear()
    wnp.full(size, 2.0)
    assert called == ["copy_from_host"]


def test_waiting_is_the_backend_s(called: list[str]) -> None:
    x = wnp.ones(3)
    called.clear()
    assert x.block_until_ready() is x and x.is_ready() and weft.block_until_ready([x]) == [x]
    assert called == ["wait", "is_ready", "wait"]
    mesh = weft.sharding.Mesh(np.array([FIRST]), ("i",))
    sharded = weft.device_put(x, weft.NamedSharding(mesh, weft.P("i")))
    called.clear()
    assert sharded.block_until_ready() is sharded and sharded.is_ready()
    assert called == ["wait", "is_ready"]
    x.delete()
    assert not x.is_ready()
    with pytest.raises(weft.errors.DonatedArrayError):
        x.block_until_ready()


def test_donated_memory_is_the_backend_s(called: list[str]) -> None:
    f = weft.jit(lambda x: x * 2, donate_argnums=0)
    for size, times in ((3, 0), (5000, 1)):
        for _ in range(4):  # the general way, then that of a dispatcher
            x = wnp.ones(size)
            called.clear()
            y = f(x)
            assert called.count("donated_memory") <= times and x.is_deleted() and float(y[0]) == 2


def test_memory_is_freed_when_nobody_refers_to_it() -> None:
    memory = memory_backend(FIRST).memory(FIRST)
    assert memory is HOME.memory is get_placement(FIRST, True).memory and HOME.memory_backend is memory_backend(FIRST)
    memory.clear()
    address, block = memory.allocate(1 << 16)
    assert block.address == address and HOME.memory.pool.bytes == 0
    del block
    gc.collect()
    assert HOME.memory.pool.bytes >= 1 << 16
    memory.clear()
    assert HOME.memory.pool.bytes == 0


def test_a_device_of_another_platform_has_no_backend() -> None:
    assert platforms.names() == memory_backends.names() == execution_backends.names() == ["cpu", "gpu"]
    for find, what in ((memory_backend, "memory backend"), (execution_backend, "execution backend")):
        with pytest.raises(weft.errors.ArgumentError, match=f"No {what} is registered"):
            find(Device(0, "quantum", 0, "none"))


def test_a_platform_needs_three_registrations_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    register_toy(monkeypatch)
    (toy,) = weft.devices("plaything")
    assert toy.platform == "toy" and weft.local_devices(backend="toy") == [toy]
    x = weft.device_put(np.arange(4.0, dtype=np.float32), toy)
    y = weft.jit(lambda x: wnp.sin(x) * 2)(x)
    z = wnp.sum(y + 1)
    assert x.device == y.device == z.device == toy and "toy" in weft.extend.backend.backends()
    np.testing.assert_allclose(np.asarray(y), 2 * np.sin(np.arange(4)), rtol=1e-6)
    moved = weft.device_put(y, FIRST)
    assert moved.device == FIRST and float(moved[1]) == float(y[1])
    with weft.default_device(toy):
        assert wnp.ones(3).device == toy and weft.default_backend() == "toy"
