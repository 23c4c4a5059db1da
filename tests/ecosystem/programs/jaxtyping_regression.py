"""jaxtyping: a regression whose functions have their shapes and dtypes checked by beartype while they are traced."""

import jax
import jax.numpy as jnp
import numpy as np
from beartype import beartype
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, jaxtyped

rng = np.random.default_rng(9)
inputs = jnp.asarray(rng.normal(size=(64, 4)), jnp.float32)
targets = jnp.asarray(rng.normal(size=(64,)), jnp.float32)


@jaxtyped(typechecker=beartype)
def predict(weights: Float[Array, " d"], bias: Float[Array, ""], x: Float[Array, "n d"]) -> Float[Array, " n"]:
    return x @ weights + bias


@jaxtyped(typechecker=beartype)
def init(key: PRNGKeyArray, size: int) -> PyTree[Float[Array, "..."]]:
    return {"weights": jax.random.normal(key, (size,)), "bias": jnp.zeros(())}


@jaxtyped(typechecker=beartype)
def loss_of(params: PyTree[Float[Array, "..."]], x: Float[Array, "n d"], y: Float[Array, " n"]) -> Float[Array, ""]:
    return jnp.mean((predict(params["weights"], params["bias"], x) - y) ** 2)


@jax.jit
def train_step(params):
    loss, grads = jax.value_and_grad(loss_of)(params, inputs, targets)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def make():
    carry = [init(jax.random.key(0), 4)]

    def step():
        carry[0], loss = train_step(carry[0])
        return loss

    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(30)]
    try:
        loss_of(init(jax.random.key(0), 3), inputs, targets)
    except Exception:
        refused = 1
    else:
        refused = 0
    return {"loss": losses, "refused": [refused]}
