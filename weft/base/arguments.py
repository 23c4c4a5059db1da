"""Shared checks of arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from traceback import walk_tb
from typing import Any

from weft.base.errors import ArgumentError, ArgumentTypeError, WeftError
from weft.base.source import is_own


def index(value: Any) -> int:
    """Convert an argument that must be an integer to a Python int, or raise an error that shows what was received."""
    try:
        return operator.index(value)
    except TypeError as error:
        if isinstance(error, WeftError):  # a tracer raises a more specific error
            raise
        raise ArgumentTypeError(
            "The argument must be an integer.", received=described(value), fix="an int; int(x) of a float that is whole"
        ) from None


def sequence(values: Any, what: str, fix: str = "a tuple or list") -> tuple[Any, ...]:
    """Convert an argument that must be a sequence to a tuple; `what` names it in the error."""
    if not isinstance(values, str):
        try:
            return tuple(values)
        except TypeError as error:
            if isinstance(error, WeftError):
                raise
    raise ArgumentTypeError(f"{what} must be a sequence.", received=described(values), fix=fix)


def indices(values: Any, what: str) -> tuple[int, ...]:
    """Convert an argument that must be a sequence of integers to a tuple of Python ints."""
    return tuple(index(value) for value in sequence(values, what, "a tuple of ints, such as (0,)"))


def parts(values: Any, count: int, what: str, fix: str) -> tuple[Any, ...]:
    """Convert an argument that must be a sequence of length `count` to a tuple."""
    found = sequence(values, what, fix)
    if len(found) != count:
        raise ArgumentError(f"{what} must have {count} parts.", received=described(values), fix=fix)
    return found


def function_of(value: Any, what: str, fix: str) -> Callable[..., Any]:
    """Return an argument that must be a function, or raise."""
    if not callable(value):
        raise ArgumentTypeError(f"{what} must be a function.", received=described(value), fix=fix)
    function: Callable[..., Any] = value
    return function


def described(value: Any) -> str:
    """Format a value and its type in short, for the line `received` of an error message."""
    text = repr(value)
    return f"{text if len(text) < 80 else text[:77] + '...'} of type {type(value).__name__}"


def called(function: Callable[..., Any], args: Sequence[Any], what: str, fix: str) -> Any:
    """Call the user's `function(*args)`; a wrong number of arguments raises an error with a `fix`."""
    try:
        return function(*args)
    except TypeError as error:
        # Raised by the call itself, or by a wrapper's call: no frame of the user has run.
        frames = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
        if isinstance(error, WeftError) or not all(map(is_own, frames)):
            raise
        if not callable(function):
            raise ArgumentTypeError(f"{what} must be a function.", received=described(function), fix=fix) from None
        if "argument" not in str(error):
            raise
        count = f"{len(args)} argument{'s' * (len(args) != 1)}"
        raise ArgumentTypeError(
            f"{what} is called with {count}: {error}.", received=described(function), fix=fix
        ) from None
