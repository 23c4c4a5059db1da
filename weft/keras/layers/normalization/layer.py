"""LayerNormalization."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from weft import Array
from weft.errors import ArgumentTypeError
from weft.keras.layers.arguments import fixed_size
from weft.keras.layers.normalization.base import NormalizationLayer, value_or_none
from weft.keras.numerics.normalization import layer_normalization, variance_scaling


class LayerNormalization(NormalizationLayer):
    """Each element of a batch with mean 0 and variance 1 over its features.

    Args:
      axis: the axis or axes of the features.
      epsilon: added to the variance.
      center: whether there is an offset `beta`.
      scale: whether there is a factor `gamma`.
      **kwargs: `name`, `dtype`, `trainable`, and `rms_scaling=True` of old files: no mean and no offset.
      beta_initializer, gamma_initializer, beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint:
        names, configurations or objects.

    Returns:
      A layer whose result has the shape of its input.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> weft.numpy.round(keras.layers.LayerNormalization()(weft.numpy.array([[1.0, 2.0, 3.0]])), 2)
      Array([[-1.22,  0.  ,  1.22]], dtype=float32)
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ):
        rms_scaling = kwargs.pop("rms_scaling", False)
        if rms_scaling:
            warnings.warn(
                "You passed `rms_scaling=True`, which is deprecated: it divides by the root of the variance and not of "
                "the mean square. Use `RMSNormalization`.",
                stacklevel=2,
            )
        super().__init__(**kwargs)
        if not isinstance(axis, (int, list, tuple)):
            raise ArgumentTypeError(f"`axis` must be an integer or a list of integers. Received: axis={axis!r}")
        self.set_arguments(
            axis=axis if isinstance(axis, int) else list(axis),
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        self.rms_scaling = rms_scaling
        self.supports_masking = True
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        """Make gamma and beta, of the shape of the features."""
        self.axis = feature_axes(self.axis)
        features = tuple(fixed_size(input_shape, axis, self) for axis in self.axis)
        self._add_scale_and_offset(
            features, scale=self.scale or self.rms_scaling, center=self.center and not self.rms_scaling
        )
        self.built = True

    def call(self, inputs: Array) -> Array:
        """Normalize the inputs."""
        normalize = variance_scaling if self.rms_scaling else layer_normalization
        out = normalize(inputs, value_or_none(self.gamma), value_or_none(self.beta), self.axis, self.epsilon)
        return out.astype(self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {**super().get_config(), "rms_scaling": self.rms_scaling}


def feature_axes(axis: int | Sequence[int]) -> list[int]:
    """Return one axis or several as an ascending list."""
    return [axis] if isinstance(axis, int) else sorted(axis)
