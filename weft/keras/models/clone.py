"""Copies of models, with variables of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.context import type_text
from weft.keras.graph.tensor import KerasTensor, is_keras_tensor
from weft.keras.layers.core.input_layer import Input, InputLayer
from weft.keras.layers.layer import Layer
from weft.keras.metrics import Metric
from weft.keras.models.functional import Functional, is_alike
from weft.keras.models.sequential import Sequential
from weft.keras.optimizers import Optimizer


def clone_model(
    model: Any,
    input_tensors: Any = None,
    clone_function: Callable[[Any], Any] | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Any:
    """Copy a model: the same layers with new variables.

    Args:
        model: the model.
        input_tensors: KerasTensors to begin with, instead of new inputs.
        clone_function: `layer -> layer`, for each layer that is not an input; by default by its config.
        call_function: `(layer, *args, **kwargs) -> tensors`, how the new layers of a functional model are called.
        recursive: whether models inside are cloned likewise; by default `clone_function` gets them whole.

    Returns:
        The new model, of the same kind.

    Example:
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> copy = keras.models.clone_model(model)
        >>> copy.set_weights(model.get_weights())
    """
    copies: dict[int, Any] = kwargs.pop("cache", {})
    if kwargs:
        raise ArgumentError("clone_model does not take these arguments.", received=", ".join(kwargs))

    def clone(layer: Any) -> Any:
        if id(layer) not in copies:
            if recursive and isinstance(layer, (Functional, Sequential)):
                inner = None if isinstance(layer, Sequential) else call_function
                copies[id(layer)] = clone_model(
                    layer, clone_function=clone_function, call_function=inner, recursive=True, cache=copies
                )
            else:
                copies[id(layer)] = (clone_function or _clone_layer)(layer)
        return copies[id(layer)]

    if isinstance(model, Sequential):
        if call_function is not None:
            raise ArgumentError("`call_function` must be None for a Sequential model; only functional models use it.")
        return _clone_sequential(model, clone, input_tensors)
    if isinstance(model, Functional):
        return _clone_functional(model, clone, call_function, input_tensors)
    if clone_function or call_function or input_tensors is not None:
        raise ArgumentError(
            "`clone_function`, `call_function` and `input_tensors` need a Sequential or functional model.",
            received=f"a model of class {type(model).__name__}",
        )
    return _clone_layer(model)


def _clone_layer(layer: Any) -> Any:
    with registry.unsafe():  # the config was written just now, by this process
        return type(layer).from_config(layer.get_config())


def _clone_sequential(model: Sequential, clone: Callable[[Any], Any], input_tensors: Any) -> Sequential:
    layers = [clone(layer) for layer in model.layers]
    first = model._stack[0] if model._stack and isinstance(model._stack[0], InputLayer) else None
    if input_tensors is not None:
        tensors = weft.tree.leaves(input_tensors)
        if len(tensors) != 1 or not is_keras_tensor(tensors[0]):
            raise ArgumentError(
                "`input_tensors` of a Sequential model must be one KerasTensor.", received=f"{tensors!r}"
            )
        layers.insert(0, _input_for(tensors[0], first.name if first else None))
    elif first is not None:
        layers.insert(0, Input(batch_shape=first.batch_shape, dtype=first.dtype, name=first.name))
    return _compile_like(model, Sequential(layers, name=model.name, trainable=model.trainable))


def _input_for(tensor: KerasTensor, name: str | None) -> KerasTensor:
    """Return the tensor itself if an input layer returned it, else a new input of its type."""
    history = tensor._keras_history
    if history is not None and isinstance(history.operation, InputLayer):
        return tensor
    return Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)


def _clone_functional(
    model: Functional, clone: Callable[[Any], Any], call_function: Callable[..., Any] | None, input_tensors: Any
) -> Any:
    if input_tensors is None:
        inputs = [_copy_input(tensor) for tensor in model.inputs]
    else:
        inputs = weft.tree.leaves(input_tensors)
        if len(inputs) != len(model.inputs) or (len(inputs) > 1 and not is_alike(model.input, input_tensors)):
            raise ArgumentError(
                f"`input_tensors` must have the structure of the model's inputs: {type_text(model.input)}.",
                received=type_text(input_tensors),
            )
        inputs = [_input_for(tensor, None) for tensor in inputs]

    def call(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        copy = clone(operation) if isinstance(operation, Layer) else _clone_layer(operation)
        return copy(*args, **kwargs) if call_function is None else call_function(copy, *args, **kwargs)

    outputs = model.graph.run(inputs, call)
    structured = weft.tree.unflatten(weft.tree.structure(model.input), inputs)
    return _compile_like(model, Functional(structured, outputs, name=model.name, trainable=model.trainable))


def _compile_like(model: Any, copy: Any) -> Any:
    """Compile a copy as the model is, with an optimizer and metrics of its own; returns the copy."""
    if model.compiled:

        def fresh(value: Any) -> Any:
            return type(value).from_config(value.get_config()) if isinstance(value, Metric | Optimizer) else value

        is_leaf = lambda value: value is None
        copy.compile(**{k: weft.tree.map(fresh, v, is_leaf=is_leaf) for k, v in model._training.arguments.items()})
    return copy


def _copy_input(tensor: KerasTensor) -> KerasTensor:
    history = tensor._keras_history
    layer = None if history is None else history.operation
    optional = getattr(layer, "optional", False)
    return Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name, optional=optional)


def model_from_json(json_string: str, custom_objects: dict[str, Any] | None = None) -> Any:
    """Construct a model from the JSON of `model.to_json()`.

    Args:
        json_string: the JSON.
        custom_objects: further classes and functions by name.

    Example:
        >>> from weft import keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> keras.models.model_from_json(model.to_json()).output_shape
        (None, 3)
    """
    return registry.deserialize_keras_object(json.loads(json_string), custom_objects=custom_objects)
