"""GroupNormalization."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError
from weft.keras.core.spec import InputSpec
from weft.keras.layers.arguments import fixed_size
from weft.keras.layers.normalization.base import NormalizationLayer, value_or_none
from weft.keras.numerics.normalization import wide_dtype


class GroupNormalization(NormalizationLayer):
    """Groups of channels of each element with mean 0 and variance 1, over all dimensions but the batch.

    Args:
      groups: how many groups the channels are divided into; -1 makes each channel a group.
      axis: the axis of the channels.
      epsilon: added to the variance.
      center: whether there is an offset `beta` for each channel.
      scale: whether there is a factor `gamma` for each channel.
      beta_initializer, gamma_initializer, beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint:
        names, configurations or objects.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> weft.numpy.round(keras.layers.GroupNormalization(2)(weft.numpy.array([[1.0, 2.0, 30.0, 50.0]])), 1)
      Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    groups: int

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
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
        if not isinstance(groups, int) or (groups <= 0 and groups != -1):
            raise ArgumentError(f"`groups` must be a positive integer, or -1. Received: groups={groups!r}")
        super().__init__(**kwargs)
        self.set_arguments(
            groups=groups,
            axis=axis,
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
        self.supports_masking = True
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        """Make gamma and beta, one number for each channel."""
        channels = fixed_size(input_shape, self.axis, self)
        if self.groups == -1:
            self.groups = channels
        if channels % self.groups:
            raise ArgumentError(
                f"The {channels} channels of the input cannot be divided into {self.groups} groups of equal size. "
                f"Received: input_shape={tuple(input_shape)}, groups={self.groups}"
            )
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})
        self._add_scale_and_offset((channels,))
        self.built = True

    def call(self, inputs: Array) -> Array:
        """Normalize the inputs."""
        axis = self.axis % inputs.ndim
        before, channels, after = inputs.shape[:axis], inputs.shape[axis], inputs.shape[axis + 1 :]
        split = (self.groups, channels // self.groups)
        groups = wnp.reshape(inputs, (*before, *split, *after)).astype(wide_dtype(inputs))
        reduced = tuple(one for one in range(1, groups.ndim) if one != axis)
        mean, variance = nn.moments(groups, reduced, keepdims=True, fast=False)
        shape = (*(1,) * len(before), *split, *(1,) * len(after))
        scale, offset = (
            None if value is None else wnp.reshape(value, shape).astype(groups.dtype)
            for value in (value_or_none(self.gamma), value_or_none(self.beta))
        )
        out = nn.normalize_by(groups, mean, variance, scale, offset, self.epsilon)
        return wnp.reshape(out, inputs.shape).astype(self.compute_dtype)
