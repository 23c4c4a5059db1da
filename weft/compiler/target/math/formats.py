"""Floats shorter than float32: in lanes each is the float32 of the same value, in memory it has its own encoding.

Arithmetic is computed in float32 and rounded to the format once, to nearest even (`round_to`). The bits are needed only
for memory, for neighbours and for bitcasts.
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

from weft.compiler.target.llvm import float_, half, i16
from weft.compiler.target.math.term import Term

QUIET = 0x00400000
INFINITE = 0x7F800000


class FloatFormat(NamedTuple):
    """Widths and encoding of a float below 32 bits."""

    name: str
    exponent: int
    mantissa: int
    bias: int
    # Whether infinities exist; the bits of nan (None: no nan); whether -0.0 exists.
    infinite: bool
    nan: int | None
    signed_zero: bool

    @property
    def bits(self) -> int:
        """Bits of an element, including the sign."""
        return 1 + self.exponent + self.mantissa

    @property
    def lowest_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest(self) -> float:
        """Largest finite number."""
        top = (1 << self.exponent) - 1
        fraction = (1 << self.mantissa) - 1
        if self.infinite:
            top -= 1
        elif self.nan is not None and self.nan < 1 << (self.bits - 1):
            fraction -= 1
        return math.ldexp((1 << self.mantissa) + fraction, top - self.bias - self.mantissa)


@functools.cache
def get_format(name: str) -> FloatFormat:
    """Return the format of a dtype by its name: float16, bfloat16, float8_e4m3fn, ..."""
    if name == "bfloat16":
        return FloatFormat(name, 8, 7, 127, True, 0x7FC0, True)
    if name == "float16":
        return FloatFormat(name, 5, 10, 15, True, 0x7E00, True)
    found = re.fullmatch(r"float(\d)_e(\d)m(\d)(b(\d+))?(fn|fnu|fnuz)?", name)
    assert found is not None, name
    exponent, mantissa, special = int(found[2]), int(found[3]), found[6]
    bias = int(found[5]) if found[5] else (1 << (exponent - 1)) - 1
    if special == "fnuz":
        bias += not found[5]
        return FloatFormat(name, exponent, mantissa, bias, False, 0x80, False)
    if special is None:
        quiet = ((1 << exponent) - 1) << mantissa | 1 << (mantissa - 1)
        return FloatFormat(name, exponent, mantissa, bias, True, quiet, True)
    return FloatFormat(name, exponent, mantissa, bias, False, 0x7F if found[1] == "8" else None, True)


EXPONENT_ONLY = "float8_e8m0fnu"


def round_to(x: Term, name: str) -> Term:
    """Round float32 to the values of a format."""
    if name == "float16" and x.function.module.halves:
        f = x.function
        # For a scalar whose sign comes from a float64, LLVM would round the magnitude first and convert the float64 for
        # its sign, by a library function that is not linked.
        value = f.arithmetic_fence(x.value) if x.value.type.count == 1 else x.value
        return Term(f, f.fpext(f.fptrunc(value, x.vector_type(half)), x.type))
    if name == EXPONENT_ONLY:
        return _round_to_powers(x)
    raw = x.raw()
    form = get_format(name)
    drop = 23 - form.mantissa
    last = raw.lshr(drop) & 1
    nearest = ((raw + ((1 << (drop - 1)) - 1) + last) & -(1 << drop)).as_float()
    if name == "bfloat16":  # same exponents as float32: overflow and denormals need no case
        return x.is_nan().select((raw | QUIET).as_float(), nearest)
    size = abs(nearest)
    # Adding a number whose last bit equals the format's smallest number rounds to a multiple of it.
    step = 2.0 ** (form.lowest_exponent - form.mantissa + 23)
    small = (abs(x) + step) - step
    size = (abs(x) < 2.0**form.lowest_exponent).select(small, size)
    beyond = math.inf if form.infinite else math.nan if form.nan is not None else form.largest
    size = (size > form.largest).select(beyond, size)
    result = size.copysign(x)
    if not form.signed_zero:
        result = size.equals(0.0).select(0.0, result)
    # Formats without nan represent it as a zero of the opposite sign.
    return x.is_nan().select((raw | QUIET).as_float() if form.nan is not None else x.of(0).copysign(-x), result)


def _round_to_powers(x: Term) -> Term:
    """Round to the nearest power of two; zero, negative numbers and too large numbers become nan."""
    bits = _power_code(x)
    return _power_of_code(bits)


def _power_code(x: Term) -> Term:
    raw = x.raw()
    # Halfway cases round up. The least power is a denormal float32, and all denormals above it round up.
    code = (raw + (raw < 0x00800000).select(raw.of(QUIET - 1), QUIET)).lshr(23)
    return ((x > 0.0) & (x < math.inf)).select(code, 255)


def _power_of_code(code: Term) -> Term:
    power = code.equals(0).select(QUIET, code << 23).as_float()
    return code.equals(255).select(math.nan, power)


def to_bits(x: Term, name: str) -> Term:
    """Return the bits, in one or two bytes, of a number that is rounded to the format already."""
    f = x.function
    if name == "float16" and f.module.halves:
        return Term(f, f.bitcast(f.fptrunc(x.value, x.vector_type(half)), x.vector_type(i16)))
    raw = x.raw()
    if name == "bfloat16":
        return raw.lshr(16).narrow(16)
    if name == EXPONENT_ONLY:
        return _power_code(x).narrow(8)
    form = get_format(name)
    # Scaling by a power of two replaces the bias of float32 by that of the format; denormals of the two coincide.
    code = (abs(x) * 2.0 ** (form.bias - 127)).raw().lshr(23 - form.mantissa)
    sign = raw.lshr(31) << (form.bits - 1)
    if form.infinite:  # a nan keeps its payload
        top, rest = ((1 << form.exponent) - 1) << form.mantissa, (1 << form.mantissa) - 1
        code = (abs(x) < math.inf).select(code, (raw.lshr(23 - form.mantissa) & rest) | top)
    elif form.nan is not None:
        code = x.is_nan().select(form.nan, code)
        if not form.signed_zero:
            sign = x.is_nan().select(0, sign)
    return (code | sign).narrow(max(form.bits, 8))


def from_bits(bits: Term, name: str) -> Term:
    """Decode the bits of a format as float32."""
    f = bits.function
    if name == "float16" and f.module.halves:
        return Term(f, f.fpext(f.bitcast(bits.value, bits.vector_type(half)), bits.vector_type(float_)))
    code = bits.wide(32, signed=False)
    if name == "bfloat16":
        return (code << 16).as_float()
    if name == EXPONENT_ONLY:
        return _power_of_code(code)
    form = get_format(name)
    size_bits = form.bits - 1
    size = code & ((1 << size_bits) - 1)
    result = (size << (23 - form.mantissa)).as_float() * 2.0 ** (127 - form.bias)
    if form.infinite:
        top = ((1 << form.exponent) - 1) << form.mantissa
        result = (size >= top).select(((size << (23 - form.mantissa)) | INFINITE).as_float(), result)
    sign = (code.lshr(size_bits) & 1) << 31
    if form.nan is not None and not form.signed_zero:
        return code.equals(form.nan).select(-math.nan, (result.raw() | sign).as_float())
    if form.nan is not None and not form.infinite:
        result = size.equals(form.nan).select(math.nan, result)
    return (result.raw() | sign).as_float()


def half_from_double(x: Term) -> Term:
    """Round float64 to float16 once, returned as float32: through float32 rounded to odd, which creates no halfway
    case."""
    short = x.short()
    back = short.long()
    raw = short.raw()
    raw = (abs(back) > abs(x)).select(raw - 1, raw)
    odd = (raw | 1).as_float()
    inexact = (back < x) | (back > x)
    return round_to(inexact.select(odd, short), "float16")
