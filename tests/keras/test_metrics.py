"""Laws of metrics: batches in pieces = the whole, compiled = eager, reset, configs come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras
from weft.keras import metrics

RNG = np.random.default_rng(0)
SCORES = RNG.uniform(0.05, 0.95, size=(12, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=12)
ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]
BITS = (RNG.uniform(size=(12, 3)) < 0.5).astype(np.float32)
TARGETS = {
    "OneHot": (ONE_HOT, SCORES),
    "Sparse": (LABELS, SCORES),
    "IoU": (LABELS, LABELS[::-1]),
    "Correlation": (SCORES[::-1], SCORES),
}
ARGUMENTS: dict[str, Any] = {
    "MeanMetricWrapper": {"fn": keras.losses.mean_squared_error},
    "IoU": {"num_classes": 3, "target_class_ids": [0, 2]},
    "MeanIoU": {"num_classes": 3},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [0, 2]},
    "OneHotMeanIoU": {"num_classes": 3},
    "SensitivityAtSpecificity": {"specificity": 0.4},
    "SpecificityAtSensitivity": {"sensitivity": 0.4},
    "PrecisionAtRecall": {"recall": 0.4},
    "RecallAtPrecision": {"precision": 0.4},
}
CLASSES = sorted(name for name in metrics.__all__ if name[0].isupper() and name != "Metric")


def arguments(name: str) -> tuple[Any, ...]:
    if name in ("Mean", "Sum"):
        return (SCORES[:, 0],)
    return next((values for part, values in TARGETS.items() if part in name), (BITS, SCORES))


@pytest.mark.parametrize("name", CLASSES)
def test_every_metric(name: str) -> None:
    metric = getattr(metrics, name)(**ARGUMENTS.get(name, {}))
    args = arguments(name)
    metric.update_state(*args)
    whole = np.asarray(metric.result())
    assert np.isfinite(whole).all()
    metric.reset_state()
    assert all((variable.numpy() == 0).all() for variable in metric.variables)

    # In pieces, compiled.
    values = metric.stateless_reset_state()
    update = weft.jit(metric.stateless_update_state)
    for start in (0, 5, 10):
        values = update(values, *(wnp.asarray(array[start : start + 5]) for array in args))
    np.testing.assert_allclose(weft.jit(metric.stateless_result)(values), whole, rtol=1e-5, atol=1e-6)
    assert all((variable.numpy() == 0).all() for variable in metric.variables)

    again = metrics.deserialize(metrics.serialize(metric))
    assert type(again) is type(metric) and again.get_config() == metric.get_config()
    again.update_state(*args)
    np.testing.assert_array_equal(again.result(), whole)


def test_state_is_laid_out_as_in_files() -> None:
    shapes = lambda metric: [(v.name, v.shape, v.dtype) for v in metric.variables]
    assert shapes(metrics.Mean()) == [("total", (), "float32"), ("count", (), "float32")]
    assert [shape for _, shape, _ in shapes(metrics.Precision())] == [(1,), (1,)]
    assert [shape for _, shape, _ in shapes(metrics.AUC())] == [(200,)] * 4
    assert shapes(metrics.MeanIoU(3)) == [("total_confusion_matrix", (3, 3), "int32")]
    assert metrics.Mean(name="mine").variables[0].path == "mine/total"


def test_zero_is_above_no_threshold_but_that_of_auc() -> None:
    """A prediction of 0 in equal steps from 0: in no bucket, and not in the last."""
    metric = metrics.TruePositives(thresholds=[0.0, 0.5, 1.0])
    metric.update_state([1, 1], [0.0, 0.7])
    np.testing.assert_array_equal(metric.result(), [1, 1, 0])
    area = metrics.AUC(num_thresholds=3)
    area.update_state([1, 0], [0.0, 0.7])
    np.testing.assert_array_equal(area.true_positives.numpy(), [1, 0, 0])


def test_weighted_means_divide_by_the_weights() -> None:
    metric = metrics.MeanSquaredError()
    metric.update_state(np.zeros((2, 1)), [[1.0], [3.0]], sample_weight=[1.0, 3.0])
    assert metric.result() == 7.0
    assert metrics.Mean().result() == 0


def test_metrics_inside_of_a_metric() -> None:
    class Two(metrics.Metric):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.others = metrics.Mean(), [metrics.Sum()]

        def update_state(self, values: Any) -> None:
            self.first.update_state(values)
            self.others[0].update_state(values)

        def result(self) -> Any:
            return {"mean": self.first.result(), "sum": self.others[0].result()}

    metric = Two()
    values = weft.jit(metric.stateless_update_state)([v.value for v in metric.variables], np.array([1.0, 3.0]))
    assert {key: float(value) for key, value in metric.stateless_result(values).items()} == {"mean": 2, "sum": 4}
    assert float(metric(np.array([2.0]))["sum"]) == 2


ERRORS = [
    (lambda: metrics.MeanSquaredError()(np.zeros((4, 3)), np.zeros((4, 2))), "(4, 3)", "(4, 2)"),
    (lambda: metrics.CategoricalAccuracy()(LABELS, SCORES), "one-hot", "sparse_categorical_accuracy"),
    (lambda: metrics.SparseCategoricalAccuracy()(ONE_HOT, SCORES), "(12, 3)", "without `sparse`"),
    (lambda: metrics.AUC()(BITS, SCORES[:, :2]), "auc", "(12, 2)"),
    (lambda: metrics.Precision(thresholds=[0.5, 1.5]), "[1.5]"),
    (lambda: metrics.Precision()(BITS, SCORES, np.ones(5)), "weights", "(5,)"),
    (lambda: metrics.F1Score()(LABELS, LABELS), "[batch, classes]"),
    (lambda: metrics.AUC(curve="XY"), "PRGAIN"),
    (lambda: metrics.Mean().stateless_result([1.0]), "2 variables"),
    (lambda: metrics.IoU(2, [2]), "target_class_ids=[2]"),
]


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_was_received_and_what_to_do(case: Any) -> None:
    with pytest.raises(ValueError) as caught:
        case[0]()
    for part in case[1:]:
        assert part in str(caught.value), str(caught.value)


def test_a_result_may_be_a_variable() -> None:
    class Largest(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="largest")
            self.found = self.add_variable((), "zeros", name="found")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.found.assign(wnp.maximum(self.found, wnp.max(y_true)))

        def result(self) -> Any:
            return self.found

    metric = Largest()
    first = metric(wnp.asarray([1.0, 2.0]), wnp.zeros(2))
    metric.update_state(wnp.asarray([5.0]), wnp.zeros(1))
    assert float(first) == 2.0 and float(metric.stateless_result([wnp.asarray(7.0)])) == 7.0
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Largest()])
    x = np.arange(6, dtype=np.float32)[:, None]
    history = model.fit(x, x, batch_size=4, epochs=2, validation_data=(x[:3], x[:3]), verbose=0).history
    assert history["largest"] == [5.0, 5.0] and history["val_largest"] == [2.0, 2.0]
