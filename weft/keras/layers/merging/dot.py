"""Dot and its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.layers.merging.base import Merge
from weft.keras.numerics.normalization import normalize
from weft.keras.numerics.shapes import Shape


class Dot(Merge):
    """The contraction of two inputs over one axis of each, for each element of the batch.

    Args:
      axes: the axis in both, or one for each.
      normalize: whether inputs get norm 1 along these axes first, which makes the result a cosine.
    """

    def __init__(self, axes: int | Sequence[int], normalize: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(axes, (int, list, tuple)):
            raise ArgumentTypeError(f"`axes` must be an integer or two. Received: axes={axes!r}")
        if not isinstance(axes, int) and (len(axes) != 2 or not all(isinstance(axis, int) for axis in axes)):
            raise ArgumentError(f"`axes` must be an integer or two. Received: axes={axes!r}")
        self.set_arguments(axes=axes, normalize=normalize)

    def _axes(self, ranks: Sequence[int]) -> tuple[int, ...]:
        pair = (self.axes, self.axes) if isinstance(self.axes, int) else self.axes
        for axis, rank in zip(pair, ranks, strict=True):
            if not -rank <= axis < rank or axis % rank == 0:
                raise ArgumentError(
                    f"Dot cannot contract axis {axis} of an input with {rank} dimensions, the first of which is the "
                    f"batch. Received: axes={self.axes}"
                )
        return tuple(axis % rank for axis, rank in zip(pair, ranks, strict=True))

    def build(self, input_shape: Any) -> None:
        """Check the shapes."""
        self.compute_output_shape(input_shape)
        self.built = True

    def call(self, inputs: Sequence[Array], mask: Any = None) -> Array:
        """Contract the two inputs."""
        if not isinstance(inputs, (list, tuple)) or len(inputs) != 2:
            raise ArgumentError("Dot must be called on a list of 2 inputs.")
        axes = self._axes([x.ndim for x in inputs])
        if self.normalize:
            inputs = [normalize(x, axis=axis) for x, axis in zip(inputs, axes, strict=True)]
        first, second = inputs
        out = lax.dot_general(first, second, (((axes[0],), (axes[1],)), ((0,), (0,))))
        return wnp.expand_dims(out, -1) if out.ndim == 1 else out

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the batch size and the remaining sizes of both shapes."""
        shapes = self._shapes(input_shape)
        if len(shapes) != 2:
            raise ArgumentError(f"Dot must be called on a list of 2 inputs. Received: input_shape={input_shape}")
        axes = self._axes([len(shape) for shape in shapes])
        sizes = [shape[axis] for shape, axis in zip(shapes, axes, strict=True)]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ArgumentError(
                f"Dot needs equal sizes along the axes that it contracts. Received: shapes {shapes}, axes={self.axes}, "
                f"sizes {sizes}"
            )
        first, second = (
            tuple(size for i, size in enumerate(shape) if i not in (0, axis))
            for shape, axis in zip(shapes, axes, strict=True)
        )
        return (shapes[0][0], *((*first, *second) or (1,)))

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        """Return None: the steps are contracted."""


def dot(inputs: Sequence[Any], axes: int | Sequence[int] = -1, **kwargs: Any) -> Any:
    """Contract two inputs over one axis of each, with a `Dot` layer."""
    return Dot(axes=axes, **kwargs)(inputs)
