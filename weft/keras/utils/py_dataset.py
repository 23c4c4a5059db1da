"""`PyDataset`: batches by index, prepared by workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any


class PyDataset:
    """Base class of data whose batches are found by index. `fit` reads them ahead, with the workers asked for.

    A subclass defines `__getitem__(index)`, which returns a batch `(x, y)` or `(x, y, sample_weight)`, and `__len__` or
    `num_batches`, how many there are (None: they do not end).

    Args:
        workers: How many workers prepare batches.
        use_multiprocessing: Whether workers are processes, which are forked; else they are threads.
        max_queue_size: How many batches are ready at most, beyond those that workers are working on.

    Example:
        >>> class Squares(PyDataset):
        ...     def __len__(self):
        ...         return 2
        ...
        ...     def __getitem__(self, index):
        ...         return [index], [index * index]
        >>> list(Squares(workers=2))
        [([0], [0]), ([1], [1])]
    """

    # What a subclass has that does not call `__init__` of this class.
    workers: int = 1
    use_multiprocessing: bool = False
    max_queue_size: int = 10

    def __init__(self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10) -> None:
        self.workers, self.use_multiprocessing, self.max_queue_size = workers, use_multiprocessing, max_queue_size

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(index), which returns batch `index`.")

    @property
    def num_batches(self) -> int | None:
        """How many batches there are; None if they do not end."""
        if hasattr(self, "__len__"):
            return len(self)
        raise NotImplementedError(f"{type(self).__name__} must define __len__ or num_batches, the number of batches.")

    def __iter__(self) -> Iterator[Any]:
        endless = not hasattr(self, "__len__") and type(self).num_batches is PyDataset.num_batches
        count = None if endless else self.num_batches
        return (self[i] for i in (itertools.count() if count is None else range(count)))

    def on_epoch_begin(self) -> None:
        """Run before the first batch of each epoch."""

    def on_epoch_end(self) -> None:
        """Run after the last batch of each epoch."""
