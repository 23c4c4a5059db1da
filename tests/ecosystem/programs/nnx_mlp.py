"""Flax NNX: an MLP with batch normalisation and dropout, trained by nnx.Optimizer."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

rng = np.random.default_rng(13)
inputs = jnp.asarray(rng.normal(size=(64, 16)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 4, size=64))


class Model(nnx.Module):
    def __init__(self, rngs):
        # Without bias: normalisation takes it out again, so that its gradient is rounding noise, which Adam scales up.
        self.first = nnx.Linear(16, 32, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x):
        return self.second(self.dropout(nnx.relu(self.norm(self.first(x)))))


@nnx.jit
def train_step(model, optimizer):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(inputs), labels).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def make():
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    step = lambda: train_step(model, optimizer)
    step.model = model
    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(20)]
    model = step.model
    model.eval()
    graph, state = nnx.split(model)
    logits = nnx.merge(graph, state)(inputs[:2])
    return {"loss": losses, "logits": np.asarray(logits).ravel().tolist()}
