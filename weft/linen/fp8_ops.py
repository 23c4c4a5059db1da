"""Products in eight-bit floats: values are scaled by the largest of recent calls, rounded, and scaled back.

Scale and history of a value are variables that its cotangent overwrites: their "gradients" are their next values.
"""

from __future__ import annotations

import functools
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax


def get_fp8_max(fp8_dtype: Any, out_dtype: Any) -> Any:
    """The largest number of an eight-bit float, in another dtype."""
    return wnp.asarray(float(wnp.finfo(fp8_dtype).max), out_dtype)


def quantize(x: Any, q_dtype: Any, scale: Any, compute_dtype: Any) -> Any:
    """x / scale, clipped to what the eight-bit float has, and rounded to it."""
    largest = get_fp8_max(q_dtype, compute_dtype)
    scaled = x / wnp.broadcast_to(wnp.asarray(scale, compute_dtype), x.shape)
    return wnp.clip(scaled, -largest, largest).astype(q_dtype)


def dequantize(x: Any, dq_dtype: Any, scale: Any) -> Any:
    """x · scale in a wider dtype."""
    return x.astype(dq_dtype) * wnp.broadcast_to(wnp.asarray(scale, dq_dtype), x.shape)


def qdq(x: Any, q_dtype: Any, scale: Any, compute_dtype: Any) -> Any:
    """x as the eight-bit float sees it."""
    return dequantize(quantize(x, q_dtype, scale, compute_dtype), x.dtype, scale)


def compute_scale(amax: Any, scale: Any, fp8_max: Any, margin: int = 0) -> Any:
    """The scale that brings `amax` to the largest eight-bit number, 2**margin below it; the old one if that is none."""
    inverse = (fp8_max / amax) / (2.0**margin)
    inverse = wnp.where(amax > 0.0, inverse, 1.0 / scale)
    inverse = wnp.where(wnp.isfinite(amax), inverse, 1.0 / scale)
    return 1.0 / inverse


def compute_amax_history(x: Any, amax_history: Any) -> Any:
    """The largest absolute values of recent calls, with that of x in front."""
    largest = wnp.max(wnp.abs(x)).astype(amax_history.dtype)
    return wnp.roll(amax_history, -1).at[0].set(largest)


def update_fp8_meta(x: Any, q_dtype: Any, scale: Any, amax_history: Any) -> tuple[Any, Any]:
    """The next scale and history of a value."""
    kind = amax_history.dtype
    new_scale = compute_scale(wnp.max(amax_history), scale, get_fp8_max(q_dtype, kind))
    return new_scale, compute_amax_history(x, amax_history)


def quantize_dequantize_update(
    x: Any, q_dtype: Any, scale: Any, amax_history: Any, compute_dtype: Any
) -> tuple[Any, Any, Any]:
    """x as the eight-bit float sees it under the next scale, and the next scale and history."""
    new_scale, history = update_fp8_meta(x, q_dtype, scale, amax_history)
    return qdq(x, q_dtype, new_scale, compute_dtype), new_scale, history


@functools.partial(weft.custom_vjp, nondiff_argnums=(0, 1))
def in_qdq(compute_dtype: Any, q_dtype: Any, inp: Any, scale: Any, amax_history: Any) -> Any:
    """An input as the eight-bit float sees it; its cotangent passes as it is."""
    return quantize_dequantize_update(inp, q_dtype, scale, amax_history, compute_dtype)[0]


def in_qdq_fwd(compute_dtype: Any, q_dtype: Any, inp: Any, scale: Any, amax_history: Any) -> Any:
    """The forward rule of `in_qdq`."""
    out, new_scale, history = quantize_dequantize_update(inp, q_dtype, scale, amax_history, compute_dtype)
    return out, (new_scale, history)


def in_qdq_bwd(compute_dtype: Any, q_dtype: Any, res: Any, g: Any) -> Any:
    """The backward rule of `in_qdq`."""
    return (g, *res)


in_qdq.defvjp(in_qdq_fwd, in_qdq_bwd)


@functools.partial(weft.custom_vjp, nondiff_argnums=(0, 1))
def out_qdq(compute_dtype: Any, q_dtype: Any, out: Any, scale: Any, amax_history: Any) -> Any:
    """An output as it is; its cotangent is what the eight-bit float sees of it."""
    return out


def out_qdq_fwd(compute_dtype: Any, q_dtype: Any, out: Any, scale: Any, amax_history: Any) -> Any:
    """The forward rule of `out_qdq`."""
    return out, (scale, amax_history)


def out_qdq_bwd(compute_dtype: Any, q_dtype: Any, res: Any, g: Any) -> Any:
    """The backward rule of `out_qdq`."""
    scale, amax_history = res
    return quantize_dequantize_update(g, q_dtype, scale, amax_history, compute_dtype)


out_qdq.defvjp(out_qdq_fwd, out_qdq_bwd)


@functools.partial(weft.custom_jvp, nondiff_argnums=(2, 3, 4))
def dot_general_with_precision(
    lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """`lax.dot_general`, whose derivatives are computed with the highest precision."""
    return lax.dot_general(
        lhs, rhs, dimension_numbers, precision=lax.Precision.DEFAULT, preferred_element_type=preferred_element_type
    )


@dot_general_with_precision.defjvp
def dot_general_with_precision_jvp(
    dimension_numbers: Any, precision: Any, preferred_element_type: Any, primals: Any, tangents: Any
) -> Any:
    """The forward-mode rule of `dot_general_with_precision`."""
    (lhs, rhs), (lhs_dot, rhs_dot) = primals, tangents
    product = functools.partial(
        lax.dot_general, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )
    out = product(lhs, rhs, precision=lax.Precision.DEFAULT)
    return out, product(lhs, rhs_dot, precision=lax.Precision.HIGHEST) + product(
        lhs_dot, rhs, precision=lax.Precision.HIGHEST
    )
