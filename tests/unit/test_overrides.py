"""Methods that subclasses override take every call that the method of the base class takes.

A subclass whose method has other parameters is called with those of the base class by code that knows only the base.
Where that is intended, a comment on the line of the `def` says so, with the word `override`.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any

import weft

KINDS = inspect.Parameter
OPEN = (KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD)
NOT_IMPORTED = ("weft.as_jax", "weft.compat.pytest_plugin", "weft.launch")
"""Modules that act when they are imported."""


def modules() -> Iterator[types.ModuleType]:
    """Import all modules of the package but those that need a library that is not installed."""
    yield weft
    for found in pkgutil.walk_packages(weft.__path__, "weft."):
        if found.name not in NOT_IMPORTED and not found.name.endswith("__main__"):
            try:
                yield importlib.import_module(found.name)
            except ImportError:
                continue


def classes() -> set[type]:
    """Return the classes that the package defines."""
    found = {value for module in modules() for value in vars(module).values() if isinstance(value, type)}
    return {cls for cls in found if cls.__module__.startswith("weft")}


def function_of(value: Any) -> Any:
    """Return the function that an attribute of a class holds, or None if it is no method."""
    value = getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, types.FunctionType) else None


def is_documented(function: Any) -> bool:
    """Return whether the definition of a function says that its parameters differ on purpose."""
    lines = inspect.getsource(function).splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ")))
    end = next(i for i, line in enumerate(lines) if i >= start and re.search(r":\s*(\.\.\.\s*)?(#.*)?$", line))
    return any(re.search(r"#.*\boverrid", line) for line in lines[start : end + 1])


def mismatch(function: Any, base: Any) -> str:
    """Return what `function` does not take of that which `base` takes, or an empty text."""
    own = inspect.signature(function).parameters
    inherited = inspect.signature(base).parameters
    kinds = {one.kind for one in own.values()}
    if any(one.kind in OPEN for one in inherited.values()):
        return ""  # the base class leaves the parameters to its subclasses
    positional = [one for one in own.values() if one.kind in (KINDS.POSITIONAL_ONLY, KINDS.POSITIONAL_OR_KEYWORD)]
    for index, (name, one) in enumerate(inherited.items()):
        if one.kind is KINDS.KEYWORD_ONLY:
            if name not in own and KINDS.VAR_KEYWORD not in kinds:
                return f"lacks the keyword {name!r}"
        elif index >= len(positional):
            if KINDS.VAR_POSITIONAL not in kinds:
                return f"lacks {name!r}"
        elif one.kind is KINDS.POSITIONAL_OR_KEYWORD and positional[index].name != name:
            if positional[index].kind is not KINDS.POSITIONAL_ONLY or not name.startswith("_"):
                return f"has {positional[index].name!r} where the base class has {name!r}"
    for one in own.values():
        if one.name not in inherited and one.default is KINDS.empty and one.kind not in OPEN:
            return f"needs {one.name!r} too"
    return ""


def overrides(known: Iterable[type]) -> Iterator[tuple[type, type, str, Any, Any]]:
    """Yield each method that overrides another one in the order of inheritance, mixins included."""
    seen = set()
    for cls in known:
        for name in {name for base in cls.__mro__ for name in vars(base)}:
            if name.startswith("__"):
                continue
            line = [base for base in cls.__mro__ if name in vars(base)]
            for nearer, farther in itertools.pairwise(line):
                own, base = function_of(vars(nearer)[name]), function_of(vars(farther)[name])
                if own is None or base is None or (nearer, farther, name) in seen:
                    continue
                seen.add((nearer, farther, name))
                yield nearer, farther, name, own, base


def faults(known: Iterable[type]) -> list[str]:
    """Return the methods whose parameters do not fit, in words."""
    found = []
    for nearer, farther, name, own, base in overrides(known):
        if not all(cls.__module__.startswith("weft") or cls.__module__ == __name__ for cls in (nearer, farther)):
            continue
        text = mismatch(own, base)
        if text and not is_documented(own):
            found.append(f"{nearer.__module__}.{nearer.__qualname__}.{name} {text} ({farther.__qualname__})")
    return sorted(found)


def test_methods_take_the_calls_of_the_base_class() -> None:
    found = faults(classes())
    assert not found, "\n".join(found)


class Base:
    def fit(self, x: int, steps: int = 1) -> None: ...

    def free(self, *args: int) -> None: ...

    def _close(self, force: bool = False) -> None: ...


class Mixin:
    def _close(self, quietly: bool) -> None: ...


class Good(Base):
    def fit(self, x: int, steps: int = 2, more: int = 3) -> None: ...

    def free(self, first: int) -> None: ...


class Bad(Mixin, Base):
    def fit(self, x: int, extra: int) -> None: ...  # no comment says why


class Meant(Base):
    def fit(self, x: int) -> None: ...  # type: ignore[override]


def test_the_check_finds_other_parameters() -> None:
    assert faults([Good, Meant]) == []
    assert faults([Bad]) == [
        f"{__name__}.Bad.fit has 'extra' where the base class has 'steps' (Base)",
        f"{__name__}.Mixin._close has 'quietly' where the base class has 'force' (Base)",
    ]
