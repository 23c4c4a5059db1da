"""Haiku: an LSTM over time followed by attention with dropout, trained by SGD with momentum."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(3)
tokens = jnp.asarray(rng.integers(0, 50, size=(8, 20)))


def forward(tokens, is_training):
    x = hk.Embed(50, 32)(tokens)
    core = hk.LSTM(32)
    x, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[0]), time_major=False)
    mask = jnp.tril(jnp.ones((1, 1, x.shape[1], x.shape[1])))
    attended = hk.MultiHeadAttention(4, 8, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x, mask=mask)
    x = hk.LayerNorm(-1, True, True)(x + attended)
    if is_training:
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    return hk.Linear(50)(x)


network = hk.transform(forward)
optimizer = optax.sgd(0.1, momentum=0.9)


def loss_of(params, key):
    logits = network.apply(params, key, tokens[:, :-1], True)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


@jax.jit
def train_step(params, memory, key):
    key, sub = jax.random.split(key)
    loss, grads = jax.value_and_grad(loss_of)(params, sub)
    updates, memory = optimizer.update(grads, memory)
    return optax.apply_updates(params, updates), memory, key, loss


def make():
    params = network.init(jax.random.PRNGKey(1), tokens[:, :-1], True)
    carry = [params, optimizer.init(params), jax.random.PRNGKey(2)]

    def step():
        *carry[:], loss = train_step(*carry)
        return loss

    return step


def numbers():
    step = make()
    return {"loss": [float(step()) for _ in range(15)]}
