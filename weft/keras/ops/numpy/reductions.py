"""Sums, extrema, statistics and cumulative sums along axes."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import operand, operation, tensor

Axes = int | tuple[int, ...] | list[int] | None

_REDUCTION = """{summary}

    Args:
        x: an array.
        axis: the axis or axes to reduce; all of them if None.
        keepdims: whether reduced axes stay, with size 1.

    Returns:
        An array without the reduced axes.
    """


def _reduction(name: str, summary: str, example: str = "") -> Any:
    """Create the operation of this name, with the options `axis` and `keepdims` only."""
    function = getattr(wnp, name)

    def call(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return function(tensor(x), axis=_tuple(axis), keepdims=keepdims)

    arguments, _, printed = (part.strip() for part in example.partition("->"))
    call.__doc__ = _REDUCTION.format(summary=summary) + (
        f"\n    Example:\n        >>> from weft import keras\n        >>> print(keras.ops.{name}({arguments}))\n"
        f"        {printed}\n    "
        if example
        else ""
    )
    call.__name__ = call.__qualname__ = name
    return operation(call)


all = _reduction("all", "Whether all elements are true.", "[[True, False], [True, True]], axis=1 -> [False  True]")
amax = _reduction("amax", "The largest element.", "[[1, 5], [3, 2]], axis=1 -> [5 3]")
amin = _reduction("amin", "The least element.", "[[1, 5], [3, 2]], axis=1 -> [1 2]")
any = _reduction("any", "Whether one element is true.", "[[True, False], [False, False]], axis=1 -> [ True False]")
argmax = _reduction("argmax", "The index of the first largest element.", "[[1, 5], [3, 2]], axis=1 -> [1 0]")
argmin = _reduction("argmin", "The index of the first least element.", "[[1, 5], [3, 2]], axis=1 -> [0 1]")
mean = _reduction("mean", "The mean of elements, as a float.", "[[1, 5], [3, 2]], axis=1 -> [3.  2.5]")
median = _reduction("median", "The median of elements: the mean of the middle two for an even count.")
nanargmax = _reduction("nanargmax", "The index of the largest element that is not NaN.")
nanargmin = _reduction("nanargmin", "The index of the least element that is not NaN.")
nanmax = _reduction("nanmax", "The largest element that is not NaN.")
nanmean = _reduction("nanmean", "The mean of the elements that are not NaN.")
nanmedian = _reduction("nanmedian", "The median of the elements that are not NaN.")
nanmin = _reduction("nanmin", "The least element that is not NaN.")
nanprod = _reduction("nanprod", "The product of the elements that are not NaN.")
nanstd = _reduction("nanstd", "The standard deviation of the elements that are not NaN.")
nansum = _reduction("nansum", "The sum of the elements that are not NaN.")
nanvar = _reduction("nanvar", "The variance of the elements that are not NaN.")
ptp = _reduction("ptp", "The largest element minus the least.")
std = _reduction("std", "The standard deviation of elements (biased).", "[[1.0, 3.0], [2.0, 2.0]], axis=1 -> [1. 0.]")
sum = _reduction("sum", "The sum of elements.", "[[1, 5], [3, 2]], axis=1 -> [6 5]")
var = _reduction("var", "The variance of elements (biased).", "[[1.0, 3.0], [2.0, 2.0]], axis=1 -> [1. 0.]")


@operation
@document(
    "An array without the reduced axes.",
    "print(keras.ops.max([[1, 5], [3, 2]], axis=1)) -> [5 3]",
    initial="the least value of the result; needed where there may be no elements.",
)
def max(x: Any, axis: Axes = None, keepdims: bool = False, initial: Any = None) -> Any:
    """Return the maximum of elements."""
    return wnp.max(tensor(x), axis=_tuple(axis), keepdims=keepdims, initial=initial)


@operation
@document(
    "An array without the reduced axes.",
    "print(keras.ops.min([[1, 5], [3, 2]], axis=1)) -> [1 2]",
    initial="the largest value of the result; needed where there may be no elements.",
)
def min(x: Any, axis: Axes = None, keepdims: bool = False, initial: Any = None) -> Any:
    """Return the minimum of elements."""
    return wnp.min(tensor(x), axis=_tuple(axis), keepdims=keepdims, initial=initial)


@operation
@document(
    "An array without the reduced axes.",
    "print(keras.ops.prod([[1, 5], [3, 2]], axis=1)) -> [5 6]",
    dtype="of the result; by default that of `x`, where small integers become 32 bit.",
)
def prod(x: Any, axis: Axes = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Multiply elements."""
    return wnp.prod(tensor(x), axis=_tuple(axis), keepdims=keepdims, dtype=dtype)


@operation
@document(
    "An array of floats without the reduced axes.", weights="an array of the shape of `x`, or a vector along `axis`."
)
def average(x: Any, axis: Axes = None, weights: Any = None) -> Any:
    """Compute the weighted mean of elements."""
    x = tensor(x)
    return wnp.average(x, axis=_tuple(axis), weights=None if weights is None else tensor(weights))


@operation
@document("An array of int32.")
def count_nonzero(x: Any, axis: Axes = None) -> Any:
    """Count the elements that are not 0."""
    return wnp.count_nonzero(tensor(x), axis=_tuple(axis)).astype("int32")


def _cumulative(name: str, summary: str, example: str) -> Any:
    """Create the operation of this name along one axis."""
    function = getattr(wnp, name)

    def call(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        return function(tensor(x), axis=axis, dtype=dtype)

    arguments, _, printed = (part.strip() for part in example.partition("->"))
    call.__doc__ = f"""{summary}

    Args:
        x: an array.
        axis: the axis to go along; None reads the array as a vector.
        dtype: of the result; that of `x` by default, int32 for booleans.

    Returns:
        An array of the shape of `x`, or a vector.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.{name}({arguments}))
        {printed}
    """
    call.__name__ = call.__qualname__ = name
    return operation(call)


cumprod = _cumulative("cumprod", "The products of all elements up to each.", "[1, 2, 3] -> [1 2 6]")
cumsum = _cumulative("cumsum", "The sums of all elements up to each.", "[1, 2, 3] -> [1 3 6]")
nancumprod = _cumulative("nancumprod", "The products up to each element, NaN counted as 1.", "[1, 2, 3] -> [1 2 6]")
nancumsum = _cumulative("nancumsum", "The sums up to each element, NaN counted as 0.", "[1, 2, 3] -> [1 3 6]")


def _quantiles(name: str, of_hundred: bool, skips: bool) -> Any:
    """Create the operation of this name: quantiles or percentiles, with or without NaN."""
    function = getattr(wnp, name)
    what, top = ("percentile", 100) if of_hundred else ("quantile", 1)

    def call(x: Any, q: Any, axis: Axes = None, method: str = "linear", keepdims: bool = False) -> Any:
        return function(tensor(x), operand(q), axis=_tuple(axis), method=method, keepdims=keepdims)

    call.__doc__ = f"""The {what} `q` of elements{" that are not NaN" if skips else ""}.

    Args:
        x: an array.
        q: which, in [0, {top}]: a scalar or a vector.
        axis: the axis or axes to reduce; all of them if None.
        method: between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        keepdims: whether reduced axes stay, with size 1.

    Returns:
        An array of floats; for a vector `q` its first axis is that of `q`.
    """
    call.__name__ = call.__qualname__ = name
    return operation(call)


nanpercentile = _quantiles("nanpercentile", True, True)
nanquantile = _quantiles("nanquantile", False, True)
percentile = _quantiles("percentile", True, False)
quantile = _quantiles("quantile", False, False)


@operation
@document("A symmetric matrix of floats.", x="a matrix whose rows are variables and whose columns are observations.")
def corrcoef(x: Any) -> Any:
    """Compute the correlation coefficients between the rows of a matrix."""
    return wnp.corrcoef(tensor(x))


@operation
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integrate samples by the trapezoidal rule.

    Args:
        y: the samples.
        x: where they were taken; `dx` apart if None.
        dx: the distance between samples.
        axis: the axis of samples.

    Returns:
        An array of floats without that axis.
    """
    return wnp.trapezoid(tensor(y), None if x is None else tensor(x), dx, axis)


def _tuple(axis: Axes) -> int | tuple[int, ...] | None:
    return tuple(axis) if isinstance(axis, list) else axis
