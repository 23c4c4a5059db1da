"""Conversion of values to NumPy arrays of canonical dtype, with checked narrowing from 64 to 32 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base.dtypes import (
    WIDE_DTYPES,
    WITH_X64,
    WITHOUT_X64,
    ExtendedDtype,
    as_dtype,
    bool_,
    complex64,
    complex128,
    default_int_dtype,
    float32,
    float64,
    iinfo,
    int32,
    int64,
    is_weakly_typed,
    issubdtype,
    native,
    refuse_masked,
    uint32,
    uint64,
)
from weft.base.errors import ArgumentError, ArgumentTypeError, InvalidInputTypeError, NarrowingOverflowError
from weft.base.settings import config
from weft.base.source import user_line

_LEAST_NORMAL = float(np.finfo(np.float32).tiny)
_GREATEST = float(np.finfo(np.float32).max)


def canonical_array(value: Any) -> np.ndarray:
    """Convert a NumPy array, a number or nested lists of numbers to a NumPy array of canonical dtype.

    An array that already has one is returned as it is. A number that 32 bits cannot hold raises an error.
    """
    kind = type(value)
    if kind is np.ndarray:
        canonical = (WITH_X64 if config.enable_x64 else WITHOUT_X64).get(value.dtype)
        if canonical is value.dtype:
            array: np.ndarray = value
            return array
        return _unusual_array(value) if canonical is None else convert(value, canonical)
    if kind is float or kind is np.float64:
        if config.enable_x64:
            return np.array(value, float64)
        if _LEAST_NORMAL < value < _GREATEST or -_GREATEST < value < -_LEAST_NORMAL or value == 0.0:
            return np.array(value, float32)
        return convert(np.array(value, float64), float32)
    if kind is int or kind is np.int64:
        canonical = int64 if config.enable_x64 else int32
        try:
            return np.array(int(value), canonical)
        except OverflowError:
            if kind is np.int64 and not config.strict_narrowing:
                return np.array(value).astype(canonical)
            raise _does_not_fit(int(value), canonical) from None
    if kind is bool:
        return np.array(value, bool_)
    refuse_masked(value)
    if isinstance(value, np.generic):
        return canonical_array(np.asarray(value))
    if isinstance(value, int):
        return canonical_array(int(value))
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ArgumentError(
            "Nested lists must have the same length at each level.",
            received=str(error).partition(". ")[0],
            fix="pad the rows to the same length, or keep a list of arrays",
        ) from None
    if array.dtype == int64 and not config.enable_x64:
        return _narrow_integers(array, int32)  # Python integers must not wrap
    return canonical_array(array)


def canonical_value(value: Any) -> tuple[np.ndarray, bool]:
    """Return `canonical_array(value)`, and whether the value is weakly typed."""
    return canonical_array(value), is_weakly_typed(value)


def coerce_value(value: Any, dtype: Any) -> np.ndarray:
    """Convert `value` to a NumPy array of `dtype`, which the program requested.

    A Python integer must be in the range of the dtype, and 64-bit numbers must fit into 32 bits. Other conversions
    behave like `astype`.
    """
    found = as_dtype(dtype)
    refuse_masked(value)
    if isinstance(found, ExtendedDtype):
        array = np.asarray(value)
        if array.dtype != found.storage:
            raise ArgumentTypeError(f"A value of dtype {array.dtype} cannot become {found}.")
        return array
    if isinstance(value, int) and not isinstance(value, (bool, np.generic)):
        if issubdtype(found, np.integer):
            return _integer_array(int(value), found)
        # A float may hold an integer that is too large for NumPy's 64-bit integers.
        value = float(value) if issubdtype(found, np.inexact) else bool(value)
    array = np.asarray(value)
    if array.dtype == float64 and array is not value and not isinstance(value, np.generic):
        if issubdtype(found, np.integer):
            return _truncated(array, found)  # Python numbers, or lists of them
    if array.dtype == object and issubdtype(found, np.inexact):
        array = array.astype(float64)
    if array.dtype not in WITH_X64:
        array = _unusual_array(array, found)
    if array is not value and array.dtype in (int64, uint64) and issubdtype(found, np.integer):
        return _narrow_integers(array, found)  # check lists of Python integers like a single one
    return convert(array, found)


def _truncated(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert floats to integers, rounding towards zero; raise for values outside of the dtype's range."""
    limits, whole = iinfo(dtype), np.trunc(array)
    outside = array[~((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0))]
    for value in outside.tolist():
        if not math.isfinite(value):
            raise ArgumentError(f"The number {value} cannot become an integer of dtype {dtype}.")
        return _integer_array(int(value), dtype)
    result: np.ndarray = whole.astype(np.int64 if limits.min < 0 else np.uint64).astype(dtype)
    return result


def convert(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return `array.astype(dtype)` without warnings. With `strict_narrowing`, conversions from 64 to 32 bits of one
    kind raise for values that do not fit."""
    source = array.dtype
    if source is dtype:
        return array
    if config.strict_narrowing:
        if source in (int64, uint64) and dtype in (int32, uint32):
            return _narrow_integers(array, dtype)
        if (source is float64 and dtype is float32) or (source is complex128 and dtype is complex64):
            return _narrow_floats(array, dtype)
    with np.errstate(all="ignore"):
        return array.astype(dtype, copy=False)


def _integer_array(value: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert a Python integer to an array of rank 0; raise if it is out of range."""
    if dtype.kind == "V":
        limits = iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise _does_not_fit(value, dtype)
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise _does_not_fit(value, dtype) from None


def _narrow_integers(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    limits = iinfo(dtype)
    if array.size:
        # Compare Python integers: NumPy would compare int64 with uint64 limits in float64.
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise _does_not_fit(low if low < limits.min else high, dtype, array)
    return array.astype(dtype)


def _narrow_floats(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    # The processor flags overflow and underflow during the conversion, so numbers in range need no second pass.
    # Denormal results set the flag too without being lost, so the second pass looks for real losses.
    try:
        with np.errstate(over="raise", under="raise", invalid="ignore"):
            return array.astype(dtype)
    except FloatingPointError:
        pass
    with np.errstate(all="ignore"):
        narrowed = array.astype(dtype)
    lost = np.zeros(array.shape, bool)
    parts = [(array, narrowed)]
    if dtype.kind == "c":
        parts = [(array.real, narrowed.real), (array.imag, narrowed.imag)]
    for before, after in parts:
        lost |= (np.isinf(after) & ~np.isinf(before)) | ((after == 0) & (before != 0))
    if lost.any():
        raise _does_not_fit(array[lost][0].item(), dtype, array)
    return narrowed


def _does_not_fit(value: complex, dtype: np.dtype[Any], array: np.ndarray | None = None) -> NarrowingOverflowError:
    """Create the error for a number that is out of the range of `dtype`."""
    if isinstance(value, int):
        limits = iinfo(dtype)
        reason = f"The integer {value} does not fit into {dtype}, which goes from {limits.min} to {limits.max}."
    else:
        zero = abs(value) < 1
        reason = f"The number {value!r} does not fit into {dtype}: it would become {'zero' if zero else 'infinite'}."
    received = None
    if array is not None and array.ndim:
        index = np.unravel_index(int(np.argmax(array == value)), array.shape)
        received = f"{array.dtype} of shape {array.shape}; the first such number is at index {tuple(map(int, index))}"
    fix = "another dtype, whose range includes it"
    if not config.enable_x64 and dtype in WIDE_DTYPES:
        wide = WIDE_DTYPES[dtype]
        if not isinstance(value, int) or np.iinfo(wide).min <= value <= np.iinfo(wide).max:
            fix = f"with weft.enable_x64(True):   to keep it as {wide}"
    return NarrowingOverflowError(reason, at=user_line(), received=received, fix=fix)


def _unusual_array(array: np.ndarray, dtype: np.dtype[Any] | None = None) -> np.ndarray:
    """Convert an array of foreign byte order; raise for integers beyond 64 bits and for all other dtypes that arrays
    cannot have."""
    if native(array.dtype) in WITH_X64:
        swapped = array.astype(native(array.dtype))
        return swapped if dtype is not None else canonical_array(swapped)
    if array.dtype == object and array.size:
        integers = [item for item in array.flat if type(item) is int]
        if len(integers) == array.size:
            raise _does_not_fit(max(integers, key=abs), dtype or default_int_dtype())
    raise InvalidInputTypeError(
        f"A value of dtype {array.dtype} cannot become an array: it holds no booleans or numbers of a supported type.",
        at=user_line(),
        received=np.array2string(array, threshold=5) if array.size < 1000 else f"an array of shape {array.shape}",
        fix="x.astype('float32')   or another numeric dtype, in NumPy, before it is handed over",
    )
