"""Handwritten digits: 60000 images of 28 × 28 for training, 10000 for tests."""

from __future__ import annotations

from weft.keras.datasets.files import Split, find, read_npz


def load_data(path: str = "mnist.npz") -> Split:
    """Load the MNIST digits.

    Args:
        path: The name of the file in the cache.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 `(60000, 28, 28)` and `(10000, 28, 28)` with values from 0
        to 255, and digits uint8 `(60000,)` and `(10000,)`.
    """
    found = read_npz(find("mnist.npz", path))
    return (found["x_train"], found["y_train"]), (found["x_test"], found["y_test"])
