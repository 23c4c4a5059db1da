"""Losses: what training makes small, as functions and as objects with weights, masks and reductions."""

from collections.abc import Mapping
from typing import Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.losses.base import Loss, LossFunctionWrapper
from weft.keras.losses.margins import CategoricalHinge, Hinge, SquaredHinge, categorical_hinge, hinge, squared_hinge
from weft.keras.losses.overlap import Circle, Dice, Tversky, circle, dice, tversky
from weft.keras.losses.probabilistic import (
    CTC,
    BinaryCrossentropy,
    BinaryFocalCrossentropy,
    CategoricalCrossentropy,
    CategoricalFocalCrossentropy,
    CategoricalGeneralizedCrossEntropy,
    KLDivergence,
    Poisson,
    SparseCategoricalCrossentropy,
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_generalized_cross_entropy,
    ctc,
    kl_divergence,
    poisson,
    sparse_categorical_crossentropy,
)
from weft.keras.losses.regression import (
    CosineSimilarity,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    cosine_similarity,
    huber,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)

__all__ = [
    "BinaryCrossentropy",
    "BinaryFocalCrossentropy",
    "CTC",
    "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy",
    "CategoricalGeneralizedCrossEntropy",
    "CategoricalHinge",
    "Circle",
    "CosineSimilarity",
    "Dice",
    "Hinge",
    "Huber",
    "KLDivergence",
    "LogCosh",
    "Loss",
    "LossFunctionWrapper",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Poisson",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
    "Tversky",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy",
    "categorical_hinge",
    "circle",
    "cosine_similarity",
    "ctc",
    "deserialize",
    "dice",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "poisson",
    "serialize",
    "sparse_categorical_crossentropy",
    "squared_hinge",
    "tversky",
]


def get(identifier: Any) -> Any:
    """Return the loss for an argument `loss=`.

    Args:
        identifier: None, the name of a loss or of its class ("mse", "MeanSquaredError"), a config, or a loss.

    Returns:
        a function or an object; None for None.

    >>> from weft import keras
    >>> keras.losses.get("mse").__name__
    'mean_squared_error'
    """
    return _registry.get("losses", identifier)


def serialize(loss: Any) -> Any:
    """Convert a loss to plain data.

    Args:
        loss: a `Loss`, or a function.

    Returns:
        a dict that `deserialize` reads.

    >>> from weft import keras
    >>> keras.losses.serialize(keras.losses.Huber(delta=2.0))["config"]["delta"]
    2.0
    """
    return _registry.serialize_keras_object(loss)


def deserialize(name: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a loss from plain data.

    Args:
        name: what `serialize` returned, or the name of a loss.
        custom_objects: further losses by name.

    Returns:
        a function or an object.

    >>> from weft import keras
    >>> keras.losses.deserialize(keras.losses.serialize(keras.losses.Huber(delta=2.0))).get_config()["delta"]
    2.0
    """
    return _registry.deserialize_keras_object(name, custom_objects, kind="losses")


_publish(__name__)
_registry.register("losses", *(globals()[name] for name in __all__ if name not in ("get", "serialize", "deserialize")))
_registry.register(
    "losses",
    aliases={
        alias: globals()[name]
        for short, name in {
            "bce": "binary_crossentropy",
            "kld": "kl_divergence",
            "mae": "mean_absolute_error",
            "mape": "mean_absolute_percentage_error",
            "mse": "mean_squared_error",
            "msle": "mean_squared_logarithmic_error",
        }.items()
        for alias in (short, short.upper())
    },
)
