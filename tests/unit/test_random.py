"""Random keys and draws: the reference draws, the distributions, and the check for keys used twice."""

from __future__ import annotations

import json
import pathlib
import pickle

import numpy as np
import pytest
import scipy

import weft
import weft.numpy as wnp
import weft.random as random
from weft.base.errors import KeyReuseError, MissingRuleError, ShapeMismatchError
from weft.base.settings import threefry_partitionable
from weft.primitives.random.bits import FRY, KeyDtype, threefry2x32

CASES = json.loads((pathlib.Path(__file__).parents[1] / "data" / "random.json").read_text())["cases"]
REJECTION = {"gamma", "beta", "dirichlet", "t"}
SAMPLES = 4000


def draw(case: dict) -> np.ndarray:
    key, call, options = random.key(case["seed"]), case["call"], dict(case["kwargs"])
    take = options.pop("take", None)
    if "shape" in options:
        options["shape"] = tuple(options["shape"])
    for name in ("logits", "alpha"):
        if name in options:
            options[name] = wnp.asarray(np.array(options[name], np.float32))
    if call in ("key_data", "split", "fold_in"):
        result = random.key_data(key if call == "key_data" else getattr(random, call)(key, **options))
    else:
        result = getattr(random, call)(key, **options)
    assert result.dtype.name == case["dtype"]
    return np.asarray(result if take is None else result[:take])


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['call']}-{c['seed']}-{c['kwargs'].get('shape', '')}")
def test_reference_draws(case: dict) -> None:
    got = draw(case)
    want = np.array(case["value"], got.dtype)
    assert list(got.shape) == case["shape"]
    if case["exact"]:
        np.testing.assert_array_equal(got, want)
        return
    wide, expected = got.astype(np.float64), want.astype(np.float64)
    unit = 2.0**-7 if case["dtype"] == "bfloat16" else 2.0**-23
    tolerance = 1e-5 if case["call"] in REJECTION else 2 * unit
    np.testing.assert_allclose(wide, expected, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------------------------------------- keys


def test_keys_are_arrays_of_their_own_dtype() -> None:
    key = random.key(7)
    assert isinstance(key.dtype, KeyDtype) and key.shape == () and str(key.dtype) == "key<fry>"
    assert wnp.issubdtype(key.dtype, weft.dtypes.prng_key)
    assert random.key_impl(key) == "threefry2x32" and random.key_dtype() == FRY
    assert "key<fry>" in repr(key) and "[0 7]" in repr(key)
    again = pickle.loads(pickle.dumps(key))
    assert again.dtype is FRY
    np.testing.assert_array_equal(random.key_data(again), [0, 7])


def test_seeds_are_taken_modulo_the_word() -> None:
    for seed, word in (
        (-1, 2**32 - 1),
        (2**31 + 5, 2**31 + 5),
        (2**40 + 3, 3),
        (np.int64(2**40 + 3), 3),
        (True, 1),
        (np.int8(-1), 2**32 - 1),
    ):
        np.testing.assert_array_equal(random.key_data(random.key(seed)), [0, word])
    np.testing.assert_array_equal(random.PRNGKey(5), [0, 5])
    with weft.enable_x64(True):
        np.testing.assert_array_equal(random.key_data(random.key(2**40 + 3)), [256, 3])
        np.testing.assert_array_equal(random.key_data(random.key(-1)), [2**32 - 1, 2**32 - 1])


def test_raw_and_typed_keys_draw_the_same() -> None:
    typed, raw = random.key(3), random.PRNGKey(3)
    np.testing.assert_array_equal(random.normal(typed, (4,)), random.normal(raw, (4,)))
    assert random.split(raw).shape == (2, 2) and random.split(raw).dtype == np.uint32
    np.testing.assert_array_equal(random.key_data(random.split(typed)), random.split(raw))
    np.testing.assert_array_equal(random.key_data(random.fold_in(typed, 9)), random.fold_in(raw, 9))
    np.testing.assert_array_equal(random.key_data(random.wrap_key_data(raw)), raw)


def test_key_arrays_support_data_movement() -> None:
    keys = random.split(random.key(0), (2, 3))
    words = np.asarray(random.key_data(keys))
    assert keys.shape == (2, 3)
    np.testing.assert_array_equal(random.key_data(keys[1, ::-1]), words[1, ::-1])
    np.testing.assert_array_equal(random.key_data(keys.T), words.swapaxes(0, 1))
    np.testing.assert_array_equal(random.key_data(wnp.concatenate([keys, keys])), np.concatenate([words, words]))
    np.testing.assert_array_equal(random.key_data(keys.reshape(6)), words.reshape(6, 2))
    np.testing.assert_array_equal(
        random.key_data(wnp.where(wnp.array([True, False, True]), keys[0], keys[1]))[1], words[1, 1]
    )


def test_vmap_equals_a_loop() -> None:
    keys, numbers = random.split(random.key(1), 4), wnp.arange(4)
    for draw_one in (
        lambda key: random.normal(key, (3,)),
        lambda key: random.key_data(random.split(key, 2)),
        lambda key: random.randint(key, (3,), 0, 50),
        lambda key: random.gamma(key, 0.7, (3,)),
        lambda key: random.permutation(key, 5),
        lambda key: random.bits(key, (2, 2), "uint8"),
    ):
        np.testing.assert_array_equal(weft.vmap(draw_one)(keys), np.stack([draw_one(key) for key in keys]))
    with_data = weft.vmap(lambda key, i: random.key_data(random.fold_in(key, i)))(keys, numbers)
    np.testing.assert_array_equal(with_data, np.stack([random.key_data(random.fold_in(keys[i], i)) for i in range(4)]))
    over = weft.vmap(lambda i: random.key_data(random.fold_in(keys[0], i)))(numbers)
    np.testing.assert_array_equal(over, np.stack([random.key_data(random.fold_in(keys[0], i)) for i in range(4)]))
    seeds = weft.vmap(lambda s: random.key_data(random.key(s)))(numbers)
    np.testing.assert_array_equal(seeds, [[0, i] for i in range(4)])


def test_threefry_primitive_under_vmap() -> None:
    words = wnp.arange(6, dtype=np.uint32).reshape(2, 3)
    one = weft.vmap(lambda a, b: threefry2x32(a, np.uint32(5), b, words[0]))(words[:, 0], words)
    two = [threefry2x32(words[i, 0], np.uint32(5), words[i], words[0]) for i in range(2)]
    for index in range(2):
        np.testing.assert_array_equal(one[index], np.stack([t[index] for t in two]))


def test_older_layout_of_bits() -> None:
    with threefry_partitionable(False):
        key = random.key(0)
        np.testing.assert_array_equal(
            random.bits(key, (5,)), [2467461003, 428148500, 1688610540, 3840466878, 2562233961]
        )
        np.testing.assert_array_equal(random.bits(key, (5,), "uint8"), [143, 35, 95, 55, 29])
        np.testing.assert_array_equal(
            random.key_data(random.split(key, 3)).ravel()[:3], [2467461003, 428148500, 3186719485]
        )


def test_jaxpr_names_the_primitives() -> None:
    text = str(weft.make_jaxpr(lambda key: random.bits(random.fold_in(key, 3), (2,)))(random.key(0)))
    assert "key<fry>[] = random_fold_in" in text and "random_bits[bit_width=32 shape=(2,)]" in text


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: random.normal(3), TypeError, "needs a random key"),
        (lambda: random.normal(wnp.ones(3)), TypeError, "weft.random.key"),
        (lambda: random.normal(random.split(random.key(0))), ValueError, "vmap"),
        (lambda: random.split(wnp.ones((3, 2), np.uint32)), ValueError, "needs a single key"),
        (lambda: random.key(1.5), TypeError, "integer"),
        (lambda: random.key(np.arange(3)), TypeError, "vmap"),
        (lambda: random.key(2**70), OverflowError, "64 bits"),
        (lambda: random.key(0, impl="foo"), ValueError, "threefry2x32"),
        (lambda: random.fold_in(random.key(0), np.arange(3)), TypeError, "vmap"),
        (lambda: random.normal(random.key(0), (2,), "int32"), ValueError, "int32"),
        (lambda: random.uniform(random.key(0), (2,), "complex64"), ValueError, "complex64"),
        (lambda: random.randint(random.key(0), (2,), 0, 3, "float32"), TypeError, "float32"),
        (lambda: random.uniform(random.key(0), (-1,)), ValueError, "negative"),
        (lambda: random.gamma(random.key(0), wnp.ones(3), (2,)), (ValueError, ShapeMismatchError), "shape"),
        (lambda: random.bernoulli(random.key(0), 0.5, mode="x"), ValueError, "mode"),
        (lambda: random.choice(random.key(0), 3, (4,), replace=False), ValueError, "without replacement"),
        (lambda: random.choice(random.key(0), 3, p=wnp.ones(4)), ValueError, "probability"),
        (
            lambda: random.categorical(random.key(0), wnp.ones((2, 3)), shape=(5, 4)),
            (ValueError, ShapeMismatchError),
            "shape",
        ),
        (lambda: random.bits(random.key(0), dtype="int32"), ValueError, "unsigned"),
        (lambda: random.dirichlet(random.key(0), 1.0), ValueError, "dimension"),
        (lambda: random.key(0) + 1, (TypeError, ValueError, MissingRuleError), "key"),
    ],
)
def test_mistakes_are_named(call, error, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# ------------------------------------------------------------------------------------------------------- distributions

# What is drawn, and the law that it follows: asked for in the test, since SciPy's laws are slow to load.
CONTINUOUS = {
    "uniform": (lambda k, s: random.uniform(k, s, minval=-2.0, maxval=3.0), lambda: scipy.stats.uniform(-2, 5)),
    "normal": (lambda k, s: random.normal(k, s), lambda: scipy.stats.norm()),
    "truncated_normal": (lambda k, s: random.truncated_normal(k, -1.0, 2.0, s), lambda: scipy.stats.truncnorm(-1, 2)),
    "gumbel": (lambda k, s: random.gumbel(k, s), lambda: scipy.stats.gumbel_r()),
    "gumbel_high": (lambda k, s: random.gumbel(k, s, mode="high"), lambda: scipy.stats.gumbel_r()),
    "exponential": (lambda k, s: random.exponential(k, s), lambda: scipy.stats.expon()),
    "laplace": (lambda k, s: random.laplace(k, s), lambda: scipy.stats.laplace()),
    "logistic": (lambda k, s: random.logistic(k, s), lambda: scipy.stats.logistic()),
    "cauchy": (lambda k, s: random.cauchy(k, s), lambda: scipy.stats.cauchy()),
    "gamma": (lambda k, s: random.gamma(k, 2.5, s), lambda: scipy.stats.gamma(2.5)),
    "gamma_small": (lambda k, s: random.gamma(k, 0.3, s), lambda: scipy.stats.gamma(0.3)),
    "loggamma": (lambda k, s: random.loggamma(k, 0.3, s), lambda: scipy.stats.loggamma(0.3)),
    "beta": (lambda k, s: random.beta(k, 2.0, 0.5, s), lambda: scipy.stats.beta(2, 0.5)),
    "dirichlet": (
        lambda k, s: random.dirichlet(k, wnp.array([1.0, 2.0, 3.0]), s)[..., 0],
        lambda: scipy.stats.beta(1, 5),
    ),
    "t": (lambda k, s: random.t(k, 3.0, s), lambda: scipy.stats.t(3)),
    "chisquare": (lambda k, s: random.chisquare(k, 3.0, s), lambda: scipy.stats.chi2(3)),
    "f": (lambda k, s: random.f(k, 3.0, 7.0, s), lambda: scipy.stats.f(3, 7)),
    "weibull_min": (lambda k, s: random.weibull_min(k, 2.0, 1.5, s), lambda: scipy.stats.weibull_min(1.5, scale=2)),
    "pareto": (lambda k, s: random.pareto(k, 2.0, s), lambda: scipy.stats.pareto(2)),
    "rayleigh": (lambda k, s: random.rayleigh(k, 2.0, s), lambda: scipy.stats.rayleigh(scale=2)),
    "maxwell": (lambda k, s: random.maxwell(k, s), lambda: scipy.stats.maxwell()),
    "double_sided_maxwell": (
        lambda k, s: abs(random.double_sided_maxwell(k, 0.0, 2.0, s)),
        lambda: scipy.stats.maxwell(scale=2),
    ),
    "triangular": (lambda k, s: random.triangular(k, 1.0, 2.0, 5.0, s), lambda: scipy.stats.triang(0.25, 1, 4)),
    "wald": (lambda k, s: random.wald(k, 2.0, s), lambda: scipy.stats.invgauss(2)),
    "lognormal": (lambda k, s: random.lognormal(k, 0.7, s), lambda: scipy.stats.lognorm(0.7)),
    "generalized_normal": (lambda k, s: random.generalized_normal(k, 3.0, s), lambda: scipy.stats.gennorm(3)),
    "multivariate_normal": (
        lambda k, s: random.multivariate_normal(k, wnp.array([1.0, 2.0]), wnp.array([[4.0, 1.0], [1.0, 2.0]]), s)[
            ..., 0
        ],
        lambda: scipy.stats.norm(1, 2),
    ),
    "ball": (lambda k, s: wnp.sum(random.ball(k, 3, 2, s) ** 2, -1) ** 1.5, lambda: scipy.stats.uniform()),
    "orthogonal": (lambda k, s: random.orthogonal(k, 2, s)[..., 0, 0], lambda: scipy.stats.arcsine(-1, 2)),
}

DISCRETE = {
    "randint": (lambda k, s: random.randint(k, s, -3, 4), lambda: scipy.stats.randint(-3, 4)),
    "bernoulli": (lambda k, s: random.bernoulli(k, 0.3, s), lambda: scipy.stats.bernoulli(0.3)),
    "bernoulli_high": (lambda k, s: random.bernoulli(k, 0.3, s, mode="high"), lambda: scipy.stats.bernoulli(0.3)),
    "poisson": (lambda k, s: random.poisson(k, 4.0, s), lambda: scipy.stats.poisson(4)),
    "poisson_large": (lambda k, s: random.poisson(k, 15.0, s), lambda: scipy.stats.poisson(15)),
    "binomial": (lambda k, s: random.binomial(k, 12.0, 0.7, s), lambda: scipy.stats.binom(12, 0.7)),
    "binomial_large": (lambda k, s: random.binomial(k, 60.0, 0.4, s), lambda: scipy.stats.binom(60, 0.4)),
    "multinomial": (
        lambda k, s: random.multinomial(k, 9.0, wnp.array([0.2, 0.5, 0.3]), shape=(*s, 3))[..., 1],
        lambda: scipy.stats.binom(9, 0.5),
    ),
    "geometric": (lambda k, s: random.geometric(k, 0.3, s), lambda: scipy.stats.geom(0.3)),
    "categorical": (
        lambda k, s: random.categorical(k, wnp.log(wnp.array([0.2, 0.5, 0.3])), shape=s),
        lambda: scipy.stats.binom(1, 0.5),
    ),
    "choice": (lambda k, s: random.choice(k, 3, s, p=wnp.array([0.2, 0.5, 0.3])), lambda: scipy.stats.binom(1, 0.5)),
    "rademacher": (lambda k, s: (random.rademacher(k, s) + 1) // 2, lambda: scipy.stats.bernoulli(0.5)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_follow_their_distribution(name: str) -> None:
    sampler, law = CONTINUOUS[name]
    drawn = np.asarray(sampler(random.key(11), (SAMPLES,)), np.float64)
    assert drawn.shape == (SAMPLES,)
    assert scipy.stats.kstest(drawn, law().cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_follow_their_distribution(name: str) -> None:
    sampler, law = DISCRETE[name]
    drawn = np.asarray(sampler(random.key(12), (SAMPLES,))).astype(np.int64)
    if name in ("categorical", "choice"):
        drawn = drawn == 1
    values, counts = np.unique(drawn, return_counts=True)
    expected = law().pmf(values) * SAMPLES
    common = expected >= 5
    assert abs(expected.sum() - SAMPLES) < 0.01 * SAMPLES
    deviation = ((counts - expected) ** 2 / np.maximum(expected, 1e-9))[common].sum()
    assert scipy.stats.chi2(max(common.sum() - 1, 1)).sf(deviation) > 1e-3


@pytest.mark.parametrize("name", sorted(CONTINUOUS | DISCRETE))
def test_jit_draws_the_same(name: str) -> None:
    sampler = (CONTINUOUS | DISCRETE)[name][0]
    key = random.key(5)
    np.testing.assert_allclose(weft.jit(lambda key: sampler(key, (7,)))(key), sampler(key, (7,)), rtol=1e-6)


def test_orthogonal_matrices_are_orthogonal() -> None:
    for n, m in ((4, None), (3, 5), (5, 3)):
        q = np.asarray(random.orthogonal(random.key(2), n, (2,), m=m))
        product = q @ q.swapaxes(1, 2) if q.shape[1] <= q.shape[2] else q.swapaxes(1, 2) @ q
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(product.shape[-1]), product.shape), atol=1e-5)


def test_permutations_and_choices() -> None:
    key = random.key(4)
    np.testing.assert_array_equal(np.sort(random.permutation(key, 100)), np.arange(100))
    x = wnp.arange(12).reshape(3, 4)
    columns = np.asarray(random.permutation(key, x, axis=1))
    assert sorted(map(tuple, columns.T)) == sorted(map(tuple, np.asarray(x).T))
    lines = np.asarray(random.permutation(key, x, axis=1, independent=True))
    np.testing.assert_array_equal(np.sort(lines, axis=1), x)
    taken = np.asarray(random.choice(key, x, (2,), replace=False, axis=1))
    assert taken.shape == (3, 2) and len({tuple(c) for c in taken.T}) == 2
    assert random.choice(key, 6, (2, 3), replace=False).shape == (2, 3)
    without = np.asarray(random.categorical(key, wnp.zeros((2, 5)), shape=(4, 2), replace=False))
    assert without.shape == (4, 2) and all(len(set(column)) == 4 for column in without.T)


def test_randint_at_the_ends_of_its_range() -> None:
    key = random.key(9)
    assert set(np.asarray(random.randint(key, (300,), -128, 128, "int8")).tolist()) <= set(range(-128, 128))
    wide = np.asarray(random.randint(key, (1000,), 0, 2**32, "uint32"))
    assert wide.dtype == np.uint32 and wide.max() > 2**32 - 2**24 and wide.min() < 2**24
    np.testing.assert_array_equal(random.randint(key, (3,), 5, 5), [5, 5, 5])
    rows = np.asarray(random.randint(key, (50, 2), wnp.array([0, 100]), wnp.array([3, 104])))
    assert set(rows[:, 0]) == {0, 1, 2} and set(rows[:, 1]) == {100, 101, 102, 103}


def test_gamma_is_differentiable_in_its_parameter() -> None:
    key = random.key(6)
    alpha = 1.7
    drawn = np.asarray(random.gamma(key, alpha, (200,)), np.float64)
    gradients = np.asarray(weft.jacfwd(lambda a: random.gamma(key, a, (200,)))(alpha), np.float64)
    step = 1e-4  # at a fixed quantile the draw moves with the parameter
    difference = scipy.stats.gamma(alpha + step).ppf(scipy.stats.gamma(alpha).cdf(drawn)) - scipy.stats.gamma(
        alpha - step
    ).ppf(scipy.stats.gamma(alpha).cdf(drawn))
    np.testing.assert_allclose(gradients, difference / (2 * step), rtol=2e-3, atol=2e-3)
    log_derivatives = weft.jacfwd(lambda a: random.loggamma(key, a, (5,)))(0.4)
    logs = np.asarray(random.loggamma(key, 0.4, (5,)), np.float64)
    inverse = scipy.stats.loggamma(0.4 + step).ppf(scipy.stats.loggamma(0.4).cdf(logs)) - scipy.stats.loggamma(
        0.4 - step
    ).ppf(scipy.stats.loggamma(0.4).cdf(logs))
    np.testing.assert_allclose(log_derivatives, inverse / (2 * step), rtol=1e-2)


def test_draws_are_differentiable_in_bounds_and_not_in_keys() -> None:
    key = random.key(8)
    u = np.asarray(random.uniform(key, (5,)))
    np.testing.assert_allclose(
        weft.jacfwd(lambda a: random.uniform(key, (5,), minval=a, maxval=3.0))(-1.0), 1 - u, rtol=1e-6
    )
    np.testing.assert_allclose(
        weft.grad(lambda s: (random.normal(key, (5,)) * s).sum())(2.0), np.sum(random.normal(key, (5,))), rtol=1e-6
    )


def test_double_precision_draws() -> None:
    with weft.enable_x64(True):
        key = random.key(0)
        assert random.normal(key, (2,)).dtype == np.float64 and random.randint(key, (2,), 0, 5).dtype == np.int64
        np.testing.assert_array_equal(random.bits(key, (2,)), [7719171245655871230, 3989946895414531357])
        np.testing.assert_allclose(random.uniform(key, (2,)), [0.41845711, 0.21629545], rtol=1e-7)
        np.testing.assert_array_equal(random.randint(key, (2,), 0, 2**40), [455627099919, 205787154559])


# ----------------------------------------------------------------------------------------------------------- key reuse


def both(key, f, g):
    return f(key), g(key)


REUSED = {
    "two draws": lambda key: (random.normal(key), random.uniform(key)),
    "split and draw": lambda key: (random.split(key), random.normal(key)),
    "one slice twice": lambda key: (lambda keys: (random.normal(keys[0]), random.normal(keys[0])))(random.split(key)),
    "slice of a used array": lambda key: (lambda keys: (weft.vmap(random.normal)(keys), random.normal(keys[0])))(
        random.split(key)
    ),
    "reshaped": lambda key: (random.normal(key), weft.vmap(random.normal)(key.reshape(1))),
    "one of the transposed": lambda key: (lambda keys: (random.bits(keys[1, 2]), random.bits(keys.T[2, 1])))(
        random.split(key, (2, 3))
    ),
    "one of the reversed": lambda key: (lambda keys: (random.bits(keys[0]), random.bits(keys[::-1][3])))(
        random.split(key, 4)
    ),
    "one of the repeated": lambda key: (lambda keys: (random.bits(keys[0]), random.bits(keys[2])))(
        wnp.broadcast_to(key, (3,))
    ),
    "inner function": lambda key: both(key, weft.jit(random.normal), weft.jit(random.normal)),
    "loop over one key": lambda key: weft.lax.scan(lambda c, _: (c + random.normal(key), None), 0.0, None, length=3),
    "carry that stays": lambda key: weft.lax.fori_loop(
        0, 3, lambda i, s: (s[0], s[1] + random.normal(s[0])), (key, 0.0)
    ),
    "after a branch": lambda key: (
        weft.lax.cond(True, random.normal, lambda k: wnp.float32(0), key),
        random.normal(key),
    ),
}

FINE = {
    "split": lambda key: (lambda a, b: (random.normal(a), random.normal(b)))(*random.split(key)),
    "slices": lambda key: (lambda keys: (random.normal(keys[0]), random.normal(keys[1])))(random.split(key)),
    "others of the transposed": lambda key: (
        lambda keys: [random.bits(keys.T[i, j]) for i in range(3) for j in (0, 1)]
    )(random.split(key, (2, 3))),
    "one of the repeated": lambda key: random.bits(wnp.broadcast_to(key, (3,))[1]),
    "fold in": lambda key: (
        random.normal(random.fold_in(key, 1)),
        random.normal(random.fold_in(key, 2)),
        random.normal(key),
    ),
    "clone": lambda key: (random.normal(key), random.normal(random.clone(key))),
    "words": lambda key: (random.key_data(key), random.normal(key)),
    "loop over keys": lambda key: weft.lax.scan(lambda c, k: (c + random.normal(k), None), 0.0, random.split(key, 3)),
    "loop folding": lambda key: weft.lax.fori_loop(0, 3, lambda i, s: s + random.normal(random.fold_in(key, i)), 0.0),
    "carry that is split": lambda key: weft.lax.scan(
        lambda k, _: (lambda p: (p[0], random.normal(p[1])))(random.split(k)), key, None, length=3
    ),
    "branches": lambda key: weft.lax.cond(True, random.normal, random.uniform, key),
    "every sampler": lambda key: [
        f(k, (2,)) for (f, _), k in zip((CONTINUOUS | DISCRETE).values(), random.split(key, 64), strict=False)
    ],
    "gradient": lambda key: weft.grad(lambda x: x * random.normal(key))(2.0),
}


@pytest.mark.parametrize("staged", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", REUSED)
def test_a_key_used_twice_is_reported(name: str, staged: bool) -> None:
    program = REUSED[name]
    with weft.debug_key_reuse(True):
        with pytest.raises(KeyReuseError, match="used twice") as caught:
            (weft.jit(program) if staged else program)(random.key(0))
    assert "test_random.py" in str(caught.value)


@pytest.mark.parametrize("staged", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", FINE)
def test_keys_used_once_pass(name: str, staged: bool) -> None:
    program = FINE[name]
    with weft.debug_key_reuse(True):
        (weft.jit(program) if staged else program)(random.key(0))


def test_a_key_passed_to_two_calls_is_reported_with_both_lines() -> None:
    step = weft.jit(lambda key: random.normal(key, (2,)))
    with weft.debug_key_reuse(True):
        key = random.key(0)
        step(key)
        with pytest.raises(KeyReuseError, match=r"(?s)at .*test_random.py.*before at .*test_random.py"):
            step(key)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_short_floats_with_a_covariance(method: str) -> None:
    draws = random.multivariate_normal(
        random.key(0), wnp.array([1.0, 2.0]), wnp.array([[4.0, 1.0], [1.0, 2.0]]), (500,), np.float16, method
    )
    assert draws.dtype == np.float16
    np.testing.assert_allclose(np.cov(np.asarray(draws, np.float32).T), [[4, 1], [1, 2]], atol=0.6)
