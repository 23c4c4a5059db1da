"""Optimizers that use that weights are matrices: Adafactor and Muon."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

import weft.numpy as wnp
from weft import Array
from weft.keras.core.variable import Variable
from weft.keras.optimizers.adam import _Moments
from weft.keras.optimizers.base import BaseArguments, Optimizer, UndecayedArguments
from weft.keras.optimizers.slots import Slot


def _root_mean_square(values: Array) -> Array:
    return wnp.sqrt(wnp.mean(wnp.square(values)))


class Adafactor(Optimizer):
    """Adam with little memory: for matrices averages of squares by row and by column only, and no average of gradients
    (Shazeer and Stern, 2018).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_2_decay: the average of squares at step t keeps 1 - t^beta_2_decay of itself.
        epsilon_1: what is added to squares.
        epsilon_2: the least size of a weight that its step is in proportion to.
        clip_threshold: the largest root mean square of a step, before the learning rate.
        relative_step: accepted; the learning rate is at most 1 / sqrt(t) either way, as in Keras.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Adafactor(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.9]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, **base)
        self.beta_2_decay = beta_2_decay
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.relative_step = relative_step

    def slots(self) -> list[list[Slot]]:
        def without(axis: int) -> Callable[[Variable], Any]:
            def sums(weight: Variable) -> Any:
                if len(weight.shape) < 2:
                    return np.zeros((), np.int32)  # not used, but files have it
                return None if weight.overwrite_with_gradient else np.zeros(np.delete(weight.shape, axis), weight.dtype)

            return sums

        return [[Slot("row", of=without(-1)), Slot("column", of=without(-2)), Slot("velocity")]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        step = (wnp.asarray(self.iterations) + 1).astype(gradient.dtype)
        largest = 1 / wnp.sqrt(step)
        size = wnp.maximum(self.epsilon_2, _root_mean_square(variable.value)) * wnp.minimum(learning_rate, largest)
        square = wnp.square(gradient) + self.epsilon_1
        beta = 1 - wnp.power(step, self.beta_2_decay)
        velocity = self.slot("velocity", variable)
        if len(variable.shape) >= 2:
            rows, columns = self.slot("row", variable), self.slot("column", variable)
            row = rows.assign(beta * rows.value + (1 - beta) * wnp.mean(square, axis=-1))
            column = columns.assign(beta * columns.value + (1 - beta) * wnp.mean(square, axis=-2))
            average = (row / wnp.mean(row, axis=-1, keepdims=True))[..., None] * column[..., None, :]
        else:
            average = beta * velocity.value + (1 - beta) * square
        update = gradient / wnp.sqrt(velocity.assign(average))
        update = update / wnp.maximum(1.0, _root_mean_square(update) / self.clip_threshold)
        variable.assign_sub(size * update)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_2_decay": self.beta_2_decay,
            "epsilon_1": self.epsilon_1,
            "epsilon_2": self.epsilon_2,
            "clip_threshold": self.clip_threshold,
            "relative_step": self.relative_step,
        }


class Muon(_Moments):
    """Momentum of matrices, made orthogonal by Newton-Schulz iterations (Jordan, 2024); AdamW for all other weights.

    Args:
        learning_rate: a number, a schedule, or a function.
        adam_beta_1, adam_beta_2, adam_weight_decay, epsilon: AdamW's.
        weight_decay: of matrices.
        exclude_layers: regular expressions; weights whose paths contain a match get AdamW.
        exclude_embeddings: whether weights with "embedding" in their path get AdamW.
        muon_a, muon_b, muon_c: the coefficients of an iteration.
        adam_lr_ratio: AdamW's learning rate over that of matrices.
        momentum: the part of the momentum that stays in a step.
        ns_steps: the iterations.
        nesterov: whether the gradient is added to the momentum once more.
        rms_rate: steps are times this and the root of the longer side; None is neither.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([[1.0]])
    >>> keras.optimizers.Muon(learning_rate=0.1).apply([[[2.0]]], [weight])
    >>> print(weight.value.round(3))
    [[0.986]]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.775,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **base: Unpack[UndecayedArguments],
    ) -> None:
        super().__init__(learning_rate, adam_beta_1, adam_beta_2, epsilon, weight_decay=weight_decay, **base)
        self.adam_beta_1 = adam_beta_1
        self.adam_beta_2 = adam_beta_2
        self.adam_weight_decay = adam_weight_decay
        self.exclude_layers = list(exclude_layers or [])
        self.exclude_embeddings = exclude_embeddings
        self.muon_a = muon_a
        self.muon_b = muon_b
        self.muon_c = muon_c
        self.adam_lr_ratio = adam_lr_ratio
        self.momentum = momentum
        self.ns_steps = ns_steps
        self.nesterov = nesterov
        self.rms_rate = rms_rate

    def _is_other(self, weight: Variable) -> bool:
        """Return whether AdamW updates this weight."""
        if len(weight.shape) != 2 or (self.exclude_embeddings and "embedding" in weight.path.lower()):
            return True
        return any(re.search(pattern, weight.path) for pattern in self.exclude_layers)

    def slots(self) -> list[list[Slot]]:
        def of_others(weight: Variable) -> Any:
            other = self._is_other(weight) and not weight.overwrite_with_gradient
            return np.zeros(weight.shape, weight.dtype) if other else None

        return [[Slot("momentum"), Slot("velocity", of=of_others)]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        if self._is_other(variable):
            power_1, power_2 = self._powers(gradient)
            alpha = learning_rate * self.adam_lr_ratio * wnp.sqrt(1 - power_2) / (1 - power_1)
            momentum, velocity = self._averages(gradient, variable, 1 - self.beta_1, 1 - self.beta_2)
            variable.assign_sub(momentum * alpha / (wnp.sqrt(velocity) + self.epsilon))
            return
        slot = self.slot("momentum", variable)
        momentum = slot.assign_add(gradient + slot.value * (self.momentum - 1))
        update = learning_rate * self._orthogonal(gradient + self.momentum * momentum if self.nesterov else momentum)
        if self.rms_rate is not None:
            update = update * math.sqrt(max(update.shape)) * self.rms_rate
        variable.assign_sub(update)

    def _orthogonal(self, matrix: Array) -> Array:
        """Approximate the nearest orthogonal matrix."""
        tall = matrix.shape[0] > matrix.shape[1]
        x = matrix.T if tall else matrix
        x = x / (wnp.sqrt(wnp.sum(wnp.square(x))) + 1e-7)
        for _ in range(self.ns_steps):
            gram = x @ x.T
            x = self.muon_a * x + (self.muon_b * gram + self.muon_c * gram @ gram) @ x
        return x.T if tall else x

    def _apply_weight_decay(self, weights: Sequence[Variable]) -> None:
        for weight in weights:
            weight_decay = self.adam_weight_decay if self._is_other(weight) else self.weight_decay
            if weight_decay is not None:
                self._decay(weight, weight_decay)

    def get_config(self) -> dict[str, Any]:
        own = [
            "adam_beta_1",
            "adam_beta_2",
            "adam_weight_decay",
            "epsilon",
            "exclude_layers",
            "exclude_embeddings",
            "muon_a",
            "muon_b",
            "muon_c",
            "adam_lr_ratio",
            "momentum",
            "ns_steps",
            "nesterov",
            "rms_rate",
        ]
        return {**Optimizer.get_config(self), **{name: getattr(self, name) for name in own}}
