"""RMSNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import Array
from weft.keras.layers.arguments import fixed_size
from weft.keras.layers.normalization.base import NormalizationLayer
from weft.keras.layers.normalization.layer import feature_axes
from weft.keras.numerics.normalization import rms_normalization


class RMSNormalization(NormalizationLayer):
    """Each element of a batch divided by the root of the mean square of its features, times `scale`.

    Args:
      axis: the axis or axes of the features.
      epsilon: added to the mean square.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> weft.numpy.round(keras.layers.RMSNormalization()(weft.numpy.array([[1.0, 2.0, 3.0]])), 2)
      Array([[0.46, 0.93, 1.39]], dtype=float32)
    """

    def __init__(self, axis: int | Sequence[int] = -1, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(axis=axis if isinstance(axis, int) else list(axis), epsilon=epsilon)

    def build(self, input_shape: Any) -> None:
        """Make the scale, of the shape of the features."""
        self.axis = feature_axes(self.axis)
        shape = tuple(fixed_size(input_shape, axis, self) for axis in self.axis)
        self.scale = self.add_weight(name="scale", shape=shape, initializer="ones")
        self.built = True

    def call(self, x: Array) -> Array:
        """Normalize the inputs."""
        return rms_normalization(x, self.scale.value, self.axis, self.epsilon)
