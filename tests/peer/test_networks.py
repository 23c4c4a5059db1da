"""`nn` and `random` against JAX: the same functions, and the same numbers from the same keys."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.peer.compare import calls, check, lines, rows

ACTIVATIONS = """relu relu6 sigmoid softplus soft_sign silu swish log_sigmoid leaky_relu hard_sigmoid hard_silu
    hard_swish hard_tanh elu celu selu gelu glu squareplus mish identity sparse_plus sparse_sigmoid softmax log_softmax
    logsumexp logmeanexp standardize tanh"""
ON_INTEGERS = "relu relu6 softplus leaky_relu elu gelu softmax log_softmax logsumexp identity hard_tanh soft_sign"
forms = """
nn.log1mexp(p)
nn.leaky_relu(x, 0.2)
nn.elu(x, alpha=0.7)
nn.celu(x, 0.7)
nn.gelu(x, approximate=False)
nn.glu(x, axis=1)
nn.squareplus(x, b=3)
nn.softmax(x, axis=0)
nn.softmax(t, axis=(0, 2))
nn.softmax(x, where=b, axis=1)
nn.log_softmax(x, axis=0)
nn.logsumexp(x, axis=1, keepdims=True)
nn.logsumexp(x, b=p)
nn.logsumexp(x, b=y, return_sign=True)
nn.logsumexp(x, where=b)
nn.logmeanexp(x, axis=0)
nn.standardize(x, axis=0, epsilon=1e-3)
nn.standardize(x, mean=0.5, variance=2.0)
nn.one_hot(j, 4) * s
nn.dot_product_attention(image, image, image)
nn.dot_product_attention(image, image, image, is_causal=True)
nn.dot_product_attention(image, image * 2, image, scale=0.3)
nn.dot_product_attention(image, image, image, bias=np.arange(9.0).reshape(1, 1, 3, 3) * s)
nn.dot_product_attention(image, image, image, mask=np.tri(3, dtype=bool)[None, None])
nn.dot_product_attention(image, image[:, :, :2], image[:, :, :2])
nn.dot_product_attention(image[0], image[0], image[0])
nn.dot_product_attention(image, image, image, query_seq_lengths=j[:2] * 0 + 2, key_value_seq_lengths=np.array([3, 1]))
nn.dot_product_attention(image, image, image, local_window_size=(1, 0))
"""
edges = """
nn.one_hot(j, 3)
nn.one_hot(i, 4)
nn.one_hot(j, 3, axis=0)
nn.one_hot(j, 3, dtype=onp.int8)
nn.one_hot(2, 4)
nn.logsumexp(c)
nn.softmax(z)
nn.relu(nans)
nn.logsumexp(np.array([-onp.inf, -onp.inf]))
nn.softmax(np.array([onp.inf, 0.0]))
nn.softplus(np.array([-200.0, 200.0]))
nn.log_softmax(np.array([1000.0, 0.0]))
nn.relu(-2.5)
nn.gelu(np.array([-30.0, 30.0]))
nn.log_sigmoid(np.array([-200.0, 200.0]))
"""

KEYS = """
random.key(0)
random.PRNGKey(0)
random.key_data(random.key(12345))
random.key(2**31 - 1)
random.key(-1)
random.split(random.key(0))
random.split(random.PRNGKey(7), 5)
random.split(random.key(7), (2, 3))
random.fold_in(random.key(3), 11)
random.fold_in(random.PRNGKey(3), 11)
random.wrap_key_data(random.key_data(random.key(4)))
random.clone(random.key(4))
random.bits(random.key(0), (5,))
random.bits(random.key(0), (5,), onp.uint8)
random.bits(random.key(0), (3,), onp.uint16)
random.bits(random.key(0))
random.key(0).shape
random.split(random.key(0), 3)[1]
np.stack([random.key(0), random.key(1)])
random.uniform(random.split(random.key(0))[1])
lib.vmap(random.uniform)(random.split(random.key(3), 4))
lib.vmap(lambda seed: random.normal(random.key(seed), (2,)))(np.arange(3))
lib.grad(lambda v: random.truncated_normal(random.key(2), v - 1, v + 1).sum())(unit)
lib.jit(lambda v: random.normal(random.fold_in(random.key(0), v)))(3)
str(random.key(0).dtype)
"""
DRAWS = """
random.uniform(KEY)
random.uniform(KEY, (3, 2))
random.uniform(KEY, (4,), minval=-2.0, maxval=3.0)
random.uniform(KEY, (4,), dtype=onp.float16)
random.uniform(KEY, (4,), dtype=np.bfloat16)
random.normal(KEY)
random.normal(KEY, (3, 2))
random.normal(KEY, (5,), dtype=np.bfloat16)
random.normal(KEY, (5,), dtype=onp.float16)
random.normal(KEY, (3,), dtype=onp.complex64)
random.randint(KEY, (5,), 0, 10)
random.randint(KEY, (5,), -128, 127, dtype=onp.int8)
random.randint(KEY, (2, 3), 0, 1000000)
random.randint(KEY, (), 0, np.array(7))
random.bernoulli(KEY)
random.bernoulli(KEY, 0.3, (6,))
random.categorical(KEY, np.array([0.1, 2.0, -1.0]))
random.categorical(KEY, np.ones((3, 4)), axis=1)
random.categorical(KEY, np.zeros(5), shape=(7,))
random.categorical(KEY, np.arange(5.0), shape=(3,), replace=False)
random.choice(KEY, 10, (4,))
random.choice(KEY, 10, (4,), replace=False)
random.choice(KEY, np.arange(5) * 2, (3,), p=np.array([0.1, 0.2, 0.3, 0.2, 0.2]))
random.choice(KEY, np.arange(5), (3,), replace=False, p=np.array([0.1, 0.2, 0.3, 0.2, 0.2]))
random.choice(KEY, np.arange(12).reshape(3, 4), (2,), axis=1)
random.permutation(KEY, 10)
random.permutation(KEY, np.arange(12).reshape(4, 3))
random.permutation(KEY, np.arange(12).reshape(4, 3), axis=1, independent=True)
random.rademacher(KEY, (5,))
random.exponential(KEY, (4,))
random.laplace(KEY, (4,))
random.logistic(KEY, (4,))
random.gumbel(KEY, (4,))
random.gumbel(KEY, (4,), mode="high")
random.cauchy(KEY, (4,))
random.pareto(KEY, 2.0, (4,))
random.rayleigh(KEY, 1.5, (4,))
random.triangular(KEY, 0.0, 0.5, 2.0, (4,))
random.weibull_min(KEY, 1.5, 2.0, (4,))
random.truncated_normal(KEY, -1.0, 2.0, (4,))
random.multivariate_normal(KEY, np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]]), (3,))
random.multivariate_normal(KEY, np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]]), method="svd").shape
random.lognormal(KEY, 0.5, (4,))
random.maxwell(KEY, (4,))
random.double_sided_maxwell(KEY, 0.5, 2.0, (4,))
random.orthogonal(KEY, 3)
random.wald(KEY, 2.0, (4,))
random.gamma(KEY, 2.5, (4,))
random.gamma(KEY, 0.5, (4,))
random.gamma(KEY, np.array([0.3, 5.0]))
random.loggamma(KEY, 0.5, (4,))
random.beta(KEY, 2.0, 0.7, (4,))
random.dirichlet(KEY, np.array([0.5, 1.5, 3.0]), (2,))
random.chisquare(KEY, 3.0, shape=(3,))
random.f(KEY, 3.0, 5.0, shape=(3,))
random.t(KEY, 4.0, (4,))
random.generalized_normal(KEY, 1.5, (3,))
random.ball(KEY, 2, shape=(3,))
random.poisson(KEY, 3.0, (5,))
random.poisson(KEY, 30.0, (5,))
random.binomial(KEY, 10, 0.3, (5,))
random.binomial(KEY, 100, 0.4, (5,))
random.geometric(KEY, 0.3, (5,))
random.multinomial(KEY, 20, np.array([0.2, 0.3, 0.5]))
nn.initializers.zeros(KEY, (2, 3))
nn.initializers.constant(2.5)(KEY, (2,), onp.float16)
nn.initializers.uniform(0.3)(KEY, (3, 2))
nn.initializers.normal(0.3)(KEY, (3, 2))
nn.initializers.truncated_normal(0.3)(KEY, (3, 2))
nn.initializers.glorot_uniform()(KEY, (3, 4))
nn.initializers.glorot_normal()(KEY, (3, 4))
nn.initializers.he_normal()(KEY, (3, 3, 4, 2))
nn.initializers.he_uniform()(KEY, (3, 4))
nn.initializers.lecun_normal()(KEY, (3, 4))
nn.initializers.lecun_uniform(in_axis=0, out_axis=1)(KEY, (3, 4))
nn.initializers.orthogonal()(KEY, (4, 3))
nn.initializers.delta_orthogonal()(KEY, (3, 3, 2, 4))
nn.initializers.variance_scaling(2.0, "fan_avg", "uniform")(KEY, (3, 4))
nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", batch_axis=0)(KEY, (2, 3, 4))
"""
# Typed and raw keys alternate.
keys = itertools.cycle(["random.key(42)", "random.PRNGKey(7)"])
draws = [line.replace("KEY", key) for line, key in zip(lines(DRAWS), keys, strict=False)]
reparametrised = """
random.gamma(random.key(1), p)
random.loggamma(random.key(1), p)
random.beta(random.key(2), p, p)
random.dirichlet(random.key(2), p)
random.t(random.key(2), p)
random.uniform(random.key(2), (3, 4), minval=x, maxval=x + p)
random.pareto(random.key(2), p)
random.rayleigh(random.key(2), p)
random.multivariate_normal(random.key(2), col, spd)
"""


@pytest.mark.parametrize("row", rows(*calls("nn", ACTIVATIONS, "x"), *lines(forms), gradient=True, rtol=5e-5))
def test_functions(row: Any) -> None:
    check(row)


@pytest.mark.parametrize(
    "row", rows(*calls("nn", ACTIVATIONS, "h"), *calls("nn", ON_INTEGERS, "i"), *lines(edges), batched=False)
)
def test_dtypes(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(KEYS), *draws, rtol=2e-5))
def test_random(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(*lines(reparametrised), gradient=True, batched=False, rtol=2e-4))
def test_random_gradients(row: Any) -> None:
    check(row)
