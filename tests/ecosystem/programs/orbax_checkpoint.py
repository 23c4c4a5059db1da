"""Orbax: a training state is saved by a CheckpointManager and restored, and training goes on with the same numbers."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

rng = np.random.default_rng(15)
inputs = jnp.asarray(rng.normal(size=(64, 8)), jnp.float32)
targets = jnp.asarray(rng.normal(size=(64, 2)), jnp.float32)
optimizer = optax.adam(1e-2)


@jax.jit
def train_step(state):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((inputs @ p["w"] + p["b"] - targets) ** 2))(state["params"])
    updates, memory = optimizer.update(grads, state["memory"])
    return {"params": optax.apply_updates(state["params"], updates), "memory": memory, "step": state["step"] + 1}, loss


def make():
    params = {"w": jnp.zeros((8, 2)), "b": jnp.zeros(2)}
    carry = [{"params": params, "memory": optimizer.init(params), "step": jnp.zeros((), jnp.int32)}]

    def step():
        carry[0], loss = train_step(carry[0])
        return loss

    step.carry = carry
    return step


def numbers():
    step = make()
    losses = [float(step()) for _ in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
            for at in (3, 4, 5):
                manager.save(at, args=ocp.args.StandardSave(step.carry[0]))
            manager.wait_until_finished()
            steps = sorted(manager.all_steps())
            empty = jax.tree.map(jnp.zeros_like, step.carry[0])
            restored = manager.restore(5, args=ocp.args.StandardRestore(empty))
    same = all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(step.carry[0]), strict=True)
    )
    step.carry[0] = restored
    return {"loss": losses + [float(step()) for _ in range(5)], "steps": steps, "same": [int(same)]}
