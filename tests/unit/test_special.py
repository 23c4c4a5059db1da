"""weft.scipy.special: values over wide ranges against SciPy, limits, dtypes, derivatives where they are delicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.older_scipy import need_judge
from weft.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.scipy import special
from weft.test_util import check_grads

scipy_special = pytest.importorskip("scipy.special")

REAL = np.concatenate([np.linspace(-9.9, 9.9, 67), np.array([0.0, -0.0, 1e-30, -1e-12, 25.3, -31.7, 1e4, -1e5])])
POSITIVE = np.concatenate([np.linspace(0.05, 30.05, 61), np.logspace(-20, 5, 26)])
UNIT = np.concatenate([np.linspace(0.0, 1.0, 41), np.logspace(-30, -2, 15)])
EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
INTEGERS = np.arange(0.0, 13.0)


def pairs(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(len(first) + len(second))
    return first, rng.choice(second, len(first))


# The name, the arguments, and what an error may be in float64, in units of the last digit: that of SciPy is in it too.
CASES: dict[str, tuple[tuple[np.ndarray, ...], float]] = {
    "bernoulli": ((), 0),
    "beta": (pairs(POSITIVE[:60], POSITIVE[:60]), 100),
    "betaln": (pairs(POSITIVE, POSITIVE), 30000),
    "boxcox": (pairs(POSITIVE, REAL[:60] / 3), 300),
    "boxcox1p": (pairs(POSITIVE, REAL[:60] / 3), 300),
    "comb": (pairs(INTEGERS * 3, INTEGERS), 40),
    "dawsn": ((REAL,), 40),
    "digamma": ((POSITIVE,), 40),
    "entr": ((REAL,), 8),
    "erf": ((REAL,), 8),
    "erfc": ((REAL,), 200),
    "erfcx": ((REAL[REAL > -25],), 200),
    "erfinv": ((UNIT,), 20),
    "exp1": ((POSITIVE,), 40),
    "expi": ((np.concatenate([POSITIVE[:60], -POSITIVE[:60]]),), 60),
    "expit": ((REAL,), 8),
    "expn": (pairs(POSITIVE[::-1], INTEGERS)[::-1], 200),
    "factorial": ((INTEGERS,), 0),
    "fresnel": ((REAL,), 40),
    "gamma": ((np.concatenate([POSITIVE[:75], REAL[:30] - 0.01]),), 60),
    "gammainc": (pairs(POSITIVE[:60], POSITIVE[:60]), 500),
    "gammaincc": (pairs(POSITIVE[:60], POSITIVE[:60]), 500),
    "gammaln": ((POSITIVE,), 40),
    "gammasgn": ((REAL[:60] + 0.01,), 0),
    "i0": ((REAL[:70],), 20),
    "i0e": ((REAL,), 20),
    "i1": ((REAL[:70],), 20),
    "i1e": ((REAL,), 20),
    "kl_div": (pairs(POSITIVE[:70], POSITIVE[::-1]), 400),
    "log_ndtr": ((REAL,), 300),
    "logit": ((UNIT,), 20),
    "ndtr": ((REAL,), 2000),
    "ndtri": ((UNIT,), 40),
    "owens_t": (pairs(REAL[:60], REAL[:60]), 2000),
    "poch": (pairs(POSITIVE[:60] / 3, POSITIVE[:30]), 300),
    "rel_entr": (pairs(POSITIVE[:70], POSITIVE[::-1]), 200),
    "sici": ((POSITIVE,), 200),
    "spence": ((POSITIVE,), 40),
    "xlog1py": (pairs(REAL, POSITIVE), 8),
    "xlogy": (pairs(REAL, POSITIVE), 8),
}
SHAPED = {"softmax", "log_softmax", "logsumexp", "multigammaln", "betainc", "zeta", "polygamma", "wofz", "loggamma"}
OWN_TESTS = SHAPED | {"bernoulli", "bessel_jn", "hyp1f1", "hyp2f1", "sph_harm_y"}


def units(got: Any, expected: Any, dtype: Any) -> float:
    """Return the largest error in units of the last digit of a dtype; infinite where only one is nan or infinite."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype).astype(np.float64)
        same = (got == rounded) | (np.isnan(got) & np.isnan(expected))
        spacing = np.spacing(np.abs(expected).astype(dtype)).astype(np.float64)
        error = np.abs(got - expected) / spacing
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    return float(error.max(initial=0.0))


def results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"bernoulli"}))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(name: str, dtype: Any) -> None:
    """Over the range and at the edges. In float32 nearly all are right to the last digit."""
    args, budget = CASES[name]
    narrow = [x.astype(dtype) for x in args]
    function = getattr(special, name)
    with weft.enable_x64(dtype == np.float64), np.errstate(all="ignore"):
        expected = results(getattr(scipy_special, name)(*(x.astype(np.float64) for x in narrow)))
        for got, value in zip(results(weft.jit(function)(*narrow)), expected, strict=True):
            assert got.dtype == dtype
            error = units(got, value, dtype)
            assert error <= (6 if dtype == np.float32 else budget), f"{error} units"


def test_every_function_is_tested() -> None:
    assert set(special.__all__) == CASES.keys() | OWN_TESTS


@pytest.mark.parametrize(
    "name", ["erf", "ndtr", "log_ndtr", "entr", "gamma", "expi", "dawsn", "spence", "sici", "logit"]
)
def test_edges(name: str) -> None:
    need_judge(name)
    edges = EDGES if name != "spence" else EDGES[EDGES != np.inf]  # SciPy has no limit there
    with weft.enable_x64(True), np.errstate(all="ignore"):
        for got, expected in zip(
            results(getattr(special, name)(edges)), results(getattr(scipy_special, name)(edges)), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_functions_of_several_arguments() -> None:
    rng = np.random.default_rng(0)
    a, b, x = (np.round(rng.uniform(0.1, 20, 40), 1) for _ in range(3))
    x = x / 20
    s = np.array([-20.5, -3, -2, 0, 0.5, 1, 2, 30])
    with weft.enable_x64(True):
        np.testing.assert_allclose(special.betainc(a, b, x), scipy_special.betainc(a, b, x), rtol=1e-13)
        np.testing.assert_allclose(special.zeta(a + 1, b), scipy_special.zeta(a + 1, b), rtol=1e-13)
        np.testing.assert_allclose(special.zeta(s), scipy_special.zeta(s), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(special.polygamma(2, a), scipy_special.polygamma(2, a), rtol=1e-13)
        np.testing.assert_allclose(special.multigammaln(a + 1, 3), scipy_special.multigammaln(a + 1, 3), rtol=1e-13)
    np.testing.assert_array_equal(special.comb(5, 2, repetition=True), 15)
    np.testing.assert_allclose(special.poch(-3.0, 2.0), scipy_special.poch(-3.0, 2.0))
    with weft.enable_x64(True):
        np.testing.assert_allclose(special.bernoulli(20), scipy_special.bernoulli(20), rtol=1e-11)


def test_complex_functions() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=60) * 4 + 1j * rng.normal(size=60) * 3
    with weft.enable_x64(True):
        np.testing.assert_allclose(special.wofz(z), scipy_special.wofz(z), rtol=1e-12)
        np.testing.assert_allclose(special.erfcx(z), scipy_special.erfcx(z), rtol=1e-12)
        np.testing.assert_allclose(special.loggamma(z), scipy_special.loggamma(z), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(special.gamma(z), scipy_special.gamma(z), rtol=1e-11)
        np.testing.assert_allclose(special.wofz(REAL[:60]), scipy_special.wofz(REAL[:60]), rtol=1e-12)
        check_grads(special.wofz, (z[:4],), order=2, rtol=1e-5, atol=1e-5)
        check_grads(special.loggamma, (z[:4],), order=2, rtol=1e-4, atol=1e-4)
    assert special.wofz(np.float32(1)).dtype == np.complex64
    assert special.wofz(np.float16(1)) == special.wofz(np.float32(1))


def test_softmax_and_logsumexp() -> None:
    x = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32) * 50
    for axis in (None, 0, (0, 1)):
        np.testing.assert_allclose(special.softmax(x, axis=axis), scipy_special.softmax(x, axis=axis), rtol=1e-5)
        np.testing.assert_allclose(
            special.log_softmax(x, axis=axis), scipy_special.log_softmax(x, axis=axis), rtol=1e-5
        )
    b = np.sign(x)
    got, sign = special.logsumexp(x, axis=1, b=b, return_sign=True)
    expected, expected_sign = scipy_special.logsumexp(x, axis=1, b=b, return_sign=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_array_equal(sign, expected_sign)
    assert special.logsumexp(x, axis=1, keepdims=True, where=x > 0).shape == (3, 1)


@pytest.mark.parametrize("name", ["erfcx", "gamma", "xlogy", "ndtri", "beta", "betainc"])
@pytest.mark.parametrize("dtype", [wnp.float16, wnp.bfloat16])
def test_short_floats_are_rounded_once(name: str, dtype: Any) -> None:
    count = {"xlogy": 2, "beta": 2, "betainc": 3}.get(name, 1)
    args = [wnp.asarray(np.linspace(0.1 + i / 10, 0.9, 9), dtype) for i in range(count)]
    got = getattr(special, name)(*args)
    expected = getattr(scipy_special, name)(*(np.asarray(x).astype(np.float64) for x in args))
    assert got.dtype == dtype
    np.testing.assert_array_max_ulp(
        np.asarray(got).astype(np.float32), expected.astype(dtype).astype(np.float32), 2**16
    )
    np.testing.assert_allclose(np.asarray(got).astype(np.float64), expected, rtol=float(wnp.finfo(dtype).eps))


# --------------------------------------------------------------------------------------------------------- derivatives

DERIVATIVES: dict[str, tuple[Any, ...]] = {
    "betainc": (np.array([0.7, 2.0, 9.0]), np.array([1.5, 0.6, 14.0]), np.array([0.2, 0.9, 0.45])),
    "beta": (np.array([0.7, 2.0]), np.array([1.5, 0.6])),
    "comb": (np.array([5.0, 7.5]), np.array([2.0, 3.5])),
    "factorial": (np.array([2.0, 3.5]),),
    "gammainc": (np.array([0.7, 2.0]), np.array([1.5, 0.6])),
    "poch": (np.array([0.7, 2.0]), np.array([1.5, 0.6])),
    "zeta": (np.array([2.5, 4.0]), np.array([1.5, 0.6])),
    "log_ndtr": (np.array([-30.0, -1.0, 0.5, 6.0]),),
    "sici": (np.array([0.3, 5.0, 30.0]),),
    "fresnel": (np.array([0.3, 2.0, 4.3]),),
    "expn": (np.array([1.0, 3.0]), np.array([0.5, 4.0])),
    "boxcox": (np.array([0.5, 3.0, 3.0]), np.array([0.3, 0.0, -1.0])),
}


@pytest.mark.parametrize("name", sorted(DERIVATIVES))
def test_derivatives(name: str) -> None:
    with weft.enable_x64(True):
        args = DERIVATIVES[name]
        function: Callable[..., Any] = getattr(special, name)
        if name == "expn":
            function, args = (lambda x: special.expn(np.array([1.0, 3.0]), x)), args[1:]
        check_grads(function, args, order=2, rtol=1e-5, atol=1e-5)


def test_derivatives_are_finite_where_the_limits_are() -> None:
    grad = weft.grad
    assert grad(special.xlogy, argnums=1)(0.0, 0.0) == 0
    assert grad(special.xlog1py, argnums=1)(0.0, -1.0) == 0
    assert grad(special.rel_entr, argnums=1)(0.0, 0.0) == 0
    assert grad(special.kl_div, argnums=1)(0.0, 0.0) == 1
    assert grad(special.boxcox, argnums=1)(2.0, 0.0) == pytest.approx(np.log(2) ** 2 / 2, rel=1e-6)
    assert grad(special.spence)(1.0) == -1
    assert grad(grad(special.spence))(1.0) == pytest.approx(0.5)
    assert grad(lambda x: special.sici(x)[0])(0.0) == 1
    assert grad(special.gammainc, argnums=1)(1.0, 0.0) == 1
    assert grad(grad(special.gammainc, argnums=1), argnums=1)(1.0, 0.0) == -1
    assert grad(weft.lax.betainc, argnums=2)(1.0, 2.0, 0.0) == 2
    assert grad(weft.lax.betainc, argnums=2)(2.0, 1.0, 1.0) == 2
    far = weft.vmap(grad(special.log_ndtr))(wnp.array([-1e10, -1e3, 1e3]))
    np.testing.assert_allclose(far, [1e10, 1e3 + 1e-3, 0.0], rtol=1e-6)
    np.testing.assert_allclose(
        weft.vmap(grad(special.erfcx))(wnp.array([1e4])), [-1 / np.sqrt(np.pi) * 1e-8], rtol=1e-6
    )
    np.testing.assert_allclose(weft.vmap(grad(grad(special.dawsn)))(wnp.array([1e4])), [1e-12], rtol=1e-5)


def test_compositions() -> None:
    x = wnp.linspace(0.2, 0.8, 5)

    def f(x: Any) -> Any:
        return special.ndtri(x) * special.gamma(x) + special.betainc(x, 1 + x, x) + special.expi(x)

    expected = np.stack([weft.grad(f)(value) for value in x])
    np.testing.assert_allclose(weft.jit(weft.vmap(weft.grad(f)))(x), expected, rtol=1e-5)
    np.testing.assert_array_equal(weft.jit(special.erfcx)(x), special.erfcx(x))


def test_double_values_outlive_the_setting() -> None:
    """A program that computes in float64 is differentiated and batched after `enable_x64` is off again."""

    @weft.jit
    def f(x: Any) -> Any:
        with weft.enable_x64(True):
            y = x.astype(np.float64)
            y = wnp.where(y > 0, wnp.exp(y) * 2.0, wnp.log(1 - y)) + 1e-17
            y = weft.lax.while_loop(lambda c: wnp.any(c < 10), lambda c: c * 2, y)
            return y.astype(x.dtype)

    x = np.array([0.5, -0.5], np.float32)
    np.testing.assert_allclose(weft.vmap(weft.grad(f))(x), [8 * np.exp(0.5), -1 / 1.5 * 32], rtol=1e-6)


# -------------------------------------------------------------------------------------------------------------- errors


def test_errors() -> None:
    with pytest.raises(ArgumentTypeError, match="ndarray or scalar"):
        special.erf([1.0])
    with pytest.raises(ArgumentTypeError, match="real numbers"):
        special.ndtr(1j)
    with pytest.raises(NotSupportedError, match="exact"):
        special.factorial(3, exact=True)
    with pytest.raises(ArgumentError, match="positive integer"):
        special.multigammaln(3.0, 2.5)
    with pytest.raises(ArgumentError, match="from 0 up"):
        special.bernoulli(-1)
    with pytest.raises(AttributeError, match=r"did you mean weft\.scipy\.special\.erfinv"):
        special.erf_inv


def test_bessel_functions() -> None:
    z = np.concatenate([np.linspace(-60, 60, 81), np.array([0.0, 1e-10, 2.404825557695773, 1e4, np.nan])])
    expected = np.stack([scipy_special.jv(n, z) for n in range(7)])
    with weft.enable_x64(True):
        np.testing.assert_allclose(special.bessel_jn(z, v=6), expected, rtol=1e-12, atol=1e-15)
        check_grads(lambda x: special.bessel_jn(x, v=2), (np.array([0.5, 9.0]),), order=2, rtol=1e-5)
    assert special.bessel_jn(np.float32(1), v=0).shape == (1,)
    with pytest.raises(ArgumentError, match="from 0 up"):
        special.bessel_jn(1.0, v=-1)


def test_hypergeometric_functions() -> None:
    a, b, x = map(np.ravel, np.meshgrid([-2.0, 0.5, 8.0], [0.4, 1.0, 3.5], [-150.0, -5.0, 0.1, 20.0, 150.0]))
    p, q, r, y = map(np.ravel, np.meshgrid([-2.0, 0.5, 2.0], [0.4, 1.0], [0.7, 5.0], [-50.0, -0.5, 0.7, 0.999, 1.0]))
    with weft.enable_x64(True):
        np.testing.assert_allclose(special.hyp1f1(a, b, x), scipy_special.hyp1f1(a, b, x), rtol=1e-12)
        np.testing.assert_allclose(special.hyp2f1(p, q, r, y), scipy_special.hyp2f1(p, q, r, y), rtol=1e-9)
        check_grads(special.hyp1f1, (0.5, 1.5, -0.7), order=1, rtol=1e-5)
        check_grads(special.hyp2f1, (0.5, 1.5, 2.3, 0.3), order=1, modes=["fwd"], rtol=1e-5)


def test_spherical_harmonics() -> None:
    need_judge("sph_harm_y")
    n, m = np.meshgrid(np.arange(6), np.arange(-5, 6))
    inside = abs(m) <= n
    with weft.enable_x64(True):
        got = special.sph_harm_y(n, m, 0.7, 1.9)
        np.testing.assert_allclose(
            got[inside], scipy_special.sph_harm_y(n, m, 0.7, 1.9)[inside], rtol=1e-12, atol=1e-15
        )
        assert not got[~inside].any()
        traced = weft.jit(lambda n: special.sph_harm_y(n, 1, 0.7, 1.9, n_max=5))(np.arange(6))
        np.testing.assert_allclose(traced, special.sph_harm_y(np.arange(6), 1, 0.7, 1.9), rtol=1e-12)
        check_grads(lambda t, p: special.sph_harm_y(3, 1, t, p), (0.5, 1.5), order=2, rtol=1e-4)
    with pytest.raises(ArgumentTypeError, match="integers"):
        special.sph_harm_y(1.5, 0, 0.1, 0.2)
    with pytest.raises(NotSupportedError, match="diff_n"):
        special.sph_harm_y(1, 0, 0.1, 0.2, diff_n=1)
