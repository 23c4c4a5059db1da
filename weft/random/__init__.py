"""Random numbers from explicit keys: the same key yields the same numbers, so split a key for every new draw.

key = weft.random.key(0)
key, subkey = weft.random.split(key)
x = weft.random.normal(subkey, (3,))
"""

from weft.base.publish import publish as _publish
from weft.random.counts import binomial as binomial, multinomial as multinomial, poisson as poisson
from weft.random.discrete import (
    bernoulli as bernoulli,
    categorical as categorical,
    choice as choice,
    geometric as geometric,
    permutation as permutation,
    rademacher as rademacher,
    randint as randint,
)
from weft.random.gamma import (
    ball as ball,
    beta as beta,
    chisquare as chisquare,
    dirichlet as dirichlet,
    f as f,
    gamma as gamma,
    generalized_normal as generalized_normal,
    loggamma as loggamma,
    t as t,
)
from weft.random.keys import (
    PRNGKey as PRNGKey,
    bits as bits,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from weft.random.normal import (
    double_sided_maxwell as double_sided_maxwell,
    lognormal as lognormal,
    maxwell as maxwell,
    multivariate_normal as multivariate_normal,
    normal as normal,
    orthogonal as orthogonal,
    truncated_normal as truncated_normal,
    wald as wald,
)
from weft.random.uniform import (
    cauchy as cauchy,
    exponential as exponential,
    gumbel as gumbel,
    laplace as laplace,
    logistic as logistic,
    pareto as pareto,
    rayleigh as rayleigh,
    triangular as triangular,
    uniform as uniform,
    weibull_min as weibull_min,
)

_publish(__name__)
