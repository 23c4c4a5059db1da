"""Helpers of elementwise operations: constants in the dtype of an operand, and computing in a dtype that NumPy
supports."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.base.promotion import DTYPES
from weft.ir.context import EVALUATION
from weft.ir.primitive import Sample
from weft.ir.types import array_type, get_aval
from weft.primitives.movement.shape import ramp

bfloat16 = np.dtype(ml_dtypes.bfloat16)


def _computing_types() -> dict[np.dtype[Any], np.dtype[Any]]:
    """Map each dtype to the one NumPy computes it in: short floats to float32, integers below a byte to a byte; the
    result is rounded or wrapped once."""
    found: dict[np.dtype[Any], np.dtype[Any]] = {}
    for dtype in DTYPES.values():
        kind = dtypes.kind(dtype)
        if kind == "f" and dtype not in (dtypes.float32, dtypes.float64):
            found[dtype] = dtypes.float32
        elif kind in "iu" and dtype.kind == "V":
            found[dtype] = np.dtype(np.int8 if kind == "i" else np.uint8)
    return found


COMPUTED_IN = _computing_types()


def round_result(function: Callable[..., Any]) -> Any:
    """Create an `eval` rule that computes in a dtype that NumPy supports well and rounds the result to the operands'
    dtype."""

    @functools.wraps(function)
    def evaluate(*arrays: Any, **params: Any) -> Any:
        dtype = arrays[0].dtype
        wider = COMPUTED_IN.get(dtype)
        if wider is None:
            return function(*arrays, **params)
        return function(*[a.astype(wider) for a in arrays], **params).astype(dtype)

    return staticmethod(evaluate)


def precise(function: Callable[..., Any]) -> Any:
    """Create an `eval` rule that computes in float64 and rounds once, for functions that are inaccurate in shorter
    dtypes."""

    @functools.wraps(function)
    def evaluate(*arrays: Any, **params: Any) -> Any:
        dtype = arrays[0].dtype
        if dtype == dtypes.float64:
            return function(*arrays, **params)
        return np.asarray(function(*[a.astype(np.float64) for a in arrays], **params)).astype(dtype)

    return staticmethod(evaluate)


@functools.lru_cache(maxsize=4096)
def _constant(dtype: np.dtype[Any], value: Any) -> np.ndarray:
    scalar = np.array(value, dtype)
    scalar.flags.writeable = False
    return scalar


def constant_like(x: Any, value: Any) -> Any:
    """Create a scalar in the dtype of `x`, for use next to `x` in one operation."""
    dtype = get_dtype(x)
    scalar = _constant(dtype, value)
    # `x` may have 64 bits while `enable_x64` is off, where a NumPy scalar has not.
    return scalar if dtypes.is_canonical(dtype) else EVALUATION.lift(scalar, array_type((), dtype))


def get_dtype(x: Any) -> Any:
    """Return the canonical dtype of an array, a tracer or a Python number."""
    return get_aval(x).dtype  # type: ignore[attr-defined]


def is_complex(x: Any) -> bool:
    """Return whether the elements of an array are complex numbers."""
    return dtypes.kind(get_dtype(x)) == "c"


def unit_ramp(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return distinct numbers inside (-1, 1), none of them 0: samples for functions with a bounded domain."""
    return (ramp(*shape, dtype=np.float64) * 0.35 + 0.05).astype(dtype)


def positive_ramp(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return distinct positive numbers, the least 0.225: samples for logarithms and roots."""
    return (ramp(*shape, dtype=np.float64) + 2.1).astype(dtype)


def complex_ramp(*shape: int) -> np.ndarray:
    """Return distinct complex numbers off the axes, where branch cuts and kinks are."""
    return (unit_ramp(*shape) * 1.5 + 1j * (positive_ramp(*shape) * 0.3 + 0.2)).astype(np.complex64)


def float_samples(make: Callable[..., np.ndarray], with_complex: bool = False) -> Any:
    """Yield samples of a function of one operand: whole, scalar and empty arrays, short floats, complex numbers with
    `with_complex`."""
    yield Sample(make(3, 2))
    yield Sample(make(1)[0:1].reshape(()))
    yield Sample(make(0, 2))
    yield Sample(make(4, dtype=bfloat16), differentiable=False)
    yield Sample(make(4, dtype=np.float16), differentiable=False)
    if with_complex:
        yield Sample(complex_ramp(3))
