"""Concatenate and its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.layers.merging.base import Merge
from weft.keras.numerics.shapes import Shape


class Concatenate(Merge):
    """A list of inputs one after the other along an axis.

    Args:
      axis: the axis, in which alone the shapes may differ.

    Returns:
      A layer that is called on a list of arrays.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.Concatenate()([weft.numpy.ones((1, 2)), weft.numpy.zeros((1, 1))])
      Array([[1., 1., 0.]], dtype=float32)
    """

    def __init__(self, axis: int = -1, **kwargs: Any):
        super().__init__(**kwargs)
        self.set_arguments(axis=axis)

    def build(self, input_shape: Any) -> None:
        """Check the shapes."""
        self.compute_output_shape(input_shape)
        self.built = True

    def call(self, inputs: Sequence[Array], mask: Any = None) -> Array:
        """Concatenate the inputs."""
        if not isinstance(inputs, (list, tuple)):
            raise ArgumentError(f"Concatenate is called on a list of inputs. Received: {type(inputs).__name__}")
        return wnp.concatenate(list(inputs), axis=self.axis)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the shape of the inputs with the sum of their sizes along the axis."""
        shapes = self._shapes(input_shape)
        rank = len(shapes[0])
        if any(len(shape) != rank for shape in shapes) or not -rank <= self.axis < rank:
            raise self._mismatch(shapes)
        axis = self.axis % rank
        out: list[int | None] = []
        for i, sizes in enumerate(zip(*shapes, strict=True)):
            known = [size for size in sizes if size is not None]
            if i == axis:
                out.append(sum(known) if len(known) == len(sizes) else None)
            elif len(set(known)) > 1:
                raise self._mismatch(shapes)
            else:
                out.append(known[0] if known else None)
        return tuple(out)

    def _mismatch(self, shapes: list[Shape]) -> ArgumentError:
        return ArgumentError(
            f"Concatenate needs inputs whose shapes are equal but for axis {self.axis}. Received: {shapes}"
        )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Concatenate the masks; an input without a mask is valid as a whole."""
        if mask is None or all(one is None for one in mask):
            return None
        parts = []
        for x, one in zip(inputs, mask, strict=True):
            if one is None:
                parts.append(wnp.ones(x.shape, bool))
            elif len(one.shape) < len(x.shape):
                parts.append(wnp.broadcast_to(wnp.expand_dims(one, -1), x.shape))
            else:
                parts.append(one)
        return wnp.any(wnp.concatenate(parts, axis=self.axis), axis=-1)


def concatenate(inputs: Sequence[Any], axis: int = -1, **kwargs: Any) -> Any:
    """Concatenate a list of inputs along an axis, with a `Concatenate` layer.

    Args:
      inputs: arrays, or tensors of a functional model.
      axis: the axis, in which alone the shapes may differ.
      **kwargs: of the layer, such as `name`.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.concatenate([weft.numpy.ones((1, 2)), weft.numpy.zeros((1, 1))])
      Array([[1., 1., 0.]], dtype=float32)
    """
    return Concatenate(axis=axis, **kwargs)(inputs)
