"""Optimizers that divide by the root of a sum or an average of squared gradients."""

from __future__ import annotations

from typing import Any, Unpack

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core.variable import Variable
from weft.keras.optimizers.base import BaseArguments, Optimizer
from weft.keras.optimizers.slots import Slot, constant


class RMSprop(Optimizer):
    """w -= learning_rate * g / sqrt(v + epsilon), with an average v of squared gradients.

    Args:
        learning_rate: a number, a schedule, or a function.
        rho: the part of the average that stays in a step.
        momentum: the part of the last step that is added to the next.
        epsilon: what is added under the root.
        centered: whether the square of the average gradient is subtracted from v: then it is a variance.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.RMSprop(learning_rate=0.1, rho=0.75).apply([[2.0]], [weight])
    >>> print(weight.value)
    [0.8]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, **base)
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered

    def slots(self) -> list[list[Slot]]:
        optional = [("momentum", self.momentum > 0), ("average_gradient", self.centered)]
        return [[Slot("velocity")], *([Slot(name)] for name, used in optional if used)]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        velocity = self.slot("velocity", variable)
        square = velocity.assign(self.rho * velocity.value + (1 - self.rho) * wnp.square(gradient))
        if self.centered:
            average = self.slot("average_gradient", variable)
            mean = average.assign(self.rho * average.value + (1 - self.rho) * gradient)
            square = square - wnp.square(mean)
        step = learning_rate * gradient / wnp.sqrt(square + self.epsilon)
        if self.momentum > 0:
            momentum = self.slot("momentum", variable)
            step = momentum.assign(self.momentum * momentum.value + step)
        variable.assign_sub(step)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "centered": self.centered,
        }


class Adagrad(Optimizer):
    """w -= learning_rate * g / sqrt(a + epsilon), with the sum a of all squared gradients (Duchi et al., 2011).

    Args:
        learning_rate: a number, a schedule, or a function.
        initial_accumulator_value: what the sum starts with.
        epsilon: what is added under the root.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Adagrad(learning_rate=0.1, initial_accumulator_value=0.0).apply([[2.0]], [weight])
    >>> print(weight.value)
    [0.9]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, **base)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def slots(self) -> list[list[Slot]]:
        return [[Slot("accumulator", constant(self.initial_accumulator_value))]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        total = self.slot("accumulator", variable).assign_add(wnp.square(gradient))
        variable.assign_sub(learning_rate * gradient / wnp.sqrt(total + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }


class Adadelta(Optimizer):
    """w -= learning_rate * g * sqrt(d + epsilon) / sqrt(a + epsilon), with averages a of squared gradients and d of
    squared steps (Zeiler, 2012).

    Args:
        learning_rate: a number, a schedule, or a function.
        rho: the part of the averages that stays in a step.
        epsilon: what is added under the roots.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Adadelta(learning_rate=1.0).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.999]
    """

    def __init__(
        self, learning_rate: Any = 0.001, rho: float = 0.95, epsilon: float = 1e-7, **base: Unpack[BaseArguments]
    ) -> None:
        super().__init__(learning_rate, **base)
        self.rho = rho
        self.epsilon = epsilon

    def slots(self) -> list[list[Slot]]:
        return [[Slot("accumulated_grad"), Slot("accumulated_delta_var")]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        rho = self.rho
        gradients, steps = self.slot("accumulated_grad", variable), self.slot("accumulated_delta_var", variable)
        square = gradients.assign(rho * gradients.value + (1 - rho) * wnp.square(gradient))
        step = -wnp.sqrt(steps.value + self.epsilon) * gradient / wnp.sqrt(square + self.epsilon)
        steps.assign(rho * steps.value + (1 - rho) * wnp.square(step))
        variable.assign_add(learning_rate * step)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rho": self.rho, "epsilon": self.epsilon}


class Ftrl(Optimizer):
    """Follow the regularized leader (McMahan et al., 2013): for sparse features, weights may be exactly 0.

    Args:
        learning_rate: a number, a schedule, or a function.
        learning_rate_power: how fast the learning rate falls with the sum of squares: 0 not at all, -1/2 as its root.
        initial_accumulator_value: what the sum of squares starts with.
        l1_regularization_strength: the larger, the more weights are 0.
        l2_regularization_strength: the larger, the smaller weights are.
        l2_shrinkage_regularization_strength: as l2, but by gradients: old weights shrink.
        beta: what is added to l2, over twice the learning rate.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Ftrl(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.745]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, **base)
        strengths = {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        for name, value in strengths.items():
            if value < 0:
                raise ArgumentError(f"Ftrl: `{name}` is not negative.", received=f"{name}={value}")
        if learning_rate_power > 0:
            raise ArgumentError("Ftrl: `learning_rate_power` is at most 0.", received=f"{learning_rate_power}")
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def slots(self) -> list[list[Slot]]:
        return [[Slot("accumulator", constant(self.initial_accumulator_value)), Slot("linear")]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        accumulator, linear = self.slot("accumulator", variable), self.slot("linear", variable)
        weight, old, power = variable.value, accumulator.value, -self.learning_rate_power
        new = old + wnp.square(gradient)
        shrunk = gradient + 2 * self.l2_shrinkage_regularization_strength * weight
        total = linear.assign_add(shrunk - (wnp.power(new, power) - wnp.power(old, power)) / learning_rate * weight)
        l2 = self.l2_regularization_strength + self.beta / (2.0 * learning_rate)
        quadratic = wnp.power(new, power) / learning_rate + 2 * l2
        l1 = self.l1_regularization_strength
        variable.assign((wnp.clip(total, -l1, l1) - total) / quadratic)
        accumulator.assign(new)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "learning_rate_power": self.learning_rate_power,
            "initial_accumulator_value": self.initial_accumulator_value,
            "l1_regularization_strength": self.l1_regularization_strength,
            "l2_regularization_strength": self.l2_regularization_strength,
            "l2_shrinkage_regularization_strength": self.l2_shrinkage_regularization_strength,
            "beta": self.beta,
        }
