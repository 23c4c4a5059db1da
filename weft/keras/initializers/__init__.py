"""First values of variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.core.config import standardize_dtype as _standardize_dtype
from weft.keras.initializers.base import Initializer as Initializer
from weft.keras.initializers.constant import (
    STFT as STFT,
    Constant as Constant,
    Identity as Identity,
    Ones as Ones,
    Zeros as Zeros,
)
from weft.keras.initializers.random import (
    GlorotNormal as GlorotNormal,
    GlorotUniform as GlorotUniform,
    HeNormal as HeNormal,
    HeUniform as HeUniform,
    LecunNormal as LecunNormal,
    LecunUniform as LecunUniform,
    Orthogonal as Orthogonal,
    RandomInitializer as RandomInitializer,
    RandomNormal as RandomNormal,
    RandomUniform as RandomUniform,
    TruncatedNormal as TruncatedNormal,
    VarianceScaling as VarianceScaling,
)

constant = Constant
glorot_normal = GlorotNormal
glorot_uniform = GlorotUniform
he_normal = HeNormal
he_uniform = HeUniform
identity = IdentityInitializer = Identity
lecun_normal = LecunNormal
lecun_uniform = LecunUniform
ones = Ones
orthogonal = OrthogonalInitializer = Orthogonal
random_normal = RandomNormal
random_uniform = RandomUniform
stft = STFTInitializer = STFT
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
zeros = Zeros


def serialize(initializer: Any) -> Any:
    """Convert an initializer to plain data.

    Args:
        initializer: an initializer.

    Returns:
        A dict with its class and its config.

    Example:
        >>> from weft import keras
        >>> keras.initializers.serialize(keras.initializers.Zeros())["class_name"]
        'Zeros'
    """
    return _registry.serialize_keras_object(initializer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct an initializer from the data of `serialize`.

    Args:
        config: a config or a name.
        custom_objects: further classes by name.

    Returns:
        An initializer.
    """
    return _registry.deserialize_keras_object(config, custom_objects=custom_objects, kind="initializers")


def get(identifier: Any) -> Any:
    """Return the initializer for an argument such as `kernel_initializer=`.

    Args:
        identifier: a name, a config, a class, an initializer, a function `(shape, dtype) -> array`, an array (which is
            the value), or None, which is returned.

    Returns:
        An initializer or a function.

    Example:
        >>> from weft import keras
        >>> type(keras.initializers.get("glorot_uniform")).__name__
        'GlorotUniform'
    """
    if isinstance(identifier, (np.ndarray, weft.Array)):
        value = identifier

        def initialize(shape: Any, dtype: Any = None) -> Any:
            return wnp.broadcast_to(wnp.asarray(value, _standardize_dtype(dtype)), tuple(shape))

        return initialize
    return _registry.get("initializers", identifier)


_publish(__name__)
_registry.register(
    "initializers",
    *dict.fromkeys(value for value in globals().values() if isinstance(value, type) and issubclass(value, Initializer)),
    aliases={
        "IdentityInitializer": Identity,
        "OrthogonalInitializer": Orthogonal,
        "STFTInitializer": STFT,
        "normal": RandomNormal,
        "one": Ones,
        "uniform": RandomUniform,
        "zero": Zeros,
    },
)
