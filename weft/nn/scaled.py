"""Contractions of block-scaled numbers: short floats that share a scale in blocks along the contracting axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.numpy.util import check_arraylike, ensure_array
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


@dataclass
class BlockScaleConfig:
    """Quantization of an operand: `block_size` numbers of `data_type` share a scale of `scale_type`.

    With `global_scale` all scales are in units of that number.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None
    infer_only: bool = False


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """Return the config of 'mxfp8' (blocks of 32, power-of-two scales) or 'nvfp4' (blocks of 16, a global scale)."""
    if mode == "mxfp8":
        if global_scale is not None:
            raise ArgumentError(f"The mode 'mxfp8' has no global scale, got {global_scale!r}.")
        return BlockScaleConfig(mode, 32, dtypes.DTYPES["float8_e4m3fn"], dtypes.DTYPES["float8_e8m0fnu"])
    if mode == "nvfp4":
        scale = wnp.ones((), dtypes.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, dtypes.DTYPES["float4_e2m1fn"], dtypes.DTYPES["float8_e4m3fn"], scale)
    raise ArgumentError(f"The mode of get_scaled_dot_general_config must be 'mxfp8' or 'nvfp4', got {mode!r}.")


def scaled_matmul(
    lhs: ArrayLike, rhs: ArrayLike, lhs_scales: Any, rhs_scales: Any, preferred_element_type: DTypeLike = np.float32
) -> Array:
    """Multiply lhs (B, M, K) by rhs (B, N, K), whose blocks along K have scales of shape (B, M or N, blocks)."""
    check_arraylike("scaled_matmul", lhs, rhs, lhs_scales, rhs_scales)
    left, right, left_scales, right_scales = (ensure_array(x) for x in (lhs, rhs, lhs_scales, rhs_scales))
    shapes = [x.shape for x in (left, right, left_scales, right_scales)]
    if any(len(shape) != 3 for shape in shapes):
        raise ArgumentError(f"scaled_matmul needs arrays of three dimensions, got shapes {shapes}.")
    fits = left.shape[::2] == right.shape[::2] and left_scales.shape[::2] == right_scales.shape[::2]
    fits = fits and left_scales.shape[:2] == left.shape[:2] and right_scales.shape[:2] == right.shape[:2]
    if not fits or not left_scales.shape[2] or left.shape[2] % left_scales.shape[2]:
        raise ArgumentError(
            "scaled_matmul needs shapes (B, M, K), (B, N, K), (B, M, blocks) and (B, N, blocks), where blocks divides "
            f"K; got {shapes}."
        )
    dtype = dtypes.requested_dtype(preferred_element_type, "scaled_matmul")
    wide = [_expand(x, scales) for x, scales in ((left, left_scales), (right, right_scales))]
    return wnp.einsum("bmk,bnk->bmn", *wide, preferred_element_type=dtypes.float32).astype(dtype)


def _expand(x: Array, scales: Array) -> Array:
    """Dequantize numbers to float32."""
    block = x.shape[-1] // scales.shape[-1]
    parts = wnp.reshape(x.astype(dtypes.float32), (*scales.shape, block))
    return wnp.reshape(parts * scales.astype(dtypes.float32)[..., None], x.shape)


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Array:
    """Compute `lax.dot_general` of operands quantized by `configs`; without configs, the plain contraction.

    `configs[0]` is for lhs, `configs[1]` for rhs. The derivative passes straight through the quantization: it is that
    of the contraction at the quantized operands.
    """
    if implementation is not None:
        raise ArgumentError(
            f"scaled_dot_general got implementation={implementation!r}; there is only one, so leave it out."
        )
    check_arraylike("scaled_dot_general", lhs, rhs)
    left, right = ensure_array(lhs), ensure_array(rhs)
    dtype = dtypes.requested_dtype(preferred_element_type, "scaled_dot_general")
    if configs is None:
        return lax.dot_general(left, right, dimension_numbers, preferred_element_type=dtype)
    (left_axes, right_axes), _ = dimension_numbers
    left, right = _rounded(left, tuple(left_axes), configs[0]), _rounded(right, tuple(right_axes), configs[1])
    return lax.dot_general(left, right, dimension_numbers, preferred_element_type=dtypes.float32).astype(dtype)


def _rounded(x: Array, axes: tuple[int, ...], config: BlockScaleConfig) -> Array:
    """Round x, as float32, to the values that its quantization in blocks along the contracting axes can hold."""
    other_axes = tuple(axis for axis in range(x.ndim) if axis not in axes)
    order = (*other_axes, *axes)
    ordered = wnp.transpose(x.astype(dtypes.float32), order)
    size = math.prod(x.shape[axis] for axis in axes)
    if size % config.block_size:
        raise ArgumentError(
            f"scaled_dot_general in mode {config.mode!r} needs a contracted size that is a multiple of "
            f"{config.block_size}, got {size}."
        )
    blocks = wnp.reshape(ordered, (-1, config.block_size))
    rounded = _round_blocks(lax.stop_gradient(blocks), config)
    passed = blocks + lax.stop_gradient(rounded - blocks)
    inverse = tuple(order.index(axis) for axis in range(x.ndim))
    return wnp.transpose(wnp.reshape(passed, ordered.shape), inverse)


def _round_blocks(blocks: Array, config: BlockScaleConfig) -> Array:
    largest = float(dtypes.finfo(config.data_type).max)
    scale = wnp.max(wnp.abs(blocks), axis=-1, keepdims=True) / largest
    if config.global_scale is None:
        scale = _next_power_of_two(scale)
    else:
        top = float(dtypes.finfo(config.scale_type).max)
        scale = wnp.minimum(scale / config.global_scale, top).astype(config.scale_type).astype(dtypes.float32)
        scale = scale * config.global_scale
    scaled = wnp.clip(blocks / wnp.where(scale == 0, 1.0, scale), -largest, largest)
    return scaled.astype(config.data_type).astype(dtypes.float32) * scale


def _next_power_of_two(x: Array) -> Array:
    """Return the least power of two, from 2**-127 on, that is not below x."""
    bits = lax.bitcast_convert_type(x, dtypes.uint32)
    exponent, mantissa = bits >> np.uint32(23), bits & np.uint32(0x7FFFFF)
    # A mantissa rounds up to the next exponent, unless that is past the last; denormals up to 2**-127 become 2**-127.
    moves = (mantissa > 0) & (exponent != 254) & ~((exponent == 0) & (mantissa <= 0x400000))
    exponent = wnp.where(moves, exponent + np.uint32(1), exponent)
    power = lax.bitcast_convert_type(exponent << np.uint32(23), dtypes.float32)
    return wnp.where(exponent == 0, np.float32(2.0**-127), power)
