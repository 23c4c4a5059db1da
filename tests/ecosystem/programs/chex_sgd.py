"""Chex: a training state that is a chex.dataclass, with assertions on shapes, trees and the number of traces."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(1)
inputs = jnp.asarray(rng.normal(size=(128, 8)), jnp.float32)
targets = inputs @ jnp.asarray(rng.normal(size=(8, 3)), jnp.float32)


@chex.dataclass
class State:
    weights: chex.Array
    momentum: chex.Array
    steps: chex.Array


def loss_of(weights):
    predictions = inputs @ weights
    chex.assert_equal_shape([predictions, targets])
    chex.assert_rank(predictions, 2)
    return jnp.mean((predictions - targets) ** 2)


def make():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def train_step(state):
        loss, grad = jax.value_and_grad(loss_of)(state.weights)
        chex.assert_trees_all_equal_shapes(grad, state.weights)
        momentum = 0.9 * state.momentum + grad
        return state.replace(weights=state.weights - 0.05 * momentum, momentum=momentum, steps=state.steps + 1), loss

    carry = [State(weights=jnp.zeros((8, 3)), momentum=jnp.zeros((8, 3)), steps=jnp.zeros((), jnp.int32))]

    def step():
        carry[0], loss = train_step(carry[0])
        return loss

    step.state = carry
    return step


def numbers():
    chex.clear_trace_counter()
    step = make()
    losses = [float(step()) for _ in range(40)]
    state = step.state[0]
    chex.assert_tree_all_finite(state)
    chex.assert_trees_all_close(state.weights, state.weights + 1e-9)
    return {"loss": losses, "steps": [int(state.steps)], "weights": np.asarray(state.weights).ravel().tolist()}
