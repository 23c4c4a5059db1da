"""Metrics beside Keras: results over several batches, state, weights and masks."""

from __future__ import annotations

import inspect
import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax.numpy as jnp
import numpy as np
import pytest

import tests.peer.compare  # noqa: F401  (settings of JAX, before it is imported)
import weft
import weft.numpy as wnp
from weft import keras as ours

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64:UserWarning")

RNG = np.random.default_rng(1)


def batch(kind: str, size: int) -> tuple[Any, Any]:
    """Targets and predictions of a kind."""
    normal = [RNG.normal(size=(size, 3)).astype(np.float32) for _ in range(2)]
    positive = [np.abs(array) + 0.1 for array in normal]
    scores = RNG.integers(0, 21, size=(size, 3)).astype(np.float32) / 20  # some are equal to thresholds
    bits = (RNG.uniform(size=(size, 3)) < 0.5).astype(np.float32)
    labels = RNG.integers(0, 3, size=size)
    one_hot = np.eye(3, dtype=np.float32)[labels]
    return {
        "values": (normal[0], normal[1]),
        "column": (normal[0][:, 0], normal[1][:, :1]),
        "positive": (positive[0], positive[1]),
        "bits": (bits, scores),
        "bit": (bits[:, 0], scores[:, 0]),
        "logits": (bits, normal[1] * 3),
        "signs": (np.sign(normal[0]), normal[1]),
        "labels": (labels, positive[1] / positive[1].sum(-1, keepdims=True)),
        "labels1": (labels[:, None], positive[1] / positive[1].sum(-1, keepdims=True)),
        "one_hot": (one_hot, positive[1] / positive[1].sum(-1, keepdims=True)),
        "integers": (labels, RNG.integers(0, 3, size=size)),
        "images": (RNG.integers(0, 3, size=(size, 4)), RNG.integers(0, 3, size=(size, 4))),
        "sorted": (labels, np.argsort(normal[0], axis=-1)),
        "long": (RNG.normal(size=(size, 5, 4)).astype(np.float32), RNG.normal(size=(size, 5, 4)).astype(np.float32)),
    }[kind]


# A metric as text, and the kinds of batches that it gets.
CASES = """
Mean() | -
Sum() | -
Accuracy() | integers images
BinaryAccuracy() | bits bit
BinaryAccuracy(threshold=0.3) | bits
CategoricalAccuracy() | one_hot
SparseCategoricalAccuracy() | labels labels1
TopKCategoricalAccuracy(k=2) | one_hot
SparseTopKCategoricalAccuracy(k=2) | labels
SparseTopKCategoricalAccuracy(k=2, from_sorted_ids=True) | sorted
MeanSquaredError() | values column long
MeanAbsoluteError() | values
MeanAbsolutePercentageError() | values
MeanSquaredLogarithmicError() | positive
RootMeanSquaredError() | values column long
CosineSimilarity(axis=-1) | values
LogCoshError() | values
R2Score() | values
R2Score(class_aggregation=None) | values
R2Score(class_aggregation='variance_weighted_average', num_regressors=2) | values
PearsonCorrelation() | values
ConcordanceCorrelation() | values
BinaryCrossentropy(from_logits=True, label_smoothing=0.1) | logits
CategoricalCrossentropy() | one_hot
SparseCategoricalCrossentropy() | labels
SparseCategoricalCrossentropy(ignore_class=1) | labels
KLDivergence() | one_hot
Poisson() | positive
Hinge() | signs bits
SquaredHinge() | signs
CategoricalHinge() | one_hot
TruePositives() | bits bit
FalsePositives(thresholds=[0.2, 0.7]) | bits
TrueNegatives(thresholds=[0.0, 0.5, 1.0]) | bits
FalseNegatives(thresholds=0.35) | bits
Precision() | bits bit
Precision(thresholds=[0.1, 0.5, 0.75]) | bits
Precision(top_k=2) | bits
Precision(class_id=1) | bits
Recall(top_k=1, class_id=2) | bits
Recall(thresholds=[0.0, 0.25, 0.5, 0.75, 1.0]) | bits
AUC() | bits bit
AUC(num_thresholds=11) | bits
AUC(curve='PR') | bits
AUC(curve='PR', summation_method='majoring') | bits
AUC(curve='PRGAIN', summation_method='minoring') | bits
AUC(thresholds=[0.1, 0.3, 0.45]) | bits
AUC(from_logits=True) | logits
AUC(multi_label=True, num_labels=3) | bits
AUC(multi_label=True, num_labels=3, curve='PR', label_weights=[0.2, 0.3, 0.5]) | bits
AUC(label_weights=[0.2, 0.3, 0.5]) | bits
SensitivityAtSpecificity(0.5) | bits
SpecificityAtSensitivity(0.6, num_thresholds=11) | bits
PrecisionAtRecall(0.4, class_id=1) | bits
RecallAtPrecision(0.5, num_thresholds=1) | bits
F1Score() | one_hot
F1Score(average='micro', threshold=0.4) | bits
FBetaScore(average='macro', beta=2.0) | one_hot
FBetaScore(average='weighted', beta=0.5, threshold=0.5) | bits
IoU(num_classes=3, target_class_ids=[0, 2]) | integers images
BinaryIoU(threshold=0.4) | bits
MeanIoU(num_classes=3) | integers images
MeanIoU(num_classes=3, ignore_class=1, dtype='float32') | integers
OneHotIoU(num_classes=3, target_class_ids=[1]) | one_hot
OneHotMeanIoU(num_classes=3, sparse_y_pred=False) | one_hot
"""
ROWS = [
    (text.strip(), kind)
    for line in CASES.splitlines()
    if line
    for text, kinds in [line.split("|")]
    for kind in kinds.split()
]
# Keras has no use for weights here, or takes other shapes.
UNWEIGHTED = ("IoU", "Top", "AUC(label", "AUC(multi")


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("text", "kind"), ROWS, ids=["-".join(row) for row in ROWS])
def test_results_over_batches(text: str, kind: str, weighted: bool) -> None:
    if weighted and any(name in text for name in UNWEIGHTED):
        weighted = False
    metric, theirs = eval(f"m.{text}", {"m": ours.metrics}), eval(f"m.{text}", {"m": keras.metrics})
    for size in (6, 6, 4):
        args = (RNG.normal(size=size).astype(np.float32),) if kind == "-" else batch(kind, size)
        weights = RNG.uniform(size=size).astype(np.float32) if weighted else None
        theirs.update_state(*args, sample_weight=weights)
        metric.update_state(*args, sample_weight=weights)
    close(metric.result(), theirs.result())
    assert str(metric.result().dtype) == str(jnp.asarray(theirs.result()).dtype)
    described = lambda variables: [(v.name, tuple(v.shape), str(v.dtype)) for v in variables]
    assert described(metric.variables) == described(theirs.variables)
    for own, other in zip(metric.variables, theirs.variables, strict=True):
        close(own.value, other.value)
    # Compiled, from the same state.
    values = weft.jit(metric.stateless_update_state)([v.value for v in metric.variables], *args, sample_weight=weights)
    metric.update_state(*args, sample_weight=weights)
    close(weft.jit(metric.stateless_result)(values), metric.result())
    want, got = theirs.get_config(), metric.get_config()
    known = {key: value for key, value in want.items() if key not in ("name", "label_weights")}  # names are counted
    assert {**got, **known} == got
    keras.metrics.deserialize(ours.metrics.serialize(metric))
    ours.metrics.deserialize(keras.metrics.serialize(eval(f"m.{text}", {"m": keras.metrics})))


def test_masks() -> None:
    y_true, y_pred = RNG.normal(size=(2, 4, 6, 3)).astype(np.float32)
    mask = RNG.uniform(size=(4, 6)) < 0.5
    for weights in (None, RNG.uniform(size=(4, 6)).astype(np.float32)):
        results = []
        for library in (ours, keras):
            metric = library.metrics.MeanAbsoluteError()
            predictions: Any = wnp.asarray(y_pred) if library is ours else jnp.asarray(y_pred)
            if library is ours:
                ours.core.context.set_keras_mask(predictions, wnp.asarray(mask))
            else:
                predictions._keras_mask = jnp.asarray(mask)
            metric.update_state(y_true, predictions, sample_weight=weights)
            results.append(metric.result())
        close(*results)


def test_signatures() -> None:
    assert not {name for name in dir(keras.metrics) if not name.startswith("_")} - set(ours.metrics.__all__)
    for name in ours.metrics.__all__:
        want = inspect.signature(getattr(keras.metrics, name)).parameters
        got = inspect.signature(getattr(ours.metrics, name)).parameters
        assert list(got) == list(want), name
        assert [p.default for p in got.values()] == [p.default for p in want.values()], name
