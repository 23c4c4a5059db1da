"""Operations of processes outside of programs, also with one process. The first argument is a folder."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import time
from typing import Any

import numpy as onp

import weft
from weft import checkpointing
from weft.data import Loader
from weft.experimental import multihost_utils
from weft.runtime.processes import world
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

FOLDER = pathlib.Path(sys.argv[1])
assert not weft.distributed.is_initialized()
early = weft.numpy.arange(3.0)  # an array that is there before
weft.distributed.initialize()
assert weft.distributed.is_initialized()
RANK, COUNT = weft.process_index(), weft.process_count()
LOCAL = len(weft.local_devices())


def raised(kind: type[BaseException], function: Any, *args: Any, **kwargs: Any) -> str:
    try:
        function(*args, **kwargs)
    except kind as error:
        return str(error)
    raise AssertionError(f"{function} did not raise {kind.__name__}")


def devices() -> None:
    assert [d.id for d in weft.devices()] == list(range(COUNT * LOCAL)), weft.devices()
    assert {d.process_index for d in weft.local_devices()} == {RANK}
    assert weft.local_devices(process_index=COUNT - 1)[0].process_index == COUNT - 1
    assert weft.device_count() == COUNT * weft.local_device_count()
    assert early.devices() == {weft.local_devices()[0]} and float((early + 1).sum()) == 6
    assert "must be the index of a process" in raised(ValueError, weft.local_devices, process_index=COUNT)
    raised(RuntimeError, weft.distributed.initialize)
    if COUNT > 1:
        other = weft.local_devices(process_index=1 - RANK)[0]
        assert "of process" in raised(ValueError, weft.device_put, early, other)


def values() -> None:
    shapes = {"a": onp.full((2, 3), RANK, onp.float32), "b": (onp.int32(RANK), onp.arange(2, dtype="bfloat16") + RANK)}
    stacked = multihost_utils.process_allgather(shapes)
    assert stacked["a"].shape == (COUNT, 2, 3) and (stacked["a"][-1] == COUNT - 1).all()
    assert stacked["b"][0].tolist() == list(range(COUNT)) and stacked["b"][1].shape == (COUNT, 2)
    tiled = multihost_utils.process_allgather(shapes, tiled=True)
    assert tiled["a"].shape == (2 * COUNT, 3) and tiled["b"][0].shape == (COUNT,)
    for source in (0, COUNT - 1):
        told = multihost_utils.broadcast_one_to_all(shapes, is_source=RANK == source)
        assert (told["a"] == source).all() and told["b"][0] == source and told["b"][1].dtype == shapes["b"][1].dtype
    assert "one source" in raised(ValueError, multihost_utils.broadcast_one_to_all, shapes, is_source=False)
    multihost_utils.sync_global_devices("a name")
    multihost_utils.assert_equal({"w": onp.arange(4), "s": 1.0})
    if COUNT > 1:
        tree = {"v": onp.ones(3), "w": onp.arange(4.0) * (RANK + 1)}
        text = raised(AssertionError, multihost_utils.assert_equal, tree, "weights")
        assert "weights: leaf ['w'][1] is 1.0 on process 0 and 2.0 on process 1" in text, text
        text = raised(AssertionError, multihost_utils.assert_equal, onp.ones(2 + RANK))
        assert "float32[2] on process 0 and float32[3] on process 1" in text, text


def local_data() -> None:
    mesh = weft.make_mesh((COUNT * LOCAL // 2, 2), ("x", "y"), (AxisType.Auto,) * 2)
    rows = onp.arange(4 * LOCAL, dtype=onp.float32).reshape(LOCAL, 4) + 100 * RANK
    whole = onp.concatenate(
        [onp.arange(4 * LOCAL, dtype=onp.float32).reshape(LOCAL, 4) + 100 * r for r in range(COUNT)]
    )
    for spec in (P("x", "y"), P("x"), P("x", None)):
        a = weft.make_array_from_process_local_data(NamedSharding(mesh, spec), rows)
        assert a.shape == whole.shape
        onp.testing.assert_array_equal(multihost_utils.process_allgather(a, tiled=True), whole)
        b = multihost_utils.host_local_array_to_global_array({"r": rows}, mesh, spec)["r"]
        onp.testing.assert_array_equal(multihost_utils.process_allgather(a - b, tiled=True), whole * 0)
        back = multihost_utils.global_array_to_host_local_array(b, mesh, spec)
        assert back.is_fully_addressable
        onp.testing.assert_array_equal(back, rows)
    full = weft.make_array_from_process_local_data(NamedSharding(mesh, P("x")), whole, whole.shape)
    onp.testing.assert_array_equal(multihost_utils.process_allgather(full, tiled=True), whole)
    replicated = weft.make_array_from_process_local_data(NamedSharding(mesh, P()), whole)
    assert replicated.is_fully_replicated and replicated.shape == whole.shape
    if COUNT > 1:
        transport = world.current().transport
        sent: list[int] = []
        start = transport.start
        transport.start = lambda sends, receives: (sent.append(sum(m.nbytes for m in sends)), start(sends, receives))[1]
        other = NamedSharding(weft.make_mesh((COUNT * LOCAL,), ("d",), (AxisType.Auto,)), P("d"))
        moved = weft.device_put(full, other)  # each process has what its devices get
        assert not sent, sent
        columns = weft.device_put(moved, NamedSharding(mesh, P(None, "x")))  # half of the columns of own rows are sent
        assert sent == [moved.nbytes // COUNT // COUNT], (sent, moved.nbytes)
        transport.start = start
        onp.testing.assert_array_equal(multihost_utils.process_allgather(columns, tiled=True), whole)
        assert "process_allgather" in raised(ValueError, onp.asarray, full)
        text = raised(ValueError, weft.make_array_from_process_local_data, full.sharding, whole, (LOCAL, 4))
        assert "Dimension 0 of the local data" in text, text
        onp.testing.assert_array_equal(weft.jit(lambda v: v.sum())(full), whole.sum())
    tree = {"full": full, "step": onp.int32(3)}
    checkpointing.save(FOLDER / "saved", tree)
    with checkpointing.CheckpointManager(FOLDER / "steps") as manager:
        manager.save(1, tree)
        full = weft.jit(lambda v: v + v.sum())(full)  # while the other thread writes
    read = checkpointing.restore(FOLDER / "saved", shardings={"full": NamedSharding(mesh, P("y", "x")), "step": None})
    onp.testing.assert_array_equal(multihost_utils.process_allgather(read["full"], tiled=True), whole)


def uneven() -> None:
    """Five rows over all devices: the last ones have fewer, or none."""
    mesh = weft.make_mesh((COUNT * LOCAL,), ("x",), (AxisType.Auto,))
    where = NamedSharding(mesh, P("x"))
    whole = onp.arange(15, dtype=onp.float32).reshape(5, 3)
    rows = whole[weft.process_slices(where, whole.shape)]
    a = weft.make_array_from_process_local_data(where, rows, whole.shape)
    assert sum(s.data.shape[0] for s in a.addressable_shards) == len(rows)
    results = weft.jit(lambda a: (a * 2, a.sum(0), a.T @ a, weft.numpy.sort(-a, 0)))(a)
    wanted = whole * 2, whole.sum(0), whole.T @ whole, onp.sort(-whole, 0)
    for found, expected in zip((a, *results), (whole, *wanted), strict=True):
        onp.testing.assert_array_equal(multihost_utils.process_allgather(found, tiled=True), expected)
    assert results[0].sharding == where
    onp.testing.assert_array_equal(multihost_utils.global_array_to_host_local_array(a, mesh, P("x")), rows)
    checkpointing.save(FOLDER / "uneven", {"a": a})
    read = checkpointing.restore(FOLDER / "uneven", shardings=NamedSharding(mesh, P(None, "x")))["a"]
    onp.testing.assert_array_equal(multihost_utils.process_allgather(read, tiled=True), whole)
    moved = weft.device_put(a, NamedSharding(mesh, P(None, "x")))
    onp.testing.assert_array_equal(multihost_utils.process_allgather(moved, tiled=True), whole)


def batches() -> None:
    """Read the rows of each process of a batch; the last one is smaller, so that some may have none."""
    mesh = weft.make_mesh((COUNT * LOCAL,), ("x",), (AxisType.Auto,))
    whole = onp.arange(8 * LOCAL * COUNT + 1, dtype=onp.float32)
    for options in ({}, {"transforms": [lambda row: row + 1], "workers": 2}):
        loader = Loader(whole, 4 * LOCAL * COUNT, shuffle=True, seed=3, device=mesh, **options)
        alone = Loader(whole, 4 * LOCAL * COUNT, shuffle=True, seed=3, shard=None, **{**options, "workers": 0})
        for found, expected in zip(loader, alone, strict=True):
            assert found.shape == expected.shape
            onp.testing.assert_array_equal(multihost_utils.process_allgather(found, tiled=True), expected)
        loader.close()
    own = [len(rows) for rows in Loader(whole, 4 * LOCAL * COUNT)]
    assert own[:2] == [4 * LOCAL] * 2 and own[2] == int(RANK == COUNT - 1), own


def preemption() -> None:
    """Send one process a signal: all stop at the same step."""
    stopped = None
    for step in range(2000):
        if step == 5 + 2 * RANK and RANK == COUNT - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if multihost_utils.reached_preemption_sync_point(step):
            stopped = step
            break
        time.sleep(0.01)
    assert stopped is not None
    steps = multihost_utils.process_allgather(onp.int32(stopped))
    assert len(set(steps.tolist())) == 1, steps


devices()
values()
local_data()
uneven()
batches()
preemption()
loaded = {name for name in sys.modules if name.startswith("weft.runtime.cuda.")}
assert loaded <= {"weft.runtime.cuda.devices"}, f"no GPU was used, and {loaded} were imported"
if RANK == 0:
    time.sleep(0.5)  # the others are at their end long before
(FOLDER / f"{RANK} of {COUNT}").write_text("done")
