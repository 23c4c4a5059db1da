"""Arrays and generators as batches."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import weft
from weft.data import ArraySpec, Loader, adapt
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.utils.py_dataset import PyDataset


def rows(count: int = 10) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count * 2, dtype=np.float32).reshape(count, 2), np.arange(count)


def drawn(count: int, taken: list[int] | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for i in range(count):
        if taken is not None:
            taken.append(i)
        yield np.full((2, 3), i, np.float32), np.full(2, i)


def firsts(batches: Any) -> list[int]:
    return [int(np.asarray(x).flat[0]) for x, _, _ in batches]


def test_arrays_are_read_in_place() -> None:
    x, y = rows()
    adapter = adapt(x, y, batch_size=4)
    assert adapter.resident[0] is x and adapter.resident[1] is y and adapter.resident[2] is None
    assert (adapter.samples, adapter.batch_size, adapter.size) == (10, 4, 3)
    batches = list(adapter.batches())
    assert [len(batch[0]) for batch in batches] == [4, 4, 2]
    assert np.shares_memory(batches[0][0], x)
    assert adapter.order(0) is None
    assert adapter.spec == (ArraySpec((None, 2), np.float32), ArraySpec((None,), np.int64), None)
    assert adapt(x, batch_size=4, drop_remainder=True).size == 2


def test_batches_are_those_of_resident_data_and_order() -> None:
    x, y = rows()
    tree = {"a": x, "b": [weft.numpy.asarray(x)]}
    adapter = adapt(tree, y, batch_size=3, shuffle=True, seed=5)
    for epoch in range(2):
        order = adapter.order(epoch)
        assert sorted(order) == list(range(10))
        for i, (found, labels, _) in enumerate(adapter.batches(epoch)):
            np.testing.assert_array_equal(labels, y[order[3 * i : 3 * i + 3]])
            np.testing.assert_array_equal(found["b"][0], x[order[3 * i : 3 * i + 3]])
    assert adapter.order(0).tolist() != adapter.order(1).tolist()
    assert adapter.order(0).tolist() == adapt(tree, y, shuffle=True, seed=5).order(0).tolist()


def test_shuffled_within_batches() -> None:
    adapter = adapt(np.arange(10), batch_size=4, shuffle="batch", seed=1)
    found = [sorted(x.tolist()) for x, _, _ in adapter.batches(3)]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert adapter.order(3).tolist() != list(range(10))


def test_float_dtype() -> None:
    adapter = adapt(np.ones((4, 2)), np.ones(4, int), float_dtype=np.float32)
    assert adapter.resident[0].dtype == np.float32 and adapter.resident[1].dtype == int


def test_processes_have_the_rows_of_a_batch() -> None:
    parts = [list(adapt(np.arange(11), batch_size=4, shard=(i, 2)).batches()) for i in range(2)]
    together = [np.concatenate([a[0], b[0]]).tolist() for a, b in zip(*parts, strict=True)]
    assert together == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_arrays_resume(shuffle: bool) -> None:
    whole = firsts(adapt(np.arange(10), batch_size=2, shuffle=shuffle).batches(2))
    batches = adapt(np.arange(10), batch_size=2, shuffle=shuffle).batches(2)
    next(batches), next(batches)
    state = json.loads(json.dumps(batches.state()))
    assert firsts(adapt(np.arange(10), batch_size=2, shuffle=shuffle).resume(state)) == whole[2:]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_generator(prefetch: int) -> None:
    adapter = adapt(drawn(5), prefetch=prefetch)
    assert adapter.spec == (ArraySpec((None, 3), np.float32), ArraySpec((None,), np.int64), None)
    assert not adapter.restartable and adapter.size is None and adapter.resident is None
    batches = adapter.batches(0)
    assert [int(next(batches)[0][0, 0]) for _ in range(2)] == [0, 1]
    state = batches.state()
    batches.close()
    assert firsts(adapter.batches(1)) == [2, 3, 4]
    assert firsts(adapt(drawn(5), prefetch=prefetch).resume(state)) == [2, 3, 4]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_generator_function(prefetch: int) -> None:
    opened: list[None] = []
    adapter = adapt(lambda: opened.append(None) or drawn(3), prefetch=prefetch)
    assert adapter.spec[0].shape == (None, 3)
    assert firsts(adapter.batches()) == [0, 1, 2] and len(opened) == 1
    assert firsts(adapter.batches(1)) == [0, 1, 2]
    assert firsts(adapter.batches(0, start=2)) == [2]
    stream = adapter.stream()
    assert [int(next(stream)[0][0, 0]) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_no_more_is_read_than_asked_for() -> None:
    taken: list[int] = []
    batches = adapt(drawn(100, taken), prefetch=2).batches()
    next(batches)
    threads = [thread for thread in threading.enumerate() if thread.name == "weft.data ahead"]
    assert threads
    for _ in range(100):
        if len(taken) >= 3:
            break
        threading.Event().wait(0.01)
    assert len(taken) == 3
    batches._source.close()


def test_threads_end_with_the_iterator() -> None:
    before = threading.active_count()
    adapter = adapt(lambda: drawn(100))
    next(adapter.batches())
    for _ in range(200):
        if threading.active_count() == before:
            return
        threading.Event().wait(0.01)
    raise AssertionError(threading.enumerate())


def test_an_exception_has_its_traceback() -> None:
    def failing() -> Iterator[Any]:
        yield np.ones(2)
        raise KeyError("the cause")

    batches = adapt(failing).batches()
    next(batches)
    with pytest.raises(KeyError, match="the cause") as caught:
        next(batches)
    assert "failing" in [entry.name for entry in caught.traceback]
    assert list(batches) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_iterators_continue_after_a_fork() -> None:
    batches = adapt(lambda: drawn(6)).batches()
    next(batches)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(firsts(batches)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        assert json.loads(file.read()) == [1, 2, 3, 4, 5]
    os.waitpid(child, 0)
    assert firsts(batches) == [1, 2, 3, 4, 5]


def test_what_is_no_data() -> None:
    with pytest.raises(ArgumentTypeError, match="Data must be arrays"):
        adapt(3)
    with pytest.raises(ArgumentTypeError, match=r"x must be an array, not a list of numbers[^!]*np\.asarray"):
        adapt([[1, 2], [3, 4]], np.ones(2))
    with pytest.raises(ArgumentTypeError, match="y must be an array, not a list"):
        adapt(np.ones(2), [1, 2])
    with pytest.raises(ArgumentTypeError, match=r"not a sparse matrix[^!]*toarray"):
        adapt(scipy.sparse.eye_array(3, format="csr"))
    with pytest.raises(ArgumentError, match=r"same number of rows[^!]*10 in \(x, y, sample_weight\)\[0\], 9 in"):
        adapt(np.ones(10), np.ones(9))
    with pytest.raises(ArgumentError, match="y must be None for a stream"):
        adapt(drawn(3), np.ones(3))
    with pytest.raises(ArgumentError, match="at least 1"):
        adapt(np.ones(3), batch_size=0)
    with pytest.raises(ArgumentError, match="x, \\(x, y\\)"):
        next(adapt(lambda: iter([(1, 2, 3, 4)])).batches())


# ------------------------------------------------------------------------------------------------------- other sources


class Squares(PyDataset):
    """Batches by index; remembers what was called."""

    def __init__(self, count: int | None = 4, **more: Any) -> None:
        super().__init__(**more)
        self.count = count
        self.calls: list[str] = []

    @property
    def num_batches(self) -> int | None:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 1), index), np.full(2, index * index)

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        self.calls.append("end")


@pytest.mark.parametrize("more", [{}, {"workers": 2}, {"workers": 2, "use_multiprocessing": True}], ids=str)
def test_py_dataset(more: dict[str, Any]) -> None:
    dataset = Squares(**more)
    adapter = adapt(dataset)
    assert adapter.size == 4 and adapter.spec[0].shape == (None, 1) and adapter.kind == "PyDataset"
    assert firsts(adapter.batches()) == [0, 1, 2, 3] and dataset.calls == ["begin", "end"]
    assert firsts(adapter.batches(1, start=2)) == [2, 3]
    order = firsts(adapt(dataset, shuffle=True, seed=2).batches())
    assert sorted(order) == [0, 1, 2, 3] and order == firsts(adapt(dataset, shuffle=True, seed=2).batches())
    adapter.loader.close()


def test_py_dataset_without_end() -> None:
    dataset = Squares(None)
    adapter = adapt(dataset)
    assert adapter.size is None
    batches = adapter.batches()
    assert [int(next(batches)[0][0, 0]) for _ in range(3)] == [0, 1, 2]
    batches.close()
    assert dataset.calls == ["begin", "end"]


def test_loaders() -> None:
    x, y = rows()
    adapter = adapt(Loader((x, y), 4, shuffle=True, seed=9))
    assert adapter.resident is not None and np.shares_memory(adapter.resident[0], x)
    assert (adapter.size, adapter.batch_size, adapter.samples) == (3, 4, 10)
    np.testing.assert_array_equal(next(adapter.batches(2))[1], y[adapter.order(2)[:4]])
    mapped = adapt(Loader((x, y), 4, transforms=[lambda pair: (pair[0] * 2, pair[1])], workers=2))
    assert mapped.resident is None and mapped.size == 3 and mapped.skips == "index"
    batches = mapped.batches(1)
    next(batches)
    state = json.loads(json.dumps(batches.state()))
    assert firsts(mapped.resume(state)) == firsts(batches) == [16, 32]
    assert mapped.resume(state).state() == state
    mapped.loader.close()


class Samples:
    """A map-style source of samples."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return np.array([index], np.float64), index


def test_sources_of_samples_and_of_batches() -> None:
    adapter = adapt(Samples(), batch_size=2, shuffle=True, float_dtype=np.float32)
    assert (adapter.size, adapter.samples, adapter.batch_size) == (3, 5, 2)
    assert adapter.spec == (ArraySpec((None, 1), np.float32), ArraySpec((None,), np.int64), None)
    assert sorted(int(v) for _, y, _ in adapter.batches() for v in y) == [0, 1, 2, 3, 4]
    batches = {np.float32(1): None, np.float32(2): None}.keys()  # an iterable that is neither of the others
    assert firsts(adapt(batches).batches()) == [1, 2]
