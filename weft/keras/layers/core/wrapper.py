"""Layers around other layers."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.keras.layers.layer import Layer


class Wrapper(Layer):
    """A layer around another one; a base class.

    Args:
        layer: the layer inside.
        **kwargs: `name`, `dtype`, `trainable`.
    """

    def __init__(self, layer: Layer, **kwargs: Any) -> None:
        if not isinstance(layer, Layer):
            raise ArgumentError("The argument of a wrapper must be a layer.", received=repr(layer))
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, input_shape: Any = None) -> None:
        """Build the layer inside.

        Args:
            input_shape: the shape of its input.
        """
        if not self.layer.built:
            self.layer.build(input_shape)
