"""Elementwise arithmetic, powers and integer functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.numpy.argument_docs import document
from weft.numpy.creation import full_array
from weft.numpy.extremes import promote_and_broadcast
from weft.numpy.util import (
    broadcast_operands,
    canonicalize_axis,
    cast,
    check_arraylike,
    check_no_out,
    choose,
    dtype_kind,
    ensure_array,
    follow_device,
    in_float32,
    is_concrete,
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes,
    promote_dtypes_inexact,
    scalar_like,
    strong,
)
from weft.primitives.control.check import check_divisor
from weft.primitives.elementwise import arithmetic
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

# ------------------------------------------------------------------------------------------------- arithmetic


@document(
    "The broadcast sum, in the promoted dtype.",
    "wnp.add(wnp.arange(3), 0.5) -> Array([0.5, 1.5, 2.5], dtype=float32, weak_type=True)",
)
def add(x: Any, y: Any, /) -> Array:
    """Add element-wise; for booleans, compute the logical OR."""
    x, y = promote_args("add", x, y)
    return arithmetic.add(x, y) if x.dtype != np.bool_ else lax.bitwise_or(x, y)


@document(
    "The broadcast difference, in the promoted dtype; booleans raise.",
    "wnp.subtract(wnp.arange(3), 1) -> Array([-1,  0,  1], dtype=int32)",
)
def subtract(x: Any, y: Any, /) -> Array:
    """Subtract element-wise."""
    return arithmetic.sub(*promote_args("subtract", x, y))


@document(
    "The broadcast product, in the promoted dtype.",
    "wnp.multiply(wnp.arange(3), wnp.array([2, 2, 2])) -> Array([0, 2, 4], dtype=int32)",
)
def multiply(x: Any, y: Any, /) -> Array:
    """Multiply element-wise; for booleans, compute the logical AND."""
    x, y = promote_args("multiply", x, y)
    return arithmetic.mul(x, y) if x.dtype != np.bool_ else lax.bitwise_and(x, y)


@document(
    "An array of the dtype of `x`; unsigned integers wrap around, booleans raise.",
    "wnp.negative(wnp.array([1.0, -2.0])) -> Array([-1.,  2.], dtype=float32)",
)
def negative(x: Any, /) -> Array:
    """Negate each element."""
    return arithmetic.neg(*promote_args("negative", x))


@document("An array with the values of `x`.", "wnp.positive(wnp.array([1, -2])) -> Array([ 1, -2], dtype=int32)")
def positive(x: ArrayLike, /) -> Array:
    """Return the elements unchanged."""
    check_arraylike("positive", x)
    return ensure_array(x)


@document("The broadcast quotient as floats. Division by zero is inf or NaN.")
def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divide element-wise, in floating point.

    >>> import weft.numpy as wnp
    >>> wnp.true_divide(wnp.array([1, 2]), 4)
    Array([0.25, 0.5 ], dtype=float32)
    >>> wnp.divide(wnp.array([1.0, 0.0]), 0)
    Array([inf, nan], dtype=float32)
    """
    return arithmetic.div(*promote_args_inexact("true_divide", x1, x2))


@document(
    "The broadcast quotient as floats; integers are converted first. Division by zero is inf or NaN.",
    "wnp.divide(wnp.array([1, 2]), 4) -> Array([0.25, 0.5 ], dtype=float32)",
)
def divide(x1: ArrayLike, x2: Any, /) -> Array:
    """Divide element-wise, in floating point."""
    return arithmetic.div(*promote_args_inexact("divide", x1, x2))


@document(
    "An array of floats; integers are converted first.",
    "wnp.reciprocal(wnp.array([2.0, 4.0])) -> Array([0.5 , 0.25], dtype=float32)",
)
def reciprocal(x: ArrayLike, /) -> Array:
    """Compute one over each element."""
    (x,) = promote_args_inexact("reciprocal", x)
    return lax.div(scalar_like(x, 1), x)


@document(
    "The broadcast quotient in the promoted dtype. An integer divided by zero raises "
    "`IntegerDivisionError` where checks are on.",
    "wnp.floor_divide(wnp.array([7, -7]), 2) -> Array([ 3, -4], dtype=int32)",
)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divide element-wise and round down."""
    x1, x2 = promote_args_numeric("floor_divide", x1, x2)
    kind = dtype_kind(x1)
    if kind == "u":
        return lax.div(x1, x2)
    if kind == "i":
        quotient = lax.div(x1, x2)
        adjust = lax.bitwise_and(lax.ne(lax.sign(x1), lax.sign(x2)), lax.ne(lax.rem(x1, x2), scalar_like(x1, 0)))
        return choose(adjust, lax.sub(quotient, scalar_like(x1, 1)), quotient)
    if kind == "c":
        raise ArgumentTypeError("floor_divide does not support complex-valued inputs.")
    return _float_divmod(x1, x2)[0]


@document(
    "The broadcast remainder, in the promoted dtype. Its derivative is 1 in `x1` and `-floor(x1 / x2)` in `x2`.",
    "wnp.remainder(wnp.array([7, -7]), 3) -> Array([1, 2], dtype=int32)",
)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the remainder of `floor_divide`; it has the sign of the divisor."""
    x1, x2 = promote_args_numeric("remainder", x1, x2)
    x2 = _divisor(x2)
    rest = arithmetic.rem(x1, x2)
    if dtype_kind(x1) == "u":
        return rest
    zero = scalar_like(x1, 0)
    adjust = lax.bitwise_and(lax.ne(lax.lt(rest, zero), lax.lt(x2, zero)), lax.ne(rest, zero))
    rest = choose(adjust, lax.add(rest, x2), rest)
    return _with_sign_of_divisor(rest, x2) if dtype_kind(x1) == "f" else rest


def _with_sign_of_divisor(rest: Any, divisor: Any) -> Array:
    """Give zeros among remainders the sign of the divisor, as in NumPy."""
    other = lax.ne(_signbit(rest), _signbit(divisor))
    # A zero changes its sign, but keeps its derivative: the subtracted term is zero, and adds the derivative twice.
    turned = lax.sub(lax.neg(rest), lax.mul(scalar_like(rest, 2), lax.sub(lax.stop_gradient(rest), rest)))
    return choose(lax.bitwise_and(other, lax.eq(rest, scalar_like(rest, 0))), turned, rest)


mod = remainder


@document(
    "The broadcast remainder, in the promoted dtype.", "wnp.fmod(wnp.array([7, -7]), 3) -> Array([ 1, -1], dtype=int32)"
)
def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the remainder of the quotient rounded towards zero; it has the sign of the dividend."""
    x1, x2 = promote_args_numeric("fmod", x1, x2)
    return arithmetic.rem(x1, _divisor(x2))


def _divisor(x: Any) -> Any:
    """Replace 0 by 1 in an integer divisor, so that the remainder of a division by zero is 0, as in NumPy."""
    if dtype_kind(x) not in "iu" or (not isinstance(x, Array) and x != 0):
        return x
    check_divisor(x)
    return choose(lax.eq(x, scalar_like(x, 0)), scalar_like(x, 1), x)


@document("A pair of arrays, the quotient and the remainder.")
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Compute `floor_divide` and `remainder` together.

    >>> import weft.numpy as wnp
    >>> quotient, rest = wnp.divmod(wnp.array([7, -7]), 3)
    >>> quotient, rest
    (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
    x1, x2 = promote_args_numeric("divmod", x1, x2)
    if dtype_kind(x1) in "iu":
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(x1, x2)


def _float_divmod(x1: Any, x2: Any) -> tuple[Array, Array]:
    zero, rest = scalar_like(x1, 0), lax.rem(x1, x2)
    quotient = lax.div(lax.sub(x1, rest), x2)
    adjust = lax.bitwise_and(lax.ne(rest, zero), lax.ne(lax.sign(x2), lax.sign(rest)))
    rest = choose(adjust, lax.add(rest, x2), rest)
    quotient = lax.round(choose(adjust, lax.sub(quotient, scalar_like(x1, 1)), quotient))
    exact = lax.div(x1, x2)
    quotient = choose(lax.eq(quotient, zero), lax.mul(lax.sign(exact), zero), quotient)
    # The remainder of a division by zero is undefined, but the quotient is infinite.
    return choose(lax.eq(x2, zero), exact, quotient), _with_sign_of_divisor(rest, x2)


def modf(x: ArrayLike, /, out: Any = None) -> tuple[Array, Array]:
    """Split each element into its fractional and its integer part."""
    check_no_out("modf", out)
    (x,) = promote_args_inexact("modf", x)
    whole = choose(lax.ge(x, scalar_like(x, 0)), lax.floor(x), lax.ceil(x))
    return lax.sub(x, whole), whole


@document("An array of the dtype of `x`.", "wnp.square(wnp.array([-2, 3])) -> Array([4, 9], dtype=int32)")
def square(x: ArrayLike, /) -> Array:
    """Square each element."""
    return lax.square(*promote_args_numeric("square", x))


def absolute(x: ArrayLike, /) -> Array:
    """Compute the element-wise absolute value; for complex numbers, the magnitude.

    Args:
        x: an array or a number.

    Returns:
        An array of the dtype of `x`, of its real dtype if `x` is complex. The derivative at 0 is 1 for real numbers.

    >>> import weft.numpy as wnp
    >>> wnp.absolute(wnp.array([-1.5, 2.0]))
    Array([1.5, 2. ], dtype=float32)
    >>> wnp.abs(wnp.array(3 + 4j))
    Array(5., dtype=float32, weak_type=True)
    """
    if not isinstance(x, Array):
        check_arraylike("absolute", x)
        x = ensure_array(x)
    return x if dtype_kind(x) in "bu" else lax.abs(x)


@document(
    "An array of floats; complex numbers raise.", "wnp.fabs(wnp.array([-1, 2])) -> Array([1., 2.], dtype=float32)"
)
def fabs(x: ArrayLike, /) -> Array:
    """Compute the element-wise absolute value, in floating point."""
    (x,) = promote_args_inexact("fabs", x)
    return lax.abs(x)


@document(
    "An array of the dtype of `x`; NaN stays NaN. For real numbers its derivative is 0.",
    "wnp.sign(wnp.array([-2.5, 0.0, 7.0])) -> Array([-1.,  0.,  1.], dtype=float32)",
)
def sign(x: ArrayLike, /) -> Array:
    """Compute the element-wise sign: -1, 0 or 1, or x / abs(x) for complex numbers."""
    return lax.sign(*promote_args("sign", x))


@document("An array of floats.", "wnp.copysign(wnp.array([1.0, 2.0]), -0.0) -> Array([-1., -2.], dtype=float32)")
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Give the magnitude of `x1` the sign of `x2`."""
    x1, x2 = broadcast_full("copysign", x1, x2)
    if dtype_kind(x1) == "c":
        raise ArgumentTypeError("copysign does not support complex-valued inputs.")
    if not dtypes.is_weakly_typed(x2):
        x1 = strong(ensure_array(x1))
    return choose(_signbit(x2), lax.neg(lax.abs(x1)), lax.abs(x1))


@document(
    "An array of booleans.", "wnp.signbit(wnp.array([-0.0, 0.0, -1.0])) -> Array([ True, False,  True], dtype=bool)"
)
def signbit(x: ArrayLike, /) -> Array:
    """Test element-wise for a set sign bit: true for negative numbers and for -0.0."""
    (x,) = promote_args("signbit", x)
    kind = dtype_kind(x)
    if kind in "bu":
        return follow_device(full_array(x.shape, False, dtypes.bool_), x)
    if kind == "i":
        return lax.lt(x, scalar_like(x, 0))
    if kind == "c":
        raise ArgumentError("signbit is not defined for complex numbers.")
    return _signbit(x)


def _signbit(x: Any) -> Array:
    integer = SAME_WIDTH[x.dtype.itemsize]
    return lax.lt(lax.bitcast_convert_type(x, integer), np.zeros((), integer))


SAME_WIDTH: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the step function: 0 where `x1` is negative, 1 where it is positive, and `x2` where it is zero."""
    x1, x2 = broadcast_full("heaviside", x1, x2)
    zero = scalar_like(x1, 0)
    step = choose(lax.lt(x1, zero), scalar_like(x1, 0), scalar_like(x1, 1))
    step = choose(lax.eq(x1, zero), x2, step)
    return choose(lax.ne(x1, x1), x1, step)


def broadcast_full(name: str, *args: Any) -> list[Any]:
    """Promote arguments to floating point and broadcast them to one shape, scalars included."""
    promoted = promote_args_inexact(name, *args)
    shape = max((x.shape for x in promoted), key=len)
    return [x if x.shape == shape else lax.broadcast(x, shape) for x in promoted]


# ----------------------------------------------------------------------------------------------------- powers


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Raise `x1` to the power of `x2`; a known integer exponent is multiplied out, for the right derivative at 0.

    Args:
        x1: the bases.
        x2: the exponents. An integer base to a negative integer exponent raises: convert the base to a float first.

    Returns:
        The broadcast powers, in the promoted dtype.

    >>> import weft.numpy as wnp
    >>> wnp.power(wnp.array([1, 2, 3]), 2)
    Array([1, 4, 9], dtype=int32)
    >>> wnp.power(4.0, 0.5)
    Array(2., dtype=float32, weak_type=True)
    """
    if type(x2) is not int:
        check_arraylike("power", x1, x2)
        x2 = _static_integer(x2)
    if type(x2) is int:
        if not (isinstance(x1, Array) and dtypes.kind(x1.dtype) in "iufc"):
            (x1,) = promote_args_numeric("power", x1)
        return lax.integer_pow(x1, x2)
    base, exponent = (ensure_array(x) if np.ndim(x) or isinstance(x, Array) else x for x in (x1, x2))
    if dtype_kind(base) in "fc" and dtype_kind(exponent) in "iu":
        base, exponent = broadcast_operands(
            "power", [cast(base, dtypes.dtype(base, canonicalize=True)), ensure_array(exponent)]
        )
        return lax.pow(base, exponent)
    base, exponent = promote_args_numeric("power", base, exponent)
    if dtype_kind(base) in "iu":
        return _integer_power(base, exponent)
    return lax.pow(base, exponent)


pow = power


def _static_integer(x: Any) -> Any:
    """Convert a concrete integer scalar to a Python int; return other values unchanged."""
    if is_concrete(x) and not isinstance(x, (float, complex)) and np.ndim(x) == 0:
        try:
            value: Any = x if isinstance(x, (int, np.generic)) else np.asarray(x)[()]
            return operator.index(value)
        except TypeError:
            return x
    return x


def _integer_power(base: Any, exponent: Any) -> Array:
    """Compute integer powers by repeated squaring, one step for each bit that an exponent can have.

    A negative power is rounded towards zero, so it is 0 unless the base is 1 or -1.
    """
    base, exponent = (ensure_array(x) for x in (base, exponent))
    if base.weak_type and not exponent.weak_type:
        base = lax.convert_element_type(base, base.dtype)
    shape = base.shape or exponent.shape
    base, exponent = (x if x.shape == shape else lax.broadcast(x, shape) for x in (base, exponent))
    one, zero = scalar_like(base, 1), scalar_like(base, 0)
    vanishes = lax.lt(exponent, zero)
    if dtype_kind(base) == "i":
        vanishes = lax.bitwise_and(vanishes, lax.bitwise_and(lax.ne(base, one), lax.ne(base, scalar_like(base, -1))))
    result = choose(vanishes, scalar_like(base, 0), scalar_like(base, 1))
    for _ in range(dtypes.iinfo(exponent.dtype).bits - (dtype_kind(exponent) == "i")):
        odd = lax.eq(lax.bitwise_and(exponent, one), one)
        result = choose(odd, lax.mul(result, base), result)
        base = lax.mul(base, base)
        exponent = lax.shift_right_logical(exponent, one)
    return result


def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raise `x` to the power of `y` in floating point."""
    return lax.pow(*promote_args_inexact("float_power", x, y))


@document(
    "An array of floats. It is differentiable everywhere, at the origin too.",
    "wnp.hypot(3.0, 4.0) -> Array(5., dtype=float32, weak_type=True)",
)
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the length of the hypotenuse, sqrt(x1**2 + x2**2), without overflow on the way."""
    x1, x2 = broadcast_full("hypot", x1, x2)
    if dtype_kind(x1) == "c":
        raise ArgumentError("hypot is not defined for complex numbers.")
    x1, x2 = lax.abs(x1), lax.abs(x2)
    large, small = lax.max(x1, x2), lax.min(x1, x2)
    zero, one = scalar_like(x1, 0), scalar_like(x1, 1)
    divisor = choose(lax.eq(large, zero), scalar_like(large, 1), large)
    ratio = lax.div(small, divisor)
    length = lax.mul(large, lax.sqrt(lax.add(one, lax.mul(ratio, ratio))))
    infinity = scalar_like(x1, math.inf)
    infinite = lax.bitwise_or(lax.eq(x1, infinity), lax.eq(x2, infinity))  # wins over NaN
    return choose(infinite, infinity, choose(lax.eq(large, zero), large, length))


@document(
    "An array of floats.",
    "wnp.logaddexp(1000.0, wnp.array([1000.0, 0.0])).round(3) -> Array([1000.693, 1000.   ], dtype=float32)",
)
def logaddexp(x1: Any, x2: Any, /) -> Array:
    """Compute log(exp(x1) + exp(x2)) without overflow on the way."""
    x1, x2 = broadcast_full("logaddexp", x1, x2)
    if dtype_kind(x1) == "c":
        first = lax.ge(lax.real(x1), lax.real(x2))
        large, small = choose(first, x1, x2), choose(first, x2, x1)
        return _principal(lax.add(large, lax.log1p(lax.exp(lax.sub(small, large)))))
    return _log_add_exp(x1, x2)


def _principal(x: Array) -> Array:
    """Bring the angle of a complex logarithm between -pi and pi."""
    angle = lax.imag(x)
    half = scalar_like(angle, math.pi)
    outside = lax.gt(lax.abs(angle), half)
    around = subtract(remainder(lax.add(angle, half), scalar_like(angle, 2 * math.pi)), half)
    return lax.complex(lax.real(x), choose(outside, around, angle))


def logaddexp2(x1: Any, x2: Any, /) -> Array:
    """Compute log2(2**x1 + 2**x2) without overflow on the way."""
    x1, x2 = broadcast_full("logaddexp2", x1, x2)
    if dtype_kind(x1) == "c":
        factor = scalar_like(x1, math.log(2))
        return lax.div(logaddexp(lax.mul(x1, factor), lax.mul(x2, factor)), factor)
    return _log_add_exp2(x1, x2)


@custom_jvp
def _log_add_exp(x1: Any, x2: Any) -> Array:
    return _log_add_power(x1, x2, lax.exp, lax.log1p)


@custom_jvp
def _log_add_exp2(x1: Any, x2: Any) -> Array:
    return _log_add_power(x1, x2, lax.exp2, lambda x: lax.div(lax.log1p(x), scalar_like(x1, math.log(2))))


def _log_add_power(x1: Any, x2: Any, power: Callable[[Any], Any], logarithm: Callable[[Any], Any]) -> Array:
    difference = lax.sub(x1, x2)
    # inf - inf is NaN; with 0 instead of it the values are right.
    unknown = lax.ne(difference, difference)
    difference = choose(unknown, scalar_like(difference, 0), difference)
    return lax.add(lax.max(x1, x2), logarithm(power(lax.neg(lax.abs(difference)))))


def _share(power: Callable[[Any], Any], x: Any, out: Any) -> Any:
    """Return the share of x in the sum, which is its derivative: smooth where the formula above has a kink."""
    return power(choose(lax.eq(x, out), scalar_like(x, 0), lax.sub(x, out)))


for _function, _power in ((_log_add_exp, lax.exp), (_log_add_exp2, lax.exp2)):
    _function.defjvps(
        lambda tangent, out, x1, x2, power=_power: lax.mul(tangent, _share(power, x1, out)),
        lambda tangent, out, x1, x2, power=_power: lax.mul(tangent, _share(power, x2, out)),
    )


# ---------------------------------------------------------------------------------------------- integer functions


@document(
    "An array of the promoted integer dtype, without sign.",
    "wnp.gcd(wnp.array([12, 18]), 8) -> Array([4, 2], dtype=int32)",
)
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the element-wise greatest common divisor."""
    x1, x2 = _integers("gcd", x1, x2)

    def step(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        larger, smaller = pair
        done = lax.eq(smaller, scalar_like(smaller, 0))
        divisor = choose(done, scalar_like(smaller, 1), smaller)
        return choose(done, larger, smaller), choose(done, smaller, lax.rem(larger, divisor))

    def unfinished(pair: tuple[Any, Any]) -> Any:
        axes = tuple(range(len(pair[1].shape)))
        return lax.reduce_or(lax.ne(pair[1], scalar_like(pair[1], 0)), axes)

    # The least integer has no absolute value, so that a divisor found from it may be negative.
    return absolute(lax.while_loop(unfinished, step, (absolute(x1), absolute(x2)))[0])


@document(
    "An array of the promoted integer dtype, without sign.",
    "wnp.lcm(wnp.array([4, 6]), 10) -> Array([20, 30], dtype=int32)",
)
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the element-wise least common multiple."""
    x1, x2 = _integers("lcm", x1, x2)
    x1, x2 = absolute(x1), absolute(x2)
    divisor = gcd(x1, x2)
    nothing = lax.eq(divisor, scalar_like(divisor, 0))
    safe = choose(nothing, scalar_like(divisor, 1), divisor)
    return choose(nothing, scalar_like(divisor, 0), lax.mul(x1, lax.div(x2, safe)))


def _integers(name: str, *args: Any) -> list[Any]:
    arrays = promote_and_broadcast(name, *args)
    if dtype_kind(arrays[0]) not in "iu":
        raise ArgumentError(f"{name} takes integers, got {arrays[0].aval.short()}.")
    return arrays


def i0(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind, of order 0."""
    (x,) = promote_args_inexact("i0", x)
    if dtype_kind(x) == "c":
        raise ArgumentError("i0 is not defined for complex numbers.")
    return in_float32(_i0, x)


def _i0(x: Array) -> Array:
    # The derivative of i0 at 0 is 0: that of x * sign(x) is 0, that of abs(x) would be 1. The exponential may be too
    # large where the result is not, so half of it is taken twice.
    root = lax.exp(lax.mul(lax.mul(x, lax.sign(x)), scalar_like(x, 0.5)))
    return lax.mul(lax.mul(lax.bessel_i0e(x), root), root)


def unwrap(p: ArrayLike, discont: Any = None, axis: int = -1, period: Any = 2 * math.pi) -> Array:
    """Add multiples of the period to angles along an axis, so that neighbours differ by at most half of it."""
    check_arraylike("unwrap", p)
    p = ensure_array(p)
    if dtype_kind(p) == "c":
        raise ArgumentError("unwrap is not defined for complex numbers.")
    if dtype_kind(p) in "biu" and isinstance(period, float):
        (p,) = promote_dtypes_inexact(p)
    axis = canonicalize_axis(axis, p.ndim, "unwrap")
    if p.shape[axis] == 0:
        return p
    before, after = (lax.slice_in_dim(p, s, p.shape[axis] - 1 + s, axis=axis) for s in (0, 1))
    jump = subtract(after, before)
    jump, length = promote_dtypes(jump, period)
    half = lax.div(length, scalar_like(length, 2))
    interval = half
    wrapped = subtract(remainder(add(jump, interval), length), interval)
    wrapped = choose(
        lax.bitwise_and(lax.eq(wrapped, lax.neg(interval)), lax.gt(jump, scalar_like(jump, 0))),
        lax.full_like(wrapped, 0) + interval,
        wrapped,
    )
    correction = subtract(wrapped, jump)
    limit = interval if discont is None else cast(discont, jump.dtype)
    correction = choose(lax.lt(lax.abs(jump), limit), scalar_like(correction, 0), correction)
    first = lax.slice_in_dim(p, 0, 1, axis=axis)
    rest = add(after, lax.cumsum(correction, axis))
    first, rest = promote_dtypes(first, rest)
    return lax.concatenate([first, rest], axis)
