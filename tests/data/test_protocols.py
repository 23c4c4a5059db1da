"""Data of libraries that are not installed here, by what their objects have: stand-ins with the same methods."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from weft import keras
from weft.data import ArraySpec, Loader, adapt

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = X.sum(axis=1, keepdims=True)


class TensorFlowDataset:
    """`tf.data.Dataset` of batches: no `__len__` that can be trusted, arrays by `as_numpy_iterator`."""

    element_spec = ("TensorSpec", "TensorSpec")

    def __init__(self, cardinality: int = 3) -> None:
        self.count = cardinality

    def cardinality(self) -> np.int64:
        return np.int64(self.count)

    def as_numpy_iterator(self) -> Iterator[Any]:
        return ((X[i : i + 4], Y[i : i + 4]) for i in range(0, 10, 4))

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("tensors of TensorFlow are not asked for")


class GrainIterator:
    """An iterator that knows its position."""

    def __init__(self) -> None:
        self.next_batch = 0

    def __iter__(self) -> GrainIterator:
        return self

    def __next__(self) -> Any:
        start = 4 * self.next_batch
        if start >= 10:
            raise StopIteration
        self.next_batch += 1
        return X[start : start + 4], Y[start : start + 4]

    def get_state(self) -> dict[str, int]:
        return {"next": self.next_batch}

    def set_state(self, state: dict[str, int]) -> None:
        self.next_batch = state["next"]


class GrainDataset:
    """`grain.IterDataset` of batches, known by the module of its class."""

    __module__ = "grain._src.python.dataset.dataset"

    def __iter__(self) -> GrainIterator:
        return GrainIterator()


class GrainMapDataset(GrainDataset):
    """`grain.MapDataset` of batches, which has a size and becomes an iterable."""

    __module__ = "grain._src.python.dataset.dataset"

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[4 * index : 4 * index + 4], Y[4 * index : 4 * index + 4]

    def to_iter_dataset(self) -> GrainDataset:
        return GrainDataset()


class HuggingFaceDataset:
    """`datasets.Dataset`: rows are dicts of lists, or of arrays in the format `numpy`."""

    features: Any = {"x": "Sequence", "label": "Value"}
    column_names: Any = ["x", "label"]

    def __init__(self, kind: str | None = None) -> None:
        self.format = {"type": kind}

    def with_format(self, kind: str) -> HuggingFaceDataset:
        return type(self)(kind)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        assert self.format["type"] == "numpy", "lists would become lists of arrays"
        return {"x": X[index], "label": Y[index]}


def firsts(batches: Any) -> list[float]:
    return [float(np.asarray(x["x"] if isinstance(x, dict) else x).flat[0]) for x, *_ in batches]


SOURCES: dict[str, Callable[[], Any]] = {
    "tf.data": TensorFlowDataset,
    "Grain": GrainDataset,
    "Grain, map-style": GrainMapDataset,
    "Hugging Face": HuggingFaceDataset,
}


@pytest.mark.parametrize("name", SOURCES)
def test_epochs_and_positions(name: str) -> None:
    options = {"batch_size": 4} if name == "Hugging Face" else {}
    make = lambda: adapt(SOURCES[name](), **options)
    adapter = make()
    assert firsts(adapter.batches()) == firsts(adapter.batches(1)) == [0.0, 8.0, 16.0]
    assert adapter.size == (None if name == "Grain" else 3)
    assert firsts(adapter.batches(0, start=1)) == [8.0, 16.0]
    for taken in range(4):
        batches = make().batches()
        for _ in range(taken):
            next(batches)
        state = json.loads(json.dumps(batches.state()))
        assert firsts(make().resume(state)) == firsts(batches) == [0.0, 8.0, 16.0][taken:]


def test_what_is_said_of_shapes_and_sizes() -> None:
    adapter = adapt(TensorFlowDataset())
    assert adapter.kind == "tf.data.Dataset"
    assert adapter.spec == (ArraySpec((None, 2), np.float32), ArraySpec((None, 1), np.float32), None)
    for unknown in (-1, -2):  # without end; nobody knows
        assert adapt(TensorFlowDataset(unknown)).size is None
    assert adapt(GrainMapDataset()).kind == "Grain dataset"
    x, y, _ = next(adapt(HuggingFaceDataset(), batch_size=4).batches())
    assert y is None and x["x"].shape == (4, 2) and x["label"].shape == (4, 1)


def test_fit_has_the_losses_of_arrays() -> None:
    def losses(*data: Any, **options: Any) -> Any:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(1e-3), "mse")
        return model.fit(*data, epochs=2, shuffle=False, verbose=0, **options).history["loss"]

    expected = losses(X, Y, batch_size=4)
    assert expected[1] < expected[0]
    for source in (TensorFlowDataset(), GrainDataset(), GrainMapDataset()):
        assert losses(source) == expected, type(source).__name__
    pairs = Loader(HuggingFaceDataset("numpy"), 4, transforms=[lambda row: (row["x"], row["label"])])
    assert losses(pairs) == expected
