"""Operations: what computes results from tensors, and records itself where those have no values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.names import auto_name, check_name
from weft.keras.graph.node import Node
from weft.keras.graph.shapes import compute_output_spec
from weft.keras.graph.tensor import any_symbolic as any_symbolic

Self = TypeVar("Self", bound="Operation")


class Operation:
    """A function with a name that functional models may contain. `Layer` is one.

    Subclasses define `call(*args, **kwargs)`. Called with arrays, the operation computes; called with KerasTensors, it
    returns KerasTensors and records a node.

    Args:
        name: its name; the snake case of its class, and a count, where None.
    """

    _init_arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        # What it was constructed with is what its config has.
        created = object.__new__(cls)
        object.__setattr__(created, "_init_arguments", (args, kwargs))
        return created

    def __init__(self, name: str | None = None) -> None:
        self.name = check_name(auto_name(type(self).__name__) if name is None else name)
        self._inbound_nodes: list[Node] = []
        self._outbound_nodes: list[Node] = []

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operation; subclasses must define it."""
        raise NotImplementedError(f"{type(self).__name__} has no method `call`.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any_symbolic(args, kwargs):
            return self.symbolic_call(*args, **kwargs)
        return self.call(*args, **kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call, and return its results as KerasTensors."""
        return record(self, args, kwargs, self.compute_output_spec(*args, **kwargs))

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return symbolic outputs, without a history, for symbolic inputs."""
        return compute_output_spec(self.call, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        config = self._constructor_config()
        parameters = inspect.signature(type(self).__init__).parameters.values()
        named = any(p.name == "name" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        return {**config, "name": self.name} if named else config

    def _constructor_config(self) -> dict[str, Any]:
        """Return the arguments that this object was constructed with, including `**kwargs`, as plain data."""
        return {name: registry.serialize_keras_object(value) for name, value in self._constructor_arguments().items()}

    def _constructor_arguments(self) -> dict[str, Any]:
        args, kwargs = self._init_arguments
        signature = inspect.signature(type(self).__init__)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        found: dict[str, Any] = {}
        for i, (name, value) in enumerate(bound.arguments.items()):
            kind = signature.parameters[name].kind
            if i == 0:  # self
                continue
            if kind is inspect.Parameter.VAR_POSITIONAL:
                if value:
                    raise ArgumentError(
                        f"{type(self).__name__} was constructed with positional arguments that have no names, so it "
                        "needs a method `get_config` of its own.",
                        received=f"*{name}={value!r}",
                    )
            elif kind is inspect.Parameter.VAR_KEYWORD:
                found.update(value)
            else:
                found[name] = value
        return found

    @classmethod
    def from_config(cls: type[Self], config: dict[str, Any]) -> Self:
        """Construct an operation from a config of `get_config`.

        Args:
            config: arguments of the constructor; those that are objects may be described as by
                `serialize_keras_object`.
        """
        return cls(**{name: _from_data(value) for name, value in config.items()})

    # --------------------------------------------------------------------------------------------- inputs and outputs

    @property
    def input(self) -> Any:
        """The tensor of its first call, or a list of them."""
        return _single(self._first_node("input").input_tensors)

    @property
    def output(self) -> Any:
        """The result of its first call, or a list of the tensors in it."""
        return _single(self._first_node("output").output_tensors)

    def _first_node(self, what: str) -> Node:
        if not self._inbound_nodes:
            raise ArgumentError(f"{self.name} must be called with KerasTensors before its {what} is read.")
        # A later model that shares the operation appends nodes: the first one is that of the graph it was made in.
        return self._inbound_nodes[0]

    def __repr__(self) -> str:
        return f"<Operation name={self.name}>"


def _single(tensors: list[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tensors


def _from_data(value: Any) -> Any:
    """Deserialize a constructor argument, with the objects that are nested in it."""
    if isinstance(value, dict):
        if "class_name" in value and "config" in value:
            return registry.deserialize_keras_object(value)
        return {key: _from_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_from_data(item) for item in value)
    return value


def output_spec(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes the results of an operation as KerasTensors where tracing cannot, from the same arguments;
    it returns None where tracing can."""
    return getattr(function, "output_spec", None) or (lambda *args, **kwargs: None)


def record(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    """Record a call of an operation; returns `outputs`, which have it as their history now."""
    Node(operation, args, kwargs, outputs)
    return outputs


class FunctionOperation(Operation):
    """A function of `weft.keras.ops` (or one of the user's) in a graph. Its arguments are those of its nodes.

    Args:
        function: the function, or the name of one of `weft.keras.ops`.
        name: the name of the operation.
        options: arguments, by name, that all calls have. Those of calls take the positions of the others: so Keras
            writes operations, with an axis in the operation and the tensors in its calls.
    """

    def __init__(
        self, function: Callable[..., Any] | str, name: str | None = None, options: dict[str, Any] | None = None
    ) -> None:
        self.function = registry.find("ops", function) if isinstance(function, str) else function
        self.options = dict(options or {})
        super().__init__(auto_name(self.function.__name__) if name is None else name)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._apply(self.function, args, kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return symbolic outputs, without a history, for symbolic inputs."""
        known = self._apply(output_spec(self.function), args, kwargs)
        return super().compute_output_spec(*args, **kwargs) if known is None else known

    def _apply(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.options:
            return function(*args, **kwargs)
        waiting, named = list(args), {**self.options, **kwargs}
        positional: list[Any] = []
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                positional, waiting = positional + waiting, []
            elif not waiting or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                break
            else:
                positional.append(named.pop(parameter.name) if parameter.name in named else waiting.pop(0))
        return function(*positional, *waiting, **named)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        config = {"function": registry.serialize_keras_object(self.function), "name": self.name}
        return {**config, "options": registry.serialize_keras_object(self.options)} if self.options else config

    @classmethod
    def from_keras(cls, function: Callable[..., Any], config: dict[str, Any]) -> FunctionOperation:
        """Construct an operation from the config of Keras' class for the same function.

        Args:
            function: the function of the operation's class.
            config: its name, and arguments that all calls have.
        """
        accepted = inspect.signature(function).parameters
        options = {
            key: value for key, value in config.items() if key != "name" and (key in accepted or value is not None)
        }
        return cls(function, config.get("name"), options)


def symbolic_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Record a call of a function whose arguments have KerasTensors in them.

    Args:
        function: a function of arrays with a `__name__`.
        *args: its arguments.
        **kwargs: likewise.

    Returns:
        Its results as KerasTensors.

    Example:
        >>> from weft import keras
        >>> import weft.numpy as wnp
        >>> from weft.keras.graph.operation import symbolic_call
        >>> symbolic_call(wnp.sin, keras.KerasTensor((None, 2))).shape
        (None, 2)
    """
    return FunctionOperation(function).symbolic_call(*args, **kwargs)


registry.register("ops", FunctionOperation, module="weft.keras.ops")
