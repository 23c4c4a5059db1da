"""What a schedule is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from weft.errors import NotSupportedError


class LearningRateSchedule:
    """A learning rate that depends on the iteration: subclasses define `__call__(step)`, and `get_config` for files.

    >>> from weft import keras
    >>> class Halving(keras.optimizers.schedules.LearningRateSchedule):
    ...     def __call__(self, step):
    ...         return 0.5**step
    >>> print(keras.optimizers.SGD(Halving()).learning_rate)
    1.0
    """

    def __call__(self, step: Any) -> Any:
        """Return the learning rate at a step, counted from 0."""
        raise NotSupportedError(f"{type(self).__name__} does not define `__call__(step)`.")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        raise NotSupportedError(f"{type(self).__name__} does not define `get_config()`, which files need.")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Construct a schedule from a config of `get_config`."""
        return cls(**config)
