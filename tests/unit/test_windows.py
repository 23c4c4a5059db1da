"""Window reductions against a loop over all windows, with every kind of stride, padding and dilation."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax
from weft.base.errors import MissingRuleError
from weft.ir.types import array_type
from weft.primitives.elementwise.compare import ge, le
from weft.primitives.reduction.window import select_and_gather_add, select_and_scatter, select_and_scatter_add
from weft.trace.closed import stage_subjaxpr

CASES = [
    dict(window_dimensions=(2, 3), window_strides=(1, 1), padding=((0, 0), (0, 0))),
    dict(window_dimensions=(2, 2), window_strides=(2, 1), padding=((1, 0), (2, 1))),
    dict(window_dimensions=(3, 2), window_strides=(1, 2), padding=((1, 1), (0, 1)), window_dilation=(1, 2)),
    dict(window_dimensions=(2, 3), window_strides=(1, 2), padding=((0, 1), (1, 0)), base_dilation=(2, 3)),
    dict(window_dimensions=(1, 2), window_strides=(1, 1), padding=((0, -1), (-1, 0))),
    dict(window_dimensions=(9, 1), window_strides=(1, 1), padding=((0, 0), (0, 0))),
]


def operand(seed=0):
    return np.random.default_rng(seed).permutation(20).reshape(4, 5).astype(np.float32) - 7


def windows_of(x, fill, window_dimensions, window_strides, padding, base_dilation=(1, 1), window_dilation=(1, 1)):
    """Return every window as a list of elements, by plain loops, and the shape of the result."""
    dilated = np.full([(n - 1) * b + 1 for n, b in zip(x.shape, base_dilation, strict=True)], fill, x.dtype)
    dilated[tuple(slice(None, None, b) for b in base_dilation)] = x
    for axis, (low, high) in enumerate(padding):
        shape = list(dilated.shape)
        shape[axis] = max(low, 0)
        before = np.full(shape, fill, x.dtype)
        shape[axis] = max(high, 0)
        dilated = np.concatenate([before, dilated, np.full(shape, fill, x.dtype)], axis)
        cut = [slice(None)] * x.ndim
        cut[axis] = slice(max(-low, 0), dilated.shape[axis] - max(-high, 0))
        dilated = dilated[tuple(cut)]
    extents = [(w - 1) * d + 1 for w, d in zip(window_dimensions, window_dilation, strict=True)]
    shape = [max(0, (n - e) // s + 1) for n, e, s in zip(dilated.shape, extents, window_strides, strict=True)]
    found = []
    for index in itertools.product(*map(range, shape)):
        offsets = itertools.product(*map(range, window_dimensions))
        found.append(
            [
                dilated[
                    tuple(p * s + o * d for p, s, o, d in zip(index, window_strides, off, window_dilation, strict=True))
                ]
                for off in offsets
            ]
        )
    return found, shape


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "computation, initial, reduce",
    [
        (lax.add, 0.0, np.sum),
        (lax.max, -np.inf, np.max),
        (lax.min, np.inf, np.min),
        (lax.mul, 1.0, np.prod),
    ],
)
def test_every_window_is_reduced(case, computation, initial, reduce):
    x = operand()
    found, shape = windows_of(x, initial, **case)
    expected = np.array([reduce(w) for w in found], np.float32).reshape(shape)
    result = lax.reduce_window(x, initial, computation, **case)
    assert result.shape == tuple(shape) and np.allclose(result, expected, rtol=1e-5)
    assert lax.reduce_window_shape_tuple(x.shape, **case) == tuple(shape)


@pytest.mark.parametrize("case", CASES)
def test_elements_are_combined_in_order(case):
    x = operand()

    def first_then_last(left, right):
        """Return a pair that starts where the left one starts and ends where the right one ends; (0, 0) is neutral."""
        (a, b), (c, d) = left, right
        empty_left, empty_right = lax.eq(a, np.float32(0)), lax.eq(d, np.float32(0))
        return lax.select(empty_left, c, a), lax.select(empty_right, b, d)

    found, shape = windows_of(x + 0.5, 0, **case)
    first, last = lax.reduce_window((x + 0.5, x + 0.5), (0.0, 0.0), first_then_last, **case)
    held = [[v for v in w if v] or [0] for w in found]
    assert np.array_equal(first, np.array([w[0] for w in held]).reshape(shape))
    assert np.array_equal(last, np.array([w[-1] for w in held]).reshape(shape))


def pooled(x):
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), "SAME")


def test_gradient_of_max_pooling_goes_to_the_first_largest():
    x = np.array([[[1, 3, 0], [3, 2, 5], [4, 4, 4]]], np.float32)
    gradient = weft.grad(lambda x: lax.reduce_sum(pooled(x), (0, 1, 2)))(x)
    assert np.array_equal(np.asarray(gradient)[0], [[0, 1, 0], [0, 0, 1], [1, 0, 1]])


def test_max_pooling_has_a_second_derivative_and_batches():
    x = np.stack([operand(s) for s in range(3)])

    def energy(x):
        y = pooled(x)
        return lax.reduce_sum(lax.mul(y, lax.mul(y, y)), (0, 1, 2))

    v = np.stack([operand(s + 10) for s in range(3)])
    chosen = weft.grad(lambda x: lax.reduce_sum(pooled(x), (0, 1, 2)))(x)
    assert np.allclose(weft.jvp(weft.grad(energy), (x,), (v,))[1], 6 * x * v * np.asarray(chosen))
    one = weft.vmap(weft.grad(lambda x: energy(lax.expand_dims(x, (0,)))))(x)
    assert np.allclose(one, weft.grad(energy)(x))


@pytest.mark.parametrize("case", CASES)
def test_selection_reads_and_adds_at_the_same_indices(case):
    x = operand()
    for relation, reduce, fill in ((ge, np.max, -np.inf), (le, np.min, np.inf)):
        params = {**case, "select_prim": relation}
        found, shape = windows_of(x, fill, **case)
        extreme = np.array([reduce(w) for w in found], np.float32).reshape(shape)
        read = np.asarray(select_and_gather_add(x, x, **params))
        assert np.array_equal(read, np.where(np.isinf(extreme), 0, extreme))
        added = np.asarray(select_and_scatter_add(np.ones(shape, np.float32), x, **params))
        assert np.array_equal(added, [[np.sum(extreme == v) for v in row] for row in x])


def test_scattering_by_a_custom_computation():
    x = np.array([1, 5, 2, 4, 3], np.float32)
    scalar = array_type((), np.dtype(np.float32))
    programs = {
        "select_jaxpr": stage_subjaxpr(lambda a, b: [ge(a, b)], [scalar] * 2),
        "scatter_jaxpr": stage_subjaxpr(lambda a, b: [lax.mul(a, b)], [scalar] * 2),
        "select_consts": (),
        "scatter_consts": (),
    }
    source = np.array([2, 3, 5], np.float32)

    def scattered(x, initial):
        return select_and_scatter(
            x, source, initial, window_dimensions=(3,), window_strides=(1,), padding=((0, 0),), **programs
        )

    assert np.array_equal(scattered(x, np.float32(10)), [10, 60, 10, 50, 10])
    both = weft.vmap(scattered)(np.stack([x, x[::-1]]), np.array([1, 10], np.float32))
    assert np.array_equal(both, [[1, 6, 1, 5, 1], [10, 20, 10, 150, 10]])
    with pytest.raises(MissingRuleError, match=r"use lax\.reduce_window"):
        weft.jvp(lambda x: scattered(x, np.float32(1)), (x,), (x,))


def test_initial_values_may_be_batched():
    x = operand()
    params = ((2,), (1,), ((1, 0),))
    starts = np.array([2, 3, 5, 7], np.float32)
    result = weft.vmap(lambda x, start: lax.reduce_window(x, start, lax.mul, *params))(x, starts)
    expected = [lax.reduce_window(row, start, lax.mul, *params) for row, start in zip(x, starts, strict=True)]
    assert np.allclose(result, np.stack(expected))


def test_short_floats_accumulate_wider():
    ones = np.ones(600, ml_dtypes.bfloat16)
    assert float(np.asarray(lax.reduce_window(ones, 0.0, lax.add, (600,)))[0]) == 600


def test_padding_strings():
    assert lax.padtype_to_pads((5, 6), (2, 3), (1, 2), "SAME") == [(0, 1), (0, 1)]
    assert lax.padtype_to_pads((5, 6), (2, 3), (1, 2), "SAME_LOWER") == [(1, 0), (1, 0)]
    assert lax.padtype_to_pads((5, 6), (2, 3), (1, 2), "VALID") == [(0, 0), (0, 0)]
    with pytest.raises(ValueError, match="'SAME', 'SAME_LOWER', 'VALID'"):
        lax.reduce_window(np.ones(5, np.float32), 0.0, lax.add, (2,), (1,), "FULL")


def test_errors_say_what_was_wrong():
    x = np.ones(5, np.float32)
    with pytest.raises(ValueError, match=r"window_dimensions \(2, 2\) for an operand of shape \(5,\)"):
        lax.reduce_window(x, 0.0, lax.add, (2, 2))
    with pytest.raises(ValueError, match="window_strides of at least 1"):
        lax.reduce_window(x, 0.0, lax.add, (2,), (0,))
    with pytest.raises(ValueError, match=r"cannot crop"):
        lax.reduce_window(x, 0.0, lax.add, (2,), (1,), ((-4, -4),))
    with pytest.raises(ValueError, match=r"\(low, high\) pairs"):
        lax.reduce_window(x, 0.0, lax.add, (2,), (1,), (1,))
