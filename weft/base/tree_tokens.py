"""Tokens: hashable stand-ins for static data and dict keys, equal exactly if the data are interchangeable."""

from __future__ import annotations

import enum
import sys
import weakref
from typing import Any

import numpy as np

from weft.base.memo import Memo


class Exact(tuple[Any, ...]):
    """A token that equals another one exactly if the data have the same types and are equal."""

    __slots__ = ()


class Identity(tuple[Any, ...]):
    """A token that compares data by identity; valid while the data are alive."""

    __slots__ = ()


def token(data: Any) -> Any:
    """Return the token of static data (or a dict key) for signatures."""
    data_type = type(data)
    if data_type is str or data_type is int or data is None:
        return data
    if data_type is tuple:
        parts = [token(part) for part in data]
        token_type = Identity if any(type(part) is Identity for part in parts) else Exact
        return token_type((tuple, *parts))
    if data_type is bool or data_type is bytes:
        return Exact((data_type, data))
    if data_type is float:
        return Exact((float, data.hex()))  # 0.0 == -0.0, and nan != nan
    return (Exact if lasts(data) else Identity)((id(data),))


# Objects that `lasts` returned True for, by id.
_LASTING: Memo[int, Any] = Memo(4096, lasting=True)


def lasts(data: Any) -> bool:
    """Return whether an object lives as long as the process, so that tables may hold it.

    These are objects that a module has under their name (functions, classes), instances that the module of their class
    has (markers), members of such enumerations, dtypes, and plain `object()` instances, which hold nothing.
    """
    if _LASTING.get(id(data)) is data:
        return True
    found = (
        type(data) is object
        or _is_named(data)
        or _is_global(data)
        or (isinstance(data, np.dtype) and data.isbuiltin == 1)
        or (isinstance(data, enum.Enum) and _is_named(type(data)))
    )
    if found:
        _LASTING.keep(id(data), data)
    return found


# Number of failed searches for instances of a type; after `_PATIENCE` of them the search is skipped.
_not_global: weakref.WeakKeyDictionary[type, int] = weakref.WeakKeyDictionary()
_PATIENCE = 16


def _is_global(data: Any) -> bool:
    """Return whether the module of the object's class has the object under some name."""
    kind = type(data)
    if kind.__module__ == "builtins" or _not_global.get(kind, 0) >= _PATIENCE:
        return False
    module = sys.modules.get(kind.__module__)
    if module is not None and any(value is data for value in list(vars(module).values())):
        return True
    _not_global[kind] = _not_global.get(kind, 0) + 1
    return False


def _is_named(data: Any) -> bool:
    """Return whether a module has the object under the object's own qualified name."""
    try:
        module, name = data.__module__, data.__qualname__
        found = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
    except Exception:  # the attributes of an object may be anything, and may raise anything
        return False
    return found is data
