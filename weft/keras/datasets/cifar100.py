"""Small photographs of a hundred classes."""

from __future__ import annotations

from weft.errors import ArgumentError
from weft.keras.datasets.cifar import read
from weft.keras.datasets.files import Split


def load_data(label_mode: str = "fine") -> Split:
    """Load CIFAR-100: 50000 images of 32 × 32 for training, 10000 for tests.

    Args:
        label_mode: "fine" for 100 classes, "coarse" for the 20 that they are grouped into.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 `(n, 32, 32, 3)`, or `(n, 3, 32, 32)` if
        `image_data_format()` is "channels_first", and classes uint8 `(n, 1)`.
    """
    if label_mode not in ("fine", "coarse"):
        raise ArgumentError("label_mode must be 'fine' or 'coarse'.", received=repr(label_mode))
    names = ["cifar-100-python/train", "cifar-100-python/test"]
    training, test = read("cifar-100-python.tar.gz", names, f"{label_mode}_labels")
    return training, test
