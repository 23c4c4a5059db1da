"""Convolutions: plain, transposed, depthwise and separable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.errors import ArgumentError
from weft.haiku import pad
from weft.haiku.initializers import TruncatedNormal
from weft.haiku.layers.format import get_channel_index
from weft.haiku.module import Module
from weft.haiku.parameters import get_parameter
from weft.haiku.typing import Initializer

Sizes = int | Sequence[int]
Padding = (
    str | Sequence[tuple[int, int]] | Callable[[int], tuple[int, int]] | Sequence[Callable[[int], tuple[int, int]]]
)


def _sizes(value: Sizes, rank: int, module: Module, what: str) -> tuple[int, ...]:
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) == 1:
        sizes = sizes * rank
    if len(sizes) != rank:
        raise ArgumentError(
            f"{type(module).__name__} {module.module_name!r} needs {what} as one int or {rank}, got {value!r}."
        )
    return sizes


def _dimension_numbers(rank: int, index: int, kernel: str) -> lax.ConvDimensionNumbers:
    """Return the dimension numbers; `kernel` is the order of the last two axes of the kernel ('IO' or 'OI')."""
    spatial = tuple(range(1, rank + 1)) if index == -1 else tuple(range(2, rank + 2))
    channels = rank + 1 if index == -1 else 1
    data = (0, channels, *spatial)
    taps = tuple(range(rank))
    weights = (rank + 1, rank, *taps) if kernel == "IO" else (rank, rank + 1, *taps)
    return lax.ConvDimensionNumbers(data, weights, data)


class _Convolution(Module):
    """Base of convolutions: sizes, format, masked weights, bias, and inputs without a batch dimension."""

    kernel = "IO"

    def __init__(
        self,
        num_spatial_dims: int,
        kernel_shape: Sizes,
        stride: Sizes,
        with_bias: bool,
        w_init: Initializer | None,
        b_init: Initializer | None,
        data_format: str,
        mask: Any,
        name: str | None,
    ):
        super().__init__(name=name)
        if num_spatial_dims <= 0:
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} needs one spatial dimension or more, got "
                f"{num_spatial_dims}."
            )
        self.num_spatial_dims = num_spatial_dims
        self.kernel_shape = _sizes(kernel_shape, num_spatial_dims, self, "kernel_shape")
        self.stride = _sizes(stride, num_spatial_dims, self, "stride")
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = b_init or wnp.zeros
        self.mask = mask
        self.data_format = data_format
        self.channel_index = get_channel_index(data_format)
        self.dimension_numbers = _dimension_numbers(num_spatial_dims, self.channel_index, self.kernel)

    def _add_batch(self, inputs: Any) -> tuple[Any, bool]:
        """Return inputs with a batch dimension, and whether they had one."""
        rank = self.num_spatial_dims
        if inputs.ndim not in (rank + 1, rank + 2):
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} needs inputs of {rank + 1} or {rank + 2} dimensions "
                f"({self.data_format}).",
                received=f"shape {inputs.shape}",
                fix=f"reshape the inputs to one batch dimension, {rank} spatial ones and the channels",
            )
        there = inputs.ndim == rank + 2
        return (inputs if there else wnp.expand_dims(inputs, 0)), there

    def _weights(self, shape: tuple[int, ...], fan_in: int, dtype: Any) -> Any:
        init = self.w_init or TruncatedNormal(stddev=1.0 / np.sqrt(fan_in))
        w = get_parameter("w", shape, dtype, init=init)
        if self.mask is None:
            return w
        if tuple(self.mask.shape) != shape:
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} needs a mask of the shape of its weights {shape}, got "
                f"{tuple(self.mask.shape)}."
            )
        return w * self.mask

    def _finish(self, out: Any, channels: int, was_batched: bool) -> Any:
        if self.with_bias:
            shape = (channels,) if self.channel_index == -1 else (channels,) + (1,) * self.num_spatial_dims
            b = get_parameter("b", shape, out.dtype, init=self.b_init)
            out = out + wnp.broadcast_to(b, out.shape)
        return out if was_batched else wnp.squeeze(out, 0)


class ConvND(_Convolution):
    """A convolution over `num_spatial_dims` dimensions, with weights (kernel..., inputs / groups, outputs)."""

    def __init__(
        self,
        num_spatial_dims: int,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        mask: Any = None,
        feature_group_count: int = 1,
        name: str | None = None,
    ):
        super().__init__(num_spatial_dims, kernel_shape, stride, with_bias, w_init, b_init, data_format, mask, name)
        self.output_channels = output_channels
        self.rate = _sizes(rate, num_spatial_dims, self, "rate")
        self.feature_group_count = feature_group_count
        if any(step != 1 for step in self.stride) and any(step != 1 for step in self.rate):
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} cannot have both a stride ({self.stride}) and a rate "
                f"({self.rate}) other than 1."
            )
        self.padding = _padding(padding, self.kernel_shape, self.rate, num_spatial_dims, self)

    def __call__(self, inputs: Any, *, precision: Any = None) -> Any:
        batched, was_batched = self._add_batch(inputs)
        channels = batched.shape[self.channel_index]
        self._check_groups(channels)
        shape = (*self.kernel_shape, channels // self.feature_group_count, self.output_channels)
        w = self._weights(shape, math.prod(shape[:-1]), inputs.dtype)
        out = lax.conv_general_dilated(
            batched,
            w,
            self.stride,
            self.padding,
            rhs_dilation=self.rate,
            dimension_numbers=self.dimension_numbers,
            feature_group_count=self.feature_group_count,
            precision=precision,
        )
        return self._finish(out, self.output_channels, was_batched)

    def _check_groups(self, channels: int) -> None:
        if channels % self.feature_group_count:
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} has {self.feature_group_count} groups, which do not "
                f"divide the {channels} channels of its input."
            )


def _padding(padding: Any, kernel: tuple[int, ...], rate: tuple[int, ...], rank: int, module: Module) -> Any:
    """Convert padding functions and tuples to pairs; return 'SAME' and 'VALID' unchanged."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ArgumentError(
                f"{type(module).__name__} {module.module_name!r} got padding={padding!r}; 'SAME', "
                "'VALID', pairs, or functions such as hk.pad.causal are expected."
            )
        return padding.upper()
    if pad.is_padfn(padding):
        return pad.create_from_padfn(padding, kernel, rate, rank)
    return pad.create_from_tuple(padding, rank)


class Conv1D(ConvND):
    """A convolution over one dimension.

    Args:
        output_channels: the number of channels of the result.
        kernel_shape: the sizes of the window.
        stride: its steps.
        rate: the distance of its elements.
        padding: "SAME", "VALID", a function, or pairs (low, high).
        with_bias: whether a bias is added.
        w_init: the initializer of the weights.
        b_init: the initializer of the bias.
        data_format: the order of dimensions, such as "NHWC" or "NCHW".
        mask: factors of the weights, 0 or 1.
        feature_group_count: the number of channel groups that are convolved separately.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Conv1D(8, 3)(x))
    >>> x = wnp.ones((1, 6, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 6, 8)
    """

    def __init__(
        self,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NWC",
        mask: Any = None,
        feature_group_count: int = 1,
        name: str | None = None,
    ):
        super().__init__(
            1, output_channels, kernel_shape, stride, rate, padding, with_bias, w_init, b_init, data_format, mask,
            feature_group_count, name,
        )  # fmt: skip


class Conv2D(ConvND):
    """A convolution over two dimensions.

    Args:
        output_channels: the number of channels of the result.
        kernel_shape: the sizes of the window.
        stride: its steps.
        rate: the distance of its elements.
        padding: "SAME", "VALID", a function, or pairs (low, high).
        with_bias: whether a bias is added.
        w_init: the initializer of the weights.
        b_init: the initializer of the bias.
        data_format: the order of dimensions, such as "NHWC" or "NCHW".
        mask: factors of the weights, 0 or 1.
        feature_group_count: the number of channel groups that are convolved separately.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Conv2D(8, 3)(x))
    >>> x = wnp.ones((1, 6, 6, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 6, 6, 8)
    """

    def __init__(
        self,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NHWC",
        mask: Any = None,
        feature_group_count: int = 1,
        name: str | None = None,
    ):
        super().__init__(
            2, output_channels, kernel_shape, stride, rate, padding, with_bias, w_init, b_init, data_format, mask,
            feature_group_count, name,
        )  # fmt: skip


class Conv3D(ConvND):
    """A convolution over three dimensions.

    Args:
        output_channels: the number of channels of the result.
        kernel_shape: the sizes of the window.
        stride: its steps.
        rate: the distance of its elements.
        padding: "SAME", "VALID", a function, or pairs (low, high).
        with_bias: whether a bias is added.
        w_init: the initializer of the weights.
        b_init: the initializer of the bias.
        data_format: the order of dimensions, such as "NHWC" or "NCHW".
        mask: factors of the weights, 0 or 1.
        feature_group_count: the number of channel groups that are convolved separately.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Conv3D(2, 3)(x))
    >>> x = wnp.ones((1, 4, 4, 4, 1))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 4, 4, 4, 2)
    """

    def __init__(
        self,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NDHWC",
        mask: Any = None,
        feature_group_count: int = 1,
        name: str | None = None,
    ):
        super().__init__(
            3, output_channels, kernel_shape, stride, rate, padding, with_bias, w_init, b_init, data_format, mask,
            feature_group_count, name,
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- transposed


class ConvNDTranspose(_Convolution):
    """The transpose of a convolution with a stride, with weights (kernel..., outputs, inputs)."""

    kernel = "OI"

    def __init__(
        self,
        num_spatial_dims: int,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        output_shape: Sizes | None = None,
        padding: str | Sequence[tuple[int, int]] = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        mask: Any = None,
        name: str | None = None,
    ):
        super().__init__(num_spatial_dims, kernel_shape, stride, with_bias, w_init, b_init, data_format, mask, name)
        self.output_channels = output_channels
        self.output_shape = (
            None if output_shape is None else _sizes(output_shape, num_spatial_dims, self, "output_shape")
        )
        ones = (1,) * num_spatial_dims
        self.padding = _padding(padding, self.kernel_shape, ones, num_spatial_dims, self)
        if self.output_shape is not None and not isinstance(self.padding, str):
            raise ArgumentError(
                f"{type(self).__name__} {self.module_name!r} with an output_shape needs padding 'SAME' or 'VALID', got "
                f"{padding!r}."
            )

    def __call__(self, inputs: Any, *, precision: Any = None) -> Any:
        batched, was_batched = self._add_batch(inputs)
        channels = batched.shape[self.channel_index]
        shape = (*self.kernel_shape, self.output_channels, channels)
        w = self._weights(shape, math.prod(self.kernel_shape) * channels, inputs.dtype)
        padding = self.padding
        if self.output_shape is not None:
            spatial = batched.shape[1:-1] if self.channel_index == -1 else batched.shape[2:]
            padding = [
                _transpose_padding(self, size, out, taps, step)
                for size, out, taps, step in zip(
                    spatial, self.output_shape, self.kernel_shape, self.stride, strict=True
                )
            ]
        result = lax.conv_transpose(
            batched, w, self.stride, padding, dimension_numbers=self.dimension_numbers, precision=precision
        )
        return self._finish(result, self.output_channels, was_batched)


def _transpose_padding(module: ConvNDTranspose, size: int, output: int, taps: int, step: int) -> tuple[int, int]:
    """Return the padding of the dilated input for a given output size.

    The corresponding convolution maps `output` to `size`. Where it pads `before`, its transpose pads the rest of the
    kernel; the remaining padding is at the end.
    """
    if module.padding == "VALID":
        expected, before = (output - taps + step) // step, 0
    else:
        expected, before = (output + step - 1) // step, max(0, (size - 1) * step + taps - output) // 2
    if size != expected:
        raise ArgumentError(
            f"{type(module).__name__} {module.module_name!r} cannot make {output} of {size} with kernel {taps}, stride "
            f"{step} and padding {module.padding!r}: that needs an input of {expected}."
        )
    low = taps - 1 - before
    return low, output + taps - 2 - (size - 1) * step - low


class Conv1DTranspose(ConvNDTranspose):
    """The transpose of a convolution over one dimension."""

    def __init__(
        self,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        output_shape: Sizes | None = None,
        padding: str | Sequence[tuple[int, int]] = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NWC",
        mask: Any = None,
        name: str | None = None,
    ):
        super().__init__(
            1, output_channels, kernel_shape, stride, output_shape, padding, with_bias, w_init, b_init, data_format,
            mask, name,
        )  # fmt: skip


class Conv2DTranspose(ConvNDTranspose):
    """The transpose of a convolution over two dimensions.

    Args:
        output_channels: the number of channels of the result.
        kernel_shape: the sizes of the window.
        stride: its steps.
        output_shape: the sizes of the result.
        padding: "SAME", "VALID", a function, or pairs (low, high).
        with_bias: whether a bias is added.
        w_init: the initializer of the weights.
        b_init: the initializer of the bias.
        data_format: the order of dimensions, such as "NHWC" or "NCHW".
        mask: factors of the weights, 0 or 1.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Conv2DTranspose(8, 2, stride=2)(x))
    >>> x = wnp.ones((1, 3, 3, 2))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 6, 6, 8)
    """

    def __init__(
        self,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        output_shape: Sizes | None = None,
        padding: str | Sequence[tuple[int, int]] = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NHWC",
        mask: Any = None,
        name: str | None = None,
    ):
        super().__init__(
            2, output_channels, kernel_shape, stride, output_shape, padding, with_bias, w_init, b_init, data_format,
            mask, name,
        )  # fmt: skip


class Conv3DTranspose(ConvNDTranspose):
    """The transpose of a convolution over three dimensions.

    Args:
        output_channels: the number of channels of the result.
        kernel_shape: the sizes of the window.
        stride: its steps.
        output_shape: the sizes of the result.
        padding: "SAME", "VALID", a function, or pairs (low, high).
        with_bias: whether a bias is added.
        w_init: the initializer of the weights.
        b_init: the initializer of the bias.
        data_format: the order of dimensions, such as "NHWC" or "NCHW".
        mask: factors of the weights, 0 or 1.
        name: the name of the module within its parent; by default derived from its class.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Conv3DTranspose(2, 2, stride=2)(x))
    >>> x = wnp.ones((1, 2, 2, 2, 1))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 4, 4, 4, 2)
    """

    def __init__(
        self,
        output_channels: int,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        output_shape: Sizes | None = None,
        padding: str | Sequence[tuple[int, int]] = "SAME",
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NDHWC",
        mask: Any = None,
        name: str | None = None,
    ):
        super().__init__(
            3, output_channels, kernel_shape, stride, output_shape, padding, with_bias, w_init, b_init, data_format,
            mask, name,
        )  # fmt: skip
