"""The evaluator at the bottom of the trace: runs one operation on concrete arrays by its NumPy meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import DonatedArrayError, InvalidInputTypeError, OutOfMemoryError, UnexpectedTracerError
from weft.base.settings import config
from weft.base.source import user_line, user_location
from weft.ir.context import EVALUATION, context
from weft.ir.nans import check_finite, watches_numbers
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType, ShapeDtypeStruct, Type, type_of
from weft.runtime.array import ConcreteArray
from weft.runtime.execute import call, is_compiled
from weft.runtime.memory import out_of_memory
from weft.trace.tracer import Tracer
from weft.transforms.key_reuse import after_evaluation, before_evaluation


def storage(value: Any, aval: Type) -> Any:
    """The NumPy array (or tape) behind a concrete value."""
    if type(value) is ConcreteArray:
        return value._value
    if not isinstance(aval, ArrayType) or (isinstance(value, np.ndarray) and value.dtype == dtypes.storage(aval.dtype)):
        return value
    if isinstance(value, ShapeDtypeStruct):
        raise InvalidInputTypeError(
            "A ShapeDtypeStruct has a type but no numbers, so nothing can be computed from it.",
            received=repr(value),
            fix="pass an array; to look at types only, use eval_shape, make_jaxpr or jit(f).lower",
            at=user_line(),
        )
    return dtypes.canonical_array(value)


def memory_to_give(value: Any, aval: Type) -> Any:
    """The array behind a donated value, which the program may overwrite: never one that the caller can still see."""
    return value._for_donation() if type(value) is ConcreteArray else np.array(storage(value, aval))


def wrap_result(value: Any, aval: Type) -> Any:
    return ConcreteArray(np.asarray(value), aval) if isinstance(aval, ArrayType) else value


# The types of results, and whether the operation is compiled, by operation and types: the same few come again.
_plans: dict[tuple[Any, ...], tuple[Any, bool]] = {}
MOST_PLANS = 4096


def _plan(primitive: Primitive, types: Sequence[Type]) -> tuple[Any, bool]:
    key = (primitive, *types)
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        found = _plans[key] = primitive.type(*types), is_compiled(primitive, types)
    return found


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Type, compute and wrap one operation."""
    types = []
    for a in args:
        if type(a) is ConcreteArray:
            types.append(a.aval)
            continue
        if isinstance(a, Tracer):
            raise_stray(a)
        types.append(type_of(a))
    if params:
        made, compiled = primitive.type(*types, **params), is_compiled(primitive, types)
    else:
        made, compiled = _plan(primitive, types)
    donated = params.get("donated")
    if donated:
        check_donated_once(args, donated)
    arrays = [
        memory_to_give(a, t) if donated and donated[n] else storage(a, t)
        for n, (a, t) in enumerate(zip(args, types, strict=True))
    ]
    keys = before_evaluation(primitive, args, params) if config.debug_key_reuse else None
    give = (lambda: donate(args, donated)) if donated else None
    before, context.trace = context.trace, EVALUATION
    try:
        with np.errstate(all="ignore"):
            results = call(primitive, arrays, types, params, give) if compiled else primitive.eval(*arrays, **params)
    except OutOfMemoryError:
        raise
    except MemoryError as error:  # NumPy's
        listed = made if primitive.multiple_results else (made,)
        size = sum(math.prod(t.shape) * dtypes.storage(t.dtype).itemsize for t in listed if isinstance(t, ArrayType))
        names = ", ".join(t.short() for t in listed)
        raise out_of_memory(f"the result of {primitive.name} ({names})", size, str(error)) from None
    finally:
        context.trace = before
    if not primitive.multiple_results:
        results, made = results if compiled else (results,), (made,)
    if not compiled and any(type(a) is np.ndarray and a.flags.writeable for a in args):
        results = [detached(r, args) for r in results]
    if not compiled and watches_numbers():  # compiled programs have traps of their own
        check_finite(primitive, results, user_location())
    if donated:
        donate(args, donated)
    wrapped = list(results) if compiled else [wrap_result(r, t) for r, t in zip(results, made, strict=True)]
    if keys is not None:
        after_evaluation(keys, wrapped)
    return wrapped


def detached(result: Any, args: Sequence[Any]) -> Any:
    """A result that shares no memory with NumPy arrays of the caller, who may write to them."""
    for a in args:
        if (
            type(a) is np.ndarray
            and a.flags.writeable
            and isinstance(result, np.ndarray)
            and np.may_share_memory(result, a)
        ):
            return result.copy()
    return result


def check_donated_once(args: Sequence[Any], donated: Sequence[bool]) -> None:
    """An array that is donated must not be another argument of the same call: its buffer may be overwritten any
    time."""
    given = [a for a, d in zip(args, donated, strict=True) if d and isinstance(a, ConcreteArray)]
    for a in given:
        if sum(a is other for other in args) > 1:
            raise DonatedArrayError(
                "An array is donated in a call that has it as another argument too.",
                received=a.aval.short(),
                fix="pass a copy (x.copy()), or take the argument out of donate_argnums",
                at=user_line(),
            )


def donate(args: Sequence[Any], donated: Sequence[bool]) -> None:
    """Take the buffers of donated arguments away from their arrays."""
    location = user_location()
    for a, given in zip(args, donated, strict=True):
        if given and isinstance(a, ConcreteArray):
            a._donate(location)


def raise_stray(tracer: Tracer) -> None:
    """A tracer reached the bottom: the trace it belongs to is not active any more."""
    raise UnexpectedTracerError(
        "A traced value is used outside of the function that was being traced.",
        received=f"{tracer.aval.short()}, {tracer.origin()}",
        fix="return the value from the traced function instead of storing it in a variable outside of it",
        at=user_line(),
    )
