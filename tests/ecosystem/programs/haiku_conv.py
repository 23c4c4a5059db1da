"""Haiku: a convolutional network with batch normalisation, trained by Adam."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(2)
images = jnp.asarray(rng.normal(size=(32, 16, 16, 3)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 10, size=32))


def forward(x, is_training):
    # Without bias: normalisation takes it out again, so that its gradient is rounding noise, which Adam scales up.
    x = hk.Conv2D(16, 3, with_bias=False)(x)
    x = hk.BatchNorm(True, True, 0.9)(x, is_training)
    x = hk.max_pool(jax.nn.relu(x), 2, 2, "VALID")
    x = jax.nn.relu(hk.Conv2D(32, 3)(x))
    return hk.Linear(10)(hk.Flatten()(x))


network = hk.without_apply_rng(hk.transform_with_state(forward))
optimizer = optax.adam(1e-3)


def loss_of(params, state):
    logits, state = network.apply(params, state, images, True)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), state


@jax.jit
def train_step(params, state, memory):
    (loss, state), grads = jax.value_and_grad(loss_of, has_aux=True)(params, state)
    updates, memory = optimizer.update(grads, memory)
    return optax.apply_updates(params, updates), state, memory, loss


def make():
    params, state = network.init(jax.random.PRNGKey(0), images, True)
    carry = [params, state, optimizer.init(params)]

    def step():
        *carry[:], loss = train_step(*carry)
        return loss

    step.carry = carry
    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(15)]
    params, state, _ = step.carry
    logits, _ = network.apply(params, state, images[:2], False)
    return {"loss": losses, "logits": np.asarray(logits).ravel().tolist()}
