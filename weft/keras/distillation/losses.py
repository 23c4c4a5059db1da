"""Losses between what a teacher and a student return."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import nn
from weft.errors import ArgumentError
from weft.keras import losses
from weft.keras.core import registry


def _is_none(leaf: Any) -> bool:
    return leaf is None


def find_losses(loss: Any) -> Any:
    """Return the losses of a structure of names, functions, configs and None."""
    if isinstance(loss, dict) and "class_name" not in loss:
        return {name: find_losses(each) for name, each in loss.items()}
    if isinstance(loss, (list, tuple)):
        return type(loss)(find_losses(each) for each in loss)
    return None if loss is None else losses.get(loss)


def describe_losses(loss: Any) -> Any:
    """Return a structure of losses as plain data."""
    if isinstance(loss, dict):
        return {name: describe_losses(each) for name, each in loss.items()}
    if isinstance(loss, (list, tuple)):
        return [describe_losses(each) for each in loss]
    return None if loss is None else losses.serialize(loss)


class DistillationLoss:
    """Base class of losses for a `Distiller`. Subclasses define `compute_loss`.

    Example:
        >>> import weft.numpy as wnp
        >>> from weft import keras
        >>> class L1(keras.distillation.DistillationLoss):
        ...     def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
        ...         return abs(teacher_outputs - student_outputs).mean()
        >>> float(L1().compute_loss(wnp.ones((2, 3)), wnp.zeros((2, 3))))
        1.0
    """

    teacher_layer_name: str | None = None
    student_layer_name: str | None = None

    def compute_loss(self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any) -> Any:
        """Compute the loss, a scalar.

        Args:
            teacher_outputs, student_outputs: what the models, or the named layers in them, return.
            **kwargs: for subclasses.
        """
        raise NotImplementedError("A subclass of DistillationLoss must define `compute_loss`.")

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        """Raise an error if both outputs are not lists or dicts of the same structure.

        Args:
            teacher_outputs, student_outputs: as in `compute_loss`.
        """
        _check_structures("Teacher and student must return the same structure.", teacher_outputs, student_outputs)

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        """Raise an error if the loss cannot be computed for two models; subclasses may define it.

        Args:
            teacher, student: the models.
        """


def _check_structures(message: str, first: Any, second: Any) -> None:
    found = [weft.tree.structure(each, is_leaf=_is_none) for each in (first, second)]
    if found[0] != found[1]:
        raise ArgumentError(message, received=f"{found[0]} and {found[1]}")


class _OutputLoss(DistillationLoss):
    """A loss from losses for each output."""

    def __init__(self, loss: Any) -> None:
        self.loss = find_losses(loss)
        if all(each is None for each in weft.tree.leaves(self.loss, is_leaf=_is_none)):
            raise ArgumentError(f"{type(self).__name__} needs at least one loss that is not None.", received=f"{loss=}")

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        """Raise an error if both outputs and the losses do not have the same structure."""
        super().validate_outputs(teacher_outputs, student_outputs)
        _check_structures("`loss` must have the structure of the outputs.", self.loss, teacher_outputs)

    def _sum(self, compute: Any, teacher_outputs: Any, student_outputs: Any) -> Any:
        values = weft.tree.map(compute, self.loss, teacher_outputs, student_outputs, is_leaf=_is_none)
        return sum(weft.tree.leaves(values), wnp.zeros(()))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"loss": describe_losses(self.loss)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Construct the loss that `get_config` described."""
        return cls(**config)


class FeatureDistillation(_OutputLoss):
    """A loss between features: the outputs of a layer of the teacher and one of the student.

    Args:
        loss: a loss or its name; for several outputs, a list or dict of them, with None for those that do not count.
        teacher_layer_name: the layer of the teacher; its outputs by default.
        student_layer_name: the layer of the student; its outputs by default.
    """

    def __init__(
        self, loss: Any = "mse", teacher_layer_name: str | None = None, student_layer_name: str | None = None
    ) -> None:
        super().__init__(loss)
        self.teacher_layer_name = teacher_layer_name
        self.student_layer_name = student_layer_name

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        """Raise an error if a model has no layer of the name, or no graph in which its output can be found."""
        for role, model, name in (
            ("teacher", teacher, self.teacher_layer_name),
            ("student", student, self.student_layer_name),
        ):
            if name is None:
                continue
            if getattr(model, "inputs", None) is None:
                raise ArgumentError(
                    f"The features of a layer can be taken from a functional or Sequential model only; the {role} is "
                    f"subclassed.",
                    received=f"{role}_layer_name={name!r}, {role}: {type(model).__name__}",
                    fix=["FeatureDistillation without names of layers", "LogitsDistillation"],
                )
            try:
                model.get_layer(name=name)
            except ValueError as error:
                raise ArgumentError(f"The {role} must have the layer: {error}") from error

    def compute_loss(self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any) -> Any:
        """Compute the sum of the means of the losses.

        Args:
            teacher_outputs, student_outputs: the features.
            **kwargs: not used.
        """
        mean = lambda loss, teacher, student: None if loss is None else wnp.mean(loss(teacher, student))
        return self._sum(mean, teacher_outputs, student_outputs)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        names = {"teacher_layer_name": self.teacher_layer_name, "student_layer_name": self.student_layer_name}
        return {**super().get_config(), **names}


class LogitsDistillation(_OutputLoss):
    """A loss between logits that are divided by a temperature (Hinton et al. 2015).

    For `KLDivergence` the logits become probabilities, and the loss is multiplied by the square of the temperature;
    other losses get the divided logits.

    Args:
        temperature: the temperature; a higher one shows more of what the teacher thinks of unlikely classes.
        loss: a loss or its name; for several outputs, a list or dict of them, with None for those that do not count.
    """

    def __init__(self, temperature: float = 3.0, loss: Any = "kl_divergence") -> None:
        super().__init__(loss)
        if not isinstance(temperature, (int, float)) or isinstance(temperature, bool) or temperature <= 0:
            raise ArgumentError("`temperature` must be a positive number.", received=f"{temperature=!r}")
        self.temperature = temperature

    def compute_loss(self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any) -> Any:
        """Compute the sum of the means of the losses.

        Args:
            teacher_outputs, student_outputs: the logits.
            **kwargs: not used.
        """

        def compute(loss: Any, teacher: Any, student: Any) -> Any:
            if loss is None:
                return None
            teacher, student = teacher / self.temperature, student / self.temperature
            if _is_divergence(loss):
                return wnp.mean(loss(nn.softmax(teacher), nn.softmax(student))) * self.temperature**2
            return wnp.mean(loss(teacher, student))

        return self._sum(compute, teacher_outputs, student_outputs)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"temperature": self.temperature, **super().get_config()}


def _is_divergence(loss: Any) -> bool:
    return isinstance(loss, losses.KLDivergence) or getattr(loss, "__name__", "") == "kl_divergence"


registry.register("distillation", FeatureDistillation, LogitsDistillation)
