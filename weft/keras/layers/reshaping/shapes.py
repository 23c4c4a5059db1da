"""Flatten, Reshape, Permute, RepeatVector: the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.core.config import standardize_data_format
from weft.keras.core.spec import InputSpec, check_positive
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.shapes import Shape


class Flatten(ConfiguredLayer):
    """All dimensions but the batch as one.

    Args:
      data_format: with "channels_first" the channels are put last before, so that weights trained with either order
        of dimensions are the same.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Flatten()(weft.numpy.ones((2, 3, 4))).shape
      (2, 12)
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(data_format=standardize_data_format(data_format))
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Array) -> Array:
        """Flatten the inputs to (batch, features)."""
        if self.data_format == "channels_first" and inputs.ndim > 2:
            inputs = wnp.moveaxis(inputs, 1, -1)
        return wnp.reshape(inputs, (inputs.shape[0], math.prod(inputs.shape[1:])))

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        sizes = tuple(input_shape[1:])
        return (input_shape[0], None if None in sizes else math.prod(sizes))


class Reshape(ConfiguredLayer):
    """Another shape; the batch stays.

    Args:
      target_shape: the new sizes without the batch; one may be -1, which is what is left.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Reshape((-1, 2))(weft.numpy.ones((5, 6))).shape
      (5, 3, 2)
    """

    def __init__(self, target_shape: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        target = tuple(target_shape)
        if not all(isinstance(size, int) and size >= -1 for size in target) or target.count(-1) > 1:
            raise ArgumentError(
                f"`target_shape` must be non-negative integers, one of which may be -1. Received: {target_shape!r}"
            )
        self.set_arguments(target_shape=target)

    def call(self, inputs: Array) -> Array:
        """Reshape the inputs."""
        return wnp.reshape(inputs, self.compute_output_shape(inputs.shape))

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the batch size and the target shape, with -1 resolved if the sizes are known."""
        sizes, target = tuple(input_shape[1:]), self.target_shape
        if None in sizes:
            return (input_shape[0], *(None if size == -1 else size for size in target))
        total, rest = math.prod(sizes), math.prod(size for size in target if size != -1)
        fits = total == rest if -1 not in target else (rest != 0 and total % rest == 0)
        if not fits:
            raise ArgumentError(
                f"Reshape {self.name!r} cannot make {target} of {sizes}: the number of elements differs. "
                f"Received: input_shape={tuple(input_shape)}, target_shape={target}"
            )
        return (input_shape[0], *(total // rest if size == -1 else size for size in target))


class Permute(ConfiguredLayer):
    """Dimensions in another order; the batch stays first.

    Args:
      dims: a permutation of 1, 2, ...: which dimension of the input each of the result's is.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Permute((2, 1))(weft.numpy.ones((5, 6, 7))).shape
      (5, 7, 6)
    """

    def __init__(self, dims: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        order = tuple(dims)
        if sorted(order) != list(range(1, len(order) + 1)):
            raise ArgumentError(
                f"`dims` must be a permutation of 1 to the number of dimensions; the batch is not among them. "
                f"Received: dims={dims!r}"
            )
        self.set_arguments(dims=order)
        self.input_spec = InputSpec(ndim=len(order) + 1)

    def call(self, inputs: Array) -> Array:
        """Transpose the inputs."""
        return wnp.transpose(inputs, (0, *self.dims))

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return (input_shape[0], *(input_shape[axis] for axis in self.dims))


class RepeatVector(ConfiguredLayer):
    """From (batch, features) to (batch, n, features), by repetition.

    Args:
      n: how many times.
    """

    def __init__(self, n: int, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(n, int):
            raise ArgumentTypeError(f"`n` must be an integer. Received: n={n!r} of type {type(n).__name__}")
        check_positive(n=n)
        self.set_arguments(n=n)
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Array) -> Array:
        """Repeat the inputs along a new second axis."""
        batch, features = inputs.shape
        return wnp.broadcast_to(inputs[:, None], (batch, self.n, features))

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the output shape for an input shape."""
        return (input_shape[0], self.n, input_shape[1])
