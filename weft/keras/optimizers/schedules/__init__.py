"""Schedules: learning rates that depend on the iteration."""

from collections.abc import Mapping
from typing import Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.optimizers.schedules.base import LearningRateSchedule as LearningRateSchedule
from weft.keras.optimizers.schedules.decay import (
    CosineDecay as CosineDecay,
    CosineDecayRestarts as CosineDecayRestarts,
    ExponentialDecay as ExponentialDecay,
    InverseTimeDecay as InverseTimeDecay,
    PiecewiseConstantDecay as PiecewiseConstantDecay,
    PolynomialDecay as PolynomialDecay,
)


def serialize(learning_rate_schedule: LearningRateSchedule) -> Any:
    """Convert a schedule to plain data.

    Args:
        learning_rate_schedule: the schedule.

    Returns:
        a dict that `deserialize` reads.
    """
    return _registry.serialize_keras_object(learning_rate_schedule)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a schedule from plain data.

    Args:
        config: what `serialize` returned.
        custom_objects: further schedules by name.

    Returns:
        a schedule.

    >>> from weft import keras
    >>> schedules = keras.optimizers.schedules
    >>> schedules.deserialize(schedules.serialize(schedules.ExponentialDecay(0.5, 10, 0.5))).decay_steps
    10
    """
    return _registry.deserialize_keras_object(config, custom_objects, kind="optimizers.schedules")


_publish(__name__)
_registry.register("optimizers.schedules", *_registry.functions_and_classes(__name__))
