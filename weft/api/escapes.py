"""Symbolic sizes that leave a function in the static data of the trees that it returns."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.base.tree_def import PyTreeDef
from weft.indexing.expression import Expression
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, ShapeDtypeStruct
from weft.trace.array import Array

# Static data with more objects counts as containing a size: a search would take longer than a trace.
MOST_OBJECTS = 100_000

_WITHOUT_PARTS = (
    str,
    bytes,
    bool,
    int,
    float,
    complex,
    type(None),
    type,
    types.ModuleType,
    np.ndarray,
    np.generic,
    Array,
)


def holds_size(structure: PyTreeDef) -> bool:
    """Return whether the static data of a tree contains a symbolic size. Such a result is valid in the trace that made
    it only."""
    stack: list[Any] = [structure]
    seen: dict[int, Any] = {}
    while stack:
        item = stack.pop()
        if isinstance(item, Expression) or len(seen) > MOST_OBJECTS:
            return True
        if id(item) in seen or isinstance(item, _WITHOUT_PARTS):
            continue
        seen[id(item)] = item
        stack.extend(_parts(item))
    return False


def _parts(item: Any) -> Iterable[Any]:
    """Return the parts of an object that may contain sizes."""
    match item:
        case PyTreeDef():
            return (item.node_data(), *item.children())
        case tuple() | list() | set() | frozenset():
            return item
        case dict() | types.MappingProxyType():
            return (*item.keys(), *item.values())
        case ShapeDtypeStruct() | ArrayType():
            return item.shape
        case Jaxpr():
            variables = (*item.invars, *(v for equation in item.eqns for v in equation.outvars))
            return [v.aval for v in variables]
        case functools.partial():
            return (item.func, item.args, item.keywords)
        case types.MethodType():
            return (item.__self__, item.__func__)
        case types.FunctionType():
            return (item.__closure__, item.__defaults__, item.__kwdefaults__)
        case types.CellType():
            with contextlib.suppress(ValueError):  # nothing is in it yet
                return (item.cell_contents,)
            return ()
    if type(item).__module__.partition(".")[0] == "weft":
        return ()
    slots = [name for kind in type(item).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    return (*getattr(item, "__dict__", {}).values(), *(getattr(item, name, None) for name in slots))


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
