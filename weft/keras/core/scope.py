"""Scopes: where variables are read and written while a function is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

import weft
from weft.errors import ArgumentError
from weft.keras.core.context import Losses, current_frame, scope_losses

if TYPE_CHECKING:
    from weft.keras.core.variable import Variable

_scope: ContextVar[StatelessScope | None] = ContextVar("weft_keras_scope", default=None)


def current_scope() -> StatelessScope | None:
    """Return the innermost scope of this thread, or None."""
    return _scope.get()


def in_stateless_scope() -> bool:
    """Return whether writes go to a scope instead of to the variables."""
    return _scope.get() is not None


class StatelessScope:
    """A block in which writes to variables are collected, and the variables stay as they are.

    Args:
        state_mapping: pairs of a variable and the value that it has inside.
        collect_losses: accepted; losses that layers add inside are always in `losses`.
        initialize_variables: accepted; variables have values when they are created.
        writable: the variables that may be written; None is all.

    Example:
        >>> from weft import keras
        >>> variable = keras.Variable(1.0)
        >>> with keras.StatelessScope() as scope:
        ...     _ = variable.assign(2.0)
        >>> float(variable.value), float(scope.get_current_value(variable))
        (1.0, 2.0)
    """

    def __init__(
        self,
        state_mapping: Iterable[tuple[Variable, Any]] | None = None,
        collect_losses: bool = False,
        initialize_variables: bool = True,
        writable: Iterable[Variable] | None = None,
    ) -> None:
        # By identity, with the variable itself: `==` of variables compares their values.
        self._values: dict[int, tuple[Variable, Any]] = {}
        self._writable = None if writable is None else {id(variable) for variable in writable}
        self._outer: StatelessScope | None = None
        self._tokens: list[tuple[Token[Any], Token[Any]]] = []
        self.losses = Losses()
        for variable, value in state_mapping or ():
            self._values[id(variable)] = (variable, variable.converted(value))

    def add_update(self, update: tuple[Variable, Any]) -> None:
        """Write a pair of a variable and a value."""
        variable, value = update
        if self._writable is not None and id(variable) not in self._writable:
            frame = current_frame()
            where = "" if frame is None else f" by layer {frame.path}"
            raise ArgumentError(
                f"The variable {variable.path} is written{where} in a traced function that does not return it.",
                received=f"{variable!r}",
                fix="list it in the variables of `stateless` (or `stateless_call`), so that its new value is a result",
            )
        self._values[id(variable)] = (variable, value)

    def get_current_value(self, variable: Variable) -> Any:
        """Return the value of a variable in this scope; None if neither this scope nor an outer one sets it."""
        found = self._values.get(id(variable))
        if found is not None:
            return found[1]
        return None if self._outer is None else self._outer.get_current_value(variable)

    def updates(self) -> list[tuple[Variable, Any]]:
        """Return the pairs of variable and value that were set or written in this scope."""
        return list(self._values.values())

    def __enter__(self) -> StatelessScope:
        self._outer = _scope.get()
        self._tokens.append((_scope.set(self), scope_losses.set(self.losses)))
        return self

    def __exit__(self, *_: object) -> None:
        scope, losses = self._tokens.pop()
        scope_losses.reset(losses)
        _scope.reset(scope)


def values_in(tree: Any) -> Any:
    """Replace the variables in a tree with their values in this scope: a user's function may return either."""
    return weft.tree.map(lambda leaf: leaf.value if getattr(type(leaf), "is_variable", False) else leaf, tree)


def stateless(function: Callable[..., Any], variables: Sequence[Variable]) -> Callable[..., tuple[Any, list[Any]]]:
    """Convert a function that reads and writes variables to a function of their values.

    This is how stateful code enters `weft.jit`, `weft.grad`, loops and all other transformations.

    Args:
        function: any function; it may call layers, read variables and assign to those in `variables`.
        variables: the variables whose values are arguments and results. Others are constants of the function, and
            writing one is an error.

    Returns:
        `run(values, *args, **kwargs) -> (result, new_values)`, with values in the order of `variables`.

    Example:
        >>> import weft
        >>> from weft.keras.core.scope import stateless
        >>> from weft.keras.core.variable import Variable
        >>> count = Variable(0, dtype="int32", trainable=False)
        >>> run = weft.jit(stateless(lambda x: (count.assign_add(1), x * 2)[1], [count]))
        >>> result, (new,) = run([count.value], 3.0)
        >>> float(result), int(new), int(count.value)
        (6.0, 1, 0)
    """
    listed = tuple(variables)

    @functools.wraps(function)
    def run(values: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        if len(values) != len(listed):
            raise ArgumentError(
                f"There must be one value for each of the {len(listed)} variables.", received=f"{len(values)} values"
            )
        with StatelessScope(zip(listed, values, strict=True), writable=listed) as scope:
            result = values_in(function(*args, **kwargs))
        return result, [scope.get_current_value(variable) for variable in listed]

    return run
