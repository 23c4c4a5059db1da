"""BatchNormalization."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, lax, nn
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import config
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import fixed_size
from weft.keras.layers.normalization.base import NormalizationLayer
from weft.keras.numerics.normalization import batch_normalization, masked_moments, wide_dtype


class BatchNormalization(NormalizationLayer):
    """Each channel with mean 0 and variance 1 over a batch; at inference by moving averages.

    With `training` the mean and the (biased) variance of the batch are used, and the moving ones come nearer to them:
    `moving = moving · momentum + batch · (1 - momentum)`. Otherwise, and where the layer is frozen by
    `trainable = False`, the moving ones are used and nothing is written.

    Args:
      axis: the axis of the channels.
      momentum: how much of the moving averages stays with each batch.
      epsilon: added to the variance.
      center: whether there is an offset `beta`.
      scale: whether there is a factor `gamma`.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer, beta_regularizer,
        gamma_regularizer, beta_constraint, gamma_constraint: names, configurations or objects.
      renorm: whether batches are corrected towards the moving averages in training too (batch renormalization).
      renorm_clipping: limits of that correction: a dict with "rmax", "rmin", "dmax".
      renorm_momentum: momentum of the averages that the correction uses.
      synchronized: for TensorFlow only; within programs over several devices the batch is whole here anyway.

    Returns:
      A layer; its call takes `training` and a `mask` of valid steps.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> layer = keras.layers.BatchNormalization()
      >>> y = layer(weft.numpy.array([[1.0], [3.0]]), training=True)
      >>> weft.numpy.round(y, 2)
      Array([[-1.],
             [ 1.]], dtype=float32)
      >>> layer.moving_mean.numpy()
      array([0.02], dtype=float32)
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: dict[str, float] | None = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if synchronized:
            raise NotSupportedError(
                "BatchNormalization got synchronized=True, which is for TensorFlow; leave it out: within a program a "
                "batch over several devices is one batch."
            )
        if renorm:
            renorm_clipping = _clipping(renorm_clipping)
        self.set_arguments(
            axis=int(axis),
            momentum=float(momentum),
            epsilon=float(epsilon),
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            moving_mean_initializer=moving_mean_initializer,
            moving_variance_initializer=moving_variance_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
            synchronized=synchronized,
            renorm=renorm,
            renorm_clipping=renorm_clipping,
            renorm_momentum=renorm_momentum,
        )
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Make gamma, beta and the moving averages."""
        channels = fixed_size(input_shape, self.axis, self)
        self._add_scale_and_offset((channels,))
        self.moving_mean = self._add_average("moving_mean", channels, self.moving_mean_initializer)
        self.moving_variance = self._add_average("moving_variance", channels, self.moving_variance_initializer)
        if self.renorm:
            deviation = lambda shape, dtype=None: wnp.sqrt(self.moving_variance_initializer(shape, dtype=dtype))
            self.moving_stddev = self._add_average("moving_stddev", channels, deviation)
            self.renorm_mean = self._add_average("renorm_mean", channels, self.moving_mean_initializer)
            self.renorm_stddev = self._add_average("renorm_stddev", channels, deviation)
        rank = len(input_shape)
        self.input_spec = InputSpec(ndim=rank, axes={self.axis: channels})
        self.built = True

    def _add_average(self, name: str, size: int, initializer: Any) -> Any:
        return self.add_weight(name=name, shape=(size,), initializer=initializer, trainable=False, autocast=False)

    def call(self, inputs: Array, training: bool | None = None, mask: Any = None) -> Array:
        """Normalize the inputs."""
        if mask is not None and mask.ndim != inputs.ndim - 1:
            raise ArgumentError(
                f"A mask for BatchNormalization has one dimension less than the inputs. Received: mask of shape "
                f"{mask.shape}, inputs of shape {inputs.shape}"
            )
        wide = inputs.astype(wide_dtype(inputs))
        gamma, beta = (
            None if variable is None else variable.value.astype(wide.dtype) for variable in (self.gamma, self.beta)
        )
        mean, variance = (average.value.astype(wide.dtype) for average in (self.moving_mean, self.moving_variance))
        if training and self.trainable:
            mean, variance = self._moments(wide, mask)
            if self.renorm:
                gamma, beta = self._correct(mean, variance, gamma, beta)
                self._update_renorm(mean, variance)
            else:
                _approach(self.moving_mean, mean, self.momentum)
                _approach(self.moving_variance, variance, self.momentum)
        out = batch_normalization(wide, mean, variance, self.axis, beta, gamma, self.epsilon)
        return out.astype(self.compute_dtype)

    def _moments(self, inputs: Array, mask: Any) -> tuple[Array, Array]:
        axes = tuple(axis for axis in range(inputs.ndim) if axis != self.axis % inputs.ndim)
        if mask is None:
            return nn.moments(inputs, axes, fast=False)
        return masked_moments(inputs, mask, axes, config.epsilon())

    def _correct(self, mean: Array, variance: Array, gamma: Any, beta: Any) -> tuple[Array, Array]:
        """Scale and offset with which normalizing by the batch is like normalizing by its moving averages."""
        least = wnp.sqrt(wnp.asarray(self.epsilon, mean.dtype))
        old_mean = self.renorm_mean.value.astype(mean.dtype)
        old_deviation = wnp.maximum(self.renorm_stddev.value.astype(mean.dtype), least)
        factor = wnp.sqrt(variance + self.epsilon) / old_deviation
        shift = (mean - old_mean) / old_deviation
        limits = self.renorm_clipping
        if limits.get("rmin") is not None:
            factor = wnp.maximum(factor, limits["rmin"])
        if limits.get("rmax") is not None:
            factor = wnp.minimum(factor, limits["rmax"])
        if limits.get("dmax") is not None:
            shift = wnp.clip(shift, -limits["dmax"], limits["dmax"])
        factor, shift = lax.stop_gradient(factor), lax.stop_gradient(shift)
        if gamma is not None:
            factor, shift = factor * gamma, shift * gamma
        return factor, shift if beta is None else shift + beta

    def _update_renorm(self, mean: Array, variance: Array) -> None:
        deviation = wnp.sqrt(variance + self.epsilon)
        _approach(self.renorm_mean, mean, self.renorm_momentum)
        _approach(self.renorm_stddev, deviation, self.renorm_momentum)
        _approach(self.moving_mean, mean, self.momentum)
        _approach(self.moving_stddev, deviation, self.momentum)
        # Rounding may make the difference negative.
        self.moving_variance.assign(wnp.maximum(wnp.square(self.moving_stddev.value) - self.epsilon, 0))


def _approach(average: Any, value: Array, momentum: float) -> None:
    """Update a moving average with the value of one batch."""
    average.assign(average.value.astype(value.dtype) * momentum + value * (1.0 - momentum))


def _clipping(limits: dict[str, float] | None) -> dict[str, float]:
    limits = dict(limits or {})
    unknown = set(limits) - {"rmax", "rmin", "dmax"}
    if unknown:
        raise ArgumentError(f"`renorm_clipping` has keys 'rmax', 'rmin', 'dmax'. Received: {sorted(unknown)}")
    smallest, largest, shift = limits.get("rmin"), limits.get("rmax"), limits.get("dmax")
    if smallest is not None and largest is not None and largest < smallest:
        raise ArgumentError(f"`renorm_clipping` needs rmin <= rmax. Received: rmin={smallest}, rmax={largest}")
    if shift is not None and shift < 0:
        raise ArgumentError(f"`renorm_clipping` needs dmax >= 0. Received: dmax={shift}")
    return limits
