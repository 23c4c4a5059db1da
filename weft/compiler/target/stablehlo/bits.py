"""Rules of shifts and counts of bits. Those of integers below a byte are computed on the low bits of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import DIRECT
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule
from weft.compiler.target.stablehlo.writer import Value

BYTE, SIGNED_BYTE = np.dtype(np.uint8), np.dtype(np.int8)


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz")
def bits_operation(e: Emitter, site: Site, x: Value, *amounts: Value) -> Value:
    """Write a shift or a count."""
    name, bits = site.primitive.name, dtypes.itemsize_bits(x.dtype)
    if bits >= 8:
        return e.same(DIRECT[name], x, *amounts)
    low = low_bits(e, x, bits)
    if not amounts:
        count = e.same(DIRECT[name], low)
        return from_low_bits(e, e.same("subtract", count, e.full_like(8 - bits, count)) if name == "clz" else count, x)
    amount = low_bits(e, amounts[0], bits)
    if name == "shift_right_arithmetic":
        most = e.same("minimum", amount, e.full_like(bits - 1, amount))
        found = e.same(DIRECT[name], extend_sign(e, low, bits), e.bitcast(most, SIGNED_BYTE))
        return from_low_bits(e, e.bitcast(found, BYTE), x)
    return from_low_bits(e, e.same(DIRECT[name], low, amount), x)


def low_bits(e: Emitter, x: Value, bits: int) -> Value:
    """Return short integers as bytes whose upper bits are zero."""
    whole = e.convert(x, SIGNED_BYTE if dtypes.kind(x.dtype) == "i" else BYTE)
    whole = e.bitcast(whole, BYTE) if whole.dtype != BYTE else whole
    return e.same("and", whole, e.full_like((1 << bits) - 1, whole))


def extend_sign(e: Emitter, x: Value, bits: int) -> Value:
    """Return signed bytes with copies of the top one of the low bits."""
    unused = e.full(8 - bits, x.shape, BYTE)
    shifted = e.bitcast(e.same("shift_left", x, unused), SIGNED_BYTE)
    return e.same("shift_right_arithmetic", shifted, e.bitcast(unused, SIGNED_BYTE))


def from_low_bits(e: Emitter, x: Value, like: Any) -> Value:
    """Return the low bits of bytes as integers of a short dtype."""
    bits = dtypes.itemsize_bits(like.dtype)
    if dtypes.kind(like.dtype) == "i":
        return e.convert(extend_sign(e, x, bits), like.dtype)
    return e.convert(e.same("and", x, e.full_like((1 << bits) - 1, x)), like.dtype)
