"""Orbax: a state on eight devices is saved, and restored to other shardings, in parts, by range and with keys."""

import os
import pathlib
import shutil
import tempfile

# As programs for JAX do it: before jax is imported.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"))
other = jax.make_mesh((2, 4), ("data", "model"))
SPECS = {2: P("model", "data"), 1: P("data"), 0: P()}
optimizer = optax.adam(1e-2)


def init():
    rng = np.random.default_rng(20)
    weights = jnp.asarray(rng.normal(size=(8, 16)), jnp.float32)
    params = {
        "w": jax.device_put(weights, NamedSharding(mesh, P("data", "model"))),
        "b": jax.device_put(jnp.arange(16, dtype=jnp.bfloat16), NamedSharding(mesh, P("model"))),
    }
    return {"params": params, "memory": optimizer.init(params), "step": 7}


def elsewhere(leaf):
    """Return the target of a restore: the same array, split over another mesh."""
    if not isinstance(leaf, jax.Array):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(other, SPECS[leaf.ndim]))


@jax.jit
def train_step(state):
    grads = jax.grad(lambda p: jnp.mean((p["w"] + p["b"].astype(jnp.float32)) ** 2))(state["params"])
    updates, memory = optimizer.update(grads, state["memory"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "memory": memory, "step": state["step"]}, jnp.mean(params["w"])


def make():
    carry = [init()]

    def step():
        carry[0], mean = train_step(carry[0])
        return mean

    return step


def raises(kind, phrase, attempt):
    """1 if an attempt fails with such an error, whose message has this phrase."""
    try:
        attempt()
    except kind as error:
        return int(phrase in str(error))
    return 0


def values(tree):
    """Return the sums of all leaves and the sizes of their parts."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    sums = [float(jnp.sum(jnp.abs(leaf.astype(jnp.float32)))) for leaf in leaves]
    return sums + [float(size) for leaf in leaves for size in leaf.addressable_shards[0].data.shape]


def numbers():
    state = init()
    target = jax.tree.map(elsewhere, state)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        with ocp.StandardCheckpointer() as standard:
            standard.save(path / "state", state)
            standard.wait_until_finished()
            moved = standard.restore(path / "state", target)
            results["moved"] = [*values(moved), float(train_step(moved)[1])]
            results["as it was"] = values(standard.restore(path / "state"))
            shape = jax.ShapeDtypeStruct((8, 12), jnp.float32, sharding=NamedSharding(other, P("data")))
            wrong = {**target, "params": {**target["params"], "w": shape}}
            results["errors"] = [
                raises(ValueError, "already exists", lambda: standard.save(path / "state", state)),
                raises(FileNotFoundError, "not found", lambda: standard.restore(path / "absent", target)),
                raises(ValueError, "do not match", lambda: standard.restore(path / "state", {**target, "more": 0})),
                raises(ValueError, "not compatible", lambda: standard.restore(path / "state", wrong)),
            ]
            shutil.rmtree(path / "state" / "d")
            results["errors"].append(
                raises(ValueError, "NOT_FOUND", lambda: standard.restore(path / "state", target)),
            )
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as trees:
            trees.save(path / "params", args=ocp.args.PyTreeSave(state["params"]))
            # The first half of the rows, and more elements than there are.
            ranges = {
                "w": ocp.ArrayRestoreArgs(
                    sharding=NamedSharding(other, P("model")), global_shape=(4, 16), strict=False
                ),
                "b": ocp.ArrayRestoreArgs(sharding=NamedSharding(other, P()), global_shape=(24,), strict=False),
            }
            args = ocp.args.PyTreeRestore(state["params"], restore_args=ranges)
            results["by range"] = values(trees.restore(path / "params", args=args))
            only = {"b": ocp.ArrayRestoreArgs(sharding=NamedSharding(other, P("data")))}
            args = ocp.args.PyTreeRestore({"b": state["params"]["b"]}, restore_args=only, partial_restore=True)
            results["in part"] = values(trees.restore(path / "params", args=args))
        keys = {"key": jax.random.key(3), "keys": jax.random.split(jax.random.key(4), 2)}
        with ocp.StandardCheckpointer() as standard:
            standard.save(path / "keys", keys)
            standard.wait_until_finished()
            restored = standard.restore(path / "keys", keys)
        results["keys"] = [float(jax.random.uniform(restored["key"])), float(jax.random.uniform(restored["keys"][1]))]
        options = ocp.CheckpointManagerOptions(max_to_keep=2, best_fn=lambda metrics: metrics["loss"], best_mode="min")
        with ocp.CheckpointManager(path / "steps", options=options) as manager:
            for at, loss in enumerate([3.0, 1.0, 2.0]):
                manager.save(at, args=ocp.args.StandardSave(state["params"]), metrics={"loss": loss})
            manager.wait_until_finished()
            results["steps"] = [*sorted(manager.all_steps()), manager.best_step(), manager.latest_step()]
            results["best"] = values(manager.restore(1, args=ocp.args.StandardRestore(target["params"])))
            args = ocp.args.StandardRestore(target["params"])
            results["errors"].append(raises(FileNotFoundError, "not found", lambda: manager.restore(17, args=args)))
    return results
