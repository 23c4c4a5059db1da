"""Finish public modules: turn their functions into traceback boundaries, and suggest similar names for missing ones."""

from __future__ import annotations

import difflib
import functools
import pathlib
import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from weft.base.tracebacks import boundary

_published: dict[FunctionType, FunctionType] = {}
_later: dict[str, frozenset[str]] = {}  # names that each module's own `__getattr__` finds


class MissingNameError(AttributeError):
    """A public module has no such name. The similar name is searched only when the message is formatted, because
    `hasattr` raises this error too."""

    def __init__(self, module: str, name: str) -> None:
        # Without an object Python does not add a suggestion of its own.
        super().__init__(module, name, name=name, obj=None)

    def __str__(self) -> str:
        module, name = self.args
        meant = _meant(module, name)
        return f"module {module!r} has no attribute {name!r}" + (f"; did you mean {meant}?" if meant else "")


def publish(name: str, later: Iterable[str] = ()) -> None:
    """Publish the module `name`; call this at its end. `later` lists names that its own `__getattr__` finds."""
    names = vars(sys.modules[name])
    for attribute, value in list(names.items()):
        if type(value) is FunctionType and attribute[0] != "_" and value.__module__.startswith("weft."):
            names[attribute] = _as_boundary(value, name)
    suggest(name, later)


def suggest(name: str, later: Iterable[str] = ()) -> None:
    """Suggest similar names in errors of the module `name`, without creating boundaries: for public modules whose
    functions another module publishes."""
    vars(sys.modules[name]).setdefault("__getattr__", functools.partial(_missing, name))
    _later[name] = frozenset(later)


def published() -> list[str]:
    """Return the public modules that have been imported."""
    return sorted(_later)


def _as_boundary(function: FunctionType, module: str) -> FunctionType:
    found = _published.get(function)
    if found is None:
        found = boundary(function)
        found.__module__ = module  # where pickle finds it
        _published[function] = _published[found] = found
    return found


def _missing(module: str, name: str) -> Any:
    """Raise `MissingNameError`; the `__getattr__` of a public module."""
    raise MissingNameError(module, name)


def _meant(module: str, name: str) -> str | None:
    """Return the most similar public name: of the same module, or of another one if that is clearly more similar."""
    candidates = {module: _public(module)} | {other: _public(other) for other in sorted(_later, key=len)}
    found: tuple[float, str] = max(((1.0, path) for path in _modules_named(module, name)), default=(0.0, ""))
    for other, names in candidates.items():
        for near in difflib.get_close_matches(name, names, n=1):
            likeness = difflib.SequenceMatcher(None, near, name).ratio() + (0.08 if other == module else 0.0)
            found = max(found, (likeness, f"{other}.{near}"), key=lambda pair: pair[0])
    return found[1] or None


def _modules_named(package: str, name: str) -> list[str]:
    """Return the modules of this name in public packages below `package`, which need not be imported."""
    below = [
        pathlib.Path(folder) / other
        for folder in vars(sys.modules[package]).get("__path__", ())
        for other in _public(package)
    ]
    found = [
        folder for folder in below if (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()
    ]
    return [f"{package}.{folder.name}.{name}" for folder in found]


def _public(module: str) -> list[str]:
    names = vars(sys.modules[module])
    return [name for name in (*names.get("__all__", names), *_later[module]) if name[0] != "_"]
