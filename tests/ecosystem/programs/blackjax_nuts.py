"""BlackJAX: NUTS with window adaptation, and a plain HMC chain by lax.scan."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(11)
data = jnp.asarray(rng.normal(2.0, 1.5, size=100), jnp.float32)


def log_density(position):
    scale = jnp.exp(position["log_scale"])
    log_likelihood = jax.scipy.stats.norm.logpdf(data, position["location"], scale).sum()
    return log_likelihood + jax.scipy.stats.norm.logpdf(position["location"], 0.0, 10.0)


start = {"location": jnp.array(1.0), "log_scale": jnp.array(0.5)}
nuts = blackjax.nuts(log_density, step_size=0.1, inverse_mass_matrix=jnp.ones(2))
nuts_step = jax.jit(nuts.step)


def make():
    carry = [nuts.init(start), jax.random.key(0)]

    def step():
        carry[1], key = jax.random.split(carry[1])
        carry[0], info = nuts_step(key, carry[0])
        return info.energy

    step.carry = carry
    return step


def numbers():
    step = make()
    energies = [float(step()) for _ in range(10)]
    hmc = blackjax.hmc(log_density, step_size=0.05, inverse_mass_matrix=jnp.ones(2), num_integration_steps=10)

    def one(state, key):
        state, _ = hmc.step(key, state)
        return state, state.position["location"]

    keys = jax.random.split(jax.random.key(3), 8)
    _, locations = jax.jit(lambda s: jax.lax.scan(one, s, keys))(hmc.init(start))
    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, _), _ = warmup.run(jax.random.key(4), start, num_steps=200)
    return {
        "energy": energies,
        "location": np.asarray(locations).tolist(),
        "adapted": [float(jnp.isfinite(state.position["location"]))],
    }


TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}
