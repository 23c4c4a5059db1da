"""Files of datasets: where they are, what their checksums are, and reading them without running what they contain."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pathlib
import pickle
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import ArgumentError, FileFormatError, WeftError

KERAS_FILES = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
CIFAR_FILES = "https://www.cs.toronto.edu/~kriz/"
# Checksums by name: SHA-256, or MD5 for the shorter ones. None are published for the files of Fashion-MNIST,
# whose headers are checked instead.
CHECKSUMS = {
    "mnist.npz": "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    "imdb.npz": "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f",
    "imdb_word_index.json": "bfafd718b763782e994055a2d397834f",
    "reuters.npz": "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916",
    "reuters_word_index.json": "4d44cc38712099c9e383dc6e5f11a921",
    "boston_housing.npz": "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5",
    "california_housing.npz": "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f",
    "cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "cifar-100-python.tar.gz": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
}
# What else a file is called in the cache of Keras.
OTHER_NAMES = {
    "cifar-10-python.tar.gz": "cifar-10-batches-py-target_archive",
    "cifar-100-python.tar.gz": "cifar-100-python-target_archive",
}
TIMEOUT = 20.0


class DatasetNotFoundError(WeftError, FileNotFoundError):
    """The file of a dataset is not in the cache, and it cannot be downloaded."""


def cache_folder() -> pathlib.Path:
    """Return the folder of dataset files: `$KERAS_HOME/datasets`, by default `~/.keras/datasets`."""
    return pathlib.Path(os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras") / "datasets"


def find(name: str, path: str | None = None, folder: str = "", origin: str = KERAS_FILES) -> pathlib.Path:
    """Return the path of a file with a verified checksum, downloaded if it is not in the cache.

    Args:
        name: The name that it has where it comes from.
        path: Where it is in the cache, if it is called otherwise there; absolute paths are themselves.
        folder: The folder in the cache.
        origin: Where it comes from, without the name.
    """
    target = cache_folder() / folder / (path or name)
    for candidate in (target, cache_folder() / folder / OTHER_NAMES.get(name, name)):
        if candidate.is_file():
            check(candidate, name)
            return candidate
    target.parent.mkdir(parents=True, exist_ok=True)
    download(origin + name, target, name, lambda file: check(file, name), CHECKSUMS.get(name))
    return target


def check(file: pathlib.Path, name: str) -> None:
    """Raise unless a file has the checksum of a name."""
    expected = CHECKSUMS.get(name)
    if expected is None:
        return
    with open(file, "rb") as opened:
        found = hashlib.file_digest(opened, "sha256" if len(expected) == 64 else "md5").hexdigest()
    if found != expected:
        raise FileFormatError(
            f"{file} is another file than {name}, or it is damaged.",
            received=f"checksum {found}, expected {expected}",
            fix=f"remove {file}, for it to be downloaded",
        )


def download(
    address: str,
    target: pathlib.Path,
    name: str,
    check: Callable[[pathlib.Path], None],
    checksum: str | None = None,
) -> None:
    """Download a file beside its path, check it, and put it there: nobody sees half of it.

    Args:
        address: Where it comes from.
        target: Where it goes.
        name: What errors call it.
        check: Raises if it is not the right file.
        checksum: Its checksum, for the message where there is no network.
    """
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(address, timeout=TIMEOUT) as response:
            while part := response.read(1 << 20):
                file.write(part)
        check(pathlib.Path(beside))
        os.replace(beside, target)
    except (urllib.error.URLError, OSError) as error:
        if isinstance(error, WeftError):
            raise
        raise DatasetNotFoundError(
            f"{name} is not on this machine, and it could not be downloaded.",
            received=f"{address}: {error}",
            fix=f"put that file at {target}" + (f" (checksum {checksum})" if checksum else ""),
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


# ------------------------------------------------------------------------------------------------------------- reading

# All that a pickled array of lists needs.
ARRAY_NAMES = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads arrays, lists and numbers, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ARRAY_NAMES:
            raise FileFormatError("A data file must contain arrays only.", received=f"{module}.{name}")
        return super().find_class(module, name)


def unpickle(data: bytes, encoding: str = "ASCII") -> Any:
    """Load a pickle that contains arrays only."""
    try:
        return ArrayUnpickler(io.BytesIO(data), encoding=encoding).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, WeftError):
            raise
        raise FileFormatError("This is no pickle of arrays.", received=str(error)) from error


def read_npz(file: pathlib.Path) -> dict[str, np.ndarray]:
    """Read the arrays of a `.npz` file, also arrays of lists."""
    found = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                found[member.removesuffix(".npy")] = _array(archive.read(member))
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, WeftError):
            raise
        raise FileFormatError("This is no .npz file of arrays.", received=f"{file}: {error}") from error
    return found


def _array(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
    _, _, dtype = read_header(stream)
    if dtype.hasobject:
        return unpickle(stream.read())
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def shuffled_split(x: np.ndarray, y: np.ndarray, test_split: float, seed: int) -> Split:
    """Shuffle rows as Keras does for a seed, and split them into training and test data."""
    if not 0 <= test_split < 1:
        raise ArgumentError("test_split is at least 0 and less than 1.", received=repr(test_split))
    order = np.arange(len(x))
    np.random.RandomState(seed).shuffle(order)
    cut = int(len(x) * (1 - test_split))
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])
