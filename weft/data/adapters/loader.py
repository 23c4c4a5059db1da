"""A `weft.data.Loader`, and all streams, which are read by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.data.adapter import Adapter, Batch, converted, unpacked
from weft.data.loader import Loader, LoaderIterator
from weft.data.spec import spec_of
from weft.errors import ArgumentError


class LoaderAdapter(Adapter):
    """Batches of a loader. `size` and `batch_size` are what is known otherwise."""

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
            self.resident = converted(unpacked(loader.source.arrays), float_dtype)
            self.spec = spec_of(self.resident)

    def order(self, epoch: int) -> np.ndarray | None:
        plan = self.loader.plan
        return None if self.resident is None or plan is None else plan.order.rows(epoch)

    def first(self) -> Batch:
        """The first batch. What was opened for it is read on when the first epoch is."""
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
        if "version" in state:  # of `Batches.state`, after the first batch
            found.begin(_Unpacked(self.loader.resume(state), self._float_dtype))
        return found


class _Unpacked:
    """Batches of a loader as `(x, y, sample_weight)`."""

    def __init__(self, batches: LoaderIterator, float_dtype: Any) -> None:
        self.batches, self._float_dtype = batches, float_dtype
        self._peeked: list[Batch] = []

    def __iter__(self) -> _Unpacked:
        return self

    def peek(self) -> Batch:
        """The next batch, which stays the next."""
        if not self._peeked:
            for batch in self:
                self._peeked.append(batch)
                break
            else:
                raise ArgumentError("This data has no batch, so shapes and dtypes are not known.")
        return self._peeked[0]

    def __next__(self) -> Batch:
        if self._peeked:
            return self._peeked.pop()
        return converted(unpacked(next(self.batches)), self._float_dtype)

    def close(self) -> None:
        self.batches.close()
