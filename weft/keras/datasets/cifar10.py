"""Small photographs of ten classes."""

from __future__ import annotations

import numpy as np

from weft.keras.datasets.cifar import read
from weft.keras.datasets.files import Split


def load_data() -> Split:
    """Load CIFAR-10: 50000 images of 32 × 32 for training, 10000 for tests.

    Classes are 0 airplane, 1 automobile, 2 bird, 3 cat, 4 deer, 5 dog, 6 frog, 7 horse, 8 ship, 9 truck.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 `(n, 32, 32, 3)`, or `(n, 3, 32, 32)` if
        `image_data_format()` is "channels_first", and classes uint8 `(n, 1)`.
    """
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    *training, test = read("cifar-10-python.tar.gz", [f"cifar-10-batches-py/{name}" for name in names], "labels")
    images, labels = (np.concatenate(arrays) for arrays in zip(*training, strict=True))
    return (images, labels), test
