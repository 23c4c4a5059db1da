"""`torch.utils.data.DataLoader`, whose elements are batches, and `IterableDataset`, whose elements are samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def recognises(data: Any) -> bool:
    """Return whether `data` is a `DataLoader`."""
    return all(hasattr(data, name) for name in ("dataset", "collate_fn", "batch_sampler", "__iter__"))


def is_iterable_dataset(data: Any) -> bool:
    """Return whether `data` is an `IterableDataset`, an iterable of samples."""
    return any(
        base.__name__ == "IterableDataset" and base.__module__.startswith("torch.") for base in type(data).__mro__
    )


class TorchBatches:
    """Batches of a `DataLoader`. A loader of torchdata can also save and restore its position."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        if hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
            self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of a distributed sampler, which seeds its order."""
        sampler = getattr(self.loader, "sampler", None)
        if sampler is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def size(loader: Any) -> int | None:
    """Return the number of batches of a `DataLoader`, or None if its dataset has no length."""
    try:
        return len(loader)
    except TypeError:
        return None
