"""Two processes of which one does something wrong: the first argument says what. Each writes what it is told into the
folder that the second argument names. With a third one the devices are simulated GPUs, one for each process."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
from typing import Any

import numpy as onp

import weft
from weft import lax
from weft.base.settings import distributed_checks
from weft.errors import ProcessFailureError, ProgramMismatchError
from weft.experimental import multihost_utils
from weft.runtime.processes import world
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

PLATFORM = "gpu" if len(sys.argv) > 3 else "cpu"
if PLATFORM == "gpu":
    from tests.cuda.queued import install

    _, NCCL = install(2)
weft.distributed.initialize()
FIRST = weft.process_index() == 0
MESH = weft.make_mesh((weft.device_count(PLATFORM),), ("x",), (AxisType.Auto,), devices=weft.devices(PLATFORM))


FOLDER = pathlib.Path(sys.argv[2])
with (FOLDER / "pids").open("a") as file:
    file.write(f"{os.getpid()}\n")


def write(text: str) -> None:
    with (FOLDER / f"{weft.process_index()}.txt").open("a") as file:
        file.write(f"{text}\n")


def put(*shape: int) -> Any:
    return weft.device_put(onp.ones(shape, onp.float32), NamedSharding(MESH, P("x")))


def summed(a: Any) -> Any:
    return lax.psum(a, "x")


def doubled(a: Any) -> Any:
    return lax.psum(a * 2, "x")


results: list[Any] = []


def ended(f: Any) -> Any:
    """Wrap a function so that its results are complete when it returns."""
    on_mesh = weft.jit(weft.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P()))

    def call(a: Any) -> Any:
        results.append(on_mesh(a))
        return results[-1].block_until_ready()

    return call


total, twice = ended(summed), ended(doubled)


def dies() -> None:
    for _ in range(3):
        total(put(4, 3))
    if not FIRST:
        write(f"dies at {time.time()}")
        os.kill(os.getpid(), signal.SIGKILL)
    total(put(4, 3))


def first_dies() -> None:
    total(put(4, 3))
    if FIRST:
        write(f"dies at {time.time()}")
        os.kill(os.getpid(), signal.SIGKILL)
    total(put(4, 3))


def raises() -> None:
    total(put(4, 3))
    if not FIRST:
        raise ValueError("no more data")
    total(put(4, 3))


def leaves() -> None:
    total(put(4, 3))
    if FIRST:
        total(put(4, 3))


def is_lost_in_thought() -> None:
    time.sleep(600)


def stuck() -> None:
    total(put(4, 3))
    if not FIRST:
        write(f"stuck at {time.time()}")
        is_lost_in_thought()
    total(put(4, 3))


def shapes() -> None:
    write(f"differs at {time.time()}")
    total(put(4, 3 if FIRST else 5))


def programs() -> None:
    write(f"differs at {time.time()}")
    (total if FIRST else twice)(put(4, 3))


def order() -> None:
    a = put(4, 3)
    total(a), twice(a)
    write(f"differs at {time.time()}")
    for f in (total, twice) if FIRST else (twice, total):
        f(a)


def every_call() -> None:
    with distributed_checks("all"):
        order()


def settings() -> None:
    write(f"differs at {time.time()}")
    with weft.enable_x64(FIRST):
        total(put(4, 3))


def kinds() -> None:
    a = put(4, 3)
    total(a)
    write(f"differs at {time.time()}")
    if FIRST:
        total(a)
    else:
        multihost_utils.sync_global_devices("end")


try:
    globals()[sys.argv[1]]()
except (ProcessFailureError, ProgramMismatchError) as error:
    text = " ".join(line.strip() for line in str(error).splitlines())
    write(f"{type(error).__name__} raised at {time.time()}: {text}")
    if PLATFORM == "gpu":
        control = world.current().control
        assert control is not None and control.join_failure_calls(5)
        write("; ".join(NCCL.lines[-4:]))
        *finished, lost = results
        for result in finished:
            assert onp.isin(onp.asarray(result), (2, 4)).all(), "what was computed before is still there"
        assert lost.is_deleted()
        assert float(weft.device_put(onp.ones(3), MESH.local_devices[0]).sum()) == 3, "and the GPU works"
        write("the rest is there")
    raise
