"""Metrics: what is accumulated over batches to judge a model."""

from collections.abc import Mapping
from typing import Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.losses.margins import categorical_hinge, hinge, squared_hinge
from weft.keras.losses.probabilistic import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    kl_divergence,
    poisson,
    sparse_categorical_crossentropy,
)
from weft.keras.losses.regression import (
    huber,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from weft.keras.metrics.accuracy import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from weft.keras.metrics.area import AUC
from weft.keras.metrics.base import Metric
from weft.keras.metrics.confusion import (
    FalseNegatives,
    FalsePositives,
    Precision,
    PrecisionAtRecall,
    Recall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
    TrueNegatives,
    TruePositives,
)
from weft.keras.metrics.f_score import F1Score, FBetaScore
from weft.keras.metrics.iou import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from weft.keras.metrics.probabilistic import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    Hinge,
    KLDivergence,
    Poisson,
    SparseCategoricalCrossentropy,
    SquaredHinge,
)
from weft.keras.metrics.reduction import Mean, MeanMetricWrapper, Sum
from weft.keras.metrics.regression import (
    ConcordanceCorrelation,
    CosineSimilarity,
    LogCoshError,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    PearsonCorrelation,
    R2Score,
    RootMeanSquaredError,
    concordance_correlation,
    pearson_correlation,
)

__all__ = [
    "AUC",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "BinaryIoU",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "ConcordanceCorrelation",
    "CosineSimilarity",
    "F1Score",
    "FBetaScore",
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "IoU",
    "KLDivergence",
    "LogCoshError",
    "Mean",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanIoU",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Metric",
    "OneHotIoU",
    "OneHotMeanIoU",
    "PearsonCorrelation",
    "Poisson",
    "Precision",
    "PrecisionAtRecall",
    "R2Score",
    "Recall",
    "RecallAtPrecision",
    "RootMeanSquaredError",
    "SensitivityAtSpecificity",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "SpecificityAtSensitivity",
    "SquaredHinge",
    "Sum",
    "TopKCategoricalAccuracy",
    "TrueNegatives",
    "TruePositives",
    "binary_accuracy",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_accuracy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_hinge",
    "concordance_correlation",
    "deserialize",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "pearson_correlation",
    "poisson",
    "serialize",
    "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy",
    "sparse_top_k_categorical_accuracy",
    "squared_hinge",
    "top_k_categorical_accuracy",
]


def get(identifier: Any) -> Any:
    """Return the metric for an argument `metrics=`.

    Args:
        identifier: None, the name of a metric or of its class ("mse", "auc", "AUC"), a config, or a metric.

    Returns:
        a metric, or the function that was passed; None for None.

    >>> from weft import keras
    >>> keras.metrics.get("mse")
    <MeanSquaredError name=mean_squared_error>
    """
    return _registry.get("metrics", identifier)


def serialize(metric: Any) -> Any:
    """Convert a metric to plain data.

    Args:
        metric: a `Metric`, or a function.

    Returns:
        a dict that `deserialize` reads.

    >>> from weft import keras
    >>> keras.metrics.serialize(keras.metrics.Mean())["class_name"]
    'Mean'
    """
    return _registry.serialize_keras_object(metric)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Construct a metric from plain data.

    Args:
        config: what `serialize` returned, or the name of a metric.
        custom_objects: further metrics by name.

    Returns:
        a metric.

    >>> from weft import keras
    >>> keras.metrics.deserialize(keras.metrics.serialize(keras.metrics.Mean(name="average")))
    <Mean name=average>
    """
    return _registry.deserialize_keras_object(config, custom_objects, kind="metrics")


_publish(__name__)
_registry.register("metrics", *(globals()[name] for name in __all__ if name[0].isupper()))
_registry.register(
    "metrics",
    aliases={
        alias: globals()[name]
        for short, name in {
            "bce": "BinaryCrossentropy",
            "mae": "MeanAbsoluteError",
            "mape": "MeanAbsolutePercentageError",
            "mse": "MeanSquaredError",
            "msle": "MeanSquaredLogarithmicError",
        }.items()
        for alias in (short, short.upper())
    },
)
