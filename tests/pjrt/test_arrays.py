"""Arrays in the memory of a plugin's devices: transfers both ways, copies, waiting, deletion."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors
from weft.base import dtypes
from weft.runtime.pjrt.client import ELEMENT_TYPES, Buffer
from weft.sharding.device import Device

SHAPES = [(), (1,), (7,), (0, 3), (2, 3), (2, 3, 4), (1, 1, 5, 1)]
NAMES = [n for n in ELEMENT_TYPES if n in dtypes.DTYPES and n not in ("int64", "uint64", "float64", "complex128")]


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_comes_back_with_the_same_bits(name: str, devices: list[Device]) -> None:
    dtype = dtypes.as_dtype(name)
    for shape in SHAPES:
        value = np.arange(int(np.prod(shape))).reshape(shape).astype(np.float32).astype(dtype)
        x = weft.device_put(value, devices[0])
        assert x.device is devices[0] and x.committed and x.dtype == dtype
        assert type(x._memory) is Buffer and np.asarray(x).tobytes() == value.tobytes()
        y = weft.device_put(x, devices[1])
        assert y.device is devices[1] and np.asarray(y).tobytes() == value.tobytes()
        z = weft.device_put(y, weft.devices("cpu")[0])
        assert z.device.platform == "cpu" and np.asarray(z).tobytes() == value.tobytes()


def test_64_bits(device: Device) -> None:
    with weft.enable_x64(True):
        for dtype in (np.int64, np.uint64, np.float64, np.complex128):
            value = np.array([1, 2**40 + 1, 3]).astype(dtype)
            assert np.asarray(weft.device_put(value, device) + dtype(1)).tobytes() == (value + dtype(1)).tobytes()


def test_strided_and_foreign_arrays(device: Device) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for value in (base.T, base[::2, ::-1], np.broadcast_to(np.float32(2), (3, 4)), base.astype(">f4")):
        np.testing.assert_array_equal(np.asarray(weft.device_put(value, device)), value)
    assert np.asarray(wnp.asarray([1, 2], device=device)).tolist() == [1, 2]


def test_random_keys(device: Device) -> None:
    keys = weft.random.split(weft.random.key(3), 4)
    for key in (keys, keys[0]):
        there = weft.device_put(key, device)
        assert there.device is device and there.dtype == key.dtype
        np.testing.assert_array_equal(weft.random.key_data(there), weft.random.key_data(key))
        np.testing.assert_array_equal(
            weft.vmap(weft.random.bits)(there) if key.shape else weft.random.bits(there),
            weft.vmap(weft.random.bits)(key) if key.shape else weft.random.bits(key),
        )


def test_unknown_dtypes_are_refused(device: Device) -> None:
    import ml_dtypes

    with pytest.raises(errors.NotSupportedError, match="dtype of XLA"):
        weft.device_put(np.zeros(2, ml_dtypes.float6_e2m3fn), device)


def test_waiting_and_asynchronous_copies(device: Device) -> None:
    x = weft.device_put(np.ones((300, 300), np.float32), device)
    y = weft.jit(lambda x: (x @ x).sum())(x)
    assert y.block_until_ready() is y and y.is_ready() and weft.block_until_ready([x, y]) == [x, y]
    z = x + 1
    z.copy_to_host_async()
    z.copy_to_host_async()
    assert float(z[0, 0]) == 2.0 and np.asarray(z).flags.writeable is False
    w = x * 2
    w.copy_to_host_async()
    del w  # the copy ends before its memory is freed
    gc.collect()


def test_threads_copy_the_same_array(device: Device) -> None:
    expected = np.arange(50_000, dtype=np.float32)
    for _ in range(20):
        x = weft.device_put(expected, device) + 1
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i, x=x: (i % 2 and x.copy_to_host_async()) or np.asarray(x).sum(), range(16)))
        assert set(found) == {(expected + 1).sum()}


def test_memory_is_freed_with_the_last_reference(device: Device) -> None:
    with weft.default_device(device):
        x = wnp.ones(1000)
    buffer = weakref.ref(x._memory)
    y = weft.device_put(x, device)  # the same memory, committed
    x.delete()
    assert x.is_deleted() and not y.is_deleted() and buffer() is not None
    with pytest.raises(errors.DonatedArrayError):
        x + 1
    del y
    gc.collect()
    assert buffer() is None


def test_pickles_and_copies(device: Device) -> None:
    x = weft.device_put(np.arange(3.0, dtype=np.float32), device)
    assert pickle.loads(pickle.dumps(x)).tolist() == [0, 1, 2]
    for same in (copy.copy(x), copy.deepcopy(x), weft.device_put(x, device, may_alias=False)):
        assert same.device is device and same._memory is not x._memory and same.tolist() == [0, 1, 2]


def test_other_libraries_get_copies(device: Device) -> None:
    x = weft.device_put(np.arange(3.0, dtype=np.float32), device)
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="must be copied to the host"):
        np.from_dlpack(x)
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), [0, 1, 2])


def test_devices(devices: list[Device]) -> None:
    assert len(devices) == weft.config.num_cpu_devices
    assert [d.id for d in devices] == list(range(len(devices))) and devices[0].platform == "pjrt:cpu"
    assert weft.local_devices(backend="pjrt:cpu") == devices and "pjrt:cpu" in weft.extend.backend.backends()
    statistics = devices[0].memory_stats()
    assert statistics is None or statistics["bytes_in_use"] >= 0
    with weft.default_device(devices[1]):
        assert wnp.zeros(2).device is devices[1] and weft.default_backend() == "pjrt:cpu"
    with weft.default_device("pjrt:cpu"):
        assert wnp.zeros(2).device is devices[0]


def test_checkpoints(device: Device, tmp_path) -> None:
    from weft import checkpointing

    state = {"w": weft.device_put(np.arange(6.0, dtype=np.float32).reshape(2, 3), device), "step": wnp.int32(3)}
    checkpointing.save(str(tmp_path / "state"), state)
    found = checkpointing.restore(str(tmp_path / "state"), like=state)
    np.testing.assert_array_equal(found["w"], state["w"])
    assert found["w"].device is device and int(found["step"]) == 3
