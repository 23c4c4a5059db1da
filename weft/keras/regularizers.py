"""Penalties on weights and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import weft.numpy as wnp
from weft.errors import ArgumentError, publish as _publish
from weft.keras.core import registry
from weft.keras.numerics.normalization import normalize
from weft.keras.ops.dispatch import tensor

Self = TypeVar("Self", bound="Regularizer")

__all__ = [
    "L1",
    "L1L2",
    "L2",
    "OrthogonalRegularizer",
    "Regularizer",
    "deserialize",
    "get",
    "l1",
    "l1_l2",
    "l2",
    "orthogonal_regularizer",
    "serialize",
]


class Regularizer:
    """A penalty: a function of an array that returns a scalar, which is added to the loss. A subclass has
    `__call__(x)` and, if it has options, `get_config`.

    Example:
        >>> from weft import keras
        >>> class Large(keras.regularizers.Regularizer):
        ...     def __call__(self, x):
        ...         return keras.ops.max(x)
        >>> print(Large()(keras.ops.array([1.0, 3.0])))
        3.0
    """

    def __call__(self, x: Any) -> Any:
        """Compute the penalty of an array."""
        return 0.0

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        raise NotImplementedError(f"{type(self).__name__} has no `get_config`.")

    @classmethod
    def from_config(cls: type[Self], config: dict[str, Any]) -> Self:
        """Construct a regularizer from a config of `get_config`."""
        return cls(**config)


def _coefficient(value: Any, name: str) -> float:
    if value is None:
        return 0.0
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ArgumentError(f"`{name}` is a finite float that is not negative.", received=f"{name}={value!r}")
    return float(value)


class L1L2(Regularizer):
    """`l1 * sum(abs(x)) + l2 * sum(x**2)`.

    Args:
        l1: the factor of absolute values.
        l2: the factor of squares.

    Example:
        >>> from weft import keras
        >>> print(keras.regularizers.L1L2(0.5, 0.25)([1.0, -2.0]))
        2.75
    """

    def __init__(self, l1: float | None = 0.0, l2: float | None = 0.0) -> None:
        self.l1 = _coefficient(l1, "l1")
        self.l2 = _coefficient(l2, "l2")

    def __call__(self, x: Any) -> Any:
        """Compute the penalty of an array."""
        x = tensor(x)
        penalty = wnp.zeros((), x.dtype)
        if self.l1:
            penalty = penalty + self.l1 * wnp.sum(wnp.abs(x))
        if self.l2:
            penalty = penalty + self.l2 * wnp.sum(wnp.square(x))
        return penalty

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"l1": self.l1, "l2": self.l2}


class L1(Regularizer):
    """`l1 * sum(abs(x))`.

    Args:
        l1: the factor.

    Example:
        >>> from weft import keras
        >>> print(keras.regularizers.L1(0.5)([1.0, -2.0]))
        1.5
    """

    def __init__(self, l1: float | None = 0.01) -> None:
        self.l1 = 0.01 if l1 is None else _coefficient(l1, "l1")

    def __call__(self, x: Any) -> Any:
        """Compute the penalty of an array."""
        return self.l1 * wnp.sum(wnp.abs(tensor(x)))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"l1": self.l1}


class L2(Regularizer):
    """`l2 * sum(x**2)`.

    Args:
        l2: the factor.

    Example:
        >>> from weft import keras
        >>> print(keras.regularizers.L2(0.5)([1.0, -2.0]))
        2.5
    """

    def __init__(self, l2: float | None = 0.01) -> None:
        self.l2 = 0.01 if l2 is None else _coefficient(l2, "l2")

    def __call__(self, x: Any) -> Any:
        """Compute the penalty of an array."""
        return self.l2 * wnp.sum(wnp.square(tensor(x)))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"l2": self.l2}


class OrthogonalRegularizer(Regularizer):
    """The mean absolute cosine of the angles between rows or columns of a matrix, times a factor.

    Args:
        factor: the factor.
        mode: "rows" or "columns".

    Example:
        >>> from weft import keras
        >>> print(keras.regularizers.OrthogonalRegularizer()([[1.0, 0.0], [0.0, 1.0]]))
        0.0
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        if mode not in ("rows", "columns"):
            raise ArgumentError("`mode` must be 'rows' or 'columns'.", received=f"mode={mode!r}")
        self.factor = _coefficient(factor, "factor")
        self.mode = mode

    def __call__(self, x: Any) -> Any:
        """Compute the penalty of a matrix."""
        x = tensor(x)
        if x.ndim != 2:
            raise ArgumentError("The argument of OrthogonalRegularizer must be a matrix.", received=f"shape {x.shape}")
        vectors = normalize(x if self.mode == "rows" else wnp.transpose(x), axis=1)
        count = vectors.shape[0]
        cosines = (vectors @ wnp.transpose(vectors)) * (1 - wnp.eye(count, dtype=x.dtype))
        pairs = count * (count - 1) / 2
        return self.factor * 0.5 * wnp.sum(wnp.abs(cosines)) / max(pairs, 1)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"factor": self.factor, "mode": self.mode}


l1 = L1
l1_l2 = L1L2
l2 = L2
orthogonal_regularizer = OrthogonalRegularizer


def serialize(regularizer: Any) -> Any:
    """Convert a regularizer to plain data.

    Args:
        regularizer: a regularizer.

    Returns:
        A dict with its class and its config.

    Example:
        >>> from weft import keras
        >>> keras.regularizers.serialize(keras.regularizers.L2(0.5))["config"]
        {'l2': 0.5}
    """
    return registry.serialize_keras_object(regularizer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a regularizer from the data of `serialize`.

    Args:
        config: a config or a name.
        custom_objects: further classes by name.

    Returns:
        A regularizer.
    """
    return registry.deserialize_keras_object(config, custom_objects=custom_objects, kind="regularizers")


def get(identifier: Any) -> Any:
    """Return the regularizer for an argument such as `kernel_regularizer=`.

    Args:
        identifier: a name, a config, a regularizer, a function of an array, or None, which is returned.

    Returns:
        A regularizer or function, or None.

    Example:
        >>> from weft import keras
        >>> keras.regularizers.get("l2").l2
        0.01
    """
    return registry.get("regularizers", identifier)


_publish(__name__)
registry.register(
    "regularizers",
    L1,
    L2,
    L1L2,
    OrthogonalRegularizer,
    aliases={"l1_l2": L1L2},
)
