"""NumPyro: stochastic variational inference of a logistic regression."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

rng = np.random.default_rng(10)
inputs = jnp.asarray(rng.normal(size=(200, 5)), jnp.float32)
labels = jnp.asarray((np.asarray(inputs) @ np.arange(5) + rng.normal(size=200) > 0).astype("int32"))


def model(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0.0, 10.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
update = jax.jit(svi.update)


def make():
    carry = [svi.init(jax.random.key(0), inputs, labels)]

    def step():
        carry[0], loss = update(carry[0], inputs, labels)
        return loss

    step.carry = carry
    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(60)]
    params = svi.get_params(step.carry[0])
    whole = svi.run(jax.random.key(1), 50, inputs, labels, progress_bar=False)
    return {
        "loss": losses,
        "params": np.concatenate([np.ravel(params[name]) for name in sorted(params)]).tolist(),
        "run": np.asarray(whole.losses).tolist(),
    }
