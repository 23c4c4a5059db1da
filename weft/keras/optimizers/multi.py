"""Different optimizers for different weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Self

from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.core.variable import Variable
from weft.keras.optimizers.base import Optimizer
from weft.keras.optimizers.loss_scale import LossScaleOptimizer


class OptimizerMap(MutableMapping[str, Optimizer]):
    """Which optimizer is for which weight: by regular expressions that match whole paths.

    Args:
        default_optimizer: for weights without an entry.
        optimizer_map: optimizers by paths or regular expressions.

    >>> from weft import keras
    >>> optimizers = keras.optimizers
    >>> table = optimizers.OptimizerMap(optimizers.Adam(), {".*bias": optimizers.SGD()})
    >>> type(table["dense/bias"]).__name__, type(table["dense/kernel"]).__name__
    ('SGD', 'Adam')
    """

    def __init__(self, default_optimizer: Optimizer, optimizer_map: Mapping[str, Optimizer] | None = None) -> None:
        if not isinstance(default_optimizer, Optimizer):
            raise ArgumentError("`default_optimizer` must be an Optimizer.", received=f"{default_optimizer!r}")
        self._default = default_optimizer
        self._map: dict[str, Optimizer] = {}
        for key, optimizer in (optimizer_map or {}).items():
            self[key] = optimizer

    @property
    def default_optimizer(self) -> Optimizer:
        """The optimizer of weights without an entry."""
        return self._default

    def __getitem__(self, key: str) -> Optimizer:
        if key in self._map:
            return self._map[key]
        fitting = [pattern for pattern in self._map if re.fullmatch(pattern, key)]
        if len(fitting) > 1:
            raise ArgumentError(f"At most one entry must match the weight {key}.", received=", ".join(fitting))
        return self._map[fitting[0]] if fitting else self._default

    def __setitem__(self, key: str, optimizer: Optimizer) -> None:
        if not isinstance(key, str) or key in self._map:
            raise ArgumentError("A key must be a string that is not in the map yet.", received=f"{key!r}")
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, (LossScaleOptimizer, MultiOptimizer)):
            raise ArgumentError(
                "An entry must be an Optimizer other than LossScaleOptimizer and MultiOptimizer.",
                received=f"{optimizer!r}",
            )
        self._map[key] = optimizer

    def __delitem__(self, key: str) -> None:
        del self._map[key]

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __call__(self, variable: Variable) -> Optimizer:
        return self[variable.path]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            "default_optimizer": registry.serialize_keras_object(self._default),
            "optimizer_map": {key: registry.serialize_keras_object(value) for key, value in self._map.items()},
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Self:
        """Construct a map from a config of `get_config`."""
        read = lambda value: registry.deserialize_keras_object(value, custom_objects, kind="optimizers")
        return cls(
            read(config["default_optimizer"]), {key: read(value) for key, value in config["optimizer_map"].items()}
        )


class MultiOptimizer(Optimizer):
    """Updates each weight by the optimizer that is for it.

    Args:
        optimizer_map: an `OptimizerMap`, or a function from weights to optimizers.
        loss_scale_factor: that of all of them.
        name: the first part of the paths of its variables.

    >>> from weft import keras
    >>> optimizers = keras.optimizers
    >>> table = optimizers.OptimizerMap(optimizers.SGD(0.5), {"slow": optimizers.SGD(0.1)})
    >>> weights = [keras.Variable(1.0, name=name) for name in ("fast", "slow")]
    >>> optimizers.MultiOptimizer(table).apply([1.0, 1.0], weights)
    >>> print(*(weight.value for weight in weights))
    0.5 0.9
    """

    def __init__(
        self,
        optimizer_map: Callable[[Variable], Optimizer],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(0.0, name=name, loss_scale_factor=loss_scale_factor)
        self._map = optimizer_map
        self._optimizers: list[Optimizer] = []
        if isinstance(optimizer_map, OptimizerMap):
            for optimizer in (*optimizer_map.values(), optimizer_map.default_optimizer):
                self._position(optimizer)

    @property
    def loss_scale_factor(self) -> float | None:
        """What the loss is multiplied with, for all optimizers."""
        return self._scale

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._scale = value
        # The base class sets it before there are optimizers.
        for optimizer in getattr(self, "_optimizers", ()):
            optimizer.loss_scale_factor = value

    def _position(self, optimizer: Optimizer) -> int:
        for i, known in enumerate(self._optimizers):
            if known is optimizer:
                return i
        optimizer.loss_scale_factor = self._scale
        self._optimizers.append(optimizer)
        return len(self._optimizers) - 1

    def _by_optimizer(self, weights: Iterable[Variable]) -> list[list[int]]:
        """Return for each optimizer the indices of its weights."""
        positions = [self._position(self._map(weight)) for weight in weights]
        return [[i for i, one in enumerate(positions) if one == j] for j in range(len(self._optimizers))]

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers."""
        return list(self._optimizers)

    @property
    def variables(self) -> list[Variable]:
        """Its own variables, then those of the optimizers."""
        return super().variables + [variable for one in self._optimizers for variable in one.variables]

    @property
    def learning_rate(self) -> Any:
        """Raise `AttributeError`: each of the optimizers has a learning rate."""
        raise AttributeError(f"{self.name} has no `learning_rate`: each of its `optimizers` has one")

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        raise AttributeError(f"{self.name} has no `learning_rate`: each of its `optimizers` has one")

    def build(self, variables: Sequence[Variable]) -> None:
        weights = list(variables)
        for optimizer, indices in zip(self._optimizers, self._by_optimizer(weights), strict=False):
            if indices:
                optimizer.build([weights[i] for i in indices])
        super().build(weights)

    def distribute(self) -> None:
        super().distribute()
        for optimizer in self._optimizers:
            optimizer.distribute()

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None) -> None:
        """Update the weights of each optimizer."""
        if len(grads) == 0:
            return
        weights = self._weights(grads, trainable_variables)
        for optimizer, indices in zip(self._optimizers, self._by_optimizer(weights), strict=True):
            if indices:
                optimizer.apply([grads[i] for i in indices], [weights[i] for i in indices])
        self._iterations.assign_add(1)

    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by `loss_scale_factor`."""
        return loss if self._scale is None else loss * self._scale

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """Finalize the weights of each optimizer at the end of training."""
        weights = list(var_list)
        for optimizer, indices in zip(self._optimizers, self._by_optimizer(weights), strict=True):
            optimizer.finalize_variable_values([weights[i] for i in indices])

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer_map": registry.serialize_keras_object(self._map),
            "loss_scale_factor": self._scale,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Self:
        """Construct an optimizer from a config of `get_config`."""
        described = registry.deserialize_keras_object(config["optimizer_map"], custom_objects, kind="optimizers")
        return cls(**{**config, "optimizer_map": described})
