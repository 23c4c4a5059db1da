"""The evaluator at the bottom of the trace: runs one operation on concrete arrays by its NumPy meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.settings import config
from weft.base.errors import UnexpectedTracerError
from weft.base.source import user_line, user_location
from weft.ir.context import EVALUATION, context
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType, Type, type_of
from weft.runtime.array import ConcreteArray
from weft.ir.nans import check_finite
from weft.trace.tracer import Tracer
from weft.transforms.key_reuse import after_evaluation, before_evaluation


def storage(value: Any, aval: Type) -> Any:
    """The NumPy array (or tape) behind a concrete value."""
    if type(value) is ConcreteArray:
        return value._value
    if isinstance(aval, ArrayType) and not isinstance(value, np.ndarray):
        return np.asarray(value, dtypes.storage(aval.dtype))
    if isinstance(value, np.ndarray) and isinstance(aval, ArrayType) and value.dtype != dtypes.storage(aval.dtype):
        return dtypes.canonical_array(value)
    return value


def wrap_result(value: Any, aval: Type) -> Any:
    return ConcreteArray(np.asarray(value), aval) if isinstance(aval, ArrayType) else value


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Type, compute and wrap one operation."""
    types = []
    for a in args:
        if isinstance(a, Tracer):
            raise_stray(a)
        types.append(type_of(a))
    made = primitive.type(*types, **params)
    arrays = [storage(a, t) for a, t in zip(args, types, strict=True)]
    keys = before_evaluation(primitive, args, params) if config.debug_key_reuse else None
    before, context.trace = context.trace, EVALUATION
    try:
        with np.errstate(all="ignore"):
            results = primitive.eval(*arrays, **params)
    finally:
        context.trace = before
    if not primitive.multiple_results:
        results, made = (results,), (made,)
    if any(type(a) is np.ndarray and a.flags.writeable for a in args):
        results = [detached(r, args) for r in results]
    if config.debug_nans or config.debug_infs:
        check_finite(primitive, results, user_location())
    donated = params.get("donated")
    if donated:
        donate(args, donated)
    wrapped = [wrap_result(r, t) for r, t in zip(results, made, strict=True)]
    if keys is not None:
        after_evaluation(keys, wrapped)
    return wrapped


def detached(result: Any, args: Sequence[Any]) -> Any:
    """A result that shares no memory with NumPy arrays of the caller, who may write to them."""
    for a in args:
        if type(a) is np.ndarray and a.flags.writeable and isinstance(result, np.ndarray) and np.may_share_memory(result, a):
            return result.copy()
    return result


def donate(args: Sequence[Any], donated: Sequence[bool]) -> None:
    """Take the buffers of donated arguments away from their arrays."""
    location = user_location()
    for a, given in zip(args, donated, strict=True):
        if given and isinstance(a, ConcreteArray):
            a._donate(location)


def raise_stray(tracer: Tracer) -> None:
    """A tracer reached the bottom: the trace it belongs to is not active any more."""
    made = getattr(tracer, "source", None)
    raise UnexpectedTracerError(
        "A traced value is used outside of the function that was being traced"
        + (f"; it was made at {made.describe()}" if made is not None else "")
        + ".",
        received=f"{tracer.aval.short()}, {tracer.origin()}",
        fix="return the value from the traced function instead of storing it in a variable outside of it",
        at=user_line(),
    )
