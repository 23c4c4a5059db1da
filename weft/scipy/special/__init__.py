"""Special functions with SciPy's names and arguments, of floats of every kind, with derivatives."""

from weft.base.publish import publish as _publish
from weft.scipy.special.bessel import bessel_jn as bessel_jn, i0 as i0, i0e as i0e, i1 as i1, i1e as i1e
from weft.scipy.special.error import (
    dawsn as dawsn,
    erf as erf,
    erfc as erfc,
    erfcx as erfcx,
    erfinv as erfinv,
    log_ndtr as log_ndtr,
    ndtr as ndtr,
    ndtri as ndtri,
    owens_t as owens_t,
    wofz as wofz,
)
from weft.scipy.special.gamma_functions import (
    bernoulli as bernoulli,
    beta as beta,
    betainc as betainc,
    betaln as betaln,
    comb as comb,
    digamma as digamma,
    factorial as factorial,
    gamma as gamma,
    gammainc as gammainc,
    gammaincc as gammaincc,
    gammaln as gammaln,
    gammasgn as gammasgn,
    loggamma as loggamma,
    multigammaln as multigammaln,
    poch as poch,
    polygamma as polygamma,
    zeta as zeta,
)
from weft.scipy.special.harmonics import sph_harm_y as sph_harm_y
from weft.scipy.special.hypergeometric import hyp1f1 as hyp1f1, hyp2f1 as hyp2f1
from weft.scipy.special.information import (
    boxcox as boxcox,
    boxcox1p as boxcox1p,
    entr as entr,
    expit as expit,
    kl_div as kl_div,
    log_softmax as log_softmax,
    logit as logit,
    logsumexp as logsumexp,
    rel_entr as rel_entr,
    softmax as softmax,
    xlog1py as xlog1py,
    xlogy as xlogy,
)
from weft.scipy.special.integrals import (
    exp1 as exp1,
    expi as expi,
    expn as expn,
    fresnel as fresnel,
    sici as sici,
    spence as spence,
)

_publish(__name__)
