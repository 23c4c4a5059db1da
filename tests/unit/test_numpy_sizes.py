"""Results whose size depends on values: exact outside of traced functions, bounded by `size` inside."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.base.errors import ConcretizationTypeError, TracedShapeError

X = np.array([3, 0, 1, 0, 3, 1], np.int32)
Y = np.array([1, 4, 3], np.int32)

UNBOUNDED = {
    "nonzero": lambda x, **k: wnp.nonzero(x, **k)[0],
    "where": lambda x, **k: wnp.where(x, **k)[0],
    "flatnonzero": wnp.flatnonzero,
    "argwhere": wnp.argwhere,
    "unique": wnp.unique,
    "extract": lambda x, **k: wnp.extract(x > 0, x, **k),
    "compress": lambda x, **k: wnp.compress(x > 0, x, **k),
    "union1d": lambda x, **k: wnp.union1d(x, Y, **k),
    "intersect1d": lambda x, **k: wnp.intersect1d(x, Y, **k),
    "setdiff1d": lambda x, **k: wnp.setdiff1d(x, Y, **k),
    "setxor1d": lambda x, **k: wnp.setxor1d(x, Y, **k),
}
EXPECTED = {
    "nonzero": np.nonzero(X)[0],
    "where": np.nonzero(X)[0],
    "flatnonzero": np.flatnonzero(X),
    "argwhere": np.argwhere(X),
    "unique": np.unique(X),
    "extract": X[X > 0],
    "compress": X[X > 0],
    "union1d": np.union1d(X, Y),
    "intersect1d": np.intersect1d(X, Y),
    "setdiff1d": np.setdiff1d(X, Y),
    "setxor1d": np.setxor1d(X, Y),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_found_outside_and_bounded_inside(name):
    function, expected = UNBOUNDED[name], EXPECTED[name]
    np.testing.assert_array_equal(function(wnp.asarray(X)), expected)
    count = len(expected)
    more = weft.jit(lambda x: function(x, size=count + 2, fill_value=-1))(X)
    np.testing.assert_array_equal(more[:count], expected)
    np.testing.assert_array_equal(more[count:], np.full_like(more[count:], -1))
    fewer = weft.jit(lambda x: function(x, size=max(count - 1, 0)))(X)
    np.testing.assert_array_equal(fewer, expected[: count - 1])


@pytest.mark.parametrize("name", UNBOUNDED)
def test_traced_without_a_size_says_what_to_do(name):
    with pytest.raises(ConcretizationTypeError, match="size="):
        weft.jit(UNBOUNDED[name])(X)


def test_unique_returns_all_requested_results():
    asked = {"return_index": True, "return_inverse": True, "return_counts": True}
    expected = np.unique(X, **asked)
    for found in (wnp.unique(wnp.asarray(X), **asked), weft.jit(lambda x: wnp.unique(x, size=3, **asked))(X)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    rows = np.array([[1, 0], [0, 1], [1, 0]], np.int32)
    expected = np.unique(rows, axis=0, **asked)
    found = weft.jit(lambda x: wnp.unique(x, axis=0, size=2, **asked))(rows)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, np.reshape(b, a.shape))


def test_unique_counts_nan_once():
    x = wnp.array([wnp.nan, 1.0, wnp.nan])
    assert wnp.unique(x).shape == (2,)
    bounded, counts = wnp.unique(x, size=3, fill_value=0.0, return_counts=True)
    np.testing.assert_array_equal(bounded, [1.0, np.nan, 0.0])
    np.testing.assert_array_equal(counts, [1, 2, 0])


def test_sizes_must_be_known():
    with pytest.raises(TracedShapeError):
        weft.jit(wnp.zeros)(3)
    with pytest.raises(ConcretizationTypeError, match="arange"):
        weft.jit(wnp.arange)(3)
    with pytest.raises(ConcretizationTypeError, match="total_repeat_length"):
        weft.jit(wnp.repeat)(X, X)
    with pytest.raises(ConcretizationTypeError, match="length"):
        weft.jit(wnp.bincount)(X)
    with pytest.raises(ConcretizationTypeError, match="axis"):
        weft.jit(lambda x, axis: wnp.sum(x, axis=axis))(X, 0)


def test_bounded_forms_under_jit():
    np.testing.assert_array_equal(weft.jit(lambda x: wnp.bincount(x, length=3))(X), [2, 2, 0])
    repeated = weft.jit(lambda x, n: wnp.repeat(x, n, total_repeat_length=5))(Y, np.array([2, 0, 3], np.int32))
    np.testing.assert_array_equal(repeated, [1, 1, 3, 3, 3])
    np.testing.assert_array_equal(weft.jit(lambda x, k: wnp.delete(x, k))(Y, 1), [1, 3])
    np.testing.assert_array_equal(weft.jit(lambda x, k: wnp.roll(x, k))(Y, 1), [3, 1, 4])
    np.testing.assert_array_equal(weft.jit(lambda x, k: wnp.insert(x, k, 9))(Y, 1), [1, 9, 4, 3])


def test_indices_out_of_bounds():
    x = wnp.arange(3.0)
    np.testing.assert_array_equal(wnp.take(x, wnp.array([0, 5, -1, -4])), [0, np.nan, 2, np.nan])
    np.testing.assert_array_equal(wnp.take(x, wnp.array([0, 5]), fill_value=-1), [0, -1])
    np.testing.assert_array_equal(wnp.take_along_axis(x, wnp.array([2, 7]), 0), [2, np.nan])
