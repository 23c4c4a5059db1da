"""Random operands and programs in floats: compiled results are within the error bounds of the primitives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.passes_bits import edges
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base import dtypes
from weft.ir import interpreter
from weft.ir.jaxpr import Equation
from weft.ir.primitive import lookup
from weft.runtime.execute import get_executable

UNARY = (
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "lgamma", "digamma",
    "bessel_i0e", "bessel_i1e", "neg", "abs", "sign", "floor", "ceil", "square",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "nextafter")
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
# NumPy has these with the digits of a long double, where it has such a type.
LONG: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "pow": np.power, "atan2": np.arctan2, "logistic": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
# SciPy's are several units off for some numbers, those of C are not.
BY_C: dict[str, Callable[[float], float]] = {"erf": math.erf, "erfc": math.erfc}
# These have zeros where only the absolute error is small.
WITH_ZEROS = frozenset({"lgamma", "digamma"})


def operands(rng: np.random.Generator, dtype: Any, count: int) -> list[np.ndarray]:
    """Numbers of all sizes, of ordinary size, near integers and at the edges; of two operands all pairs of edges."""
    bits = rng.integers(0, 1 << (8 * np.dtype(dtype).itemsize), (count, 700), dtype=np.uint64, endpoint=False)
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    all_sizes = bits.astype(unsigned).view(dtype)
    ordinary = rng.uniform(-4, 4, (count, 700)).astype(dtype)
    distances = np.copysign(2.0 ** -rng.uniform(0, 50, (count, 300)), rng.normal(size=(count, 300)))
    near_integers = (rng.integers(-40, 41, (count, 300)) + distances).astype(dtype)
    special = edges(dtype)
    grid = np.meshgrid(*[special] * count) if count > 1 else [special]
    return [np.concatenate([all_sizes[n], ordinary[n], near_integers[n], grid[n].ravel()]) for n in range(count)]


def exact_of(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the function with more digits than the operands have, as far as available."""
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        if name == "erf_inv" and dtype == np.float32:  # which is defined by its formula, for the sake of random numbers
            return np.asarray(lookup(name).eval(*arrays))
        if dtype == np.float64:
            if name in BY_C:
                return np.array([BY_C[name](x) for x in arrays[0].tolist()])
            wide = [a.astype(np.longdouble) for a in arrays]
            return LONG[name](*wide) if name in LONG else np.asarray(lookup(name).eval(*arrays))
        return np.asarray(lookup(name).eval(*(a.astype(np.float64) for a in arrays)))


def units_apart(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Units in the last place of the exact value, in the dtype of `found`; infinite where one is nan and the other not,
    or where one is infinite and the other is far below the largest number."""
    info = dtypes.finfo(found.dtype)
    with np.errstate(all="ignore"):
        wide = found.astype(exact.dtype)
        rounded = exact.astype(found.dtype).astype(exact.dtype)
        _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))
        least = np.frexp(exact.dtype.type(info.smallest_subnormal))[1] - 1
        step = np.ldexp(exact.dtype.type(1), np.maximum(exponent - 1 - info.nmant, least))
        apart = np.abs(wide - exact) / step
    apart = np.where(
        np.isinf(rounded) | np.isinf(wide), np.where(rounded == wide, 0, near_overflow(wide, exact, info)), apart
    )
    both = np.isnan(exact) & np.isnan(wide)
    return np.where(both, 0, np.where(np.isnan(exact) != np.isnan(wide), np.inf, apart)).astype(np.float64)


def near_overflow(found: np.ndarray, exact: np.ndarray, info: Any) -> np.ndarray:
    """Count rounding up to infinity as one unit when the exact value is about the largest number."""
    with np.errstate(all="ignore"):
        close = (np.abs(exact) > float(info.max) * (1 - 2.0 ** (2 - info.nmant))) & (
            np.abs(exact) < float(info.max) * (1 + 2.0 ** (2 - info.nmant))
        )
    return np.where(close & (np.sign(found) == np.sign(exact)), 1.0, np.inf)


def budget(name: str, dtype: Any) -> float:
    """Return the error that the primitive permits, plus half a unit for rounding the exact value."""
    primitive = lookup(name)
    return primitive.ulp.get(dtypes.name(dtype), primitive.ulp.get("", 0.0)) + 0.5


def compiled(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    jaxpr = make_jaxpr(function)(*arrays)
    assert not jaxpr.consts
    return [np.array(interpreter.storage_array(r)) for r in get_executable(jaxpr)(arrays)]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_each_function_is_within_its_error_bound(dtype: Any, rng: np.random.Generator) -> None:
    dtype = np.dtype(dtype)
    one, two = operands(rng, dtype, 1), operands(rng, dtype, 2)
    with weft.enable_x64(True):
        found = compiled(
            lambda x, y, z: [*(lookup(n)(x) for n in UNARY), *(lookup(n)(y, z) for n in BINARY)], [*one, *two]
        )
    bad = []
    for name, result in zip((*UNARY, *BINARY), found, strict=True):
        args = one if name in UNARY else two
        if name == "nextafter":
            with np.errstate(all="ignore"):
                expected = np.asarray(lookup(name).eval(*args))
            assert np.array_equal(result.view(f"u{dtype.itemsize}")[result == result],
                                  expected.view(f"u{dtype.itemsize}")[result == result]), name  # fmt: skip
            continue
        exact = exact_of(name, args)
        apart = units_apart(result, exact)
        if name in WITH_ZEROS:
            with np.errstate(all="ignore"):
                near = np.abs(result.astype(np.float64) - exact) <= 8 * float(dtypes.finfo(dtype).eps)
            apart = np.where(near, 0, apart)
        worst = int(np.argmax(apart))
        if apart[worst] > budget(name, dtype):
            values = ", ".join(repr(g[worst]) for g in args)
            bad.append(f"{name}({values}) = {result[worst]!r}, {apart[worst]:.3g} units from {exact[worst]!r}")
        signed = (exact == 0) & (apart == 0) & (name not in ("max", "min"))
        wrong = signed & (np.signbit(exact) != np.signbit(result))
        if wrong.any():
            index = int(np.argmax(wrong))
            bad.append(f"{name}({', '.join(repr(g[index]) for g in args)}) has the other sign of zero")
    assert not bad, "\n".join(bad)


# ------------------------------------------------------------------------------------------------------- compositions

MAPS: tuple[Callable[[Any], Any], ...] = (
    lax.sin, lax.cos, lax.tanh, lax.logistic, lax.exp, lambda x: lax.log(x * x + 1.0), lambda x: lax.sqrt(x * x + 0.5),
    lambda x: lax.rsqrt(x * x + 0.5), lax.erf, lax.atan, lax.expm1, lambda x: lax.log1p(lax.abs(x)), lax.asinh,
)  # fmt: skip


def composition(seed: int, length: int) -> Callable[..., Any]:
    """Draw a function of two matrices: maps, arithmetic and means."""

    def function(x: Any, y: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = [x, y]
        for _ in range(length):
            a, b = (values[int(n)] for n in rng.integers(max(len(values) - 4, 0), len(values), 2))
            match int(rng.integers(8)):
                case 0 | 1 | 2:
                    result = MAPS[int(rng.integers(len(MAPS)))](a)
                case 3:
                    result = a + b
                case 4:
                    result = a * b
                case 5:
                    result = a / (b * b + 0.5)
                case 6:
                    result = a - wnp.mean(b, -1, keepdims=True)
                case _:
                    result = a * wnp.sum(b, 0) * 0.1
            # Kept small, so that the next function is at home.
            values.append(lax.clamp(np.array(-3, x.dtype), result, np.array(3, x.dtype)))
        return values[-1], wnp.sum(values[-2], 0), wnp.max(values[-1])

    return function


def noisy(rng: np.random.Generator, unit: float) -> Callable[[Equation, Sequence[Any]], Sequence[Any]]:
    """Return an interpreter step in which each result is off by the permitted error of its primitive and one
    rounding."""

    def step(equation: Equation, args: Sequence[Any]) -> Sequence[Any]:
        results = equation.primitive.eval(*args, **equation.params)
        results = results if equation.primitive.multiple_results else (results,)
        units = 1.0 + equation.primitive.ulp.get("", 0.0)
        result = []
        for r in map(np.asarray, results):
            if dtypes.kind(r.dtype) == "f":
                r = r * (1 + units * unit * rng.uniform(-1, 1, r.shape))
            result.append(r)
        return result

    return step


@pytest.mark.parametrize("seed", range(6))
def test_compositions(seed: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are within what errors of the steps make of the results, of which some random ones are a measure."""
    check_composition(seed, rng, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 200))
def test_many_compositions(seed: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    check_composition(seed, rng, monkeypatch)


def check_composition(seed: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = int(rng.integers(1, 20)), int(rng.integers(1, 70))
    arrays = [rng.uniform(-2, 2, (rows, columns)).astype(np.float32) for _ in range(2)]
    function = composition(seed, int(rng.integers(3, 12)))
    found = compiled(function, arrays)
    with weft.enable_x64(True):
        wide = [a.astype(np.float64) for a in arrays]
        jaxpr = make_jaxpr(function)(*wide)
        with np.errstate(all="ignore"):
            exact = interpreter.run(jaxpr, wide)
            runs = []
            for _ in range(12):
                with monkeypatch.context() as patch:
                    patch.setattr(interpreter, "run_equation", noisy(rng, 2.0**-24))
                    runs.append(interpreter.run(jaxpr, wide))
    for i, (result, expected) in enumerate(zip(found, exact, strict=True)):
        deviation = np.max([np.abs(run[i] - expected) for run in runs], axis=0)
        limit = 6 * deviation + 4 * 2.0**-24 * np.abs(expected) + 1e-30
        if np.ndim(limit):  # a few of many places have little luck in few runs
            limit = np.maximum(limit, np.median(limit))
        apart = np.abs(result.astype(np.float64) - expected)
        assert (apart <= limit).all(), f"result {i}: {np.max(apart / limit)} times the bound"


# ----------------------------------------------------------------------------------------------------------- long sums


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name
)
def test_sums_and_products(dtype: Any, rng: np.random.Generator) -> None:
    """Sums of n terms are within n eps of the sum of magnitudes; means, contractions and running sums as well."""
    dtype = np.dtype(dtype)
    rows, inner, columns = int(rng.integers(1, 40)), int(rng.integers(1, 3000)), int(rng.integers(1, 40))
    x = rng.standard_normal((rows, inner)).astype(dtype)
    y = rng.standard_normal((inner, columns)).astype(dtype)
    with weft.enable_x64(True):
        found = compiled(
            lambda a, b: (
                lax.reduce_sum(a, (1,)),
                lax.reduce_sum(a, (0, 1)),
                lax.reduce_sum(b, (0,)),
                lax.dot_general(a, b, (((1,), (0,)), ((), ()))),
                lax.cumsum(a, 1),
            ),
            [x, y],
        )
    a, b = x.astype(np.longdouble), y.astype(np.longdouble)
    exact = [a.sum(1), a.sum(), b.sum(0), a @ b, a.cumsum(1)]
    sizes = [np.abs(a).sum(1), np.abs(a).sum(), np.abs(b).sum(0), np.abs(a) @ np.abs(b), np.abs(a).cumsum(1)]
    eps = float(dtypes.finfo(dtypes.accumulation_dtype(dtype)).eps)
    own = float(dtypes.finfo(dtype).eps)
    for i, (result, expected, size) in enumerate(zip(found, exact, sizes, strict=True)):
        assert result.dtype == dtype
        terms = rows * inner if i == 1 else inner
        # Running sums are stored, and added to, in their own dtype.
        limit = terms * (own if i == 4 else eps) * size + own * np.abs(expected)
        apart = np.abs(result.astype(np.longdouble) - expected)
        assert (apart <= limit).all(), f"sum {i}: {float(np.max(apart / limit))} times the bound"
