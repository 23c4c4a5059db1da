"""What merging layers share: they are called on a list of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.layers.arguments import ConfiguredLayer
from weft.keras.numerics.shapes import Shape


class Merge(ConfiguredLayer):
    """A layer of several inputs, which broadcast; those of fewer dimensions get new ones after the batch."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    def _merge(self, inputs: list[Array], masks: list[Any]) -> Array:
        """Merge inputs of the same rank; missing masks are None."""
        raise NotImplementedError

    def build(self, input_shape: Any) -> None:
        """Check the shapes."""
        shapes = self._shapes(input_shape)
        batches = {shape[0] for shape in shapes if shape} - {None}
        if len(batches) > 1:
            raise ArgumentError(
                f"{type(self).__name__} got inputs with different batch sizes. Received shapes: {shapes}"
            )
        self.compute_output_shape(input_shape)
        self.built = True

    def _shapes(self, input_shape: Any) -> list[Shape]:
        """Return the list of input shapes; raise an error unless there is at least one."""
        if not isinstance(input_shape, (list, tuple)) or not all(isinstance(s, (list, tuple)) for s in input_shape):
            raise ArgumentError(
                f"{type(self).__name__} is called on a list of inputs. Received: input_shape={input_shape}"
            )
        if not input_shape:
            raise ArgumentError(f"{type(self).__name__} needs at least one input. Received: an empty list")
        return [tuple(shape) for shape in input_shape]

    def call(self, inputs: Sequence[Array], mask: Any = None) -> Array:
        """Merge the inputs, expanded to the same rank."""
        if not isinstance(inputs, (list, tuple)):
            raise ArgumentError(
                f"{type(self).__name__} is called on a list of inputs. Received: {type(inputs).__name__}"
            )
        rank = max(x.ndim for x in inputs)
        same = [wnp.expand_dims(x, tuple(range(1, 1 + rank - x.ndim))) if x.ndim < rank else x for x in inputs]
        masks = [None] * len(inputs) if mask is None else list(mask)
        return self._merge(same, masks)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Return the broadcast shape of the inputs."""
        shapes = self._shapes(input_shape)
        features = shapes[0][1:]
        for shape in shapes[1:]:
            features = _broadcast(features, shape[1:])
        batches = {shape[0] for shape in shapes} - {None}
        return (batches.pop() if len(batches) == 1 else None, *features)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:  # Keras's names override those of Layer
        """Return the union of the inputs' masks; None if an input has no mask."""
        if mask is None or any(one is None for one in mask):
            return None
        out = mask[0]
        for one in mask[1:]:
            out = wnp.logical_or(out, one)
        return out


def _broadcast(a: Shape, b: Shape) -> Shape:
    """Broadcast two shapes, aligned at the end; None, an unknown size, stays None."""
    if len(a) < len(b):
        a, b = b, a
    out = list(a[: len(a) - len(b)])
    for one, other in zip(a[len(a) - len(b) :], b, strict=True):
        if one is None or other is None:
            out.append(None)
        elif one == 1 or one == other:
            out.append(other)
        elif other == 1:
            out.append(one)
        else:
            raise ArgumentError(f"The inputs have shapes that do not broadcast: (batch, {a}) and (batch, {b}).")
    return tuple(out)


def over_elements(mask: Any, x: Array) -> Any:
    """Broadcast a mask that lacks the last dimension of `x` to the elements of `x`."""
    return None if mask is None else wnp.broadcast_to(wnp.expand_dims(mask, -1), x.shape)
