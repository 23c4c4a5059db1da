"""`Optimizer`: what all optimizers do around their update rule."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict

import numpy as np

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core import config, names, registry
from weft.keras.core.layouts import sharding_beside
from weft.keras.core.scope import stateless
from weft.keras.core.variable import Variable
from weft.keras.optimizers import clipping
from weft.keras.optimizers.schedules.base import LearningRateSchedule
from weft.keras.optimizers.slots import Group, Slot


class UndecayedArguments(TypedDict, total=False):
    """The arguments that all optimizers take, but for the decay of weights; see `Optimizer`."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None


class BaseArguments(UndecayedArguments, total=False):
    """The arguments that all optimizers take; see `Optimizer`."""

    weight_decay: float | None


class Optimizer:
    """Changes weights by their gradients. Optimizers define `update_step`, and `slots` for what they remember.

    One step is: gradients that are None are left out; the others are divided by `loss_scale_factor`, accumulated,
    clipped; weights decay; the update rule is applied; averages of the weights are updated; constraints are applied;
    the iteration is counted.

    Args:
        learning_rate: a number, a `LearningRateSchedule`, or a function (of the iteration, or of nothing).
        weight_decay: weights shrink by this times the learning rate in each step, before the update.
        clipnorm: the largest norm of the gradient of each weight.
        clipvalue: the largest absolute value of gradients.
        global_clipnorm: the largest norm of all gradients together. At most one of the three may be set.
        use_ema: whether an exponential moving average of the weights is computed, which they become at the end.
        ema_momentum: the part of the average that stays in a step.
        ema_overwrite_frequency: after how many steps each the weights become their average; None is not before the end.
        loss_scale_factor: what the loss is multiplied with (`scale_loss`) and gradients are divided by.
        gradient_accumulation_steps: in how many steps each there is one update, by the mean of their gradients.
        name: the first part of the paths of its variables.
        **kwargs: nothing; `decay` is ignored with a warning.

    >>> from weft import keras
    >>> class Descent(keras.optimizers.Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         variable.assign_sub(learning_rate * gradient)
    >>> weight = keras.Variable([1.0])
    >>> Descent(learning_rate=0.25).apply([[2.0]], [weight])
    >>> print(weight.value)
    [0.5]
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("build")
        if own is None:
            return

        @functools.wraps(own)
        def build(self: Optimizer, variables: Any) -> None:
            # Classes in Keras' style return where they are built; weights that are new need slots all the same.
            own(self, variables)
            self._extend(variables)

        cls.build = build  # type: ignore[method-assign]

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        # Variables and groups of slots, in the order of files.
        self._layout: list[Variable | Group] = []
        if kwargs.pop("decay", None) is not None:
            warnings.warn("`decay` is ignored; use a schedule as learning rate", stacklevel=3)
        if kwargs:
            raise ArgumentError(
                f"{type(self).__name__} has no such arguments.", received=", ".join(f"{key}=" for key in kwargs)
            )
        _check_settings(clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum, gradient_accumulation_steps)
        if ema_overwrite_frequency is not None and ema_overwrite_frequency < 1:
            raise ArgumentError(
                "`ema_overwrite_frequency` is at least 1, or None.", received=f"{ema_overwrite_frequency}"
            )
        self.name = name or names.auto_name(type(self).__name__)
        self.weight_decay = weight_decay
        self.clipnorm = clipnorm
        self.clipvalue = clipvalue
        self.global_clipnorm = global_clipnorm
        self.use_ema = use_ema
        self.ema_momentum = ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        self.loss_scale_factor = loss_scale_factor
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.built = False
        self._trainable_variables: list[Variable] = []
        self._index: dict[int, int] = {}
        self._groups: dict[str, tuple[Group, int]] = {}
        self._has_foreign_slots = False
        self._undecayed: set[int] = set()
        self._undecayed_names: str | None = None
        with self._scope():
            self._iterations = Variable(
                0, name="iteration", dtype="int32", trainable=False, aggregation="only_first_replica"
            )
        self._learning_rate: Any = None
        self._set_learning_rate(learning_rate)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_layout" not in vars(self) and name != "_layout":
            raise ArgumentError(
                f"{type(self).__name__} must be initialized before its attributes are set.",
                fix="call `super().__init__(learning_rate)` first in `__init__`",
            )
        if isinstance(value, Variable) and not any(value is entry for entry in self._layout):
            self._layout.append(value)
        super().__setattr__(name, value)

    def _scope(self) -> names.name_scope:
        return names.name_scope(self.name.replace("/", ">"), caller=self)

    # ------------------------------------------------------------------------------------------------------- variables

    @property
    def variables(self) -> list[Variable]:
        """The iteration, the learning rate (without a schedule), averages, accumulators, the slots of each weight."""
        return [
            variable
            for entry in self._layout
            for variable in (entry.variables if isinstance(entry, Group) else [entry])
        ]

    @property
    def iterations(self) -> Any:
        """How many updates there were."""
        if self.gradient_accumulation_steps:
            return self._iterations.value // self.gradient_accumulation_steps
        return self._iterations

    def build(self, variables: Sequence[Variable]) -> None:
        """Create the variables of the optimizer for these weights.

        Args:
            variables: the weights. Where the optimizer is built already, those that are new get slots; the others keep
                theirs, so that layers may be frozen and unfrozen.
        """
        if self.built:
            self._extend(variables)
            return
        weights = list(variables)
        if self.use_ema:
            self._add_group([Slot("average")], weights)
        self._trainable_variables = weights
        self._index = {id(weight): i for i, weight in enumerate(weights)}
        if self.gradient_accumulation_steps:
            # A weight that its gradient overwrites has an accumulator too.
            self._add_group([Slot("gradient_accumulator", of=lambda v: np.zeros(v.shape, v.dtype))], weights)
        for slots in self.slots():
            self._add_group(slots, weights)
        self.built = True

    def slots(self) -> list[list[Slot]]:
        """Return the slots beside each weight, in groups: files store the slots of one group side by side."""
        return []

    def _add_group(self, slots: Sequence[Slot], weights: Sequence[Variable]) -> Group:
        group = Group(slots, self._new_slot)
        group.arrange(weights, [])
        self._layout.append(group)
        for j, slot in enumerate(slots):
            self._groups[slot.name] = (group, j)
        return group

    def _new_slot(self, slot: Slot, weight: Variable) -> Variable | None:
        name = _slot_name(weight, slot.name)
        if slot.of is not None:
            value = slot.of(weight)
            if value is None:
                return None
            return self._variable(value, None, None, name, layout=sharding_beside(weight, np.shape(value)))
        if weight.overwrite_with_gradient:
            return None
        # The average of a weight that is new begins with the weight; those of the first step do so by themselves.
        initial = weight.value if slot.name == "average" and self.built else slot.initial
        return self._variable(initial, weight.shape, weight.dtype, name, layout=weight.layout)

    def _variable(self, initial: Any, shape: Any, dtype: Any, name: str | None, **options: Any) -> Variable:
        if isinstance(initial, str) and initial == "zeros":
            initial = wnp.zeros
        with self._scope():
            return Variable(initial, shape=shape, dtype=dtype, trainable=False, name=name, **options)

    def distribute(self) -> None:
        """Bring slots that were created without layouts into those of their weights."""
        for group, j in self._groups.values():
            for weight, slot in zip(self._trainable_variables, group.lists[j], strict=True):
                if slot is not None and weight.layout is not None:
                    slot.distribute(sharding_beside(weight, slot.shape))

    def _extend(self, variables: Iterable[Variable]) -> None:
        """Create slots for weights that have none yet. All are sorted in the order of the list, the rest last, so that
        files do not depend on when a layer was unfrozen.
        """
        weights = list(variables)
        unknown = [weight for weight in weights if id(weight) not in self._index]
        if not unknown:
            return
        if self._has_foreign_slots:
            raise ArgumentError(
                f"{self.name} was not built for the variable {unknown[0].path}.",
                received=f"{len(unknown)} variables that are new",
                fix="construct a new optimizer, or create slots with `add_optimizer_variables` or `slots`",
            )
        listed = {id(weight) for weight in weights}
        weights += [weight for weight in self._trainable_variables if id(weight) not in listed]
        for entry in self._layout:
            if isinstance(entry, Group):
                entry.arrange(weights, self._trainable_variables)
        self._trainable_variables = weights
        self._index = {id(weight): i for i, weight in enumerate(weights)}

    def slot(self, name: str, variable: Variable) -> Variable:
        """Return the slot of a weight.

        Args:
            name: one of the names in `slots`.
            variable: the weight.
        """
        group, j = self._groups[name]
        found = group.lists[j][self._get_variable_index(variable)]
        if found is None:
            raise ArgumentError(f"{variable.path} has no slot {name} in {self.name}.")
        return found

    def _get_variable_index(self, variable: Variable) -> int:
        i = self._index.get(id(variable))
        if i is None:
            raise ArgumentError(
                f"{self.name} was not built for the variable {variable.path}.",
                fix="call `optimizer.build(variables)` with all weights before",
            )
        return i

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Add a variable to the optimizer.

        Args:
            shape: its shape.
            initializer: an array, a function of (shape, dtype), or the name of an initializer.
            dtype: its dtype; the global float type if None.
            aggregation: how replicas are put together.
            layout: how it is sharded.
            name: the last part of its path.

        Returns:
            the variable.
        """
        variable = self._variable(initializer, shape, dtype, name, aggregation=aggregation, layout=layout)
        self._layout.append(variable)
        return variable

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Variable:
        """Add a variable with the shape and dtype of a weight; see also `slots`, `add_optimizer_variables`."""
        self._has_foreign_slots = True
        return self.add_variable(
            reference_variable.shape,
            initializer,
            reference_variable.dtype,
            name=_slot_name(reference_variable, name or "var"),
        )

    def add_optimizer_variables(
        self, trainable_variables: Sequence[Variable], name: str | Sequence[str], initializer: Any = "zeros"
    ) -> Any:
        """Add variables beside each of the weights.

        Args:
            trainable_variables: the weights.
            name: the name of a slot, or a list of names.
            initializer: one for all, or a list for the names.

        Returns:
            for one name the list of variables, else a tuple of lists. `_get_variable_index(weight)` is an index in it.
        """
        listed = [name] if isinstance(name, str) else list(name)
        initial = list(initializer) if isinstance(initializer, (list, tuple)) else [initializer] * len(listed)
        if len(initial) != len(listed):
            raise ArgumentError(
                "There must be one initializer, or one for each name.", received=f"{len(listed)} names, {len(initial)}"
            )
        slots = [Slot(one, by) for one, by in zip(listed, initial, strict=True)]
        group = self._add_group(slots, trainable_variables)
        return group.lists[0] if isinstance(name, str) else group.lists

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Assign a value to each of `variables`."""
        variables = self.variables
        if len(weights) != len(variables):
            raise ArgumentError(
                f"There is a value for each of the {len(variables)} variables of {self.name}.",
                received=f"{len(weights)} values",
                fix="call `optimizer.build(variables)` before, if it is not built yet",
            )
        for variable, value in zip(variables, weights, strict=True):
            variable.assign(value)

    def save_own_variables(self, store: Any) -> None:
        """Write all variables to a mapping, by their index."""
        for i, variable in enumerate(self.variables):
            store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Read all variables from a mapping."""
        self.set_weights([store[str(i)] for i in range(len(store))])

    # --------------------------------------------------------------------------------------------------- learning rate

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a variable, or what the schedule says for the present iteration."""
        rate = self._learning_rate
        if isinstance(rate, Variable):
            return rate
        if isinstance(rate, LearningRateSchedule):
            return rate(self._iterations.value)
        return rate(self._iterations.value) if _takes_argument(rate) else rate()

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        if not callable(learning_rate) and not isinstance(self._learning_rate, Variable):
            raise ArgumentError(
                f"The learning rate of {self.name} is a schedule, so that no value can be assigned to it.",
                received=f"{learning_rate!r}",
                fix="construct the optimizer with a number, or assign another schedule",
            )
        self._set_learning_rate(learning_rate)

    def _set_learning_rate(self, learning_rate: Any) -> None:
        old = self._learning_rate
        if isinstance(learning_rate, Variable):
            learning_rate = learning_rate.value
        if callable(learning_rate):
            self._learning_rate = learning_rate
            self._layout = [entry for entry in self._layout if entry is not old]
            return
        if learning_rate is None or isinstance(learning_rate, (bool, str)) or np.ndim(learning_rate) != 0:
            raise ArgumentError(
                "A learning rate must be a number, a LearningRateSchedule, or a function of the iteration.",
                received=f"learning_rate={learning_rate!r}",
            )
        if isinstance(old, Variable):
            old.assign(learning_rate)
            return
        with self._scope():
            self._learning_rate = Variable(
                learning_rate,
                name="learning_rate",
                dtype=config.floatx(),
                trainable=False,
                aggregation="only_first_replica",
            )

    # ---------------------------------------------------------------------------------------------------------- a step

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        """Change one weight by its gradient. To be defined by subclasses."""
        raise NotSupportedError(
            f"{type(self).__name__} does not define `update_step(gradient, variable, learning_rate)`."
        )

    def update_all(self, gradients: Sequence[Any], variables: Sequence[Variable], learning_rate: Any) -> None:
        """Change all weights: by default one after the other by `update_step`."""
        for gradient, variable in zip(gradients, variables, strict=True):
            rate = wnp.asarray(learning_rate).astype(variable.dtype)
            self.update_step(wnp.asarray(gradient).astype(variable.dtype), variable, rate)

    def assign(self, variable: Variable, value: Any) -> None:
        """Assign to a variable."""
        variable.assign(value)

    def assign_add(self, variable: Variable, value: Any) -> None:
        """Add to a variable."""
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Any) -> None:
        """Subtract from a variable."""
        variable.assign_sub(value)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Variable:
        """Update the weights from pairs of gradient and weight. Returns the variable that counts steps."""
        pairs = list(grads_and_vars)
        self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return self._iterations

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None) -> None:
        """Update the weights.

        Args:
            grads: a gradient for each weight; None for weights that stay.
            trainable_variables: the weights; those that the optimizer was built with if None.

        >>> from weft import keras
        >>> weight = keras.Variable([1.0, 2.0])
        >>> keras.optimizers.SGD(learning_rate=0.5).apply([[1.0, 1.0]], [weight])
        >>> print(weight.value)
        [0.5 1.5]
        """
        if len(grads) == 0:
            return
        listed = self._weights(grads, trainable_variables)
        gradients, weights = self._without_empty(grads, listed)
        gradients, weights = self._overwritten(gradients, weights)
        if gradients:
            if self.loss_scale_factor is not None:
                gradients = [gradient / self.loss_scale_factor for gradient in gradients]
            if self.gradient_accumulation_steps:
                self._accumulate(gradients, weights)
            else:
                self._update(gradients, weights)
            if self.use_ema:
                self._update_averages(listed)
            for weight in weights:
                if weight.constraint is not None:
                    weight.assign(weight.constraint(weight.value))
        self._iterations.assign_add(1)

    def _weights(self, grads: Sequence[Any], variables: Sequence[Variable] | None) -> list[Variable]:
        if variables is None:
            if not self.built:
                raise ArgumentError(
                    f"{self.name} is not built, so that it does not know its weights.",
                    fix=["pass them: `apply(grads, variables)`", "call `optimizer.build(variables)` before"],
                )
            weights = self._trainable_variables
        else:
            weights = list(variables)
            if not self.built:
                self.build(weights)
            self._extend(weights)
        if len(grads) != len(weights):
            raise ArgumentError(
                "There must be one gradient for each weight.",
                received=f"{len(grads)} gradients, {len(weights)} weights",
            )
        return weights

    def _without_empty(self, grads: Sequence[Any], weights: Sequence[Variable]) -> tuple[list[Any], list[Variable]]:
        missing = [weight.path for gradient, weight in zip(grads, weights, strict=True) if gradient is None]
        if len(missing) == len(weights):
            raise ArgumentError("No weight has a gradient.", received=f"None for {', '.join(missing)}")
        if missing:
            warnings.warn(f"there are no gradients for {', '.join(missing)}, which stay as they are", stacklevel=3)
        pairs = [(wnp.asarray(g), w) for g, w in zip(grads, weights, strict=True) if g is not None]
        return [gradient for gradient, _ in pairs], [weight for _, weight in pairs]

    def _overwritten(self, grads: list[Any], weights: list[Variable]) -> tuple[list[Any], list[Variable]]:
        """Assign those weights that become their gradients (such as scales of 8 bit floats), and return the others."""
        rest: list[tuple[Any, Variable]] = []
        for gradient, weight in zip(grads, weights, strict=True):
            if not weight.overwrite_with_gradient:
                rest.append((gradient, weight))
            elif self.gradient_accumulation_steps:
                accumulator = self.slot("gradient_accumulator", weight)
                largest = wnp.maximum(gradient, accumulator.value)
                now = self._is_update()
                weight.assign(wnp.where(now, largest, weight.value))
                accumulator.assign(wnp.where(now, 0, largest))
            else:
                weight.assign(gradient)
        return [gradient for gradient, _ in rest], [weight for _, weight in rest]

    def _update(self, gradients: list[Any], weights: list[Variable]) -> None:
        gradients = clipping.clip(gradients, self.clipnorm, self.global_clipnorm, self.clipvalue)
        self._apply_weight_decay(weights)
        self.update_all(gradients, weights, self.learning_rate)

    def _is_update(self) -> Array:
        return (self._iterations.value + 1) % self.gradient_accumulation_steps == 0

    def _accumulate(self, gradients: list[Any], weights: list[Variable]) -> None:
        """Add gradients to the accumulators; after every `gradient_accumulation_steps` update by their mean."""
        steps = self.gradient_accumulation_steps
        accumulators = [self.slot("gradient_accumulator", weight) for weight in weights]

        def update() -> None:
            means = [(g + a.value) / steps for g, a in zip(gradients, accumulators, strict=True)]
            self._update(means, weights)
            for accumulator in accumulators:
                accumulator.assign(wnp.zeros(accumulator.shape, accumulator.dtype))

        def add() -> None:
            for accumulator, gradient in zip(accumulators, gradients, strict=True):
                accumulator.assign_add(gradient)

        run_one(self._is_update(), update, add, [*weights, *self.variables])

    def averages(self, variables: Iterable[Variable] | None = None) -> list[tuple[Variable, Variable]]:
        """Return the pairs of a weight and the variable with its moving average; none without `use_ema`.

        Args:
            variables: the weights; all that the optimizer was built with if None.
        """
        if "average" not in self._groups:
            return []
        group, j = self._groups["average"]
        weights = self._trainable_variables if variables is None else variables
        pairs = ((weight, group.lists[j][self._get_variable_index(weight)]) for weight in weights)
        return [(weight, average) for weight, average in pairs if average is not None]

    def _update_averages(self, weights: Sequence[Variable]) -> None:
        pairs = self.averages(weights)
        iterations = wnp.asarray(self.iterations)
        for weight, average in pairs:
            # The first average is the weight itself.
            momentum = (iterations != 0).astype(weight.dtype) * self.ema_momentum
            average.assign(momentum * average.value + (1 - momentum) * weight.value)
        if self.ema_overwrite_frequency:
            now = (iterations + 1) % self.ema_overwrite_frequency == 0
            for weight, average in pairs:
                weight.assign(wnp.where(now, average.value, weight.value))

    def _apply_weight_decay(self, weights: Sequence[Variable]) -> None:
        if self.weight_decay is None:
            return
        for weight in weights:
            self._decay(weight, self.weight_decay)

    def _decay(self, weight: Variable, weight_decay: float) -> None:
        if self._use_weight_decay(weight):
            rate = wnp.asarray(self.learning_rate).astype(weight.dtype)
            weight.assign(weight.value - weight.value * wnp.asarray(weight_decay, weight.dtype) * rate)

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Exclude weights from weight decay.

        Args:
            var_list: the weights.
            var_names: regular expressions; a weight whose name contains a match does not decay, as of "bias".
        """
        self._undecayed = {id(weight) for weight in var_list or ()}
        patterns = sorted(set(var_names or ()))
        self._undecayed_names = "|".join(patterns) if patterns else None

    def _use_weight_decay(self, weight: Variable) -> bool:
        by_name = self._undecayed_names is not None and re.search(self._undecayed_names, weight.name) is not None
        return not by_name and id(weight) not in self._undecayed

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """Assign the moving averages to the weights, with `use_ema`; `fit` does this at its end."""
        for weight, average in self.averages(var_list):
            weight.assign(average.value)

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """`apply` as a function: variables stay as they are.

        Args:
            optimizer_variables: a value for each of `variables`.
            grads: a gradient for each weight that the optimizer was built with.
            trainable_variables: the value of each weight.

        Returns:
            the new values of the weights, and of `variables`.
        """
        if not self.built:
            raise ArgumentError(f"{self.name} is not built.", fix="call `optimizer.build(variables)` before")
        weights, own = self._trainable_variables, self.variables
        if len(trainable_variables) != len(weights) or len(optimizer_variables) != len(own):
            raise ArgumentError(
                f"There must be values for {len(weights)} weights and for {len(own)} variables of {self.name}.",
                received=f"{len(trainable_variables)} and {len(optimizer_variables)} values",
            )
        run = stateless(self.apply, [*weights, *own])
        _, values = run([*trainable_variables, *optimizer_variables], grads)
        return values[: len(weights)], values[len(weights) :]

    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by `loss_scale_factor`; `apply` expects gradients of the scaled loss."""
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    # ---------------------------------------------------------------------------------------------------------- config

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data. The learning rate is rounded to float32."""
        rate = self._learning_rate
        if isinstance(rate, Variable):
            rate = float(rate.numpy())
        elif rate is not None:
            rate = registry.serialize_keras_object(rate)
        return {
            "name": self.name,
            "learning_rate": rate,
            "weight_decay": self.weight_decay,
            "clipnorm": self.clipnorm,
            "global_clipnorm": self.global_clipnorm,
            "clipvalue": self.clipvalue,
            "use_ema": self.use_ema,
            "ema_momentum": self.ema_momentum,
            "ema_overwrite_frequency": self.ema_overwrite_frequency,
            "loss_scale_factor": self.loss_scale_factor,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Self:
        """Construct an optimizer from a config of `get_config`."""
        settings = dict(config)
        if isinstance(settings.get("learning_rate"), Mapping):
            settings["learning_rate"] = registry.deserialize_keras_object(
                settings["learning_rate"], custom_objects, kind="optimizers.schedules"
            )
        return cls(**settings)


def run_one(first: Any, then: Callable[[], Any], otherwise: Callable[[], Any], variables: Sequence[Variable]) -> None:
    """Run one of two functions that write only `variables`; `first` may be traced."""
    branches = [stateless(function, variables) for function in (then, otherwise)]
    new = lax.cond(first, *(lambda values, run=run: run(values)[1] for run in branches), [v.value for v in variables])
    for variable, value in zip(variables, new, strict=True):
        variable.assign(value)


def _slot_name(weight: Variable, name: str) -> str:
    return f"{weight.path.replace('/', '_')}_{name}"


def _takes_argument(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called with one argument."""
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    return True


def _check_settings(
    clipnorm: float | None,
    clipvalue: float | None,
    global_clipnorm: float | None,
    use_ema: bool,
    ema_momentum: float,
    gradient_accumulation_steps: int | None,
) -> None:
    if sum(limit is not None for limit in (clipnorm, clipvalue, global_clipnorm)) > 1:
        raise ArgumentError(
            "At most one of `clipnorm`, `clipvalue` and `global_clipnorm` is set.",
            received=f"clipnorm={clipnorm}, clipvalue={clipvalue}, global_clipnorm={global_clipnorm}",
        )
    if use_ema and not 0 <= ema_momentum <= 1:
        raise ArgumentError("`ema_momentum` must be in [0, 1].", received=f"ema_momentum={ema_momentum}")
    if gradient_accumulation_steps is not None and gradient_accumulation_steps < 2:
        raise ArgumentError(
            "`gradient_accumulation_steps` is at least 2, or None.", received=f"{gradient_accumulation_steps}"
        )
