"""`Metric`: variables that batches are accumulated in, and a result that is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import config, names, policy, registry
from weft.keras.core.scope import StatelessScope, stateless, values_in
from weft.keras.core.variable import Variable


class Metric:
    """A value over batches: `update_state` accumulates one, `result` computes the value, `reset_state` begins anew.

    Subclasses create variables in `__init__` with `add_variable`, assign to them in `update_state`, and return what
    they compute from them in `result`. A metric that is an attribute of another belongs to it: its variables are among
    the other's, and it is reset with it.

    Args:
        dtype: of variables and results; the global float type if None. A policy or its name also does.
        name: what histories call it; else the class' name in snake case.

    >>> import weft.numpy as wnp
    >>> from weft import keras
    >>> class Largest(keras.metrics.Metric):
    ...     def __init__(self, name="largest", dtype=None):
    ...         super().__init__(dtype=dtype, name=name)
    ...         self.value = self.add_variable(shape=(), initializer="zeros", name="value")
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         self.value.assign(wnp.maximum(self.value.value, wnp.max(y_pred)))
    ...     def result(self):
    ...         return self.value.value
    >>> metric = Largest()
    >>> metric.update_state(None, wnp.array([1.0, 3.0]))
    >>> print(metric.result())
    3.0
    """

    # Whether a larger value is better ("up") or a smaller one ("down"): for callbacks with mode="auto".
    _direction: str | None = None

    def __init__(self, dtype: Any = None, name: str | None = None) -> None:
        self._variables: list[Variable] = []
        self._metrics: list[Metric] = []
        self.name = name or names.auto_name(type(self).__name__)
        self._dtype_policy = policy.get_policy(dtype or config.floatx())
        self._dtype = self._dtype_policy.compute_dtype

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Variable, Metric)):
            self._track(value)
        super().__setattr__(name, value)

    def _track(self, value: Variable | Metric) -> None:
        if "_variables" not in vars(self):
            raise ArgumentError(
                f"{type(self).__name__} must be initialized before its attributes are set.",
                fix="call `super().__init__()` first in `__init__`",
            )
        tracked: list[Any] = self._variables if isinstance(value, Variable) else self._metrics
        if not any(value is one for one in tracked):
            tracked.append(value)

    @property
    def dtype(self) -> str:
        """The dtype of variables and results."""
        return self._dtype

    @property
    def variables(self) -> list[Variable]:
        """Own variables as they were created, then those of the metrics inside."""
        for name, value in list(vars(self).items()):
            if isinstance(value, (list, tuple, dict)) and name not in ("_variables", "_metrics"):
                for member in weft.tree.leaves(value, is_leaf=lambda leaf: isinstance(leaf, (Variable, Metric))):
                    if isinstance(member, (Variable, Metric)):
                        self._track(member)
        return self._variables + [variable for metric in self._metrics for variable in metric.variables]

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str = "sum",
        name: str | None = None,
    ) -> Variable:
        """Add a variable to the metric.

        Args:
            shape: its shape.
            initializer: an array, a function of (shape, dtype), or the name of an initializer.
            dtype: its dtype; the global float type if None.
            aggregation: how replicas are put together.
            name: the last part of its path.

        Returns:
            the variable.
        """
        with names.name_scope(self.name.replace("/", ">"), caller=self):
            variable = Variable(
                wnp.zeros if initializer in ("zeros", None) else initializer,
                shape=tuple(shape),
                dtype=dtype or config.floatx(),
                trainable=False,
                aggregation=aggregation,
                name=name,
            )
        self._track(variable)
        return variable

    def add_weight(
        self, shape: Sequence[int] = (), initializer: Any = None, dtype: Any = None, name: str | None = None
    ) -> Variable:
        """Add a variable to the metric, by default a scalar; otherwise as `add_variable`."""
        return self.add_variable(shape, initializer, dtype, name=name)

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        """Accumulate a batch. To be defined by subclasses."""
        raise NotSupportedError(f"{type(self).__name__} does not define `update_state(y_true, y_pred, sample_weight)`.")

    def result(self) -> Any:
        """Compute the value over all batches so far. Subclasses define it."""
        raise NotSupportedError(f"{type(self).__name__} does not define `result()`.")

    def reset_state(self) -> None:
        """Begin anew: all variables become 0."""
        for variable in self.variables:
            variable.assign(wnp.zeros(variable.shape, variable.dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.update_state(*args, **kwargs)
        return values_in(self.result())

    def _check_values(self, metric_variables: Sequence[Any]) -> list[Any]:
        values, variables = list(metric_variables), self.variables
        if len(values) != len(variables):
            raise ArgumentError(
                f"There must be one value for each of the {len(variables)} variables of {self.name}.",
                received=f"{len(values)} values",
                fix="pass [variable.value for variable in metric.variables]",
            )
        return values

    def stateless_update_state(self, metric_variables: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Run `update_state` as a function of the variables' values; the variables are unchanged.

        Args:
            metric_variables: a value for each of `variables`.
            *args, **kwargs: those of `update_state`.

        Returns:
            the new values.

        >>> import weft.numpy as wnp
        >>> from weft import keras
        >>> import weft
        >>> metric = keras.metrics.Mean()
        >>> print(*weft.jit(metric.stateless_update_state)([0.0, 0.0], wnp.array([1.0, 3.0])))
        4.0 2.0
        """
        values = self._check_values(metric_variables)
        return stateless(self.update_state, self.variables)(values, *args, **kwargs)[1]

    def stateless_result(self, metric_variables: Sequence[Any]) -> Any:
        """Run `result` as a function of a value for each of `variables`."""
        values = self._check_values(metric_variables)
        return stateless(self.result, self.variables)(values)[0]

    def stateless_reset_state(self) -> list[Any]:
        """Return the values that `variables` have after `reset_state`."""
        with StatelessScope() as scope:
            self.reset_state()
            return [
                variable.value if (value := scope.get_current_value(variable)) is None else value
                for variable in self.variables
            ]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {"name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Construct a metric from a config of `get_config`."""
        # Arrays are dicts in files.
        return cls(
            **{
                name: registry.deserialize_keras_object(value) if isinstance(value, Mapping) else value
                for name, value in config.items()
            }
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"
