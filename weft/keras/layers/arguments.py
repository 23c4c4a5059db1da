"""Layers whose constructor's arguments are their configuration: converted and stored as attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import ArgumentError
from weft.keras import activations, constraints, initializers, regularizers
from weft.keras.layers.layer import Layer

# Arguments with one of these endings may be a name, a configuration or an object.
_KINDS = {
    "activation": activations,
    "initializer": initializers,
    "regularizer": regularizers,
    "constraint": constraints,
}


def _kind(name: str) -> Any:
    # The activity regularizer belongs to every layer and is stored by `Layer` itself.
    return None if name == "activity_regularizer" else _KINDS.get(name.rpartition("_")[2])


class ConfiguredLayer(Layer):
    """A layer that stores its arguments by `set_arguments`, and whose `get_config` has them."""

    # The names of what `set_arguments` stored.
    argument_names: tuple[str, ...] = ()

    if TYPE_CHECKING:
        # Arguments become attributes by their names.
        def __getattr__(self, name: str) -> Any: ...

    def set_arguments(self, **values: Any) -> None:
        """Store arguments as attributes of the same names; those of activations, initializers and so on as objects."""
        for name, value in values.items():
            kind = _kind(name)
            setattr(self, name, value if kind is None else kind.get(value))
        self.argument_names = (*self.argument_names, *values)


def constructor_arguments(names: dict[str, Any]) -> dict[str, Any]:
    """Select the constructor's named arguments, in order, from its `locals()` before further variables are assigned."""
    return {name: value for name, value in names.items() if name not in ("self", "kwargs", "__class__")}


def check_axes(axis: int | Sequence[int], shape: Sequence[Any], layer: Layer) -> None:
    """Raise an error if an axis is out of bounds for a shape."""
    for one in (axis,) if isinstance(axis, int) else axis:
        if not -len(shape) <= one < len(shape):
            raise ArgumentError(
                f"Axis {one} is out of bounds for an input of shape {tuple(shape)}. "
                f"Received: axis={axis} in {type(layer).__name__} {layer.name!r}"
            )


def fixed_size(shape: Sequence[Any], axis: int, layer: Layer) -> int:
    """Return the size of an input's axis; raise an error if it is unknown."""
    check_axes(axis, shape, layer)
    size = shape[axis]
    if size is None:
        raise ArgumentError(
            f"{type(layer).__name__} {layer.name!r} needs an input whose axis {axis} has a known size. "
            f"Received: shape {tuple(shape)}"
        )
    return int(size)
