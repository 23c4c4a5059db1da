"""Arrays of a GPU shared with PyTorch, JAX and CuPy: the same memory, in the order of both libraries' work."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import weft
from weft import lax
from weft.runtime.cuda import driver

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def needs_a_gpu() -> None:
    if not driver.count() or not torch.cuda.is_available():
        pytest.skip("there is no GPU")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool", "complex64", "int32"])
def test_torch_has_the_memory(dtype: str) -> None:
    gpu = weft.devices("gpu")[0]
    x = weft.device_put(np.arange(12).reshape(3, 4).astype(weft.dtypes.canonicalize_dtype(dtype)), gpu)
    tensor = torch.from_dlpack(x)
    assert tensor.data_ptr() == x.unsafe_buffer_pointer() and str(tensor.dtype) == f"torch.{dtype}"
    assert tuple(tensor.shape) == (3, 4) and tensor.is_contiguous()
    np.testing.assert_array_equal(tensor.cpu().to(torch.complex64).numpy(), np.asarray(x).astype(np.complex64))
    back = weft.dlpack.from_dlpack(tensor)
    assert back.unsafe_buffer_pointer() == tensor.data_ptr() and back.dtype == x.dtype and back.device is gpu
    np.testing.assert_array_equal(np.asarray(back), np.asarray(x))


def test_work_is_ordered_both_ways() -> None:
    """A long program of one library writes what the other one reads, in its own stream."""
    gpu = weft.devices("gpu")[0]
    ones = np.ones((4096, 4096), np.float32)
    w = weft.device_put(ones / 4096, gpu)
    long = weft.jit(lambda w: lax.fori_loop(0, 20, lambda i, c: c @ w, w * 0 + 1))
    long(w).block_until_ready()
    side = torch.cuda.Stream()
    for i in range(5):
        y = long(w) + i
        with torch.cuda.stream(side):
            read = torch.from_dlpack(y) * 2
        del y  # its memory is used again only when PyTorch has read it
        weft.device_put(ones * 100, gpu)
        with torch.cuda.stream(side):
            slow = torch.ones(4096, 4096, device="cuda") / 4096
            for _ in range(20):
                slow = slow @ slow * 1.0
            x = weft.dlpack.from_dlpack(slow)
            z = x * 2
            expected = (slow * 2).cpu().numpy()
            del x, slow
            torch.empty(4096, 4096, device="cuda").fill_(9)
        np.testing.assert_allclose(read.cpu().numpy(), 2 * (1 + i), rtol=1e-3)
        np.testing.assert_allclose(np.asarray(z), expected, rtol=1e-6)
    gc.collect()


def test_tensors_that_are_copied() -> None:
    tensor = torch.arange(24, device="cuda", dtype=torch.float32).reshape(4, 6)
    np.testing.assert_array_equal(np.asarray(weft.dlpack.from_dlpack(tensor.T)), tensor.T.cpu().numpy())
    np.testing.assert_array_equal(np.asarray(weft.dlpack.from_dlpack(tensor[1:])), tensor[1:].cpu().numpy())
    np.testing.assert_array_equal(np.asarray(weft.dlpack.from_dlpack(tensor.double())), tensor.cpu().numpy())
    with pytest.raises(TypeError, match="contiguous"):
        weft.dlpack.from_dlpack(tensor[:, ::2])


def test_jax_has_the_memory() -> None:
    jax: Any = pytest.importorskip("jax")
    gpu = weft.devices("gpu")[0]
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    x = weft.device_put(np.arange(1024, dtype=np.float32), gpu)
    other = jax.dlpack.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(other), np.asarray(x))
    back = weft.dlpack.from_dlpack(other * 2)
    np.testing.assert_array_equal(np.asarray(back), np.asarray(x) * 2)


def test_cupy_has_the_memory() -> None:
    cupy: Any = pytest.importorskip("cupy")
    x = weft.device_put(np.arange(12, dtype=np.float32).reshape(3, 4), weft.devices("gpu")[0])
    for other in (cupy.from_dlpack(x), cupy.asarray(x)):
        assert other.data.ptr == x.unsafe_buffer_pointer()
        np.testing.assert_array_equal(cupy.asnumpy(other), np.asarray(x))
    np.testing.assert_array_equal(np.asarray(weft.dlpack.from_dlpack(cupy.arange(5))), np.arange(5))
