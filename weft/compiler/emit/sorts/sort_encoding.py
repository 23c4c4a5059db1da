"""Elements encoded as unsigned words whose order is the order of the sort.

Floats: the bits, with all of them flipped for negative numbers and the sign flipped for others. Short floats are
widened to float32 first, whose low bits are then zero and left out. Signed integers: shifted up by their smallest
value. A complex number is two words. Words are in uint32 where they fit, else in uint64; several of them are packed
into one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.kernel.builder import Scalars
from weft.compiler.kernel.ir import Value

_UINT = {4: dtypes.uint32, 8: dtypes.uint64}
_SIGNED = {4: dtypes.int32, 8: dtypes.int64}
# Bits of the mantissa of float32 that are zero after widening a float16; other short floats leave more.
_HALF_ZEROS, _SHORT_ZEROS = 13, 16


class SortOrder(Enum):
    """`ASCENDING`: NaNs last and equal to one another, -0 equal to 0. `DESCENDING`: the total order reversed, with
    -0 below 0, and NaNs above all numbers, equal to one another."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


@dataclass(frozen=True)
class SortField:
    """One word of an element: its key, the half of a complex number ("" for others), and the number of bits."""

    key: int
    half: str
    bits: int


def count_bits(dtype: np.dtype[Any]) -> int:
    """Return the number of bits in the word of a real number."""
    match dtypes.kind(dtype):
        case "b":
            return 1
        case "f" if dtype == dtypes.float16:
            return 32 - _HALF_ZEROS
        case "f" if dtype.itemsize < 4:
            return 32 - _SHORT_ZEROS
    return dtypes.itemsize_bits(dtype)


def split_stages(keys: Sequence[np.dtype[Any]]) -> list[list[SortField]]:
    """Divide the words of several keys, the most significant first, into groups that fit 64 bits."""
    parts: list[SortField] = []
    for key, dtype in enumerate(keys):
        if dtypes.kind(dtype) == "c":
            half = dtypes.itemsize_bits(dtype) // 2
            parts += [SortField(key, "real", half), SortField(key, "imag", half)]
        else:
            parts.append(SortField(key, "", count_bits(dtype)))
    stages: list[list[SortField]] = []
    for part in reversed(parts):
        if stages and sum(p.bits for p in stages[0]) + part.bits <= 64:
            stages[0].insert(0, part)
        else:
            stages.insert(0, [part])
    return stages


def stage_bits(stage: Sequence[SortField]) -> int:
    """Return the number of bits of a group of words."""
    return sum(part.bits for part in stage)


def stage_dtype(stage: Sequence[SortField]) -> np.dtype[Any]:
    """Return the dtype of a group of words."""
    return dtypes.uint32 if stage_bits(stage) <= 32 else dtypes.uint64


def pack(s: Scalars, stage: Sequence[SortField], element: Callable[[int], Value], order: SortOrder) -> Value:
    """Pack a group of words into one; `element` returns the element of a key."""
    dtype = stage_dtype(stage)
    total: Value | None = None
    for part in stage:
        value = element(part.key)
        if part.half:
            value = s.real(value) if part.half == "real" else s.imag(value)
        one = s.convert(encode(s, value, order), dtype)
        if total is not None:
            one = getattr(s, "or")(s.shift_left(total, s.constant(part.bits, dtype)), one)
        total = one
    assert total is not None
    return total


def encode(s: Scalars, x: Value, order: SortOrder) -> Value:
    """Encode a real number as a word."""
    bits = count_bits(x.dtype)
    match dtypes.kind(x.dtype):
        case "b" | "u":
            code = s.convert(x, _UINT[max(4, x.dtype.itemsize)])
        case "i":
            size = max(4, x.dtype.itemsize)
            wide = s.convert(x, _SIGNED[size])
            if bits < 8 * size:
                wide = s.add(wide, s.constant(1 << (bits - 1), wide.dtype))
                code = s.bitcast(wide, _UINT[size])
            else:
                code = s.bitcast(wide, _UINT[size])
                code = s.xor(code, s.constant(1 << (bits - 1), code.dtype))
        case "f":
            code = _encode_float(s, x, order)
        case kind:
            raise InternalError(f"There is no order of elements of kind {kind}.")
    if order is SortOrder.DESCENDING:
        code = s.xor(code, s.constant((1 << bits) - 1, code.dtype))
    return code


def _encode_float(s: Scalars, x: Value, order: SortOrder) -> Value:
    zeros = 0 if x.dtype.itemsize >= 4 else _HALF_ZEROS if x.dtype == dtypes.float16 else _SHORT_ZEROS
    wide = s.convert(x, dtypes.float32) if zeros else x
    size = wide.dtype.itemsize
    unsigned, sign = _UINT[size], 1 << (8 * size - 1)
    nan = s.ne(wide, wide)
    if order is SortOrder.ASCENDING:
        zero = s.constant(0, wide.dtype)
        code = s.bitcast(s.select_n(s.eq(wide, zero), wide, zero), unsigned)
        result = s.select_n(nan, _flip(s, code), s.constant(2 * sign - 1, unsigned))
    else:
        code = s.bitcast(wide, unsigned)
        # The largest word, since conversions may drop the payload of a NaN.
        result = _flip(s, s.select_n(nan, code, s.constant(sign - 1, unsigned)))
    return s.shift_right_logical(result, s.constant(zeros, unsigned)) if zeros else result


def is_negative_zero(s: Scalars, x: Value) -> Value:
    """Return whether a float is -0, which has the word of 0 in ascending order."""
    if x.dtype.itemsize < 4:
        x = s.convert(x, dtypes.float32)
    signed = _SIGNED[x.dtype.itemsize]
    return s.eq(s.bitcast(x, signed), s.constant(np.iinfo(signed).min, signed))


def _flip(s: Scalars, code: Value) -> Value:
    """Flip all bits of negative numbers, and the sign bit of others."""
    size = code.dtype.itemsize
    signed = s.bitcast(code, _SIGNED[size])
    ones = s.bitcast(s.shift_right_arithmetic(signed, s.constant(8 * size - 1, signed.dtype)), code.dtype)
    return s.xor(code, getattr(s, "or")(ones, s.constant(1 << (8 * size - 1), code.dtype)))


def decode(s: Scalars, code: Value, dtype: np.dtype[Any]) -> Value:
    """Decode a word in ascending order. A NaN comes back as some NaN, -0 as 0."""
    bits = count_bits(dtype)
    match dtypes.kind(dtype):
        case "b" | "u":
            return s.convert(code, dtype)
        case "i":
            size = code.dtype.itemsize
            if bits < 8 * size:
                signed = s.bitcast(code, _SIGNED[size])
                return s.convert(s.sub(signed, s.constant(1 << (bits - 1), signed.dtype)), dtype)
            return s.bitcast(s.xor(code, s.constant(1 << (bits - 1), code.dtype)), dtype)
    size = code.dtype.itemsize
    if bits < 8 * size:
        code = s.shift_left(code, s.constant(8 * size - bits, code.dtype))
    signed = s.bitcast(code, _SIGNED[size])
    ones = s.bitcast(s.shift_right_arithmetic(signed, s.constant(8 * size - 1, signed.dtype)), code.dtype)
    flips = getattr(s, "or")(getattr(s, "not")(ones), s.constant(1 << (8 * size - 1), code.dtype))
    flipped = s.xor(code, flips)
    if bits < 8 * size:
        # The bits left out of a word are zero in every number.
        flipped = getattr(s, "and")(flipped, s.constant((1 << 8 * size) - (1 << (8 * size - bits)), flipped.dtype))
    return s.convert(s.bitcast(flipped, _FLOAT[size]), dtype)


_FLOAT = {4: dtypes.float32, 8: dtypes.float64}


# ------------------------------------------------------------------------------------------- elements that are copied


def fits_word(dtype: np.dtype[Any]) -> bool:
    """Return whether an element can be copied as 32 bits."""
    return dtypes.kind(dtype) in ("b", "i", "u", "f") and dtype.itemsize <= 4


def as_uint32(s: Scalars, x: Value) -> Value:
    """Convert an element to 32 bits."""
    match dtypes.kind(x.dtype):
        case "f":
            return s.bitcast(s.convert(x, dtypes.float32), dtypes.uint32)
        case "i":
            return s.bitcast(s.convert(x, dtypes.int32), dtypes.uint32)
    return s.convert(x, dtypes.uint32)


def from_uint32(s: Scalars, bits: Value, dtype: np.dtype[Any]) -> Value:
    """Convert 32 bits back to the element."""
    match dtypes.kind(dtype):
        case "f":
            return s.convert(s.bitcast(bits, dtypes.float32), dtype)
        case "i":
            return s.convert(s.bitcast(bits, dtypes.int32), dtype)
    return s.convert(bits, dtype)
