"""Training in float16: a loss times a large number, so that small gradients are not 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.variable import Variable
from weft.keras.optimizers.base import Optimizer, run_one

_OF_INNER = (
    "weight_decay",
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


class LossScaleOptimizer(Optimizer):
    """Another optimizer, of a loss that is multiplied by a scale as large as gradients allow.

    A step whose gradients are not all finite changes nothing, and halves the scale; after `dynamic_growth_steps` steps
    with finite gradients it is doubled.

    Args:
        inner_optimizer: what updates the weights, by gradients divided by the scale.
        initial_scale: the scale at first.
        dynamic_growth_steps: after how many steps it is doubled.
        name: the first part of the paths of its variables.

    >>> from weft import keras
    >>> optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0)
    >>> weight = keras.Variable([1.0])
    >>> optimizer.build([weight])
    >>> optimizer.apply([[8.0]])
    >>> optimizer.apply([[float("inf")]])
    >>> print(weight.value, optimizer.dynamic_scale.value)
    [0.5] 4.0
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not kwargs.pop("dynamic", True):
            raise ArgumentError(
                "`dynamic` must be True: the scale of LossScaleOptimizer changes.",
                received="dynamic=False",
                fix="for a fixed one pass `loss_scale_factor=` to the optimizer itself",
            )
        if kwargs:
            raise ArgumentError(
                "These arguments must be passed to the inner optimizer.",
                received=", ".join(f"{key}=" for key in kwargs),
            )
        if not isinstance(inner_optimizer, Optimizer):
            raise ArgumentError("`inner_optimizer` must be an Optimizer.", received=f"{inner_optimizer!r}")
        super().__init__(0.0, name=name)
        self.inner_optimizer = inner_optimizer
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        inner_optimizer.loss_scale_factor = None

    def build(self, variables: Sequence[Variable]) -> None:
        if not self.built:
            self.step_counter = self.add_variable((), dtype="int32", name="step_counter")
            self.dynamic_scale = self.add_variable(
                (), lambda shape, dtype: wnp.full(shape, self.initial_scale, dtype), "float32", name="dynamic_scale"
            )
        self.inner_optimizer.build(variables)
        super().build(variables)

    def distribute(self) -> None:
        super().distribute()
        self.inner_optimizer.distribute()

    @property
    def variables(self) -> list[Variable]:
        """Its own variables, then those of the inner optimizer."""
        return super().variables + self.inner_optimizer.variables

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> Any:
        """The inner optimizer's: how many updates there were."""
        return self.inner_optimizer.iterations

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None) -> None:
        """Update the weights from gradients of the scaled loss."""
        weights = self._weights(grads, trainable_variables)
        self.inner_optimizer.build(weights)
        gradients = [None if gradient is None else wnp.asarray(gradient) for gradient in grads]
        finite = self.check_finite(gradients)

        def step() -> None:
            scale = self.dynamic_scale.value
            unscaled = [
                g if g is None or w.overwrite_with_gradient else g.astype(w.dtype) / scale.astype(w.dtype)
                for g, w in zip(gradients, weights, strict=True)
            ]
            self.inner_optimizer.apply(unscaled, weights)
            grown = self.step_counter.value == self.dynamic_growth_steps - 1
            self.dynamic_scale.assign(wnp.where(grown, scale * 2.0, scale))
            self.step_counter.assign(wnp.where(grown, 0, self.step_counter.value + 1))

        def skip() -> None:
            self.step_counter.assign(0)
            self.dynamic_scale.assign(self.dynamic_scale.value * 0.5)

        run_one(finite, step, skip, [*weights, *self.variables])

    def check_finite(self, grads: Iterable[Any]) -> Array:
        """Return whether all gradients are finite."""
        finite = [wnp.all(wnp.isfinite(gradient)) for gradient in grads if gradient is not None]
        return wnp.all(wnp.stack(finite))

    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by the present scale."""
        return loss * (self.dynamic_scale.value if self.built else self.initial_scale)

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """Finalize the weights of the inner optimizer at the end of training."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inner_optimizer": registry.serialize_keras_object(self.inner_optimizer),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Self:
        """Construct an optimizer from a config of `get_config`."""
        # Keras once wrote the arguments that belong to the inner optimizer, with their defaults.
        settings = {name: value for name, value in config.items() if name not in _OF_INNER}
        settings["inner_optimizer"] = registry.deserialize_keras_object(
            settings["inner_optimizer"], custom_objects, kind="optimizers"
        )
        return cls(**settings)
