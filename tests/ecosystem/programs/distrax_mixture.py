"""Distrax: a mixture of normals fitted by gradients, and a flow of bijectors."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(12)
data = jnp.asarray(np.concatenate([rng.normal(-2, 0.5, 100), rng.normal(1, 1.0, 100)]), jnp.float32)
optimizer = optax.adam(0.05)


def loss_of(params):
    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits=params["logits"]),
        distrax.Normal(params["means"], jnp.exp(params["log_scales"])),
    )
    return -mixture.log_prob(data).mean()


@jax.jit
def train_step(params, memory):
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, memory = optimizer.update(grads, memory)
    return optax.apply_updates(params, updates), memory, loss


def make():
    params = {"logits": jnp.zeros(2), "means": jnp.array([-1.0, 0.5]), "log_scales": jnp.zeros(2)}
    carry = [params, optimizer.init(params)]

    def step():
        *carry[:], loss = train_step(*carry)
        return loss

    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(40)]
    flow = distrax.Transformed(
        distrax.MultivariateNormalDiag(jnp.zeros(3), jnp.ones(3)),
        distrax.Block(distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(0.5, 2.0)]), 1),
    )
    samples, log_probs = flow.sample_and_log_prob(seed=jax.random.key(0), sample_shape=4)
    divergence = distrax.Normal(0.0, 1.0).kl_divergence(distrax.Normal(1.0, 2.0))
    return {
        "loss": losses,
        "samples": np.asarray(samples).ravel().tolist(),
        "log_probs": np.asarray(log_probs).tolist(),
        "divergence": [float(divergence)],
    }
