"""Numbers that describe a sample: its mode, ranks, the standard error of its mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import lax, numpy as wnp
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, NotSupportedError
from weft.numpy.util import canonicalize_axis, combining_ranks, ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

POLICIES = ("propagate", "omit", "raise")


class ModeResult(NamedTuple):
    """Most common values, with their counts."""

    mode: Array
    count: Array  # type: ignore[assignment]


def _check_policy(name: str, nan_policy: str, supported: tuple[str, ...]) -> None:
    if nan_policy not in POLICIES:
        raise ArgumentError(
            f"{name} got an unknown nan_policy.", received=f"nan_policy={nan_policy!r}", fix=f"one of {POLICIES}"
        )
    if nan_policy not in supported:
        raise NotSupportedError(
            f"{name} does not support nan_policy={nan_policy!r}: "
            + ("values are not known when it is traced." if nan_policy == "raise" else "sizes must be known."),
            received=f"nan_policy={nan_policy!r}",
            fix=f"one of {supported}",
        )


def _along_last(x: Array, axis: Any, name: str) -> tuple[Array, int | None]:
    """Move the axis last; flatten without an axis."""
    if axis is None:
        return x.reshape(-1), None
    found = canonicalize_axis(index(axis), x.ndim, name)
    return wnp.moveaxis(x, found, -1), found


@combining_ranks
def mode(a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """Return the most common value along an axis (the least of several) and its count.

    Args:
        a: an array.
        axis: along which axis; None for all elements.
        nan_policy: "propagate": nan is a value like others, larger than all.
        keepdims: whether the axis stays, with size 1.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import stats
    >>> stats.mode(wnp.array([3, 1, 2, 2]))
    ModeResult(mode=Array(2, dtype=int32), count=Array(2, dtype=int32))
    """
    _check_policy("mode", nan_policy, ("propagate",))
    (a,) = ensure_arrays("mode", a)
    rows, found = _along_last(a, axis, "mode")
    size = rows.shape[-1]
    if size == 0:
        raise ArgumentError("mode of an axis without elements has no value.", received=f"an array of shape {a.shape}")
    order = wnp.sort(rows, axis=-1)
    first = _starts(order)
    position = wnp.arange(size)
    start = lax.cummax(wnp.where(first, position, 0), axis=order.ndim - 1)
    run = position - start + 1  # how many equal ones there are up to each
    best = wnp.argmax(run, axis=-1, keepdims=True)
    value = wnp.take_along_axis(order, best, axis=-1)[..., 0]
    count = wnp.take_along_axis(run, best, axis=-1)[..., 0]
    if keepdims:
        where = found if found is not None else tuple(range(a.ndim))
        value, count = wnp.expand_dims(value, where), wnp.expand_dims(count, where)
    return ModeResult(value, count)


def _starts(ordered: Array) -> Array:
    """Return whether each element of sorted rows differs from the one before."""
    nan = wnp.isnan(ordered) if dtypes.kind(ordered.dtype) in "fc" else wnp.zeros(ordered.shape, bool)
    differs = (ordered[..., 1:] != ordered[..., :-1]) & ~(nan[..., 1:] & nan[..., :-1])
    return wnp.concatenate([wnp.ones((*ordered.shape[:-1], 1), bool), differs], axis=-1)


METHODS = ("average", "min", "max", "dense", "ordinal")


@combining_ranks
def rankdata(a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """Rank elements, from 1 for the least, as floats.

    Args:
        a: an array.
        method: what equal elements get: the "average" of their ranks, the "min" or "max" of them, "dense": as "min" but
            without gaps, "ordinal": distinct ranks in the order of their positions.
        axis: along which axis; None: all elements, as one vector.
        nan_policy: "propagate": where there is a nan, all ranks are nan.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import stats
    >>> stats.rankdata(wnp.array([3, 1, 1, 2]))
    Array([4. , 1.5, 1.5, 3. ], dtype=float32)
    """
    _check_policy("rankdata", nan_policy, ("propagate",))
    if method not in METHODS:
        raise ArgumentError("rankdata got an unknown method.", received=f"method={method!r}", fix=f"one of {METHODS}")
    (a,) = ensure_arrays("rankdata", a)
    dtype = dtypes.default_float_dtype()
    rows, found = _along_last(a, axis, "rankdata")
    size = rows.shape[-1]
    if size == 0:
        return wnp.zeros(a.shape if found is not None else (0,), dtype)
    order = wnp.argsort(rows, axis=-1, stable=True)
    inverse = wnp.argsort(order, axis=-1)
    if method == "ordinal":
        ranks = (inverse + 1).astype(dtype)
    else:
        first = _starts(wnp.take_along_axis(rows, order, axis=-1))
        position = wnp.arange(size)
        last = first.ndim - 1
        least = lax.cummax(wnp.where(first, position, 0), axis=last)
        ends = wnp.concatenate([first[..., 1:], wnp.ones((*first.shape[:-1], 1), bool)], axis=-1)
        most = lax.cummin(wnp.where(ends, position, size), axis=last, reverse=True)
        sorted_ranks = {
            "min": lambda: least + 1,
            "max": lambda: most + 1,
            "dense": lambda: wnp.cumsum(first, axis=-1),
            "average": lambda: 0.5 * (least + most).astype(dtype) + 1,
        }[method]().astype(dtype)
        ranks = wnp.take_along_axis(sorted_ranks, inverse, axis=-1)
    if dtypes.kind(rows.dtype) in "fc":
        ranks = wnp.where(wnp.any(wnp.isnan(rows), axis=-1, keepdims=True), np.array(np.nan, dtype), ranks)
    return ranks if found is None else wnp.moveaxis(ranks, -1, found)


def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Array:
    """Return the standard error of the mean along an axis: the standard deviation over the root of the number of
    elements.

    Args:
        a: an array.
        axis: along which axis; None for all elements.
        ddof: what the number of elements is reduced by in the variance.
        nan_policy: "propagate", or "omit", which leaves out nan.
        keepdims: whether the axis stays, with size 1.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import stats
    >>> stats.sem(wnp.array([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    _check_policy("sem", nan_policy, ("propagate", "omit"))
    (a,) = ensure_arrays("sem", a)
    x = ensure_array(promote_dtypes_inexact(a)[0])
    rows, found = _along_last(x, axis, "sem")
    if nan_policy == "omit":
        present = ~wnp.isnan(rows)
        count = wnp.sum(present, axis=-1).astype(wnp.real(rows).dtype)
        deviation = wnp.nanstd(rows, axis=-1, ddof=ddof)
    else:
        count = wnp.full(rows.shape[:-1], rows.shape[-1], wnp.real(rows).dtype)
        deviation = wnp.std(rows, axis=-1, ddof=ddof)
    value = deviation / wnp.sqrt(count)
    if keepdims:
        value = wnp.expand_dims(value, found if found is not None else tuple(range(x.ndim)))
    return value
