"""Products in eight-bit floats: values are scaled by the largest of recent calls, rounded, and scaled back.

Scale and history of a value are variables that its cotangent overwrites: their "gradients" are their next values.
"""

from __future__ import annotations

import functools
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import suggest as _suggest
from weft.linen.initializers import ones_init, zeros_init
from weft.linen.module import Module

OVERWRITE_WITH_GRADIENT = "_overwrite_with_gradient"
"""The collection of scales and histories: a training step replaces them by their gradients."""


def get_fp8_max(fp8_dtype: Any, out_dtype: Any) -> Any:
    """Return the largest finite number of an 8-bit float, in another dtype."""
    return wnp.asarray(float(wnp.finfo(fp8_dtype).max), out_dtype)


def quantize(x: Any, q_dtype: Any, scale: Any, compute_dtype: Any) -> Any:
    """Return x / scale, clipped to the range of an 8-bit float and rounded to it."""
    largest = get_fp8_max(q_dtype, compute_dtype)
    scaled = x / wnp.broadcast_to(wnp.asarray(scale, compute_dtype), x.shape)
    return wnp.clip(scaled, -largest, largest).astype(q_dtype)


def dequantize(x: Any, dq_dtype: Any, scale: Any) -> Any:
    """Return x · scale in a wider dtype."""
    return x.astype(dq_dtype) * wnp.broadcast_to(wnp.asarray(scale, dq_dtype), x.shape)


def qdq(x: Any, q_dtype: Any, scale: Any, compute_dtype: Any) -> Any:
    """Quantize x to an 8-bit float and dequantize it."""
    return dequantize(quantize(x, q_dtype, scale, compute_dtype), x.dtype, scale)


def compute_scale(amax: Any, scale: Any, fp8_max: Any, margin: int = 0) -> Any:
    """Return the scale that maps `amax` to the largest 8-bit number / 2**margin; the old scale if amax is 0 or not
    finite.
    """
    inverse = (fp8_max / amax) / (2.0**margin)
    inverse = wnp.where(amax > 0.0, inverse, 1.0 / scale)
    inverse = wnp.where(wnp.isfinite(amax), inverse, 1.0 / scale)
    return 1.0 / inverse


def compute_amax_history(x: Any, amax_history: Any) -> Any:
    """Shift the history of largest absolute values and insert that of x at the front."""
    largest = wnp.max(wnp.abs(x)).astype(amax_history.dtype)
    return wnp.roll(amax_history, -1).at[0].set(largest)


def update_fp8_meta(x: Any, q_dtype: Any, scale: Any, amax_history: Any) -> tuple[Any, Any]:
    """Return the next scale and amax history of a value."""
    kind = amax_history.dtype
    new_scale = compute_scale(wnp.max(amax_history), scale, get_fp8_max(q_dtype, kind))
    return new_scale, compute_amax_history(x, amax_history)


def quantize_dequantize_update(
    x: Any, q_dtype: Any, scale: Any, amax_history: Any, compute_dtype: Any
) -> tuple[Any, Any, Any]:
    """Quantize and dequantize x with the next scale; also return that scale and the next history."""
    new_scale, history = update_fp8_meta(x, q_dtype, scale, amax_history)
    return qdq(x, q_dtype, new_scale, compute_dtype), new_scale, history


@functools.partial(weft.custom_vjp, nondiff_argnums=(0, 1))
def in_qdq(compute_dtype: Any, q_dtype: Any, inp: Any, scale: Any, amax_history: Any) -> Any:
    """Quantize and dequantize an input; its cotangent is unchanged.

    Args:
        compute_dtype: the dtype to compute in.
        q_dtype: an eight-bit floating-point dtype.
        inp: the input.
        scale: the scale, which is updated.
        amax_history: the largest magnitudes of past steps.

    Returns:
        The input, rounded to the eight-bit float.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.linen import fp8_ops
    >>> fp8_ops.in_qdq(wnp.float32, wnp.float8_e4m3fn, wnp.array([1.0, 1.03]), wnp.ones(1), wnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    return quantize_dequantize_update(inp, q_dtype, scale, amax_history, compute_dtype)[0]


def in_qdq_fwd(compute_dtype: Any, q_dtype: Any, inp: Any, scale: Any, amax_history: Any) -> Any:
    """Return the result of `in_qdq` and its residuals."""
    out, new_scale, history = quantize_dequantize_update(inp, q_dtype, scale, amax_history, compute_dtype)
    return out, (new_scale, history)


def in_qdq_bwd(compute_dtype: Any, q_dtype: Any, res: Any, g: Any) -> Any:
    """Return the cotangents of the arguments of `in_qdq`."""
    return (g, *res)


in_qdq.defvjp(in_qdq_fwd, in_qdq_bwd)


@functools.partial(weft.custom_vjp, nondiff_argnums=(0, 1))
def out_qdq(compute_dtype: Any, q_dtype: Any, out: Any, scale: Any, amax_history: Any) -> Any:
    """Return an output unchanged; its cotangent is quantized and dequantized.

    Args:
        compute_dtype: the dtype to compute in.
        q_dtype: an eight-bit floating-point dtype.
        out: the output.
        scale: the scale, which is updated.
        amax_history: the largest magnitudes of past steps.

    Returns:
        The output.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.linen import fp8_ops
    >>> fp8_ops.out_qdq(wnp.float32, wnp.float8_e5m2, wnp.array([1.0, 1.03]), wnp.ones(1), wnp.ones(2))
    Array([1.  , 1.03], dtype=float32)
    """
    return out


def out_qdq_fwd(compute_dtype: Any, q_dtype: Any, out: Any, scale: Any, amax_history: Any) -> Any:
    """Return the result of `out_qdq` and its residuals."""
    return out, (scale, amax_history)


def out_qdq_bwd(compute_dtype: Any, q_dtype: Any, res: Any, g: Any) -> Any:
    """Return the cotangents of the arguments of `out_qdq`."""
    scale, amax_history = res
    return quantize_dequantize_update(g, q_dtype, scale, amax_history, compute_dtype)


out_qdq.defvjp(out_qdq_fwd, out_qdq_bwd)


@functools.partial(weft.custom_jvp, nondiff_argnums=(2, 3, 4))
def dot_general_with_precision(
    lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Compute `lax.dot_general`, with derivatives in the highest precision.

    Args:
        lhs, rhs: arrays.
        dimension_numbers: the contracting and batch dimensions.
        precision: the precision of the product.
        preferred_element_type: the dtype to accumulate in and of the result.

    Returns:
        An array.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft.linen import fp8_ops
    >>> fp8_ops.dot_general_with_precision(wnp.ones((2, 3)), wnp.ones((3, 2)), (((1,), (0,)), ((), ()))).shape
    (2, 2)
    """
    return lax.dot_general(
        lhs, rhs, dimension_numbers, precision=lax.Precision.DEFAULT, preferred_element_type=preferred_element_type
    )


@dot_general_with_precision.defjvp
def dot_general_with_precision_jvp(
    dimension_numbers: Any, precision: Any, preferred_element_type: Any, primals: Any, tangents: Any
) -> Any:
    """Return the result and tangent of `dot_general_with_precision`."""
    (lhs, rhs), (lhs_dot, rhs_dot) = primals, tangents
    product = functools.partial(
        lax.dot_general, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )
    out = product(lhs, rhs, precision=lax.Precision.DEFAULT)
    return out, product(lhs, rhs_dot, precision=lax.Precision.HIGHEST) + product(
        lhs_dot, rhs, precision=lax.Precision.HIGHEST
    )


# ----------------------------------------------------------------------------------------- products of quantized values


def dot_general_transpose_lhs(
    g: Any,
    x: Any,
    y: Any,
    *,
    dimension_numbers: Any,
    precision: Any,
    preferred_element_type: Any,
    swap_ans: bool = False,
) -> Any:
    """Return the cotangent of the operand `x` of `lax.dot_general(x, y)` for the cotangent `g` of its result.

    The operands may have other dtypes than in the product. With `swap_ans` the free dimensions of `y` come first in
    `g`.
    """
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    x_rank, y_rank = len(x.shape), len(y.shape)
    x_free = [d for d in range(x_rank) if d not in (*x_contract, *x_batch)]
    y_free = [d for d in range(y_rank) if d not in (*y_contract, *y_batch)]
    first = len(x_batch)
    if swap_ans:
        g_y = list(range(first, first + len(y_free)))
    else:
        g_y = list(range(first + len(x_free), first + len(x_free) + len(y_free)))
    numbering = ((g_y, y_free), (list(range(first)), list(y_batch)))
    found = lax.dot_general(g, y, numbering, precision=precision, preferred_element_type=preferred_element_type)
    # Dimensions of the product: batch, free dimensions of x, contracted dimensions in the order of y.
    contracted = [d for _, d in sorted(zip(y_contract, x_contract, strict=True))]
    order = [*x_batch, *x_free, *contracted]
    return wnp.transpose(found, [order.index(d) for d in range(x_rank)])


def dot_general_transpose_rhs(
    g: Any, x: Any, y: Any, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any
) -> Any:
    """Return the cotangent of the operand `y` of `lax.dot_general(x, y)` for the cotangent `g` of its result."""
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    return dot_general_transpose_lhs(
        g,
        y,
        x,
        dimension_numbers=((y_contract, x_contract), (y_batch, x_batch)),
        precision=precision,
        preferred_element_type=preferred_element_type,
        swap_ans=True,
    )


@functools.partial(weft.custom_vjp, nondiff_argnums=(0, 1))
def in_q(compute_dtype: Any, q_dtype: Any, inp: Any, scale: Any, amax_history: Any) -> Any:
    """Quantize an input; return it and its scale. `quantized_dot` defines the cotangent of the input."""
    new_scale, _ = update_fp8_meta(inp, q_dtype, scale, amax_history)
    return quantize(inp, q_dtype, new_scale, compute_dtype), new_scale


def in_q_fwd(compute_dtype: Any, q_dtype: Any, inp: Any, scale: Any, amax_history: Any) -> Any:
    """Return the result of `in_q` and its residuals."""
    new_scale, history = update_fp8_meta(inp, q_dtype, scale, amax_history)
    return (quantize(inp, q_dtype, new_scale, compute_dtype), new_scale), (new_scale, history)


def in_q_bwd(compute_dtype: Any, q_dtype: Any, res: Any, _: Any) -> Any:
    """Return the cotangents of the arguments of `in_q`."""
    return (None, *res)


in_q.defvjp(in_q_fwd, in_q_bwd)


@functools.partial(weft.custom_vjp, nondiff_argnums=(0,))
def out_dq(dq_type: Any, lhs_scale: Any, rhs_scale: Any, out: Any) -> Any:
    """Dequantize a product of quantized values; its cotangent is unchanged."""
    return dequantize(out, dq_type, lhs_scale * rhs_scale)


def out_dq_fwd(dq_type: Any, lhs_scale: Any, rhs_scale: Any, out: Any) -> Any:
    """Return the result of `out_dq` and its residuals."""
    return out_dq(dq_type, lhs_scale, rhs_scale, out), None


def out_dq_bwd(dq_type: Any, _: Any, g: Any) -> Any:
    """Return the cotangents of the arguments of `out_dq`."""
    return None, None, g


out_dq.defvjp(out_dq_fwd, out_dq_bwd)


@functools.partial(weft.custom_vjp, nondiff_argnums=(8, 9))
def quantized_dot(
    lhs: Any,
    q_lhs: Any,
    lhs_scale: Any,
    rhs: Any,
    q_rhs: Any,
    rhs_scale: Any,
    out_grad_scale: Any,
    out_grad_amax_history: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = None,
) -> Any:
    """Multiply two quantized values. The cotangent of the result is quantized too, for the products with it."""
    return lax.dot_general(
        q_lhs,
        q_rhs,
        dimension_numbers,
        preferred_element_type=preferred_element_type,
        precision=lax.Precision.DEFAULT,
    )


def quantized_dot_fwd(
    lhs: Any,
    q_lhs: Any,
    lhs_scale: Any,
    rhs: Any,
    q_rhs: Any,
    rhs_scale: Any,
    out_grad_scale: Any,
    out_grad_amax_history: Any,
    dimension_numbers: Any,
    preferred_element_type: Any,
) -> Any:
    """Return the result of `quantized_dot` and its residuals."""
    saved = (lhs, q_lhs, lhs_scale, rhs, q_rhs, rhs_scale, out_grad_scale, out_grad_amax_history)
    return quantized_dot(*saved, dimension_numbers, preferred_element_type), saved


def quantized_dot_bwd(dimension_numbers: Any, preferred_element_type: Any, res: Any, g: Any) -> Any:
    """Return the cotangents of the arguments of `quantized_dot`."""
    lhs, q_lhs, lhs_scale, rhs, q_rhs, rhs_scale, out_grad_scale, out_grad_amax_history = res
    kind = wnp.float8_e5m2fnuz if q_lhs.dtype == wnp.float8_e4m3fnuz else wnp.float8_e5m2
    new_scale, history = update_fp8_meta(g, kind, out_grad_scale, out_grad_amax_history)
    q_g = quantize(g, kind, new_scale, preferred_element_type)
    options: dict[str, Any] = {
        "dimension_numbers": dimension_numbers,
        "precision": lax.Precision.HIGHEST,
        "preferred_element_type": preferred_element_type,
    }
    lhs_grad = dot_general_transpose_lhs(q_g, lhs, q_rhs, **options)
    rhs_grad = dot_general_transpose_rhs(q_g, q_lhs, rhs, **options)
    return (
        dequantize(lhs_grad, preferred_element_type, rhs_scale * new_scale).astype(lhs.dtype),
        None,
        None,
        dequantize(rhs_grad, preferred_element_type, lhs_scale * new_scale).astype(rhs.dtype),
        None,
        None,
        new_scale,
        history,
    )


quantized_dot.defvjp(quantized_dot_fwd, quantized_dot_bwd)


def fp8_scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    grad_scale: Any = None,
    lhs_amax_history: Any = None,
    rhs_amax_history: Any = None,
    grad_amax_history: Any = None,
    quantize_compute_type: Any = wnp.float32,
    e4m3_dtype: Any = wnp.float8_e4m3fn,
) -> Any:
    """Compute `lax.dot_general` of values that are quantized to 8-bit floats.

    Args:
        lhs, rhs, dimension_numbers: as for `lax.dot_general`.
        precision: not used: eight-bit floats have one.
        preferred_element_type: the dtype of the result, by default that of `lhs`.
        lhs_scale, rhs_scale, grad_scale: arrays of shape (1,): the scales of operands and of the cotangent of the
            result; 1 if None. Their gradients are their next values.
        lhs_amax_history, rhs_amax_history, grad_amax_history: the largest absolute values of recent calls, likewise;
            those of no call if None.
        quantize_compute_type: the dtype in which values are scaled.
        e4m3_dtype: the eight-bit float of the operands.
    """
    scales = [wnp.ones(1) if v is None else v for v in (lhs_scale, rhs_scale, grad_scale)]
    histories = [wnp.zeros(1) if v is None else v for v in (lhs_amax_history, rhs_amax_history, grad_amax_history)]
    kind = wnp.asarray(lhs).dtype if preferred_element_type is None else preferred_element_type
    q_lhs, new_lhs_scale = in_q(quantize_compute_type, e4m3_dtype, lhs, scales[0], histories[0])
    q_rhs, new_rhs_scale = in_q(quantize_compute_type, e4m3_dtype, rhs, scales[1], histories[1])
    out = quantized_dot(
        lhs, q_lhs, new_lhs_scale, rhs, q_rhs, new_rhs_scale, scales[2], histories[2], dimension_numbers, kind
    )
    return out_dq(kind, new_lhs_scale, new_rhs_scale, out)


# -------------------------------------------------------------------------------------------------------------- modules


class Fp8DotGeneralBase(Module):
    """Base of modules with 8-bit products: scales and histories of input, kernel and output gradient.

    Their collection is `_overwrite_with_gradient`: the gradient of each variable is its next value.

    Attributes:
        amax_history_length: the number of recent calls that determine a scale.
        e4m3_dtype: the eight-bit float of inputs and kernels.
        e5m2_dtype: that of gradients.
    """

    amax_history_length: int = 1024
    e4m3_dtype: Any = wnp.float8_e4m3fn
    e5m2_dtype: Any = wnp.float8_e5m2

    def setup(self) -> None:
        scale, history = ones_init(), zeros_init()
        key = weft.random.key(0)  # required by initializers; those of scales ignore it

        def variable(name: str, init: Any, size: int) -> Any:
            return self.variable(OVERWRITE_WITH_GRADIENT, name, init, key, (size,), wnp.float32)

        for name in ("input", "kernel", "output_grad"):
            setattr(self, f"{name}_amax_history", variable(f"{name}_amax_history", history, self.amax_history_length))
            setattr(self, f"{name}_scale", variable(f"{name}_scale", scale, 1))

    def operands(self, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        """Convert both operands to the dtype of the kernel, in which they are scaled."""
        rhs = wnp.asarray(rhs)
        return wnp.asarray(lhs, rhs.dtype), rhs

    def scaled_dot_general(
        self, lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
    ) -> Any:
        """Return the product of the quantized operands, using the module's scales and histories."""
        lhs, rhs = self.operands(lhs, rhs)
        return fp8_scaled_dot_general(
            lhs,
            rhs,
            dimension_numbers,
            precision,
            lhs.dtype if preferred_element_type is None else preferred_element_type,
            lhs_scale=self.input_scale.value,
            rhs_scale=self.kernel_scale.value,
            grad_scale=self.output_grad_scale.value,
            lhs_amax_history=self.input_amax_history.value,
            rhs_amax_history=self.kernel_amax_history.value,
            grad_amax_history=self.output_grad_amax_history.value,
            quantize_compute_type=rhs.dtype,
            e4m3_dtype=self.e4m3_dtype,
        )


class Fp8DotGeneralOp(Fp8DotGeneralBase):
    """`dot_general` of values that are rounded to 8-bit floats and multiplied in their own dtype.

    Use it as `nn.Dense(dot_general_cls=Fp8DotGeneralOp)`.
    """

    def __call__(self, lhs: Any, rhs: Any, dimension_numbers: Any, *args: Any, **kwargs: Any) -> Any:
        """Contract as `lax.dot_general` does, in the precision and dtype of the operands."""
        lhs, rhs = self.operands(lhs, rhs)
        kind = rhs.dtype
        lhs = in_qdq(kind, self.e4m3_dtype, lhs, self.input_scale.value, self.input_amax_history.value)
        rhs = in_qdq(kind, self.e4m3_dtype, rhs, self.kernel_scale.value, self.kernel_amax_history.value)
        out = dot_general_with_precision(lhs, rhs, dimension_numbers)
        return out_qdq(kind, self.e5m2_dtype, out, self.output_grad_scale.value, self.output_grad_amax_history.value)


class Fp8DirectDotGeneralOp(Fp8DotGeneralBase):
    """`dot_general` that multiplies 8-bit floats and scales the product, in both passes."""

    def __call__(self, lhs: Any, rhs: Any, dimension_numbers: Any, *args: Any, **kwargs: Any) -> Any:
        """Contract as `lax.dot_general` does, in the precision and dtype of the operands."""
        return self.scaled_dot_general(lhs, rhs, dimension_numbers)


Fp8DotGeneral = Fp8DirectDotGeneralOp


class NANOOFp8DotGeneralOp(Fp8DotGeneralOp):
    """`Fp8DotGeneralOp` with the 8-bit floats that have a single NaN and no negative zero."""

    e4m3_dtype: Any = wnp.float8_e4m3fnuz
    e5m2_dtype: Any = wnp.float8_e5m2fnuz


class Fp8Einsum(Fp8DotGeneralBase):
    """`einsum` of two operands with a contraction of 8-bit floats."""

    def __call__(self, eqn: str, lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
        """Return the contraction that `eqn` describes."""
        return wnp.einsum(
            eqn,
            lhs,
            rhs,
            precision=precision,
            preferred_element_type=preferred_element_type,
            _dot_general=self.scaled_dot_general,
        )


_suggest(__name__)
