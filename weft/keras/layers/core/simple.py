"""Layers around functions."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import weft
import weft.numpy as wnp
from weft.keras.core import registry
from weft.keras.layers.core.activation import Pointwise
from weft.keras.layers.layer import Layer
from weft.keras.layers.signature import map_shapes


class Identity(Pointwise):
    """The inputs as they are.

    Example:
        >>> from weft import keras
        >>> keras.layers.Identity()(keras.ops.array([1.0, 2.0]))
        Array([1., 2.], dtype=float32)
    """

    def call(self, inputs: Any) -> Any:
        """Return the inputs unchanged."""
        return inputs

    def compute_output_spec(self, inputs: Any) -> Any:
        """Return KerasTensors like the inputs."""
        return weft.tree.map(lambda tensor: type(tensor)(tensor.shape, tensor.dtype), inputs)


class Masking(Pointwise):
    """Mask time steps whose entries are all `mask_value`; layers that know masks leave them out.

    Args:
        mask_value: the value.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, mask_value: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mask_value = mask_value

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return which time steps have an entry other than `mask_value`."""
        return wnp.any(wnp.not_equal(inputs, self.mask_value), axis=-1)

    def call(self, inputs: Any) -> Any:
        """Replace masked time steps with zeros."""
        valid = wnp.any(wnp.not_equal(inputs, self.mask_value), axis=-1, keepdims=True)
        return inputs * valid.astype(inputs.dtype)


class Lambda(Layer):
    """A function as a layer. It has no variables of its own.

    Args:
        function: the function; its first argument is the input. It may take `mask` and `training`.
        output_shape: the shape of the result without the batch, or a function of the input shape; found by tracing
            where None.
        mask: the mask of the result, or a function `(inputs, mask) -> mask`.
        arguments: further arguments of the function, by name.
        **kwargs: `name`, `dtype`.

    Example:
        >>> from weft import keras
        >>> keras.layers.Lambda(lambda x: x * 2)(keras.ops.array([1.0, 2.0]))
        Array([2., 4.], dtype=float32)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: Any = None,
        mask: Any = None,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.function = function
        self.mask = mask
        self.arguments = dict(arguments or {})
        self._output_shape = output_shape
        self.supports_masking = mask is not None
        self._build_at_init()
        try:
            self._accepted = set(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # a function of C
            self._accepted = set()

    def call(self, inputs: Any, mask: Any = None, training: Any = None) -> Any:
        """Apply the function to the inputs."""
        options = {name: value for name, value in (("mask", mask), ("training", training)) if name in self._accepted}
        return self.function(inputs, **{**options, **self.arguments})

    def compute_output_spec(self, inputs: Any, **kwargs: Any) -> Any:
        """Return the symbolic output for symbolic inputs."""
        if self._output_shape is None:
            return super().compute_output_spec(inputs, **kwargs)
        shapes = weft.tree.map(lambda tensor: tensor.shape, inputs)
        make = type(weft.tree.leaves(inputs)[0])
        if callable(self._output_shape):
            return map_shapes(lambda shape: make(shape, self.compute_dtype), self._output_shape(shapes))
        batch = weft.tree.leaves(inputs)[0].shape[0]
        return map_shapes(lambda shape: make((batch, *shape), self.compute_dtype), self._output_shape)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask from the constructor's `mask`, which may be a function."""
        return self.mask(inputs, previous_mask) if callable(self.mask) else self.mask

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments. Lambdas are stored as code, which only `safe_mode=False` reads."""
        config = {**super().get_config(), "output_shape": registry.serialize_keras_object(self._output_shape)}
        for name, value in (("function", self.function), ("output_shape", self._output_shape), ("mask", self.mask)):
            if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
                config[name] = {"class_name": "__lambda__", "config": registry.dump_function(value)}
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None, safe_mode: bool | None = None
    ) -> Any:
        """Construct a layer from a config of `get_config`.

        Args:
            config: plain data.
            custom_objects: functions by name.
            safe_mode: False accepts lambdas, whose code is in the data: only for data whose author you trust.
        """
        found = {
            name: registry.deserialize_keras_object(value, custom_objects, safe_mode) for name, value in config.items()
        }
        return cls(**found)
