"""Arrays in few bits: what is packed is unpacked, and errors of quantization are below half a step."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import keras
from weft.errors import ArgumentError
from weft.keras import quantizers

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("dtype", "low"), [("int8", -8), ("uint8", 0)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_packed_integers(dtype: str, low: int, axis: int) -> None:
    values = RANDOM.integers(low, low + 16, (5, 3)).astype(dtype)
    packed, shape, size = quantizers.pack_int4(values, axis, dtype)
    assert packed.shape == shape and shape[axis] == (size + 1) // 2
    unpack = weft.jit(lambda x: quantizers.unpack_int4(x, size, axis, dtype))
    np.testing.assert_array_equal(unpack(packed), values)
    with pytest.raises(ArgumentError, match="int8 or uint8"):
        quantizers.pack_int4(values, axis, "int16")


def test_the_largest_value_is_the_largest_integer() -> None:
    x = RANDOM.normal(size=(4, 6)).astype("float32")
    quantizer = keras.quantizers.get("abs_max_quantizer", axis=-1)
    values, scale = weft.jit(quantizer)(x)
    assert values.dtype == np.int8 and np.abs(values).max(axis=1).tolist() == [127] * 4
    assert np.all(np.abs(np.asarray(values) / np.asarray(scale) - x) <= 0.501 / np.asarray(scale))
    again = quantizers.deserialize(quantizers.serialize(quantizer))
    assert again.get_config() == quantizer.get_config() and quantizers.get(None) is None
    with pytest.raises(ArgumentError, match="within -128 and 127"):
        quantizers.AbsMaxQuantizer(value_range=(-200, 127))
