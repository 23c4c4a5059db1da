"""Arrays on a GPU as users see them, on one that is simulated: where they are created, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from weft import lax
from weft.base.errors import ArgumentError
from weft.sharding.device import Device


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    with simulated_gpu(monkeypatch) as found:
        yield found


def key() -> Any:
    return weft.random.key(0)


# What creates arrays without operands on a device, or looks at their values on its way.
CREATED: dict[str, Callable[[], Any]] = {
    "zeros": lambda: wnp.zeros(3),
    "arange": lambda: wnp.arange(5),
    "linspace": lambda: wnp.linspace(0, 1, 5),
    "eye": lambda: wnp.eye(3),
    "asarray": lambda: wnp.asarray([1, 2.0]),
    "from NumPy": lambda: wnp.array(np.ones(3)),
    "scalar": lambda: wnp.float32(3),
    "put": lambda: weft.device_put(np.ones(3)),
    "iota": lambda: lax.iota(np.int32, 3),
    "key": key,
    "key data": lambda: weft.random.key_data(key()),
    "normal": lambda: weft.random.normal(key(), (3,)),
    "nonzero": lambda: wnp.nonzero(wnp.arange(4))[0],
    "unique": lambda: wnp.unique(wnp.array([1, 1, 2])),
    "row": lambda: list(wnp.arange(6).reshape(2, 3))[1],
    "from a function": lambda: wnp.fromfunction(lambda i: i, (3,)),
    "added": lambda: wnp.ones(3) + 1,
    "with NumPy": lambda: wnp.concatenate([wnp.ones(3), np.ones(3, np.float32)]),
    "updated": lambda: wnp.arange(6).at[1].set(3),
    "program": lambda: weft.jit(lambda: wnp.ones(3))(),
    "gradient": lambda: weft.grad(lambda x: (x * x).sum())(wnp.ones(3)),
}


def test_arrays_are_created_on_the_default_device(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    expected = {name: create() for name, create in CREATED.items()}
    with weft.default_device(device):
        for name, create in CREATED.items():
            found = create()
            assert found.devices() == {device} and not found.committed, name
            assert found.aval == expected[name].aval, name
            if not weft.dtypes.issubdtype(found.dtype, weft.dtypes.prng_key):
                np.testing.assert_allclose(np.asarray(found), np.asarray(expected[name]), rtol=1e-6, err_msg=name)
        assert weft.default_backend() == "gpu"
    with weft.default_device("gpu"):
        assert wnp.zeros(3).device is device
    assert weft.local_devices(backend="gpu") == [device] and weft.default_backend() == "cpu"
    assert wnp.zeros(3).device.platform == "cpu"


def test_programs_close_over_arrays_of_the_gpu(gpu: tuple[Device, SimulatedDriver]) -> None:
    """Constants have the memory of their GPU; on another device they are copied."""
    device, driver = gpu
    constant = weft.device_put(np.arange(3, dtype=np.float32), device)
    f = weft.jit(lambda x: x + constant)
    x = weft.device_put(np.ones(3, np.float32), device)
    copies = driver.calls.count("out 12")
    for _ in range(3):
        assert f(x).device is device
        np.testing.assert_array_equal(np.asarray(f(x)), [1, 2, 3])
    for _ in range(3):
        here = f(np.ones(3, np.float32))
        assert here.device.platform == "cpu"
        np.testing.assert_array_equal(np.asarray(here), [1, 2, 3])
    np.testing.assert_array_equal(np.asarray(f(x)), [1, 2, 3])
    assert driver.calls.count("out 12") <= copies + 4 + 2  # results, and the constant for the CPU


def test_rows_of_arrays(gpu: tuple[Device, SimulatedDriver]) -> None:
    """Iterating leaves the rows there, by one program for all of them."""
    device, driver = gpu
    x = weft.device_put(np.arange(12, dtype=np.float32).reshape(4, 3), device)
    rows = [row * 2 for row in x]
    assert {row.device for row in rows} == {device}
    np.testing.assert_array_equal(np.stack([np.asarray(row) for row in rows]), np.asarray(x) * 2)
    assert driver.calls.count("load 1") == 2
    np.testing.assert_array_equal([np.asarray(r)[0] for r in reversed(x)], [9, 6, 3, 0])


def test_arguments_on_different_devices(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    there, here = (weft.device_put(np.ones(3, np.float32), d) for d in (device, weft.devices("cpu")[0]))
    for f in (lambda x, y: x + y, weft.jit(lambda x, y: x + y)):
        with pytest.raises(ArgumentError, match=r"GpuDevice.*CpuDevice"):
            f(there, here)
        assert f(there, wnp.ones(3)).device is device  # which follows
        assert f(np.ones(3, np.float32), there).device is device
    assert weft.jit(lambda x: x + 1, device=device)(here).device is device
    assert isinstance(weft.device_get(there), np.ndarray)


def test_statistics_of_memory(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(np.ones(1 << 18, np.float32), device)
    found = device.memory_stats()
    assert found is not None and found["bytes_in_use"] == found["peak_bytes_in_use"] == 1 << 20
    assert found["bytes_limit"] == driver.capacity and found["num_allocs"] == 1
    del x
    after = device.memory_stats()
    assert after is not None
    assert (after["bytes_in_use"], after["pool_bytes"], after["bytes_reserved"]) == (0, 1 << 20, 1 << 20)
    assert after["peak_bytes_in_use"] == 1 << 20
    assert weft.devices("cpu")[0].memory_stats() is None


def test_out_of_memory_names_the_largest_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_gpu(monkeypatch, capacity=12 << 20) as (device, driver):
        large = weft.device_put(np.ones(1 << 20, np.float32), device)  # this line is named
        small = weft.device_put(np.ones(10, np.float32), device)
        for free in range(3):  # what is free is returned before anything is said
            weft.device_put(np.ones((1 << 18) + 20_000 * free, np.float32), device)
        with pytest.raises(MemoryError) as caught:
            weft.device_put(np.ones(2 << 20, np.float32), device)
        text = str(caught.value)
        assert "an array on the GPU: 8.0 MiB" in text and "4.0 MiB: f32[1048576] at test_arrays.py" in text
        assert "this line is named" in text and "f32[10]" in text and len(driver.memory) == 2
        with pytest.raises(MemoryError) as caught:
            weft.jit(lambda x: (x * 2, wnp.tile(x, 4)))(large)
        text = str(caught.value)
        assert "result 1 (f32[4194304]) of" in text and "this line is named" in text and "16.0 MiB" in text
        np.testing.assert_array_equal(np.asarray(large * 2)[:2] + np.asarray(small)[:2], 3)


def test_copies_to_the_host_that_are_begun(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(np.arange(5, dtype=np.float32), device)
    for _ in range(3):
        x.copy_to_host_async()
    np.testing.assert_array_equal(np.asarray(x), np.arange(5))
    x.copy_to_host_async()
    assert driver.calls.count("later") == 1 and driver.calls.count("out 20") == 1
    wnp.ones(3).copy_to_host_async()
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        x.copy_to_host_async()
