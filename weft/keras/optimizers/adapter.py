"""An optimizer of `weft.optim` as one of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import weft
import weft.numpy as wnp
from weft import optim, tree_util
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core.context import is_tracer
from weft.keras.core.layouts import sharding_beside
from weft.keras.core.variable import Variable
from weft.keras.optimizers import clipping
from weft.keras.optimizers.base import BaseArguments, Optimizer


def is_transformation(value: Any) -> bool:
    """Return whether a value is a gradient transformation: of `weft.optim`, or an object with `init` and `update`."""
    if isinstance(value, (Optimizer, type)):
        return False
    return isinstance(value, optim.GradientTransformation) or (
        callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))
    )


class TransformOptimizer(Optimizer):
    """A gradient transformation whose state is in variables. `optimizers.get` makes one of what `weft.optim` returns.

    The transformation has its own learning rate, so that there is no attribute `learning_rate`. The arrays of its state
    are found by the paths of the weights: after a layer is frozen or unfrozen, those of other weights stay.

    Args:
        transformation: what is applied to gradients.
        **base: the arguments of `Optimizer`, which act before the transformation.

    >>> from weft import keras, optim
    >>> weight = keras.Variable([1.0])
    >>> optimizer = keras.optimizers.get(optim.sgd(0.5, momentum=0.9))
    >>> optimizer.apply([[1.0]], [weight])
    >>> print(weight.value)
    [0.5]
    """

    def __init__(self, transformation: optim.GradientTransformation, **base: Unpack[BaseArguments]) -> None:
        base.setdefault("name", None)
        super().__init__(_no_rate, **base)
        if base.get("weight_decay") is not None:
            raise ArgumentError(
                "A transformation has no learning rate that weights could decay by.",
                received=f"weight_decay={base['weight_decay']}",
                fix="use `optim.add_decayed_weights`, or a transformation such as `optim.adamw`",
            )
        self.transformation = transformation
        self._state: Any = None
        self._leaves: dict[str, Variable] = {}

    def build(self, variables: Sequence[Variable]) -> None:
        weights = list(variables)
        super().build(weights)
        if not self._leaves or [id(weight) for weight in weights] != self._current:
            self._arrange(weights)

    def _arrange(self, weights: list[Variable]) -> None:
        """Create variables for the state of exactly these weights; existing variables that fit are reused."""
        self._current = [id(weight) for weight in weights]
        self._keys = _unique([weight.path for weight in weights])
        # In a step that builds its model too, values are traced, but the state outlives the trace.
        values = [weight._value if is_tracer(weight.value) else weight.value for weight in weights]
        with weft.ensure_compile_time_eval():
            state = self.transformation.init(dict(zip(self._keys, values, strict=True)))
        flat, self._state = tree_util.tree_flatten_with_path(state)
        old, self._leaves = self._leaves, {}
        replaced = {id(variable) for variable in old.values()}
        self._layout = [entry for entry in self._layout if id(entry) not in replaced]
        by_key = dict(zip(self._keys, weights, strict=True))
        for path, leaf in flat:
            name = tree_util.keystr(path).replace("/", "_")
            with weft.ensure_compile_time_eval():
                value = wnp.asarray(leaf)
            found = old.get(name)
            if found is None or found.shape != value.shape:
                # What is beside a weight is split like it.
                weight = next((by_key[key.key] for key in path if getattr(key, "key", None) in by_key), None)
                layout = None if weight is None else sharding_beside(weight, value.shape)
                found = self._variable(value, None, None, name, layout=layout)
            self._leaves[name] = found
            self._layout.append(found)

    def update_all(self, gradients: Sequence[Any], variables: Sequence[Variable], learning_rate: Any) -> None:
        """Change all weights by the transformation."""
        if [id(weight) for weight in variables] != self._current:
            raise ArgumentError(
                "A transformation of weft.optim must be applied to all the weights that it was built with.",
                received=f"{len(variables)} weights, of {len(self._current)}",
                fix="call `optimizer.build(variables)` with the weights that are to change from now on",
            )
        values = dict(zip(self._keys, (weight.value for weight in variables), strict=True))
        state = tree_util.tree_unflatten(self._state, [leaf.value for leaf in self._leaves.values()])
        updates, state = self.transformation.update(dict(zip(self._keys, gradients, strict=True)), state, values)
        for leaf, value in zip(self._leaves.values(), tree_util.tree_leaves(state), strict=True):
            leaf.assign(value)
        new = optim.apply_updates(values, updates)
        for key, weight in zip(self._keys, variables, strict=True):
            weight.assign(new[key])

    @property
    def learning_rate(self) -> Any:
        """Raise `AttributeError`: the transformation has the learning rate."""
        raise AttributeError(
            f"{self.name} has no `learning_rate`: it is a transformation of weft.optim, which has its own"
        )

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        raise AttributeError(
            f"{self.name} has no `learning_rate`: it is a transformation of weft.optim, which has its own"
        )

    def get_config(self) -> dict[str, Any]:
        raise NotSupportedError(
            "A transformation of weft.optim is made of functions, which files cannot hold.",
            fix=["save the weights only", "use an optimizer of weft.keras.optimizers", "pass it again after loading"],
        )

    def _update(self, gradients: list[Any], weights: list[Variable]) -> None:
        from_limits = (self.clipnorm, self.global_clipnorm, self.clipvalue)
        self.update_all(clipping.clip(gradients, *from_limits), weights, None)


def _no_rate() -> float:
    return 0.0


def _unique(paths: Sequence[str]) -> list[str]:
    """Append a count to each path that occurred before."""
    counts: dict[str, int] = {}
    result: list[str] = []
    for path in paths:
        counts[path] = counts.get(path, 0) + 1
        result.append(path if counts[path] == 1 else f"{path} ({counts[path]})")
    return result
