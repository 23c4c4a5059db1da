"""What a layer's `call` takes, read once for each class."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentTypeError
from weft.keras.core.spec import is_shape, standardize_shape
from weft.keras.graph.tensor import KerasTensor

Arguments = dict[str, Any]


class Signature:
    """The parameters of a function of a layer, without `self`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.signature = inspect.signature(function)
        parameters = list(self.signature.parameters.values())[1:]
        self.bound_signature = self.signature.replace(parameters=parameters)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.names = [parameter.name for parameter in parameters if parameter.kind in positional]
        self.all_names = {parameter.name for parameter in parameters}
        self.takes_any_keyword = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        self.takes_masks = any(name == "mask" or name.endswith("_mask") for name in self.all_names)
        training = self.signature.parameters.get("training")
        default = None if training is None else training.default
        self.training_default = None if default is inspect.Parameter.empty else default

    def __contains__(self, name: str) -> bool:
        return name in self.all_names

    def bind(self, layer: str, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
        """Bind the arguments of a call to their names."""
        if not kwargs and len(args) <= len(self.names):
            return dict(zip(self.names, args, strict=False))
        try:
            return dict(self.bound_signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            raise ArgumentTypeError(
                f"Layer {layer} was called with arguments that its `call` does not take: {error}.",
                received=f"call{self.bound_signature}",
            ) from None


# Weak keys: an entry does not keep its class alive.
_signatures: weakref.WeakKeyDictionary[Callable[..., Any], Signature] = weakref.WeakKeyDictionary()


def call_signature(function: Callable[..., Any]) -> Signature:
    """Return the cached signature of a method."""
    found = _signatures.get(function)
    if found is None:
        found = _signatures[function] = Signature(function)
    return found


def is_tensor(value: Any) -> bool:
    """Return whether a value is an array or a KerasTensor."""
    return isinstance(value, KerasTensor) or (hasattr(value, "shape") and hasattr(value, "dtype"))


def has_tensors(tree: Any) -> bool:
    """Return whether lists, tuples and dicts contain an array or a KerasTensor."""
    if isinstance(tree, (list, tuple)):
        return any(has_tensors(item) for item in tree)
    if isinstance(tree, dict):
        return any(has_tensors(item) for item in tree.values())
    return is_tensor(tree)


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """Map a function over the leaves of lists, tuples and dicts."""
    if isinstance(tree, dict):
        return {key: map_tensors(function, item) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, item) for item in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(function, item) for item in tree)
    return function(tree)


def tree_shapes(tree: Any) -> Any:
    """Return the shapes of the arrays in a tree, with None for unknown sizes and for other leaves."""
    return map_tensors(lambda leaf: standardize_shape(leaf.shape) if is_tensor(leaf) else None, tree)


def shape_arguments(method: Callable[..., Any], shapes: Arguments, layer: str) -> Arguments:
    """Select the shapes that a method takes: the first for an only parameter, else `<argument>_shape` by name."""
    signature = call_signature(method)
    if len(signature.names) == 1 and not signature.takes_any_keyword:
        return {signature.names[0]: next(iter(shapes.values()), None)}
    named = {f"{name}_shape": shape for name, shape in shapes.items()}
    if signature.takes_any_keyword:
        return named
    fitting = {name: shape for name, shape in named.items() if name in signature}
    missing = [
        name
        for name, parameter in signature.bound_signature.parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in fitting
    ]
    if missing and signature.names and missing == [signature.names[0]]:
        return {signature.names[0]: next(iter(shapes.values()), None), **fitting}
    if missing:
        raise ArgumentTypeError(
            f"`{method.__name__}` of layer {layer} takes {', '.join(missing)}, which no argument of `call` is called.",
            received=f"arguments of call {list(shapes)}",
            fix=f"name the parameters of `{method.__name__}` `<argument>_shape`, or take one `input_shape`",
        )
    return fitting


def map_shapes(function: Callable[[tuple[int | None, ...]], Any], tree: Any) -> Any:
    """Map a function over the shapes in lists, tuples and dicts; None stays None."""
    if tree is None:
        return None
    if is_shape(tree):
        return function(tuple(tree))
    if isinstance(tree, dict):
        return {key: map_shapes(function, item) for key, item in tree.items()}
    return type(tree)(map_shapes(function, item) for item in tree)
