"""Rules of elementwise operations."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.emitter import Emitter, Rule, Site, rule
from weft.compiler.target.stablehlo.types import BOOL, FLOAT32, FLOAT64, UINT32
from weft.compiler.target.stablehlo.writer import Value
from weft.primitives.elementwise.rounding import RoundingMethod
from weft.primitives.elementwise.scalar import COMPUTED_IN
from weft.primitives.random.threefry import PARITY, threefry

# Operations that StableHLO has under another name, for all dtypes that Weft's takes.
DIRECT = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "neg": "negate",
    "rem": "remainder",
    "atan2": "atan2",
    "floor": "floor",
    "ceil": "ceil",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "tanh": "tanh",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "cbrt": "cbrt",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "population_count": "popcnt",
    "clz": "count_leading_zeros",
    "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "is_finite": "is_finite",
}
COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
# Numbers shorter than a byte, and floats of a byte, are computed in a wider dtype and rounded once, as `eval` does.
SHORT_FLOATS = (np.dtype(np.float16), dtypes.bfloat16)


def computing_dtype(dtype: Any) -> Any:
    """Return the dtype in which StableHLO computes numbers of a dtype."""
    return dtype if dtype in SHORT_FLOATS else COMPUTED_IN.get(dtype, dtype)


def wider(function: Rule) -> Rule:
    """Wrap a rule so that operands of small dtypes are converted, and the result is converted back."""

    @functools.wraps(function)
    def write(e: Emitter, site: Site, *operands: Value) -> Any:
        found = [computing_dtype(x.dtype) for x in operands]
        if all(x.dtype == dtype for x, dtype in zip(operands, found, strict=True)):
            return function(e, site, *operands)
        ((shape, dtype),) = site.results
        inner = site._replace(results=((shape, computing_dtype(dtype)),))
        result = function(e, inner, *(convert(e, x, t) for x, t in zip(operands, found, strict=True)))
        return convert(e, result, dtype)

    return write


@rule(*DIRECT)
@wider
def direct(e: Emitter, site: Site, *operands: Value) -> Value:
    """Write an operation that StableHLO has."""
    return e.op(DIRECT[site.primitive.name], operands, *site.results[0])


@rule(*COMPARISONS)
@wider
def comparison(e: Emitter, site: Site, x: Value, y: Value) -> Value:
    """Write a comparison; complex numbers are ordered by real, then by imaginary part."""
    direction = COMPARISONS[site.primitive.name]
    if dtypes.kind(x.dtype) != "c" or direction in ("EQ", "NE"):
        return e.compare(direction, x, y)
    return lexicographic(e, direction, x, y)


def parts(e: Emitter, x: Value) -> tuple[Value, Value]:
    """Return the real and the imaginary parts of complex numbers."""
    dtype = dtypes.to_real_dtype(x.dtype)
    return e.op("real", [x], x.shape, dtype), e.op("imag", [x], x.shape, dtype)


def complex_number(e: Emitter, re: Value, im: Value) -> Value:
    """Return complex numbers from their parts."""
    return e.op("complex", [re, im], re.shape, dtypes.to_complex_dtype(re.dtype))


def lexicographic(e: Emitter, direction: str, x: Value, y: Value) -> Value:
    """Compare complex numbers by their real parts, and where these are equal by their imaginary parts."""
    (x_re, x_im), (y_re, y_im) = parts(e, x), parts(e, y)
    strict = direction[0] + "T"
    tie = e.same("and", e.compare("EQ", x_re, y_re), e.compare(direction, x_im, y_im))
    return e.same("or", e.compare(strict, x_re, y_re), tie)


@rule("div")
@wider
def div(e: Emitter, site: Site, x: Value, y: Value) -> Value:
    """Write a quotient; of integers, the division by zero and the overflow are made well defined."""
    if dtypes.kind(x.dtype) not in "iu":
        return e.same("divide", x, y)
    zero, one = e.full_like(0, y), e.full_like(1, y)
    by_zero = e.compare("EQ", y, zero)
    special = by_zero
    if dtypes.kind(x.dtype) == "i":
        by_minus = e.compare("EQ", y, e.full_like(-1, y))
        special = e.same("or", by_zero, by_minus)
    quotient = e.same("divide", x, e.select(special, one, y))
    if dtypes.kind(x.dtype) == "i":
        quotient = e.select(by_minus, e.same("negate", x), quotient)
    return e.select(by_zero, e.same("not", zero), quotient)


@rule("max", "min")
@wider
def extreme(e: Emitter, site: Site, x: Value, y: Value) -> Value:
    """Write the greater or the lesser of two numbers."""
    greater = site.primitive.name == "max"
    if dtypes.kind(x.dtype) != "c":
        return e.same("maximum" if greater else "minimum", x, y)
    first = lexicographic(e, "GE" if greater else "LE", x, y)
    unknown = e.compare("NE", x, x)
    return e.select(e.same("or", first, unknown), x, y)


@rule("sign")
@wider
def sign(e: Emitter, site: Site, x: Value) -> Value:
    """Write the sign."""
    if dtypes.kind(x.dtype) == "u":
        return e.convert(e.compare("NE", x, e.full_like(0, x)), x.dtype)
    result = e.same("sign", x)
    # A zero keeps its sign.
    return e.select(e.compare("EQ", x, e.full_like(0, x)), x, result) if dtypes.kind(x.dtype) == "f" else result


@rule("abs")
@wider
def absolute(e: Emitter, site: Site, x: Value) -> Value:
    """Write the magnitude."""
    return x if dtypes.kind(x.dtype) == "u" else e.op("abs", [x], *site.results[0])


@rule("round")
@wider
def rounding(e: Emitter, site: Site, x: Value) -> Value:
    """Write rounding to an integer, with ties away from zero or to even."""
    to_even = RoundingMethod(site.params["rounding_method"]) is RoundingMethod.TO_NEAREST_EVEN
    return e.same("round_nearest_even" if to_even else "round_nearest_afz", x)


@rule("exp2")
def exp2(e: Emitter, site: Site, x: Value) -> Value:
    """Write a power of two; of floats up to 32 bits by way of float64, since the product with log(2) is rounded."""
    if dtypes.kind(x.dtype) == "f" and x.dtype != FLOAT64:
        wide = convert(e, x, FLOAT64)
        return convert(e, e.same("exponential", e.same("multiply", wide, e.full_like(math.log(2), wide))), x.dtype)
    if dtypes.kind(x.dtype) == "f":
        return e.same("power", e.full_like(2, x), x)
    return e.same("exponential", e.same("multiply", x, e.full_like(math.log(2), x)))


@rule("pow")
@wider
def power(e: Emitter, site: Site, x: Value, y: Value) -> Value:
    """Write a power; integer exponents are exact, so they are taken in 64 bits."""
    if x.dtype == y.dtype:
        return e.same("power", x, y)
    wide = np.dtype(np.complex128) if dtypes.kind(x.dtype) == "c" else FLOAT64
    return convert(e, e.same("power", convert(e, x, wide), convert(e, y, wide)), x.dtype)


@rule("integer_pow")
@wider
def integer_pow(e: Emitter, site: Site, x: Value) -> Value:
    """Write a power by repeated squaring, of short floats in float32."""
    if x.dtype in SHORT_FLOATS:
        return convert(e, integer_pow(e, site, convert(e, x, FLOAT32)), x.dtype)
    exponent = site.params["y"]
    if not exponent:
        return e.full_like(1, x)
    left, base, result = abs(exponent), x, None
    while left:
        if left & 1:
            result = base if result is None else e.same("multiply", result, base)
        left >>= 1
        if left:
            base = e.same("multiply", base, base)
    assert result is not None
    return e.same("divide", e.full_like(1, x), result) if exponent < 0 else result


@rule("mulhi")
def mulhi(e: Emitter, site: Site, x: Value, y: Value) -> Value:
    """Write the upper half of a product, for numbers of up to 32 bits by a product of twice as many."""
    bits = dtypes.itemsize_bits(x.dtype)
    if bits < 64:
        wide = np.dtype(f"{'i' if dtypes.kind(x.dtype) == 'i' else 'u'}8")
        product = e.same("multiply", e.convert(x, wide), e.convert(y, wide))
        return e.convert(e.same("shift_right_logical", product, e.full_like(bits, product)), x.dtype)
    return _mulhi_by_halves(e, x, y)


def _mulhi_by_halves(e: Emitter, x: Value, y: Value) -> Value:
    """Multiply numbers of 64 bits by their halves."""
    signed = dtypes.kind(x.dtype) == "i"
    unsigned = np.dtype(np.uint64)
    a, b = (e.bitcast(v, unsigned) for v in (x, y))
    mask, half = e.full_like(0xFFFFFFFF, a), e.full_like(32, a)

    def low(v: Value) -> Value:
        return e.same("and", v, mask)

    def high(v: Value) -> Value:
        return e.same("shift_right_logical", v, half)

    cross = e.same("multiply", high(a), low(b))
    other = e.same("multiply", low(a), high(b))
    carry = e.same("add", e.same("add", high(e.same("multiply", low(a), low(b))), low(cross)), low(other))
    top = e.same("add", e.same("multiply", high(a), high(b)), e.same("add", high(cross), high(other)))
    result = e.same("add", top, high(carry))
    if not signed:
        return result
    zero = e.full_like(0, x)
    for negative, other_operand in ((x, b), (y, a)):
        correction = e.select(e.compare("LT", negative, zero), other_operand, e.full_like(0, b))
        result = e.same("subtract", result, correction)
    return e.bitcast(result, x.dtype)


# -------------------------------------------------------------------------------------------------- choices and dtypes


@rule("select_n")
def select_n(e: Emitter, site: Site, which: Value, *cases: Value) -> Value:
    """Write the choice among cases by a boolean or an integer, which is clamped."""
    if len(cases) == 1:
        return cases[0]
    if which.dtype == BOOL:
        return e.select(which, cases[1], cases[0])
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = e.select(e.compare("LE", which, e.full_like(i, which)), cases[i], result)
    return result


@rule("clamp")
def clamp(e: Emitter, site: Site, low: Value, x: Value, high: Value) -> Value:
    """Write the number nearest to x between two bounds."""
    inner = computing_dtype(x.dtype)
    return convert(e, e.same("clamp", *(convert(e, v, inner) for v in (low, x, high))), x.dtype)


def convert(e: Emitter, x: Value, dtype: Any) -> Value:
    """Convert numbers: complex to real drops the imaginary part, float to integer saturates, with 0 for nan."""
    source, target = dtypes.kind(x.dtype), dtypes.kind(dtype)
    if x.dtype == dtype:
        return x
    if source == "c" and target != "c":
        return convert(e, parts(e, x)[0], dtype)
    if target == "b":
        return e.compare("NE", x, e.full_like(0, x))
    if source == "f" and target in "iu":
        return _saturate(e, x, dtype)
    if target == "c" and source != "c":
        part = convert(e, x, dtypes.to_real_dtype(dtype))
        return complex_number(e, part, e.full_like(0, part))
    return e.convert(x, dtype)


def _saturate(e: Emitter, x: Value, dtype: Any) -> Value:
    """Convert floats to integers with the limits of the integer for all that is beyond them."""
    limits = dtypes.iinfo(dtype)
    # float64 has all integers of 32 bits, and float32 those of 16.
    wide = FLOAT64 if dtypes.itemsize_bits(dtype) > 16 or x.dtype == FLOAT64 else FLOAT32
    value = e.convert(x, wide)
    above = e.compare("GE", value, e.full_like(float(limits.max), value))
    below = e.compare("LE", value, e.full_like(float(limits.min), value))
    unknown = e.same("or", e.same("or", above, below), e.compare("NE", value, value))
    whole = e.convert(e.select(unknown, e.full_like(0, value), value), dtype)
    most, least = (e.full(int(limit), x.shape, dtype) for limit in (limits.max, limits.min))
    return e.select(above, most, e.select(below, least, whole))


@rule("convert_element_type")
def convert_element_type(e: Emitter, site: Site, x: Value) -> Value:
    """Write a conversion."""
    return convert(e, x, site.dtype)


@rule("bitcast_convert_type")
def bitcast_convert_type(e: Emitter, site: Site, x: Value) -> Value:
    """Write the same bits in another dtype."""
    return e.bitcast(x, site.dtype, site.shape)


@rule("reduce_precision")
def reduce_precision(e: Emitter, site: Site, x: Value) -> Value:
    """Write rounding to fewer bits."""
    bits = (f"{name} = {site.params[name]} : i32" for name in ("exponent_bits", "mantissa_bits"))
    return e.op("reduce_precision", [x], *site.results[0], ", ".join(bits))


@rule("real", "imag")
def part(e: Emitter, site: Site, x: Value) -> Value:
    """Write the real or the imaginary part."""
    return e.op(site.primitive.name, [x], *site.results[0])


@rule("complex")
def complex_(e: Emitter, site: Site, re: Value, im: Value) -> Value:
    """Write complex numbers."""
    return complex_number(e, re, im)


@rule("conj")
def conj(e: Emitter, site: Site, x: Value) -> Value:
    """Write the complex conjugate."""
    if dtypes.kind(x.dtype) != "c":
        return complex_number(e, x, e.full_like(0, x))
    re, im = parts(e, x)
    return complex_number(e, re, e.same("negate", im))


@rule("square")
@wider
def square(e: Emitter, site: Site, x: Value) -> Value:
    """Write each number times itself."""
    return e.same("multiply", x, x)


# ------------------------------------------------------------------------------------------------ functions of others

# Functions of the dialect `chlo`, which every compiler of StableHLO has.
EXTENDED = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "cosh": "cosh",
    "sinh": "sinh",
    "erf": "erf",
    "erf_inv": "erf_inv",
    "nextafter": "next_after",
}


@rule(*EXTENDED)
@wider
def function_of_chlo(e: Emitter, site: Site, *operands: Value) -> Value:
    """Write a function of `chlo`."""
    return e.write(f"chlo.{EXTENDED[site.primitive.name]}", operands, site.results)[0]


class Scalars:
    """Builder of the bodies of elementwise operations (`Elementwise.emit`) over whole arrays."""

    def __init__(self, e: Emitter) -> None:
        self._emitter = e

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._emitter.apply, name)

    def constant(self, value: Any, dtype: Any) -> Value:
        """Return a constant scalar."""
        return self._emitter.scalar(value, dtype)

    def convert(self, x: Value, dtype: Any) -> Value:
        """Convert numbers."""
        return convert(self._emitter, x, dtype)


# ----------------------------------------------------------------------------------------------------------- threefry


class Hash:
    """Operations of the hash on arrays of 32-bit words."""

    def __init__(self, e: Emitter) -> None:
        self.e = e

    def parity(self, first: Value, second: Value) -> Value:
        mixed = self.e.same("xor", first, second)
        return self.e.same("xor", mixed, self.e.full_like(PARITY, mixed))

    def sum(self, first: Value, second: Value | int) -> Value:
        other = second if isinstance(second, Value) else self.e.full_like(second, first)
        return self.e.same("add", first, other)

    def add(self, first: Value, second: Value) -> Value:
        return self.e.same("add", first, second)

    def mix(self, first: Value, second: Value, rotation: int) -> tuple[Value, Value]:
        e, first = self.e, self.e.same("add", first, second)
        left = e.same("shift_left", second, e.full_like(rotation, second))
        right = e.same("shift_right_logical", second, e.full_like(32 - rotation, second))
        return first, e.same("xor", first, e.same("or", left, right))


@rule("threefry2x32")
def threefry2x32(e: Emitter, site: Site, *operands: Value) -> tuple[Value, ...]:
    """Write the hash of random bits by its rounds."""
    full = [
        e.op("broadcast_in_dim", [x], site.shape, UINT32, _alignment(x)) if x.shape != site.shape else x
        for x in operands
    ]
    return tuple(e.call("threefry2x32", None, full, lambda keys: threefry(Hash(e), *keys)))


def _alignment(x: Value) -> str:
    dimensions = ", ".join(map(str, range(len(x.shape))))
    return f"broadcast_dimensions = array<i64{': ' if dimensions else ''}{dimensions}>"
