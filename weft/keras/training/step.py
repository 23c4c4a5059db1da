"""A stateful step as a function of values: which variables it reads and writes is found by tracing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft
from weft.keras.core.layouts import pin
from weft.keras.core.scope import StatelessScope, values_in


class UnknownVariables(Exception):
    """A step used variables that are not in its list."""

    def __init__(self, variables: list[Any]) -> None:
        super().__init__([variable.path for variable in variables])
        self.variables = variables


class RecordingScope(StatelessScope):
    """A scope that notes which variables are used in it beside those that it has values of."""

    def __init__(self, variables: Iterable[Any], values: Iterable[Any]) -> None:
        super().__init__(zip(variables, values, strict=True))
        self.unknown: dict[int, Any] = {}
        self._known = set(self._values)

    def get_current_value(self, variable: Any) -> Any:
        self._note(variable)
        return super().get_current_value(variable)

    def add_update(self, update: tuple[Any, Any]) -> None:
        self._note(update[0])
        super().add_update(update)

    def _note(self, variable: Any) -> None:
        if id(variable) not in self._known:
            self.unknown[id(variable)] = variable


class Step:
    """A stateful function of a batch, traced for one structure and type of batch.

    Args:
        function: `function(batch) -> result`; reads and writes variables.
        variables: those that it is likely to use, in the order that the state has. Others that it uses are appended.
        batch: a tree of `ShapeDtypeStruct`.

    `variables` is the state, `written` the indices of those that the function changes, `result` the type of its result.
    `call(values, batch) -> (result, values of those written)` is what programs are made of; it is traced once.
    """

    def __init__(self, function: Callable[[Any], Any], variables: Sequence[Any], batch: Any) -> None:
        self.function = function
        self.variables = _distinct(variables)
        self.batch = batch
        self.written: tuple[int, ...] = ()
        while True:
            for variable in self.variables:
                variable.distribute()
            self.call = weft.jit(self._run)
            try:
                self.result, _ = weft.eval_shape(self.call, self.value_specs(), batch)
            except UnknownVariables as found:
                self.variables = _distinct([*self.variables, *found.variables])
                continue
            break
        moving: set[int] = set(self.written)
        self.fixed = tuple(i for i in range(len(self.variables)) if i not in moving)

    def _run(self, values: Sequence[Any], batch: Any) -> tuple[Any, list[Any]]:
        result, after = self.run_unpinned(values, batch)
        self.written = tuple(i for i, value in enumerate(after) if value is not values[i])
        return result, [pin(self.variables[i], after[i]) for i in self.written]

    def run_unpinned(self, values: Sequence[Any], batch: Any) -> tuple[Any, list[Any]]:
        """Return the result and the values of all variables after the step, in the layouts that propagation chooses."""
        scope = RecordingScope(self.variables, values)
        with scope:
            result = values_in(self.function(batch))
            after = [scope.get_current_value(variable) for variable in self.variables]
        if scope.unknown:
            raise UnknownVariables(list(scope.unknown.values()))
        return result, after

    def value_specs(self) -> list[weft.ShapeDtypeStruct]:
        """Return the types of the variables."""
        return [weft.ShapeDtypeStruct(v._value.shape, v._value.dtype) for v in self.variables]

    def merge(self, moving: Sequence[Any], fixed: Sequence[Any]) -> list[Any]:
        """Merge the values of written and unwritten variables into one list, in the order of `variables`."""
        values: list[Any] = [None] * len(self.variables)
        for i, value in zip((*self.written, *self.fixed), (*moving, *fixed), strict=True):
            values[i] = value
        return values

    def read(self, function: Callable[[], Any], values: Sequence[Any]) -> Any:
        """Return the result of a stateful, read-only function for given values of the variables."""
        scope = RecordingScope(self.variables, values)
        with scope:
            result = values_in(function())
        if scope.unknown:
            raise UnknownVariables(list(scope.unknown.values()))
        return result


def _distinct(variables: Iterable[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())
