"""weft.scipy.stats: distributions against SciPy's, derivatives at borders of supports, descriptive functions."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.older_scipy import need_judge
from weft.errors import ArgumentError, NotSupportedError, ShapeMismatchError
from weft.scipy import stats
from weft.test_util import check_grads

scipy_stats = pytest.importorskip("scipy.stats")

X = np.concatenate([np.linspace(-6.03, 6.03, 25), np.array([0.0, 1.0, -40.0, 55.0, np.nan])])
Q = np.array([0.0, 1e-9, 0.1, 0.5, 0.75, 0.999, 1.0, -0.1, 1.5])
K = np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 7.0, 20.0, 1.5])

# The distribution, values at which it is looked at, and its parameters; those of SciPy are the same.
CONTINUOUS: dict[str, tuple[np.ndarray, list[dict[str, Any]]]] = {
    "norm": (X, [{}, {"loc": 1.5, "scale": 0.3}]),
    "cauchy": (X, [{}, {"loc": 1.5, "scale": 0.3}]),
    "expon": (X, [{}, {"loc": -1.0, "scale": 3.0}]),
    "gamma": (X, [{"a": 0.7}, {"a": 12.5, "loc": -1.0, "scale": 2.0}]),
    "chi2": (X, [{"df": 3.0}, {"df": 0.5, "loc": -1.0, "scale": 2.0}]),
    "beta": (X, [{"a": 0.7, "b": 2.0, "loc": -2.0, "scale": 7.0}, {"a": 20.0, "b": 30.0}]),
    "laplace": (X, [{}, {"loc": 1.5, "scale": 0.3}]),
    "logistic": (X, [{}, {"loc": 1.5, "scale": 0.3}]),
    "gumbel_l": (X / 2, [{}, {"loc": 0.5, "scale": 1.3}]),
    "gumbel_r": (X / 2, [{}, {"loc": 0.5, "scale": 1.3}]),
    "pareto": (X, [{"b": 2.5}, {"b": 0.7, "loc": -3.0, "scale": 2.0}]),
    "t": (X, [{"df": 3.0}, {"df": 1e6, "loc": 1.0, "scale": 2.0}]),
    "truncnorm": (X, [{"a": -1.0, "b": 2.0}, {"a": 5.0, "b": 9.0}, {"a": -np.inf, "b": 0.5, "loc": 1.0, "scale": 2.0}]),
    "uniform": (X, [{}, {"loc": -2.0, "scale": 5.0}]),
    "vonmises": (np.linspace(-3, 3, 9), [{"kappa": 0.5}, {"kappa": 300.0}]),
    "wrapcauchy": (np.linspace(-1, 7, 9), [{"c": 0.3}]),
    "gennorm": (X[:27], [{"beta": 0.7}, {"beta": 3.0}]),
}
DISCRETE: dict[str, tuple[np.ndarray, list[dict[str, Any]]]] = {
    "bernoulli": (K, [{"p": 0.3}, {"p": 1.0}]),
    "binom": (K, [{"n": 7, "p": 0.3}, {"n": 7, "p": 0.0}]),
    "geom": (K, [{"p": 0.3, "loc": 1}, {"p": 1.0}]),
    "nbinom": (K, [{"n": 2.5, "p": 0.3}]),
    "betabinom": (K, [{"n": 7, "a": 0.7, "b": 2.0}]),
    "poisson": (K, [{"mu": 2.5}, {"mu": 0.0, "loc": 1}]),
}
QUANTILES = ("ppf", "isf")


def functions(name: str) -> list[str]:
    return [f for f, value in vars(getattr(stats, name)).items() if inspect.isfunction(value) and f in FUNCTIONS]


FUNCTIONS = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
CASES = [(d, f) for d in (*CONTINUOUS, *DISCRETE) for f in functions(d)]


def test_all_are_there() -> None:
    assert {d for d, _ in CASES} | {"dirichlet", "multinomial", "multivariate_normal"} == {
        name for name in stats.__all__ if inspect.ismodule(getattr(stats, name))
    }
    assert str(inspect.signature(stats.gamma.logpdf)).startswith("(x: Any, a: Any, loc: Any = 0, scale: Any = 1)")


@pytest.mark.parametrize(("distribution", "function"), CASES)
def test_values(distribution: str, function: str) -> None:
    need_judge(function, distribution)
    values, parameters = (CONTINUOUS | DISCRETE)[distribution]
    ours, theirs = (getattr(getattr(m, distribution), function) for m in (stats, scipy_stats))
    values = Q if function in QUANTILES else values
    values = values[1:] if (distribution, function) == ("bernoulli", "ppf") else values  # SciPy has -1 for 0
    for own in parameters:
        with np.errstate(all="ignore"):
            expected = theirs(values, **own)
        with weft.enable_x64(True):
            got = ours(values, **own)
            np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-14 if distribution in DISCRETE else 1e-300)
        short = ours(values.astype(np.float32), **own)
        assert short.dtype == np.float32
        if function not in QUANTILES:
            representable = ~(abs(expected) > 80) | np.isinf(expected)  # of others the probability underflows
            np.testing.assert_allclose(short[representable], expected[representable], rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize(("distribution", "function"), [c for c in CASES if c[1] in ("logpdf", "logsf")])
def test_derivatives(distribution: str, function: str) -> None:
    _, parameters = (CONTINUOUS | DISCRETE)[distribution]
    own = parameters[0]
    names = list(own)
    inside = np.array([1.3, 1.7])
    if distribution in ("beta", "truncnorm", "wrapcauchy", "uniform"):
        inside = np.array([0.3, 0.7])
    if function in QUANTILES:
        inside = np.array([0.3, 0.8])
    if distribution in DISCRETE:
        return
    call = getattr(getattr(stats, distribution), function)
    with weft.enable_x64(True):

        def f(x: Any, *parameters: Any) -> Any:
            return call(x, **dict(zip(names, parameters, strict=True)))

        args = (inside, *(np.array([own[n]] * 2, np.float64) for n in names))
        check_grads(f, args, order=2 if distribution in ("norm", "gamma", "t") else 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("distribution", sorted(DISCRETE))
def test_derivatives_in_parameters(distribution: str) -> None:
    own = {n: v for n, v in DISCRETE[distribution][1][0].items() if n not in ("loc", "n")}
    fixed = {n: v for n, v in DISCRETE[distribution][1][0].items() if n in ("loc", "n")}
    k = np.array([0.0, 1.0]) + (2 if distribution == "geom" else 0)
    call = getattr(stats, distribution).logpmf
    with weft.enable_x64(True):

        def f(*parameters: Any) -> Any:
            return call(k, **dict(zip(own, parameters, strict=True)), **fixed)

        check_grads(f, tuple(np.array([v, v + 0.1]) for v in own.values()), order=1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["cdf", "sf", "logcdf", "logsf"])
def test_beta_at_numbers_that_vanish_beside_one(name: str) -> None:
    need_judge(name, "beta")
    x, a, b = np.array([1e-300, 1e-30, 1e-4, 0.04]), np.array([1e-3, 1e-3, 1.0, 1e-3]), np.array([1e3, 1e3, 1e6, 7e3])
    with weft.enable_x64(True):
        expected = getattr(scipy_stats.beta, name)(x, a, b)
        np.testing.assert_allclose(getattr(stats.beta, name)(x, a, b), expected, rtol=1e-9)


def test_derivatives_at_borders() -> None:
    grad = weft.grad
    assert grad(stats.gamma.cdf)(0.0, 1.0) == 1 and grad(stats.chi2.sf)(0.0, 2.0) == -0.5
    assert grad(stats.expon.logpdf)(0.0) == -1
    assert grad(stats.expon.logpdf)(-1.0) == 0
    assert grad(stats.gamma.logpdf)(0.0, 1.0) == -1
    assert grad(stats.gamma.logpdf, argnums=1)(-1.0, 2.0) == 0
    assert grad(stats.beta.logpdf)(0.0, 1.0, 3.0) == -2
    assert grad(stats.beta.logpdf)(1.0, 3.0, 1.0) == 2
    assert grad(stats.binom.logpmf, argnums=2)(0.0, 5.0, 0.0) == -5
    assert grad(stats.binom.logpmf, argnums=2)(5.0, 5.0, 1.0) == 5
    assert grad(stats.poisson.logpmf, argnums=1)(0.0, 0.0) == -1
    assert grad(stats.uniform.logpdf)(0.0) == 0
    assert grad(stats.norm.logcdf)(-1e4) == pytest.approx(1e4)
    assert grad(stats.norm.logpdf, argnums=2)(0.0, 0.0, 1.0) == -1
    assert grad(stats.truncnorm.logpdf, argnums=1)(9.0, 8.0, np.inf) == pytest.approx(8.12, rel=1e-3)
    assert np.isfinite(grad(stats.t.logpdf, argnums=1)(0.0, 1e30))
    assert grad(lambda x: stats.gennorm.logpdf(x, 2.0))(0.0) == 0


# A density at an edge, or of a parameter there, and the argument that moves inside.
AT_EDGES = [
    ("gamma.pdf", (0.0, 2.0), 0),
    ("gamma.pdf", (0.0, 3.5), 0),
    ("chi2.pdf", (0.0, 4.0), 0),
    ("chi2.pdf", (0.0, 7.0), 0),
    ("beta.pdf", (0.0, 2.0, 0.5), 0),
    ("beta.pdf", (0.0, 3.0, 2.0), 0),
    ("beta.pdf", (1.0, 0.5, 2.0), 0),
    ("beta.pdf", (1.0, 2.0, 3.5), 0),
    ("poisson.pmf", (1.0, 0.0), 1),
    ("poisson.pmf", (3.0, 0.0), 1),
    ("geom.pmf", (2.0, 1.0), 1),
    ("geom.pmf", (5.0, 1.0), 1),
    ("binom.pmf", (1.0, 3.0, 0.0), 2),
    ("binom.pmf", (2.0, 3.0, 1.0), 2),
    ("nbinom.pmf", (1.0, 2.0, 1.0), 2),
    ("gumbel_l.pdf", (800.0,), 0),
    ("gumbel_r.pdf", (-800.0,), 0),
]


@pytest.mark.parametrize(("name", "args", "moves"), AT_EDGES, ids=str)
def test_derivatives_at_edges_are_those_beside_them(name: str, args: tuple[float, ...], moves: int) -> None:
    distribution, function = name.split(".")
    f = getattr(getattr(stats, distribution), function)
    discrete = function == "pmf"
    with weft.enable_x64(True):
        for i in range(1 if discrete else 0, len(args)):
            beside = list(args)
            beside[moves] += -1e-9 if args[moves] == 1 else 1e-9
            np.testing.assert_allclose(weft.grad(f, i)(*args), weft.grad(f, i)(*beside), rtol=1e-5, atol=1e-6)
        if not discrete:
            beside = [args[0] + (-1e-9 if args[0] == 1 else 1e-9), *args[1:]]
            for axis in ("loc", "scale"):
                own = [
                    weft.grad(lambda v, a=a, axis=axis: f(*a, **{axis: v}))(float(axis == "scale"))
                    for a in (args, beside)
                ]
                np.testing.assert_allclose(*own, rtol=1e-5, atol=1e-6)


def test_densities_at_infinity() -> None:
    for f, shape in [(stats.gamma, 2.5), (stats.chi2, 3.0)]:
        assert [float(getattr(f, g)(np.inf, shape)) for g in ("pdf", "logpdf", "cdf", "sf")] == [0, -np.inf, 1, 0]
        for g in ("pdf", "cdf", "sf"):
            assert float(weft.grad(getattr(f, g))(np.inf, shape)) == 0


def test_invalid_parameters_are_nan() -> None:
    assert np.isnan(stats.norm.logpdf(0.0, 0.0, -1.0))
    assert np.isnan(stats.norm.cdf(0.0, 0.0, 0.0))
    assert np.isnan(stats.binom.logpmf(1, 3, 1.5))
    assert np.isnan(stats.truncnorm.logpdf(0.0, 1.0, -1.0))


def test_large_counts_keep_their_digits() -> None:
    got = stats.poisson.logpmf(np.float32(1e6), np.float32(1e6))
    np.testing.assert_allclose(got, scipy_stats.poisson.logpmf(10**6, 1e6), rtol=1e-6)
    got = stats.binom.logpmf(np.float32(5e5), np.float32(1e6), np.float32(0.5))
    np.testing.assert_allclose(got, scipy_stats.binom.logpmf(500000, 10**6, 0.5), rtol=1e-6)


def test_poisson() -> None:
    mu = np.array([0.0, 0.5, 10.0, 150.0, 1000.0])
    with weft.enable_x64(True):
        np.testing.assert_allclose(stats.poisson.entropy(mu), scipy_stats.poisson.entropy(mu), rtol=1e-9, atol=1e-12)
    assert stats.poisson.cdf(2.5, 1.0) == stats.poisson.cdf(2, 1.0)
    np.testing.assert_array_equal(stats.bernoulli.ppf(np.array([0.0, 0.7, 0.8, 2.0]), 0.3), [0, 0, 1, np.nan])


def test_vectors() -> None:
    rng = np.random.default_rng(0)
    x = rng.dirichlet(np.ones(3), 4).T
    alpha = np.array([0.7, 1.0, 3.0])
    with weft.enable_x64(True):
        np.testing.assert_allclose(stats.dirichlet.logpdf(x, alpha), scipy_stats.dirichlet.logpdf(x, alpha), rtol=1e-12)
        np.testing.assert_allclose(stats.dirichlet.pdf(x[:2], alpha), scipy_stats.dirichlet.pdf(x, alpha), rtol=1e-9)
        counts, p = np.array([[1, 2, 0], [3, 0, 1]]), np.array([0.2, 0.3, 0.5])
        expected = scipy_stats.multinomial.logpmf(counts, [3, 4], p)
        np.testing.assert_allclose(stats.multinomial.logpmf(counts, np.array([3, 4]), p), expected, rtol=1e-12)
        assert stats.multinomial.pmf(counts[0], 5, p) == 0
        root = rng.normal(size=(3, 3))
        mean, cov, points = rng.normal(size=3), root @ root.T + np.eye(3), rng.normal(size=(5, 3))
        expected = scipy_stats.multivariate_normal.logpdf(points, mean, cov)
        np.testing.assert_allclose(stats.multivariate_normal.logpdf(points, mean, cov), expected, rtol=1e-11)
        np.testing.assert_allclose(stats.multivariate_normal.pdf(points, mean, cov), np.exp(expected), rtol=1e-11)
        batch = np.stack([cov, 2 * cov])[:, None]
        assert stats.multivariate_normal.logpdf(points, mean, batch).shape == (2, 5)
        np.testing.assert_allclose(
            stats.multivariate_normal.logpdf(1.0, 0.0, 2.0), scipy_stats.norm.logpdf(1, 0, 2**0.5)
        )
        check_grads(stats.multivariate_normal.logpdf, (points, mean, cov), order=1, rtol=1e-5)
    with pytest.raises(ShapeMismatchError, match="one less"):
        stats.dirichlet.logpdf(np.ones(5), alpha)
    with pytest.raises(ShapeMismatchError, match="square matrix"):
        stats.multivariate_normal.logpdf(points, mean, np.ones((2, 2)))
    with pytest.raises(NotSupportedError, match="allow_singular"):
        stats.multivariate_normal.logpdf(points, mean, cov, allow_singular=True)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_descriptive(axis: int | None) -> None:
    x = np.random.default_rng(1).integers(0, 4, (5, 6))
    for keepdims in (False, True):
        got, expected = (m.mode(x, axis=axis, keepdims=keepdims) for m in (stats, scipy_stats))
        np.testing.assert_array_equal(got.mode, expected.mode)
        np.testing.assert_array_equal(got.count, expected.count)
        got, expected = (m.sem(x.astype(np.float32), axis=axis, keepdims=keepdims) for m in (stats, scipy_stats))
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    for method in ("average", "min", "max", "dense", "ordinal"):
        got, expected = (m.rankdata(x, method, axis=axis) for m in (stats, scipy_stats))
        np.testing.assert_array_equal(got, expected)


def test_descriptive_edges() -> None:
    gaps = np.array([1.0, np.nan, 2.0, 4.0], np.float32)
    np.testing.assert_allclose(stats.sem(gaps, nan_policy="omit"), scipy_stats.sem(gaps, nan_policy="omit"), rtol=1e-6)
    assert np.isnan(stats.sem(gaps))
    assert np.isnan(stats.rankdata(gaps)).all()
    check_grads(stats.sem, (np.array([1.0, 2.0, 5.0], np.float32),), order=1, rtol=1e-2, atol=1e-2)
    assert weft.jit(weft.vmap(lambda x: stats.mode(x).mode))(np.array([[1, 1, 2], [3, 2, 2]])).tolist() == [1, 2]
    with pytest.raises(NotSupportedError, match="omit"):
        stats.mode(gaps, nan_policy="omit")
    with pytest.raises(NotSupportedError, match="raise"):
        stats.sem(gaps, nan_policy="raise")
    with pytest.raises(ArgumentError, match="unknown method"):
        stats.rankdata(gaps, "best")


@pytest.mark.parametrize("size", [(30,), (2, 30)])
def test_density_estimates(size: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    data, weights = rng.normal(size=size), rng.uniform(size=30)
    points = rng.normal(size=(*size[:-1], 7))
    with weft.enable_x64(True):
        for options in ({}, {"weights": weights}, {"bw_method": "silverman"}, {"bw_method": 0.4}):
            ours, theirs = stats.gaussian_kde(data, **options), scipy_stats.gaussian_kde(data, **options)
            np.testing.assert_allclose(ours.logpdf(points), theirs.logpdf(points), rtol=1e-10)
            np.testing.assert_allclose(ours.inv_cov, theirs.inv_cov, rtol=1e-10)
        np.testing.assert_allclose(ours(points), theirs(points), rtol=1e-10)
        np.testing.assert_allclose(ours.integrate_kde(ours), theirs.integrate_kde(theirs), rtol=1e-10)
        mean, cov = np.zeros(ours.d), np.eye(ours.d)
        np.testing.assert_allclose(ours.integrate_gaussian(mean, cov), theirs.integrate_gaussian(mean, cov), rtol=1e-10)
        assert ours.resample(weft.random.key(0), (4, 2)).shape == (ours.d, 4, 2)
        through = weft.jit(lambda kde, x: kde.pdf(x))(ours, points)
        np.testing.assert_allclose(through, theirs.pdf(points), rtol=1e-10)
        if ours.d == 1:
            np.testing.assert_allclose(ours.integrate_box_1d(-1, 2), theirs.integrate_box_1d(-1, 2), rtol=1e-10)
        else:
            with pytest.raises(ArgumentError, match="one dimension"):
                ours.integrate_box_1d(0, 1)


def test_errors_of_density_estimates() -> None:
    with pytest.raises(ArgumentError, match="several samples"):
        stats.gaussian_kde(1.0)
    with pytest.raises(ShapeMismatchError, match="weights"):
        stats.gaussian_kde(wnp.arange(3.0), weights=wnp.ones(2))
    with pytest.raises(ArgumentError, match="bw_method"):
        stats.gaussian_kde(wnp.arange(3.0), bw_method="best")
    with pytest.raises(NotSupportedError, match="immutable"):
        stats.gaussian_kde(wnp.arange(3.0)).set_bandwidth()
