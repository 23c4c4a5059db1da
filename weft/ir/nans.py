"""Eager checks for `debug_nans`, `debug_infs` and `checks="all"`: raise an error with the operation and the source line
of the first bad result. Compiled programs use traps instead (`docs/design/checks.md`)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import NonFiniteValueError
from weft.base.settings import config
from weft.base.source import Location
from weft.ir.context import context, push_names
from weft.ir.primitive import Params, Primitive
from weft.ir.types import ArrayType


def checks_for_nans() -> bool:
    """Return whether results are checked for nan or inf."""
    return config.debug_nans or config.debug_infs or config.checks == "all"


def can_be(kind: str, aval: Any) -> bool:
    """Return whether an array may contain a nan or an infinity (`kind`)."""
    if not isinstance(aval, ArrayType) or dtypes.kind(aval.dtype) not in "fc":
        return False
    if not all(type(d) is int and d > 0 for d in aval.shape):
        return False
    return _has(kind, aval.dtype)


@functools.cache
def _has(kind: str, dtype: Any) -> bool:
    with np.errstate(all="ignore"):
        special = np.array(np.nan if kind == "nan" else np.inf).astype(dtype).astype(np.complex128)
    return bool(np.isnan(special) if kind == "nan" else np.isinf(special))


class _NansAllowed(str):
    """Name on the name stack of operations that are not checked."""


_NANS_ALLOWED = _NansAllowed("nans_allowed")


def allow_nans() -> AbstractContextManager[None]:
    """Return a scope for operations whose NaNs are masked by a later selection, so they are not reported."""
    return push_names(_NANS_ALLOWED)


def allows_nans(stack: Sequence[str]) -> bool:
    """Return whether operations with this name stack are exempt from checks."""
    return any(type(name) is _NansAllowed for name in stack)


def check_finite(primitive: Primitive, params: Params, results: Sequence[Any], location: Location | None) -> None:
    """Raise if a float result contains nan (or inf, depending on the settings)."""
    if allows_nans(context.stack):
        return
    introduced = config.checks == "all" and "nan" in primitive.introduced(params, intended=False)
    check_nans = config.debug_nans or introduced
    for position, value in enumerate(results):
        if not isinstance(value, (np.ndarray, np.generic)) or dtypes.kind(value.dtype) not in "fc":
            continue
        wide = np.asarray(value, np.complex128 if value.dtype.kind == "c" else np.float64)
        for wanted, test, word in ((check_nans, np.isnan, "nan"), (config.debug_infs, np.isinf, "inf")):
            bad = test(wide) if wanted else np.False_
            if bad.any():
                first = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
                raise NonFiniteValueError(
                    f"{word} in result {position} of `{primitive.name}`, {int(bad.sum())} of {max(bad.size, 1)} "
                    f"elements, the first at index {first}.",
                    at=location.describe() if location is not None else None,
                )
