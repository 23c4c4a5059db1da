"""Optimizers: how weights change by their gradients. Those of `weft.optim` do too, where an optimizer is expected."""

from collections.abc import Mapping
from typing import Any

from weft.errors import ArgumentError as _ArgumentError, publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.optimizers import schedules
from weft.keras.optimizers.adam import Adam, Adamax, AdamW, Lamb, Nadam, ScheduleFreeAdamW
from weft.keras.optimizers.adapter import TransformOptimizer, is_transformation as _is_transformation
from weft.keras.optimizers.base import Optimizer
from weft.keras.optimizers.loss_scale import LossScaleOptimizer
from weft.keras.optimizers.matrices import Adafactor, Muon
from weft.keras.optimizers.multi import MultiOptimizer, OptimizerMap
from weft.keras.optimizers.rmsprop import Adadelta, Adagrad, Ftrl, RMSprop
from weft.keras.optimizers.sgd import SGD, Lion

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "MultiOptimizer",
    "Muon",
    "Nadam",
    "Optimizer",
    "OptimizerMap",
    "RMSprop",
    "ScheduleFreeAdamW",
    "TransformOptimizer",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]


def get(identifier: Any) -> Optimizer | None:
    """Return the optimizer for an argument `optimizer=`.

    Args:
        identifier: None, a name ("adam", "AdamW"), a config, an optimizer, or a gradient transformation of
            `weft.optim`.

    Returns:
        an optimizer; None for None.

    >>> from weft import keras
    >>> type(keras.optimizers.get("adamw")).__name__
    'AdamW'
    """
    if _is_transformation(identifier):
        return TransformOptimizer(identifier)
    found = _registry.get("optimizers", identifier)
    if found is not None and not isinstance(found, Optimizer):
        raise _ArgumentError(
            "An optimizer must be a name, a config, an Optimizer, or a transformation of weft.optim.",
            received=f"{identifier!r}",
        )
    return found


def serialize(optimizer: Optimizer) -> Any:
    """Convert an optimizer to plain data, without its variables.

    Args:
        optimizer: the optimizer.

    Returns:
        a dict that `deserialize` reads.

    >>> from weft import keras
    >>> keras.optimizers.serialize(keras.optimizers.SGD(momentum=0.5))["config"]["momentum"]
    0.5
    """
    return _registry.serialize_keras_object(optimizer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct an optimizer from plain data.

    Args:
        config: what `serialize` returned, or a name.
        custom_objects: further optimizers by name.

    Returns:
        an optimizer.

    >>> from weft import keras
    >>> keras.optimizers.deserialize(keras.optimizers.serialize(keras.optimizers.SGD(momentum=0.5))).momentum
    0.5
    """
    return _registry.deserialize_keras_object(config, custom_objects, kind="optimizers")


_publish(__name__)
_registry.register("optimizers", *(globals()[name] for name in __all__ if name[0].isupper()))
