"""Models from graphs of tensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, FileFormatError, ShapeMismatchError
from weft.keras.core import registry
from weft.keras.core.context import get_keras_mask, set_keras_mask, type_text
from weft.keras.core.spec import InputSpec
from weft.keras.graph.graph import Graph, find_node
from weft.keras.graph.node import Node
from weft.keras.graph.operation import Operation
from weft.keras.graph.tensor import KerasTensor, any_symbolic, is_keras_tensor
from weft.keras.layers.core.input_layer import InputLayer
from weft.keras.layers.layer import Layer
from weft.keras.models.model import Model


class Functional(Model):
    """A model that runs the graph between inputs and outputs. `Model(inputs, outputs)` is one.

    Args:
        inputs: a KerasTensor, or a list or dict of them. One that a layer computed is a new input.
        outputs: likewise; they depend on nothing but `inputs`.
        name: its name.
        trainable: whether optimizers may update its variables.
    """

    graph: Graph

    layers_come_first = True

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any) -> None:
        # The flag is the model's own: its layers keep theirs, so that frozen layers of a saved model stay frozen.
        trainable = kwargs.pop("trainable", None)
        super(Model, self).__init__(name=name, trainable=True if trainable is None else trainable, **kwargs)
        if isinstance(inputs, dict):
            for key, tensor in inputs.items():
                if is_keras_tensor(tensor) and key != tensor.name:
                    warnings.warn(
                        f"The input {tensor.name!r} has the key {key!r}; `Input(..., name={key!r})` makes them agree.",
                        stacklevel=3,
                    )
        inputs, outputs = _with_own_inputs(inputs, outputs)
        object.__setattr__(self, "graph", Graph(inputs, outputs))
        for layer in self.layers:
            self._own("graph", layer)
        self.output_names = [_source(tensor) for tensor in self.graph.outputs]
        self.input_names = [_source(tensor) for tensor in self.graph.inputs]
        self.supports_masking = True
        self.built = True

    # The graph has its own dtypes, so arguments are converted input by input.
    _converts_arguments = False

    def _lock_state(self) -> None:
        """Do nothing: layers outside of the graph may still be added."""

    # ---------------------------------------------------------------------------------------------------------- graph

    @property
    def layers(self) -> list[Any]:
        """The layers of the graph, those that are farthest from the outputs first."""
        return [operation for operation in self.graph.operations if isinstance(operation, Layer)]

    @layers.setter
    def layers(self, _: Any) -> None:
        raise AttributeError(
            "`layers` cannot be set: it is the list of the model's layers. Use another name for the attribute."
        )

    @property
    def operations(self) -> list[Any]:
        """The layers and operations of the graph."""
        return list(self.graph.operations)

    @property
    def inputs(self) -> list[KerasTensor]:
        """The input tensors, in order."""
        return self.graph.inputs

    @property
    def outputs(self) -> list[KerasTensor]:
        """The output tensors, in order."""
        return self.graph.outputs

    @property
    def input(self) -> Any:
        """The inputs, as the model was constructed with."""
        return self.graph.input_structure

    @property
    def output(self) -> Any:
        """The outputs, as the model was constructed with."""
        return self.graph.output_structure

    @property
    def input_shape(self) -> Any:
        """The shapes of the inputs, in a list where there are several."""
        return _without_single([tensor.shape for tensor in self.graph.inputs])

    @property
    def output_shape(self) -> Any:
        """The shapes of the outputs, in a list where there are several."""
        return _without_single([tensor.shape for tensor in self.graph.outputs])

    @property
    def input_spec(self) -> Any:
        """What the inputs must look like."""
        manual = self.__dict__.get("_manual_input_spec")
        if manual is not None or "graph" not in self.__dict__:
            return manual
        structure = self.graph.input_structure
        if isinstance(structure, dict):
            if not all(is_keras_tensor(tensor) for tensor in structure.values()):
                return None
            return [_spec(structure[name], name) for name in sorted(structure)]
        return [_spec(tensor, _source(tensor)) for tensor in self.graph.inputs]

    @input_spec.setter
    def input_spec(self, value: Any) -> None:
        self.__dict__["_manual_input_spec"] = value

    def build(self, input_shape: Any = None) -> None:
        """Mark the model as built: a functional model is built by its constructor."""
        self.built = True

    # ------------------------------------------------------------------------------------------------------------ call

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Run the graph.

        Args:
            inputs: values for the inputs: in the same list or dict, or in a dict by name.
            training: what layers see that were not called with a value of their own.
            mask: masks of the inputs.
        """
        values = self._input_values(inputs)
        if mask is not None:
            masks = weft.tree.leaves(mask, is_leaf=lambda leaf: leaf is None)
            for value, found in zip(values, masks, strict=False):
                if found is not None and value is not None:
                    set_keras_mask(value, found)
        return _unpack_single(self.graph.run(values))

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return None: the graph's last layers set the masks of the results."""
        return None

    def compute_output_spec(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Return symbolic outputs for symbolic inputs."""
        tensors = weft.tree.leaves(inputs)
        if [tensor.shape for tensor in tensors] == [tensor.shape for tensor in self.graph.inputs]:
            return weft.tree.map(lambda tensor: KerasTensor(tensor.shape, tensor.dtype), self.graph.output_structure)
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def _input_values(self, inputs: Any) -> list[Any]:
        """Convert the inputs to the dtypes and ranks of the model's inputs, in order."""
        structure = self.graph.input_structure
        if isinstance(inputs, dict) and not isinstance(structure, dict):
            names = [_source(tensor) for tensor in self.graph.inputs]
            missing = [name for name in names if name not in inputs]
            if missing:
                raise ArgumentError(
                    f"The inputs of the model {self.name} must have the keys {', '.join(names)}.",
                    received=f"keys {sorted(inputs)}",
                )
            inputs = [inputs[name] for name in names]
        elif isinstance(structure, dict) and isinstance(inputs, dict):
            missing = [name for name in structure if name not in inputs]
            if missing:
                raise ArgumentError(
                    f"The inputs of the model {self.name} must have the keys {', '.join(structure)}.",
                    received=f"keys {sorted(inputs)}",
                )
            inputs = {name: inputs[name] for name in structure}
        if len(self.graph.inputs) > 1 and not is_alike(structure, inputs):
            # Values without keys have an order only where the keys are sorted as they were written.
            if _has_one_order(structure) and isinstance(inputs, list | tuple) and len(inputs) == len(structure):
                warnings.warn(
                    f"The model {self.name} takes the dict {type_text(structure)}; it got {type_text(inputs)}.",
                    stacklevel=2,
                )
                return self._input_values(dict(zip(structure, inputs, strict=True)))
            raise ArgumentError(
                f"The inputs of the model {self.name} must have the structure that it was made with.",
                received=type_text(inputs),
                fix=f"pass {type_text(structure)}",
            )
        values = weft.tree.leaves(inputs, is_leaf=lambda leaf: leaf is None)
        if len(values) != len(self.graph.inputs):
            raise ArgumentError(
                f"The model {self.name} must be called with {len(self.graph.inputs)} inputs: {type_text(structure)}.",
                received=type_text(inputs),
            )
        return [_as_input(value, tensor) for value, tensor in zip(values, self.graph.inputs, strict=True)]

    # ---------------------------------------------------------------------------------------------------------- config

    def get_config(self) -> dict[str, Any]:
        """Return the layers, their calls, and which tensors are inputs and outputs, as plain data."""
        if not takes_graph(type(self)):
            return Model.get_config(self)
        indices = {id(operation): _own_indices(operation, self.graph) for operation in self.graph.operations}

        def triple(tensor: KerasTensor) -> list[Any]:
            history = tensor._keras_history
            if history is None:
                raise ArgumentError("A tensor without a layer cannot be written down; begin with `Input`.")
            # A model inside has one call more than was recorded: that which its own construction was.
            shift = int(isinstance(history.operation, Functional))
            index = indices[id(history.operation)][history.node_index]
            return [history.operation.name, index + shift, history.tensor_index]

        layers = []
        for operation in self.graph.operations:
            describe = registry.serialize_keras_object(operation)
            describe["name"] = operation.name
            describe["inbound_nodes"] = [
                _describe_call(node, indices)
                for i, node in enumerate(operation._inbound_nodes)
                if i in indices[id(operation)] and not node.is_input
            ]
            layers.append(describe)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "layers": layers,
            "input_layers": weft.tree.map(triple, self.graph.input_structure),
            "output_layers": weft.tree.map(triple, self.graph.output_structure),
        }

    def get_build_config(self) -> dict[str, Any] | None:
        """Return None: the inputs already have shapes."""
        return None


_OWN_KEYS = ("layers", "input_layers", "output_layers", "name", "trainable")


def describes_graph(config: dict[str, Any]) -> bool:
    """Return whether a config describes a functional model: layers, their calls, inputs and outputs."""
    return all(key in config for key in ("layers", "input_layers", "output_layers"))


def from_graph_config(cls: Any, config: dict[str, Any]) -> Any:
    """Construct a model of a class whose constructor takes inputs and outputs, from the config of a graph."""
    others = {key: value for key, value in config.items() if key not in _OWN_KEYS}
    inputs, outputs = _rebuilt(config)
    return cls(inputs, outputs, name=config.get("name"), trainable=config.get("trainable"), **others)


def _source(tensor: KerasTensor) -> str:
    """Return the name of the layer that computes a tensor."""
    history = tensor._keras_history
    return tensor.name if history is None else history.operation.name


def is_alike(structure: Any, values: Any) -> bool:
    """Return whether values have dicts, with the same keys, where a structure has; lists may be tuples of any length.

    >>> is_alike({"a": 1, "b": [2, 3]}, {"a": 4, "b": (5, 6)}), is_alike({"a": 1, "b": 2}, [3, 4])
    (True, False)
    """
    if isinstance(structure, dict):
        return isinstance(values, dict) and all(k in values and is_alike(v, values[k]) for k, v in structure.items())
    if isinstance(structure, list | tuple) and isinstance(values, list | tuple):
        return all(is_alike(one, value) for one, value in zip(structure, values, strict=False))
    return not (isinstance(structure, list | tuple) and any(isinstance(one, dict) for one in structure))


def _has_one_order(structure: Any) -> bool:
    """Return whether a structure is a flat dict whose keys were inserted in sorted order."""
    flat = isinstance(structure, dict) and all(is_keras_tensor(tensor) for tensor in structure.values())
    return flat and list(structure) == sorted(structure)


def _unpack_single(outputs: Any) -> Any:
    """Return the only element of a list or tuple: called on arrays, a model with `outputs=[x]` returns an array.

    Called on KerasTensors it returns the list, as in Keras.
    """
    return outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs


def _without_single(shapes: list[Any]) -> Any:
    return shapes[0] if len(shapes) == 1 else shapes


def _spec(tensor: KerasTensor, name: str) -> InputSpec:
    history = tensor._keras_history
    optional = history is not None and getattr(history.operation, "optional", False)
    shape = (None, *tensor.shape[1:]) if tensor.shape else ()
    return InputSpec(shape=shape, allow_last_axis_squeeze=True, name=name, optional=optional)


def _as_input(value: Any, tensor: KerasTensor) -> Any:
    """Convert a value for an input; a last axis of size 1 is added or removed if the input needs it."""
    if value is None or is_keras_tensor(value):
        return value
    mask = get_keras_mask(value)
    converted = value if isinstance(value, weft.Array) and str(value.dtype) == tensor.dtype else None
    if converted is None:
        converted = wnp.asarray(value, dtype=None if tensor.dtype == "string" else tensor.dtype)
    if converted.ndim == tensor.ndim + 1 and converted.shape[-1] == 1:
        converted = wnp.squeeze(converted, -1)
    elif converted.ndim == tensor.ndim - 1 and tensor.shape[-1] == 1:
        converted = wnp.expand_dims(converted, -1)
    elif converted.ndim != tensor.ndim:
        raise ShapeMismatchError(
            f"The input {tensor.name} must have the shape {tensor.shape}.", received=type_text(converted)
        )
    if mask is not None and converted is not value:
        set_keras_mask(converted, mask)
    return converted


def _with_own_inputs(inputs: Any, outputs: Any) -> tuple[Any, Any]:
    """Return inputs and outputs of a graph that begins with input layers. If a layer computed an input, the calls
    between it and the outputs are recorded once more, from a new input.
    """

    def is_own(tensor: Any) -> bool:
        node = find_node(tensor) if is_keras_tensor(tensor) else None
        return node is not None and isinstance(node.operation, InputLayer)

    graph = Graph(inputs, outputs)
    if all(is_own(tensor) for tensor in graph.inputs):
        return inputs, outputs
    replaced: dict[int, KerasTensor] = {}
    for tensor in graph.inputs:
        if is_own(tensor):
            replaced[id(tensor)] = tensor
        else:
            copy = KerasTensor(tensor.shape, tensor.dtype, name=tensor.name)
            replaced[id(tensor)] = InputLayer(input_tensor=copy, name=tensor.name).output
    for node in graph.nodes:
        if node.is_input or all(id(tensor) in replaced for tensor in node.output_tensors):
            continue
        args, kwargs = node.fill(replaced)
        copies = weft.tree.map(lambda tensor: KerasTensor(tensor.shape, tensor.dtype), node.outputs)
        Node(node.operation, args, kwargs, copies)
        for old, new in zip(node.output_tensors, weft.tree.leaves(copies), strict=True):
            replaced[id(old)] = new
    new = lambda tensor: replaced[id(tensor)]
    return weft.tree.map(new, inputs), weft.tree.map(new, outputs)


def takes_graph(cls: type) -> bool:
    """Return whether the constructor of a class takes inputs and outputs."""
    constructor: Callable[..., Any] = cls.__init__  # type: ignore[misc]
    parameters = inspect.signature(constructor).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    anything = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    return anything or list(parameters)[1:3] == ["inputs", "outputs"]


# ------------------------------------------------------------------------------------------------- calls as plain data


def _own_indices(operation: Operation, graph: Graph) -> dict[int, int]:
    """Map the indices of an operation's calls in a graph to indices among the calls of the graph only."""
    inside = [i for i, node in enumerate(operation._inbound_nodes) if node in graph]
    return {index: i for i, index in enumerate(inside)}


def _describe_call(node: Node, indices: dict[int, dict[int, int]]) -> dict[str, Any]:
    def describe(leaf: Any) -> Any:
        if not is_keras_tensor(leaf):
            return leaf
        history = leaf._keras_history
        index = indices[id(history.operation)][history.node_index]
        config = {**leaf.serialized_keras_tensor(), "keras_history": [history.operation.name, index, history[2]]}
        return {"class_name": "__keras_tensor__", "config": config}

    args, kwargs = weft.tree.map(describe, (node.args, node.kwargs))
    call = {"args": registry.serialize_keras_object(list(args)), "kwargs": registry.serialize_keras_object(kwargs)}
    # Keras writes `training` into every call; ours was written by the user, and holds.
    return {**call, "explicit_training": True} if "training" in kwargs else call


class _Layers(dict[str, Any]):
    """The layers of a config by name, and where the nodes of this graph begin among those of each layer."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, int] = {}

    def add(self, name: str, layer: Any) -> None:
        """Enter a layer; one that another graph of the file shares has nodes already."""
        self[name] = layer
        self._first[name] = 0 if isinstance(layer, InputLayer) else len(layer._inbound_nodes)

    def result(self, name: str, node: int, position: int) -> Any:
        """Return the tensor that a call of a layer returned."""
        if node < 0 or position < 0:
            raise FileFormatError("The calls of layers must be counted from 0.", received=f"{name}: {node}, {position}")
        return self[name]._inbound_nodes[self._first[name] + node].output_tensors[position]


def _rebuilt(config: dict[str, Any]) -> tuple[Any, Any]:
    """Construct the layers of a config and call them; the inputs and outputs."""
    layers = _Layers()
    waiting: list[tuple[str, dict[str, Any]]] = []
    for describe in config["layers"]:
        layer = registry.deserialize_keras_object(describe)
        if not isinstance(layer, Operation):
            raise FileFormatError(
                "A stored model must consist of layers and operations.", received=type(layer).__name__
            )
        layers.add(describe["name"], layer)
        waiting.extend((describe["name"], call) for call in describe.get("inbound_nodes", ()))
    done = {name: 1 if isinstance(layer, InputLayer) else 0 for name, layer in layers.items()}
    while waiting:
        later: list[tuple[str, dict[str, Any]]] = []
        for name, call in waiting:
            # Calls of one layer are in order, so one that waits makes the next ones wait too.
            blocked = any(other == name for other, _ in later) or not _is_ready(call, done)
            if blocked:
                later.append((name, call))
                continue
            args, kwargs = _call_arguments(call, layers)
            if getattr(getattr(layers[name], "function", None), "__name__", "") == "get_item":
                # Data have no tuples, but a list means something else in an index.
                args = [tuple(arg) if isinstance(arg, list) else arg for arg in args]
            if not any_symbolic(args, kwargs):
                # With arrays only the operation would compute, with arguments of the file.
                raise FileFormatError("A call in a model must have a tensor of the model.", received=f"of {name}")
            layers[name](*args, **kwargs)
            done[name] += 1
        if len(later) == len(waiting):
            raise FileFormatError(
                "The calls of layers cannot be put in order.", received=", ".join(name for name, _ in later)
            )
        waiting = later
    return _from_triples(config["input_layers"], layers), _from_triples(config["output_layers"], layers)


def _histories(tree: Any) -> list[list[Any]]:
    """Return the histories of the tensors in the serialized arguments of a call."""
    if isinstance(tree, dict):
        if tree.get("class_name") == "__keras_tensor__":
            return [tree["config"]["keras_history"]]
        return [history for item in tree.values() for history in _histories(item)]
    if isinstance(tree, (list, tuple)):
        return [history for item in tree for history in _histories(item)]
    return []


def _is_ready(call: dict[str, Any], done: dict[str, int]) -> bool:
    return all(done.get(name, 0) > index for name, index, _ in _histories([call["args"], call["kwargs"]]))


def _call_arguments(call: dict[str, Any], layers: _Layers) -> tuple[list[Any], dict[str, Any]]:
    def fill_arguments(tree: Any) -> Any:
        if isinstance(tree, dict) and tree.get("class_name") == "__keras_tensor__":
            name, index, position = tree["config"]["keras_history"]
            return layers.result(name, index, position)
        if isinstance(tree, dict) and "class_name" not in tree:
            return {key: fill_arguments(item) for key, item in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(fill_arguments(item) for item in tree)
        return registry.deserialize_keras_object(tree)

    kwargs = fill_arguments(call["kwargs"])
    if not call.get("explicit_training"):
        kwargs.pop("training", None)
    return fill_arguments(call["args"]), kwargs


def _from_triples(tree: Any, layers: _Layers) -> Any:
    if isinstance(tree, dict):
        return {key: _from_triples(item, layers) for key, item in tree.items()}
    if len(tree) == 3 and isinstance(tree[0], str):
        name, index, position = tree
        index -= int(isinstance(layers[name], Functional))
        return layers.result(name, index, position)
    return type(tree)(_from_triples(item, layers) for item in tree)


registry.register("models", Functional, module="keras.src.models.functional")
