"""What weights are changed to after each update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import weft.numpy as wnp
from weft.errors import publish as _publish
from weft.keras.core import registry
from weft.keras.core.config import epsilon
from weft.keras.ops.dispatch import tensor

Self = TypeVar("Self", bound="Constraint")

__all__ = [
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "deserialize",
    "get",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "serialize",
    "unit_norm",
]


class Constraint:
    """A function of weights that returns weights of the same shape, applied after each update. A subclass has
    `__call__(w)` and, if it has options, `get_config`.

    Example:
        >>> from weft import keras
        >>> class Limited(keras.constraints.Constraint):
        ...     def __call__(self, w):
        ...         return keras.ops.clip(w, -1.0, 1.0)
        >>> print(Limited()([0.5, 3.0]))
        [0.5 1. ]
    """

    def __call__(self, w: Any) -> Any:
        """Return the weights after the constraint; the base class leaves them as they are."""
        return tensor(w)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {}

    @classmethod
    def from_config(cls: type[Self], config: dict[str, Any]) -> Self:
        """Construct a constraint from a config of `get_config`."""
        return cls(**config)


def _norms(w: Any, axis: Any) -> Any:
    return wnp.sqrt(wnp.sum(wnp.square(w), tuple(axis) if isinstance(axis, (list, tuple)) else axis, keepdims=True))


class MaxNorm(Constraint):
    """Vectors that are longer than a limit are shortened to it.

    Args:
        max_value: the limit.
        axis: the axis or axes of a vector: 0 for the weights of a unit of `Dense`.

    Example:
        >>> from weft import keras
        >>> print(keras.constraints.MaxNorm(1.0)([[3.0], [4.0]]))
        [[0.6]
         [0.8]]
    """

    def __init__(self, max_value: float = 2, axis: Any = 0) -> None:
        self.max_value = max_value
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        """Project the weights onto the constraint."""
        w = tensor(w)
        norms = _norms(w, self.axis)
        return w * (wnp.clip(norms, 0, self.max_value) / (epsilon() + norms))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"max_value": self.max_value, "axis": self.axis}


class NonNeg(Constraint):
    """Negative weights become 0.

    Example:
        >>> from weft import keras
        >>> print(keras.constraints.NonNeg()([-1.0, 2.0]))
        [0. 2.]
    """

    def __call__(self, w: Any) -> Any:
        """Project the weights onto the constraint."""
        w = tensor(w)
        return wnp.maximum(w, wnp.zeros((), w.dtype))


class UnitNorm(Constraint):
    """Vectors get the length 1.

    Args:
        axis: the axis or axes of a vector: 0 for the weights of a unit of `Dense`.

    Example:
        >>> from weft import keras
        >>> print(keras.constraints.UnitNorm()([[3.0], [4.0]]))
        [[0.6]
         [0.8]]
    """

    def __init__(self, axis: Any = 0) -> None:
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        """Project the weights onto the constraint."""
        w = tensor(w)
        return w / (epsilon() + _norms(w, self.axis))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"axis": self.axis}


class MinMaxNorm(Constraint):
    """Vectors that are shorter or longer than limits are brought nearer to them.

    Args:
        min_value: the least length.
        max_value: the largest length.
        rate: how much nearer: 1 brings them there at once.
        axis: the axis or axes of a vector: 0 for the weights of a unit of `Dense`.

    Example:
        >>> from weft import keras
        >>> print(keras.constraints.MinMaxNorm(0.0, 1.0)([[3.0], [4.0]]))
        [[0.6]
         [0.8]]
    """

    def __init__(self, min_value: float = 0.0, max_value: float = 1.0, rate: float = 1.0, axis: Any = 0) -> None:
        self.min_value = min_value
        self.max_value = max_value
        self.rate = rate
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        """Project the weights onto the constraint."""
        w = tensor(w)
        norms = _norms(w, self.axis)
        wanted = self.rate * wnp.clip(norms, self.min_value, self.max_value) + (1 - self.rate) * norms
        return w * (wanted / (epsilon() + norms))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"min_value": self.min_value, "max_value": self.max_value, "rate": self.rate, "axis": self.axis}


max_norm = MaxNorm
min_max_norm = MinMaxNorm
non_neg = NonNeg
unit_norm = UnitNorm


def serialize(constraint: Any) -> Any:
    """Convert a constraint to plain data.

    Args:
        constraint: a constraint.

    Returns:
        A dict with its class and its config.

    Example:
        >>> from weft import keras
        >>> keras.constraints.serialize(keras.constraints.UnitNorm())["config"]
        {'axis': 0}
    """
    return registry.serialize_keras_object(constraint)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a constraint from the data of `serialize`.

    Args:
        config: a config or a name.
        custom_objects: further classes by name.

    Returns:
        A constraint.
    """
    return registry.deserialize_keras_object(config, custom_objects=custom_objects, kind="constraints")


def get(identifier: Any) -> Any:
    """Return the constraint for an argument such as `kernel_constraint=`.

    Args:
        identifier: a name, a config, a constraint, a function of weights, or None, which is returned.

    Returns:
        A constraint or function, or None.

    Example:
        >>> from weft import keras
        >>> keras.constraints.get("max_norm").max_value
        2
    """
    return registry.get("constraints", identifier)


_publish(__name__)
registry.register("constraints", MaxNorm, MinMaxNorm, NonNeg, UnitNorm)
