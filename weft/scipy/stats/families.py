"""Shared parts of distributions: shift by `loc`, scaling by `scale`, supports, and signatures of public functions.

A distribution is a module whose functions are written for `loc = 0` and `scale = 1`. The decorators here make of each
the function with SciPy's signature, by what happens to its results: a density is divided by the scale, a quantile is
multiplied by it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.nn import log1mexp
from weft.scipy.special.arguments import promote_and_jit
from weft.trace.array import Array

Function = Callable[..., Any]
Finish = Callable[[Any, Any, Any], Any]


_MEANING = {
    "x": "values of the random variable.",
    "k": "values of the random variable, integers.",
    "q": "probabilities, from 0 to 1; NaN for others.",
    "loc": "the shift, subtracted from a value first.",
    "scale": "the divisor of the shifted value; the result is NaN unless it is positive.",
}


def _with_sections(text: str | None, names: Iterable[str]) -> str:
    """Append `Args:` and `Returns:` to a docstring, unless it has them already."""
    text = inspect.cleandoc(text or "")
    if "Args:" in text:
        return text
    first, _, example = text.partition("\n\n>>> ")
    lines = [
        f"    {name}: {_MEANING.get(name, 'a parameter of the distribution, an array or a number.')}" for name in names
    ]
    returns = "Returns:\n    Floats of the shape that all arguments broadcast to."
    sections = "\n".join([first, "", "Args:", *lines, "", returns])
    return sections + (f"\n\n>>> {example}" if example else "")


def domain(**tests: Function) -> Callable[[Function], Function]:
    """Declare the parameters of a distribution's function that must satisfy a test; the public function returns NaN
    for all others, whatever the value of the random variable."""

    def decorate(function: Function) -> Function:
        function.domain = tests  # type: ignore[attr-defined]
        return function

    return decorate


def is_positive(value: Array) -> Array:
    """Return whether numbers are above 0; False for NaN."""
    return value > 0


def is_nonnegative(value: Array) -> Array:
    """Return whether numbers are 0 or above; False for NaN."""
    return value >= 0


def is_probability(value: Array) -> Array:
    """Return whether numbers are between 0 and 1, both included; False for NaN."""
    return (value >= 0) & (value <= 1)


def is_nonzero_probability(value: Array) -> Array:
    """Return whether numbers are above 0 and at most 1; False for NaN."""
    return (value > 0) & (value <= 1)


def is_count(value: Array) -> Array:
    """Return whether numbers are integers from 0 up; False for NaN."""
    return (value >= 0) & (value == wnp.floor(value))


def _public(function: Function, extra: tuple[str, ...], call: Function) -> Any:
    """Wrap `call` as a public function of the parameters of `function` and `extra`, with checked domains."""
    own = list(inspect.signature(function).parameters.values())
    names = [p.name for p in own]
    tests = {names.index(name): test for name, test in getattr(function, "domain", {}).items()}
    defaults = {"loc": 0, "scale": 1}
    more = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults[name]) for name in extra]

    @functools.wraps(function)
    def body(*args: Any) -> Any:
        result = call(*args)
        for i, test in tests.items():
            result = wnp.where(test(args[i]), result, np.nan)
        return result

    parameters = [p.replace(annotation=Any) for p in (*own, *more)]
    body.__doc__ = _with_sections(function.__doc__, [p.name for p in parameters])
    body.__signature__ = inspect.Signature(parameters, return_annotation=Array)  # type: ignore[attr-defined]
    return promote_and_jit(body)


def _value_decorator(finish: Finish) -> Callable[[Function], Any]:
    """Make a decorator for functions of a value of the random variable; `finish` scales the result."""

    def decorate(function: Function) -> Any:
        def call(x: Any, *rest: Any) -> Any:
            *shapes, loc, scale = rest
            valid = scale > 0
            positive = wnp.where(valid, scale, wnp.ones_like(scale))
            return wnp.where(valid, finish(function((x - loc) / positive, *shapes), positive, x), np.nan)

        return _public(function, ("loc", "scale"), call)

    return decorate


log_density = _value_decorator(lambda value, scale, x: value - wnp.log(scale))
density = _value_decorator(lambda value, scale, x: value / scale)
probability = _value_decorator(lambda value, scale, x: value)


def quantile(function: Function) -> Any:
    """Decorate a function of probabilities whose results are values of the random variable."""

    def call(q: Any, *rest: Any) -> Any:
        *shapes, loc, scale = rest
        inside = (q >= 0) & (q <= 1) & (scale > 0)
        return wnp.where(inside, function(wnp.where(inside, q, 0.5), *shapes) * scale + loc, np.nan)

    return _public(function, ("loc", "scale"), call)


def plain(function: Function) -> Any:
    """Decorate a function of a distribution that has neither `loc` nor `scale`."""
    return _public(function, (), function)


def _count_decorator(elsewhere: float) -> Callable[[Function], Any]:
    """Make a decorator for functions of an integer, with `loc`; the result is `elsewhere` where k is not an integer."""

    def decorate(function: Function) -> Any:
        def call(k: Any, *rest: Any) -> Any:
            *shapes, loc = rest
            count = k - loc
            whole = count == wnp.floor(count)
            value = function(wnp.where(whole, count, wnp.zeros_like(count)), *shapes)
            return wnp.where(wnp.isnan(count), np.nan, wnp.where(whole, value, elsewhere))

        return _public(function, ("loc",), call)

    return decorate


log_of_count, of_count = _count_decorator(-np.inf), _count_decorator(0.0)


def exponentiate(logarithm: Function, name: str, text: str) -> Any:
    """Make the exponential of a public function, with its signature. Where the logarithm is minus infinity, the result
    and its derivative are 0."""

    @functools.wraps(logarithm)
    def function(*args: Any, **kwargs: Any) -> Any:
        value = logarithm(*args, **kwargs)
        nothing = value == -np.inf
        return wnp.where(nothing, wnp.zeros_like(value), wnp.exp(wnp.where(nothing, wnp.zeros_like(value), value)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _with_sections(text, inspect.signature(logarithm).parameters)
    return function


def within(inside: Array, x: Array, safe: Any, value: Function, elsewhere: Any) -> Array:
    """Evaluate value(x) inside of the support; elsewhere `value` gets `safe`. NaN stays NaN."""
    result = value(wnp.where(inside, x, wnp.full_like(x, safe)))
    return wnp.where(wnp.isnan(x), np.nan, wnp.where(inside, result, elsewhere))


def log_less(x: Array) -> Array:
    """Compute log(1 - exp(-x)) for x from 0 up, minus infinity at 0."""
    positive = x > 0
    value = log1mexp(wnp.where(positive, x, wnp.ones_like(x)))
    return wnp.where(positive, value, wnp.where(wnp.isnan(x), np.nan, -np.inf))


def log_probability(probability: Array, complement: Array) -> Array:
    """Compute the logarithm of a probability, by the complement where it is near 1."""
    small = probability < 0.5
    inner = wnp.log1p(-wnp.where(small, wnp.zeros_like(complement), complement))
    return wnp.where(small, wnp.log(wnp.where(small, probability, wnp.ones_like(probability))), inner)
