"""Add, Subtract, Multiply, Average, Maximum, Minimum, and their functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.layers.merging.base import Merge, over_elements


class Add(Merge):
    """The sum of a list of inputs.

    Returns:
      A layer; called on arrays that broadcast, it returns their sum.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Add()([weft.numpy.ones((1, 2)), weft.numpy.ones((1, 2))])
      Array([[2., 2.]], dtype=float32)
    """

    def _merge(self, inputs: list[Array], masks: list[Any]) -> Array:
        return reduce(wnp.add, inputs)


class Subtract(Merge):
    """The difference of two inputs."""

    def build(self, input_shape: Any) -> None:
        """Check the shapes."""
        if len(input_shape) != 2:
            raise ArgumentError(f"Subtract is called on exactly 2 inputs. Received: input_shape={input_shape}")
        super().build(input_shape)

    def _merge(self, inputs: list[Array], masks: list[Any]) -> Array:
        first, second = inputs
        return wnp.subtract(first, second)


class Multiply(Merge):
    """The product of a list of inputs. What is masked counts as 1; where all are masked, the product is 0.

    Returns:
      A layer; called on arrays that broadcast, it returns their product.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Multiply()([2 * weft.numpy.ones((1, 2)), 3 * weft.numpy.ones((1, 2))])
      Array([[6., 6.]], dtype=float32)
    """

    def _merge(self, inputs: list[Array], masks: list[Any]) -> Array:
        valid = [over_elements(mask, x) for mask, x in zip(masks, inputs, strict=True)]
        ones = [x if mask is None else wnp.where(mask, x, 1) for mask, x in zip(valid, inputs, strict=True)]
        out = reduce(wnp.multiply, ones)
        if any(mask is None for mask in valid):
            return out
        return wnp.where(reduce(wnp.logical_or, valid), out, 0)


class Average(Merge):
    """The mean of a list of inputs."""

    def _merge(self, inputs: list[Array], masks: list[Any]) -> Array:
        return reduce(wnp.add, inputs) / len(inputs)


class _Extreme(Merge):
    """The extreme of inputs; what is masked in one does not count."""

    choose: Callable[[Any, Any], Any]

    def _merge(self, inputs: list[Array], masks: list[Any]) -> Array:
        out, valid = inputs[0], over_elements(masks[0], inputs[0])
        for x, mask in zip(inputs[1:], masks[1:], strict=True):
            own = over_elements(mask, x)
            other = x if own is None else wnp.where(own, x, out)
            if valid is not None:
                out = wnp.where(valid, out, other)
            valid = None if valid is None or own is None else wnp.logical_or(valid, own)
            out = type(self).choose(out, other)
        return out


class Maximum(_Extreme):
    """The larger of the elements of a list of inputs."""

    choose = staticmethod(wnp.maximum)


class Minimum(_Extreme):
    """The smaller of the elements of a list of inputs."""

    choose = staticmethod(wnp.minimum)


def add(inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Add a list of inputs, with an `Add` layer.

    Args:
      inputs: arrays, or tensors of a functional model.
      **kwargs: of the layer, such as `name`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.add([weft.numpy.ones((1, 2)), weft.numpy.ones((1, 2))])
      Array([[2., 2.]], dtype=float32)
    """
    return Add(**kwargs)(inputs)


def subtract(inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Subtract the second input from the first, with a `Subtract` layer."""
    return Subtract(**kwargs)(inputs)


def multiply(inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Multiply a list of inputs, with a `Multiply` layer.

    Args:
      inputs: arrays, or tensors of a functional model.
      **kwargs: of the layer, such as `name`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.multiply([2 * weft.numpy.ones((1, 2)), 3 * weft.numpy.ones((1, 2))])
      Array([[6., 6.]], dtype=float32)
    """
    return Multiply(**kwargs)(inputs)


def average(inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Average a list of inputs, with an `Average` layer."""
    return Average(**kwargs)(inputs)


def maximum(inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Return the elementwise maximum of a list of inputs, with a `Maximum` layer."""
    return Maximum(**kwargs)(inputs)


def minimum(inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Return the elementwise minimum of a list of inputs, with a `Minimum` layer."""
    return Minimum(**kwargs)(inputs)
