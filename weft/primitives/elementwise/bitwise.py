"""Operations on the bits of integers and on booleans."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.indexing.ranges import Range
from weft.ir.flow import Condition, OperandRanges, union
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.elementwise.scalar import round_result

_INTEGERS = np.array([0, 1, -1, 5, -8, 127], np.int32)
_OTHERS = np.array([3, 3, 1, 4, -1, 31], np.int32)


class Bitwise(Elementwise):
    """Integers and booleans have no derivative."""

    kinds = "biu"
    zero_derivative = True

    def samples(self) -> Any:
        yield Sample(_INTEGERS, _OTHERS)
        yield Sample(_INTEGERS.astype(np.uint8).reshape(2, 3), np.uint8(6))
        yield Sample(np.array([True, True, False, False]), np.array([True, False, True, False]))
        yield Sample(_INTEGERS[:0], _OTHERS[:0])


def both(condition: Condition, holds: bool = True) -> Range:
    """Return the range of a value given that two conditions hold, or that both do not."""
    first, second = condition.where(0, holds), condition.where(1, holds)
    return first.intersect(second) or first


def either(condition: Condition, holds: bool) -> Range:
    """Return the range of a value given that one of two conditions holds, or does not."""
    return union([condition.where(0, holds), condition.where(1, holds)])


@primitive
class and_(Bitwise):
    """Bits set in both."""

    name = "and"
    eval = round_result(np.bitwise_and)

    def mirror(self, constant: Any) -> str | None:
        return self.name

    def bounds(self, operands: OperandRanges) -> Range:
        masks = [mask.upper for mask in (operands(0), operands(1)) if mask.lower >= 0]
        return Range(0, min(masks)) if masks else Range.EVERYTHING

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        return both(condition) if holds else either(condition, holds)


@primitive
class or_(Bitwise):
    """Bits set in either."""

    name = "or"
    eval = round_result(np.bitwise_or)

    def mirror(self, constant: Any) -> str | None:
        return self.name

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        return either(condition, holds) if holds else both(condition, holds)


@primitive
class xor(Bitwise):
    """Bits set in exactly one."""

    eval = round_result(np.bitwise_xor)

    def mirror(self, constant: Any) -> str | None:
        return self.name


@primitive
class not_(Bitwise):
    """Bits inverted; for booleans, negation."""

    name = "not"
    eval = round_result(np.bitwise_not)

    def bounds_where(self, holds: bool, condition: Condition) -> Range:
        return condition.where(0, not holds)

    def samples(self) -> Any:
        yield Sample(_INTEGERS)
        yield Sample(np.array([True, False]))
        yield Sample(np.uint8(6).reshape(()))


class Shift(Bitwise):
    """Shifts by an amount outside [0, bits) leave what shifting bit by bit would: zeros, or copies of the sign."""

    kinds = "iu"

    def samples(self) -> Any:
        yield Sample(_INTEGERS, np.array([0, 31, 4, 1, 32, 2], np.int32))
        yield Sample(_INTEGERS.astype(np.int8), np.int8(3))
        yield Sample(_INTEGERS.astype(np.uint16), np.uint16(2))
        yield Sample(_INTEGERS, np.int32(-1))


def _as_unsigned(x: Any) -> Any:
    """Return the same bits as an unsigned integer; a type below a byte has them in the low bits of one."""
    x = np.asarray(x)
    if x.dtype.kind == "V":
        return x.astype(np.int8).view(np.uint8) & np.uint8((1 << dtypes.itemsize_bits(x.dtype)) - 1)
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _as_signed(bits: Any, dtype: Any) -> Any:
    return bits.astype(dtype) if dtype.kind == "V" else bits.view(dtype)


def _amount(y: Any, bits: int) -> tuple[Any, Any]:
    """Return the amount as a safe shift, and the mask where it is outside of the width."""
    amount = _as_unsigned(y)
    outside = amount >= bits
    return np.where(outside, 0, amount), outside


@primitive
class shift_left(Shift):
    """Bits shifted to the left, zeros shifted in."""

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        amount, outside = _amount(y, dtypes.itemsize_bits(x.dtype))
        bits = _as_unsigned(x)
        return _as_signed(np.where(outside, 0, bits << amount.astype(bits.dtype)).astype(bits.dtype), x.dtype)


@primitive
class shift_right_logical(Shift):
    """Bits shifted to the right, zeros shifted in."""

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        amount, outside = _amount(y, dtypes.itemsize_bits(x.dtype))
        bits = _as_unsigned(x)
        return _as_signed(np.where(outside, 0, bits >> amount.astype(bits.dtype)).astype(bits.dtype), x.dtype)


@primitive
class shift_right_arithmetic(Shift):
    """Bits shifted to the right, copies of the sign bit shifted in."""

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        bits = dtypes.itemsize_bits(x.dtype)
        amount, outside = _amount(y, bits)
        amount = np.where(outside, bits - 1, amount)
        if dtypes.kind(x.dtype) == "i":
            wide = x.astype(np.int64) >> amount.astype(np.int64)
        else:  # the top bit counts as the sign
            wide = _extend_sign(x, bits) >> amount.astype(np.int64)
        return wide.astype(x.dtype)


def _extend_sign(x: Any, bits: int) -> Any:
    unused = np.int64(64 - bits)
    return (_as_unsigned(x).astype(np.uint64).view(np.int64) << unused) >> unused


@primitive
class population_count(Bitwise):
    """How many bits are set."""

    kinds = "iu"
    negative_zero = False
    weight = 4

    @staticmethod
    def eval(x: Any) -> Any:
        bits = _as_unsigned(x)
        return np.unpackbits(_bytes(bits), axis=-1).sum(-1).astype(x.dtype)

    def samples(self) -> Any:
        yield from bit_count_samples()


@primitive
class clz(Bitwise):
    """How many zeros lead, counted from the top bit."""

    kinds = "iu"
    negative_zero = False
    weight = 4

    @staticmethod
    def eval(x: Any) -> Any:
        width = dtypes.itemsize_bits(x.dtype)
        # Little-endian bits, so the position of the last one set is the length of the number.
        bits = np.unpackbits(_bytes(_as_unsigned(x)), axis=-1, bitorder="little")[..., :width]
        length = np.where(bits.any(-1), width - np.argmax(bits[..., ::-1], axis=-1), 0)
        return (width - length).astype(x.dtype)

    def samples(self) -> Any:
        yield from bit_count_samples()


def _bytes(bits: Any) -> Any:
    """Return the bytes of each number along a new last dimension, lowest first."""
    little = np.ascontiguousarray(bits.astype(bits.dtype.newbyteorder("<")))
    return little.reshape(*bits.shape, 1).view(np.uint8)


def bit_count_samples() -> Any:
    yield Sample(_INTEGERS)
    yield Sample(_INTEGERS.astype(np.int8).reshape(2, 3))
    yield Sample(np.array([0, 2**32 - 1, 7], np.uint32))
    yield Sample(np.uint8(6).reshape(()))


@primitive
class mulhi(Bitwise):
    """Upper half of the product in twice the width."""

    kinds = "iu"

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        bits = dtypes.itemsize_bits(x.dtype)
        if bits < 64:
            wide = np.int64 if dtypes.kind(x.dtype) == "i" else np.uint64
            return (x.astype(wide) * y.astype(wide) >> wide(bits)).astype(x.dtype)
        product = np.asarray(x).astype(object) * np.asarray(y).astype(object)
        return np.asarray(product >> 64, dtype=object).astype(x.dtype)

    def samples(self) -> Any:
        yield Sample(_INTEGERS * 123456789, _OTHERS * 987654321)
        yield Sample(np.array([255, 16], np.uint8), np.uint8(250))
