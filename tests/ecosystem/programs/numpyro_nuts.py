"""NumPyro: the eight schools by NUTS, and predictions from its draws; means, since chains diverge by rounding."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.reparam import LocScaleReparam

effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@numpyro.handlers.reparam(config={"theta": LocScaleReparam(0.0)})
def model(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, errors), obs=y)


def make():
    """Make a step, which is a whole run of 100 draws."""

    def step():
        mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
        mcmc.run(jax.random.key(0), y=effects)
        return mcmc.get_samples()["mu"]

    return step


def numbers():
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=3000, progress_bar=False)
    mcmc.run(jax.random.key(0), y=effects)
    draws = mcmc.get_samples()
    predicted = Predictive(model, draws)(jax.random.key(1))["obs"]
    return {
        "means": [float(draws[name].mean()) for name in ("mu", "tau")],
        "theta": np.asarray(draws["theta"].mean(0)).tolist(),
        "predicted": np.asarray(predicted.mean(0)).tolist(),
    }


TOLERANCE = {"rtol": 0.1, "atol": 0.8}
