"""UnitNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import Array
from weft.errors import ArgumentTypeError
from weft.keras.layers.normalization.base import NormalizationLayer
from weft.keras.numerics.normalization import normalize


class UnitNormalization(NormalizationLayer):
    """Each element of a batch divided by its Euclidean norm.

    Args:
      axis: the axis or axes over which the norm is taken.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.UnitNormalization()(weft.numpy.array([[3.0, 4.0]]))
      Array([[0.6, 0.8]], dtype=float32)
    """

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(axis, (int, list, tuple)):
            raise ArgumentTypeError(f"`axis` must be an integer or a list of integers. Received: axis={axis!r}")
        self.set_arguments(axis=axis if isinstance(axis, int) else list(axis))
        self.supports_masking = True
        self._build_at_init()

    def call(self, inputs: Array) -> Array:
        """Scale the inputs to norm 1."""
        return normalize(inputs, axis=self.axis, order=2, epsilon=1e-12)
