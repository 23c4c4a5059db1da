"""weft.nn: values against NumPy and SciPy, derivatives at edges, masks, initializers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import weft
import weft.numpy as wnp
from tests.messages import without_source
from weft import nn, random
from weft.nn import initializers

X = np.linspace(-4, 4, 33).astype(np.float32)
WIDE = X.astype(np.float64)


def sigmoid(x):
    return special.expit(x)


def softplus(x):
    return np.logaddexp(x, 0)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "softplus": softplus,
    "log_sigmoid": lambda x: -softplus(-x),
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "soft_sign": lambda x: x / (np.abs(x) + 1),
    "tanh": np.tanh,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "squareplus": lambda x: (x + np.sqrt(x**2 + 4)) / 2,
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "identity": lambda x: x,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    function, meaning = getattr(nn, name), ACTIVATIONS[name]
    got = function(wnp.asarray(X))
    assert got.dtype == np.float32 and not got.weak_type
    np.testing.assert_allclose(got, meaning(WIDE), rtol=2e-6, atol=1e-6)
    # Compiled functions are polynomials of their own, within a few units in the last place of NumPy's.
    np.testing.assert_allclose(weft.jit(function)(wnp.asarray(X)), got, rtol=1e-6, atol=5e-7)
    np.testing.assert_allclose(
        weft.vmap(function)(wnp.asarray(X.reshape(3, 11))), np.asarray(got).reshape(3, 11), rtol=1e-6
    )
    assert function(wnp.asarray(X, wnp.bfloat16)).dtype == wnp.bfloat16


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_of_activations(name: str) -> None:
    function, meaning = getattr(nn, name), ACTIVATIONS[name]
    points = WIDE + 0.03  # away from kinks
    step = 1e-6
    gradient = (meaning(points + step) - meaning(points - step)) / (2 * step)
    got = weft.vmap(weft.grad(function))(wnp.asarray(points, np.float32))
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-5)


def test_gelu_without_approximation() -> None:
    got = nn.gelu(wnp.asarray(X), approximate=False)
    np.testing.assert_allclose(got, WIDE * special.ndtr(WIDE), rtol=1e-5, atol=1e-7)


def test_derivatives_at_edges() -> None:
    np.testing.assert_array_equal(weft.grad(lambda x: nn.relu(x).sum())(wnp.array([-1.0, 0.0, 1.0])), [0, 0, 1])
    np.testing.assert_array_equal(weft.grad(lambda x: nn.relu6(x).sum())(wnp.array([0.0, 3.0, 6.0, 7.0])), [0, 1, 0, 0])
    far = wnp.array([-300.0, 0.0, 300.0])
    np.testing.assert_allclose(weft.grad(lambda x: nn.softplus(x).sum())(far), [0, 0.5, 1])
    np.testing.assert_allclose(weft.grad(lambda x: nn.elu(x).sum())(far), [0, 1, 1])
    np.testing.assert_allclose(weft.grad(lambda x: nn.log_sigmoid(x).sum())(far), [1, 0.5, 0])
    assert weft.grad(weft.grad(lambda x: nn.relu(x) ** 3))(2.0) == 12
    np.testing.assert_array_equal(nn.hard_tanh(wnp.array([0, 1, 200], np.uint8)), [0, 1, 1])


def test_relu_is_one_equation_with_its_own_derivative() -> None:
    assert "custom_jvp_call" in str(weft.make_jaxpr(nn.relu)(1.0))


def test_log1mexp() -> None:
    x = np.array([1e-6, 0.1, 0.69, 0.7, 3.0, 20.0])
    got = nn.log1mexp(wnp.asarray(x, np.float32))
    np.testing.assert_allclose(got, np.log(-np.expm1(-x)), rtol=1e-5)
    np.testing.assert_allclose(
        weft.vmap(weft.grad(nn.log1mexp))(wnp.asarray(x, np.float32)), 1 / np.expm1(x), rtol=1e-5
    )


def test_glu_halves_an_axis() -> None:
    x = X[:8].reshape(2, 4)
    np.testing.assert_allclose(nn.glu(wnp.asarray(x)), x[:, :2] * sigmoid(x[:, 2:]), rtol=1e-6)
    np.testing.assert_allclose(nn.glu(wnp.asarray(x), axis=0), x[:1] * sigmoid(x[1:]), rtol=1e-6)
    with pytest.raises(ValueError, match="odd size 3"):
        nn.glu(wnp.ones(3))


# -------------------------------------------------------------------------------------------------------- over an axis

M = np.array([[1.0, -2.0, 3.0, 0.5], [-1.0, 2.5, 0.3, 4.0]], np.float32)


@pytest.mark.parametrize("axis", [-1, 0, (0, 1)])
def test_softmax_and_its_logarithm(axis) -> None:
    np.testing.assert_allclose(nn.softmax(wnp.asarray(M), axis), special.softmax(M, axis), rtol=1e-6)
    np.testing.assert_allclose(nn.log_softmax(wnp.asarray(M), axis), special.log_softmax(M, axis), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nn.logsumexp(wnp.asarray(M), axis), special.logsumexp(M, axis), rtol=1e-6)
    shifted = wnp.asarray(M) + 1e4
    np.testing.assert_allclose(nn.softmax(shifted, axis), special.softmax(M, axis), rtol=2e-3)
    np.testing.assert_allclose(
        nn.logmeanexp(wnp.asarray(M), axis),
        special.logsumexp(M, axis) - np.log(M.size if axis == (0, 1) else M.shape[axis]),
        rtol=1e-5,
    )


def test_softmax_under_a_mask() -> None:
    mask = M > 0
    got = np.asarray(nn.softmax(wnp.asarray(M), where=wnp.asarray(mask)))
    assert (got[~mask] == 0).all()
    for row, held, found in zip(M, mask, got, strict=True):
        np.testing.assert_allclose(found[held], special.softmax(row[held]), rtol=1e-6)
    logs = np.asarray(nn.log_softmax(wnp.asarray(M), where=wnp.asarray(mask)))
    assert np.isneginf(logs[~mask]).all()
    np.testing.assert_allclose(logs[mask], np.log(got[mask]), rtol=1e-5)
    np.testing.assert_allclose(
        nn.logsumexp(wnp.asarray(M), where=wnp.asarray(mask)), special.logsumexp(M[mask]), rtol=1e-6
    )
    np.testing.assert_array_equal(nn.softmax(wnp.asarray(M), where=wnp.zeros((2, 4), bool)), np.zeros((2, 4)))


def test_logsumexp_with_weights_and_infinities() -> None:
    x, b = wnp.array([1.0, 2.0, 3.0]), wnp.array([1.0, -4.0, 0.0])
    value, sign = nn.logsumexp(x, b=b, return_sign=True)
    wanted, wanted_sign = special.logsumexp([1, 2, 3], b=[1, -4, 0], return_sign=True)
    np.testing.assert_allclose([value, sign], [wanted, wanted_sign], rtol=1e-6)
    assert np.isnan(nn.logsumexp(x, b=b))
    assert nn.logsumexp(wnp.array([-np.inf, -np.inf])) == -np.inf
    assert nn.logsumexp(wnp.array([np.inf, 1.0])) == np.inf
    np.testing.assert_allclose(weft.grad(nn.logsumexp)(x), special.softmax([1, 2, 3]), rtol=1e-6)
    assert nn.logsumexp(x, keepdims=True).shape == (1,)


def test_softmax_derivative() -> None:
    x = wnp.asarray(M[0])
    p = special.softmax(M[0])
    np.testing.assert_allclose(weft.jacrev(nn.softmax)(x), np.diag(p) - np.outer(p, p), atol=1e-6)


def test_standardize() -> None:
    for algorithm in ("fast", "stable"):
        got = nn.standardize(wnp.asarray(M), algorithm=algorithm)
        want = (M - M.mean(1, keepdims=True)) / np.sqrt(M.var(1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    result = nn.standardize(wnp.asarray(M), mean=1.0, variance=4.0, epsilon=0.0)
    np.testing.assert_allclose(result, (M - 1) / 2, rtol=1e-6)
    with pytest.raises(ValueError, match="algorithm"):
        nn.standardize(wnp.asarray(M), algorithm="slow")


def test_one_hot() -> None:
    np.testing.assert_array_equal(nn.one_hot(wnp.array([0, 2, -1, 7]), 3), [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert nn.one_hot(wnp.array([[0, 2], [1, 1]]), 3, axis=1).shape == (2, 3, 2)
    assert nn.one_hot(1, 3, dtype=bool).dtype == np.bool_ and nn.one_hot(1, 3).dtype == np.float32


# ----------------------------------------------------------------------------------------------------------- attention


def attention(q, k, v, allowed=None, bias=0.0, scale=None):
    """Return the definition, head by head, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    repeats = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, repeats, 2), np.repeat(v, repeats, 2)
    logits = np.einsum("btnh,bsnh->bnts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    return np.einsum("bnts,bsnh->btnh", special.softmax(logits, -1), v), special.logsumexp(logits, -1).transpose(
        0, 2, 1
    )


@pytest.fixture
def operands(rng):
    return [rng.normal(size=shape).astype(np.float32) for shape in ((2, 3, 4, 8), (2, 5, 4, 8), (2, 5, 4, 8))]


def test_attention(operands) -> None:
    q, k, v = map(wnp.asarray, operands)
    want, residual = attention(*operands)
    got, found = nn.dot_product_attention(q, k, v, return_residual=True)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, residual, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(nn.dot_product_attention(q[0], k[0], v[0]), want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        nn.dot_product_attention(q, k, v, scale=0.1), attention(*operands, scale=0.1)[0], rtol=1e-4, atol=1e-5
    )
    grouped = nn.dot_product_attention(q, k[:, :, :2], v[:, :, :2])
    np.testing.assert_allclose(
        grouped, attention(operands[0], operands[1][:, :, :2], operands[2][:, :, :2])[0], rtol=1e-4, atol=1e-5
    )
    short = nn.dot_product_attention(*(x.astype(wnp.bfloat16) for x in (q, k, v)))
    assert short.dtype == wnp.bfloat16
    np.testing.assert_allclose(short.astype(np.float32), want, atol=0.05)


def test_attention_masks(operands, rng) -> None:
    q, k, v = map(wnp.asarray, operands)
    row, column = np.ogrid[:3, :5]
    mask, bias = rng.random((2, 1, 3, 5)) > 0.3, rng.normal(size=(1, 4, 3, 5)).astype(np.float32)
    mask[..., 0] = True
    lengths = np.arange(5) < np.array([4, 2])[:, None]
    for options, allowed in (
        ({"is_causal": True}, row >= column),
        ({"local_window_size": (1, 1)}, abs(row - column) <= 1),
        ({"local_window_size": (2, 0)}, (row >= column) & (row - column <= 2)),
        ({"mask": wnp.asarray(mask)}, mask),
        ({"key_value_seq_lengths": wnp.array([4, 2])}, lengths[:, None, None, :]),
    ):
        got = nn.dot_product_attention(q, k, v, bias=wnp.asarray(bias), **options)
        np.testing.assert_allclose(got, attention(*operands, allowed=allowed, bias=bias)[0], rtol=1e-4, atol=1e-5)
    cut = np.asarray(nn.dot_product_attention(q, k, v, query_seq_lengths=wnp.array([1, 3])))
    assert (cut[0, 1:] == 0).all() and (cut[1] != 0).any()
    gradient = weft.grad(lambda q: nn.dot_product_attention(q, k, v, is_causal=True).sum())(q)
    assert np.isfinite(np.asarray(gradient)).all() and (np.asarray(gradient)[:, 0] == 0).all()


def test_attention_mistakes(operands) -> None:
    q, k, v = map(wnp.asarray, operands)
    for call, words in (
        (lambda: nn.dot_product_attention(q, k[:, :4], v), "do not fit"),
        (lambda: nn.dot_product_attention(q, k[:, :, :3], v[:, :, :3]), "a multiple of key heads"),
        (lambda: nn.dot_product_attention(q, k, v, mask=wnp.ones((1, 1, 3, 5))), "booleans"),
        (lambda: nn.dot_product_attention(q, k, v.astype(wnp.bfloat16)), "one dtype"),
        (lambda: nn.dot_product_attention(q, k, v, bias=wnp.ones((1, 4, 3, 4))), "broadcasts"),
        (lambda: nn.dot_product_attention(q, k, v, query_seq_lengths=wnp.array([1])), "one length a sequence"),
        (lambda: nn.dot_product_attention(q, k, v, implementation="fast"), "implementation"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert words in without_source(caught.value)


# ----------------------------------------------------------------------------------------------- block-scaled products


def test_scaled_matmul_expands_its_blocks(rng) -> None:
    left, right = (rng.integers(-4, 5, (2, m, 64)).astype(np.float32) for m in (3, 5))
    scales = [2.0 ** rng.integers(-2, 3, (2, m, 2)) for m in (3, 5)]
    operands = [wnp.asarray(x).astype(wnp.float8_e4m3fn) for x in (left, right)]
    held = [wnp.asarray(x, np.float32).astype(wnp.float8_e8m0fnu) for x in scales]
    wide = [x.reshape(2, -1, 2, 32) * s[..., None] for x, s in zip((left, right), scales, strict=True)]
    want = np.einsum("bmik,bnik->bmn", *wide)
    np.testing.assert_allclose(nn.scaled_matmul(*operands, *held), want, rtol=1e-6)
    with pytest.raises(ValueError, match="divides K"):
        nn.scaled_matmul(*operands, held[0], held[1][:, :, :1])


@pytest.mark.parametrize(("mode", "error"), [("mxfp8", 0.05), ("nvfp4", 0.2)])
def test_scaled_dot_general_is_near_the_matmul(mode: str, error: float, rng) -> None:
    left, right = (wnp.asarray(rng.normal(size=(m, 64)).astype(np.float32)) for m in (3, 5))
    numbers = (((1,), (1,)), ((), ()))
    config = nn.get_scaled_dot_general_config(mode)
    got = nn.scaled_dot_general(left, right, numbers, configs=[config] * 3)
    exact = np.asarray(left) @ np.asarray(right).T
    assert 0 < np.abs(np.asarray(got) - exact).max() < error * np.abs(exact).max() * 3
    np.testing.assert_allclose(nn.scaled_dot_general(left, right, numbers), exact, rtol=1e-5, atol=1e-5)
    gradient = weft.grad(lambda x: nn.scaled_dot_general(x, right, numbers, configs=[config] * 3).sum())(left)
    np.testing.assert_allclose(gradient, np.broadcast_to(np.asarray(right).sum(0), (3, 64)), atol=1.5 * error * 5)


# -------------------------------------------------------------------------------------------------------- initializers


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("glorot_uniform", 2 / (40 + 60)),
        ("glorot_normal", 2 / (40 + 60)),
        ("lecun_uniform", 1 / 40),
        ("lecun_normal", 1 / 40),
        ("he_uniform", 2 / 40),
        ("he_normal", 2 / 40),
        ("xavier_uniform", 2 / (40 + 60)),
        ("kaiming_normal", 2 / 40),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_variance_scaling(name: str, variance: float, dtype) -> None:
    initializer = getattr(initializers, name)()
    result = np.asarray(initializer(random.key(0), (40, 60), dtype))
    assert result.dtype == dtype and isinstance(initializer, initializers.Initializer)
    np.testing.assert_allclose((np.abs(result) ** 2).mean(), variance, rtol=0.06)
    assert abs(result.mean()) < 4 * math.sqrt(variance / result.size)


def test_fans_of_convolutions() -> None:
    kernel = np.asarray(initializers.lecun_normal()(random.key(1), (3, 3, 20, 30)))
    np.testing.assert_allclose(kernel.var(), 1 / (9 * 20), rtol=0.06)
    batched = np.asarray(initializers.he_normal(batch_axis=0)(random.key(1), (6, 20, 30)))
    np.testing.assert_allclose(batched.var(), 2 / 20, rtol=0.1)
    with pytest.raises(ValueError, match="two or more dimensions"):
        initializers.lecun_normal()(random.key(0), (3,))
    with pytest.raises(ValueError, match="mode"):
        initializers.variance_scaling(1.0, "fan", "normal")(random.key(0), (3, 4))
    with pytest.raises(ValueError, match="distribution"):
        initializers.variance_scaling(1.0, "fan_in", "cauchy")(random.key(0), (3, 4))


def test_simple_initializers() -> None:
    key = random.key(3)
    assert initializers.zeros(key, (2, 3), wnp.bfloat16).dtype == wnp.bfloat16
    np.testing.assert_array_equal(initializers.ones(key, (2,)), [1, 1])
    np.testing.assert_array_equal(initializers.constant(wnp.array([1.0, 2.0]))(key, (2, 2)), [[1, 2], [1, 2]])
    np.testing.assert_allclose(initializers.normal(2.0)(key, (4,)), 2 * np.asarray(random.normal(key, (4,))), rtol=1e-6)
    np.testing.assert_allclose(
        initializers.uniform(2.0)(key, (4,)), 2 * np.asarray(random.uniform(key, (4,))), rtol=1e-6
    )
    cut = np.asarray(initializers.truncated_normal(0.5, lower=-1.0, upper=1.0)(key, (500,)))
    assert np.abs(cut).max() < 0.5 and np.abs(cut).max() > 0.45


def test_orthogonal_initializers() -> None:
    key = random.key(4)
    q = np.asarray(initializers.orthogonal(2.0)(key, (3, 4, 5))).reshape(12, 5)
    np.testing.assert_allclose(q.T @ q, 4 * np.eye(5), atol=1e-5)
    rows = np.asarray(initializers.orthogonal(column_axis=0)(key, (3, 5)))
    np.testing.assert_allclose(rows @ rows.T, np.eye(3), atol=1e-5)
    kernel = np.array(initializers.delta_orthogonal()(key, (3, 3, 2, 4)))
    np.testing.assert_allclose(kernel[1, 1] @ kernel[1, 1].T, np.eye(2), atol=1e-5)
    kernel[1, 1] = 0
    assert (kernel == 0).all()
