"""Optimizers: how weights change by their gradients. Those of `weft.optim` do too, where an optimizer is expected."""

from collections.abc import Mapping
from typing import Any

from weft.errors import ArgumentError as _ArgumentError, publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.optimizers import schedules as schedules
from weft.keras.optimizers.adam import (
    Adam as Adam,
    Adamax as Adamax,
    AdamW as AdamW,
    Lamb as Lamb,
    Nadam as Nadam,
    ScheduleFreeAdamW as ScheduleFreeAdamW,
)
from weft.keras.optimizers.adapter import (
    TransformOptimizer as TransformOptimizer,
    is_transformation as _is_transformation,
)
from weft.keras.optimizers.base import Optimizer as Optimizer
from weft.keras.optimizers.loss_scale import LossScaleOptimizer as LossScaleOptimizer
from weft.keras.optimizers.matrices import Adafactor as Adafactor, Muon as Muon
from weft.keras.optimizers.multi import MultiOptimizer as MultiOptimizer, OptimizerMap as OptimizerMap
from weft.keras.optimizers.rmsprop import Adadelta as Adadelta, Adagrad as Adagrad, Ftrl as Ftrl, RMSprop as RMSprop
from weft.keras.optimizers.sgd import SGD as SGD, Lion as Lion


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
_registry.register("optimizers", *_registry.functions_and_classes(__name__))
