"""The adapter of `weft.data.Loader`, and of all streams, which a loader reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.data.adapter import Adapter, Batch, to_host_arrays, unpack_batch
from weft.data.loader import Loader, LoaderIterator
from weft.data.spec import batch_spec
from weft.errors import ArgumentError


class LoaderAdapter(Adapter):
    """Adapter of a loader. `size` and `batch_size` are given if the loader itself cannot know them."""

    def __init__(
        self,
        loader: Loader,
        kind: str = "loader",
        float_dtype: Any = None,
        size: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.loader, self.kind, self._float_dtype = loader, kind, float_dtype
        self.size = loader.size if size is None else size
        self.batch_size = loader.batch_size if batch_size is None else batch_size
        self.skips = loader.skips
        self._opened: _Unpacked | None = None
        if loader.batch_size is not None:
            self.samples = loader.samples
        if loader.device is None and loader.buckets is None and loader.delivers_rows:
            self.resident = to_host_arrays(unpack_batch(loader.source.arrays), float_dtype)
            self.spec = batch_spec(self.resident)

    def order(self, epoch: int) -> np.ndarray | None:
        plan = self.loader.plan
        return None if self.resident is None or plan is None else plan.order.rows(epoch)

    def first(self) -> Batch:
        """Return the first batch. Its iterator is kept, and the first epoch continues with it."""
        if self._opened is None:
            self._opened = _Unpacked(self.loader.batches(), self._float_dtype)
        return self._opened.peek()

    def read(self, epoch: int, start: int) -> Iterator[Batch]:
        opened, self._opened = self._opened, None
        if opened is not None and epoch == start == 0:
            return opened
        if opened is not None:
            opened.close()
        return _Unpacked(self.loader.batches(epoch, start), self._float_dtype)

    def details(self, source: Any) -> dict[str, Any]:
        return source.batches.state() if isinstance(source, _Unpacked) else {}

    def resume(self, state: dict[str, Any]) -> Any:
        found = self.batches(state["epoch"], state["batches"])
        if "version" in state:  # a position after the first batch, by `Batches.state`
            found.begin(_Unpacked(self.loader.resume(state), self._float_dtype))
        return found


class _Unpacked:
    """Iterator of a loader's batches as `(x, y, sample_weight)`."""

    def __init__(self, batches: LoaderIterator, float_dtype: Any) -> None:
        self.batches, self._float_dtype = batches, float_dtype
        self._peeked: list[Batch] = []

    def __iter__(self) -> _Unpacked:
        return self

    def peek(self) -> Batch:
        """Return the next batch without consuming it."""
        if not self._peeked:
            for batch in self:
                self._peeked.append(batch)
                break
            else:
                raise ArgumentError("Data must have at least one batch: it determines shapes and dtypes.")
        return self._peeked[0]

    def __next__(self) -> Batch:
        if self._peeked:
            return self._peeked.pop()
        return to_host_arrays(unpack_batch(next(self.batches)), self._float_dtype)

    def close(self) -> None:
        self.batches.close()
