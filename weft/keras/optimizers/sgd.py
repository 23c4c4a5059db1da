"""Gradient descent, with momentum; and by signs of momentum (Lion)."""

from __future__ import annotations

from typing import Any, Unpack

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core.variable import Variable
from weft.keras.optimizers.base import BaseArguments, Optimizer
from weft.keras.optimizers.slots import Slot


class SGD(Optimizer):
    """w -= learning_rate * g; with momentum: v = momentum * v - learning_rate * g, w += v.

    The learning rate is in the velocity, so that a change of it acts little by little.

    Args:
        learning_rate: a number, a schedule, or a function.
        momentum: the part of the velocity that stays in a step.
        nesterov: whether weights change by momentum * v - learning_rate * g, with the new v.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> optimizer = keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     optimizer.apply([[1.0]], [weight])
    >>> print(weight.value)
    [0.71]
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, **base)
        if not 0 <= momentum <= 1:
            raise ArgumentError("SGD: `momentum` must be in [0, 1].", received=f"momentum={momentum}")
        self.momentum = momentum
        self.nesterov = nesterov

    def slots(self) -> list[list[Slot]]:
        return [[Slot("momentum")]] if self.momentum else []

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        step = gradient * learning_rate
        if not self.momentum:
            variable.assign_sub(step)
            return
        slot = self.slot("momentum", variable)
        velocity = slot.assign(slot.value * self.momentum - step)
        variable.assign_add(velocity * self.momentum - step if self.nesterov else velocity)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}


class Lion(Optimizer):
    """w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g), then m = beta_2 * m + (1 - beta_2) * g.

    All weights change by the same size, so that learning rates are 3 to 10 times smaller than for Adam (Chen et al.,
    2023).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_1: the part of the momentum in the direction of a step, in (0, 1].
        beta_2: the part of the momentum that stays in a step.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Lion(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.9]
    """

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.99, **base: Unpack[BaseArguments]
    ) -> None:
        super().__init__(learning_rate, **base)
        if not 0 < beta_1 <= 1:
            raise ArgumentError("Lion: `beta_1` must be in (0, 1].", received=f"beta_1={beta_1}")
        self.beta_1 = beta_1
        self.beta_2 = beta_2

    def slots(self) -> list[list[Slot]]:
        return [[Slot("momentum")]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        beta_1, beta_2 = (wnp.asarray(beta, gradient.dtype) for beta in (self.beta_1, self.beta_2))
        slot = self.slot("momentum", variable)
        variable.assign_sub(learning_rate * wnp.sign(slot.value * beta_1 + gradient * (1.0 - beta_1)))
        slot.assign(slot.value * beta_2 + gradient * (1.0 - beta_2))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2}
