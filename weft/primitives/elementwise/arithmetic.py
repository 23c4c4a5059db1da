"""Arithmetic on each element: sums, products, quotients, integer powers, extremes, magnitude and sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.indexing.ranges import Range
from weft.ir.flow import OperandRanges
from weft.ir.primitive import Params, Sample, primitive
from weft.ir.rules.bindable import Operands
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise import complex_values
from weft.primitives.elementwise.compare import eq, ge
from weft.primitives.elementwise.complex import conj, real
from weft.primitives.elementwise.complex_values import of_complex
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.elementwise.extremes import maximum, minimum
from weft.primitives.elementwise.rounding import floor
from weft.primitives.elementwise.scalar import (
    bfloat16,
    complex_ramp,
    constant_like,
    get_dtype,
    is_complex,
    positive_ramp,
    round_result,
)
from weft.primitives.elementwise.select import select_n, where
from weft.primitives.movement.shape import broadcast_in_dim, ramp
from weft.primitives.reduction.reduce import unbroadcast

# NumPy's complex products fuse a multiplication and an addition where the machine can, ours are rounded one by one.
COMPLEX_ULP = {"": 0.0, "complex64": 2.0, "complex128": 2.0}


def pair_samples() -> Any:
    """Yield samples of an operation on two arrays of numbers."""
    yield Sample(ramp(3, 2), ramp(3, 2)[::-1].copy())
    yield Sample(ramp(3), ramp()[()])
    yield Sample(ramp()[()], ramp(3))
    yield Sample(ramp(0, 2), ramp(0, 2))
    yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32)[::-1].copy())
    yield Sample(ramp(4, dtype=np.uint8), ramp(4, dtype=np.uint8)[::-1].copy())
    yield Sample(complex_ramp(2), complex_ramp(2) * 1j)
    yield Sample(ramp(3, dtype=bfloat16), ramp(3, dtype=bfloat16)[::-1].copy(), differentiable=False)


def is_nan(constant: Any) -> bool:
    """Return whether a constant is nan: of two nans, the first is the result."""
    return dtypes.kind(constant.dtype) in "fc" and bool(np.isnan(np.complex128(constant)))


@primitive
class add(Elementwise):
    """Sum of two arrays."""

    linear = "all"
    eval = round_result(np.add)
    keeps_nan = "all"

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [unbroadcast(cotangent, a.aval) if is_linear(a) else None for a in (x, y)]

    def jvp(self, tangents: Any, out: Any, x: Any, y: Any) -> Any:
        dx, dy = tangents
        if type(dx) is Zero or type(dy) is Zero:
            return broadcast_tangent(dy if type(dx) is Zero else dx, out)
        return add(dx, dy)

    def mirror(self, constant: Any) -> str | None:
        return None if is_nan(constant) else self.name

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0) + operands(1)

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        return any(map(known, operands))  # it is the sum of two of them only

    def samples(self) -> Any:
        yield from pair_samples()


@primitive
class mul(Elementwise):
    """Product of two arrays."""

    ulp = COMPLEX_ULP

    linear = "all"
    multilinear = True
    eval = round_result(complex_values.product)
    keeps_nan = "all"

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        if is_linear(x):
            return [unbroadcast(mul(cotangent, y), x.aval), None]
        return [None, unbroadcast(mul(x, cotangent), y.aval)]

    def mirror(self, constant: Any) -> str | None:
        return None if is_nan(constant) or dtypes.kind(constant.dtype) == "c" else self.name

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0) * operands(1)

    def never_negative_zero(self, operands: Sequence[Any], known: Callable[[Any], bool], params: Params) -> bool:
        return operands[0] is operands[1]

    def samples(self) -> Any:
        yield from pair_samples()


@primitive
class neg(Elementwise):
    """Minus each element."""

    linear = (0,)
    eval = round_result(np.negative)
    introduces = ()
    keeps_nan = "all"

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [neg(cotangent)]

    def bounds(self, operands: OperandRanges) -> Range:
        return -operands(0)

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))
        yield Sample(ramp(3, dtype=np.uint8))
        yield Sample(complex_ramp(2))


@primitive
class sub(Elementwise):
    """Difference of two arrays."""

    linear = "all"
    eval = round_result(np.subtract)
    keeps_nan = "all"

    def jvp(self, tangents: Any, out: Any, x: Any, y: Any) -> Any:
        dx, dy = tangents
        if type(dy) is Zero:
            return broadcast_tangent(dx, out)
        return broadcast_tangent(neg(dy), out) if type(dx) is Zero else sub(dx, dy)

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [
            unbroadcast(cotangent, x.aval) if is_linear(x) else None,
            neg(unbroadcast(cotangent, y.aval)) if is_linear(y) else None,
        ]

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0) - operands(1)

    def samples(self) -> Any:
        yield from pair_samples()


def broadcast_tangent(tangent: Any, out: Any) -> Any:
    """Broadcast a tangent to the shape of the result, for a scalar operand."""
    if type(tangent) is Zero:
        return Zero.of(out.aval)
    if np.shape(tangent) == out.shape:
        return tangent
    return broadcast_in_dim(tangent, shape=out.shape, broadcast_dimensions=())


@primitive
class div(Elementwise):
    """Quotient; of integers it is cut towards zero, and a division by zero returns -1 (all bits set)."""

    ulp = COMPLEX_ULP

    eval = round_result(lambda x, y: _integer_quotient(x, y) if x.dtype.kind in "iu" else np.divide(x, y))
    keeps_nan = "all"
    weight = 4

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        if i == 0:
            return div(tangent, y)
        return neg(mul(div(tangent, y), out))

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [unbroadcast(div(cotangent, y), x.aval), None]

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0).quotient(operands(1))

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), positive_ramp(3, 2)[::-1].copy())
        yield Sample(ramp(3), np.float32(1.5).reshape(()))
        yield Sample(np.float32(1.5).reshape(()), positive_ramp(3))
        yield Sample(_DIVIDENDS, _DIVISORS)
        yield Sample(np.array([5, 7, 255], np.uint8), np.array([0, 2, 3], np.uint8))
        yield Sample(complex_ramp(3), complex_ramp(3)[::-1] * 1j)
        yield Sample(positive_ramp(3, dtype=bfloat16), positive_ramp(3, dtype=bfloat16), differentiable=False)


_DIVIDENDS = np.array([5, -5, 0, -(2**31), -7, 7, 9], np.int32)
_DIVISORS = np.array([0, 0, 0, -1, 2, -2, 3], np.int32)


def _integer_quotient(x: Any, y: Any) -> Any:
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "i":
        rest = x - quotient * y
        quotient = quotient + ((rest != 0) & ((x < 0) != (y < 0))).astype(x.dtype)
        quotient = np.where((y == -1), np.negative(x), quotient)
    return np.where(y == 0, ~np.zeros((), x.dtype), quotient)


@primitive
class rem(Elementwise):
    """Rest of the division cut towards zero: it has the sign of the dividend. An integer modulo zero is itself."""

    kinds = "iuf"
    eval = round_result(lambda x, y: np.where(y == 0, x, np.fmod(x, y)) if x.dtype.kind in "iu" else np.fmod(x, y))
    keeps_nan = "all"
    weight = 8

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        if i == 0:
            return broadcast_tangent(tangent, out)
        quotient = div(x, y)
        return neg(mul(tangent, mul(sign(quotient), floor(abs(quotient)))))

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0).remainder(operands(1))

    def samples(self) -> Any:
        yield Sample(ramp(3, 2) * 3, positive_ramp(3, 2)[::-1].copy())
        yield Sample(np.float32(7.3).reshape(()), positive_ramp(3))
        yield Sample(ramp(3) * 3, np.float32(0.7).reshape(()))
        yield Sample(_DIVIDENDS, _DIVISORS)
        yield Sample(
            np.array([np.inf, 1, np.nan, 1], np.float32), np.array([1, np.inf, 1, 0], np.float32), differentiable=False
        )


@primitive
class square(Elementwise):
    """Each element times itself."""

    ulp = COMPLEX_ULP

    eval = round_result(lambda x: complex_values.product(x, x))
    keeps_nan = "all"
    negative_zero = False

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return mul(tangent, mul(constant_like(x, 2), x))

    def emit(self, builder: Any, x: Any) -> Any:
        return builder.mul(x, x)

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))
        yield Sample(ramp(3, dtype=np.int32))
        yield Sample(complex_ramp(2))
        yield Sample(ramp(3, dtype=bfloat16), differentiable=False)


@primitive
class integer_pow(Elementwise):
    """Whole power, by repeated squaring."""

    ulp = {"": 0.0, "complex64": 16.0, "complex128": 16.0}

    def type(self, x: Any, *, y: int) -> Any:
        if y < 0 and dtypes.kind(x.dtype) in "iu":
            raise ArgumentTypeError(
                f"integer_pow cannot raise integers to a negative power, got {x.short()} and y={y}. "
                "Convert to a float first."
            )
        return super().type(x)

    @round_result
    def eval(x: Any, *, y: int) -> Any:
        return _integer_power(np.asarray(x), y)

    def exact(self, types: Sequence[Any], params: Any) -> bool:
        """Products are exact, also of complex numbers; their quotients are not."""
        return params["y"] >= 0 or super().exact(types, params)

    def partial(self, i: int, tangent: Any, out: Any, x: Any, *, y: int) -> Any:
        if y == 0:
            return Zero.of(out.aval)
        if y == 1:
            return tangent
        return mul(tangent, mul(constant_like(x, y), x if y == 2 else integer_pow(x, y=y - 1)))

    def nan_operands(self, params: Params) -> Operands:
        return "all" if params["y"] else ()

    def element_weight(self, params: Params) -> float:
        result: float = (params["y"] if params["y"] >= 0 else -params["y"]).bit_length() + (4 if params["y"] < 0 else 0)
        return result

    def samples(self) -> Any:
        for exponent in (0, 1, 2, 3, 7):
            yield Sample(ramp(3), y=exponent)
        yield Sample(positive_ramp(3), y=-1)
        yield Sample(positive_ramp(2, 2), y=-3)
        yield Sample(ramp(3, dtype=np.int32), y=5)
        yield Sample(complex_ramp(2), y=3)
        yield Sample(ramp(3, dtype=bfloat16), y=4, differentiable=False)


def _integer_power(x: np.ndarray, exponent: int) -> Any:
    """Compute a power by repeated squaring, so that every product is rounded and integers wrap. No factor of one: it
    would turn infinite complex numbers into nan."""
    left, base = (exponent if exponent >= 0 else -exponent), x
    power: Any = None
    while left:
        if left & 1:
            power = base if power is None else complex_values.product(power, base)
        left >>= 1
        if left:
            base = complex_values.product(base, base)
    if power is None:
        return np.ones(x.shape, x.dtype)
    return np.ones((), x.dtype) / power if exponent < 0 else power


class Extreme(Elementwise):
    """Greater or the lesser of two elements; nan wins, complex numbers are ordered by real, then imaginary part."""

    kinds = "biufc"
    introduces = ()
    keeps_nan = "all"

    def exact(self, types: Sequence[Any], params: Any) -> bool:
        """NumPy does not order the two zeros; fixing that up takes longer than compiled code."""
        return dtypes.kind(types[0].dtype) != "f"

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        chosen, other = (x, y) if i == 0 else (y, x)
        # Where both are the extreme, each has half of the derivative.
        share = where(eq(other, out), constant_like(out, 0.5), constant_like(out, 1))
        return mul(tangent, where(eq(chosen, out), share, constant_like(out, 0)))

    def mirror(self, constant: Any) -> str | None:
        kind = dtypes.kind(constant.dtype)
        # Of 0.0 and -0.0 either may be the greater one.
        free = kind in "biu" or (kind == "f" and not is_nan(constant) and np.float64(constant) != 0)
        return self.name if free else None

    def samples(self) -> Any:
        yield Sample(ramp(3, 2), ramp(3, 2)[::-1] + np.float32(0.1))
        yield Sample(ramp(4), np.float32(0.3).reshape(()))
        yield Sample(np.float32(0.3).reshape(()), ramp(4))
        yield Sample(ramp(4, dtype=np.int32), ramp(4, dtype=np.int32)[::-1].copy())
        yield Sample(np.array([True, False]), np.array([False, False]))
        yield Sample(
            np.array([np.nan, 1, np.inf], np.float32), np.array([1, np.nan, -np.inf], np.float32), differentiable=False
        )
        yield Sample(ramp(3, dtype=bfloat16), ramp(3, dtype=bfloat16)[::-1].copy(), differentiable=False)
        yield Sample(complex_ramp(3), complex_ramp(3)[::-1].copy(), differentiable=False)


@primitive
class max(Extreme):
    """Greater of two elements."""

    eval = round_result(maximum.__call__)

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0).maximum(operands(1))


@primitive
class min(Extreme):
    """Lesser of two elements."""

    eval = round_result(minimum.__call__)

    def bounds(self, operands: OperandRanges) -> Range:
        return operands(0).minimum(operands(1))


@primitive
class sign(Elementwise):
    """-1, 0 or 1; zeros keep their sign, nan stays nan; a complex number is scaled to magnitude 1."""

    ulp = COMPLEX_ULP

    eval = of_complex(lambda x: np.where(x == 0, x, np.sign(x)), complex_values.sign)
    introduces = ()
    keeps_nan = "all"

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        if not is_complex(x):
            return Zero.of(out.aval)
        # d(x/|x|) is the part of the tangent perpendicular to x, divided by |x|.
        size = without_zeros(convert_element_type(abs(x), new_dtype=out.dtype, weak_type=False))
        turned = sub(tangent, mul(out, _real_as_complex(mul(conj(out, input_dtype=out.dtype), tangent))))
        return div(turned, size)

    def bounds(self, operands: OperandRanges) -> Range:
        values = operands(0)
        return Range(-1 if values.lower < 0 else 0, 1 if values.upper > 0 else 0)

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))
        yield Sample(np.array([-3, 0, 4], np.int32))
        yield Sample(np.array([0, 4], np.uint8))
        yield Sample(complex_ramp(3))
        yield Sample(np.array([-0.0, 0.0, np.nan, np.inf, -np.inf], np.float32), differentiable=False)


@primitive
class abs(Elementwise):
    """Magnitude; that of a complex number is real. The most negative integer stays: its magnitude does not fit."""

    ulp = COMPLEX_ULP
    introduces = ()
    keeps_nan = "all"
    negative_zero = False

    def result_dtype(self, dtype: Any, **params: Any) -> Any:
        return dtypes.to_real_dtype(dtype)

    eval = of_complex(np.abs)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        if not is_complex(x):
            return where(ge(x, constant_like(x, 0)), tangent, neg(tangent))
        dtype = get_dtype(x)
        size = without_zeros(convert_element_type(out, new_dtype=dtype, weak_type=False))
        return real(mul(tangent, div(conj(x, input_dtype=dtype), size)))

    def bounds(self, operands: OperandRanges) -> Range:
        values = operands(0)
        return values.maximum(-values) if 0 not in values else Range(0, values.maximum(-values).upper)

    def samples(self) -> Any:
        yield Sample(ramp(3, 2))
        yield Sample(np.array([-3, 0, -(2**31)], np.int32))
        yield Sample(np.array([0, 4], np.uint8))
        yield Sample(complex_ramp(3))
        yield Sample(ramp(3, dtype=bfloat16), differentiable=False)


def without_zeros(x: Any) -> Any:
    """Replace zeros by ones, for a safe divisor."""
    return select_n(eq(x, constant_like(x, 0)), x, constant_like(x, 1))


def _real_as_complex(x: Any) -> Any:
    return convert_element_type(real(x), new_dtype=x.dtype, weak_type=False)
