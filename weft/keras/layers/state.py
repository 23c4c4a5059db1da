"""What a layer owns: variables, seed generators, metrics and other layers, found in its attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.core.context import type_text
from weft.keras.core.seeds import SeedGenerator
from weft.keras.core.variable import Variable
from weft.keras.graph.operation import Operation

_CONTAINERS = (list, tuple, dict, set)


def is_metric(value: Any) -> bool:
    """Return whether an object is a metric: it has `update_state`, `reset_state` and `result`."""
    return hasattr(value, "update_state") and hasattr(value, "reset_state") and hasattr(value, "result")


class Owned(NamedTuple):
    """Something that a layer owns. `source` is the attribute that it was found in ("" for `add_weight`); `trainable`
    is what a variable was when it was found, which is what lists it among the trainable ones."""

    source: str
    value: Any
    trainable: bool


class Stateful(Operation):
    """Lists of variables and layers, in the order in which attributes were set.

    Attributes are tracked when they are set; members of lists, tuples and dicts are collected on each access, so that
    containers need no wrappers.
    """

    _owned: list[Owned]
    _container_attributes: list[str]
    _trainable: bool
    _locked: bool = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        created = super().__new__(cls, *args, **kwargs)
        object.__setattr__(created, "_owned", [])
        object.__setattr__(created, "_container_attributes", [])
        return created

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Variable, Stateful, SeedGenerator)) or is_metric(value):
            self._disown(name)
            self._own_members()
            self._own(name, value)
        elif isinstance(value, _CONTAINERS):
            self._disown(name)
            if name not in _UNOWNED and name not in self._container_attributes:
                self._container_attributes.append(name)
        elif name in self.__dict__:
            self._disown(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._disown(name)
        if name in self._container_attributes:
            self._container_attributes.remove(name)
        object.__delattr__(self, name)

    def _own(self, source: str, value: Any) -> None:
        """Enter something in the lists, once."""
        if any(owned.value is value for owned in self._owned):
            return
        if self._locked and isinstance(value, (Variable, Stateful)):
            raise ArgumentError(
                f"Layer {self.name} is built, and gets no further variables or layers.",
                received=f"{source or 'add_weight'} = {value!r}",
                fix="create variables in `__init__` or `build`, and layers in `__init__`",
            )
        trainable = isinstance(value, Variable) and value.trainable
        self._owned.append(Owned(source, value, trainable))
        if trainable and not self.__dict__.get("_trainable", True):
            value.trainable = False  # models ask the variable, not the layer

    def _disown(self, name: str) -> None:
        """Forget what an attribute owned that is set anew or deleted."""
        gone = {id(owned.value) for owned in self._owned if owned.source == name} if name in self.__dict__ else set()
        if not gone:
            return
        self._owned[:] = [owned for owned in self._owned if owned.source != name]
        for other, value in self.__dict__.items():
            if other != name and id(value) in gone:
                self._own(other, value)

    def _own_members(self) -> None:
        """Enter new members of lists, tuples and dicts, and forget those that are not there any more."""
        for name in self._container_attributes:
            members = list(_members(self.__dict__.get(name)))
            present = {id(member) for member in members}
            if any(owned.source == name and id(owned.value) not in present for owned in self._owned):
                self._owned[:] = [o for o in self._owned if o.source != name or id(o.value) in present]
            for member in members:
                self._own(name, member)

    # ----------------------------------------------------------------------------------------------------------- lists

    def _own_values(self, kind: type) -> list[Any]:
        self._own_members()
        return [owned.value for owned in self._owned if isinstance(owned.value, kind)]

    @property
    def _seed_generators(self) -> list[SeedGenerator]:
        """The seed generators in its own attributes."""
        return self._own_values(SeedGenerator)

    @property
    def _layers(self) -> list[Any]:
        """The layers that this one owns itself."""
        return self._own_values(Stateful)

    def _own_variables(self) -> list[Variable]:
        """Return the object's own variables, trainable ones first."""
        self._own_members()
        found = [owned for owned in self._owned if isinstance(owned.value, Variable)]
        return [o.value for o in found if o.trainable] + [o.value for o in found if not o.trainable]

    def save_own_variables(self, store: Any) -> None:
        """Write the layer's own variables to a mapping, by their index; sublayers write their own.

        Args:
            store: a mapping of names to arrays; an override may choose the names.
        """
        for i, variable in enumerate(self._own_variables()):
            store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read the layer's own variables from a mapping.

        Args:
            store: what `save_own_variables` wrote.
        """
        for i, variable in enumerate(self._own_variables()):
            variable.assign(store[str(i)])

    def _flatten_layers(self, include_self: bool = True, recursive: bool = True) -> list[Any]:
        """Return this layer and its inner layers, each once, in the order of ownership."""
        found: dict[int, Any] = {id(self): self} if include_self else {}
        waiting = list(self._layers)
        while waiting:
            layer = waiting.pop(0)
            if id(layer) in found or layer is self:
                continue
            found[id(layer)] = layer
            if recursive:
                waiting[:0] = layer._layers
        return list(found.values())

    @property
    def variables(self) -> list[Variable]:
        """All variables of the layer and those in it, seed states too; not those of metrics."""
        # Layers may own each other, so each is visited once and gives only its own state.
        return _each_once(variable for layer in self._flatten_layers() for variable in layer._own_state())

    def _own_state(self) -> list[Variable]:
        """Return the object's own variables and those of its seed generators."""
        return [*self._own_variables(), *(generator.state for generator in self._own_values(SeedGenerator))]

    @property
    def weights(self) -> list[Variable]:
        """The variables without seed states: by layer, trainable ones first."""
        return _each_once(variable for layer in self._flatten_layers() for variable in layer._own_variables())

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that an optimizer may update."""
        return [variable for variable in self.variables if variable.trainable] if self.trainable else []

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that no optimizer updates, seed states too."""
        return [variable for variable in self.variables if not (self.trainable and variable.trainable)]

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that an optimizer may update."""
        return [variable for variable in self.weights if variable.trainable] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that no optimizer updates."""
        return [variable for variable in self.weights if not (self.trainable and variable.trainable)]

    @property
    def metrics(self) -> list[Any]:
        """The metrics of the layer and those in it; of models in it not those of their own `compile`."""
        return _each_once(metric for layer in self._flatten_layers() for metric in layer._own_metrics())

    def _own_metrics(self) -> list[Any]:
        """Return the metrics in the object's own attributes."""
        self._own_members()
        return [owned.value for owned in self._owned if is_metric(owned.value)]

    @property
    def metrics_variables(self) -> list[Variable]:
        """The variables of all metrics."""
        return [variable for metric in self.metrics for variable in metric.variables]

    @property
    def trainable(self) -> bool:
        """Whether optimizers may update its variables; setting it sets it for all layers inside."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self._flatten_layers():
            object.__setattr__(layer, "_trainable", bool(value))
            for owned in layer._owned:
                if owned.trainable:
                    owned.value.trainable = bool(value)

    # ---------------------------------------------------------------------------------------------------------- values

    def count_params(self) -> int:
        """Return the total number of entries of the weights."""
        return sum(variable.size for variable in self.weights)

    def get_weights(self) -> list[np.ndarray]:
        """Return the values of `weights` as NumPy arrays."""
        return [variable.numpy() for variable in self.weights]

    def set_weights(self, weights: list[Any]) -> None:
        """Set the values of `weights`.

        Args:
            weights: arrays in the order of `weights`, with their shapes.
        """
        variables = self.weights
        expected = [f"{v.path} {tuple(v.shape)}" for v in variables]
        if len(variables) != len(weights):
            raise ArgumentError(
                f"Layer {self.name} needs one array for each of its {len(variables)} weights: "
                f"{', '.join(expected) or 'none'}.",
                received=f"{len(weights)} arrays: {type_text(list(weights))}",
                fix="build the layer first (call it, or `build`)" if not variables else None,
            )
        for variable, value in zip(variables, weights, strict=True):
            if not hasattr(value, "shape"):
                raise ArgumentTypeError(
                    f"Weights must be arrays; the one for {variable.path} is not.", received=type(value).__name__
                )
            if tuple(value.shape) != variable.shape:
                raise ArgumentError(
                    f"The weight {variable.path} of layer {self.name} must have the shape {variable.shape}.",
                    received=f"an array of shape {tuple(value.shape)}",
                )
        for variable, value in zip(variables, weights, strict=True):
            variable.assign(value)


# Attributes that hold other things than the layer's own state.
_UNOWNED = {"_owned", "_container_attributes", "_init_arguments", "_inbound_nodes", "_outbound_nodes", "_build_shapes"}


def _each_once(values: Iterable[Any]) -> list[Any]:
    """Remove duplicates by identity."""
    return list({id(value): value for value in values}.values())


def _members(value: Any, inside: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Yield what a layer owns in lists, tuples, sets and dicts, at any level; a container may contain itself."""
    if isinstance(value, (Variable, Stateful, SeedGenerator)) or is_metric(value):
        yield value
    elif isinstance(value, _CONTAINERS) and not any(value is container for container in inside):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _members(item, (*inside, value))
