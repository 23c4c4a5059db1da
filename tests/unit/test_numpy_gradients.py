"""Derivatives match finite differences, and are finite where an unselected formula divides by zero."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.api.checks import check_grads

X = np.array([0.6, 1.7, -0.4, 2.3], np.float32)
WEIGHTS = np.array([0.3, -1.0, 2.0, 0.7], np.float32)

SMOOTH = {
    "mean": wnp.mean,
    "std": wnp.std,
    "var": lambda x: wnp.var(x, ddof=1),
    "prod": wnp.prod,
    "max": wnp.max,
    "median": wnp.median,
    "quantile": lambda x: wnp.quantile(x, 0.3),
    "sort": lambda x: wnp.sort(x) * WEIGHTS,
    "cumsum": lambda x: wnp.cumsum(x) ** 2,
    "cumprod": wnp.cumprod,
    "power of an array": lambda x: wnp.abs(x) ** x,
    "integer powers": lambda x: x ** wnp.arange(4),
    "hypot": lambda x: wnp.hypot(x, 2.0),
    "logaddexp": lambda x: wnp.logaddexp(x, x[::-1]),
    "sinc": wnp.sinc,
    "remainder": lambda x: wnp.remainder(x, 1.3),
    "clip": lambda x: wnp.clip(x, 0.0, 2.0) * x,
    "where": lambda x: wnp.where(x > 0, x**2, -x),
    "take": lambda x: wnp.take(x, wnp.array([0, 0, 3])) ** 2,
    "roll": lambda x: wnp.roll(x, 1) * x,
    "pad": lambda x: wnp.pad(x, 3, mode="reflect") * wnp.arange(10.0),
    "repeat": lambda x: wnp.repeat(x, wnp.array([0, 2, 1, 1])) ** 2,
    "tile": lambda x: wnp.tile(x, 2) * wnp.arange(8.0),
    "diag": lambda x: wnp.diag(x, 1) ** 2,
    "triu": lambda x: wnp.triu(wnp.outer(x, x)),
    "diff": lambda x: wnp.diff(x, prepend=1.0) ** 2,
    "gradient": lambda x: wnp.gradient(x) ** 2,
    "interp": lambda x: wnp.interp(wnp.array([0.5, 1.5]), wnp.arange(4.0), x) ** 2,
    "convolve": lambda x: wnp.convolve(x, x),
    "cov": lambda x: wnp.cov(wnp.stack([x, x**2])),
    "average": lambda x: wnp.average(x, weights=wnp.exp(x)),
    "polyval": lambda x: wnp.polyval(x, 0.5),
    "linspace": lambda x: wnp.linspace(x, x**2, 3),
    "arctan2": lambda x: wnp.arctan2(x, 0.5),
    "frexp": lambda x: wnp.modf(x)[0] * x,
    "vectorize": wnp.vectorize(lambda x: x**2),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_agree_with_differences(name):
    check_grads(SMOOTH[name], (X,), order=2, atol=0.05, rtol=0.05)


def test_edges():
    grad = weft.grad
    assert float(grad(wnp.sinc)(0.0)) == 0.0
    assert float(grad(grad(wnp.sinc))(0.0)) == pytest.approx(-(np.pi**2) / 3, rel=1e-5)
    assert float(grad(lambda x: x**2)(0.0)) == 0.0
    assert float(grad(lambda x: wnp.power(x, 1))(0.0)) == 1.0
    assert np.isfinite(grad(lambda x: wnp.hypot(x, 0.0))(0.0))
    assert float(grad(lambda x: wnp.logaddexp(x, -wnp.inf))(1.0)) == 1.0
    np.testing.assert_array_equal(grad(lambda x: wnp.max(x))(wnp.array([2.0, 2.0, 1.0])), [0.5, 0.5, 0])
    np.testing.assert_array_equal(grad(lambda x: wnp.prod(x))(wnp.array([0.0, 2.0, 3.0])), [6, 0, 0])


def test_nan_does_not_propagate_between_elements():
    holes = wnp.array([1.0, wnp.nan, 3.0])
    for function, expected in (
        (wnp.nansum, [1, 0, 1]),
        (wnp.nanmean, [0.5, 0, 0.5]),
        (wnp.nanmax, [0, 0, 1]),
        (wnp.nanvar, [-1, 0, 1]),
    ):
        np.testing.assert_array_equal(weft.grad(function)(holes), expected)
    safe = weft.grad(lambda x: wnp.sum(wnp.where(x > 0, wnp.sqrt(wnp.where(x > 0, x, 1.0)), 0.0)))
    np.testing.assert_array_equal(safe(wnp.array([0.0, 4.0])), [0, 0.25])
