"""Distributions and descriptive numbers with SciPy's names and arguments, with derivatives. A distribution is a module
with functions such as `logpdf`, `cdf` and `ppf`."""

from types import ModuleType as _ModuleType

from weft.base.publish import publish as _publish
from weft.scipy.stats import (
    bernoulli,
    beta,
    betabinom,
    binom,
    cauchy,
    chi2,
    dirichlet,
    expon,
    gamma,
    gennorm,
    geom,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    multinomial,
    multivariate_normal,
    nbinom,
    norm,
    pareto,
    poisson,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from weft.scipy.stats.descriptive import ModeResult, mode, rankdata, sem
from weft.scipy.stats.kde import gaussian_kde

__all__ = [
    "ModeResult",
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]

for _name in __all__:
    if isinstance(globals()[_name], _ModuleType):
        _publish(f"{__name__}.{_name}")
_publish(__name__)
