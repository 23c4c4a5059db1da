"""Convolutions over (batch..., spatial..., features)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError, NotSupportedError, ShapeMismatchError, user_line
from weft.linen import initializers
from weft.linen.dtypes import promote_dtype
from weft.linen.linear import Padding, as_tuple, canonicalize_padding, choose_function, default_kernel_init
from weft.linen.methods import compact
from weft.linen.module import Module


def _dimension_numbers(rank: int) -> tuple[str, str, str]:
    """Return the dimension numbers of (batch, spatial, feature) inputs and (spatial, in, out) kernels."""
    spatial = "DHW"[-rank:] if rank <= 3 else "".join(chr(ord("a") + i) for i in range(rank))
    return f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"


def _sizes(value: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    return (1 if value is None else value,) * rank if value is None or isinstance(value, int) else tuple(value)


def _wrap_around(inputs: Any, padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[Any, Any]:
    """Apply paddings that depend on the input, such as circular padding; return it and the remaining padding."""
    reach = [(size - 1) * step for size, step in zip(kernel, dilation, strict=True)]
    if padding in ("CIRCULAR", "REFLECT"):
        pads = [(0, 0), *((r // 2, (r + 1) // 2) for r in reach), (0, 0)]
        return wnp.pad(inputs, pads, mode="wrap" if padding == "CIRCULAR" else "reflect"), "VALID"
    if padding == "CAUSAL":
        if len(kernel) != 1:
            raise ArgumentError(f"Causal padding is for one spatial dimension, got kernel_size={tuple(kernel)}.")
        return wnp.pad(inputs, [(0, 0), (reach[0], 0), (0, 0)]), "VALID"
    return inputs, padding


def _one_batch(inputs: Any, rank: int, where: str) -> tuple[Any, tuple[int, ...]]:
    """Reshape inputs to exactly one batch dimension; return them and their original batch dimensions."""
    batch = inputs.shape[: inputs.ndim - rank - 1]
    if inputs.ndim < rank + 1:
        raise ShapeMismatchError(
            f"Convolution {where} has {rank} spatial dimensions, so its input needs {rank + 1} or more.",
            at=user_line(),
            received=f"shape {inputs.shape}",
            fix=f"reshape to (batch, {', '.join('xyzw'[:rank]) if rank < 5 else '...'}, channels)",
        )
    if len(batch) != 1:
        inputs = wnp.reshape(inputs, (math.prod(batch), *inputs.shape[len(batch) :]))
    return inputs, batch


def _apply_mask(kernel: Any, mask: Any, where: str) -> Any:
    if mask is None:
        return kernel
    if wnp.shape(mask) != kernel.shape:
        raise ShapeMismatchError(
            f"mask of {where} must have the shape of the kernel.",
            at=user_line(),
            received=f"mask {wnp.shape(mask)}, kernel {kernel.shape}",
        )
    return kernel * mask


class _Conv(Module):
    """The common part of `Conv` and `ConvLocal`."""

    features: int
    kernel_size: int | Sequence[int]
    strides: int | Sequence[int] | None = 1
    padding: Padding = "SAME"
    input_dilation: int | Sequence[int] | None = 1
    kernel_dilation: int | Sequence[int] | None = 1
    feature_group_count: int = 1
    use_bias: bool = True
    mask: Any = None
    dtype: Any = None
    param_dtype: Any = wnp.float32
    precision: Any = None
    kernel_init: Callable[..., Any] = default_kernel_init
    bias_init: Callable[..., Any] = initializers.zeros
    promote_dtype: Callable[..., Any] = promote_dtype
    conv_general_dilated: Callable[..., Any] | None = None
    conv_general_dilated_cls: Any = None

    @property
    def shared_weights(self) -> bool:
        """Whether all positions share one kernel."""
        return True

    @compact
    def __call__(self, inputs: Any) -> Any:
        window = as_tuple(self.kernel_size)
        rank, where = len(window), self._where()
        inputs, batch = _one_batch(wnp.asarray(inputs), rank, where)
        strides = _sizes(self.strides, rank)
        input_dilation, kernel_dilation = _sizes(self.input_dilation, rank), _sizes(self.kernel_dilation, rank)
        padding = canonicalize_padding(self.padding, rank, where)
        inputs, padding = _wrap_around(inputs, padding, window, kernel_dilation)
        in_features = inputs.shape[-1]
        if in_features % self.feature_group_count:
            raise ShapeMismatchError(
                f"Convolution {where} needs input features that its groups divide.",
                at=user_line(),
                received=f"{in_features} features and feature_group_count={self.feature_group_count}",
            )
        layout = _dimension_numbers(rank)
        if self.shared_weights:
            kernel_shape = (*window, in_features // self.feature_group_count, self.features)
            bias_shape: tuple[int, ...] = (self.features,)
        else:
            if self.feature_group_count != 1:
                raise NotSupportedError(f"ConvLocal {where} has no groups; got {self.feature_group_count}.")
            output_sizes = self._output_sizes(inputs.shape, window, strides, padding, input_dilation, kernel_dilation)
            kernel_shape = (*output_sizes, math.prod(window) * in_features, self.features)
            bias_shape = (*output_sizes, self.features)

        kernel = self.param("kernel", self.kernel_init, kernel_shape, self.param_dtype)
        kernel = _apply_mask(kernel, self.mask, where)
        bias = self.param("bias", self.bias_init, bias_shape, self.param_dtype) if self.use_bias else None
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        if self.shared_weights:
            convolve = choose_function(
                self.conv_general_dilated, self.conv_general_dilated_cls, lax.conv_general_dilated
            )
            out = convolve(
                inputs,
                kernel,
                strides,
                padding,
                lhs_dilation=input_dilation,
                rhs_dilation=kernel_dilation,
                dimension_numbers=layout,
                feature_group_count=self.feature_group_count,
                precision=self.precision,
            )
        else:
            out = lax.conv_general_dilated_local(
                inputs,
                kernel,
                strides,
                padding,
                window,
                lhs_dilation=input_dilation,
                rhs_dilation=kernel_dilation,
                dimension_numbers=layout,
                precision=self.precision,
            )
        if bias is not None:
            out = out + bias
        return out if len(batch) == 1 else wnp.reshape(out, (*batch, *out.shape[1:]))

    def _output_sizes(
        self, shape: Any, window: Any, strides: Any, padding: Any, base_dilation: Any, dilation: Any
    ) -> tuple[int, ...]:
        """Return the number of window positions in each spatial dimension."""
        sizes = tuple((size - 1) * step + 1 for size, step in zip(shape[1:-1], base_dilation, strict=True))
        reach = tuple((size - 1) * step + 1 for size, step in zip(window, dilation, strict=True))
        pads = lax.padtype_to_pads(sizes, reach, strides, padding) if isinstance(padding, str) else padding
        rows = zip(sizes, reach, strides, pads, strict=True)
        return tuple((size + low + high - width) // step + 1 for size, width, step, (low, high) in rows)


class Conv(_Conv):
    """A window of weights slides over the spatial dimensions. The kernel is (window..., features in / groups, out).

    Args:
        features: the number of features of the result.
        kernel_size: the sizes of the window; an integer for one dimension.
        strides: the steps of the window.
        padding: "SAME", "VALID", "CIRCULAR", "CAUSAL", "REFLECT", an integer or pairs (low, high).
        input_dilation, kernel_dilation: the distance of elements of the input and of the kernel.
        feature_group_count: the number of feature groups that are convolved separately.
        use_bias: whether a bias is added.
        mask: factors of the kernel, 0 or 1.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        precision: the precision of matrix products, as for `weft.lax.dot_general`.
        kernel_init, bias_init: initializers.
        promote_dtype: the function that converts inputs and parameters to one dtype.
        conv_general_dilated, conv_general_dilated_cls: a function to convolve with, or a module class that makes one.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.Conv(8, (3, 3))
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 6, 6, 3)))
    >>> y.shape
    (1, 6, 6, 8)
    """


class ConvLocal(_Conv):
    """As `Conv`, but every position has a kernel of its own: (positions..., window · features in, features out)."""

    @property
    def shared_weights(self) -> bool:
        return False


class ConvTranspose(Module):
    """The transpose of a convolution: it adds each input, times the kernel, to a window of the result.

    Args:
        features: the number of features of the result.
        kernel_size: the sizes of the window; an integer for one dimension.
        strides: the factors by which the spatial dimensions grow.
        padding: "SAME", "VALID", "CIRCULAR", "CAUSAL", "REFLECT", an integer or pairs (low, high).
        kernel_dilation: the distance of elements of the kernel.
        use_bias: whether a bias is added.
        mask: factors of the kernel, 0 or 1.
        dtype: the dtype to compute in; promoted from inputs and parameters by default.
        param_dtype: the dtype of the parameters.
        precision: the precision of matrix products, as for `weft.lax.dot_general`.
        kernel_init: the initializer of the kernel.
        bias_init: the initializer of the bias.
        transpose_kernel: whether the kernel is that of the convolution, so that this is its gradient.
        promote_dtype: the function that converts inputs and parameters to one dtype.
        preferred_element_type: the dtype to accumulate in and of the result.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.ConvTranspose(8, (2, 2), strides=(2, 2))
    >>> y, variables = layer.init_with_output(random.key(0), wnp.ones((1, 4, 4, 3)))
    >>> y.shape
    (1, 8, 8, 8)
    """

    features: int
    kernel_size: int | Sequence[int]
    strides: Sequence[int] | None = None
    padding: Padding = "SAME"
    kernel_dilation: Sequence[int] | None = None
    use_bias: bool = True
    mask: Any = None
    dtype: Any = None
    param_dtype: Any = wnp.float32
    precision: Any = None
    kernel_init: Callable[..., Any] = default_kernel_init
    bias_init: Callable[..., Any] = initializers.zeros
    transpose_kernel: bool = False
    promote_dtype: Callable[..., Any] = promote_dtype
    preferred_element_type: Any = None

    @compact
    def __call__(self, inputs: Any) -> Any:
        window = as_tuple(self.kernel_size)
        rank, where = len(window), self._where()
        inputs, batch = _one_batch(wnp.asarray(inputs), rank, where)
        strides, dilation = _sizes(self.strides, rank), _sizes(self.kernel_dilation, rank)
        features = (self.features, inputs.shape[-1]) if self.transpose_kernel else (inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, (*window, *features), self.param_dtype)
        kernel = _apply_mask(kernel, self.mask, where)
        bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype) if self.use_bias else None
        inputs, kernel, bias = self.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        padding = canonicalize_padding(self.padding, rank, where)
        out = lax.conv_transpose(
            inputs,
            kernel,
            strides,
            "VALID" if padding == "CIRCULAR" else padding,
            rhs_dilation=dilation,
            dimension_numbers=_dimension_numbers(rank),
            transpose_kernel=self.transpose_kernel,
            precision=self.precision,
            preferred_element_type=self.preferred_element_type,
        )
        if padding == "CIRCULAR":
            out = self._wrap_period(out, inputs.shape, strides)
        if bias is not None:
            out = out + bias
        return out if len(batch) == 1 else wnp.reshape(out, (*batch, *out.shape[1:]))

    def _wrap_period(self, x: Any, shape: Any, strides: tuple[int, ...]) -> Any:
        """Sum a full result modulo its period: elements outside of the period are added to those inside."""
        for axis, step in enumerate(strides, 1):
            period = shape[axis] * step
            # The period is centred in the result: half of the excess precedes it. Pad to a multiple of the period,
            # then sum the periods.
            extra = -(x.shape[axis] - period) % (2 * period)
            low, high = extra // 2, (extra + 1) // 2
            pads = [(0, 0)] * x.ndim
            pads[axis] = (low, high) if self.transpose_kernel else (high, low)
            x = wnp.pad(x, pads)
            x = wnp.reshape(x, (*x.shape[:axis], -1, period, *x.shape[axis + 1 :])).sum(axis)
        return x
