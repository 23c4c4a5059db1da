"""Distillation: losses between models, and a model that trains a student."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import weft.numpy as wnp
from weft import keras, nn
from weft.errors import ArgumentError
from weft.keras.distillation import DistillationLoss, Distiller, FeatureDistillation, LogitsDistillation

X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)


def model(units: int, **options: Any) -> Any:
    hidden = keras.layers.Dense(units, "relu", name="hidden", **options)
    return keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(2, name="logits")])


def test_losses_of_logits_and_features() -> None:
    teacher, student = wnp.asarray(X[:, :3]), wnp.asarray(X[:, 1:])
    target, output = nn.softmax(teacher / 2), nn.softmax(student / 2)
    expected = 4 * np.mean(np.sum(target * (wnp.log(target) - wnp.log(output)), axis=-1))
    np.testing.assert_allclose(LogitsDistillation(2).compute_loss(teacher, student), expected, rtol=1e-4)
    np.testing.assert_allclose(
        LogitsDistillation(2, "mse").compute_loss(teacher, student), np.mean((teacher - student) ** 2) / 4, rtol=1e-5
    )
    # One loss for each output, and None for those that do not count.
    several = FeatureDistillation({"a": "mae", "b": None})
    both = ({"a": teacher, "b": teacher}, {"a": student, "b": student})
    several.validate_outputs(*both)
    np.testing.assert_allclose(several.compute_loss(*both), np.mean(np.abs(teacher - student)), rtol=1e-5)
    again = FeatureDistillation.from_config(several.get_config())
    np.testing.assert_allclose(again.compute_loss(*both), several.compute_loss(*both))
    with pytest.raises(ArgumentError, match="must have the structure of the outputs"):
        several.validate_outputs([teacher], [student])


def test_student_learns_and_the_teacher_stays(tmp_path: pathlib.Path) -> None:
    teacher, student = model(16), model(8, kernel_regularizer="l2")
    features = FeatureDistillation("mse", "logits", "logits")
    distiller = Distiller(teacher, student, [LogitsDistillation(), features], [1.0, 0.5], student_loss_weight=0.3)
    distiller.compile(
        keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    before = teacher.get_weights()
    history = distiller.fit(X, Y, epochs=3, batch_size=16, verbose=0, validation_data=(X, Y)).history
    for old, new in zip(before, teacher.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert history["distillation_loss"][-1] < history["distillation_loss"][0] and "val_student_loss" in history
    np.testing.assert_array_equal(distiller.predict(X, verbose=0), student.predict(X, verbose=0))
    # The total is the weighted sum of its parts, and what the student's layers add.
    distiller.reset_metrics()
    loss = float(distiller.compute_loss(X, Y, None, training=False))
    parts = [float(t.result()) for t in (distiller.student_loss_tracker, distiller.distillation_loss_tracker)]
    added = float(sum(student.losses))
    np.testing.assert_allclose(loss, 0.3 * parts[0] + 0.7 * parts[1] + added, rtol=1e-5)
    distiller.save(tmp_path / "distiller.keras")
    again = keras.saving.load_model(tmp_path / "distiller.keras")
    np.testing.assert_allclose(again.predict(X, verbose=0), distiller.predict(X, verbose=0), rtol=1e-6)
    assert np.isfinite(again.fit(X, Y, verbose=0).history["loss"]).all()


def test_errors() -> None:
    class Subclassed(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    class Vector(DistillationLoss):
        def compute_loss(self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any) -> Any:
            return teacher_outputs[:, 0]

    small = model(3)
    wide = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    for make, message in (
        (lambda: Distiller(small, wide, LogitsDistillation()), "must have outputs of the same shapes"),
        (lambda: Distiller("teacher", small, LogitsDistillation()), "The teacher must be a keras.Model"),  # type: ignore[arg-type]
        (lambda: Distiller(small, model(2), []), "needs a distillation loss"),
        (lambda: Distiller(small, model(2), LogitsDistillation(), student_loss_weight=2), "must be from 0 to 1"),
        (lambda: Distiller(small, model(2), [LogitsDistillation()], [1.0, 2.0]), "a number for each"),
        (lambda: Distiller(small, model(2), FeatureDistillation("mse", "nothing")), "The teacher must have the layer"),
        (lambda: Distiller(Subclassed(), small, FeatureDistillation("mse", "a", "b")), "the teacher is subclassed"),
        (lambda: LogitsDistillation(-1), "must be a positive number"),
        (lambda: FeatureDistillation([None]), "at least one loss"),
        (lambda: Distiller(small, model(2), LogitsDistillation()).compile("sgd"), "must not be None"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make()
    distiller = Distiller(small, model(2), Vector())
    distiller.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="must return a scalar"):
        distiller.compute_loss(X, X[:, :2], None)
