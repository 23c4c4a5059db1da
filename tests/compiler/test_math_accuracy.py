"""The errors of the functions of `target/math`, in units in the last place, over dense samples."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.compiler.lane_maps import AVX2, SCALAR, WIDE, Compiled, Map, Target, units_in_the_last_place
from weft.base import dtypes
from weft.ir.primitive import lookup

# The documented bounds (docs/design/lanes.md).
SINGLE = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "logistic": 1.5, "tanh": 2.0, "sinh": 1.5, "cosh": 2.0, "log": 1.0,
    "log1p": 1.5, "asinh": 2.0, "acosh": 2.0, "atanh": 2.0, "sin": 1.0, "cos": 1.0, "tan": 1.5, "asin": 1.5,
    "acos": 1.5, "atan": 2.0, "sqrt": 0.5, "rsqrt": 1.5, "cbrt": 1.0, "erf": 1.5, "erfc": 1.5, "lgamma": 0.51,
    "digamma": 0.51, "bessel_i0e": 0.51, "bessel_i1e": 0.51,
}  # fmt: skip
DOUBLE = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "logistic": 1.5, "tanh": 2.0, "sinh": 1.5, "cosh": 1.5, "log": 1.0,
    "log1p": 1.5, "asinh": 2.0, "acosh": 2.0, "atanh": 2.0, "sin": 1.5, "cos": 1.5, "tan": 1.5, "asin": 1.5,
    "acos": 1.5, "atan": 2.0, "cbrt": 1.0, "erf": 1.5, "erfc": 1.5, "erf_inv": 2.0, "lgamma": 4.0, "digamma": 4.0,
    "bessel_i0e": 2.0, "bessel_i1e": 2.0, "pow": 1.0, "atan2": 2.0, "sqrt": 0.5, "rsqrt": 1.5,
}  # fmt: skip
BINARY = {"pow", "atan2"}


def function_map(name: str, dtype: np.dtype[Any]) -> Map:
    primitive: Any = lookup(name)
    return Map(lambda lanes, *xs: primitive.emit(lanes, *xs), (dtype,) * (2 if name in BINARY else 1))


@functools.cache
def compiled(dtype: np.dtype[Any], target: Target = WIDE) -> Compiled:
    """All functions of a dtype in one module."""
    names = (SINGLE if dtype == dtypes.float32 else DOUBLE).keys() | BINARY
    return Compiled({name: function_map(name, dtype) for name in sorted(names)}, target)


def every_float32(stride: int, start: int) -> np.ndarray:
    """Floats of all sizes, signs and kinds, some of each exponent."""
    words = np.arange(start, 1 << 32, stride, dtype=np.uint64)
    return words.astype(np.uint32).view(np.float32)


def reference(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """The function in float64."""
    primitive: Any = lookup(name)

    def exact(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(primitive.eval(x.astype(np.float64)))

    return exact


@pytest.mark.parametrize("name", SINGLE)
def test_float32(name: str, rng: np.random.Generator) -> None:
    x = every_float32(8191, int(rng.integers(8191)))
    near = np.concatenate([rng.uniform(-2, 2, 60_000), rng.uniform(-100, 100, 60_000)]).astype(np.float32)
    x = np.concatenate([x, near])
    if name in ("lgamma", "digamma"):  # they have zeros between the negative integers: see below
        x = x[~(x < 0)]
    apart = units_in_the_last_place(compiled(dtypes.float32)(name, x), reference(name)(x))
    worst = int(np.argmax(apart))
    assert apart[worst] <= SINGLE[name], f"{name}({x[worst]!r}) is {apart[worst]} units off"


def test_the_inverse_of_erf_in_float32_is_its_definition(rng: np.random.Generator) -> None:
    """Random normal numbers are made with it, so that what counts is to be near `eval`, not near the function."""
    x = np.concatenate([rng.uniform(-1, 1, 100_000), 1 - np.exp(-rng.uniform(1, 17, 20_000))]).astype(np.float32)
    body = Compiled({"erf_inv": function_map("erf_inv", dtypes.float32)}, WIDE)
    primitive: Any = lookup("erf_inv")
    apart = units_in_the_last_place(body("erf_inv", x), np.asarray(primitive.eval(x)))
    assert apart.max() <= 2 and np.mean(apart > 0) < 0.05


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_float32_negative(name: str, rng: np.random.Generator) -> None:
    """Near their zeros the relative error is not bounded, the absolute one is."""
    x = np.concatenate([rng.uniform(-30, 0, 20_000), -np.arange(1.0, 20), [-np.inf, -1e10]]).astype(np.float32)
    found, exact = compiled(dtypes.float32)(name, x), reference(name)(x)
    np.testing.assert_allclose(found, exact.astype(np.float32), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles(name: str, rng: np.random.Generator) -> None:
    """One far lane sends the whole vector the long way, and the others keep what they have."""
    x = np.concatenate([rng.uniform(-1e5, 1e5, 4000), np.exp(rng.uniform(11, 88, 4000))]).astype(np.float32)
    x = rng.permutation(np.concatenate([x, [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45]]).astype(np.float32))
    apart = units_in_the_last_place(compiled(dtypes.float32)(name, x), reference(name)(x))
    assert apart.max() <= SINGLE[name]


@functools.cache
def exact_values(file: str = "exact_values.txt") -> dict[str, np.ndarray]:
    """Operands and values with twice the digits of a double, by function."""
    found: dict[str, list[list[float]]] = {}
    text = (pathlib.Path(__file__).parent / file).read_text()
    for line in text.splitlines()[1:]:
        name, *rest = line.split()
        found.setdefault(name, []).append([float.fromhex(word) for word in rest])
    return {name: np.array(rows) for name, rows in found.items()}


def distance_from_pair(found: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Units in the last place between floats and exact values given as two; the differences are exact enough."""
    _, exponent = np.frexp(high)
    step = np.ldexp(1.0, np.maximum(exponent - 53, -1074))
    with np.errstate(all="ignore"):
        apart = np.abs((found - high) - low) / step
    return np.where(found == high, np.abs(low / step), apart)


@pytest.mark.parametrize("name", sorted(DOUBLE.keys() - {"sqrt", "rsqrt"}))
@pytest.mark.parametrize("target", [pytest.param(t, id=t.name) for t in (WIDE, SCALAR, AVX2)])
def test_float64(name: str, target: Target) -> None:
    *args, high, low = exact_values()[name].T
    found = compiled(dtypes.float64, target)(name, *args)
    apart = distance_from_pair(found, high, low)
    worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    assert apart[worst] <= DOUBLE[name], f"{name}({[x[worst] for x in args]}) is {apart[worst]} units off"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double has no more digits than double here")
@pytest.mark.parametrize(
    ("name", "exact", "low", "high"),
    [
        ("exp", np.exp, -745, 709), ("exp2", np.exp2, -1074, 1023), ("expm1", np.expm1, -40, 709),
        ("log", np.log, 0, 9), ("log1p", np.log1p, -1, 9), ("sin", np.sin, -1e5, 1e5), ("cos", np.cos, -1e5, 1e5),
        ("tan", np.tan, -1e5, 1e5), ("asin", np.arcsin, -1, 1), ("acos", np.arccos, -1, 1), ("atan", np.arctan, -9, 9),
        ("sinh", np.sinh, -710, 710), ("cosh", np.cosh, -710, 710), ("tanh", np.tanh, -20, 20),
        ("asinh", np.arcsinh, -9, 9), ("acosh", np.arccosh, 1, 9), ("atanh", np.arctanh, -1, 1),
        ("cbrt", np.cbrt, -9, 9), ("sqrt", np.sqrt, 0, 9), ("rsqrt", lambda x: 1 / np.sqrt(x), 0, 9),
    ],
)  # fmt: skip
def test_float64_densely(name: str, exact: Any, low: float, high: float, rng: np.random.Generator) -> None:
    x = rng.uniform(low, high, 20_000)
    small = rng.uniform(max(low, -1), min(high, 1.001), 20_000) * np.exp(-rng.uniform(0, 30, 20_000))
    x = np.concatenate([x, small if low < 1 else 1 + np.abs(small)])
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -1e-310, 1e308, -1e308]])
    found = compiled(dtypes.float64)(name, x)
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.longdouble))
    apart = units_in_the_last_place(found, wanted)
    worst = int(np.argmax(apart))
    assert apart[worst] <= DOUBLE[name], f"{name}({x[worst]!r}) is {apart[worst]} units off"
    signs = np.signbit(found) == np.signbit(wanted)
    assert signs[~np.isnan(wanted)].all(), f"{name} has another sign at {x[~signs & ~np.isnan(wanted)][:3]}"


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=["float32", "float64"])
def test_powers(dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    edges = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0, 2.5, 1e30, -1e30, 1e-40, np.inf, -np.inf, np.nan]
    )
    a, b = (grid.ravel() for grid in np.meshgrid(edges, edges))
    x = np.concatenate([np.exp(rng.uniform(-60, 60, 20_000)), a]).astype(dtype)
    y = np.concatenate([rng.normal(size=20_000) * 1.3, b]).astype(dtype)
    found = compiled(dtype)("pow", x, y)
    wide = np.float64 if dtype == dtypes.float32 else np.longdouble
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(wide), y.astype(wide))
    apart = units_in_the_last_place(found, wanted)
    slack = 1.0 if wide is np.float64 or np.finfo(np.longdouble).nmant >= 63 else 2.0
    assert apart.max() <= slack, (x[apart > slack][:3], y[apart > slack][:3])
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=["float32", "float64"])
def test_angles_of_points(dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    edges = np.array([0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan])
    a, b = (grid.ravel() for grid in np.meshgrid(edges, edges))
    y = np.concatenate([rng.normal(size=50_000), a]).astype(dtype)
    x = np.concatenate([rng.normal(size=50_000), b]).astype(dtype)
    found = compiled(dtype)("atan2", y, x)
    wide = np.float64 if dtype == dtypes.float32 else np.longdouble
    with np.errstate(all="ignore"):
        wanted = np.arctan2(y.astype(wide), x.astype(wide))
    assert units_in_the_last_place(found, wanted).max() <= 2.0
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=["float32", "float64"])
def test_widths_compute_the_same_bits(dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    """Nothing is fused or reordered behind the text, so every width and machine computes the same numbers."""
    names = sorted((SINGLE if dtype == dtypes.float32 else DOUBLE).keys() | BINARY)
    args = [np.concatenate([rng.normal(size=500) * scale for scale in (1, 30, 1e6)]).astype(dtype) for _ in range(2)]
    for name in names:
        xs = args[: 2 if name in BINARY else 1]
        with np.errstate(all="ignore"):
            wide, scalar, narrow = (compiled(dtype, t)(name, *xs) for t in (WIDE, SCALAR, AVX2))
        word = np.uint32 if dtype == dtypes.float32 else np.uint64
        unknown = np.isnan(wide)
        assert (np.isnan(scalar) == unknown).all() and (np.isnan(narrow) == unknown).all(), name
        for other in (scalar, narrow):
            assert (other.view(word) == wide.view(word))[~unknown].all(), name


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize(
    "name", ["expm1", "tanh", "sinh", "log1p", "asinh", "atanh", "sin", "tan", "asin", "atan", "sqrt", "cbrt", "erf"]
)
def test_zeros_keep_their_sign_and_denormals_are_not_flushed(name: str, dtype: np.dtype[Any]) -> None:
    """Functions that go through the origin; those with derivative 1 there give denormal numbers back as they are."""
    zeros = np.array([0.0, -0.0] * 8, dtype)
    assert compiled(dtype)(name, zeros).tobytes() == zeros.tobytes()
    if name not in ("sqrt", "cbrt", "erf"):
        tiny = np.finfo(dtype).smallest_subnormal * np.arange(-8, 8).astype(dtype)
        np.testing.assert_array_equal(compiled(dtype)(name, tiny), tiny)
