"""Photographs of clothes, in the form of MNIST."""

from __future__ import annotations

import gzip
import math
import pathlib

import numpy as np

from weft.errors import FileFormatError
from weft.keras.datasets.files import Split, find


def load_data() -> Split:
    """Load Fashion-MNIST: 60000 images of 28 × 28 for training, 10000 for tests.

    Classes are 0 T-shirt, 1 trouser, 2 pullover, 3 dress, 4 coat, 5 sandal, 6 shirt, 7 sneaker, 8 bag, 9 ankle boot.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 `(n, 28, 28)` and classes uint8 `(n,)`.
    """
    parts = []
    for part in ("train", "t10k"):
        images = _idx(find(f"{part}-images-idx3-ubyte.gz", folder="fashion-mnist"))
        labels = _idx(find(f"{part}-labels-idx1-ubyte.gz", folder="fashion-mnist"))
        parts.append((images, labels))
    return parts[0], parts[1]


def _idx(file: pathlib.Path) -> np.ndarray:
    """Read an array of bytes in the IDX format: two zeros, the type 8, the number of dimensions, sizes, and values."""
    try:
        data = gzip.decompress(file.read_bytes())
    except (gzip.BadGzipFile, EOFError, OSError) as error:
        raise FileFormatError("This is no gzip file.", received=f"{file}: {error}") from error
    if data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise FileFormatError("This is no IDX file of bytes.", received=f"{file}, which begins {data[:4]!r}")
    start = 4 + 4 * data[3]
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", data[3], 4))
    if len(data) - start != math.prod(shape):
        raise FileFormatError("This IDX file is not complete.", received=f"{file}: {len(data) - start} of {shape}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
