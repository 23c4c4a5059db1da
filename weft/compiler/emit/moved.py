"""Elements that a program only moves: kernels know them as unsigned integers of the same bits.

So nothing is unpacked that is only stored again, one element is one number, and bits stay as they are, also those of a
nan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.emit.bits import joined, unsigned
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Value
from weft.ir.jaxpr import Jaxpr


def moved_dtypes(program: Jaxpr) -> dict[Any, np.dtype[Any] | None]:
    """The dtypes that a program does nothing with but move them, and for each the integer that stands for it, or None
    where it is moved as it is."""
    moved: set[Any] = set()
    others: set[Any] = set()
    for equation in program.eqns:
        found = moved if equation.primitive.copies else others
        found.update(v.aval.dtype for v in (*equation.invars, *equation.outvars))  # type: ignore[attr-defined]
    return {dtype: bits_dtype(dtype) for dtype in moved - others}


def bits_dtype(dtype: Any) -> np.dtype[Any] | None:
    """The integer with the bits of a dtype that lanes keep in another way than memory does; None for all others."""
    kind = dtypes.kind(dtype)
    if kind == "b" or (kind == "f" and dtypes.itemsize_bits(dtype) in (8, 16)):
        return unsigned(dtype.itemsize * 8)
    return unsigned(64) if dtype == dtypes.complex64 else None


def bits_of(k: KernelBuilder, value: Value) -> Value:
    """The number that stands for a value."""
    if value.dtype == dtypes.bool_:
        return k.scalars.convert(value, unsigned(8))
    if value.dtype == dtypes.complex64:
        return joined(k, [k.compute("real", value), k.compute("imag", value)], unsigned(64))
    return k.scalars.bitcast(value, unsigned(value.dtype.itemsize * 8))
