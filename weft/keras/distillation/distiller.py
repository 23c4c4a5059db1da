"""Distiller: a model that trains a student with a teacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras import metrics as metric_classes
from weft.keras.core import registry
from weft.keras.distillation.losses import DistillationLoss, describe_losses, find_losses
from weft.keras.models import Model, Sequential

_OUTPUT = "final_output"


class Distiller(Model):
    """A model whose outputs are the student's, and whose loss is the weighted sum of the student's own loss and of
    distillation losses. The teacher is not trained.

    Args:
        teacher: a trained model.
        student: the model to train, with inputs and outputs of the same shapes.
        distillation_losses: a `DistillationLoss`, or a list of them.
        distillation_loss_weights: a number for each; 1 by default.
        student_loss_weight: the weight of the student's own loss, from 0 to 1; the distillation losses have the rest.
        name: the name.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> teacher, student = (keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]) for _ in range(2))
        >>> distiller = keras.distillation.Distiller(teacher, student, keras.distillation.LogitsDistillation())
        >>> distiller.compile("sgd", "sparse_categorical_crossentropy")
        >>> history = distiller.fit(np.ones((8, 4)), np.zeros(8), verbose=0)
        >>> sorted(history.history)
        ['distillation_loss', 'loss', 'student_loss', 'total_loss']
    """

    def __init__(
        self,
        teacher: Model,
        student: Model,
        distillation_losses: DistillationLoss | Sequence[DistillationLoss],
        distillation_loss_weights: Sequence[float] | None = None,
        student_loss_weight: float = 0.5,
        name: str = "distiller",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        _check_models(teacher, student)
        if isinstance(student_loss_weight, bool) or not isinstance(student_loss_weight, (int, float)):
            raise ArgumentError("`student_loss_weight` must be a number.", received=f"{student_loss_weight=!r}")
        if not 0 <= student_loss_weight <= 1:
            raise ArgumentError("`student_loss_weight` must be from 0 to 1.", received=f"{student_loss_weight=!r}")
        single = not isinstance(distillation_losses, (list, tuple))
        several: list[Any] = [distillation_losses] if single else list(distillation_losses)  # type: ignore[arg-type]
        if distillation_losses is None or not several:
            raise ArgumentError(
                "A Distiller needs a distillation loss, or a list of them.", received=f"{distillation_losses=}"
            )
        weights = [1.0] * len(several) if distillation_loss_weights is None else list(distillation_loss_weights)
        if len(weights) != len(several):
            raise ArgumentError(
                "`distillation_loss_weights` must have a number for each distillation loss.",
                received=f"{len(weights)} weights for {len(several)} losses",
            )
        for loss in several:
            loss.validate_model_compatibility(teacher, student)
        self.teacher, self.student = teacher, student
        self.student_loss_weight = student_loss_weight
        self.distillation_losses, self.distillation_loss_weights = several, weights
        self._teacher_feature_extractor = _feature_model(teacher, [loss.teacher_layer_name for loss in several])
        self._student_feature_extractor = _feature_model(student, [loss.student_layer_name for loss in several])
        self.teacher.trainable = False
        self.student_loss_tracker = metric_classes.Mean(name="student_loss")
        self.distillation_loss_tracker = metric_classes.Mean(name="distillation_loss")
        self.total_loss_tracker = metric_classes.Mean(name="total_loss")
        self._student_loss: Any = None

    def compile(self, optimizer: Any = "adam", loss: Any = None, metrics: Any = None, **kwargs: Any) -> None:  # type: ignore[override]
        """Set what the student is trained with.

        Args:
            optimizer: an optimizer or its name.
            loss: the student's own loss: a loss or its name, or a list or dict of them for several outputs.
            metrics: a list of metrics of the student's outputs.
            **kwargs: further arguments of `Model.compile`.
        """
        if loss is None:
            raise ArgumentError("`loss`, the loss of the student, must not be None.", received="loss=None")
        if metrics is not None and not isinstance(metrics, (list, tuple)):
            raise ArgumentError("`metrics` must be a list or tuple.", received=f"metrics={metrics!r}")
        self._student_loss = find_losses(loss)
        super().compile(optimizer=optimizer, loss=None, metrics=metrics, **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        """Return the arguments of `compile` as plain data."""
        return {**super().get_compile_config(), "loss": describe_losses(self._student_loss)}

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the student's outputs.

        Args:
            inputs: the inputs.
            training: whether the student is called in training.
        """
        return self.student(inputs, training=training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Compute the weighted sum of the student's loss and the distillation losses, and note each.

        Args:
            x, y: inputs and targets.
            y_pred: the student's outputs; computed where None.
            sample_weight: weights of rows for the student's own loss.
            training: whether it is called by `fit`.
        """
        y_pred = self(x, training=training) if y_pred is None else y_pred
        # Before the student runs again for its features, and layers add their terms once more.
        added = sum((wnp.sum(term) for term in self.student.losses), wnp.zeros(()))
        own, distilled = wnp.zeros(()), wnp.zeros(())
        if self.student_loss_weight > 0 and y is not None:
            own = self._own_loss(y, y_pred, sample_weight)
        if self.student_loss_weight < 1:
            distilled = self._distillation_loss(x, y_pred, training)
        share = self.student_loss_weight
        total = share * own + (1 - share) * distilled + added
        for tracker, value in (
            (self.student_loss_tracker, own),
            (self.distillation_loss_tracker, distilled),
            (self.total_loss_tracker, total),
        ):
            tracker.update_state(value)
        return total

    def _own_loss(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        def compute(loss: Any, target: Any, output: Any) -> Any:
            weights = {} if sample_weight is None else {"sample_weight": sample_weight}
            return None if loss is None else wnp.mean(loss(target, output, **weights))

        values = weft.tree.map(compute, self._student_loss, y, y_pred, is_leaf=lambda leaf: leaf is None)
        return sum(weft.tree.leaves(values), wnp.zeros(()))

    def _distillation_loss(self, x: Any, y_pred: Any, training: bool) -> Any:
        if self._teacher_feature_extractor is None:
            teacher = {_OUTPUT: self.teacher(x, training=False)}
        else:
            teacher = self._teacher_feature_extractor(x, training=False)
        teacher = weft.tree.map(weft.lax.stop_gradient, teacher)
        student = {_OUTPUT: y_pred}
        if self._student_feature_extractor is not None:
            student = {**self._student_feature_extractor(x, training=training), **student}
        total = wnp.zeros(())
        for loss, weight in zip(self.distillation_losses, self.distillation_loss_weights, strict=True):
            both = teacher[loss.teacher_layer_name or _OUTPUT], student[loss.student_layer_name or _OUTPUT]
            loss.validate_outputs(*both)
            value = wnp.asarray(loss.compute_loss(*both))
            if value.ndim:
                raise ArgumentError(
                    "`compute_loss` of a distillation loss must return a scalar.",
                    received=f"{type(loss).__name__}: shape {value.shape}",
                )
            total = total + weight * value
        return total

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            **super().get_config(),
            "teacher": registry.serialize_keras_object(self.teacher),
            "student": registry.serialize_keras_object(self.student),
            "distillation_losses": [registry.serialize_keras_object(loss) for loss in self.distillation_losses],
            "distillation_loss_weights": self.distillation_loss_weights,
            "student_loss_weight": self.student_loss_weight,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Distiller:
        """Construct the model that `get_config` described.

        Args:
            config: the plain data.
            custom_objects: further classes by name.
        """
        config = dict(config)
        for key in ("teacher", "student"):
            config[key] = registry.deserialize_keras_object(config[key], custom_objects)
        described = config["distillation_losses"]
        config["distillation_losses"] = [registry.deserialize_keras_object(each, custom_objects) for each in described]
        return cls(**config)


def _check_models(teacher: Any, student: Any) -> None:
    for role, model in (("teacher", teacher), ("student", student)):
        if not isinstance(model, Model):
            raise ArgumentError(f"The {role} must be a keras.Model.", received=type(model).__name__)
    for what in ("inputs", "outputs"):
        both: list[Any] = [getattr(model, what, None) for model in (teacher, student)]
        if None in both:
            continue
        shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in both]
        dtypes = [[tensor.dtype for tensor in tensors] for tensors in both]
        if len(shapes[0]) != len(shapes[1]) or not all(map(_fits, *shapes)) or dtypes[0] != dtypes[1]:
            raise ArgumentError(
                f"Teacher and student must have {what} of the same shapes and dtypes.",
                received=f"teacher {shapes[0]} {dtypes[0]}, student {shapes[1]} {dtypes[1]}",
            )


def _fits(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(a is None or b is None or a == b for a, b in pairs)


def _feature_model(model: Any, names: Sequence[str | None]) -> Model | None:
    """Return a model of the outputs of named layers, by name, and of the model itself; None without names."""
    found = {name: model.get_layer(name=name).output for name in names if name}
    if not found:
        return None
    output = model.layers[-1].output if isinstance(model, Sequential) else model.output
    return Model(model.inputs, {**found, _OUTPUT: output}, name=f"{model.name}_features")


registry.register("distillation", Distiller)
