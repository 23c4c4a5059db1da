"""Flax linen: a small transformer (layers by nn.scan, remat, dropout) trained by a TrainState."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

rng = np.random.default_rng(4)
tokens = jnp.asarray(rng.integers(0, 64, size=(8, 33)))


class Block(nn.Module):
    width: int = 32

    @nn.compact
    def __call__(self, x, mask):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=mask)
        y = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
        y = nn.Dropout(0.1, deterministic=False)(nn.Dense(self.width)(nn.gelu(y)))
        return x + y, None


class Model(nn.Module):
    layers: int = 2

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(64, 32)(tokens)
        x = x + self.param("position", nn.initializers.normal(0.02), (tokens.shape[1], 32))
        mask = nn.make_causal_mask(tokens)
        stack = nn.scan(
            nn.remat(Block),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=self.layers,
        )
        x, _ = stack()(x, mask)
        return nn.Dense(64)(nn.LayerNorm()(x))


model = Model()


@jax.jit
def train_step(state, key):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1], rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


def make():
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    params = jax.jit(model.init)(keys, tokens[:, :-1])["params"]
    carry = [train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3)), 0]

    def step():
        carry[0], loss = train_step(carry[0], jax.random.fold_in(jax.random.key(2), carry[1]))
        carry[1] += 1
        return loss

    return step


def numbers():
    step = make()
    return {"loss": [float(step()) for _ in range(15)]}
