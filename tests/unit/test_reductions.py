"""Reductions and cumulative operations: edge values, derivatives at ties and zeros, and custom computations."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax
from weft.base.errors import UnexpectedTracerError
from weft.ir.types import array_type
from weft.lax.control_flow import cond
from weft.trace.closed import stage_subjaxpr

TIES = np.array([1, 3, 3, 2, 3], np.float32)


def affine(left, right):
    """Composition of maps z -> a * z + b: associative, not commutative."""
    (a, b), (c, d) = left, right
    return lax.mul(a, c), lax.add(lax.mul(b, c), d)


@pytest.mark.parametrize("name, value", [("max", -np.inf), ("min", np.inf), ("sum", 0), ("prod", 1)])
def test_empty_reductions_return_the_identity(name, value):
    result = getattr(lax, f"reduce_{name}")(np.zeros((0, 2), np.float32), (0,))
    assert np.array_equal(result, np.full(2, value, np.float32))


def test_extremes_of_types_without_infinity_are_their_limits():
    empty = np.zeros(0, ml_dtypes.float8_e4m3fn)
    assert float(np.asarray(lax.reduce_min(empty, (0,)))) == 448
    assert np.asarray(lax.reduce_max(np.zeros(0, np.int8), (0,))) == -128
    assert np.asarray(lax.reduce_max(np.zeros(0, bool), (0,))) == np.False_


def test_nan_propagates():
    x = np.array([1, np.nan, 3, np.nan], np.float32)
    assert np.isnan(lax.reduce_max(x, (0,))) and np.isnan(lax.reduce_min(x, (0,)))
    assert np.asarray(lax.argmax(x, 0, np.int32)) == 1 and np.asarray(lax.argmin(x, 0, np.int32)) == 1
    assert np.array_equal(lax.cummax(x), [1, np.nan, np.nan, np.nan], equal_nan=True)


def test_short_floats_accumulate_wider():
    ones = np.ones(1000, ml_dtypes.bfloat16)
    assert float(np.asarray(lax.reduce_sum(ones, (0,)))) == 1000
    assert float(np.asarray(lax.cumsum(ones))[-1]) == 1000


def test_equal_extremes_share_the_derivative():
    third = np.float32(1 / 3)
    assert np.allclose(weft.grad(lambda x: lax.reduce_max(x, (0,)))(TIES), [0, third, third, 0, third])
    assert np.allclose(weft.grad(lambda x: lax.reduce_min(x, (0,)))(-TIES), [0, third, third, 0, third])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_derivative_of_a_product_with_zeros(zeros):
    x = np.array([2, 3, 5, 7], np.float32)
    x[:zeros] = 0
    expected = [np.prod(np.delete(x, i)) for i in range(4)]
    assert np.allclose(weft.grad(lambda x: lax.reduce_prod(x, (0,)))(x), expected)
    second = weft.jvp(weft.grad(lambda x: lax.reduce_prod(x, (0,))), (x,), (np.eye(4, dtype=np.float32)[0],))[1]
    assert np.allclose(second, [0 if i == 0 else np.prod(np.delete(x, [0, i])) for i in range(4)])


@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_operations_match_numpy(reverse):
    x = np.array([[0.5, -2, 1.5], [3, 0.25, -1]], np.float32)

    def flipped(function):
        return np.flip(function(np.flip(x, 1)), 1) if reverse else function(x)

    for name, by_numpy in {
        "cumsum": functools.partial(np.cumsum, axis=1),
        "cumprod": functools.partial(np.cumprod, axis=1),
        "cummax": functools.partial(np.maximum.accumulate, axis=1),
        "cummin": functools.partial(np.minimum.accumulate, axis=1),
        "cumlogsumexp": lambda v: np.log(np.cumsum(np.exp(v), axis=1)),
    }.items():
        function = getattr(lax, name)
        expected = flipped(by_numpy)
        assert np.allclose(function(x, 1, reverse), expected, rtol=1e-6), name
        # Under differentiation the primal is computed by the definition.
        assert np.allclose(weft.jvp(lambda v, f=function: f(v, 1, reverse), (x,), (x,))[0], expected, rtol=1e-6), name


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_product_of_complex_numbers_has_no_factor_of_one(count):
    """1 times (inf - 2j) is (inf + nan j), so what products start from must not be a factor."""
    x = np.array([[np.inf - 2.0j, 1.5 - 0.5j, 2.0 + 1.0j], [2.0 + 1.0j, 0.5 + 2.5j, 1j]], np.complex64)[:, :count]
    with np.errstate(all="ignore"):
        expected = x[:, 0] if count == 1 else functools.reduce(np.multiply, x.T)
    for product in (weft.jit(lambda x: lax.reduce_prod(x, (1,)))(x), lax.reduce_prod(x, (1,))):
        np.testing.assert_allclose(product, expected, rtol=1e-6)


def test_derivative_of_cumprod_with_zeros():
    x = np.array([2, 0, 3, 0, 5], np.float32)
    jacobian = np.stack([weft.jvp(lax.cumprod, (x,), (e,))[1] for e in np.eye(5, dtype=np.float32)], axis=1)
    expected = [[np.prod(np.delete(x[: i + 1], j)) if j <= i else 0 for j in range(5)] for i in range(5)]
    assert np.allclose(jacobian, expected)


def test_cummax_shares_ties_pairwise():
    assert np.allclose(weft.grad(lambda x: lax.reduce_sum(lax.cummax(x), (0,)))(TIES), [1, 2.25, 1.25, 0, 0.5])


def test_log_of_sums_of_exponentials_neither_overflows_nor_loses_minus_infinity():
    x = np.array([-np.inf, -np.inf, 100, 100], np.float32)
    assert np.allclose(lax.cumlogsumexp(x), [-np.inf, -np.inf, 100, 100 + np.log(2)])
    gradient = weft.grad(lambda x: lax.index_in_dim(lax.cumlogsumexp(x), 3, keepdims=False))(x)
    assert np.allclose(gradient, [0, 0, 0.5, 0.5])
    values = np.array([1 + 2j, 1 - 2j, 0.5 + 3j], np.complex64)
    assert np.allclose(np.exp(lax.cumlogsumexp(values)), np.cumsum(np.exp(values)), rtol=1e-5)


@pytest.mark.parametrize(
    "computation, initial, name",
    [
        (lax.add, 0.0, "reduce_sum"),
        (lambda a, b: lax.mul(b, a), 1.0, "reduce_prod"),
        (lax.max, -np.inf, "reduce_max"),
        (lax.min, np.inf, "reduce_min"),
        (lax.add, 1.0, "reduce"),
        (lambda a, b: lax.add(a, a), 0.0, "reduce"),
    ],
)
def test_known_computations_become_their_own_reduction(computation, initial, name):
    matrix = array_type((2, 3), np.dtype(np.float32))
    jaxpr = stage_subjaxpr(lambda x: [lax.reduce(x, initial, computation, (0,))], [matrix])
    assert [e.primitive.name for e in jaxpr.eqns] == [name]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_reduce_with_a_custom_computation_is_ordered(count):
    rng = np.random.default_rng(count)
    a, b = rng.standard_normal((2, count, 3)).astype(np.float32)
    start = (np.float32(1), np.float32(0))
    result = lax.reduce((a, b), start, affine, (0,))
    expected = functools.reduce(
        lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1]), zip(a, b, strict=True), start
    )
    assert all(np.allclose(g, np.broadcast_to(e, 3), rtol=1e-5) for g, e in zip(result, expected, strict=True))


def test_reduce_with_a_custom_computation_under_jit_grad_and_vmap():
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

    def product(x, start):
        return lax.reduce(x, start, lambda a, b: lax.mul(lax.mul(a, b), np.float32(1)), (0,))

    starts = np.array([2, 3], np.float32)
    assert np.allclose(weft.jit(product)(x[0], starts[0]), 12)
    assert np.allclose(weft.vmap(product)(x, starts), [12, 360])
    assert np.allclose(weft.vmap(product, in_axes=(1, None))(x, starts[0]), [8, 20, 36])
    by_x, by_start = weft.grad(product, argnums=(0, 1))(x[1], starts[1])
    assert np.allclose(by_x, 360 / x[1]) and np.allclose(by_start, 120)
    assert np.allclose(weft.jit(weft.vmap(weft.grad(product)))(x, starts), np.array([[12], [360]]) / x)


def test_reduce_with_a_computation_that_is_not_elementwise():
    def clipped(a, b):
        return cond(lax.gt(a, np.float32(10)), lambda: a, lambda: lax.add(a, b))

    x = np.ones((30, 2), np.float32) * np.array([1, 4], np.float32)
    result = lax.reduce(x, 0.0, clipped, (0,))
    assert result.shape == (2,) and np.all(np.asarray(result) > 10)
    assert weft.grad(lambda x: lax.reduce_sum(lax.reduce(x, 0.0, clipped, (0,)), (0,)))(x).shape == x.shape


def test_errors_say_what_was_wrong():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"axes \(-1,\) for an operand of rank 2"):
        lax.reduce_max(x, (-1,))
    with pytest.raises(TypeError, match="reduce_sum does not accept dtype bool"):
        lax.reduce_sum(np.ones(3, bool), (0,))
    with pytest.raises(TypeError, match="integer index_dtype"):
        lax.argmax(x, 0, np.float32)
    with pytest.raises(ValueError, match="at least one element"):
        lax.argmax(np.ones((0, 3)), 0, np.int32)
    with pytest.raises(ValueError, match="cumsum got axis 2"):
        lax.cumsum(x, 2)
    with pytest.raises(TypeError, match="must return the structure of each of its two arguments"):
        lax.reduce(x, 0.0, lambda a, b: (a, b), (0,))
    with pytest.raises(TypeError, match="The computation of reduce must map"):
        lax.reduce(x, 0.0, lambda a, b: lax.gt(a, b), (0,))
    with pytest.raises(ValueError, match="init_values to be scalars"):
        lax.reduce(x, np.zeros(2, np.float32), lambda a, b: lax.add(lax.add(a, b), b), (0,))
    with pytest.raises(UnexpectedTracerError, match="not one of its arguments"):
        weft.jit(lambda z: lax.reduce(x, 0.0, lambda a, b: lax.add(a, lax.mul(b, z)), (0,)))(np.float32(2))
