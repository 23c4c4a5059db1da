"""Argmax and argmin: the first index wins, and nan before everything."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import ALONG_AXES, check
from weft import lax


@pytest.mark.parametrize("shape, axis", ALONG_AXES)
@pytest.mark.parametrize("search", [wnp.argmax, wnp.argmin])
def test_shapes(search: Any, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)  # many are equal
    kinds = check(lambda x: search(x * 2, axis), x)
    assert kinds == ["argmax"]


@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinity(axis: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    x[3, 5] = x[3, 7] = x[20, 7] = np.nan
    x[4, :] = -np.inf
    x[:, 9] = np.inf
    x[6, 6] = np.inf
    check(lambda x: wnp.argmax(x, axis), x)
    check(lambda x: wnp.argmin(x, axis), x)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int4", "int64", "uint32", "float16", "bfloat16", "float8_e5m2", "float64"]
)
def test_dtypes(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low = 0 if dtype[0] in "bu" and dtype != "bfloat16" else -3
    x = np.random.default_rng(0).integers(low, 4, (9, 40)).astype(np.int8).astype(kind)
    with weft.enable_x64(True):
        for axis, index_dtype in ((0, np.uint8), (1, np.int32), (1, np.int64)):
            check(lambda x, a=axis, d=index_dtype: lax.argmax(x, a, d), x)
            check(lambda x, a=axis, d=index_dtype: lax.argmin(x, a, d), x)


@pytest.mark.parametrize("shape, axis", [((300_001,), 0), ((3, 100_003), 1), ((100_003, 3), 0), ((5000, 40), 0)])
def test_long_searches_are_split_for_threads(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).integers(-40, 41, shape).astype(np.float32)
    check(lambda x: wnp.argmax(x, axis), x, interpret=False)
    x[...] = -np.inf
    check(lambda x: wnp.argmax(x, axis), x, interpret=False)
    np.moveaxis(x, axis, 0)[-5] = np.nan
    check(lambda x: wnp.argmax(x, axis), x, interpret=False)
    x[...] = np.inf
    check(lambda x: wnp.argmin(x, axis), x, interpret=False)
