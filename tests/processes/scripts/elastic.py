"""Training whose processes are started again when one is killed. Arguments: a folder, "loop" or "fit", and which
process dies before which step of the first start, as "2@7", or "" for none. The first process writes each loss. "hosts"
is "loop" where two processes each share a directory, as those of a host do."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import Any

import numpy as onp

import weft
import weft.numpy as np
from weft import keras
from weft.checkpointing import ElasticManager
from weft.keras import callbacks, distribution, layers
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

FOLDER, KIND, DIES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
STEPS = 12
IS_FIRST = os.environ.get("WEFT_RESTART_COUNT", os.environ.get("WEFT_RESTART", "0")) == "0"
weft.distributed.initialize()
INDEX = weft.process_index()
RANDOM = onp.random.RandomState(0)
X, Y = RANDOM.randn(48, 8).astype(onp.float32), RANDOM.randn(48, 1).astype(onp.float32)


def begin(step: int) -> None:
    """Die if this process is to die before this step."""
    if IS_FIRST and DIES == f"{INDEX}@{step}":
        os.kill(os.getpid(), signal.SIGKILL)


def write(step: int, loss: float) -> None:
    if INDEX == 0:
        with (FOLDER / "losses").open("a") as file:
            file.write(f"{step} {float(loss).hex()}\n")


@weft.jit
def update(params: Any, x: Any, y: Any) -> Any:
    loss = lambda p: np.mean((np.tanh(x @ p["w"]) @ p["v"] - y) ** 2)
    value, gradients = weft.value_and_grad(loss)(params)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def loop() -> None:
    """Train weights that are split over all devices, with checkpoints of all steps in memory and few on disk."""
    mesh = weft.make_mesh((weft.device_count(),), ("x",), (AxisType.Auto,))
    split = NamedSharding(mesh, P("x"))
    shardings = {"w": split, "v": NamedSharding(mesh, P())}
    start = {"w": RANDOM.randn(8, 4).astype(onp.float32), "v": RANDOM.randn(4, 1).astype(onp.float32)}
    place = lambda a, s: weft.make_array_from_callback(a.shape, s, lambda i: a[i])
    x, y = place(X, split), place(Y, split)
    with ElasticManager(FOLDER / "steps", save_interval_steps=8) as manager:
        done = manager.latest_step()
        params = weft.tree.map(place, start, shardings) if done is None else manager.restore(done, shardings=shardings)
        for step in range(0 if done is None else done + 1, STEPS):
            begin(step)
            params, loss = update(params, x, y)
            write(step, loss)
            manager.save(step, params)
            if DIES and INDEX == 0:
                assert manager.has_memory and manager.spans_hosts == (KIND == "hosts")
            if DIES:  # the state of each step is certain to be there
                manager.wait_until_finished()


class Step(callbacks.Callback):
    """Callback that dies, and writes the losses of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def get_state(self) -> Any:
        return {"step": self.step}

    def set_state(self, state: Any) -> None:
        self.step = int(state["step"])

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        begin(self.step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        write(self.step, logs["loss"])
        self.step += 1


def fit() -> None:
    """Train a model by `fit`, with backups of batches in memory."""
    keras.utils.set_random_seed(0)
    if weft.device_count() > 1:
        distribution.set_distribution(distribution.DataParallel())
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(16, activation="relu"), layers.Dropout(0.2), layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    backup = callbacks.BackupAndRestore(FOLDER / "backup", save_freq=1, memory=True)
    model.fit(X, Y, batch_size=16, epochs=STEPS // 3, verbose=0, callbacks=[Step(), backup])


if KIND == "hosts" and DIES:
    os.environ["WEFT_JOB_DIRECTORY"] += f"/host{INDEX // 2}"
(fit if KIND == "fit" else loop)()
