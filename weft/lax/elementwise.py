"""Elementwise operations with JAX's names and signatures.

Operands must have one dtype: nothing is promoted here. But a Python number takes the dtype of the array that it is
combined with if it is of the same kind, and scalars and dimensions of size 1 broadcast. `accuracy` is a hint that
changes nothing: every result is within the error that the primitive states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import conversion, dtypes, tree
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.ir.types import get_aval
from weft.lax.argument_docs import document
from weft.primitives.control.check import check_divisor
from weft.primitives.elementwise import (
    arithmetic,
    complex as complex_ops,
    convert,
    rounding,
    select as selection,
)
from weft.primitives.elementwise.rounding import RoundingMethod
from weft.primitives.families import fail
from weft.primitives.movement.shape import broadcast_in_dim
from weft.runtime.array import from_numpy
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

_PYTHON_SCALARS = (int, float, complex)


_KINDS_TAKEN = {int: "iu", float: "f", complex: "c"}


def pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Convert two operands to the form that a binary primitive takes; fast in the common cases."""
    first, second = getattr(x, "aval", None), getattr(y, "aval", None)
    if first is not None and second is not None:
        if first.shape == second.shape or not first.shape or not second.shape:
            return x, y
    elif first is not None and type(y) in _PYTHON_SCALARS:
        return x, _as_scalar(y, first.dtype)
    elif second is not None and type(x) in _PYTHON_SCALARS:
        return _as_scalar(x, second.dtype), y
    return match_operands(x, y)


def _as_scalar(value: Any, dtype: Any) -> Any:
    """Convert a Python number to `dtype` if that is of its kind, else return it unchanged."""
    if dtypes.kind(dtype) not in _KINDS_TAKEN[type(value)] or _dtype(value) == dtype:
        return value
    return conversion.coerce_value(value, dtype)


def _convert_scalars(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert Python numbers to the dtype of the first array, if they are of its kind."""
    found = next((_dtype(a) for a in operands if type(a) not in _PYTHON_SCALARS), None)
    if found is None:
        return operands
    return tuple(_as_scalar(a, found) if type(a) in _PYTHON_SCALARS else a for a in operands)


def _dtype(x: Any) -> Any:
    return get_aval(x).dtype  # type: ignore[attr-defined]


def match_operands(*operands: Any) -> Any:
    """Convert Python numbers to the dtype of the arrays of their kind, and broadcast dimensions of size 1."""
    match_operands = list(_convert_scalars(operands))
    shapes = [np.shape(a) for a in match_operands]
    full = [s for s in shapes if s]
    if all(s == full[0] for s in full) or any(len(s) != len(full[0]) for s in full):
        return tuple(match_operands)  # the type rule raises for a mismatch of rank
    shape = tuple(next((d for d in sizes if d != 1), 1) for sizes in zip(*full, strict=True))
    for i, own in enumerate(shapes):
        if own and own != shape and all(d in (1, s) for d, s in zip(own, shape, strict=True)):
            axes = tuple(range(len(shape)))
            match_operands[i] = broadcast_in_dim(match_operands[i], shape=shape, broadcast_dimensions=axes)
    return tuple(match_operands)


# ------------------------------------------------------------------------------------------------------- arithmetic


@document(
    "An array of the same dtype. Unlike `weft.numpy.add` it promotes only Python numbers.",
    "lax.add(wnp.arange(3), 1) -> Array([1, 2, 3], dtype=int32)",
)
def add(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x + y element-wise."""
    return arithmetic.add(*pair(x, y))


@document("An array of the same dtype.", "lax.sub(wnp.arange(3), 1) -> Array([-1,  0,  1], dtype=int32)")
def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x - y element-wise."""
    return arithmetic.sub(*pair(x, y))


@document(
    "An array of the same dtype.",
    "lax.mul(wnp.arange(3), 2) -> Array([0, 2, 4], dtype=int32)",
    out_dtype="the dtype of the result.",
)
def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """Compute x * y element-wise, in `out_dtype` if given, so that a product of narrow types is exact."""
    if out_dtype is not None:
        x, y = (_as_factor(factor, out_dtype) for factor in (x, y))
    return arithmetic.mul(*pair(x, y))


def _as_factor(x: Any, dtype: Any) -> Any:
    aval: Any = get_aval(x)
    if dtypes.kind(aval.dtype) not in "iufc":
        raise ArgumentTypeError(f"mul does not accept dtype {dtypes.name(aval.dtype)}.")
    return convert.convert_element_type(x, new_dtype=dtypes.requested_dtype(dtype, "mul"), weak_type=aval.weak_type)


@document("An array of the same dtype.", "lax.div(wnp.array([7, -7]), 2) -> Array([ 3, -3], dtype=int32)")
def div(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x / y element-wise; integers truncate towards zero, and give -1 where y is 0."""
    x, y = pair(x, y)
    check_divisor(y)
    return arithmetic.div(x, y)


@document("An array of the same dtype.", "lax.rem(wnp.array([7, -7]), 4) -> Array([ 3, -3], dtype=int32)")
def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the remainder of x / y truncated towards zero; it has the sign of x, and is x where an integer y is 0."""
    x, y = pair(x, y)
    check_divisor(y)
    return arithmetic.rem(x, y)


@document(
    "An array of the same dtype. Where both are equal, each has half of the derivative.",
    "lax.max(wnp.array([1, 5]), 3) -> Array([3, 5], dtype=int32)",
)
def max(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the element-wise maximum; NaN if either is NaN."""
    return arithmetic.max(*pair(x, y))


@document(
    "An array of the same dtype. Where both are equal, each has half of the derivative.",
    "lax.min(wnp.array([1, 5]), 3) -> Array([1, 3], dtype=int32)",
)
def min(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the element-wise minimum; NaN if either is NaN."""
    return arithmetic.min(*pair(x, y))


@document("An array of the same dtype.", "lax.neg(wnp.array([1, -2])) -> Array([-1,  2], dtype=int32)")
def neg(x: ArrayLike) -> Array:
    """Compute -x element-wise; unsigned integers wrap around."""
    return arithmetic.neg(x)


@document(
    "An array of the same dtype, of its real dtype for complex numbers. The derivative at 0 is 1 for real numbers.",
    "lax.abs(wnp.array([-2.5, 1.0])) -> Array([2.5, 1. ], dtype=float32)",
)
def abs(x: ArrayLike) -> Array:
    """Compute the element-wise magnitude, which is real for complex x."""
    return arithmetic.abs(x)


@document(
    "An array of the same dtype; NaN stays NaN.",
    "lax.sign(wnp.array([-2.5, 0.0, 7.0])) -> Array([-1.,  0.,  1.], dtype=float32)",
)
def sign(x: ArrayLike) -> Array:
    """Compute the element-wise sign: -1, 0 or 1, or x / |x| for complex x."""
    return arithmetic.sign(x)


@document("An array of the same dtype.", "lax.square(wnp.array([2, 3])) -> Array([4, 9], dtype=int32)")
def square(x: ArrayLike) -> Array:
    """Compute x * x element-wise."""
    return arithmetic.square(x)


@document(
    "An array of the same dtype.",
    "lax.integer_pow(wnp.array([2, 3]), 3) -> Array([ 8, 27], dtype=int32)",
    y="the power, a Python integer.",
)
def integer_pow(x: ArrayLike, y: int) -> Array:
    """Raise x to a static integer power element-wise."""
    return arithmetic.integer_pow(x, y=index(y))


@document(
    "An array of the same floating or complex dtype.",
    "lax.reciprocal(wnp.array([2.0, 4.0])) -> Array([0.5 , 0.25], dtype=float32)",
)
def reciprocal(x: ArrayLike) -> Array:
    """Compute 1 / x element-wise; inf or -inf at 0."""
    return arithmetic.integer_pow(x, y=-1)


# -------------------------------------------------------------------------------------------------- complex numbers


@document("An array of the real dtype of a complex `x`.", "lax.real(wnp.array([1 + 2j])) -> Array([1.], dtype=float32)")
def real(x: ArrayLike) -> Array:
    """Return the real part of complex x."""
    return complex_ops.real(x)


@document("An array of the real dtype of a complex `x`.", "lax.imag(wnp.array([1 + 2j])) -> Array([2.], dtype=float32)")
def imag(x: ArrayLike) -> Array:
    """Return the imaginary part of complex x."""
    return complex_ops.imag(x)


@document("An array of complex numbers.", "lax.conj(wnp.array([1 + 2j])) -> Array([1.-2.j], dtype=complex64)")
def conj(x: ArrayLike) -> Array:
    """Compute the complex conjugate; a real x becomes complex."""
    return complex_ops.conj(x, input_dtype=_dtype(x))


@document(
    "An array of complex numbers.",
    "lax.complex(wnp.array([1.0]), wnp.array([2.0])) -> Array([1.+2.j], dtype=complex64)",
)
def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Build the complex numbers x + iy from their parts."""
    return complex_ops.complex(*pair(x, y))


# --------------------------------------------------------------------------------------------------------- rounding


@document(
    "An array of the same floating dtype.", "lax.floor(wnp.array([1.7, -1.2])) -> Array([ 1., -2.], dtype=float32)"
)
def floor(x: ArrayLike) -> Array:
    """Round down to the next integer, as a float."""
    return rounding.floor(x)


@document(
    "An array of the same floating dtype.", "lax.ceil(wnp.array([1.2, -1.7])) -> Array([ 2., -1.], dtype=float32)"
)
def ceil(x: ArrayLike) -> Array:
    """Round up to the next integer, as a float."""
    return rounding.ceil(x)


@document(
    "An array of the same floating dtype.",
    "lax.round(wnp.array([0.5, 1.5, -0.5])) -> Array([ 1.,  2., -1.], dtype=float32)",
    rounding_method="`RoundingMethod.AWAY_FROM_ZERO` or `RoundingMethod.TO_NEAREST_EVEN`.",
)
def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Round to the nearest integer; `rounding_method` decides for numbers halfway between two."""
    return rounding.round(x, rounding_method=RoundingMethod(rounding_method))


@document(
    "An array of the same floating dtype.",
    "lax.nextafter(wnp.float32(1.0), wnp.float32(2.0)) - 1.0 -> Array(1.1920929e-07, dtype=float32)",
    x1="an array or a number, floating-point.",
    x2="an array or a number of the same dtype and shape.",
)
def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the next representable float after x1 in the direction of x2."""
    return rounding.nextafter(*pair(x1, x2))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round each element to a float of fewer bits, in the same dtype."""
    bits = {"exponent_bits": index(exponent_bits), "mantissa_bits": index(mantissa_bits)}
    return rounding.reduce_precision(operand, **bits)


# ----------------------------------------------------------------------------------------------------------- choice


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Select, element-wise, the case with index `which`; a boolean chooses between the first and the second case."""
    cases = _convert_scalars(cases)
    shapes = [np.shape(case) for case in cases]
    if any(shape != shapes[0] for shape in shapes):
        raise fail(
            f"select_n got cases of shapes {', '.join(map(str, shapes))}.",
            fix="give all cases one shape; weft.numpy.where broadcasts",
        )
    if np.shape(which) and cases and np.shape(which) != shapes[0]:
        raise fail(
            f"select_n got `which` of shape {np.shape(which)} for cases of shape {shapes[0]}.",
            fix="`which` must be a scalar or have the shape of the cases",
        )
    return selection.select_n(which, *cases)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Select `on_true` where `pred` is true, else `on_false`.

    Args:
        pred: booleans, of the shape of the others or a scalar.
        on_true, on_false: arrays of one shape and dtype.

    Returns:
        An array of that shape and dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.select(wnp.array([True, False]), wnp.array([1, 2]), wnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Limit `x` to [min, max] element-wise.

    Args:
        min, max: the limits, of the shape of `x` or scalars.
        x: an array or a number.

    Returns:
        An array of the dtype of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.clamp(0, wnp.array([-5, 5, 50]), 10)
    Array([ 0,  5, 10], dtype=int32)
    """
    operands = _convert_scalars((min, x, max))
    for bound, word in ((min, "min"), (max, "max")):
        if np.shape(bound) and np.shape(bound) != np.shape(x):
            raise fail(
                f"clamp got {word} of shape {np.shape(bound)} for an operand of shape {np.shape(x)}.",
                fix=f"{word} must be a scalar or have the operand's shape; weft.numpy.clip broadcasts",
            )
    return selection.clamp(*operands)


# ------------------------------------------------------------------------------------------------------- conversion


@document(
    "An array of that dtype.",
    "lax.convert_element_type(wnp.array([1.7, -1.7]), wnp.int32) -> Array([ 1, -1], dtype=int32)",
    operand="an array or a number.",
    new_dtype="the dtype.",
)
def convert_element_type(operand: Any, new_dtype: DTypeLike) -> Array:
    """Convert to another dtype: float to integer clamps to the limits, complex to real drops the imaginary part."""
    if new_dtype is None:
        raise ArgumentError("convert_element_type needs a dtype, got None.")
    dtype = dtypes.requested_dtype(new_dtype, "lax.convert_element_type")
    if hasattr(type(operand), "__jax_array__"):
        operand = operand.__jax_array__()
    aval = getattr(operand, "aval", None)
    if aval is not None:
        if aval.dtype == dtype and not aval.weak_type:
            return operand
        return convert.convert_element_type(operand, new_dtype=dtype, weak_type=False)
    value = np.asarray(operand)
    if isinstance(dtype, dtypes.ExtendedDtype) or value.dtype == object:
        value = conversion.coerce_value(operand, dtype)
        return from_numpy(value)
    with np.errstate(all="ignore"):
        return from_numpy(convert.convert_values(value, dtype))


@document(
    "An array of that dtype.",
    "lax.bitcast_convert_type(wnp.array([1.0]), wnp.uint32) -> Array([1065353216], dtype=uint32)",
    new_dtype="the dtype.",
)
def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Reinterpret the bits as another dtype. A narrower one adds a last dimension, a wider one removes the last."""
    dtype = dtypes.requested_dtype(new_dtype, "lax.bitcast_convert_type")
    return convert.bitcast_convert_type(operand, new_dtype=dtype)


def dtype(x: Any) -> Any:
    """Return the dtype that an array of `x`, an array, a number or a type, has when traced."""
    return dtypes.dtype(x, canonicalize=True)


@document("The same tree, whose derivative is zero.", x="a tree of arrays.")
def stop_gradient(x: Any) -> Any:
    """Return `x` unchanged, as a constant for differentiation.

    >>> import weft
    >>> from weft import lax
    >>> weft.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return tree.map(_constant_leaf, x)


def _constant_leaf(leaf: Any) -> Any:
    inexact = dtypes.kind(_dtype(leaf)) in "fc"
    return convert.stop_gradient(leaf) if inexact else leaf
