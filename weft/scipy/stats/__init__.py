"""Distributions and descriptive numbers with SciPy's names and arguments, with derivatives. A distribution is a module
with functions such as `logpdf`, `cdf` and `ppf`."""

from types import ModuleType as _ModuleType

from weft.base.publish import public_names as _public_names, publish as _publish
from weft.scipy.stats import (
    bernoulli as bernoulli,
    beta as beta,
    betabinom as betabinom,
    binom as binom,
    cauchy as cauchy,
    chi2 as chi2,
    dirichlet as dirichlet,
    expon as expon,
    gamma as gamma,
    gennorm as gennorm,
    geom as geom,
    gumbel_l as gumbel_l,
    gumbel_r as gumbel_r,
    laplace as laplace,
    logistic as logistic,
    multinomial as multinomial,
    multivariate_normal as multivariate_normal,
    nbinom as nbinom,
    norm as norm,
    pareto as pareto,
    poisson as poisson,
    t as t,
    truncnorm as truncnorm,
    uniform as uniform,
    vonmises as vonmises,
    wrapcauchy as wrapcauchy,
)
from weft.scipy.stats.descriptive import ModeResult as ModeResult, mode as mode, rankdata as rankdata, sem as sem
from weft.scipy.stats.kde import gaussian_kde as gaussian_kde

for _name in _public_names(__name__):
    if isinstance(globals()[_name], _ModuleType):
        _publish(f"{__name__}.{_name}")
_publish(__name__)
