"""Reductions over segments, against loops of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import ops
from weft.test_util import check_grads

REDUCE = {"segment_sum": np.add, "segment_prod": np.multiply, "segment_max": np.maximum, "segment_min": np.minimum}
IDS = np.array([2, -1, 0, 5, 2, 7, 0, 2], np.int32)
COUNT = 6


def expected(name: str, data: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    highest = np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).max
    neutral = {"segment_sum": 0, "segment_prod": 1, "segment_max": lowest, "segment_min": highest}[name]
    out = np.full((count, *data.shape[1:]), neutral, data.dtype)
    for i, x in zip(ids, data, strict=True):
        if 0 <= i < count:
            out[i] = REDUCE[name](out[i], x)
    return out


@pytest.mark.parametrize("name", REDUCE)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.int8])
def test_values(name: str, dtype: Any) -> None:
    data = np.random.default_rng(0).integers(1, 4, (8, 3)).astype(dtype)
    function = getattr(ops, name)
    want = expected(name, data, IDS, COUNT)
    np.testing.assert_array_equal(function(data, IDS, COUNT), want)
    np.testing.assert_array_equal(weft.jit(function, static_argnums=2)(data, IDS, COUNT), want)
    np.testing.assert_array_equal(function(data, IDS), expected(name, data, IDS, 8))
    for bucket in (1, 3, 100):
        np.testing.assert_array_equal(function(data, IDS, COUNT, bucket_size=bucket), want)
    clipped = expected(name, data, np.clip(IDS, 0, COUNT - 1), COUNT)
    np.testing.assert_array_equal(function(data, IDS, COUNT, mode="clip"), clipped)
    order = np.argsort(IDS)
    np.testing.assert_array_equal(function(data[order], IDS[order], COUNT, indices_are_sorted=True), want)
    over_ids = weft.vmap(lambda ids: function(data, ids, COUNT))(np.stack([IDS, IDS[::-1]]))
    np.testing.assert_array_equal(over_ids, np.stack([want, expected(name, data, IDS[::-1], COUNT)]))


def test_identifiers_of_few_bits() -> None:
    ids = np.arange(300).astype(np.uint8)
    want = np.bincount(ids, minlength=280).astype(np.float32)
    np.testing.assert_array_equal(ops.segment_sum(np.ones(300, np.float32), ids, 280), want)
    np.testing.assert_array_equal(ops.segment_sum(np.ones(300, np.float32), ids, 280, bucket_size=7), want)
    np.testing.assert_array_equal(ops.segment_sum(1.0, ids, 280), want)


@pytest.mark.parametrize("name", REDUCE)
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_derivatives(name: str, mode: str) -> None:
    data = (np.random.default_rng(1).permutation(16).reshape(8, 2) / 8 - 0.9).astype(np.float32)  # no ties
    if name == "segment_prod":
        data[[0, 2, 6], 0] = 0  # one zero in a segment, and two
    function = lambda x: getattr(ops, name)(x, IDS, 8, mode=mode)[np.array([0, 2, 5])]
    check_grads(function, (data,), 2, rtol=2e-2, atol=2e-2)
    gradient = weft.grad(lambda x: wnp.sum(function(x) ** 2))
    np.testing.assert_allclose(weft.jit(gradient)(data), gradient(data), rtol=1e-5)


def test_products_of_complex_numbers_have_derivatives() -> None:
    data = np.array([1 + 2j, 0, 3 - 1j, 0.5j], np.complex64)
    check_grads(lambda x: ops.segment_prod(x, np.array([0, 0, 1, 0]), 2), (data,), 2, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((np.ones(3), np.ones(3)), "must be integers"),
        ((np.ones(3), np.ones(2, int)), "an identifier for each entry"),
        ((np.ones((2, 2)), np.ones((2, 2), int), 3), "must be a vector"),
        ((np.ones(3), np.ones(3, int), -1), "non-negative"),
        ((np.ones(3, bool), np.ones(3, int)), "needs numbers"),
        ((np.ones(0), np.ones(0, int)), "pass num_segments"),
        ((np.ones(3), np.ones(3, int), 2, False, False, 0), "bucket_size"),
        ((np.ones(3), np.ones(3, int), 2, False, False, None, "somewhere"), "Unknown mode"),
    ],
)
def test_errors(args: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        ops.segment_sum(*args)


def test_the_number_of_segments_must_be_known() -> None:
    with pytest.raises(weft.errors.ConcretizationTypeError, match="pass num_segments"):
        weft.jit(ops.segment_sum)(np.ones(3), np.zeros(3, int))
