"""Data of pandas, PyTorch and Keras."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas
import pytest
import torch

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras

import weft
from weft import keras as ours
from weft.data import ArraySpec, Loader, adapt
from weft.errors import ArgumentError
from weft.keras import datasets
from weft.keras.datasets import files


def firsts(batches: Any) -> list[float]:
    return [float(np.asarray(x).flat[0]) for x, _, _ in batches]


def resumed(make: Any, taken: int = 2) -> None:
    """Resuming delivers the batches that follow, also of another object and through JSON."""
    whole = firsts(make().batches())
    batches = make().batches()
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(batches.state()))
    assert firsts(make().resume(state)) == firsts(batches) == whole[taken:]


# -------------------------------------------------------------------------------------------------------------- pandas


def test_pandas() -> None:
    table = pandas.DataFrame({"a": np.arange(5.0), "b": np.arange(5.0) * 2})
    adapter = adapt(table, pandas.Series(np.arange(5)), batch_size=2)
    assert adapter.spec == (ArraySpec((None, 2), np.float64), ArraySpec((None, 1), np.int64), None)
    np.testing.assert_array_equal(next(adapter.batches())[0], table.to_numpy()[:2])
    assert adapter.resident[1].shape == (5, 1)
    columns = adapt({"a": table["a"], "b": table["b"].to_numpy()}, batch_size=5)
    assert next(columns.batches())[0]["a"].shape == (5, 1)
    with pytest.raises(ArgumentError, match="numbers only"):
        adapt(pandas.DataFrame({"a": ["x", "y"], "b": [1, 2]}))
    mixed = pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    assert adapt(mixed).resident[0].dtype == np.float64


def test_pandas_as_in_keras() -> None:
    table = pandas.DataFrame({"a": np.arange(5, dtype=np.float32), "b": np.arange(5, dtype=np.float32) * 2})
    column = pandas.Series(np.arange(5, dtype=np.float32))
    adapters = importlib.import_module("keras.src.trainers.data_adapters")
    theirs = adapters.get_data_adapter(table, column, batch_size=2, shuffle=False)
    for (x, y), (own_x, own_y, _) in zip(
        theirs.get_numpy_iterator(), adapt(table, column, batch_size=2).batches(), strict=True
    ):
        np.testing.assert_array_equal(x, own_x)
        np.testing.assert_array_equal(y, own_y)


# --------------------------------------------------------------------------------------------------------------- torch


def torch_loader(**more: Any) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    return torch.utils.data.DataLoader(data, batch_size=4, **more)


def test_torch_loader() -> None:
    adapter = adapt(torch_loader())
    assert (adapter.kind, adapter.size, adapter.batch_size) == ("DataLoader", 3, 4)
    assert adapter.spec == (ArraySpec((None, 2), np.float32), ArraySpec((None,), np.int64), None)
    batches = list(adapter.batches())
    assert [x.shape for x, _, _ in batches] == [(4, 2), (4, 2), (2, 2)] and isinstance(batches[0][0], np.ndarray)
    assert firsts(adapter.batches()) == firsts(adapter.batches(1)) == [0.0, 8.0, 16.0]
    resumed(lambda: adapt(torch_loader()))


OF_PROCESSES = """
import torch
import weft
from weft.data import adapt

data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
weft.jit(lambda x: x @ x.T)(weft.numpy.ones((300, 300))).block_until_ready()  # threads of Weft are there
adapter = adapt(torch.utils.data.DataLoader(data, batch_size=4, num_workers=2))
for _ in range(2):
    print([float(x[0, 0]) for x, _, _ in adapter.batches()])
"""


def test_torch_loader_of_processes() -> None:
    # torch forks its workers. JAX warns of any fork once it was used, as it was here by other tests, so a process
    # without JAX forks.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", OF_PROCESSES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout.splitlines() == ["[0.0, 8.0, 16.0]"] * 2


def test_torch_datasets() -> None:
    data = torch_loader().dataset
    adapter = adapt(data, batch_size=4)
    assert (adapter.size, adapter.samples) == (3, 10)
    assert firsts(adapter.batches()) == [0.0, 8.0, 16.0]
    resumed(lambda: adapt(data, batch_size=4, shuffle=True, seed=3))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter([torch.ones(2) * i for i in range(5)])

    assert [x.shape for x, _, _ in adapt(Stream(), batch_size=2).batches()] == [(2, 2), (2, 2), (1, 2)]
    noted = torch.ones(3, requires_grad=True)
    assert adapt([noted]).resident[0][0].tolist() == [1.0, 1.0, 1.0]


def test_the_same_batches_as_a_torch_loader() -> None:
    data = [({"x": np.full(3, i, np.float32), "n": i}, float(i)) for i in range(10)]
    theirs = torch.utils.data.DataLoader(data, batch_size=4)
    for one, other in zip(theirs, Loader(data, 4), strict=True):
        np.testing.assert_array_equal(one[0]["x"].numpy(), other[0]["x"])
        np.testing.assert_array_equal(one[0]["n"].numpy(), other[0]["n"])
        np.testing.assert_array_equal(one[1].numpy(), other[1])


# --------------------------------------------------------------------------------------------------------------- Keras


def test_py_dataset_of_keras() -> None:

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return np.full((2, 1), index), np.full(2, index)

    adapter = adapt(Batches(workers=2))
    assert adapter.kind == "PyDataset" and adapter.size == 3 and firsts(adapter.batches()) == [0.0, 1.0, 2.0]
    adapter.loader.close()


def test_datasets_as_in_keras(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    texts = np.empty(40, object)
    texts[:] = [generator.integers(1, 50, generator.integers(2, 12)).tolist() for _ in range(40)]
    labels = np.arange(40)
    np.savez(tmp_path / "imdb.npz", x_train=texts, y_train=labels, x_test=texts[:9], y_test=labels[:9])
    np.savez(tmp_path / "reuters.npz", x=texts, y=labels)
    np.savez(tmp_path / "boston_housing.npz", x=generator.random((40, 13)), y=generator.random(40))
    np.savez(tmp_path / "california_housing.npz", x=generator.random((900, 8)), y=generator.random(900))
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(files, "CHECKSUMS", {})
    cases = [
        ("imdb", {}), ("imdb", {"num_words": 20, "skip_top": 3, "maxlen": 8}), ("imdb", {"oov_char": None, "seed": 4}),
        ("imdb", {"start_char": None}), ("reuters", {}), ("reuters", {"num_words": 30, "test_split": 0.5, "maxlen": 9}),
        ("boston_housing", {}), ("california_housing", {"version": "small", "seed": 3, "test_split": 0.3}),
    ]  # fmt: skip
    for name, options in cases:
        theirs = importlib.import_module(f"keras.src.datasets.{name}")
        monkeypatch.setattr(theirs, "get_file", lambda *args, name=name, **more: str(tmp_path / f"{name}.npz"))
        expected, found = theirs.load_data(**options), getattr(datasets, name).load_data(**options)
        for (x, y), (own_x, own_y) in zip(expected, found, strict=True):
            assert [list(row) for row in x] == [list(row) for row in own_x], (name, options)
            assert np.asarray(y).tolist() == np.asarray(own_y).tolist(), (name, options)
    assert importlib.import_module("keras.src.datasets.reuters").get_label_names() == datasets.reuters.get_label_names()


# ----------------------------------------------------------------------------------------------------------------- fit


def sources() -> dict[str, Any]:
    """Return the same batches of 8 rows from many kinds of data."""
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 30, 8)]

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return batches[index]

    tensors = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    table = pandas.DataFrame(x)
    return {
        "NumPy": (x, y),
        "Weft": (weft.numpy.asarray(x), weft.numpy.asarray(y)),
        "pandas": (table, pandas.Series(y[:, 0])),
        "DataLoader": (torch.utils.data.DataLoader(tensors, 8), None),
        "torch Dataset": (tensors, None),
        "PyDataset": (Batches(workers=2), None),
        "generator": ((batch for _ in range(3) for batch in batches), None),
        "function": (lambda: iter(batches), None),
        "Loader": (Loader((x, y), 8), None),
        "Loader with workers": (Loader(list(zip(x, y, strict=True)), 8, workers=2), None),
        "tensors": (torch.from_numpy(x), torch.from_numpy(y)),
    }


def test_fit_takes_them_all() -> None:
    losses = {}
    for name, (x, y) in sources().items():
        model = ours.Sequential([ours.layers.Input((3,)), ours.layers.Dense(1, kernel_initializer="zeros")])
        model.compile("sgd", "mse")
        steps = 4 if name == "generator" else None
        rows = 8 if y is not None or name == "torch Dataset" else None
        history = model.fit(x, y, batch_size=rows, epochs=3, shuffle=False, steps_per_epoch=steps, verbose=0)
        losses[name] = history.history["loss"]
    expected = losses["NumPy"]
    assert len(expected) == 3 and expected[-1] != expected[0]
    assert losses == dict.fromkeys(losses, pytest.approx(expected, rel=1e-6))
