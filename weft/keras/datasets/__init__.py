"""Datasets that everybody knows: each module's `load_data` reads a file of the cache, which is downloaded if it is not
there. Offline, the error says which file to put where.

The cache is that of Keras: `$KERAS_HOME/datasets`, by default `~/.keras/datasets`.
"""

from weft.errors import publish as _publish
from weft.keras.datasets import (
    boston_housing,
    california_housing,
    cifar10,
    cifar100,
    fashion_mnist,
    imdb,
    mnist,
    reuters,
)
from weft.keras.datasets.files import DatasetNotFoundError

__all__ = [
    "DatasetNotFoundError",
    "boston_housing",
    "california_housing",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "imdb",
    "mnist",
    "reuters",
]

_publish(__name__)
