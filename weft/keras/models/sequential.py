"""Models that are a list of layers."""

from __future__ import annotations

from typing import Any, TypeVar

import weft
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.context import get_keras_mask
from weft.keras.core.spec import standardize_shape
from weft.keras.graph.tensor import is_keras_tensor
from weft.keras.layers.core.input_layer import InputLayer
from weft.keras.layers.layer import Layer
from weft.keras.layers.signature import call_signature, is_shape
from weft.keras.models.functional import Functional
from weft.keras.models.model import Model

Self = TypeVar("Self", bound="Sequential")


class Sequential(Model):
    """A model that calls its layers one after the other.

    Args:
        layers: the layers; `Input(shape)` may be the first, and builds the model at once.
        trainable: whether optimizers may update its variables.
        name: its name.

    Example:
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
        >>> model.output_shape, model.count_params()
        ((None, 2), 23)
    """

    layers_come_first = True

    def __init__(self, layers: Any = None, trainable: bool = True, name: str | None = None) -> None:
        super().__init__(trainable=trainable, name=name)
        self._stack: list[Any] = []
        self.__dict__["_functional"] = None
        for layer in layers or ():
            self.add(layer, rebuild=False)
        if self._stack:
            self._rebuild()

    def _lock_state(self) -> None:
        """Do nothing: layers may be added at any time."""

    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Add a layer at the end.

        Args:
            layer: a layer, or the result of `Input`.
            rebuild: whether to build the model again, where its input shape is known.
        """
        if is_keras_tensor(layer) and layer._keras_history is not None:
            origin = layer._keras_history.operation
            layer = origin if isinstance(origin, InputLayer) else layer
        if not isinstance(layer, Layer):
            raise ArgumentError(
                "A Sequential model must consist of layers.", received=f"{layer!r} of type {type(layer).__name__}"
            )
        if not self._stack and layer._input_shape_argument is not None:
            self.add(InputLayer(shape=layer._input_shape_argument), rebuild=False)
        if any(other.name == layer.name and other is not layer for other in self._stack):
            raise ArgumentError(
                f"The model {self.name} has a layer with the name {layer.name} already.",
                fix="pass another `name=` to the layer",
            )
        if isinstance(layer, InputLayer) and self._stack:
            raise ArgumentError(
                f"Only the first layer of the model {self.name} may be an input.", received=f"{layer!r}"
            )
        self._stack.append(layer)
        self._rebuild() if rebuild else self._forget()

    def pop(self, rebuild: bool = True) -> Any:
        """Take the last layer away, and return it.

        Args:
            rebuild: whether to build the model again, where its input shape is known.
        """
        if not self.layers:
            raise ArgumentError(f"The model {self.name} has no layers.")
        layer = self._stack.pop()
        self._rebuild() if rebuild and self._stack else self._forget()
        return layer

    def _forget(self) -> None:
        self.built = False
        self.__dict__["_functional"] = None

    def _rebuild(self) -> None:
        self._forget()
        first = self._stack[0]
        if len(self._stack) > 1 and isinstance(first, InputLayer):
            self.build(first.batch_shape)
        elif len(self._stack) > 1 and isinstance(first, (Functional, Sequential)) and first.built:
            shape = getattr(first, "input_shape", None)
            if shape is not None and is_shape(shape):
                self.build(shape)

    @property
    def layers(self) -> list[Any]:
        """The layers, without that of the input."""
        stack = self.__dict__.get("_stack", [])
        return list(stack[1:] if stack and isinstance(stack[0], InputLayer) else stack)

    @layers.setter
    def layers(self, _: Any) -> None:
        raise AttributeError("`layers` cannot be set: it is the list of the model's layers. Use `add` and `pop`.")

    def build(self, input_shape: Any = None) -> None:
        """Build the layers for a shape of the input.

        Args:
            input_shape: the shape with the batch; None takes that of the first layer, where it is an input.
        """
        if not self._stack:
            raise ArgumentError(f"The model {self.name} has no layers.", fix="model.add(layer)")
        if input_shape is None and isinstance(self._stack[0], InputLayer):
            input_shape = self._stack[0].batch_shape
        if not is_shape(input_shape):
            return  # a list or dict of inputs: the layers are called as they are
        shape = standardize_shape(input_shape)
        if isinstance(self._stack[0], InputLayer):
            if self._stack[0].batch_shape != shape:
                raise ArgumentError(
                    f"The input of the model {self.name} must have the shape {self._stack[0].batch_shape}.",
                    received=f"input_shape={shape}",
                )
        else:
            first = InputLayer(batch_shape=shape, dtype=self._stack[0].compute_dtype)
            self._stack.insert(0, first)
        tensor = inputs = self._stack[0].output
        for layer in self._stack[1:]:
            try:
                tensor = layer(tensor)
            except NotImplementedError:
                # The layer has no shapes before it runs: the layers are called one after the other instead.
                return
        # In the dict itself: its layers are the model's own already.
        self.__dict__["_functional"] = Functional(inputs, tensor)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Call the layers one after the other.

        Args:
            inputs: the input of the first layer.
            training: what layers see.
            mask: the mask of the inputs.
        """
        functional = self.__dict__["_functional"]
        if functional is not None:
            return functional.call(inputs, training=training, mask=mask)
        outputs = inputs
        for layer in self.layers:
            options = {"mask": mask} if mask is not None and "mask" in call_signature(type(layer).call) else {}
            outputs = layer(outputs, **options)
            mask = weft.tree.map(get_keras_mask, outputs)
            mask = mask if weft.tree.leaves(mask) else None
        return outputs

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return None: the last layer sets the mask of the results."""
        return None

    def compute_output_spec(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Return symbolic outputs for symbolic inputs."""
        functional = self.__dict__["_functional"]
        if functional is not None:
            return functional.compute_output_spec(inputs, training=training, mask=mask)
        return super().compute_output_spec(inputs, training=training, mask=mask)

    @property
    def supports_masking(self) -> bool:
        """True: layers inside deal with masks."""
        return True

    @supports_masking.setter
    def supports_masking(self, value: bool) -> None:
        """Nothing to set."""

    @property
    def _converts_arguments(self) -> bool:  # type: ignore[override]
        # An input has a dtype of its own, which its graph converts to.
        return self.__dict__.get("_functional") is None and not (self._stack and isinstance(self._stack[0], InputLayer))

    def _of_graph(self, name: str) -> Any:
        functional = self.__dict__["_functional"]
        if functional is None:
            raise AttributeError(f"The model {self.name} has no {name} yet: build it, or begin with `Input`.")
        return getattr(functional, name)

    @property
    def graph(self) -> Any:
        """The graph of the layers, once the input shape is known."""
        return self._of_graph("graph")

    @property
    def inputs(self) -> Any:
        """The input tensor, in a list."""
        return self._of_graph("inputs")

    @property
    def outputs(self) -> Any:
        """The output tensor, in a list."""
        return self._of_graph("outputs")

    @property
    def input(self) -> Any:
        """The input tensor."""
        return self._of_graph("input")

    @property
    def output(self) -> Any:
        """The output tensor."""
        return self._of_graph("output")

    @property
    def input_shape(self) -> Any:
        """The shape of the input."""
        return self._of_graph("input_shape")

    @property
    def output_shape(self) -> Any:
        """The shape of the output."""
        return self._of_graph("output_shape")

    @property
    def input_names(self) -> list[str]:
        """The name of the input, in a list."""
        return self._of_graph("input_names")

    @property
    def output_names(self) -> list[str]:
        """The name of the last layer, in a list."""
        return self._of_graph("output_names")

    def get_config(self) -> dict[str, Any]:
        """Return the layers and the shape of the input as plain data."""
        config: dict[str, Any] = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": registry.serialize_keras_object(self._dtype_policy),
            "layers": [registry.serialize_keras_object(layer) for layer in self._stack],
        }
        if self.__dict__["_functional"] is not None:
            config["build_input_shape"] = self._stack[0].batch_shape
        return config

    @classmethod
    def from_config(cls: type[Self], config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        """Construct a model from a config of `get_config`.

        Args:
            config: plain data.
            custom_objects: further classes and functions by name.
        """
        if "layers" not in config:
            raise ArgumentError(
                "The config of a Sequential model must have the key 'layers'.", received=f"{sorted(config)}"
            )
        model = cls(name=config.get("name"))
        for described in config["layers"]:
            model.add(registry.deserialize_keras_object(described, custom_objects=custom_objects), rebuild=False)
        if model._stack:
            model._rebuild()
        shape = config.get("build_input_shape")
        if model.__dict__["_functional"] is None and shape and is_shape(shape):
            model.build(tuple(shape))
        if config.get("trainable") is False:
            model._trainable = False  # layers have flags of their own
        return model


registry.register("models", Sequential, module="keras")
