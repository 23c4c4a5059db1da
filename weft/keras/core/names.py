"""Names of objects (`dense`, `dense_1`) and paths of variables (`model/dense/kernel`)."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from contextvars import ContextVar, Token
from typing import Any

from weft.errors import ArgumentError

_counts: defaultdict[str, int] = defaultdict(int)
_lock = threading.Lock()
_scopes: ContextVar[tuple[name_scope, ...]] = ContextVar("weft_keras_name_scopes", default=())


def to_snake_case(name: str) -> str:
    """Convert the name of a class to snake case: `BatchNormalization` is `batch_normalization`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(prefix: str) -> str:
    """Return a new name for an object without a name of its own: `dense`, `dense_1`, ... for `Dense`."""
    name = to_snake_case(prefix)
    with _lock:
        count = _counts[name]
        _counts[name] += 1
    return f"{name}_{count}" if count else name


def get_uid(prefix: str = "") -> int:
    """Count up a prefix, and return its count: 1 at first.

    Args:
        prefix: what is counted. Automatic names count the same way.

    Returns:
        How often the prefix was counted since the session began.

    Example:
        >>> from weft import keras
        >>> keras.backend.get_uid("a_prefix"), keras.backend.get_uid("a_prefix")
        (1, 2)
    """
    with _lock:
        _counts[prefix] += 1
        return _counts[prefix]


def reset_names() -> None:
    """Count from the beginning again."""
    with _lock:
        _counts.clear()


def check_name(name: Any, what: str = "name") -> str:
    """`name` if it is one that a path may contain, else an error."""
    if not isinstance(name, str) or "/" in name:
        raise ArgumentError(f"{what} must be a string without `/`.", received=f"{what}={name!r}")
    return name


class name_scope:
    """Variables that are created inside have `name` in their path.

    Args:
        name: the part of the path.
        caller: the object whose scope it is. Opening a scope again inside of the same caller's scope adds nothing.
        override_parent: a path to start from, instead of that of the enclosing scopes.

    Example:
        >>> from weft import keras
        >>> with keras.name_scope("block"):
        ...     variable = keras.Variable([1.0, 2.0], name="scale")
        >>> variable.path
        'block/scale'
    """

    def __init__(
        self, name: str, caller: object | None = None, deduplicate: bool = True, override_parent: str | None = None
    ) -> None:
        self.name = check_name(name)
        self.caller = caller
        self.deduplicate = deduplicate
        self.override_parent = override_parent
        self._tokens: list[Token[tuple[name_scope, ...]] | None] = []

    def __enter__(self) -> name_scope:
        scopes = _scopes.get()
        inside = bool(scopes) and self.caller is not None and scopes[-1].caller is self.caller
        if self.deduplicate and inside and scopes[-1].name == self.name:
            self._tokens.append(None)
        else:
            self._tokens.append(_scopes.set((*scopes, self)))
        return self

    def __exit__(self, *_: object) -> None:
        token = self._tokens.pop()
        if token is not None:
            _scopes.reset(token)


def current_path() -> str:
    """Return the path of the enclosing name scopes; "" without any."""
    parts: list[str] = []
    for scope in _scopes.get():
        if scope.override_parent is not None:
            parts = [part for part in scope.override_parent.split("/") if part]
        parts.append(scope.name)
    return "/".join(parts)
