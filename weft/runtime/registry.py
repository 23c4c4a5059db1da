"""Tables from the name of a platform to the object that serves its devices; created on first use.

There are three: the devices (`platforms.py`), their memory (`memory_backend.py`) and their programs
(`execution_backend.py`). `weft/runtime/__init__.py` fills them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from weft.base.errors import ArgumentError

T = TypeVar("T")


class Registry(Generic[T]):
    """The objects of one kind by platform. `what` names the kind in errors."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._loaders: dict[str, Callable[[], T]] = {}
        self.loaded: dict[str, T] = {}

    def register(self, platform: str, load: Callable[[], T]) -> None:
        """Register the function that creates the object of a platform; it runs at the first `get`."""
        self._loaders[platform] = load

    def names(self) -> list[str]:
        """Return the registered platforms in the order of their registration."""
        return list(self._loaders)

    def get(self, platform: str) -> T:
        """Return the object of a platform; raise ArgumentError if none is registered."""
        found = self.loaded.get(platform)
        if found is None:
            load = self._loaders.get(platform)
            if load is None:
                what = f"No {self.what} is registered for the platform {platform!r}."
                raise ArgumentError(what, received=platform, fix=f"devices are on: {', '.join(self._loaders)}")
            found = self.loaded.setdefault(platform, load())  # so that two threads get the same object
        return found
