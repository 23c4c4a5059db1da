"""Rules of random keys and bits, and of bits read as other dtypes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.export.onnx.emitter import FLOAT32, INT64, Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.rules.elementwise import compare, equals, kind, shift, to_unsigned
from weft.export.onnx.rules.functions import is_negative
from weft.export.onnx.rules.movement import cut
from weft.export.onnx.table import Parts, parts_rule, rule
from weft.ir.jaxpr import Equation
from weft.primitives.random.threefry import PARITY, threefry


class Words:
    """Words of 32 bits as values of a graph, for the hash of random bits."""

    def __init__(self, g: Emitter) -> None:
        self.g = g

    def parity(self, first: Value, second: Value) -> Value:
        """Return first ^ second ^ PARITY."""
        both = self.g.elementwise("BitwiseXor", first, second)
        return self.g.elementwise("BitwiseXor", both, self.g.constant(np.uint32(PARITY)))

    def sum(self, first: Value, second: Value | int) -> Value:
        """Return first + second, modulo 2**32."""
        other = self.g.constant(np.uint32(second)) if isinstance(second, int) else second
        return self.g.elementwise("Add", first, other)

    add = sum

    def mix(self, first: Value, second: Value, rotation: int) -> tuple[Value, Value]:
        """Return first + second, and that ^ (second rotated left)."""
        total = self.sum(first, second)
        amounts = (self.g.constant(np.uint32(n)) for n in (rotation, 32 - rotation))
        left, right = (shift(self.g, second, n, d) for n, d in zip(amounts, ("LEFT", "RIGHT"), strict=True))
        return total, self.g.elementwise("BitwiseXor", total, self.g.elementwise("BitwiseOr", left, right))


@rule("threefry2x32")
def write_threefry(g: Emitter, e: Equation, *words: Value) -> list[Value]:
    """Hash pairs of words."""
    shape = e.outvars[0].aval.shape  # type: ignore[attr-defined]
    return [g.expand(word, shape) for word in threefry(Words(g), *words)]


@parts_rule("random_wrap")
def write_wrap(g: Emitter, e: Equation, words: Parts) -> list[Parts]:
    """Take the words along the last axis apart."""
    (value,) = words
    axis, shape = value.rank - 1, value.shape[:-1]
    count = value.shape[-1]
    return [tuple(g.reshape(cut(g, value, [axis], [i], [i + 1], [1], [1]), shape) for i in range(count))]


@parts_rule("random_unwrap")
def write_unwrap(g: Emitter, e: Equation, key: Parts) -> list[Parts]:
    """Put the words of keys along a new last axis."""
    shape = (*key[0].shape, 1)
    return [(g.concatenate([g.reshape(word, shape) for word in key], len(shape) - 1),)]


@parts_rule("random_clone")
def write_clone(g: Emitter, e: Equation, key: Parts) -> list[Parts]:
    """Return the same keys."""
    return [key]


@parts_rule("eq", "ne")
def write_equality_of_parts(g: Emitter, e: Equation, x: Parts, y: Parts) -> list[Parts] | None:
    """Compare all parts of keys and complex numbers."""
    if len(x) == 1:
        return None
    same = [compare(g, "Equal", a, b) for a, b in zip(x, y, strict=True)]
    total = same[0]
    for other in same[1:]:
        total = g.elementwise("And", total, other)
    return [(total if e.primitive.name == "eq" else g.elementwise("Not", total),)]


# ---------------------------------------------------------------------------------------------------- bits of numbers


@rule("bitcast_convert_type")
def write_bitcast(g: Emitter, e: Equation, x: Value) -> Value:
    """Read bits as another dtype: through integers, since older operator sets cannot."""
    out: Any = e.outvars[0].aval
    dtype = np.dtype(out.dtype)
    if x.dtype == dtype:
        return x
    bits = bits_of_floats(g, x) if kind(x) == "f" else to_unsigned(g, x)
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(dtype)
    if old > new:
        pieces = [
            g.reshape(shift(g, bits, g.constant(np.asarray(at, bits.dtype)), "RIGHT"), (*x.shape, 1))
            for at in range(0, old, new)
        ]
        mask = g.constant(np.asarray((1 << new) - 1, bits.dtype))
        bits = g.elementwise("BitwiseAnd", g.concatenate(pieces, x.rank), mask)
    elif old < new:
        wide = g.cast(bits, np.uint64 if new == 64 else np.uint32)
        total: Value | None = None
        for i in range(new // old):
            piece = g.reshape(cut(g, wide, [x.rank - 1], [i], [i + 1], [1], [1]), out.shape)
            moved = shift(g, piece, g.constant(np.asarray(i * old, wide.dtype)), "LEFT")
            total = moved if total is None else g.elementwise("BitwiseOr", total, moved)
        assert total is not None
        bits = total
    return floats_of_bits(g, bits, dtype) if dtypes.kind(dtype) == "f" else g.cast(bits, dtype)


def layout(dtype: np.dtype[Any]) -> tuple[int, int, np.dtype[Any]]:
    """Return the bits of the exponent and of the mantissa of a float with infinities, and the dtype to compute in."""
    limits = ml_dtypes.finfo(dtype)
    return limits.nexp, limits.nmant, dtype if dtype == np.float64 else FLOAT32


def check_format(g: Emitter, dtype: np.dtype[Any]) -> None:
    """Raise for floats of a byte or less, which differ in what they can represent."""
    if dtype.itemsize == 1:
        raise g.refuse(f"bits of {dtypes.name(dtype)} have no rule", "convert to a float of 16 bits or more")


def floats_of_bits(g: Emitter, bits: Value, dtype: np.dtype[Any]) -> Value:
    """Return the floats that have some bits: the mantissa times a power of two from a table. Each step is exact."""
    check_format(g, dtype)
    exponent_bits, mantissa_bits, wide = layout(dtype)
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1

    def constant(number: int) -> Value:
        return g.constant(np.asarray(number, bits.dtype))

    exponent = g.elementwise("BitwiseAnd", shift(g, bits, constant(mantissa_bits), "RIGHT"), constant(top))
    mantissa = g.elementwise("BitwiseAnd", bits, constant((1 << mantissa_bits) - 1))
    scales = np.ldexp(1.0, np.maximum(np.arange(top + 1), 1) - bias - mantissa_bits)
    scales[top] = math.inf
    scale = g.move("Gather", g.constant(scales.astype(wide)), [g.cast(exponent, INT64)], bits.shape, axis=0)
    normal = g.elementwise("Not", equals(g, exponent, 0))
    leading = g.where(normal, g.constant(np.asarray(1 << mantissa_bits, wide)), g.constant(np.zeros((), wide)))
    size = g.elementwise("Mul", g.elementwise("Add", g.cast(g.cast(mantissa, INT64), wide), leading), scale)
    wrong = g.elementwise("And", equals(g, exponent, top), g.elementwise("Not", equals(g, mantissa, 0)))
    size = g.where(wrong, g.constant(np.asarray(math.nan, wide)), size)
    sign = shift(g, bits, constant(exponent_bits + mantissa_bits), "RIGHT")
    negative = g.elementwise("Not", equals(g, g.elementwise("BitwiseAnd", sign, constant(1)), 0))
    return g.cast(g.where(negative, g.elementwise("Neg", size), size), dtype)


def bits_of_floats(g: Emitter, x: Value) -> Value:
    """Return the bits of floats as unsigned integers. The exponent is found by a logarithm, and corrected by one."""
    check_format(g, x.dtype)
    exponent_bits, mantissa_bits, wide = layout(x.dtype)
    words = np.dtype(np.uint64 if wide == np.float64 else np.uint32)
    bias = (1 << (exponent_bits - 1)) - 1
    size = g.elementwise("Abs", g.cast(x, wide))
    finite = compare(g, "Less", size, g.scalar(math.inf, size))
    nothing = equals(g, size, 0)
    safe = g.where(g.elementwise("And", finite, g.elementwise("Not", nothing)), size, g.scalar(1, size))
    guess = g.elementwise("Floor", g.elementwise("Mul", g.elementwise("Log", safe), g.scalar(1 / math.log(2), size)))
    low, high = g.scalar(1 - bias, size), g.scalar(bias, size)
    guess = g.elementwise("Min", g.elementwise("Max", guess, low), high)
    numbers = np.arange(1 - bias, bias + 1)

    def power(exponent: Value, sign: int) -> Value:
        table = g.constant(np.ldexp(1.0, sign * numbers).astype(wide))
        at = g.cast(g.elementwise("Sub", exponent, low), INT64)
        return g.move("Gather", table, [at], exponent.shape, axis=0)

    scaled = g.elementwise("Mul", safe, power(guess, -1))
    less, more = compare(g, "Less", scaled, g.scalar(1, size)), compare(g, "GreaterOrEqual", scaled, g.scalar(2, size))
    step = g.elementwise("Sub", g.cast(more, wide), g.cast(less, wide))
    exponent = g.elementwise("Min", g.elementwise("Max", g.elementwise("Add", guess, step), low), high)
    fraction = g.elementwise("Mul", safe, power(exponent, -1))
    whole = g.cast(g.elementwise("Mul", fraction, g.scalar(float(1 << mantissa_bits), size)), INT64)
    biased = g.cast(g.elementwise("Sub", exponent, low), INT64)  # of the least normal exponent it is 0
    bits = g.elementwise("Add", g.elementwise("Mul", biased, g.constant(np.int64(1 << mantissa_bits))), whole)
    infinite = g.constant(np.int64(((1 << exponent_bits) - 1) << mantissa_bits))
    bits = g.where(finite, g.where(nothing, g.constant(np.int64(0)), bits), infinite)
    wrong = g.elementwise("Not", compare(g, "Equal", size, size))
    bits = g.where(wrong, g.elementwise("Add", infinite, g.constant(np.int64(1 << (mantissa_bits - 1)))), bits)
    unsigned_bits = g.cast(bits, words)
    top = g.constant(np.asarray(1 << (exponent_bits + mantissa_bits), words))
    negative = is_negative(g, g.cast(x, wide))
    return g.where(negative, g.elementwise("BitwiseOr", unsigned_bits, top), unsigned_bits)
