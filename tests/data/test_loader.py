"""The loader: an order that is a law of seed, epoch and index; positions, batches, errors; nothing stays behind."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.data import Buckets, Filter, Loader, RandomMap, WorkerFailureError
from weft.errors import ArgumentError, ArgumentTypeError, ShapeMismatchError
from weft.sharding import NamedSharding, PartitionSpec as P

WORKERS = [
    {"workers": 0, "prefetch": 0},
    {"workers": 0},
    {"workers": 1},
    {"workers": 3},
    {"workers": 2, "worker_type": "fork"},
    {"workers": 1, "worker_type": "spawn"},
]
NAMES = ["here", "ahead", "one thread", "three threads", "fork", "spawn"]


class Squares:
    """A map-style source, which counts what is read of it."""

    def __init__(self, count: int = 23) -> None:
        self.count = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return {"index": index, "square": np.array([index, index * index], np.float32)}


def with_noise(sample: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    return {**sample, "noise": generator.random(2)}


def is_odd(sample: dict[str, Any]) -> bool:
    return sample["index"] % 2 == 1


def counted(count: int = 23) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"index": i, "square": np.array([i, i * i], np.float32)}


class Counted:
    """An iterable source."""

    def __init__(self, count: int = 23) -> None:
        self.count = count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return counted(self.count)


def failing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["index"] == 9:
        raise KeyError("nine")
    return sample


def killing(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["index"] == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def plain(batches: Any) -> list[Any]:
    return [{name: np.asarray(leaf).tolist() for name, leaf in batch.items()} for batch in batches]


def indices(batches: Any) -> list[list[int]]:
    return [np.asarray(batch["index"]).tolist() for batch in batches]


def flat(lists: Any) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


SOURCES: dict[str, Callable[..., Loader]] = {
    "map-style": lambda **more: Loader(Squares(), 4, shuffle=True, seed=3, transforms=[RandomMap(with_noise)], **more),
    "filtered": lambda **more: Loader(
        Squares(), 4, shuffle=True, seed=3, transforms=[RandomMap(with_noise), Filter(is_odd)], **more
    ),
    "iterable": lambda **more: Loader(Counted(), 4, shuffle=5, seed=3, transforms=[RandomMap(with_noise)], **more),
    "iterable in order": lambda **more: Loader(Counted(), 4, transforms=[Filter(is_odd)], **more),
    "buckets": lambda **more: Loader(
        Squares(), 4, shuffle=True, buckets=Buckets((5, 20), np.arange(23)), transforms=[RandomMap(with_noise)], **more
    ),
    "buckets of an iterable": lambda **more: Loader(
        Counted(), 4, buckets=Buckets((5, 20), lambda sample: sample["index"]), **more
    ),
}
EXPECTED = {name: [plain(make(prefetch=0).batches(epoch)) for epoch in (0, 1)] for name, make in SOURCES.items()}


@pytest.mark.parametrize("workers", WORKERS, ids=NAMES)
def test_batches_do_not_depend_on_workers(workers: dict[str, Any]) -> None:
    for name, make in SOURCES.items():
        if workers.get("worker_type") == "spawn" and name != "filtered":
            continue  # a process takes half a second to start
        with make(**workers) as loader:
            assert [plain(loader), plain(loader)] == EXPECTED[name], name


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("workers", [WORKERS[0], WORKERS[1], WORKERS[3]], ids=["here", "ahead", "three threads"])
def test_a_position_is_exact(name: str, workers: dict[str, Any]) -> None:
    whole = EXPECTED[name][0]
    for stop in range(len(whole) + 1):
        loader = SOURCES[name](**workers)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state()))
        assert batches.state() == state
        other = SOURCES[name](**workers)
        other.restore(state)
        assert plain(other) == whole[stop:]
        assert plain(other) == EXPECTED[name][1]
        assert plain(SOURCES[name](**workers).batches(0, stop)) == whole[stop:]
        assert plain(SOURCES[name](**workers).resume(state)) == whole[stop:]
        batches.close()


def test_orders() -> None:
    loader = Loader(Squares(), 4, shuffle=True, seed=3)
    first, second = indices(loader), indices(loader)
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(23)) and first != second
    assert len(loader) == 6 and loader.epoch == 2
    loader.set_epoch(0)
    assert indices(loader) == first
    assert indices(Loader(Squares(), 4, shuffle=True, seed=4)) != first
    assert indices(Loader(Squares(), 4)) == [list(range(i, min(i + 4, 23))) for i in range(0, 23, 4)]
    assert len(indices(Loader(Squares(), 4, drop_remainder=True))) == 5
    # A loop that was left begins another epoch; looking at a batch does not.
    loader = Loader(Squares(), 4, shuffle=True, seed=3)
    loader.first(), loader.spec
    assert indices(itertools.islice(loader, 2)) == first[:2]
    assert indices(loader) == second


def test_restoring_reads_nothing_twice() -> None:
    source = Squares()
    loader = Loader(source, 4, prefetch=0)
    loader.restore(Loader(Squares(), 4).state() | {"batches": 4, "block": 4})
    assert indices(loader) == [[16, 17, 18, 19], [20, 21, 22]] and source.read == list(range(16, 23))


def test_positions_of_other_loaders_are_refused() -> None:
    with pytest.raises(ArgumentError, match="seed: 1, here 0; batch_size: 3, here 4"):
        Loader(Squares(), 4).restore(Loader(Squares(), 3, seed=1).state())
    with pytest.raises(ArgumentError, match="A position must come from a loader"):
        Loader(Squares(), 4).restore({"epoch": 3})


class Stateful:
    """An iterable source that says where it is."""

    def __init__(self) -> None:
        self.at, self.read = 0, 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 10:
            self.at, self.read = self.at + 1, self.read + 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_an_iterable_source(workers: int) -> None:
    loader = Loader(Stateful(), 2, workers=workers)
    batches = iter(loader)
    next(batches), next(batches)
    state = json.loads(json.dumps(loader.state()))
    source = Stateful()
    other = Loader(source, 2)
    assert other.skips == "state"
    other.restore(state)
    assert [batch.tolist() for batch in other] == [[4, 5], [6, 7], [8, 9]] and source.read == 6
    batches.close()


def test_epochs_without_a_pause() -> None:
    loader = Loader(range(5), 2, shuffle=True)
    two = [batch.tolist() for batch in loader.repeat(2)]
    assert two == [b.tolist() for epoch in (0, 1) for b in loader.batches(epoch)] and loader.epoch == 2
    endless = loader.repeat()
    assert [next(endless).tolist() for _ in range(4)][3] == next(loader.batches(3)).tolist()
    assert loader.state()["epoch"] == 3 and loader.state()["batches"] == 1
    assert list(Loader(iter([]), 2).repeat()) == []


# ------------------------------------------------------------------------------------------------------------- batches


def test_arrays_and_lists() -> None:
    x, y = np.arange(10).reshape(5, 2), np.arange(5)
    loader = Loader({"x": x, "y": y}, 2)
    assert [batch["x"].shape for batch in loader] == [(2, 2), (2, 2), (1, 2)]
    assert np.shares_memory(next(iter(loader))["x"], x)
    assert loader.spec["x"].shape == (None, 2)
    assert [batch.tolist() for batch in Loader([x[0], x[1], x[2]], 2)] == [[[0, 1], [2, 3]], [[4, 5]]]
    assert [batch.tolist() for batch in Loader([x, y], None)] == [x.tolist(), y.tolist()]
    assert Loader([("a", 1), ("b", 2)], 2).first()[0].tolist() == ["a", "b"]
    assert Loader(range(4), 2, collate=tuple).first() == (0, 1)


def test_padding() -> None:
    rows = [np.arange(1, n + 1) for n in (2, 1, 3)]
    assert Loader(rows, 3, pad="longest").first().tolist() == [[1, 2, 0], [1, 0, 0], [1, 2, 3]]
    assert Loader(rows, 3, pad=4, pad_value=-1).first().tolist() == [[1, 2, -1, -1], [1, -1, -1, -1], [1, 2, 3, -1]]
    labelled = [(row, np.ones(2)) for row in rows]
    assert [leaf.shape for leaf in Loader(labelled, 3, pad=(4, None)).first()] == [(3, 4), (3, 2)]
    with pytest.raises(ShapeMismatchError, match="must have the same shape"):
        Loader(rows, 3).first()
    with pytest.raises(ShapeMismatchError, match="longer than"):
        Loader(rows, 3, pad=2).first()
    with pytest.raises(ShapeMismatchError, match="the same tree structure"):
        Loader([(1, 2), 3], 2).first()


def test_buckets() -> None:
    rows = [np.full(n, n) for n in (1, 9, 2, 5, 4, 3, 8, 7)]
    loader = Loader(rows, 2, buckets=Buckets((3, 6)), pad="bucket")
    assert [batch.shape for batch in loader] == [(2, 3), (2, 6), (2, 9), (1, 3), (1, 7)] and len(loader) == 5
    assert [b.shape for b in Loader(rows, 2, buckets=Buckets((3, 6)), pad="bucket", drop_remainder=True)] == [
        (2, 3), (2, 6), (2, 9)
    ]  # fmt: skip
    sizes = Loader(rows, 2, buckets=Buckets((3, 6), batch_sizes=(3, 2, 1)), pad="longest")
    assert [batch.shape[0] for batch in sizes] == [1, 2, 3, 1, 1]
    with pytest.raises(ArgumentError, match="increase"):
        Buckets((6, 3))


@pytest.mark.parametrize("name", ["map-style", "filtered", "iterable", "buckets"])
@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_batches(name: str, count: int) -> None:
    parts = [plain(SOURCES[name](shard=(i, count))) for i in range(count)]
    assert len({len(part) for part in parts}) == 1
    for whole, *own in zip(EXPECTED[name][0], *parts, strict=True):
        assert whole == {key: flat(part[key] for part in own) for key in whole}


def test_rows_of_a_process_that_has_none() -> None:
    last = list(Loader(Squares(9), 4, shard=(0, 2)))[-1]
    assert last["index"].shape == (0,) and last["square"].shape == (0, 2) and last["square"].dtype == np.float32
    assert [len(x) for x in Loader(np.arange(9), 4, shard=(0, 2))] == [2, 2, 0]
    assert [len(x) for x in Loader(iter(range(9)), 4, shard=(0, 2))] == [2, 2, 0]
    with pytest.raises(ArgumentError, match="cannot be combined with shards"):
        Loader(Squares(9), 4, pad="longest", shard=(0, 2))


def test_devices() -> None:
    device = weft.devices()[1]
    batch = Loader((np.ones((5, 2)), np.arange(5)), 2, device=device).first()
    assert isinstance(batch[0], weft.Array) and batch[0].devices() == {device}
    mesh = weft.make_mesh((4, 2), ("data", "model"))
    for target in (mesh, NamedSharding(mesh, P("data", "model"))):
        batches = list(Loader((np.ones((12, 2), np.float32), np.arange(12)), 8, device=target, workers=2))
        assert [x.shape for x, _ in batches] == [(8, 2), (4, 2)]
        assert batches[0][1].sharding.spec == P("data") and len(batches[0][0].addressable_shards) == 8
        np.testing.assert_array_equal(np.asarray(batches[1][1]), [8, 9, 10, 11])


# -------------------------------------------------------------------------------------------------- errors and endings


@pytest.mark.parametrize("workers", WORKERS[:5], ids=NAMES[:5])
def test_an_exception_arrives_with_its_traceback(workers: dict[str, Any]) -> None:
    with Loader(Squares(), 4, transforms=[failing], **workers) as loader:
        delivered = []
        with pytest.raises(KeyError, match="nine") as caught:
            for batch in loader:
                delivered.append(batch)
        assert indices(delivered) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert loader.state()["batches"] == 2
        assert any("sample 9, of batch 2 of epoch 0" in note for note in caught.value.__notes__)
        names = [entry.name for entry in caught.traceback]
        assert "failing" in names or "in failing" in str(caught.value.__cause__)


def test_a_killed_worker_is_named() -> None:
    with Loader(Squares(), 4, transforms=[killing], workers=2, worker_type="fork") as loader:
        with pytest.raises(WorkerFailureError, match=r"Worker 0 of 2 \(process \d+\) was killed by SIGKILL.*batch 2"):
            list(loader)
        loader.restore(loader.state())  # other workers are started
        with pytest.raises(WorkerFailureError, match="batch 2 of epoch 0"):
            list(loader)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(ArgumentError, match="cannot be sent to a worker process"):
        Loader(Squares(), 4, transforms=[lambda x: x], workers=1, worker_type="spawn").first()


def test_a_worker_that_takes_too_long_is_named() -> None:
    with pytest.raises(WorkerFailureError, match=r"batch 2 of epoch 0 after 0\.1 seconds"):
        list(Loader(range(8), 2, transforms=[lambda i: i if i < 5 else time.sleep(0.4) or i], workers=1, timeout=0.1))


def left_behind() -> tuple[int, list[str], int]:
    """Threads, child processes and open files of this process."""
    children = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                children += file.read().split()
        except FileNotFoundError:
            pass  # the thread has ended
    return threading.active_count(), sorted(children), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("worker_type", ["thread", "fork"])
@pytest.mark.parametrize("way", ["to the end", "closed", "dropped", "failed"])
def test_nothing_stays_behind(worker_type: Any, way: str) -> None:
    gc.collect()
    before = left_behind()
    transforms = [failing] if way == "failed" else []
    loader = Loader(Squares(), 4, transforms=transforms, workers=2, worker_type=worker_type)
    batches = iter(loader)
    next(batches)
    if way == "failed":
        with pytest.raises(KeyError):
            list(batches)
    elif way == "to the end":
        list(batches)
    if way == "closed":
        loader.close()
    del batches, loader
    deadline = time.monotonic() + 10
    while (after := left_behind()) != before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    assert after == before


def test_workers_are_used_again() -> None:
    with Loader(Squares(), 4, transforms=[lambda s: {"index": os.getpid()}], workers=2, worker_type="fork") as loader:
        first, second = (set(flat(indices(loader))) for _ in range(2))
        assert first == second and len(first) == 2 and os.getpid() not in first


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [{"workers": 0}, {"workers": 2}, {"workers": 2, "worker_type": "fork"}], ids=str)
def test_a_forked_process_continues(workers: dict[str, Any]) -> None:
    loader = Loader(Squares(), 4, **workers)
    batches = iter(loader)
    next(batches)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, json.dumps(indices(batches)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        assert json.loads(file.read()) == indices(Loader(Squares(), 4))[1:]
    os.waitpid(child, 0)
    assert indices(batches) == indices(Loader(Squares(), 4))[1:]
    loader.close()


@pytest.mark.parametrize("workers", WORKERS[:4], ids=NAMES[:4])
@pytest.mark.parametrize("make", [Squares, Counted])
def test_what_is_ahead_is_bounded(workers: dict[str, Any], make: Any) -> None:
    taken: list[None] = []
    loader = Loader(make(400), 4, transforms=[lambda sample: taken.append(None) or sample], **workers)
    batches = iter(loader)
    for delivered in range(1, 20):
        next(batches)
        time.sleep(0.002)
        assert len(taken) <= 4 * (delivered + workers["workers"] + workers.get("prefetch", 2))
    batches.close()
    loader.close()


def test_what_is_no_loader() -> None:
    with pytest.raises(ArgumentTypeError, match="A source must have"):
        Loader(3)
    with pytest.raises(ArgumentError, match="batch_size of a Loader must be at least 1"):
        Loader(range(3), 0)
    with pytest.raises(ArgumentError, match="shuffle must be a buffer size"):
        Loader(Counted(), 2, shuffle=True)
    with pytest.raises(ArgumentError, match="worker_type"):
        Loader(range(3), 2, worker_type="fibre")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="needs buckets"):
        Loader(range(3), 2, pad="bucket")
    with pytest.raises(ArgumentTypeError, match="number of batches of this loader is unknown"):
        len(Loader(Counted(), 2))
