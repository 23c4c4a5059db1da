"""Argument handling shared by the functions of `weft.scipy.special` and `weft.scipy.stats`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from weft.api.jit import jit
from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.ir.types import get_aval
from weft.numpy.util import cast, check_arraylike, ensure_array, promote_args_inexact, promote_dtypes_inexact
from weft.primitives.elementwise.convert import convert_element_type
from weft.trace.array import Array

SHORT = frozenset(
    dtype for dtype in dtypes.DTYPES.values() if dtypes.kind(dtype) == "f" and dtype.itemsize < dtypes.float32.itemsize
)


# Functions whose results are never weakly typed: as in JAX, `gamma(2.5) * x` is float32 for an x of bfloat16.
STRONG = frozenset(("beta", "dawsn", "erfcx", "exp1", "expi", "expn", "fresnel", "gamma", "log_ndtr", "ndtr"))
STRONG |= {"ndtri", "owens_t", "sici", "spence", "wofz"}


def promote(name: str, *args: Any, kinds: str = "f") -> list[Array]:
    """Promote the arguments of the function `name` to one floating-point dtype and broadcast them, scalars excepted.
    Complex arguments are accepted only if `kinds` is "fc".
    """
    values = promote_args_inexact(name, *args)
    found = get_aval(values[0]).dtype  # type: ignore[attr-defined]
    if dtypes.kind(found) not in kinds:
        raise ArgumentTypeError(
            f"{name} needs real numbers.",
            received=", ".join(get_aval(x).short() for x in values),
            fix="real(x) and imag(x) are the parts of a complex number",
        )
    if name in STRONG and get_aval(values[0]).weak_type:  # type: ignore[attr-defined]
        return [convert_element_type(ensure_array(x), new_dtype=found, weak_type=False) for x in values]
    return values


def promote_and_jit(function: Callable[..., Any] | None = None, *, kinds: str = "f", compiled: bool = True) -> Any:
    """Make a public function of a function of arrays: promote its arguments to one dtype, broadcast them, and compute
    short floats in float32 with one rounding at the end. Outside of a trace the function is jitted, unless `compiled`
    is False, for a function that is one operation.
    """
    if function is None:
        return functools.partial(promote_and_jit, kinds=kinds, compiled=compiled)
    name = function.__name__
    signature = inspect.signature(function)
    body = jit(function) if compiled else function

    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(signature.parameters):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        values = promote(name, *args, kinds=kinds)
        dtype = get_aval(values[0]).dtype  # type: ignore[attr-defined]
        if dtype not in SHORT:
            return body(*values)
        weak = all(getattr(x, "weak_type", False) for x in values)
        results = body(*(cast(x, dtypes.float32) for x in values))
        if isinstance(results, tuple):
            return tuple(cast(x, dtype, weak) for x in results)
        return cast(results, dtype, weak)

    return public


def promote_floats(name: str, *args: Any) -> list[Array]:
    """Promote the arguments of the function `name` to one floating-point dtype. Each keeps its shape."""
    check_arraylike(name, *args)
    values = [ensure_array(x) for x in promote_dtypes_inexact(*args)]
    if dtypes.kind(values[0].dtype) != "f":
        raise ArgumentTypeError(f"{name} needs real numbers.", received=", ".join(x.aval.short() for x in values))
    return values
