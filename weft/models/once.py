"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def once(compute: Callable[[Any], Any]) -> Any:
    """Make a method a property that is computed at its first use.

    Those of `functools` hold a lock in Python 3.11, which a process that is forked meanwhile never gets.
    """
    key = f"{compute.__name__}, computed once"

    def get(owner: Any) -> Any:
        if key not in owner.__dict__:
            owner.__dict__[key] = compute(owner)
        return owner.__dict__[key]

    return property(get, doc=compute.__doc__)
