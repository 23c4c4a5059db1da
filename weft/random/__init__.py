"""Random numbers from explicit keys: the same key yields the same numbers, so split a key for every new draw.

key = weft.random.key(0)
key, subkey = weft.random.split(key)
x = weft.random.normal(subkey, (3,))
"""

from weft.base.publish import publish as _publish
from weft.random.counts import binomial, multinomial, poisson
from weft.random.discrete import bernoulli, categorical, choice, geometric, permutation, rademacher, randint
from weft.random.gamma import ball, beta, chisquare, dirichlet, f, gamma, generalized_normal, loggamma, t
from weft.random.keys import (
    PRNGKey,
    bits,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from weft.random.normal import (
    double_sided_maxwell,
    lognormal,
    maxwell,
    multivariate_normal,
    normal,
    orthogonal,
    truncated_normal,
    wald,
)
from weft.random.uniform import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    pareto,
    rayleigh,
    triangular,
    uniform,
    weibull_min,
)

__all__ = [
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]

_publish(__name__)
