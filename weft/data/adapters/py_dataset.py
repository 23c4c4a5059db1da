"""`keras.utils.PyDataset`, of Weft or of Keras: element i is batch i."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.data.adapter import Batch, to_host_arrays, unpack_batch
from weft.data.adapters.loader import LoaderAdapter
from weft.data.loader import Loader, WorkerType
from weft.data.order import Shuffle


def recognises(data: Any) -> bool:
    """Return whether `data` is a `PyDataset`."""
    names = ("__getitem__", "num_batches", "on_epoch_end", "use_multiprocessing", "max_queue_size")
    return all(hasattr(type(data), name) for name in names)


class _Batches:
    """The batches of a dataset as a map-style source."""

    def __init__(self, dataset: Any, count: int) -> None:
        self.dataset, self.count = dataset, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


class PyDatasetAdapter(LoaderAdapter):
    """Adapter of a `PyDataset`, whose batches are prepared by the workers that it requests.

    `shuffle` permutes batches. A dataset without end (`num_batches` is None) is also read by index, in one thread.
    """

    def __init__(self, dataset: Any, shuffle: Shuffle = False, seed: int = 0, float_dtype: Any = None) -> None:
        self._dataset = dataset
        count = dataset.num_batches
        ahead = dataset.max_queue_size
        if count is None:
            loader = Loader(self._endless, None, prefetch=ahead)
        else:
            workers = dataset.workers if dataset.workers > 1 or dataset.use_multiprocessing else 0
            kind: WorkerType = "fork" if dataset.use_multiprocessing else "thread"
            source = _Batches(dataset, count)
            loader = Loader(
                source, None, shuffle=bool(shuffle), seed=seed, workers=workers, worker_type=kind, prefetch=ahead
            )
        super().__init__(loader, "PyDataset", float_dtype)

    def _endless(self) -> Iterator[Any]:
        return (self._dataset[i] for i in itertools.count())

    def first(self) -> Batch:
        return to_host_arrays(unpack_batch(self._dataset[0]), self._float_dtype)

    def _between_hooks(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches of an epoch, between the dataset's `on_epoch_begin` and `on_epoch_end`."""
        self._dataset.on_epoch_begin()
        try:
            yield from source
        finally:
            self._dataset.on_epoch_end()
            if self.loader.worker_type != "thread":
                self.loader.close()  # worker processes do not see what `on_epoch_end` changed, so new ones are started

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        return self._between_hooks(super().read(epoch, start))

    def details(self, source: Any) -> dict[str, Any]:
        return {}
