"""Edge values that NumPy or mathematics define: signed zeros, singular matrices, huge shapes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, random
from weft.base.errors import ShapeMismatchError
from weft.primitives.random.threefry import threefry_arrays

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -7.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)


def assert_same_bits(result: Any, expected: Any) -> None:
    """Equal numbers with equal signs; all that is not a number is the same."""
    result, expected = np.asarray(result), np.asarray(expected)
    np.testing.assert_array_equal(result, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_division_has_the_signs_of_numpy(name: str, staged: bool) -> None:
    x, y = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
    function = getattr(wnp, name)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    assert_same_bits((weft.jit(function) if staged else function)(wnp.asarray(x), wnp.asarray(y)), expected)


def test_remainder_keeps_its_derivative_where_nothing_remains() -> None:
    x = np.array([4.0, -4.0, 0.0, -0.0, 3.0], np.float32)
    for divisor in (2.0, -2.0):
        gradient = weft.vmap(weft.grad(lambda v, by=divisor: wnp.remainder(v, by)))
        np.testing.assert_array_equal(gradient(x), np.ones(5))
        np.testing.assert_array_equal(weft.jit(gradient)(x), np.ones(5))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ldexp_rounds_once(dtype: Any) -> None:
    limits = np.finfo(dtype)
    x = np.array([1.5, limits.max, limits.smallest_subnormal, -0.0, np.inf, np.nan, 1 + limits.eps], dtype)
    powers = np.arange(-310, 311, 7, dtype=np.int32)
    with np.errstate(all="ignore"):
        expected = np.ldexp(x[:, None], powers)
    assert_same_bits(wnp.ldexp(x[:, None], powers[None]), expected)
    assert_same_bits(weft.jit(wnp.ldexp)(x[:, None], powers[None]), expected)


# ------------------------------------------------------------------------------------------------------ determinants


def adjugate(x: np.ndarray) -> np.ndarray:
    """Return the transposed cofactors, by determinants of minors."""
    size = len(x)
    result = np.zeros_like(x)
    for i, j in itertools.product(range(size), repeat=2):
        result[i, j] = (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, j, 0), i, 1))
    return result


def singular_matrices() -> list[np.ndarray]:
    """Matrices of every rank, with zeros among the pivots at each position."""
    rng = np.random.default_rng(0)
    general = rng.normal(size=(4, 4))
    doubled = general.copy()
    doubled[2] = doubled[0]
    shifted = np.diag([1.0, 2.0, 3.0], 1)
    found = [general, doubled, shifted, np.eye(4), general[:, :1] @ general[:1], np.zeros((4, 4))]
    found += [np.diag(d).astype(float) for d in ([0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 3, 0], [1, 0, 2, 0])]
    return found


@pytest.mark.parametrize("unit", [1, 1 + 0.5j])
def test_det_has_its_derivatives_at_every_rank(unit: complex) -> None:
    matrices = np.stack(singular_matrices()) * unit
    dtype = np.complex64 if np.iscomplexobj(matrices) else np.float32
    options = {"holomorphic": dtype == np.complex64}
    gradient = weft.grad(wnp.linalg.det, **options)
    expected = np.stack([adjugate(x).T for x in matrices])
    args = matrices.astype(dtype)
    tolerance = {"rtol": 1e-4, "atol": 2e-5}
    np.testing.assert_allclose(weft.jit(weft.vmap(gradient))(args), expected, **tolerance)
    np.testing.assert_allclose(
        weft.grad(lambda v: wnp.linalg.det(v).sum(), **options)(wnp.asarray(args)), expected, **tolerance
    )
    curvature = weft.jit(weft.vmap(weft.jacfwd(gradient, **options)))(args)
    step = np.zeros((16, 4, 4))
    step.reshape(16, 16)[np.arange(16), np.arange(16)] = 1e-4
    for result, x in zip(np.asarray(curvature), matrices, strict=True):
        by = [(adjugate(x + d).T - adjugate(x - d).T) / 2e-4 for d in step]
        np.testing.assert_allclose(np.moveaxis(result.reshape(4, 4, 16), -1, 0), by, rtol=1e-3, atol=1e-4)


def test_gradient_of_pinv_of_tall_matrices() -> None:
    for shape in ((2, 400000), (400000, 2)):
        x = np.ones(shape, np.float32)
        x[0, 0] = 2
        assert weft.jit(weft.grad(lambda v: wnp.linalg.pinv(v).sum()))(x).shape == shape


# ---------------------------------------------------------------------------------------------------- sizes and numbers


def test_random_bits_beyond_2_to_the_32() -> None:
    size, key = 2**32 + 40, random.key(7)
    result = weft.jit(lambda k: random.bits(k, (size,))[-48:])(key)
    counts = np.arange(size - 48, size, dtype=np.uint64)
    words = np.asarray(random.key_data(key))
    pair = threefry_arrays(words[0], words[1], (counts >> np.uint64(32)).astype(np.uint32), counts.astype(np.uint32))
    np.testing.assert_array_equal(result, pair[0] ^ pair[1])
    assert weft.eval_shape(lambda: random.normal(key, (2**20, 2**20))).shape == (2**20, 2**20)


def test_bounds_of_randint_must_fit() -> None:
    for low, high in ((0, 2**40), (-(2**40), 5), (0, np.int64(2**40))):
        with pytest.raises(OverflowError, match="does not fit into int32"):
            random.randint(random.key(0), (2,), low, high)
    assert random.randint(random.key(0), (2,), 0, 2**31).dtype == np.int32


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_max", "gather"])
def test_wrong_dimension_numbers_say_what_is_wrong(name: str) -> None:
    x, indices = wnp.zeros((3, 4)), np.zeros((2, 1), np.int32)
    for numbers in (((), (), (0,)), ((5,), (0,), (0,)), ((1,), (0, 1), (0,)), ((1,), (0,), (7,)), ((0, 1), (0,), (0,))):
        with pytest.raises(ShapeMismatchError, match=f"(?i){name.replace('_', '-')}"):
            if name == "gather":
                lax.gather(x, indices, lax.GatherDimensionNumbers(*numbers), (1, 4))
            else:
                getattr(lax, name)(x, indices, wnp.zeros((2, 4)), lax.ScatterDimensionNumbers(*numbers))


@pytest.mark.parametrize("reduction", ["sum", "mean", "any", "max", "nansum", "var"])
def test_masks_are_booleans(reduction: str) -> None:
    options = {"initial": 0} if reduction == "max" else {}
    with pytest.raises(ValueError, match="booleans as where"):
        getattr(wnp, reduction)(wnp.ones(3), where=wnp.ones(3), **options)


def test_a_float_becomes_an_integer_as_an_array_of_it_would() -> None:
    for value, dtype in itertools.product((np.nan, np.inf, -np.inf, 300.7, -1.5), ("int8", "uint8", "int32")):
        expected = np.full(2, wnp.asarray(value).astype(dtype))
        for result in (
            wnp.full(2, value, dtype),
            lax.full((2,), value, dtype),
            wnp.full_like(wnp.ones(2, dtype), value),
        ):
            np.testing.assert_array_equal(result, expected)
    for value in (np.nan, [1.0, np.inf], 300.7, [-129.0]):
        with pytest.raises((ValueError, OverflowError), match=r"cannot become|does not fit"):
            wnp.array(value, "int8")
    np.testing.assert_array_equal(wnp.array([1.7, -1.7, 127.9, -128.9], "int8"), [1, -1, 127, -128])


def test_flattened_positions_must_fit_into_their_dtype() -> None:
    one = np.array([1], np.int32)
    for options in ({"mode": "wrap"}, {"mode": "clip"}, {"mode": "raise"}, {"mode": "wrap", "dtype": "int8"}):
        dims = (20, 20) if "dtype" in options else (100_000, 100_000)
        with pytest.raises(ValueError, match="not large enough to hold flattened index"):
            wnp.ravel_multi_index((one, one), dims, **options)
    with weft.enable_x64(True):
        assert wnp.ravel_multi_index((one, one), (100_000, 100_000), mode="clip").tolist() == [100_001]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: lax.conv(x, x, [1], "SAME"), "window and window_strides must have the same number of dimensions"),
        (lambda x: lax.reduce(x[0, 0], 0.0, lax.add, (0, 0)), "duplicate value in 'axes'"),
        (lambda x: lax.reduce({"a": x}, {"b": 0.0}, lambda p, q: p, (0,)), "same tree structure as init_values"),
    ],
)
def test_mistakes_of_reductions_and_convolutions_are_named(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(wnp.ones((1, 1, 3, 3)))
