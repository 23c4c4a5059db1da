"""Datasets that everybody knows: each module's `load_data` reads a file of the cache, which is downloaded if it is not
there. Offline, the error says which file to put where.

The cache is that of Keras: `$KERAS_HOME/datasets`, by default `~/.keras/datasets`.
"""

from weft.errors import publish as _publish
from weft.keras.datasets import (
    boston_housing as boston_housing,
    california_housing as california_housing,
    cifar10 as cifar10,
    cifar100 as cifar100,
    fashion_mnist as fashion_mnist,
    imdb as imdb,
    mnist as mnist,
    reuters as reuters,
)
from weft.keras.datasets.files import DatasetNotFoundError as DatasetNotFoundError

_publish(__name__)
