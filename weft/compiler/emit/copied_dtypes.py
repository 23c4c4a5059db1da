"""Dtypes that a jaxpr only copies: kernels treat them as unsigned integers with the same bits. So no element is
unpacked just to be stored again, and NaN payloads survive."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.bits import concatenate_bits, get_unsigned_dtype
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Value
from weft.ir.jaxpr import Jaxpr


def find_copied_dtypes(jaxpr: Jaxpr) -> dict[Any, np.dtype[Any] | None]:
    """Return the dtypes that a jaxpr only copies, each with the integer dtype that kernels use for it, or None if
    they use the dtype itself.
    """
    copied: set[Any] = set()
    others: set[Any] = set()
    for equation in jaxpr.eqns:
        found = copied if equation.primitive.copies else others
        found.update(v.aval.dtype for v in (*equation.invars, *equation.outvars))  # type: ignore[attr-defined]
    return {dtype: bits_dtype(dtype) for dtype in copied - others}


def bits_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Return the integer dtype with the bits of a dtype whose representation in lanes differs from memory; None for
    all others.
    """
    kind = dtypes.kind(dtype)
    if kind == "b" or (kind == "f" and dtypes.itemsize_bits(dtype) in (8, 16)):
        return get_unsigned_dtype(dtype.itemsize * 8)
    return get_unsigned_dtype(64) if dtype == dtypes.complex64 else None


def get_bits(k: KernelBuilder, value: Value) -> Value:
    """Return the bits of a value as an integer."""
    if value.dtype == dtypes.bool_:
        return k.scalars.convert(value, get_unsigned_dtype(8))
    if value.dtype == dtypes.complex64:
        return concatenate_bits(k, [k.compute("real", value), k.compute("imag", value)], get_unsigned_dtype(64))
    return k.scalars.bitcast(value, get_unsigned_dtype(value.dtype.itemsize * 8))
