"""Arrays shared with PyTorch, NumPy and JAX by DLPack, both ways."""

import gc

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import weft
import weft.numpy as wnp
from weft.dlpack import from_dlpack

KINDS = [torch.float32, torch.float16, torch.int32, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_from_torch_shares_memory(kind):
    source = torch.arange(64).reshape(4, 16).to(kind)
    x = from_dlpack(source)
    assert x.unsafe_buffer_pointer() == source.data_ptr()
    np.testing.assert_array_equal(x, source.numpy())
    np.testing.assert_array_equal(weft.jit(lambda v: v[::-1])(x), source.numpy()[::-1])
    expected = source.numpy().copy()
    del source
    gc.collect()
    np.testing.assert_array_equal(x, expected)  # the memory lives as long as the array


def test_to_torch_shares_memory_or_copies():
    x = weft.jit(lambda v: v * 2)(wnp.arange(20_000.0))
    y = torch.from_dlpack(x)
    np.testing.assert_array_equal(y.numpy(), np.asarray(x))
    assert torch.equal(torch.utils.dlpack.from_dlpack(x), y)
    shared = np.from_dlpack(x)
    assert np.shares_memory(shared, np.asarray(x)) and not shared.flags.writeable


def test_strided_tensors_and_copies():
    source = torch.arange(12.0).reshape(3, 4).t()
    np.testing.assert_array_equal(from_dlpack(source) + 1, source.numpy() + 1)
    x = from_dlpack(source, copy=True)
    source.zero_()
    assert float(x.sum()) == 66.0


def test_64_bit_types_need_a_copy():
    source = torch.arange(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="without a copy"):
        from_dlpack(source, copy=False)
    assert from_dlpack(source).dtype == np.float32
    with weft.enable_x64(True):
        assert from_dlpack(source, copy=False).unsafe_buffer_pointer() == source.data_ptr()


def test_jax_arrays_both_ways():
    source = jnp.arange(6.0)
    x = from_dlpack(source, copy=False)
    np.testing.assert_array_equal(x, source)
    np.testing.assert_array_equal(jnp.from_dlpack(x), x)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floats_that_numpy_has_not(kind):
    source = torch.arange(6.0).reshape(2, 3).to(kind)
    x = from_dlpack(source, copy=False)
    assert x.unsafe_buffer_pointer() == source.data_ptr() and str(x.dtype) == str(kind).removeprefix("torch.")
    assert x.tolist() == source.float().tolist()
    back = torch.from_dlpack(x)
    assert back.dtype == kind and back.float().tolist() == x.tolist()
    assert jnp.from_dlpack(x).dtype == x.dtype and from_dlpack(jnp.from_dlpack(x)).tolist() == x.tolist()


def test_what_cannot_be_exchanged():
    refused = (torch.ones(2, device="meta"), torch.ones(2).to_sparse(), torch.ones(2, requires_grad=True))
    for tensor in refused:
        with pytest.raises(TypeError, match="cannot be exchanged"):
            from_dlpack(tensor)
    with pytest.raises(TypeError, match="has DLPack"):
        from_dlpack([1, 2])
