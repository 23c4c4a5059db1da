"""Training that goes on from its last checkpoint when a process has died. Arguments: a folder; who dies at which step,
as "1@3", in the first start, or "" for nobody; and "shrink" if the processes that are left go on by themselves. The
first process writes the loss of each step that it does."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
from typing import Any

import numpy as onp

import weft
import weft.numpy as np
from weft.checkpointing import CheckpointManager
from weft.errors import ProcessFailureError
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

FOLDER, DIES, SHRINKS = pathlib.Path(sys.argv[1]), sys.argv[2], "shrink" in sys.argv[3:]
STEPS = 6
weft.distributed.initialize()
RANDOM = onp.random.RandomState(0)
DATA, TARGET = RANDOM.randn(12, 8).astype(onp.float32), RANDOM.randn(12, 1).astype(onp.float32)
START = {"w": RANDOM.randn(8, 4).astype(onp.float32), "v": RANDOM.randn(4, 1).astype(onp.float32)}


@weft.jit
def step(params: Any, x: Any, y: Any) -> Any:
    loss = lambda p: np.mean((np.tanh(x @ p["w"]) @ p["v"] - y) ** 2)
    value, gradients = weft.value_and_grad(loss)(params)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def train(dies: bool) -> None:
    """Run the remaining steps on a mesh of the available devices."""
    mesh = weft.make_mesh((weft.device_count(),), ("x",), (AxisType.Auto,))
    split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    x, y = (weft.make_array_from_callback(a.shape, split, lambda i, a=a: a[i]) for a in (DATA, TARGET))
    with CheckpointManager(FOLDER / "steps", max_to_keep=2) as manager:
        done = manager.latest_step()
        if done is None:
            params = weft.device_put(START, whole)
        else:
            params = manager.restore(done, shardings=weft.tree.map(lambda _: whole, START))
        for i in range(0 if done is None else done + 1, STEPS):
            if dies and DIES == f"{weft.process_index()}@{i}":
                os.kill(os.getpid(), signal.SIGKILL)
            params, loss = step(params, x, y)
            if weft.process_index() == 0:
                with (FOLDER / "losses").open("a") as file:
                    file.write(f"{i} {float(loss).hex()} {weft.process_count()} {time.time()}\n")
            manager.save(i, params)
            manager.wait_until_finished()


first = os.environ.get("WEFT_RESTART_COUNT", "0") == "0"
try:
    train(first)
except ProcessFailureError as error:
    (FOLDER / f"told {os.getpid()}").write_text(f"{error}\n{error.failed_processes}")
    if not SHRINKS:
        raise
    weft.distributed.shrink()
    train(False)
(FOLDER / f"end {weft.process_index()} of {weft.process_count()}").write_text("done")
