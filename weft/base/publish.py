"""What every public module does when all its names are there: its functions become boundaries of tracebacks, and a name
that it does not have is answered with the one that was meant."""

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
_later: dict[str, frozenset[str]] = {}  # what else each module has when asked for


class MissingNameError(AttributeError):
    """A public module has no such name. The one that was meant is looked for when somebody reads the message, since
    `hasattr` asks too."""

    def __init__(self, module: str, name: str) -> None:
        # Without an object Python looks for no name of its own, which it would suggest after ours.
        super().__init__(module, name, name=name, obj=None)

    def __str__(self) -> str:
        module, name = self.args
        meant = _meant(module, name)
        return f"module {module!r} has no attribute {name!r}" + (f"; did you mean {meant}?" if meant else "")


def publish(name: str, later: Iterable[str] = ()) -> None:
    """Call this at the end of the public module `name`. `later` lists names that its own `__getattr__` finds."""
    names = vars(sys.modules[name])
    for attribute, value in list(names.items()):
        if type(value) is FunctionType and attribute[0] != "_" and value.__module__.startswith("weft."):
            names[attribute] = _as_boundary(value, name)
    suggest(name, later)


def suggest(name: str, later: Iterable[str] = ()) -> None:
    """A part of `publish`, for public modules whose functions another one publishes: answer names that the module
    `name` does not have."""
    vars(sys.modules[name]).setdefault("__getattr__", functools.partial(_missing, name))
    _later[name] = frozenset(later)


def published() -> list[str]:
    """The public modules that were imported so far."""
    return sorted(_later)


def _as_boundary(function: FunctionType, module: str) -> FunctionType:
    found = _published.get(function)
    if found is None:
        found = boundary(function)
        found.__module__ = module  # where it is found again, by pickle too
        _published[function] = _published[found] = found
    return found


def _missing(module: str, name: str) -> Any:
    """The `__getattr__` of a public module."""
    raise MissingNameError(module, name)


def _meant(module: str, name: str) -> str | None:
    """The public name that is most like this one: of the same module, or of another if it is clearly nearer."""
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
