"""Comparisons, logical and bitwise operations, and tests of elements and dtypes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import numpy_dtype_promotion
from weft.numpy.argument_docs import document
from weft.numpy.creation import full_array
from weft.numpy.elementwise import absolute
from weft.numpy.util import (
    canonicalize_axis,
    check_arraylike,
    check_no_out,
    dtype_kind,
    ensure_array,
    expand_to,
    follow_device,
    is_arraylike,
    promote_args,
    promote_args_numeric,
    promote_dtypes_inexact,
    scalar_like,
)
from weft.primitives.elementwise import compare
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

# ------------------------------------------------------------------------------------------------ comparisons


@document(
    "An array of booleans; NaN equals nothing.",
    "wnp.equal(wnp.array([1, 2, 3]), 2) -> Array([False,  True, False], dtype=bool)",
)
def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compare element-wise for equality."""
    try:
        x, y = promote_args("equal", x, y)
    except OverflowError:
        return _beyond(operator.eq, x, y)
    return compare.eq(x, y)


@document(
    "An array of booleans; NaN differs from everything, itself too.",
    "wnp.not_equal(wnp.array([1, 2, 3]), 2) -> Array([ True, False,  True], dtype=bool)",
)
def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compare element-wise for inequality."""
    try:
        x, y = promote_args("not_equal", x, y)
    except OverflowError:
        return _beyond(operator.ne, x, y)
    return compare.ne(x, y)


def _beyond(answer: Callable[[Any, Any], bool], x: Any, y: Any) -> Array:
    """Compare an array with a Python integer beyond the range of its dtype: one answer for every element."""
    if isinstance(x, Array) and isinstance(y, int):
        return follow_device(full_array(x.shape, answer(0, y), dtypes.bool_), x)
    if isinstance(y, Array) and isinstance(x, int):
        return follow_device(full_array(y.shape, answer(x, 0), dtypes.bool_), y)
    raise OverflowError(f"Numbers that do not fit their dtypes cannot be compared: {x!r} and {y!r}.")


def _compare_order(name: str, operation: Any, x: Any, y: Any) -> Array:
    try:
        x, y = promote_args(name, x, y)
    except OverflowError:
        return _beyond(getattr(operator, operation.name), x, y)
    if dtype_kind(x) != "c":
        return operation(x, y)
    # Complex numbers compare by their real parts, and by their imaginary parts where those are equal.
    x, y = ensure_array(x), ensure_array(y)
    tie = lax.eq(lax.real(x), lax.real(y))
    return lax.bitwise_or(
        lax.bitwise_and(tie, operation(lax.imag(x), lax.imag(y))),
        lax.bitwise_and(lax.bitwise_not(tie), operation(lax.real(x), lax.real(y))),
    )


@document(
    "An array of booleans; false for NaN. Complex numbers are compared by real, then imaginary part.",
    "wnp.less(wnp.array([1, 2, 3]), 2) -> Array([ True, False, False], dtype=bool)",
)
def less(x: ArrayLike, y: Any, /) -> Array:
    """Test element-wise whether `x < y`."""
    return _compare_order("less", compare.lt, x, y)


@document(
    "An array of booleans; false for NaN.",
    "wnp.less_equal(wnp.array([1, 2, 3]), 2) -> Array([ True,  True, False], dtype=bool)",
)
def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test element-wise whether `x <= y`."""
    return _compare_order("less_equal", compare.le, x, y)


@document(
    "An array of booleans; false for NaN.",
    "wnp.greater(wnp.array([1, 2, 3]), 2) -> Array([False, False,  True], dtype=bool)",
)
def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test element-wise whether `x > y`."""
    return _compare_order("greater", compare.gt, x, y)


@document(
    "An array of booleans; false for NaN.",
    "wnp.greater_equal(wnp.array([1, 2, 3]), 2) -> Array([False,  True,  True], dtype=bool)",
)
def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test element-wise whether `x >= y`."""
    return _compare_order("greater_equal", compare.ge, x, y)


# ------------------------------------------------------------------------------------------ logical and bitwise


def as_booleans(name: str, *args: Any) -> list[Any]:
    """Convert arguments to booleans of one shape; nonzero elements are true."""
    check_arraylike(name, *args)
    masks = []
    for x in args:
        x = x if isinstance(x, Array) else ensure_array(x)
        masks.append(x if x.dtype == np.bool_ else lax.ne(x, scalar_like(x, 0)))
    return promote_args(name, *masks)


@document(
    "An array of booleans; numbers other than zero are true.",
    "wnp.logical_and(wnp.array([True, True]), wnp.array([True, False])) -> Array([ True, False], dtype=bool)",
)
def logical_and(x: Any, y: Any, /) -> Array:
    """Compute the element-wise logical AND."""
    return lax.bitwise_and(*as_booleans("logical_and", x, y))


@document(
    "An array of booleans; numbers other than zero are true.",
    "wnp.logical_or(wnp.array([True, False]), False) -> Array([ True, False], dtype=bool)",
)
def logical_or(x: Any, y: Any, /) -> Array:
    """Compute the element-wise logical OR."""
    return lax.bitwise_or(*as_booleans("logical_or", x, y))


@document(
    "An array of booleans; numbers other than zero are true.",
    "wnp.logical_xor(wnp.array([True, False]), True) -> Array([False,  True], dtype=bool)",
)
def logical_xor(x: Any, y: Any, /) -> Array:
    """Compute the element-wise logical exclusive OR."""
    return lax.bitwise_xor(*as_booleans("logical_xor", x, y))


@document(
    "An array of booleans; numbers other than zero are true.",
    "wnp.logical_not(wnp.array([0, 1, 2])) -> Array([ True, False, False], dtype=bool)",
)
def logical_not(x: ArrayLike, /) -> Array:
    """Compute the element-wise logical NOT."""
    return lax.bitwise_not(*as_booleans("logical_not", x))


@document(
    "An array of the promoted integer dtype, or of booleans.",
    "wnp.bitwise_and(wnp.array([6, 5]), 3) -> Array([2, 1], dtype=int32)",
)
def bitwise_and(x: Any, y: Any, /) -> Array:
    """Compute the element-wise bitwise AND."""
    return lax.bitwise_and(*promote_args("bitwise_and", x, y))


@document(
    "An array of the promoted integer dtype, or of booleans.",
    "wnp.bitwise_or(wnp.array([6, 5]), 3) -> Array([7, 7], dtype=int32)",
)
def bitwise_or(x: Any, y: Any, /) -> Array:
    """Compute the element-wise bitwise OR."""
    return lax.bitwise_or(*promote_args("bitwise_or", x, y))


@document(
    "An array of the promoted integer dtype, or of booleans.",
    "wnp.bitwise_xor(wnp.array([6, 5]), 3) -> Array([5, 6], dtype=int32)",
)
def bitwise_xor(x: Any, y: Any, /) -> Array:
    """Compute the element-wise bitwise exclusive OR."""
    return lax.bitwise_xor(*promote_args("bitwise_xor", x, y))


@document("An array of the dtype of `x`.", "wnp.bitwise_not(wnp.array([0, 5])) -> Array([-1, -6], dtype=int32)")
def bitwise_not(x: ArrayLike, /) -> Array:
    """Invert each bit; negate booleans."""
    return lax.bitwise_not(*promote_args("bitwise_not", x))


invert = bitwise_not
bitwise_invert = bitwise_not


def bitwise_count(x: Any, /) -> Array:
    """Count the set bits of each absolute value, as uint8."""
    (x,) = promote_args_numeric("bitwise_count", x)
    return lax.convert_element_type(lax.population_count(absolute(x)), np.dtype(np.uint8))


@document(
    "An array of the promoted integer dtype; 0 for shifts by the width or more.",
    "wnp.left_shift(wnp.array([1, 3]), 2) -> Array([ 4, 12], dtype=int32)",
)
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Shift the bits to the left by `y`."""
    return lax.shift_left(*promote_args_numeric("left_shift", x, y))


bitwise_left_shift = left_shift


@document(
    "An array of the promoted integer dtype.", "wnp.right_shift(wnp.array([8, -8]), 2) -> Array([ 2, -2], dtype=int32)"
)
def right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Shift the bits to the right by `x2`, preserving the sign."""
    x1, x2 = promote_args_numeric("right_shift", x1, x2)
    return (lax.shift_right_logical if dtype_kind(x1) == "u" else lax.shift_right_arithmetic)(x1, x2)


bitwise_right_shift = right_shift

# ---------------------------------------------------------------------------------------- what kind of number


@document(
    "An array of booleans; all true for integers.",
    "wnp.isfinite(wnp.array([1.0, wnp.inf, wnp.nan])) -> Array([ True, False, False], dtype=bool)",
)
def isfinite(x: ArrayLike, /) -> Array:
    """Test element-wise for numbers that are neither infinite nor NaN."""
    (x,) = promote_args("isfinite", x)
    kind = dtype_kind(x)
    if kind == "f":
        return lax.is_finite(x)
    if kind == "c":
        x = ensure_array(x)
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return follow_device(full_array(x.shape, True, dtypes.bool_), x)


@document(
    "An array of booleans.",
    "wnp.isinf(wnp.array([1.0, -wnp.inf, wnp.nan])) -> Array([False,  True, False], dtype=bool)",
)
def isinf(x: ArrayLike, /) -> Array:
    """Test element-wise for infinity."""
    (x,) = promote_args("isinf", x)
    kind = dtype_kind(x)
    if kind == "f":
        return lax.eq(lax.abs(x), scalar_like(x, math.inf))
    if kind == "c":
        x = ensure_array(x)
        return lax.bitwise_or(isinf(lax.real(x)), isinf(lax.imag(x)))
    return follow_device(full_array(x.shape, False, dtypes.bool_), x)


@document(
    "An array of booleans.", "wnp.isnan(wnp.array([1.0, wnp.inf, wnp.nan])) -> Array([False, False,  True], dtype=bool)"
)
def isnan(x: ArrayLike, /) -> Array:
    """Test element-wise for NaN."""
    (x,) = promote_args("isnan", x)
    return lax.ne(x, x) if dtype_kind(x) in "fc" else follow_device(full_array(x.shape, False, dtypes.bool_), x)


@document(
    "An array of booleans.",
    "wnp.isposinf(wnp.array([wnp.inf, -wnp.inf])) -> Array([ True, False], dtype=bool)",
    x="an array or a number; complex numbers raise.",
)
def isposinf(x: ArrayLike, /, out: Any = None) -> Array:
    """Test element-wise for positive infinity."""
    return _is_infinity("isposinf", x, math.inf, out)


@document(
    "An array of booleans; complex numbers raise.",
    "wnp.isneginf(wnp.array([-wnp.inf, wnp.inf])) -> Array([ True, False], dtype=bool)",
)
def isneginf(x: ArrayLike, /, out: Any = None) -> Array:
    """Test element-wise for negative infinity."""
    return _is_infinity("isneginf", x, -math.inf, out)


def _is_infinity(name: str, x: Any, value: float, out: Any) -> Array:
    check_no_out(name, out)
    (x,) = promote_args(name, x)
    kind = dtype_kind(x)
    if kind == "c":
        raise ArgumentError(f"{name} is not defined for complex numbers.")
    return (
        lax.eq(x, scalar_like(x, value)) if kind == "f" else follow_device(full_array(x.shape, False, dtypes.bool_), x)
    )


@document("An array of booleans.", "wnp.iscomplex(wnp.array([1 + 0j, 1j])) -> Array([False,  True], dtype=bool)")
def iscomplex(x: ArrayLike) -> Array:
    """Test element-wise for a nonzero imaginary part."""
    check_arraylike("iscomplex", x)
    x = ensure_array(x)
    if dtype_kind(x) != "c":
        return follow_device(full_array(x.shape, False, dtypes.bool_), x)
    part = lax.imag(x)
    return lax.ne(part, scalar_like(part, 0))


def isreal(x: ArrayLike) -> Array:
    """Test element-wise for an imaginary part that is absent or zero."""
    return lax.bitwise_not(iscomplex(x))


@document("A Python bool, known when tracing.", "wnp.iscomplexobj(wnp.array([1 + 0j])) -> True")
def iscomplexobj(x: ArrayLike) -> bool:
    """Return whether the dtype is complex."""
    if x is None:
        return False
    if isinstance(x, (list, tuple)):
        return any(iscomplexobj(element) for element in x)
    try:
        return dtype_kind(x) == "c"
    except TypeError:
        return np.iscomplexobj(x)


@document("A Python bool, known when tracing.", "wnp.isrealobj(wnp.ones(2)) -> True")
def isrealobj(x: ArrayLike) -> bool:
    """Return whether the dtype is not complex."""
    return not iscomplexobj(x)


@document("A Python bool.", "wnp.isscalar(3.5), wnp.isscalar(wnp.ones(2)) -> (True, False)", element="any object.")
def isscalar(element: Any) -> bool:
    """Return whether `element` is a number or an array of rank 0."""
    if isinstance(element, (Array, np.ndarray)) or hasattr(type(element), "__jax_array__"):
        return ensure_array(element).ndim == 0
    return np.isscalar(element)


def iterable(y: Any) -> bool:
    """Return whether `y` can be iterated over."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------- closeness


def isclose(a: ArrayLike, b: ArrayLike, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Array:
    """Test element-wise whether two arrays differ by at most `atol + rtol * abs(b)`.

    Args:
        a, b: arrays that broadcast; `b` is the reference.
        rtol: the relative tolerance.
        atol: the absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    Returns:
        An array of booleans. Infinities are close to themselves only.

    >>> import weft.numpy as wnp
    >>> wnp.isclose(wnp.array([1.0, 2.0]), wnp.array([1.000001, 2.1]))
    Array([ True, False], dtype=bool)
    """
    a, b = promote_args("isclose", a, b)
    if dtype_kind(a) == "k":
        return lax.eq(a, b)
    if dtype_kind(a) in "biu":
        a, b = promote_dtypes_inexact(a, b)
    real = dtypes.to_real_dtype(a.dtype)
    margin = lax.add(
        lax.convert_element_type(ensure_array(atol), real),
        lax.mul(lax.convert_element_type(ensure_array(rtol), real), lax.abs(b)),
    )
    near = lax.le(lax.abs(lax.sub(a, b)), margin)
    # Infinities are close to themselves only, and nothing finite is close to one.
    finite = lax.bitwise_and(isfinite(a), isfinite(b))
    same = lax.eq(a, b)
    out = lax.bitwise_or(lax.bitwise_and(finite, near), same)
    if equal_nan:
        out = lax.bitwise_or(out, lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
    return out


def allclose(a: ArrayLike, b: ArrayLike, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Array:
    """Test whether all elements of two arrays are close, see `isclose`.

    Args:
        a, b: arrays that broadcast; `b` is the reference.
        rtol: the relative tolerance.
        atol: the absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    Returns:
        A boolean of rank 0.

    >>> import weft.numpy as wnp
    >>> wnp.allclose(wnp.ones(2), wnp.ones(2) + 1e-7)
    Array(True, dtype=bool)
    """
    close = isclose(a, b, rtol, atol, equal_nan)
    return lax.reduce_and(close, tuple(range(close.ndim)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Test whether two arrays have the same shape and equal elements.

    Args:
        a1, a2: arrays.
        equal_nan: whether NaN equals NaN.

    Returns:
        A boolean of rank 0; false for other shapes.

    >>> import weft.numpy as wnp
    >>> wnp.array_equal(wnp.arange(3), wnp.array([0, 1, 2]))
    Array(True, dtype=bool)
    """
    return _all_equal(a1, a2, equal_nan, False)


def array_equiv(a1: Any, a2: Any) -> Array:
    """Test whether two arrays are equal after broadcasting."""
    return _all_equal(a1, a2, False, True)


def _all_equal(a1: Any, a2: Any, equal_nan: bool, broadcast: bool) -> Array:
    try:
        a1, a2 = (ensure_array(x if is_arraylike(x) else np.asarray(x)) for x in (a1, a2))
    except (TypeError, ValueError):
        return full_array((), False, dtypes.bool_)
    if a1.shape != a2.shape:
        if not broadcast:
            return full_array((), False, dtypes.bool_)
        try:
            shape = lax.broadcast_shapes(a1.shape, a2.shape)
        except ValueError:
            return full_array((), False, dtypes.bool_)
        a1, a2 = expand_to(a1, shape), expand_to(a2, shape)
    with numpy_dtype_promotion("standard"):  # any two arrays can be compared
        same = equal(a1, a2)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(a1), isnan(a2)))
    return lax.reduce_and(same, tuple(range(same.ndim)))


# ---------------------------------------------------------------------------------------------------- dtypes


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Return whether a dtype is of a kind: 'bool', 'signed integer', 'integral', 'numeric', ..., or a dtype."""
    found = dtypes.as_dtype(dtype)
    for option in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(option, str) and option in _KINDS:
            if dtypes.kind(found) in _KINDS[option]:
                return True
        elif isinstance(option, str):
            raise ArgumentError(f"The kind of isdtype must be one of {', '.join(map(repr, _KINDS))}, got {option!r}.")
        elif found == dtypes.as_dtype(option):
            return True
    return False


_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


@document(
    "A Python bool. Short floats such as bfloat16 are floating too.",
    "wnp.issubdtype(wnp.bfloat16, wnp.floating) -> True",
    arg1="a dtype or abstract type.",
    arg2="a dtype or abstract type.",
)
def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Return whether a dtype equals another one or, if that is an abstract type such as `floating`, is of its kind."""
    return dtypes.issubdtype(arg1, arg2)


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Return whether NumPy's casting rules allow a conversion between two dtypes."""
    return np.can_cast(dtypes.storage(dtypes.as_dtype(from_)), dtypes.storage(dtypes.as_dtype(to)), casting=casting)


# ------------------------------------------------------------------------------------------------------- bits in bytes


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Pack eight elements, zero or not, as the bits of one byte along an axis; the last byte is padded with zeros."""
    (mask,) = as_booleans("packbits", a)
    mask, dim = _line_of_bits("packbits", ensure_array(mask), a, axis, bitorder)
    count = mask.shape[dim]
    padding = [(0, -count % 8 if i == dim else 0, 0) for i in range(mask.ndim)]
    bits = lax.pad(lax.convert_element_type(mask, np.dtype(np.uint8)), np.zeros((), np.uint8), padding)
    shape = (*bits.shape[:dim], bits.shape[dim] // 8, 8, *bits.shape[dim + 1 :])
    weights = _bit_positions(bitorder, bits.ndim + 1, dim + 1)
    return lax.reduce_sum(lax.shift_left(lax.reshape(bits, shape), _broadcast_ones(weights, shape)), (dim + 1,))


def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Unpack bytes to bits along an axis: `count` bits of them, or all but the last `-count`."""
    check_arraylike("unpackbits", a)
    a = ensure_array(a)
    if a.dtype != np.uint8:
        raise ArgumentTypeError(f"unpackbits takes bytes (uint8), got {a.aval.short()}.")
    x, dim = _line_of_bits("unpackbits", a, a, axis, bitorder)
    shape = (*x.shape[: dim + 1], 8, *x.shape[dim + 1 :])
    repeated = lax.broadcast_in_dim(x, shape, tuple(i for i in range(len(shape)) if i != dim + 1))
    shifted = lax.shift_right_logical(repeated, _broadcast_ones(_bit_positions(bitorder, len(shape), dim + 1), shape))
    bits = lax.bitwise_and(shifted, np.ones((), np.uint8))
    out = lax.reshape(bits, (*x.shape[:dim], x.shape[dim] * 8, *x.shape[dim + 1 :]))
    length = out.shape[dim]
    if count is None or count == length:
        return out
    if count < 0:
        return lax.slice_in_dim(out, 0, max(length + count, 0), axis=dim)
    if count < length:
        return lax.slice_in_dim(out, 0, count, axis=dim)
    padding = [(0, count - length if i == dim else 0, 0) for i in range(out.ndim)]
    return lax.pad(out, np.zeros((), np.uint8), padding)


def _line_of_bits(name: str, x: Array, original: Any, axis: int | None, bitorder: str) -> tuple[Array, int]:
    if bitorder not in ("big", "little"):
        raise ArgumentError(f"{name} takes bitorder 'big' or 'little', got {bitorder!r}.")
    if name == "packbits" and dtype_kind(original) not in "biu":
        raise ArgumentTypeError(f"Expected an input array of integer or boolean data type, got {x.aval.short()}.")
    if axis is None:
        return lax.reshape(x, (x.size,)), 0
    return x, canonicalize_axis(axis, x.ndim, name)


def _bit_positions(bitorder: str, rank: int, axis: int) -> Array:
    positions = np.arange(8, dtype=np.uint8)
    return ensure_array(
        (positions[::-1] if bitorder == "big" else positions).reshape([8 if i == axis else 1 for i in range(rank)])
    )


def _broadcast_ones(x: Array, shape: tuple[Any, ...]) -> Array:
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape))))
