"""Arrays on a GPU as users see them, on one that is simulated: where they are created, and where they go."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from weft import lax
from weft.base.errors import ArgumentError
from weft.runtime import dlpack
from weft.runtime.cuda import memory
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
    assert driver.calls.count("load") == 2
    np.testing.assert_array_equal([np.asarray(r)[0] for r in reversed(x)], [9, 6, 3, 0])


def test_arguments_on_different_devices(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu
    there, here = (weft.device_put(np.ones(3, np.float32), d) for d in (device, weft.devices("cpu")[0]))
    for f in (lambda x, y: x + y, weft.jit(lambda x, y: x + y)):
        with pytest.raises(ArgumentError, match=r"GpuDevice.*CpuDevice") as caught:
            f(there, here)
        assert "devices('gpu')[0]" in str(caught.value) or "weft.device_put(y, x.device)" in str(caught.value)
        assert f(there, wnp.ones(3)).device is device  # which follows
        assert f(np.ones(3, np.float32), there).device is device
    assert weft.jit(lambda x: x + 1, device=device)(here).device is device
    assert isinstance(weft.device_get(there), np.ndarray)


def test_copies_stay_there(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    x = weft.device_put(np.arange(3, dtype=np.float32), device)
    copies = [copy.copy(x), copy.deepcopy(x), x.copy(), weft.device_put(x, device, may_alias=False)]
    assert not [call for call in driver.calls if call.startswith("out")]
    for other in copies:
        assert other.device is device and other.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
        np.testing.assert_array_equal(np.asarray(other), np.arange(3))
    assert pickle.loads(pickle.dumps(x)).device.platform == "cpu"
    assert weft.profiler.device_memory_profile()


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
    monkeypatch.setattr(memory, "LARGE", 1 << 10)
    with simulated_gpu(monkeypatch, capacity=12 << 10) as (device, driver):
        large = weft.device_put(np.ones(1 << 10, np.float32), device)  # this line is named
        small = weft.device_put(np.ones(10, np.float32), device)
        for free in range(2):  # what is free is returned before anything is said
            weft.device_put(np.ones(300 * (1 + free), np.float32), device)
        with pytest.raises(MemoryError) as caught:
            weft.device_put(np.ones(2 << 10, np.float32), device)
        text = str(caught.value)
        assert "an array on the GPU: 8.0 KiB" in text and "4.0 KiB: f32[1024] at test_arrays.py" in text
        assert "this line is named" in text and "f32[10]" in text and len(driver.memory) == 2
        with pytest.raises(MemoryError) as caught:
            weft.jit(lambda x: (x[:3], wnp.tile(x, 4)))(large)
        text = str(caught.value)
        assert "result 1 (f32[4096]) of" in text and "this line is named" in text and "16.0 KiB" in text
        np.testing.assert_array_equal(np.asarray(large[:2]) + np.asarray(small)[:2], 2)


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


class Other:
    """An array of another library, on the GPU: a NumPy array whose memory is that of the simulated one."""

    def __init__(self, driver: SimulatedDriver, value: np.ndarray, offset: int = 0) -> None:
        address = driver.allocate(value.nbytes + offset) + offset
        memory = driver.view(address, value.nbytes)
        memory[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self.value, self.streams = memory.view(value.dtype).reshape(value.shape), []  # type: ignore[var-annotated]

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        unknown = self.value.dtype.isbuiltin != 1
        capsule = (self.value.view("u2") if unknown else self.value).__dlpack__(max_version=max_version)
        tensor = dlpack._get_tensor(capsule)
        tensor.device_type, tensor.code = 2, dlpack.CODES["bfloat16"] if unknown else tensor.code
        return capsule


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64"])
def test_memory_of_other_libraries(gpu: tuple[Device, SimulatedDriver], dtype: str) -> None:
    device, driver = gpu
    value = np.arange(6).reshape(2, 3).astype(weft.dtypes.canonicalize_dtype(dtype))
    other = Other(driver, value)
    x = weft.dlpack.from_dlpack(other)
    assert x.device is device and x.committed and other.streams == [driver.stream_handle]
    assert x.unsafe_buffer_pointer() == other.value.ctypes.data and x.dtype == value.dtype
    np.testing.assert_array_equal(np.asarray(x), value)
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda a: a.T)(x)), value.T)
    weft.jit(lambda a: a[::-1], donate_argnums=0)(x)  # which does not write to memory of others
    np.testing.assert_array_equal(other.value, value)
    del x
    assert "hold" in driver.calls  # until no work reads it
    for copied in (weft.dlpack.from_dlpack(other, copy=True), wnp.from_dlpack(other)):
        assert copied.device is device and copied.unsafe_buffer_pointer() != other.value.ctypes.data
        np.testing.assert_array_equal(np.asarray(copied), value)


def test_memory_of_other_libraries_that_is_copied(gpu: tuple[Device, SimulatedDriver]) -> None:
    """At addresses that programs do not expect, with axes in another order, and of 64-bit types."""
    _, driver = gpu
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    turned = Other(driver, value)
    turned.value = turned.value.T
    parts = Other(driver, value)
    parts.value = parts.value[:, ::2]
    for other in (Other(driver, value, offset=16), turned, Other(driver, value.astype(np.float64))):
        with pytest.raises(ArgumentError, match="without a copy"):
            weft.dlpack.from_dlpack(other, copy=False)
        found = weft.dlpack.from_dlpack(other)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found), other.value)
    with pytest.raises(TypeError, match="gaps between its elements"):
        weft.dlpack.from_dlpack(parts)


def test_memory_for_other_libraries(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    for dtype in ("float32", "bfloat16", "int8"):
        x = weft.device_put(np.arange(6).reshape(2, 3).astype(weft.dtypes.canonicalize_dtype(dtype)), device)
        assert x.__dlpack_device__() == (2, 0)
        for options, waits in (({"stream": 9, "max_version": (1, 0)}, 9), ({}, 1), ({"stream": -1}, None)):
            driver.calls.clear()
            capsule = x.__dlpack__(**options)  # type: ignore[arg-type]
            tensor = dlpack._get_tensor(capsule)
            assert tensor.data == x.unsafe_buffer_pointer() and (tensor.device_type, tensor.device_id) == (2, 0)
            assert driver.calls == ([f"{waits} waits for work"] if waits else [])
            assert tensor.code == (4 if dtype == "bfloat16" else tensor.code)
            del capsule, tensor
            assert driver.calls[1:] == ([f"work waits for {waits}"] if waits else [])
    assert dlpack._get_tensor(x.__dlpack__(copy=True)).data != x.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), np.asarray(x))
    interface = x.__cuda_array_interface__
    assert interface["data"] == (x.unsafe_buffer_pointer(), True) and interface["stream"] == driver.stream_handle
    assert not hasattr(wnp.ones(3), "__cuda_array_interface__")
    with pytest.raises(BufferError):
        weft.device_put(weft.random.key(0), device).__dlpack__()
