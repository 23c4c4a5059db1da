"""Layers: what models are made of. Each folder lists its own in `__all__`, and they are all here."""

import importlib as _importlib
import inspect as _inspect
from typing import Any as _Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.core.spec import InputSpec
from weft.keras.layers.layer import Layer

_FOLDERS = (
    "core",
    "convolution",
    "pooling",
    "normalization",
    "regularization",
    "merging",
    "reshaping",
    "attention",
    "recurrent",
    "preprocessing",
)


def _gather() -> None:
    """Enter the names of the folders here, and their classes in the table of layers."""
    for folder in _FOLDERS:
        module = _importlib.import_module(f"weft.keras.layers.{folder}")
        for name in module.__all__:
            found = getattr(module, name)
            globals()[name] = found
            if _inspect.isclass(found):
                _registry.register("layers", found)


_gather()


def get(identifier: _Any) -> _Any:
    """Return the layer for an identifier.

    Args:
        identifier: None, a layer, a class, the name of a class, or a config of `serialize`.
    """
    return _registry.get("layers", identifier)


def serialize(layer: Layer) -> dict[str, _Any]:
    """Convert a layer to plain data.

    Args:
        layer: the layer.

    Example:
        >>> from weft import keras
        >>> keras.layers.serialize(keras.layers.Identity())["class_name"]
        'Identity'
    """
    return _registry.serialize_keras_object(layer)


def deserialize(config: dict[str, _Any], custom_objects: dict[str, _Any] | None = None) -> _Any:
    """Construct a layer from the data that `serialize` returned.

    Args:
        config: plain data.
        custom_objects: further classes and functions by name.

    Example:
        >>> from weft import keras
        >>> keras.layers.deserialize(keras.layers.serialize(keras.layers.Identity(name="same"))).name
        'same'
    """
    return _registry.deserialize_keras_object(config, custom_objects, kind="layers")


def __getattr__(name: str) -> _Any:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_publish(__name__)
