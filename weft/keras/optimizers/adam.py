"""Adam and its relatives: averages of gradients and of their squares.

Keras adds epsilon to the root of the average that is not corrected for its start, so that results differ from
`weft.optim.adam` where gradients are of the size of epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core.variable import Variable
from weft.keras.optimizers.base import BaseArguments, Optimizer, UndecayedArguments
from weft.keras.optimizers.slots import Slot


class _Moments(Optimizer):
    """What has averages of gradients (momentum) and of their squares (velocity)."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, **base)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def slots(self) -> list[list[Slot]]:
        return [[Slot("momentum"), Slot("velocity")]]

    def _step(self, dtype: Any, ahead: int = 1) -> Array:
        """Return the index of this update, starting at 1, plus `ahead`."""
        return (wnp.asarray(self.iterations) + ahead).astype(dtype)

    def _averages(self, gradient: Array, variable: Variable, new_1: Any, new_2: Any) -> tuple[Array, Array]:
        """Update the averages of gradients and of their squares; `new_1` and `new_2` are the new values' weights."""
        momentum, velocity = self.slot("momentum", variable), self.slot("velocity", variable)
        return (
            momentum.assign_add((gradient - momentum.value) * new_1),
            velocity.assign_add((wnp.square(gradient) - velocity.value) * new_2),
        )

    def _powers(self, gradient: Array) -> tuple[Array, Array]:
        step = self._step(gradient.dtype)
        return wnp.power(wnp.asarray(self.beta_1, step.dtype), step), wnp.power(
            wnp.asarray(self.beta_2, step.dtype), step
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }


class Adam(_Moments):
    """w -= a * m / (sqrt(v) + epsilon), with averages m of gradients and v of their squares (Kingma and Ba, 2014), and
    a = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_1: the part of the average of gradients that stays in a step.
        beta_2: the part of the average of squares that stays in a step.
        epsilon: what is added to the root.
        amsgrad: whether the largest average of squares so far is used.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0, 1.0])
    >>> keras.optimizers.Adam(learning_rate=0.1).apply([[0.5, -2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.9 1.1]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **base)
        self.amsgrad = amsgrad

    def slots(self) -> list[list[Slot]]:
        return super().slots() + ([[Slot("velocity_hat")]] if self.amsgrad else [])

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        power_1, power_2 = self._powers(gradient)
        alpha = learning_rate * wnp.sqrt(1 - power_2) / (1 - power_1)
        momentum, velocity = self._averages(gradient, variable, 1 - self.beta_1, 1 - self.beta_2)
        if self.amsgrad:
            largest = self.slot("velocity_hat", variable)
            velocity = largest.assign(wnp.maximum(largest.value, velocity))
        variable.assign_sub(momentum * alpha / (wnp.sqrt(velocity) + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "amsgrad": self.amsgrad}


class AdamW(Adam):
    """Adam with weights that decay: w -= learning_rate * weight_decay * w before each update (Loshchilov and Hutter,
    2017).

    Args:
        learning_rate: a number, a schedule, or a function.
        weight_decay: how much weights decay, times the learning rate.
        beta_1, beta_2, epsilon, amsgrad: as of `Adam`.
        **base: the other arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.AdamW(learning_rate=0.1, weight_decay=0.5).apply([[1.0]], [weight])
    >>> print(weight.value.round(3))
    [0.85]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float | None = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **base: Unpack[UndecayedArguments],
    ) -> None:
        if weight_decay is None:
            raise ArgumentError(
                "AdamW needs a weight decay.", received="weight_decay=None", fix="keras.optimizers.Adam"
            )
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay=weight_decay, **base)


class Nadam(_Moments):
    """Adam with Nesterov's momentum, and beta_1 that grows with t: beta_1 * (1 - 0.96^t / 2) (Dozat, 2015).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_1, beta_2, epsilon: as of `Adam`.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Nadam(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.894]
    """

    def build(self, variables: Sequence[Variable]) -> None:
        first = not self.built
        super().build(variables)
        if first:
            dtype = variables[0].dtype if variables else None
            self._product = self.add_variable((), wnp.ones, dtype, name="momentum_product")

    def _momentum_at(self, step: Array) -> Array:
        return self.beta_1 * (1.0 - 0.5 * wnp.power(wnp.asarray(0.96, step.dtype), step))

    def update_all(self, gradients: Sequence[Any], variables: Sequence[Variable], learning_rate: Any) -> None:
        """Change all weights, after the product of all momenta so far."""
        product = self._product
        product.assign(product.value * self._momentum_at(self._step(product.dtype)))
        super().update_all(gradients, variables, learning_rate)

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        dtype = gradient.dtype
        now, following = self._momentum_at(self._step(dtype)), self._momentum_at(self._step(dtype, 2))
        product = self._product.value.astype(dtype)
        # Keras subtracts from 1 after rounding here, and before in Adam: 1 - beta_2 differs in the fifth digit.
        rounded = [wnp.asarray(beta, dtype) for beta in (self.beta_1, self.beta_2)]
        momentum, velocity = self._averages(gradient, variable, 1 - rounded[0], 1 - rounded[1])
        mean = following * momentum / (1 - product * following) + (1 - now) * gradient / (1 - product)
        square = velocity / (1 - self._powers(gradient)[1])
        variable.assign_sub(mean * learning_rate / (wnp.sqrt(square) + self.epsilon))


class Adamax(_Moments):
    """Adam with the largest gradient instead of the average of squares: u = max(beta_2 * u, |g|),
    w -= learning_rate * m / ((1 - beta_1^t) * (u + epsilon)) (Kingma and Ba, 2014).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_1, beta_2, epsilon: as of `Adam`.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Adamax(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.9]
    """

    def slots(self) -> list[list[Slot]]:
        return [[Slot("momentum"), Slot("norm")]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        momentum, norm = self.slot("momentum", variable), self.slot("norm", variable)
        mean = momentum.assign_add((gradient - momentum.value) * (1 - self.beta_1))
        largest = norm.assign(wnp.maximum(self.beta_2 * norm.value, wnp.abs(gradient)))
        correction = 1 - self._powers(gradient)[0]
        variable.assign_sub(learning_rate * mean / (correction * (largest + self.epsilon)))


class Lamb(_Moments):
    """Adam whose step for each weight is as long as the weight, times the learning rate (You et al., 2019).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_1, beta_2, epsilon: as of `Adam`.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.Lamb(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.9]
    """

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        power_1, power_2 = self._powers(gradient)
        momentum, velocity = self._averages(gradient, variable, 1 - self.beta_1, 1 - self.beta_2)
        update = momentum / (1.0 - power_1) / (wnp.sqrt(velocity / (1.0 - power_2)) + self.epsilon)
        of_weight, of_update = (wnp.sqrt(wnp.sum(wnp.square(value))) for value in (variable.value, update))
        both = (of_weight > 0) & (of_update > 0)
        ratio = wnp.where(both, of_weight / wnp.where(both, of_update, 1.0), 1.0)
        variable.assign_sub(ratio * learning_rate * update)


class ScheduleFreeAdamW(_Moments):
    """Adam without a schedule: the weights are between a fast sequence (the slot `momentum`) and its average (Defazio
    et al., 2024).

    Args:
        learning_rate: a number, a schedule, or a function.
        beta_1: how far the weights are at the average.
        beta_2, epsilon: as of `Adam`.
        warmup_steps: over how many steps the learning rate grows.
        **base: the arguments of `Optimizer`.

    >>> from weft import keras
    >>> weight = keras.Variable([1.0])
    >>> keras.optimizers.ScheduleFreeAdamW(learning_rate=0.1).apply([[2.0]], [weight])
    >>> print(weight.value.round(3))
    [0.9]
    """

    def __init__(
        self,
        learning_rate: Any = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        **base: Unpack[BaseArguments],
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **base)
        self.warmup_steps = warmup_steps

    def slots(self) -> list[list[Slot]]:
        def start(weight: Variable) -> Any:
            return None if weight.overwrite_with_gradient else weight.value

        return [[Slot("momentum", of=start), Slot("velocity")]]

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        step = self._step(gradient.dtype)
        if self.warmup_steps > 0:
            learning_rate = learning_rate * wnp.minimum(step / self.warmup_steps, 1.0)
        fast, squares = self.slot("momentum", variable), self.slot("velocity", variable)
        beta_1, beta_2 = (wnp.asarray(beta, gradient.dtype) for beta in (self.beta_1, self.beta_2))
        before = fast.value
        velocity = squares.assign_add((wnp.square(gradient) - squares.value) * (1 - beta_2))
        correction = 1 - wnp.power(beta_2, step)
        after = fast.assign_sub(learning_rate * gradient / (wnp.sqrt(velocity / correction) + self.epsilon))
        average = (variable.value - (1 - beta_1) * before) / beta_1
        average = (1 - 1 / step) * average + 1 / step * after
        variable.assign((1 - beta_1) * after + beta_1 * average)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "warmup_steps": self.warmup_steps}
