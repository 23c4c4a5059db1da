"""Arrays in few bits: integers of 8 and 4 bits with a scale, and floats of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError, ArgumentTypeError, publish as _publish
from weft.keras.core import registry
from weft.keras.core.tables import find

_EPSILON = 1e-7


class Quantizer:
    """Makes arrays of few bits; a base class.

    Args:
        output_dtype: the dtype of the results.
    """

    def __init__(self, output_dtype: str = "int8") -> None:
        self.output_dtype = output_dtype

    def __call__(self, x: Any) -> Any:
        """Quantize an array; the base class returns it unchanged."""
        return x

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        raise NotImplementedError(f"{type(self).__name__} has no method `get_config`.")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Construct a quantizer from a config of `get_config`.

        Args:
            config: plain data.
        """
        return cls(**config)


class AbsMaxQuantizer(Quantizer):
    """Integers with a scale, by which the largest of the absolute values along some axes is the largest integer.

    Args:
        axis: the axes.
        value_range: the least and the largest integer.
        epsilon: added to the largest value, so that nothing is divided by 0.
        output_dtype: the dtype of the integers.

    Example:
        >>> import weft
        >>> from weft import keras
        >>> values, scale = keras.quantizers.AbsMaxQuantizer(axis=-1)(weft.numpy.array([1.0, -2.0]))
        >>> print(values, scale)
        [  64 -127] [63.5]
    """

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        value_range: tuple[int, int] = (-127, 127),
        epsilon: float = _EPSILON,
        output_dtype: str = "int8",
    ) -> None:
        super().__init__(output_dtype)
        self.axis = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        self.value_range = tuple(value_range)
        self.epsilon = epsilon
        if output_dtype == "int8" and not -128 <= self.value_range[0] <= self.value_range[1] <= 127:
            raise ArgumentError(
                "`value_range` of int8 must be within -128 and 127.", received=f"value_range={value_range}"
            )

    def __call__(self, x: Any, axis: Any = None, to_numpy: bool = False) -> tuple[Any, Any]:
        """Return the integers, and the scale that the values were multiplied by.

        Args:
            x: an array of floats.
            axis: the axes; those of the constructor where None, else the last one.
            to_numpy: accepted.
        """
        axis = self.axis if axis is None else axis
        options = (self.value_range, self.output_dtype, self.epsilon, to_numpy)
        return abs_max_quantize(x, -1 if axis is None else axis, *options)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        config = {
            "value_range": list(self.value_range),
            "epsilon": self.epsilon,
            "output_dtype": self.output_dtype,
        }
        return config if self.axis is None else {**config, "axis": list(self.axis)}


def abs_max_quantize(
    inputs: Any,
    axis: Any,
    value_range: Sequence[int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = _EPSILON,
    to_numpy: bool = False,
) -> tuple[Any, Any]:
    """Quantize to integers and a scale: `inputs` are about the integers divided by the scale.

    Args:
        inputs: an array of floats.
        axis: the axes that share a scale.
        value_range: the least and the largest integer; the latter is that of the largest absolute value.
        dtype: the dtype of the integers.
        epsilon: added to the largest value, so that nothing is divided by 0.
        to_numpy: accepted; results are the same.

    Returns:
        The integers, and the scale, whose axes have the size 1.

    Example:
        >>> import weft
        >>> from weft import keras
        >>> values, scale = keras.quantizers.abs_max_quantize(weft.numpy.array([[1.0, -2.0], [4.0, 0.0]]), axis=-1)
        >>> print(values)
        [[  64 -127]
         [ 127    0]]
    """
    inputs = wnp.asarray(inputs)
    axes = axis if isinstance(axis, int) else tuple(axis)
    scale = (value_range[1] / (wnp.max(wnp.abs(inputs), axis=axes, keepdims=True) + epsilon)).astype(inputs.dtype)
    values = wnp.clip(wnp.round(inputs * scale), value_range[0], value_range[1])
    return values.astype(dtype), scale


def compute_float8_scale(amax: Any, scale: Any, dtype_max: Any, margin: int = 0) -> Any:
    """Compute the next scale for 8-bit floats: `amax / dtype_max`, with a margin in powers of 2.

    Args:
        amax: the largest absolute value; where it is 0 or not finite, the scale stays.
        scale: the scale until now.
        dtype_max: the largest float of the dtype.
        margin: by how many powers of 2 less is used.

    Example:
        >>> import weft.numpy as wnp
        >>> from weft import keras
        >>> float(keras.quantizers.compute_float8_scale(wnp.float32(8.0), wnp.float32(1.0), wnp.float32(4.0)))
        2.0
    """
    amax, scale = wnp.asarray(amax), wnp.asarray(scale)
    factor = dtype_max / amax / 2**margin
    factor = wnp.where((amax > 0.0) & wnp.isfinite(amax), factor, 1 / scale)
    return 1 / factor


def compute_float8_amax_history(x: Any, amax_history: Any) -> Any:
    """Insert the largest absolute value of an array at the front of the history, and drop the oldest.

    Args:
        x: the array.
        amax_history: a vector, the last call's first.
    """
    amax_history = wnp.asarray(amax_history)
    newest = wnp.max(wnp.abs(x)).astype(amax_history.dtype)
    return wnp.roll(amax_history, -1).at[0].set(newest)


def quantize_and_dequantize(inputs: Any, scale: Any, quantized_dtype: Any, compute_dtype: Any) -> Any:
    """Round values to an 8-bit float: divide by the scale, clip, round, and multiply.

    Args:
        inputs: an array.
        scale: the scale.
        quantized_dtype: "float8_e4m3fn" or "float8_e5m2".
        compute_dtype: the dtype of the result.
    """
    largest = wnp.asarray(float(wnp.finfo(quantized_dtype).max), compute_dtype)
    scale = wnp.asarray(scale).astype(compute_dtype)
    values = wnp.clip(inputs / scale, -largest, largest).astype(quantized_dtype)
    return values.astype(compute_dtype) * scale


def pack_int4(arr: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, tuple[int, ...], int]:
    """Pack 4-bit integers two to a byte: those at even positions of an axis in the low bits.

    Args:
        arr: an array of `dtype` with values of 4 bits.
        axis: the axis along which pairs are packed.
        dtype: "int8" or "uint8".

    Returns:
        The bytes, their shape, and the size of the axis before.

    Example:
        >>> import weft
        >>> from weft import keras
        >>> packed, shape, size = keras.quantizers.pack_int4(weft.numpy.array([1, -2, 7], "int8"))
        >>> print(packed, shape, size, keras.quantizers.unpack_int4(packed, size))
        [-31   7] (2,) 3 [ 1 -2  7]
    """
    _check_bytes(dtype)
    values = wnp.asarray(arr)
    if str(values.dtype) != dtype:
        raise ArgumentTypeError(f"The argument of pack_int4 must have dtype {dtype}.", received=str(values.dtype))
    moved = wnp.moveaxis(values, axis, 0).astype(wnp.uint8)
    size = moved.shape[0]
    moved = wnp.pad(moved, [(0, size % 2), *[(0, 0)] * (moved.ndim - 1)])
    packed = (moved[::2] & 0x0F) | (moved[1::2] << 4)
    packed = wnp.moveaxis(packed.astype(dtype), 0, axis)
    return packed, packed.shape, size


def unpack_int4(packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8") -> Any:
    """Unpack the integers that `pack_int4` packed.

    Args:
        packed: the bytes.
        orig_len: the size of the axis before.
        axis: the axis.
        dtype: "int8" for values from -8 to 7, "uint8" for values from 0 to 15.
    """
    _check_bytes(dtype)
    packed = wnp.asarray(packed)
    if str(packed.dtype) not in ("int8", "uint8"):
        raise ArgumentTypeError(
            "The argument of unpack_int4 must have dtype int8 or uint8.", received=str(packed.dtype)
        )
    moved = wnp.moveaxis(packed, axis, 0).astype(wnp.uint8)
    halves = wnp.stack([moved & 0x0F, moved >> 4], axis=1).reshape(-1, *moved.shape[1:])[:orig_len]
    if dtype == "int8":
        halves = (halves ^ 8).astype(wnp.int8) - 8
    return wnp.moveaxis(halves.astype(dtype), 0, axis)


def _check_bytes(dtype: str) -> None:
    if dtype not in ("int8", "uint8"):
        raise ArgumentError(
            "`dtype` must be int8 or uint8, which 4-bit integers are packed in.", received=f"dtype={dtype!r}"
        )


def serialize(initializer: Quantizer) -> Any:
    """Convert a quantizer to plain data.

    Args:
        initializer: the quantizer.
    """
    return registry.serialize_keras_object(initializer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a quantizer from the data of `serialize`.

    Args:
        config: plain data.
        custom_objects: further classes by name.
    """
    return registry.deserialize_keras_object(config, custom_objects=custom_objects, kind="quantizers")


def get(identifier: Any, **kwargs: Any) -> Any:
    """Return a quantizer from its name, its config, or itself; None stays None.

    Args:
        identifier: the name, config, class or quantizer.
        **kwargs: arguments for a class.
    """
    if kwargs and isinstance(identifier, str):
        identifier = find("quantizers", identifier)
    if kwargs and isinstance(identifier, type):
        return identifier(**kwargs)
    return registry.get("quantizers", identifier)


registry.register("quantizers", Quantizer, AbsMaxQuantizer)
_publish(__name__)
