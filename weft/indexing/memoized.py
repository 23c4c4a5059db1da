"""Decorators of functions that compute with symbolic integers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from weft.base.memo import Memo
from weft.indexing.guards import current

Operation = TypeVar("Operation", bound=Callable[..., Any])

MOST_REMEMBERED = 1 << 13
"""Number of results that each binary operation remembers."""


def ask_for_all_sizes(function: Operation) -> Operation:
    """Decorate a function so that comparisons inside hold for all sizes.

    Inside, expressions are compared by identity, and the sizes for which a trace answers comparisons are ignored.
    """

    @functools.wraps(function)
    def method(*args: Any) -> Any:
        answers = current.answers
        if answers is None:
            return function(*args)
        current.answers = None
        try:
            return function(*args)
        finally:
            current.answers = answers

    return cast(Operation, method)


def memoize_binary(function: Operation) -> Operation:
    """Decorate an operation on two integers like `ask_for_all_sizes`, and remember its results.

    Emitters compute the same indices many times.
    """
    known: Memo[tuple[Any, Any], Any] = Memo(MOST_REMEMBERED)

    @functools.wraps(function)
    def method(left: Any, right: Any) -> Any:
        answers = current.answers
        current.answers = None
        try:
            key = (left, right)
            found = known.get(key)
            if found is None:
                check_one_scope(left, right)
                found = known.keep(key, function(left, right))
            return found
        finally:
            current.answers = answers

    return cast(Operation, method)


def check_one_scope(left: Any, right: Any) -> None:
    """Raise an error if two sizes were declared in different scopes of exports."""
    own, other = getattr(left, "scope", None), getattr(right, "scope", None)
    if own is not other and own is not None and other is not None:
        raise ValueError(
            f"Invalid mixing of symbolic scopes: sizes that are computed with must have one scope.\n"
            f"Expected scope {own}\nand found for '{right}' scope {other}."
        )
