"""Losses: what training makes small, as functions and as objects with weights, masks and reductions."""

from collections.abc import Mapping
from typing import Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.losses.argument_docs import document
from weft.keras.losses.base import Loss as Loss, LossFunctionWrapper as LossFunctionWrapper
from weft.keras.losses.margins import (
    CategoricalHinge as CategoricalHinge,
    Hinge as Hinge,
    SquaredHinge as SquaredHinge,
    categorical_hinge as categorical_hinge,
    hinge as hinge,
    squared_hinge as squared_hinge,
)
from weft.keras.losses.overlap import (
    Circle as Circle,
    Dice as Dice,
    Tversky as Tversky,
    circle as circle,
    dice as dice,
    tversky as tversky,
)
from weft.keras.losses.probabilistic import (
    CTC as CTC,
    BinaryCrossentropy as BinaryCrossentropy,
    BinaryFocalCrossentropy as BinaryFocalCrossentropy,
    CategoricalCrossentropy as CategoricalCrossentropy,
    CategoricalFocalCrossentropy as CategoricalFocalCrossentropy,
    CategoricalGeneralizedCrossEntropy as CategoricalGeneralizedCrossEntropy,
    KLDivergence as KLDivergence,
    Poisson as Poisson,
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
    binary_crossentropy as binary_crossentropy,
    binary_focal_crossentropy as binary_focal_crossentropy,
    categorical_crossentropy as categorical_crossentropy,
    categorical_focal_crossentropy as categorical_focal_crossentropy,
    categorical_generalized_cross_entropy as categorical_generalized_cross_entropy,
    ctc as ctc,
    kl_divergence as kl_divergence,
    poisson as poisson,
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from weft.keras.losses.regression import (
    CosineSimilarity as CosineSimilarity,
    Huber as Huber,
    LogCosh as LogCosh,
    MeanAbsoluteError as MeanAbsoluteError,
    MeanAbsolutePercentageError as MeanAbsolutePercentageError,
    MeanSquaredError as MeanSquaredError,
    MeanSquaredLogarithmicError as MeanSquaredLogarithmicError,
    cosine_similarity as cosine_similarity,
    huber as huber,
    log_cosh as log_cosh,
    mean_absolute_error as mean_absolute_error,
    mean_absolute_percentage_error as mean_absolute_percentage_error,
    mean_squared_error as mean_squared_error,
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
)


@document(
    "a function or an object; None for None.",
    "keras.losses.get(\"mse\").__name__ -> 'mean_squared_error'",
    identifier='None, the name of a loss or of its class ("mse", "MeanSquaredError"), a config, or a loss.',
)
def get(identifier: Any) -> Any:
    """Return the loss for an argument `loss=`."""
    return _registry.get("losses", identifier)


@document(
    "a dict that `deserialize` reads.",
    'keras.losses.serialize(keras.losses.Huber(delta=2.0))["config"]["delta"] -> 2.0',
    loss="a `Loss`, or a function.",
)
def serialize(loss: Any) -> Any:
    """Convert a loss to plain data."""
    return _registry.serialize_keras_object(loss)


@document(
    "a function or an object.",
    'keras.losses.deserialize(keras.losses.serialize(keras.losses.Huber(delta=2.0))).get_config()["delta"] -> 2.0',
    name="what `serialize` returned, or the name of a loss.",
    custom_objects="further losses by name.",
)
def deserialize(name: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a loss from plain data."""
    return _registry.deserialize_keras_object(name, custom_objects, kind="losses")


_publish(__name__)
_registry.register("losses", *_registry.functions_and_classes(__name__))
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
