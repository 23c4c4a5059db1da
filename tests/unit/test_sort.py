"""Sorting and top_k: order of edge values, several keys, derivatives as permutations."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.base.errors import AxisOutOfBoundsError
from weft.ir.types import array_type
from weft.trace.closed import stage_subjaxpr

NAN = np.nan


def test_nan_comes_last_and_zeros_are_equal():
    x = np.array([1, NAN, 3, -0.0, 0, NAN, -np.inf, np.inf], np.float32)
    values, indices = lax.sort((x, np.arange(8, dtype=np.int32)))
    assert np.array_equal(indices, [6, 3, 4, 0, 2, 7, 1, 5])
    assert np.array_equal(values, x[np.asarray(indices)], equal_nan=True)
    alone = np.asarray(lax.sort(x))
    assert np.array_equal(alone, values, equal_nan=True) and np.array_equal(np.signbit(alone[1:3]), [True, False])


def test_equal_keys_keep_their_order():
    keys = np.array([0, -0.0, 0, -0.0], np.float32)
    values, indices = lax.sort_key_val(keys, np.arange(4, dtype=np.int32))
    assert np.array_equal(indices, [0, 1, 2, 3]) and np.array_equal(np.signbit(values), [False, True, False, True])


def test_complex_numbers_compare_by_parts_each_with_nan_last():
    x = np.array([1 + 2j, 1 - 2j, complex(NAN, 1), complex(1, NAN), 5j, complex(0, NAN)], np.complex64)
    assert np.array_equal(lax.sort(x), x[[4, 5, 1, 0, 3, 2]], equal_nan=True)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, np.float32])
@pytest.mark.parametrize("dimension", [0, 1, -1])
def test_every_type_along_every_axis(dtype, dimension):
    x = np.random.default_rng(0).integers(0, 7, (4, 5)).astype(dtype)
    expected = np.sort(x.astype(np.float32), axis=dimension)
    assert lax.sort(x, dimension).dtype == x.dtype
    assert np.array_equal(np.asarray(lax.sort(x, dimension)).astype(np.float32), expected)
    if dtype is not bool:
        values, indices = lax.top_k(x, 3, axis=dimension)
        assert np.array_equal(
            np.asarray(values).astype(np.float32), np.take(np.flip(expected, dimension), range(3), dimension)
        )
        assert np.array_equal(np.take_along_axis(x, np.asarray(indices), dimension), np.asarray(values))


def test_several_keys():
    first = np.array([1, 0, 1, 0, 1], np.int32)
    second = np.array([3, 2, 1, 5, 2], np.float32)
    carried = np.arange(5, dtype=np.int32)
    results = lax.sort((first, second, carried), num_keys=2)
    assert [np.asarray(r).tolist() for r in results] == [[0, 0, 1, 1, 1], [2, 5, 1, 2, 3], [1, 3, 2, 4, 0]]


def test_derivatives_permute():
    keys = np.array([[3, 1, 2], [2, 3, 1]], np.float32)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = np.array([[1, 10, 100], [2, 20, 200]], np.float32)

    def weighted(keys, values):
        k, v = lax.sort_key_val(keys, values)
        return lax.reduce_sum(lax.mul(weights, lax.add(lax.mul(k, k), v)), (0, 1))

    by_key, by_value = weft.grad(weighted, argnums=(0, 1))(keys, values)
    ranks = np.argsort(np.argsort(keys, 1), 1)
    assert np.array_equal(by_value, np.take_along_axis(weights, ranks, 1))
    assert np.array_equal(by_key, 2 * keys * np.asarray(by_value))
    second = weft.jvp(weft.grad(weighted), (keys, values), (np.ones_like(keys), values))[1]
    assert np.array_equal(second, 2 * np.asarray(by_value))


def test_differentiation_sorts_once():
    gradient = weft.grad(lambda x: lax.reduce_sum(lax.sort(x), (0,)))
    jaxpr = stage_subjaxpr(lambda x: [gradient(x)], [array_type((3,), np.dtype(np.float32))])
    assert [e.primitive.name for e in jaxpr.eqns].count("sort") == 1


def test_largest_elements():
    x = np.array([0, -0.0, NAN, 5, 5, -np.inf], np.float32)
    values, indices = lax.top_k(x, 6)
    assert np.array_equal(values, x[[2, 3, 4, 0, 1, 5]], equal_nan=True)
    assert np.array_equal(indices, [2, 3, 4, 0, 1, 5]) and indices.dtype == np.int32
    weights = np.array([1, 2], np.float32)
    gradient = weft.grad(lambda x: lax.reduce_sum(lax.mul(weights, lax.top_k(x, 2)[0]), (0,)))(
        np.array([1, 4, 3], np.float32)
    )
    assert np.array_equal(gradient, [0, 1, 2])


def test_approximate_searches_are_exact():
    x = np.array([[3, 1, NAN, 2], [5, 7, 6, 8]], np.float32)
    values, indices = lax.approx_min_k(x, 2)
    assert np.array_equal(values, [[1, 2], [5, 6]]) and np.array_equal(indices, [[1, 3], [0, 2]])
    values, indices = lax.approx_max_k(x, 1, reduction_dimension=0)
    assert np.array_equal(indices, [[1, 1, 0, 1]])


def test_batched_and_unbatched_operands():
    keys, rows = np.array([2, 0, 1], np.int32), np.arange(6, dtype=np.float32).reshape(2, 3)
    k, v = weft.vmap(lambda row: lax.sort_key_val(keys, row))(rows)
    assert np.array_equal(k, [[0, 1, 2]] * 2) and np.array_equal(v, rows[:, [1, 2, 0]])
    k, v = weft.vmap(lambda col: lax.sort_key_val(col, keys[:2]), in_axes=1)(-rows)
    assert np.array_equal(v, [[0, 2]] * 3) and np.array_equal(k, np.sort(-rows, 0).T)


def test_errors_say_what_was_wrong():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(AxisOutOfBoundsError, match="Axis 5 is out of bounds"):
        lax.sort(x, 5)
    with pytest.raises(ValueError, match="operands of one shape"):
        lax.sort((x, x[0]))
    with pytest.raises(ValueError, match="num_keys=2 for 1 operands"):
        lax.sort(x, num_keys=2)
    with pytest.raises(ValueError, match="k=4 for 3 elements"):
        lax.top_k(x, 4)
    with pytest.raises(TypeError, match="top_k does not accept dtype complex64"):
        lax.top_k(np.zeros(3, np.complex64), 1)
    with pytest.raises(ValueError, match="takes an array of floats"):
        lax.approx_max_k(np.zeros(3, np.int32), 1)


def test_keys_of_lexsort_may_be_traced() -> None:
    first, last = wnp.array([1, 0, 2, 0]), wnp.array([0, 1, 0, 1])
    expected = np.lexsort((np.asarray(first), np.asarray(last)))
    for keys in ((first, last), [first, last], wnp.stack([first, last])):
        assert weft.jit(wnp.lexsort)(keys).tolist() == expected.tolist()
        assert weft.vmap(wnp.lexsort)(weft.tree.map(lambda k: k[None], keys))[0].tolist() == expected.tolist()


def test_quantiles_of_no_lines() -> None:
    empty = np.ones((5, 0, 4), np.float32)
    for f in (wnp.median, wnp.nanmedian, lambda x, axis: wnp.quantile(x, 0.3, axis=axis)):
        assert f(empty, 0).shape == (0, 4) and f(empty, 2).shape == (5, 0)
        assert np.isnan(f(empty, 1)).all()
