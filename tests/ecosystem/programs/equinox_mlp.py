"""Equinox: an MLP that is a tree, trained with filtered transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(8)
inputs = jnp.asarray(rng.normal(size=(128, 8)), jnp.float32)
targets = jnp.asarray(np.sin(np.asarray(inputs).sum(1, keepdims=True)), jnp.float32)
optimizer = optax.adam(3e-3)


@eqx.filter_value_and_grad
def loss_of(model):
    return jnp.mean((jax.vmap(model)(inputs) - targets) ** 2)


@eqx.filter_jit
def train_step(model, memory):
    loss, grads = loss_of(model)
    updates, memory = optimizer.update(grads, memory, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), memory, loss


def make():
    model = eqx.nn.MLP(8, 1, 64, 3, activation=jax.nn.tanh, key=jax.random.key(0))
    carry = [model, optimizer.init(eqx.filter(model, eqx.is_inexact_array))]

    def step():
        *carry[:], loss = train_step(*carry)
        return loss

    return step


def numbers():
    step = make()
    return {"loss": [float(step()) for _ in range(40)]}
