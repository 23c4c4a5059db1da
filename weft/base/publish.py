"""Finish public modules: turn their functions into traceback boundaries, and suggest similar names for missing ones.

A public module declares its names once, as type checkers read them: what it defines without a leading underscore, and
what it imports as itself (`from weft.numpy.fft import fft as fft`). `__all__` of a published module is derived from
its source when it is first needed (`import *`, `help`, the reference site), unless the module assigns it.
"""

from __future__ import annotations

import ast
import difflib
import functools
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
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
    export(name)
    _later[name] = frozenset(later)


def export(name: str) -> None:
    """Derive `__all__` of the module `name` from its source when it is first needed: for `import *` from packages that
    are not public themselves."""
    names = vars(sys.modules[name])
    names["__getattr__"] = functools.partial(_find, name, names.get("__getattr__"))


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


def _find(module: str, own: Callable[[str], Any] | None, name: str) -> Any:
    """Find a name that is not in the module: the `__getattr__` of a public module, which first asks its `own`."""
    if name == "__all__":
        return public_names(module)
    if own is not None:
        return own(name)
    raise MissingNameError(module, name)


def public_names(module: str) -> list[str]:
    """Return `__all__` of a module, and assign it if the module does not."""
    names = vars(sys.modules[module])
    if "__all__" not in names:
        declared = dict.fromkeys(_declarations(module))
        names["__all__"] = [name for name in declared if name in names or name in _later.get(module, ())]
    result: list[str] = names["__all__"]
    return result


def _declarations(module: str) -> Iterator[str]:
    """Yield the names that the source of a module exports to type checkers.

    Without the source (a distribution of compiled files alone) these are all names but those of other modules."""
    loader: Any = sys.modules[module].__loader__
    source = loader.get_source(module) if hasattr(loader, "get_source") else None
    if source is None:
        found = vars(sys.modules[module]).items()
        return (name for name, value in found if name[0] != "_" and not isinstance(value, ModuleType))
    return (name for name in _names_bound_by(ast.parse(source).body) if name[0] != "_")


def _names_bound_by(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Assign():
                targets = [node for target in statement.targets for node in getattr(target, "elts", [target])]
                yield from (node.id for node in targets if isinstance(node, ast.Name))
            case ast.AnnAssign(target=ast.Name(name)):
                yield name
            case ast.ImportFrom(module=str(source), names=[ast.alias("*")], level=0):
                yield from public_names(source)
            case ast.Import() | ast.ImportFrom():
                yield from (alias.name for alias in statement.names if alias.name == alias.asname)
            case ast.If() | ast.Try():
                yield from _names_bound_by([*statement.body, *statement.orelse])


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
    return [name for name in dict.fromkeys((*public_names(module), *_later[module])) if name[0] != "_"]
