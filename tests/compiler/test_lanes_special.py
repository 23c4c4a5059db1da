"""Iterative functions: lanes return what `eval` returns, and a lane does not depend on its neighbours."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from tests.compiler.lane_maps import AVX2, SCALAR, WIDE, Compiled, Map, Target, same_bits, units_in_the_last_place
from tests.compiler.test_math_accuracy import distance_from_pair, exact_values
from tests.fuzz import gamma
from weft.base import dtypes
from weft.ir.primitive import lookup

# How many operands they take.
FUNCTIONS = {
    "zeta": 2, "polygamma": 2, "igamma": 2, "igammac": 2, "igamma_grad_a": 2, "random_gamma_grad": 2,
    "igamma_derivative": 2, "regularized_incomplete_beta": 3,
}  # fmt: skip
PARAMS: dict[str, dict[str, Any]] = {"igamma_derivative": {"order": 2}}
# How far `eval` in float64, which is not exact itself, may be off from exact values: its exponents lose digits.
DOUBLE_TOLERANCE = {"zeta": 1e-14, "polygamma": 1e-14, "igamma_grad_a": 1e-11}
EDGES = [
    -np.inf, -1e10, -2.25, -2.0, -1.0, -0.5, -0.0, 0.0, 1e-30, 0.1, 0.5, 1.0, 1.1, 1.5, 2.0, 3.0, 7.75, 8.0, 10.5, 63.0,
    170.0, 171.0, 1e4, np.inf, np.nan,
]  # fmt: skip
PARTS = [-np.inf, -1.0, -0.0, 0.0, 1e-30, 0.1, 0.5, 0.75, 1 - 2.0**-24, 1.0, 1.5, np.inf, np.nan]


@functools.cache
def compiled(dtype: np.dtype[Any], target: Target = WIDE) -> Compiled:
    """All of them in one module."""

    def body(name: str) -> Any:
        primitive: Any = lookup(name)
        return lambda lanes, *xs: primitive.emit(lanes, *xs, **PARAMS.get(name, {}))

    return Compiled({name: Map(body(name), (dtype,) * count) for name, count in FUNCTIONS.items()}, target)


def evaluated(name: str, *arrays: np.ndarray) -> np.ndarray:
    primitive: Any = lookup(name)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(primitive.eval(*arrays, **PARAMS.get(name, {})))


def interior(name: str, rng: np.random.Generator, size: int = 600) -> list[np.ndarray]:
    """Points inside of the domain, half of them where the function changes most."""
    normal = rng.normal(size=size)
    if name == "zeta":
        return [1 + np.exp(rng.uniform(-6, 4, size)), np.exp(rng.uniform(-4, 20, size))]
    if name == "polygamma":
        return [rng.integers(0, 30, size).astype(np.float64), np.exp(rng.uniform(-4, 8, size))]
    if name == "regularized_incomplete_beta":
        a, b = np.exp(rng.uniform(-5, 6, (2, size)))
        mean = a / (a + b)
        near = mean + normal * np.sqrt(mean * (1 - mean) / (a + b + 1))
        return [a, b, np.where((rng.integers(0, 2, size) > 0) & (near > 0) & (near < 1), near, rng.uniform(0, 1, size))]
    a = np.exp(rng.uniform(-2 if name == "igamma_derivative" else -5, 5.5, size))
    return [a, np.where(rng.integers(0, 2, size) > 0, np.abs(a + 2 * np.sqrt(a) * normal), a * np.exp(normal))]


def at_the_edges(name: str, dtype: np.dtype[Any]) -> list[np.ndarray]:
    """All pairs (triples) of numbers at which something changes or ends."""
    axes = [PARTS if i == 2 else EDGES for i in range(FUNCTIONS[name])]
    with np.errstate(all="ignore"):
        return [np.asarray(grid.ravel(), dtype) for grid in np.meshgrid(*axes)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float16], ids=lambda d: d.name)
def test_short_floats_are_rounded_once(name: str, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    """They are computed in float64, so nearly half a unit is all that is lost."""
    with np.errstate(all="ignore"):
        args = [x.astype(dtype) for x in interior(name, rng)]
    exact = evaluated(name, *(x.astype(np.float64) for x in args))
    apart = units_in_the_last_place(compiled(dtype)(name, *args), exact)
    worst = int(np.argmax(apart))
    assert apart[worst] <= 0.51, f"{name}({[x[worst] for x in args]}) is {apart[worst]} units off"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_near_eval(name: str, rng: np.random.Generator) -> None:
    args = interior(name, rng)
    found, expected = compiled(dtypes.float64)(name, *args), evaluated(name, *args)
    if name in gamma.ORDERS:
        units = lookup(name).ulp["float64"]
        allowed = units * np.spacing(np.abs(expected))
        allowed += gamma.digits_lost(name, *args, expected, units, **PARAMS.get(name, {}))
        worst = int(np.argmax(np.abs(found - expected) / allowed))
        numbers = [x[worst] for x in args]
        assert abs(found[worst] - expected[worst]) <= allowed[worst], (numbers, found[worst], expected[worst])
    else:
        np.testing.assert_allclose(found, expected, rtol=DOUBLE_TOLERANCE.get(name, 1e-12), atol=1e-290)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - PARAMS.keys()))
@pytest.mark.parametrize("target", [pytest.param(t, id=t.name) for t in (WIDE, SCALAR, AVX2)])
def test_float64_is_near_the_exact_value(name: str, target: Target) -> None:
    """An error of the exponent, which has a few units too, is one of the value: so small values may be off by more."""
    *args, high, low = exact_values()[name].T
    found = compiled(dtypes.float64, target)(name, *args)
    apart = distance_from_pair(found, high, low)
    allowed = 64 + 2 * np.abs(np.log(np.abs(high)))
    worst = int(np.argmax(apart / allowed))
    assert apart[worst] <= allowed[worst], f"{name}({[x[worst] for x in args]}) is {apart[worst]} units off"


def test_beta_of_small_arguments(rng: np.random.Generator) -> None:
    """A power with a large logarithm is as exact as others."""
    a, b, x = rng.uniform(0, 1, 2000), rng.uniform(0, 4, 2000), np.exp(rng.uniform(-744, -5, 2000))
    name = "regularized_incomplete_beta"
    np.testing.assert_allclose(compiled(dtypes.float64)(name, a, b, x), evaluated(name, a, b, x), 2e-14, 1e-290)


@pytest.mark.parametrize("name", ["lgamma", "digamma", *sorted(FUNCTIONS.keys() - PARAMS.keys())])
def test_eval_is_near_the_exact_value(name: str) -> None:
    """At denormal operands too, where SciPy has infinities, zeros or few digits; in far tails it is 1e-11 off."""
    *args, high, _ = exact_values()[name].T
    compared = np.abs(high) > 1e-3 if name in ("lgamma", "digamma") else high != 0
    found, high = evaluated(name, *args)[compared], high[compared]
    np.testing.assert_allclose(found, high, rtol=1e-11, atol=1e-322)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_edges(name: str, dtype: np.dtype[Any]) -> None:
    """Where `eval` has a limit, a pole or no value, lanes have the same."""
    args = at_the_edges(name, dtype)
    expected = evaluated(name, *args)
    found = compiled(dtype)(name, *args)
    edge = ~np.isfinite(expected)
    for x in args[1:] if name == "polygamma" else args:  # derivative number 0 is like others
        edge |= ~np.isfinite(x) | (x == 0)
    if name == "igamma_derivative":  # a second derivative at 1e-30 is a difference of infinities
        edge &= ~((args[0] == dtype.type(1e-30)) & (args[1] > 0))
    wrong = edge & ~same_bits(found, expected)
    assert edge.any()
    assert not wrong.any(), [([x[i] for x in args], found[i], expected[i]) for i in np.flatnonzero(wrong)[:4]]


def test_limits_of_eval() -> None:
    """Whatever the version of SciPy says: a distribution that is all at one end, and what is no number at all."""
    nan, inf = np.nan, np.inf
    for a, b, x, expected in [
        (0.0, 2.0, 0.0, 0.0),
        (0.0, 2.0, 0.5, 1.0),
        (2.0, inf, 0.5, 1.0),
        (2.0, inf, 1e-310, 1.0),
        (0.0, inf, 0.0, 0.0),
        (2.0, 0.0, 0.5, 0.0),
        (2.0, 0.0, 1.0, 1.0),
        (inf, 2.0, 0.5, 0.0),
        (0.0, 0.0, 0.5, nan),
        (inf, inf, 0.5, nan),
        (-1.0, 0.0, 0.5, nan),
        (0.0, 2.0, 1.5, nan),
        (0.0, nan, 0.5, nan),
    ]:
        found = evaluated("regularized_incomplete_beta", *(np.array([v]) for v in (a, b, x)))
        np.testing.assert_array_equal(found, [expected], err_msg=f"{a} {b} {x}")
    for a, x in [(nan, 0.0), (nan, inf), (inf, nan), (nan, 1.0), (1.0, nan)]:
        for name in ("igamma", "igammac"):
            assert np.isnan(evaluated(name, np.array([a]), np.array([x]))).all(), (name, a, x)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_lane_depends_on_another(name: str, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    """The same bits in every width and in any company."""
    args = [x.astype(dtype) for x in interior(name, rng, 200)]
    order = rng.permutation(200)
    wide = compiled(dtype)(name, *args)
    assert same_bits(compiled(dtype)(name, *(x[order] for x in args)), wide[order]).all()
    for target in (SCALAR, AVX2):
        assert same_bits(compiled(dtype, target)(name, *args), wide).all(), target.name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_end_for_any_bits(name: str, rng: np.random.Generator) -> None:
    """Whatever value a lane has, its loops end; probabilities stay between 0 and 1."""
    args = [rng.integers(0, 1 << 63, 4000).view(np.float64) for _ in range(FUNCTIONS[name])]
    found = compiled(dtypes.float64)(name, *args)
    if name in ("igamma", "igammac", "regularized_incomplete_beta"):
        assert ((found >= 0) & (found <= 1) | np.isnan(found)).all()
    outside = np.isnan(args[0]) | np.isnan(args[1])
    assert np.isnan(found[outside]).all()


def test_both_tails_sum_to_one(rng: np.random.Generator) -> None:
    """Also for parameters that are so large that `eval` itself fails."""
    a = np.exp(rng.uniform(-10, 40, 4000))
    x = np.abs(a + np.sqrt(a) * rng.normal(size=4000) * 3)
    lower, upper = (compiled(dtypes.float64)(name, a, x) for name in ("igamma", "igammac"))
    np.testing.assert_allclose(lower + upper, 1.0, rtol=4e-15)
    b = np.exp(rng.uniform(-5, 40, 4000))
    mean = a / (a + b)
    part = np.clip(mean + np.sqrt(mean * (1 - mean) / (a + b + 1)) * rng.normal(size=4000), 2.0**-20, 0.5)
    part = np.round(part * 2.0**50) * 2.0**-50  # so that 1 - part is exact
    whole = [compiled(dtypes.float64)("regularized_incomplete_beta", *t) for t in ((a, b, part), (b, a, 1 - part))]
    np.testing.assert_allclose(whole[0] + whole[1], 1.0, rtol=1e-12)


def test_zeta_of_negative_arguments(rng: np.random.Generator) -> None:
    """Terms before 0 have signs, and for odd powers they cancel: what is left is exact relative to the greatest."""
    x = rng.integers(2, 40, 2000).astype(np.float64)
    q = -rng.uniform(0, 300, 2000)
    found, expected = compiled(dtypes.float64)("zeta", x, q), evaluated("zeta", x, q)
    distance = np.abs(q - np.round(q))
    assert (np.abs(found - expected) <= 1e-14 * distance**-x).all()
    # Far away, where `eval` would add up for hours; terms of opposite signs leave those beyond.
    far = np.full(4, -(2.0**40) - 0.5)
    np.testing.assert_allclose(
        compiled(dtypes.float64)("zeta", np.array([2.0, 3.0, 4.0, 5.0]), far)[::2],
        [np.pi**2 - 2.0**-40, np.pi**4 / 3],
        rtol=1e-13,
    )
