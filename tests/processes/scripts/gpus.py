"""Programs on simulated GPUs, of which each process has some: the first argument is how many there are on the host, the
second a folder for what each process has found. With a third one processes choose their GPUs, the last ones first."""

from __future__ import annotations

import atexit
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from tests.cuda.queued import install
from weft import checkpointing, lax
from weft.errors import ProgramMismatchError
from weft.experimental import multihost_utils
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

COUNT, FOLDER = int(sys.argv[1]), pathlib.Path(sys.argv[2])
DRIVERS, NCCL = install(COUNT)


@atexit.register
def are_idle() -> None:
    """Record that all GPU work is done, after the process has left the others."""
    if all(driver.is_idle() for driver in DRIVERS.values()):
        (FOLDER / f"idle{RANK}.txt").write_text("all work is done")


CHOSEN = None
if len(sys.argv) > 3:
    rank = next(os.environ[name] for name in ("WEFT_PROCESS_ID", "OMPI_COMM_WORLD_RANK") if name in os.environ)
    CHOSEN = [COUNT - 1 - int(rank)]
weft.distributed.initialize(local_device_ids=CHOSEN)
RANK, PROCESSES = weft.process_index(), weft.process_count()
LOCAL = COUNT // PROCESSES
GPUS = weft.devices("gpu")

X = np.arange(16 * COUNT, dtype=np.float32).reshape(COUNT, 4, 4)
RING = [(i, (i + 1) % COUNT) for i in range(COUNT)]
COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "psum": lambda x: lax.psum(x, "i"),
    "psum of complex numbers": lambda x: lax.psum(x + 2j * x, "i"),
    "pmax": lambda x: lax.pmax(x * (1 - x), "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "all_gather, last": lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
    "reduce_scatter": lambda x: lax.psum_scatter(x, "i", tiled=True),
    "reduce_scatter, last": lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True),
    "all_to_all, turned": lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
    "ppermute": lambda x: lax.ppermute(x, "i", RING),
    "ppermute of one": lambda x: lax.ppermute(x, "i", [(0, COUNT - 1)]),
    "pbroadcast": lambda x: lax.pbroadcast(x, "i", COUNT - 1),
    "index": lambda x: x * lax.axis_index("i"),
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda i, c: lax.psum(c, "i") * 0.5 + x, x),
    "in a while": lambda x: lax.while_loop(lambda c: lax.pmax(c[0, 0], "i") < 100, lambda c: lax.psum(c, "i") + 1, x),
    "in a branch": lambda x: lax.cond(lax.psum(x[0, 0], "i") > 3, lambda c: lax.psum(c, "i"), lambda c: c * 2, x),
}


def devices() -> None:
    assert [d.id for d in GPUS] == list(range(COUNT)), GPUS
    assert [d.process_index for d in GPUS] == [i // LOCAL for i in range(COUNT)]
    own = weft.local_devices(backend="gpu")
    assert [d.local_hardware_id for d in own] == (CHOSEN or list(range(RANK * LOCAL, (RANK + 1) * LOCAL))), own


def collectives() -> None:
    mesh = weft.make_mesh((COUNT,), ("i",), (AxisType.Auto,), devices=GPUS)
    x = weft.make_array_from_process_local_data(NamedSharding(mesh, P("i")), X[RANK * LOCAL : (RANK + 1) * LOCAL])
    for name, f in COLLECTIVES.items():
        NCCL.lines.append(name)
        mapped = weft.jit(
            weft.shard_map(lambda x, f=f: f(x[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
        )
        for _ in range(3):
            found = multihost_utils.process_allgather(mapped(x), tiled=True)
        expected = np.asarray(weft.vmap(f, axis_name="i")(X))
        np.testing.assert_allclose(found.astype(np.complex64), expected.astype(np.complex64), rtol=1e-6, err_msg=name)
    NCCL.lines.append("end")


def axes() -> None:
    """Return a mesh with an axis through all processes and one within each: groups of both kinds."""
    mesh = weft.make_mesh((PROCESSES, LOCAL), ("far", "near"), (AxisType.Auto,) * 2, devices=GPUS)

    def f(x: Any) -> Any:
        near = lax.psum(x, "near") * 0.5 + lax.axis_index("near")
        return lax.all_gather(lax.psum(near, "far") + x, "near").sum(0) - lax.pmean(x, ("far", "near"))

    whole = np.arange(8.0 * COUNT, dtype=np.float32).reshape(4 * PROCESSES, 2 * LOCAL)
    spec = P("far", "near")
    x = weft.device_put(whole, NamedSharding(mesh, spec))
    on_mesh = weft.jit(weft.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    blocks = whole.reshape(PROCESSES, 4, LOCAL, 2).transpose(0, 2, 1, 3)
    mapped = weft.vmap(weft.vmap(f, axis_name="near"), axis_name="far")(blocks)
    expected = np.asarray(mapped).transpose(0, 2, 1, 3).reshape(whole.shape)
    NCCL.lines.append("axes")
    for _ in range(4):
        found = multihost_utils.process_allgather(on_mesh(x), tiled=True)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    NCCL.lines.append("end of axes")


def overlap() -> None:
    """GPUs compute while a collective is under way that they do not need yet."""
    mesh = weft.make_mesh((COUNT,), ("i",), (AxisType.Auto,), devices=GPUS)

    def f(x: Any) -> Any:
        return lax.psum(x, "i") + lax.sort(wnp.tanh(x @ x.T), dimension=0)

    on_mesh = weft.jit(weft.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))
    whole = X.reshape(4 * COUNT, 4) * 0.01
    expected = np.asarray(weft.vmap(f, axis_name="i")(X * 0.01)).reshape(whole.shape)
    for _ in range(3):
        for driver in DRIVERS.values():
            driver.started.clear()
        found = on_mesh(weft.device_put(whole, NamedSharding(mesh, P("i"))))
        np.testing.assert_allclose(multihost_utils.process_allgather(found, tiled=True), expected, rtol=1e-5)
        for driver in DRIVERS.values() if PROCESSES > 1 else ():
            under_way = driver.started[driver.started.index("beside") : driver.started.index("follow")]
            assert {"launch", "start"} & set(under_way), driver.started


def arrays() -> None:
    mesh = weft.make_mesh((COUNT,), ("d",), (AxisType.Auto,), devices=GPUS)
    whole = np.arange(6 * COUNT, dtype=np.float32).reshape(2 * COUNT, 3)
    rows, replicated = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    a = weft.device_put(whole, rows)
    assert [s.device for s in a.addressable_shards] == weft.local_devices(backend="gpu")
    assert [s.data is None for s in a.global_shards] == [d.process_index != RANK for d in GPUS]
    b = weft.make_array_from_callback(whole.shape, rows, lambda index: whole[index])
    # A result that is split and one that is whole; the compiler chooses neither.
    split, total = weft.jit(lambda a, b: (a + b, (a * b).sum(0)), out_shardings=(rows, replicated))(a, b)
    np.testing.assert_array_equal(multihost_utils.process_allgather(split, tiled=True), 2 * whole)
    np.testing.assert_allclose(np.asarray(total), (whole * whole).sum(0))
    np.testing.assert_array_equal(np.asarray(weft.device_put(a, replicated)), whole)
    checkpointing.save(FOLDER / "saved", {"a": a, "total": total})
    read = checkpointing.restore(FOLDER / "saved", shardings={"a": rows, "total": replicated})
    assert read["a"].sharding == rows
    np.testing.assert_array_equal(multihost_utils.process_allgather(read["a"], tiled=True), whole)
    told = multihost_utils.broadcast_one_to_all(np.full(3, RANK))
    assert (told == 0).all()
    multihost_utils.sync_global_devices("arrays")


def training() -> None:
    """Run steps of training whose batches are split; the losses are those of one process."""
    mesh = weft.make_mesh((COUNT,), ("data",), (AxisType.Auto,), devices=GPUS)
    rng = np.random.default_rng(0)
    w, bias = rng.normal(size=(3, 4)).astype(np.float32), np.zeros(4, np.float32)
    batches = rng.normal(size=(6, 4 * COUNT, 3)).astype(np.float32)

    def step(state: Any, x: Any) -> Any:
        loss = lambda s: wnp.mean(wnp.tanh(x @ s[0] + s[1]) ** 2)
        value, gradient = weft.value_and_grad(loss)(state)
        return [p - 0.1 * g for p, g in zip(state, gradient, strict=True)], value

    NCCL.lines.append("training")
    there = weft.device_put([w, bias], NamedSharding(mesh, P()))
    here, losses = [w, bias], []
    on_mesh, alone = weft.jit(step, donate_argnums=0), weft.jit(step)
    for x in batches:
        share = x[RANK * 4 * LOCAL : (RANK + 1) * 4 * LOCAL]
        before = there
        there, value = on_mesh(there, weft.make_array_from_process_local_data(NamedSharding(mesh, P("data")), share))
        here, expected = alone(here, x)
        assert all(leaf.is_deleted() for leaf in before)
        losses.append((value, expected))  # nobody waits for a step
    for value, expected in losses:
        np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(there[0]), np.asarray(here[0]), rtol=1e-5)
    print(f"losses of {RANK}:", *(f"{float(value):.4f}" for value, _ in losses))


def differ() -> None:
    """Call a function with arguments of different types in two processes: both raise before anything is computed."""
    mesh = weft.make_mesh((COUNT,), ("d",), (AxisType.Auto,), devices=GPUS)
    x = weft.device_put(np.ones((COUNT, 3 + 2 * RANK), np.float32), NamedSharding(mesh, P("d")))
    try:
        weft.jit(lambda x: x.sum(0))(x)
    except ProgramMismatchError as error:
        (FOLDER / f"mismatch{RANK}.txt").write_text(" ".join(str(error).split()))


for part in (devices, collectives, axes, overlap, arrays, training):
    part()
(FOLDER / f"{RANK}.txt").write_text("\n".join(NCCL.lines))
if COUNT > PROCESSES:
    differ()
else:
    lasting = weft.make_mesh((COUNT,), ("d",), (AxisType.Auto,), devices=GPUS)
    rows = weft.device_put(X, NamedSharding(lasting, P("d")))
    for driver in DRIVERS.values():
        driver.enqueue(lambda: time.sleep(1.5))
    weft.jit(lambda x: wnp.sin(x + x.sum()))(rows)  # nobody waits for it
