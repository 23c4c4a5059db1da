"""What initializers have in common."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

Self = TypeVar("Self", bound="Initializer")


class Initializer:
    """What computes the first value of a variable. A subclass has `__call__(shape, dtype=None)` and, if it has options,
    `get_config`.

    Example:
        >>> from weft import keras
        >>> class Twos(keras.initializers.Initializer):
        ...     def __call__(self, shape, dtype=None):
        ...         return keras.ops.full(shape, 2.0, dtype)
        >>> print(Twos()((2,)))
        [2. 2.]
    """

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Compute the initial value of a variable.

        Args:
            shape: of the variable.
            dtype: of the variable, `floatx()` by default.

        Returns:
            An array.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `__call__(shape, dtype=None)`.")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {}

    @classmethod
    def from_config(cls: type[Self], config: dict[str, Any]) -> Self:
        """Construct an initializer from a config of `get_config`."""
        return cls(**config)

    def clone(self: Self) -> Self:
        """Copy the initializer; a copy of a random one draws the same values."""
        return copy.copy(self)
