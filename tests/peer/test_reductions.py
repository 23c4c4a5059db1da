"""Reductions, cumulative functions, statistics, sorting, searching and sets against JAX."""

from __future__ import annotations

from typing import Any

import pytest
from tests.peer.compare import check, rows

SUMS = "sum prod mean max min std var nansum nanprod nanmean nanmax nanmin nanstd nanvar"
TESTS = "all any count_nonzero"
PLACES = "argmax argmin nanargmax nanargmin"

reduced = [
    *(f"np.{name}(x{extra})" for name in SUMS.split() for extra in ("", ", axis=1", ", axis=-2, keepdims=True")),
    *(f"np.{name}(t, axis=(0, -1))" for name in "sum prod mean max min std var".split()),
    *(f"np.{name}(nans, axis=0)" for name in SUMS.split() if name.startswith("nan")),
]
reduced_types = [
    *(
        f"np.{name}({argument})"
        for name in SUMS.split()
        for argument in "ihb"
        if not (name in {"std", "nanstd"} and argument == "b")
    ),
    *(
        f"np.{name}({argument}, axis=0)"
        for name in "sum prod mean max min".split()
        for argument in "ungc"
        if not (name in {"max", "min"} and argument == "c")
    ),
    *(
        f"np.{name}({argument})"
        for name in TESTS.split()
        for argument in ("x", "i, axis=1", "b, axis=0", "c", "b, axis=(0, 1), keepdims=True")
    ),
    *(
        f"np.{name}({argument})"
        for name in PLACES.split()
        for argument in ("x", "i, axis=1", "x, axis=0, keepdims=True", "d, axis=-1", "b")
    ),
    *(f"np.{name}(x, where=b, initial=0.5)" for name in ("sum", "prod", "max", "min")),
    *(f"np.{name}(x, where=b)" for name in ("sum", "prod", "mean", "var", "std", "all", "any")),
    *(
        f"np.{name}(x, dtype={dtype})"
        for name in ("sum", "prod", "mean", "var", "cumsum")
        for dtype in ("onp.float16", "onp.complex64")
        if (name, dtype) != ("var", "onp.complex64")
    ),
    *(f"np.{name}(i, dtype=onp.float32)" for name in ("sum", "prod", "mean", "var", "cumsum")),
    *(f"np.{name}(z)" for name in ("sum", "prod", "all", "any", "mean", "var")),
    *(f"np.{name}(z, axis=0)" for name in ("sum", "prod", "all", "any", "mean", "nansum")),
    *(f"np.{name}(s)" for name in SUMS.split()),
    *(f"np.{name}(z, axis=1)" for name in ("max", "min", "argmax")),
]
cumulative = """
np.cumsum(x)
np.cumsum(x, axis=0)
np.cumsum(x, axis=-1)
np.cumprod(x, axis=1)
np.cumprod(x)
np.nancumsum(nans, axis=1)
np.nancumprod(nans, axis=0)
np.cumulative_sum(r)
np.cumulative_sum(x, axis=1, include_initial=True)
np.cumulative_prod(x, axis=0)
np.ptp(x)
np.ptp(x, axis=1, keepdims=True)
np.average(x)
np.average(x, axis=1)
np.average(x, axis=0, weights=col)
np.average(x, weights=p, returned=True)
np.median(x)
np.median(x, axis=0)
np.median(x, axis=(0, 1), keepdims=True)
np.nanmedian(nans, axis=1)
np.quantile(x, 0.3)
np.quantile(x, np.array([0.1, 0.6]), axis=1)
np.quantile(x, 0.4, axis=0, method="lower")
np.quantile(x, 0.4, axis=0, method="higher")
np.quantile(x, 0.4, axis=0, method="nearest")
np.quantile(x, 0.4, axis=0, method="midpoint")
np.percentile(x, 30, axis=1, keepdims=True)
np.percentile(x, np.array([10.0, 50.0]))
np.nanquantile(nans, 0.5, axis=1)
np.nanpercentile(nans, 25, axis=0)
np.cov(x)
np.cov(x, rowvar=False)
np.cov(x, bias=True)
np.cov(x, y)
np.cov(x, ddof=0)
np.corrcoef(x)
np.corrcoef(x, rowvar=False)
np.trapezoid(x)
np.trapezoid(x, r)
np.trapezoid(x, dx=0.5, axis=0)
np.diff(x)
np.diff(x, n=2, axis=0)
np.diff(r, prepend=0.0, append=r)
np.ediff1d(x)
np.ediff1d(r, to_begin=1.0, to_end=np.array([2.0, 3.0]))
np.gradient(r)
np.gradient(x)
np.gradient(x, 0.5, axis=1)
np.sort(x)
np.sort(x, axis=0)
np.sort(x, axis=None)
np.sort(x, descending=True)
np.partition(x, 2)
np.max(c.real, axis=1)
np.linalg.norm(x)
np.var(x, ddof=1)
np.std(x, axis=1, correction=1)
np.interp(x, np.array([-2.0, 0.0, 2.0]), np.array([1.0, 3.0, -1.0]))
np.logaddexp.reduce(x, axis=1)
np.add.reduce(x)
np.multiply.accumulate(x, axis=1)
np.add.accumulate(x)
np.add.outer(r, r)
np.maximum.reduce(x, axis=0)
np.add.reduceat(x, np.array([0, 2]), axis=1)
np.add.at(x, 0, 2.0, inplace=False)
lax.cumsum(x, axis=1)
lax.cumsum(x, axis=0, reverse=True)
lax.cumprod(x, axis=1)
lax.cummax(x, axis=1)
lax.cummin(x, axis=0, reverse=True)
lax.cumlogsumexp(x, axis=1)
lax.reduce_sum(x, (1,))
lax.reduce_prod(x, (0,))
lax.reduce_max(x, (0, 1))
lax.reduce_min(x, (1,))
lax.reduce(x, 0.0, lax.add, (0,))
lax.reduce(x, -onp.inf, lax.max, (1,))
lax.sort(x)
lax.sort(x, dimension=0)
lax.sort_key_val(x, y)[1]
lax.top_k(x, 2)
lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID")
lax.reduce_window(x, -onp.inf, lax.max, (2, 2), (1, 2), "SAME")
lax.reduce_window(x, onp.inf, lax.min, (2, 1), (1, 1), ((0, 0), (0, 0)))
"""
searching = """
np.argsort(d)
np.argsort(d, axis=0)
np.argsort(x, axis=None)
np.argsort(i, stable=True)
np.argsort(x, descending=True)
np.argsort(b, axis=1)
np.sort(i, axis=1)
np.sort(b)
np.sort(h)
np.sort(nans, axis=0)
np.sort(c)
np.sort_complex(c)
np.lexsort((i, k))
np.lexsort((i, k), axis=0)
np.argpartition(d, 1)[:, :2]
np.partition(d, 1, axis=0)
np.searchsorted(np.sort(r), x)
np.searchsorted(np.sort(r), 0.1, side="right")
np.searchsorted(np.arange(5), i, method="sort")
np.searchsorted(r, x, sorter=np.argsort(r))
np.digitize(x, np.array([-1.0, 0.0, 1.0]))
np.digitize(x, np.array([1.0, 0.0, -1.0]), right=True)
np.bincount(j, length=5)
np.bincount(j, weights=r, length=4)
np.bincount(j, minlength=6, length=6)
np.histogram(x, bins=4)
np.histogram(x, bins=3, range=(-1.0, 1.0))
np.histogram(x, bins=np.array([-1.0, 0.0, 2.0]), density=True)
np.histogram(x, bins=4, weights=p)
np.histogram2d(col, np.sort(col), bins=3)
np.histogram_bin_edges(x, bins=5)
np.histogramdd(x.reshape(6, 2), bins=2)
np.nonzero(b, size=6)
np.nonzero(b, size=14, fill_value=-1)
np.flatnonzero(b, size=5)
np.argwhere(b, size=4)
np.argwhere(b, size=13, fill_value=(7, 8))
np.where(b, size=5)
np.where(b, x, y)
np.where(b, x, 0)
np.where(b, 1, 2.0)
np.where(b, i, x)
np.where(s > 0, h, 1)
np.select([x > 0.5, x < -0.5], [x, i], 7)
np.piecewise(r, [r < 0, r > 0.5], [lambda v: -v, lambda v: v * 2, 3.0])
np.extract(b, x, size=5)
np.compress(np.array([True, False, True]), x, axis=0)
np.compress(np.array([True, False, True]), x, axis=0, size=3)
np.choose(j, [r, r * 2, r * 3], mode="clip")
np.choose(j + 2, [r, r * 2, r * 3], mode="wrap")
np.unique(j, size=4)
np.unique(j, size=4, fill_value=-7, return_index=True, return_inverse=True, return_counts=True)
np.unique(k, axis=0, size=3)
np.unique_counts(j, size=3)
np.unique_values(j, size=3)
np.unique_inverse(j, size=3)
np.unique_all(j, size=3)
np.union1d(j, k, size=8)
np.intersect1d(j, k, size=3)
np.intersect1d(j, k, size=3, return_indices=True)
np.setdiff1d(k, j, size=6)
np.setxor1d(j, k, size=8)
np.isin(i, j)
np.isin(i, k, invert=True)
np.isin(x, y)
lax.argmax(x, 1, onp.int32)
lax.argmin(i, 0, onp.int32)
lax.sort(i, dimension=0, is_stable=True)
lax.sort((i, x), num_keys=1)
lax.sort((k, i, x), dimension=0, num_keys=2)
lax.sort_key_val(k, x, dimension=1)
lax.top_k(i, 3)
lax.top_k(h, 2)
lax.approx_max_k(x, 2)
lax.approx_min_k(x, 2)
lax.reduce_and(b, (0,))
lax.reduce_or(b, (1,))
lax.reduce_xor(i, (0,))
lax.reduce_and(i, (1,))
lax.reduce_or(i, (0,))
lax.reduce_sum(i, (0,))
lax.reduce_max(h, (1,))
lax.reduce((x, i), (-onp.inf, 0), lambda a, e: (lax.max(a[0], e[0]), lax.add(a[1], e[1])), (1,))
lax.reduce(i, 0, lambda a, e: a + e + a * e, (1,))
lax.reduce(b, False, lax.bitwise_or, (0,))
lax.reduce_window(i, 0, lax.add, (2, 2), (1, 1), "SAME")
lax.reduce_window(i, 0, lax.add, (2, 2), (1, 1), ((1, 0), (0, 1)), base_dilation=(2, 1), window_dilation=(1, 2))
lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID")
lax.cummax(i, axis=0)
lax.cumsum(h, axis=1)
lax.cumprod(i, axis=0, reverse=True)
np.cumsum(b, axis=1)
np.cumsum(u)
np.cumprod(n)
np.diff(b)
np.diff(i, axis=0)
np.mean(u)
np.mean(h, axis=0)
np.sum(g)
np.sum(u, promote_integers=False)
np.max(3.5)
np.argmax(nans)
np.argmin(nans, axis=1)
np.nanargmax(nans, axis=1)
np.count_nonzero(i, axis=1)
np.average(i)
np.median(i)
np.median(d, axis=1)
np.quantile(i, 0.5)
np.cov(i)
np.corrcoef(c)
np.interp(0.5, np.array([0.0, 1.0]), np.array([1.0, 3.0]))
np.interp(x, np.array([-1.0, 0.0, 1.0]), np.array([1.0, 3.0, -1.0]), left=-7.0, right=9.0)
np.interp(x, np.array([0.0, 0.3, 1.0]), np.array([1.0, 3.0, -1.0]), period=1.5)
np.trapezoid(i)
np.packbits(b)
np.packbits(b, axis=1, bitorder="little")
np.unpackbits(u, axis=1)
np.unpackbits(u, count=10)
"""
eager = """
np.nonzero(b)
np.flatnonzero(i > 0)
np.argwhere(b)
np.where(b)
np.extract(b, x)
np.unique(j)
np.unique(k, return_index=True, return_inverse=True, return_counts=True)
np.unique(k, return_inverse=True, axis=0)
np.unique(nans)
np.unique(nans, equal_nan=False)
np.unique_all(k)
np.unique_counts(k)
np.unique_inverse(k)
np.unique_values(k)
np.union1d(j, k)
np.intersect1d(j, k)
np.setdiff1d(k, j)
np.setxor1d(j, k)
np.setdiff1d(d, k, assume_unique=True)
np.bincount(j)
np.bincount(j, weights=r)
np.compress(b[0], x, axis=1)
np.trim_zeros(np.array([0, 0, 1, 2, 0]))
np.trim_zeros(np.array([0, 0, 1, 2, 0]), trim="f")
x[b]
i[b]
x[:, b[0]]
x[b[:, 0]]
x[b[:, 0], 1]
np.array_equal(x, x)
bool(np.all(x == x))
np.allclose(x, y)
np.place(x, b, r, inplace=False)
"""


@pytest.mark.parametrize("row", rows("\n".join(reduced) + cumulative, gradient=True, rtol=5e-5))
def test_differentiable(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("\n".join(reduced_types), batched=False))
def test_dtypes(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(searching))
def test_searching(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(eager, staged=False, batched=False))
def test_sizes_that_depend_on_values(row: Any) -> None:
    check(row)
