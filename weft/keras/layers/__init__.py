"""Layers: what models are made of. Each folder declares its own, and they are all here."""

from typing import Any as _Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.core.spec import InputSpec as InputSpec
from weft.keras.layers.attention import *  # noqa: F403
from weft.keras.layers.convolution import *  # noqa: F403
from weft.keras.layers.core import *  # noqa: F403
from weft.keras.layers.layer import Layer as Layer
from weft.keras.layers.merging import *  # noqa: F403
from weft.keras.layers.normalization import *  # noqa: F403
from weft.keras.layers.pooling import *  # noqa: F403
from weft.keras.layers.preprocessing import *  # noqa: F403
from weft.keras.layers.recurrent import *  # noqa: F403
from weft.keras.layers.regularization import *  # noqa: F403
from weft.keras.layers.reshaping import *  # noqa: F403


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


_publish(__name__)
_exported = (value for value in _registry.functions_and_classes(__name__) if isinstance(value, type))
_registry.register("layers", *(value for value in _exported if value not in (InputSpec, Layer)))
