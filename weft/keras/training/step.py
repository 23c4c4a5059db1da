"""A stateful step as a pure function: tracing it finds the variables that it reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.keras.core.layouts import pin
from weft.keras.core.scope import StatelessScope, values_in
from weft.tree_util import register_dataclass, register_static

# A step that creates a variable once (a lazy layer, the slots of an optimizer) settles after two or three traces.
MOST_TRACES = 8


@register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Usage:
    """Variables that a traced step used.

    It compares by identity, because `==` of variables compares their values.

    Attributes:
        written: the indices of the listed variables that the step wrote, in ascending order.
        unlisted: variables that the step read or wrote although they were not in its list; their values are constants
            of the trace, so such a trace is only good for extending the list.
    """

    written: tuple[int, ...]
    unlisted: tuple[Any, ...]


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a traced step returns: its result and the new values of written variables, beside their static `Usage`."""

    result: Any
    written: list[Any]
    usage: Usage


class RecordingScope(StatelessScope):
    """A scope with values for a list of variables, which records the other variables that are used in it."""

    def __init__(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        super().__init__(zip(variables, values, strict=True))
        self._listed = {id(variable) for variable in variables}
        self._unlisted: dict[int, Any] = {}

    def get_current_value(self, variable: Any) -> Any:
        self._record(variable)
        return super().get_current_value(variable)

    def add_update(self, update: tuple[Any, Any]) -> None:
        self._record(update[0])
        super().add_update(update)

    def _record(self, variable: Any) -> None:
        if id(variable) not in self._listed:
            self._unlisted[id(variable)] = variable

    def unlisted(self) -> tuple[Any, ...]:
        """Return the variables outside of the list that were read or written, in the order of their first use."""
        return tuple(self._unlisted.values())


def run(
    function: Callable[..., Any], variables: Sequence[Any], values: Sequence[Any], *args: Any
) -> tuple[Any, list[Any], tuple[Any, ...]]:
    """Run a stateful function with given values of its variables, and leave the variables unchanged.

    Returns:
        `(result, after, unlisted)`: the result, the values of all listed variables afterwards, and the variables that
        the function used although they are not listed.
    """
    scope = RecordingScope(variables, values)
    with scope:
        result = values_in(function(*args))
        after = [scope.get_current_value(variable) for variable in variables]
    return result, after, scope.unlisted()


def traceable(function: Callable[[Any], Any], variables: Sequence[Any]) -> Callable[[Sequence[Any], Any], Outcome]:
    """Return the pure form `step(values, batch) -> Outcome` of a stateful step, whose new values keep their layouts."""

    def step(values: Sequence[Any], batch: Any) -> Outcome:
        result, after, unlisted = run(function, variables, values, batch)
        written = tuple(i for i, value in enumerate(after) if value is not values[i])
        return Outcome(result, [pin(variables[i], after[i]) for i in written], Usage(written, unlisted))

    return step


@dataclasses.dataclass(frozen=True)
class Step:
    """A stateful function of a batch, traced for one structure and type of batch. `trace_step` makes it.

    Attributes:
        function: `function(batch) -> result`; reads and writes variables.
        variables: all variables that it uses, in the order of the state.
        batch: a tree of `ShapeDtypeStruct`.
        traced: the jitted pure form, `traced(values, batch) -> Outcome`; its trace is cached.
        result: the type of the result.
        written: the indices of the variables that the function writes.
        fixed: the indices of the others.
    """

    function: Callable[[Any], Any]
    variables: list[Any]
    batch: Any
    traced: Callable[[Sequence[Any], Any], Outcome]
    result: Any
    written: tuple[int, ...]
    fixed: tuple[int, ...]

    def call(self, values: Sequence[Any], batch: Any) -> tuple[Any, list[Any]]:
        """Return the result and the new values of the written variables: the body of all programs of the step."""
        outcome = self.traced(values, batch)
        return outcome.result, outcome.written

    def run_without_pins(self, values: Sequence[Any], batch: Any) -> tuple[Any, list[Any]]:
        """Return the result and the values of all variables after the step, in the layouts that propagation chooses."""
        result, after, _ = run(self.function, self.variables, values, batch)
        return result, after

    def value_specs(self) -> list[weft.ShapeDtypeStruct]:
        """Return the types of the variables."""
        return value_specs(self.variables)

    def merge(self, moving: Sequence[Any], fixed: Sequence[Any]) -> list[Any]:
        """Merge the values of written and unwritten variables into one list, in the order of `variables`."""
        values: list[Any] = [None] * len(self.variables)
        for i, value in zip((*self.written, *self.fixed), (*moving, *fixed), strict=True):
            values[i] = value
        return values

    def read(self, function: Callable[[], Any], values: Sequence[Any]) -> Any:
        """Return the result of a stateful, read-only function for given values of the variables."""
        return run(function, self.variables, values)[0]

    def trace_read(self, function: Callable[[], Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return the type of `read`'s result, and the variables that the function reads but the step does not list."""

        def trace(values: Sequence[Any]) -> Outcome:
            result, _, unlisted = run(function, self.variables, values)
            return Outcome(result, [], Usage((), unlisted))

        outcome = weft.eval_shape(trace, self.value_specs())
        return outcome.result, outcome.usage.unlisted


def trace_step(function: Callable[[Any], Any], variables: Iterable[Any], batch: Any) -> Step:
    """Trace a stateful step, and append the variables that it uses to its list until the list is complete.

    Args:
        function: `function(batch) -> result`; reads and writes variables.
        variables: the variables that it is likely to use, in the order that the state shall have.
        batch: a tree of `ShapeDtypeStruct`.
    """
    listed = distinct(variables)
    unlisted: tuple[Any, ...] = ()
    for _ in range(MOST_TRACES):
        for variable in listed:
            variable.distribute()
        traced = weft.jit(traceable(function, listed))
        outcome = weft.eval_shape(traced, value_specs(listed), batch)
        unlisted = outcome.usage.unlisted
        if not unlisted:
            written = outcome.usage.written
            fixed = tuple(sorted(set(range(len(listed))).difference(written)))
            return Step(function, listed, batch, traced, outcome.result, written, fixed)
        listed = distinct([*listed, *unlisted])
    raise ArgumentError(
        "A step must use the same variables each time that it runs, but this one creates new ones.",
        received=f"after {MOST_TRACES} traces, new variables {', '.join(variable.path for variable in unlisted)}",
        fix="create variables, layers and metrics once: in __init__ or build",
    )


def value_specs(variables: Iterable[Any]) -> list[weft.ShapeDtypeStruct]:
    """Return the types of the arrays that variables hold."""
    return [weft.ShapeDtypeStruct(v._value.shape, v._value.dtype) for v in variables]


def distinct(variables: Iterable[Any]) -> list[Any]:
    """Return the variables without repetitions, in order."""
    return list({id(variable): variable for variable in variables}.values())
