"""Datasets: files of the cache, their checksums, and what is said when they are not there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pathlib
import pickle
import tarfile
from typing import Any

import numpy as np
import pytest

from weft.errors import ArgumentError, FileFormatError
from weft.keras import datasets
from weft.keras.datasets import DatasetNotFoundError, files


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache, and no network."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))

    def offline(*args: Any, **options: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(files.urllib.request, "urlopen", offline)
    (tmp_path / "datasets").mkdir()
    return tmp_path / "datasets"


def known(monkeypatch: pytest.MonkeyPatch, file: pathlib.Path, name: str | None = None) -> None:
    """Make a file one whose checksum is right."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(files.CHECKSUMS, name or file.name, digest)


def lists(generator: np.random.Generator, count: int) -> np.ndarray:
    found = np.empty(count, object)
    found[:] = [generator.integers(1, 30, generator.integers(2, 9)).tolist() for _ in range(count)]
    return found


def test_mnist(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.arange(3, dtype=np.uint8)
    np.savez(cache / "mnist.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    with pytest.raises(FileFormatError, match=r"another file than mnist\.npz[^!]*checksum[^!]*remove"):
        datasets.mnist.load_data()
    known(monkeypatch, cache / "mnist.npz")
    (x_train, y_train), (x_test, _) = datasets.mnist.load_data()
    np.testing.assert_array_equal(x_train, x)
    np.testing.assert_array_equal(y_train, y)
    assert x_test.shape == (1, 2, 2)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters",
                                  "boston_housing", "california_housing"])  # fmt: skip
def test_offline(cache: pathlib.Path, name: str) -> None:
    with pytest.raises(DatasetNotFoundError, match=f"no network[^!]*put that file at {cache}") as caught:
        getattr(datasets, name).load_data()
    assert isinstance(caught.value, FileNotFoundError) and not [path for path in cache.rglob("*") if path.is_file()]


def test_download(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    served = tmp_path / "served.npz"
    np.savez(served, x=np.ones((5, 8)), y=np.ones(5))
    monkeypatch.setattr(files.urllib.request, "urlopen", lambda address, timeout: io.BytesIO(served.read_bytes()))
    with pytest.raises(FileFormatError, match="another file"):
        datasets.california_housing.load_data()
    assert not list(cache.iterdir())
    known(monkeypatch, served, "california_housing.npz")
    (x, _), _ = datasets.california_housing.load_data()
    assert x.shape == (4, 8) and [path.name for path in cache.iterdir()] == ["california_housing.npz"]


def test_fashion_mnist(cache: pathlib.Path) -> None:
    (cache / "fashion-mnist").mkdir()
    for part, count in (("train", 3), ("t10k", 2)):
        images = np.arange(count * 784, dtype=np.uint8)
        header = b"\0\0\x08\x03" + np.array([count, 28, 28], ">u4").tobytes()
        folder = cache / "fashion-mnist"
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
        header = b"\0\0\x08\x01" + np.array([count], ">u4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + bytes(range(count))))
    (x_train, _), (x_test, y_test) = datasets.fashion_mnist.load_data()
    assert x_train.shape == (3, 28, 28) and x_test.shape == (2, 28, 28) and y_test.tolist() == [0, 1]
    (cache / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header))
    with pytest.raises(FileFormatError, match="not complete"):
        datasets.fashion_mnist.load_data()


def archive(file: pathlib.Path, members: dict[str, Any]) -> None:
    with tarfile.open(file, "w:gz") as opened:
        for name, value in members.items():
            data = pickle.dumps(value, 2)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))


def test_cifar(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {b"data": np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072), b"labels": [3, 1],
             b"fine_labels": [7, 8], b"coarse_labels": [1, 2]}  # fmt: skip
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    file = cache / "cifar-10-batches-py-target_archive"  # what Keras calls it
    archive(file, {f"cifar-10-batches-py/{name}": batch for name in names})
    known(monkeypatch, file, "cifar-10-python.tar.gz")
    (x_train, y_train), (x_test, _) = datasets.cifar10.load_data()
    assert x_train.shape == (10, 32, 32, 3) and y_train.shape == (10, 1) and x_test.shape == (2, 32, 32, 3)
    np.testing.assert_array_equal(x_test[0, :, :, 1].ravel(), batch[b"data"][0, 1024:2048])
    file = cache / "cifar-100-python.tar.gz"
    archive(file, {"cifar-100-python/train": batch, "cifar-100-python/test": batch})
    known(monkeypatch, file)
    assert datasets.cifar100.load_data()[0][1].tolist() == [[7], [8]]
    assert datasets.cifar100.load_data("coarse")[1][1].tolist() == [[1], [2]]
    with pytest.raises(ArgumentError, match="'fine' or 'coarse'"):
        datasets.cifar100.load_data("medium")


class Evil:
    """What a pickle must not do."""

    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


def test_nothing_of_a_file_is_run(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.chdir(tmp_path)
    file = cache / "cifar-100-python.tar.gz"
    archive(file, {"cifar-100-python/train": {b"data": Evil()}, "cifar-100-python/test": {}})
    known(monkeypatch, file)
    with pytest.raises(FileFormatError, match=r"must contain arrays only[^!]*system"):
        datasets.cifar100.load_data()
    evil = np.empty(1, object)
    evil[0] = Evil()
    np.savez(cache / "imdb.npz", x_train=evil, y_train=np.ones(1), x_test=evil, y_test=np.ones(1))
    known(monkeypatch, cache / "imdb.npz")
    with pytest.raises(FileFormatError, match="must contain arrays only"):
        datasets.imdb.load_data()
    assert not (tmp_path / "evil").exists()


def test_texts(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    x = lists(generator, 20)
    np.savez(cache / "imdb.npz", x_train=x, y_train=np.arange(20), x_test=x[:5], y_test=np.arange(5))
    np.savez(cache / "reuters.npz", x=x, y=np.arange(20))
    known(monkeypatch, cache / "imdb.npz")
    known(monkeypatch, cache / "reuters.npz")
    (x_train, y_train), _ = datasets.imdb.load_data(num_words=10, maxlen=6)
    assert all(text[0] == 1 and len(text) < 6 and max(text) < 10 for text in x_train)
    assert len(x_train) == len(y_train) == sum(len(text) < 5 for text in x)
    (x_train, y_train), (x_test, _) = datasets.reuters.load_data(start_char=None, index_from=None, oov_char=None)
    assert len(x_train) == 16 and len(x_test) == 4
    rarest = max(max(text) for text in x)
    assert x_train[0] == [word for word in x[y_train[0]] if word < rarest]
    (cache / "imdb_word_index.json").write_text(json.dumps({"the": 1}))
    monkeypatch.setitem(
        files.CHECKSUMS,
        "imdb_word_index.json",
        hashlib.md5((cache / "imdb_word_index.json").read_bytes()).hexdigest(),
    )
    assert datasets.imdb.get_word_index() == {"the": 1}
    assert len(datasets.reuters.get_label_names()) == 46


def test_housing(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(cache / "california_housing.npz", x=np.arange(7000.0).reshape(1000, 7), y=np.arange(1000.0))
    known(monkeypatch, cache / "california_housing.npz")
    (x, y), (x_test, _) = datasets.california_housing.load_data("small", test_split=0.25)
    assert x.shape == (450, 7) and x_test.shape == (150, 7) and (x[:, 0] == 7 * y).all()
    with pytest.raises(ArgumentError, match="test_split"):
        datasets.california_housing.load_data(test_split=1.5)
    with pytest.raises(ArgumentError, match="version"):
        datasets.california_housing.load_data("huge")
