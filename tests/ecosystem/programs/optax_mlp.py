"""Optax: a classifier trained by AdamW with a warm-up schedule and clipped gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(0)
inputs = jnp.asarray(rng.normal(size=(256, 32)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 10, size=256))


def init(key):
    sizes = [32, 64, 64, 10]
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (m, n)) * jnp.sqrt(2.0 / m), "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def loss_of(params, x, y):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ params[-1]["w"] + params[-1]["b"]
    return optax.losses.softmax_cross_entropy_with_integer_labels(logits, y).mean()


schedule = optax.schedules.warmup_cosine_decay_schedule(0.0, 3e-3, 10, 100)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))


@jax.jit
def train_step(params, state):
    loss, grads = jax.value_and_grad(loss_of)(params, inputs, labels)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def make():
    params = init(jax.random.key(0))
    carry = [params, optimizer.init(params)]

    def step():
        carry[0], carry[1], loss = train_step(*carry)
        return loss

    return step


def numbers():
    step = make()
    return {"loss": [float(step()) for _ in range(40)]}
