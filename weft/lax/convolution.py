"""Convolutions in all their forms, each a `conv_general_dilated` equation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.shardings import split_result
from weft.base import dtypes
from weft.base.arguments import index, indices
from weft.base.errors import ArgumentError, DtypeMismatchError
from weft.base.source import user_line
from weft.ir.types import ArrayType, get_aval
from weft.lax.contraction import canonical_element_type, dot_general
from weft.primitives.contraction.convolution import conv_general_dilated as conv_primitive
from weft.primitives.contraction.convolution_shapes import (
    ConvDimensionNumbers as ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    Pads,
    conv_dimension_numbers as conv_dimension_numbers,
    conv_general_permutations as conv_general_permutations,
    conv_general_shape_tuple as conv_general_shape_tuple,
    conv_shape_tuple as conv_shape_tuple,
    conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    dilate_size,
    explicit_pads,
    in_order,
    padtype_to_pads,
    transpose_pads,
)
from weft.primitives.contraction.precision import PrecisionLike, canonical_precision
from weft.primitives.families import fail, inverse_permutation
from weft.primitives.movement.shape import broadcast_in_dim, reshape, rev, transpose
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Slide the kernel `rhs` over `lhs`, contracting features and window.

    `padding` is 'SAME', 'SAME_LOWER', 'VALID' or a (low, high) pair per spatial dimension, where negative numbers crop.
    `lhs_dilation` spreads the operand's elements apart (a transposed convolution), `rhs_dilation` the kernel's. Groups
    divide the features, or the batch, into parts; each is convolved only with its part of the kernel's output features.
    `dimension_numbers` are three strings such as `('NHWC', 'HWIO', 'NHWC')`; None means `('NCHW', 'OIHW', 'NCHW')`.

    Args:
        lhs: the operand.
        rhs: the kernel.
        window_strides: the step of the window in each spatial dimension.
        padding: "SAME", "SAME_LOWER", "VALID" or pairs (low, high).
        lhs_dilation: the distance of the elements of the operand, 1 by default.
        rhs_dilation: the distance of the elements of the kernel, 1 by default.
        dimension_numbers: which axis is which: three strings such as ("NHWC", "HWIO", "NHWC"), or None for batch,
            feature, spatial and output feature, input feature, spatial.
        feature_group_count: the number of groups of features, which are convolved separately.
        batch_group_count: the number of groups of the batch, which are convolved separately.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> image, kernel = wnp.ones((1, 5, 5, 1)), wnp.ones((3, 3, 1, 2))
    >>> lax.conv_general_dilated(image, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 3, 3, 2)
    """
    if out_sharding is not None:
        return split_result(
            conv_general_dilated,
            out_sharding,
            *(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count),
            *(batch_group_count, precision, preferred_element_type),
        )
    x, kernel = get_aval(lhs), get_aval(rhs)
    assert isinstance(x, ArrayType) and isinstance(kernel, ArrayType)
    dims = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    rank = x.ndim - 2
    strides = _counts("window_strides", window_strides, rank)
    base_dilation = (1,) * rank if lhs_dilation is None else _counts("lhs_dilation", lhs_dilation, rank)
    dilation = (1,) * rank if rhs_dilation is None else _counts("rhs_dilation", rhs_dilation, rank)
    if isinstance(padding, str):
        if any(d != 1 for d in base_dilation):
            raise ArgumentError(
                f"conv_general_dilated got padding {padding!r} with lhs_dilation {base_dilation}, where it has no "
                "meaning. Give (low, high) pairs, or use conv_transpose."
            )
        extents = [dilate_size(k, d) for k, d in zip(in_order(kernel.shape, dims.rhs_spec)[2:], dilation, strict=True)]
        pads: Pads = tuple(padtype_to_pads(in_order(x.shape, dims.lhs_spec)[2:], extents, strides, padding))
    else:
        pads = explicit_pads(padding, rank)
    return conv_primitive(
        lhs,
        rhs,
        window_strides=strides,
        padding=pads,
        lhs_dilation=base_dilation,
        rhs_dilation=dilation,
        dimension_numbers=dims,
        feature_group_count=index(feature_group_count),
        batch_group_count=index(batch_group_count),
        precision=canonical_precision(precision),
        preferred_element_type=_check_dtypes(x, kernel, preferred_element_type),
    )


def _counts(name: str, values: Sequence[int], rank: int) -> tuple[int, ...]:
    counts = indices(values, f"{name} of a convolution")
    if len(counts) != rank or any(c < 1 for c in counts):
        raise fail(
            f"conv_general_dilated window and {name} must have the same number of dimensions, and {name} be positive; "
            f"got {name} {counts} for {rank} spatial dimensions.",
            fix="one positive integer for each",
        )
    return counts


def _check_dtypes(x: ArrayType, kernel: ArrayType, preferred_element_type: Any) -> Any:
    """Return the canonical `preferred_element_type`; operand and kernel must share a dtype that fits into it."""
    if x.dtype != kernel.dtype:
        raise DtypeMismatchError(
            "conv_general_dilated needs an operand and a kernel of one dtype.",
            received=f"{x.short()} and {kernel.short()}",
            fix="convert one with lax.convert_element_type",
            at=user_line(),
        )
    dtype = canonical_element_type(preferred_element_type, "conv_general_dilated")
    if dtype is None:
        return None
    ranks = {"b": 0, "i": 0, "u": 0, "f": 1, "c": 2}
    out_kind, in_kind = ranks.get(dtypes.kind(dtype), -1), ranks.get(dtypes.kind(x.dtype), 3)
    if (
        out_kind < in_kind
        or (in_kind == 2) != (out_kind == 2)
        or dtypes.itemsize_bits(dtype) < dtypes.itemsize_bits(x.dtype)
    ):
        raise DtypeMismatchError(
            f"conv_general_dilated got preferred_element_type={dtypes.name(dtype)}, too narrow for {x.short()}.",
            fix="convert the result with lax.convert_element_type",
            at=user_line(),
        )
    return dtype


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Convolve a (batch, feature, spatial) operand with an (output feature, input feature, spatial) kernel."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Any:
    """Compute `conv` with dilations and explicit padding."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_CHANNELS_LAST = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Compute a transposed convolution, whose strides enlarge the result.

    `padding` as a string is that of the forward convolution whose sizes this undoes; pairs are the padding of this one,
    or that of the forward convolution too with `use_consistent_padding`. `transpose_kernel` reverses the window and
    swaps its features: the result is then the gradient of the convolution. Channels are last by default.

    Args:
        lhs: the operand.
        rhs: the kernel.
        strides: the factor by which each spatial dimension grows.
        padding: "SAME", "SAME_LOWER", "VALID" or pairs (low, high).
        rhs_dilation: the distance of the elements of the kernel, 1 by default.
        dimension_numbers: which axis is which; by default ("NHWC", "HWIO", "NHWC") and its relatives.
        transpose_kernel: whether the kernel is that of the forward convolution.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.
        use_consistent_padding: whether pairs are the padding of the forward convolution.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.conv_transpose(wnp.ones((1, 4, 1)), wnp.ones((2, 1, 1)), (2,), "VALID").shape
    (1, 8, 1)
    """
    x, kernel = np.shape(lhs), np.shape(rhs)
    if dimension_numbers is None:
        if len(x) not in _CHANNELS_LAST:
            raise fail(
                f"conv_transpose needs dimension_numbers beyond 3 spatial dimensions; the operand has shape {x}."
            )
        dimension_numbers = _CHANNELS_LAST[len(x)]
    dims = conv_dimension_numbers(x, kernel, dimension_numbers)
    rank = len(x) - 2
    dilation = (1,) * rank if rhs_dilation is None else _counts("rhs_dilation", rhs_dilation, rank)
    strides = _counts("strides", strides, rank)
    extents = [dilate_size(k, d) for k, d in zip(in_order(kernel, dims.rhs_spec)[2:], dilation, strict=True)]
    if isinstance(padding, str):
        pads: Pads = tuple(transpose_pads(k, s, padding) for k, s in zip(extents, strides, strict=True))
    else:
        pads = explicit_pads(padding, rank)
        if use_consistent_padding:
            pads = tuple((k - 1 - low, k - 1 - high) for k, (low, high) in zip(extents, pads, strict=True))
    if transpose_kernel:
        rhs = rev(rhs, dimensions=dims.rhs_spec[2:])
        out_axis, in_axis = dims.rhs_spec[:2]
        order = list(range(len(kernel)))
        order[out_axis], order[in_axis] = in_axis, out_axis
        rhs = transpose(rhs, permutation=tuple(order))
    return conv_general_dilated(
        lhs,
        rhs,
        (1,) * rank,
        pads,  # type: ignore[arg-type]
        strides,
        dilation,
        dims,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Extract the windows that a convolution reads, flattened into the feature dimension, feature outermost.

    Args:
        lhs: the operand.
        filter_shape: the sizes of the window.
        window_strides: the step of the window in each spatial dimension.
        padding: "SAME", "SAME_LOWER", "VALID" or pairs (low, high).
        lhs_dilation: the distance of the elements of the operand, 1 by default.
        rhs_dilation: the distance of the elements of the kernel, 1 by default.
        dimension_numbers: which axis is which: three strings such as ("NHWC", "HWIO", "NHWC"), or None for batch,
            feature, spatial and output feature, input feature, spatial.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.

    Returns:
        An array with the features of all positions of a window.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.conv_general_dilated_patches(wnp.ones((1, 1, 4, 4)), (2, 2), (2, 2), "VALID").shape
    (1, 4, 2, 2)
    """
    x = get_aval(lhs)
    assert isinstance(x, ArrayType)
    window = tuple(index(size) for size in filter_shape)
    dims = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    features = x.shape[dims.lhs_spec[1]]
    size = math.prod(window)
    # One kernel for each element of the window, which picks it; the same for every feature.
    pick = np.eye(size, dtype=x.dtype).reshape(1, size, 1, *window)
    kernel = broadcast_in_dim(pick, shape=(features, *pick.shape[1:]), broadcast_dimensions=tuple(range(pick.ndim)))
    kernel = reshape(kernel, new_sizes=(features * size, 1, *window), dimensions=None)
    kernel = transpose(kernel, permutation=inverse_permutation(dims.rhs_spec))
    return conv_general_dilated(
        lhs,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dims,
        feature_group_count=features,  # type: ignore[arg-type]
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """Convolve with a separate kernel at each position of the result.

    The spatial dimensions of `rhs` are those of the result; its input features are a flattened window, as
    `conv_general_dilated_patches` orders it.
    """
    dims = conv_dimension_numbers(np.shape(lhs), np.shape(rhs), dimension_numbers)
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dims, precision
    )
    (_, feature, *spatial), (_, in_feature, *kernel_spatial) = dims.out_spec, dims.rhs_spec
    out = dot_general(patches, rhs, (((feature,), (in_feature,)), (spatial, kernel_spatial)), precision)
    # The contraction has the spatial dimensions first, then batch and output feature.
    count = len(spatial)
    source = {axis: position for position, axis in enumerate(spatial)} | {dims.out_spec[0]: count, feature: count + 1}
    return transpose(out, permutation=tuple(source[axis] for axis in range(count + 2)))
