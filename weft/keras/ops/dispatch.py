"""What every operation does first: arguments become arrays, and a call with a symbolic tensor becomes a node of a
graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import weft
import weft.numpy as wnp
from weft.keras.core.config import floatx
from weft.keras.core.registry import register
from weft.keras.graph.operation import any_symbolic, symbolic_call
from weft.keras.ops.classes import classes, record

Function = TypeVar("Function", bound=Callable[..., Any])
_SCALARS = (bool, int, float, complex)
# What `operation` made -> what its module has by that name: the same, as a boundary of tracebacks.
_public: dict[Any, Any] = {}


def operation(function: Function) -> Function:
    """Wrap a function of arrays as an operation: called with a symbolic tensor it records a node."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any_symbolic(args, kwargs):
            public = _public.get(call, call)
            recorded = record(public, args, kwargs) if public in classes else NotImplemented
            return symbolic_call(public, *args, **kwargs) if recorded is NotImplemented else recorded
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def symbolic_as(spec: Callable[..., Any]) -> Callable[[Function], Function]:
    """Return a decorator, used under `operation`: `spec` returns the symbolic results for the same arguments.

    Use it for sizes that depend on values, or that are known although tracing cannot find them; if `spec` returns None,
    the function is traced.
    """

    def mark(function: Function) -> Function:
        function.output_spec = spec  # type: ignore[attr-defined]
        return function

    return mark


def register_operations(kind: str, *functions: Any, **aliases: Any) -> None:
    """Enter public operations in the table of a kind. Graphs and files have them by that name.

    Args:
        kind: "ops", "activations" or "random".
        *functions: what the module has, after `publish`.
        **aliases: further names.
    """
    for function in functions:
        _public.setdefault(getattr(function, "__wrapped__", function), function)
    register(kind, *functions, aliases=aliases)


def tensor(x: Any) -> Any:
    """Convert an argument (list, scalar, NumPy array or variable) to an array."""
    return x if isinstance(x, weft.Array) else wnp.asarray(x)


def operand(x: Any) -> Any:
    """Convert an operand of arithmetic to an array, except Python scalars, which take the other operand's dtype."""
    return x if isinstance(x, weft.Array) or type(x) in _SCALARS else wnp.asarray(x)


def inexact(x: Any) -> Any:
    """Convert an argument to an array of floats: integers and booleans become `floatx()`."""
    array = tensor(x)
    return array if wnp.issubdtype(array.dtype, wnp.inexact) else array.astype(floatx())


def same_dtype(*args: Any) -> tuple[Any, ...]:
    """Convert arguments to arrays of their common dtype."""
    arrays = tuple(operand(x) for x in args)
    dtype = wnp.result_type(*arrays)
    return tuple(wnp.asarray(x, dtype) for x in arrays)


def unary(
    name: str, function: Callable[[Any], Any], summary: str, example: str, floats: bool = False, home: str = "ops"
) -> Any:
    """Create an elementwise operation on one argument.

    Args:
        name: the operation's.
        function: its meaning for an array.
        summary: the first sentence of its documentation.
        example: an argument, `->`, and what is printed for it.
        floats: whether integers become `floatx()` first.
        home: the module of `weft.keras` that has it.
    """
    convert = inexact if floats else tensor

    def call(x: Any) -> Any:
        return function(convert(x))

    argument, _, printed = (part.strip() for part in example.partition("->"))
    call.__doc__ = f"""{summary}

    Args:
        x: an array, or what converts to one.

    Returns:
        An array of the same shape.

    Example:
        >>> from weft import keras
        >>> print(keras.{home}.{name}({argument}))
        {printed}
    """
    return _name_operation(call, name)


def binary(
    name: str, function: Callable[[Any, Any], Any], summary: str, example: str, names: tuple[str, str] = ("x1", "x2")
) -> Any:
    """Create an elementwise operation on two arguments that broadcast: see `unary`.

    Args:
        name: the operation's.
        function: its meaning for two arrays or scalars.
        summary: the first sentence of its documentation.
        example: the arguments, `->`, and what is printed for them.
        names: the names of the parameters.
    """

    def by_x1(x1: Any, x2: Any) -> Any:
        return function(operand(x1), operand(x2))

    def by_x(x: Any, y: Any) -> Any:
        return function(operand(x), operand(y))

    call = by_x1 if names == ("x1", "x2") else by_x
    arguments, _, printed = (part.strip() for part in example.partition("->"))
    call.__doc__ = f"""{summary}

    Args:
        {names[0]}: an array, a scalar, or what converts to one.
        {names[1]}: likewise; the shapes broadcast.

    Returns:
        An array of the shape that both broadcast to.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.{name}({arguments}))
        {printed}
    """
    return _name_operation(call, name)


def _name_operation(call: Any, name: str) -> Any:
    call.__name__ = call.__qualname__ = name
    return operation(call)
