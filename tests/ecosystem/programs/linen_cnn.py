"""Flax linen: a convolutional network with batch normalisation and mutable collections."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

rng = np.random.default_rng(5)
images = jnp.asarray(rng.normal(size=(32, 16, 16, 3)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 10, size=32))


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        # Without bias: normalisation takes it out again, so that its gradient is rounding noise, which Adam scales up.
        x = nn.Conv(16, (3, 3), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = nn.avg_pool(nn.relu(x), (2, 2), strides=(2, 2))
        x = nn.relu(nn.Conv(32, (3, 3))(x))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


model = CNN()
optimizer = optax.adam(1e-3)


@jax.jit
def train_step(params, statistics, memory):
    def loss_of(params):
        variables = {"params": params, "batch_stats": statistics}
        logits, updated = model.apply(variables, images, True, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updated["batch_stats"]

    (loss, updated), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, memory = optimizer.update(grads, memory, params)
    return optax.apply_updates(params, updates), updated, memory, loss


def make():
    variables = model.init(jax.random.key(0), images, True)
    carry = [variables["params"], variables["batch_stats"], optimizer.init(variables["params"])]

    def step():
        *carry[:], loss = train_step(*carry)
        return loss

    step.carry = carry
    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(15)]
    params, statistics, _ = step.carry
    logits = model.apply({"params": params, "batch_stats": statistics}, images[:2], False)
    return {"loss": losses, "logits": np.asarray(logits).ravel().tolist()}
