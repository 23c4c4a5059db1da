"""Metrics: what is accumulated over batches to judge a model."""

from collections.abc import Mapping
from typing import Any

from weft.errors import publish as _publish
from weft.keras.core import registry as _registry
from weft.keras.losses.argument_docs import document
from weft.keras.losses.margins import (
    categorical_hinge as categorical_hinge,
    hinge as hinge,
    squared_hinge as squared_hinge,
)
from weft.keras.losses.probabilistic import (
    binary_crossentropy as binary_crossentropy,
    binary_focal_crossentropy as binary_focal_crossentropy,
    categorical_crossentropy as categorical_crossentropy,
    categorical_focal_crossentropy as categorical_focal_crossentropy,
    kl_divergence as kl_divergence,
    poisson as poisson,
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from weft.keras.losses.regression import (
    huber as huber,
    log_cosh as log_cosh,
    mean_absolute_error as mean_absolute_error,
    mean_absolute_percentage_error as mean_absolute_percentage_error,
    mean_squared_error as mean_squared_error,
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
)
from weft.keras.metrics.accuracy import (
    Accuracy as Accuracy,
    BinaryAccuracy as BinaryAccuracy,
    CategoricalAccuracy as CategoricalAccuracy,
    SparseCategoricalAccuracy as SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy as TopKCategoricalAccuracy,
    binary_accuracy as binary_accuracy,
    categorical_accuracy as categorical_accuracy,
    sparse_categorical_accuracy as sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy as sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy as top_k_categorical_accuracy,
)
from weft.keras.metrics.area import AUC as AUC
from weft.keras.metrics.base import Metric as Metric
from weft.keras.metrics.confusion import (
    FalseNegatives as FalseNegatives,
    FalsePositives as FalsePositives,
    Precision as Precision,
    PrecisionAtRecall as PrecisionAtRecall,
    Recall as Recall,
    RecallAtPrecision as RecallAtPrecision,
    SensitivityAtSpecificity as SensitivityAtSpecificity,
    SpecificityAtSensitivity as SpecificityAtSensitivity,
    TrueNegatives as TrueNegatives,
    TruePositives as TruePositives,
)
from weft.keras.metrics.f_score import F1Score as F1Score, FBetaScore as FBetaScore
from weft.keras.metrics.iou import (
    BinaryIoU as BinaryIoU,
    IoU as IoU,
    MeanIoU as MeanIoU,
    OneHotIoU as OneHotIoU,
    OneHotMeanIoU as OneHotMeanIoU,
)
from weft.keras.metrics.probabilistic import (
    BinaryCrossentropy as BinaryCrossentropy,
    CategoricalCrossentropy as CategoricalCrossentropy,
    CategoricalHinge as CategoricalHinge,
    Hinge as Hinge,
    KLDivergence as KLDivergence,
    Poisson as Poisson,
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
    SquaredHinge as SquaredHinge,
)
from weft.keras.metrics.reduction import Mean as Mean, MeanMetricWrapper as MeanMetricWrapper, Sum as Sum
from weft.keras.metrics.regression import (
    ConcordanceCorrelation as ConcordanceCorrelation,
    CosineSimilarity as CosineSimilarity,
    LogCoshError as LogCoshError,
    MeanAbsoluteError as MeanAbsoluteError,
    MeanAbsolutePercentageError as MeanAbsolutePercentageError,
    MeanSquaredError as MeanSquaredError,
    MeanSquaredLogarithmicError as MeanSquaredLogarithmicError,
    PearsonCorrelation as PearsonCorrelation,
    R2Score as R2Score,
    RootMeanSquaredError as RootMeanSquaredError,
    concordance_correlation as concordance_correlation,
    pearson_correlation as pearson_correlation,
)


@document(
    "a metric, or the function that was passed; None for None.",
    'keras.metrics.get("mse") -> <MeanSquaredError name=mean_squared_error>',
    identifier='None, the name of a metric or of its class ("mse", "auc", "AUC"), a config, or a metric.',
)
def get(identifier: Any) -> Any:
    """Return the metric for an argument `metrics=`."""
    return _registry.get("metrics", identifier)


@document(
    "a dict that `deserialize` reads.",
    "keras.metrics.serialize(keras.metrics.Mean())[\"class_name\"] -> 'Mean'",
    metric="a `Metric`, or a function.",
)
def serialize(metric: Any) -> Any:
    """Convert a metric to plain data."""
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
_classes = (value for value in _registry.functions_and_classes(__name__) if isinstance(value, type))
_registry.register("metrics", *_classes)
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
