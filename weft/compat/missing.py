"""Placeholders for names of JAX that Weft has not: they can be imported, compared and stored, and raise when used.

A library may name a class only to ask `isinstance`, or a function only in a branch that is never taken. So looking a
name up is no error. Calling it, reading an attribute of it or computing with it is one, which says what to use instead.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from weft.base.errors import NotSupportedError
from weft.compat.report import REPORT

NO_COUNTERPART = "Weft has no counterpart"


def fail(name: str, reason: str) -> NoReturn:
    """Raise the error of a name that is used."""
    REPORT.count_use(name)
    raise NotSupportedError(f"{name} is not there when Weft runs as JAX: {reason}.")


def placeholder(name: str, kind: str, reason: str) -> Any:
    """Return the placeholder that an import of `name` finds."""
    REPORT.count_lookup(name)
    if kind == "exception":
        return _exception(name)
    if kind == "class":
        return _class(name, reason)
    return MissingValue(name, reason)


class MissingValue:
    """Placeholder of a function or value that Weft lacks."""

    def __init__(self, name: str, reason: str) -> None:
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.__module__ = name.rpartition(".")[0]
        self.__doc__ = f"Not there when Weft runs as JAX: {reason}."
        self._missing = (name, reason)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _later(*self._missing)

    def __getattr__(self, attribute: str) -> Any:
        # copy, inspect and numpy probe for special methods and handle AttributeError.
        if attribute.startswith("__") or attribute == "_missing":
            raise AttributeError(attribute)
        return _later(*self._missing)

    def __bool__(self) -> bool:
        fail(*self._missing)

    def __iter__(self) -> Iterator[Any]:
        REPORT.count_use(self._missing[0])
        return iter(())

    def __getitem__(self, index: Any) -> Any:
        return _later(*self._missing)

    def __setitem__(self, index: Any, value: Any) -> None:
        _later(*self._missing)

    def __repr__(self) -> str:
        return f"<{self._missing[0]}, which Weft has not>"


class MissingMeta(type):
    """Metaclass of classes that Weft lacks: nothing is an instance of them and none can be made."""

    _missing: tuple[str, str]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_missing" in vars(cls):
            return _later(*cls._missing)
        return super().__call__(*args, **kwargs)  # a subclass of a library, which was warned

    def __getattr__(cls, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        name, reason = cls._missing
        return MissingValue(f"{name}.{attribute}", reason)

    def __iter__(cls) -> Iterator[Any]:
        REPORT.count_use(cls._missing[0])
        return iter(())

    def __repr__(cls) -> str:
        return f"<class {cls._missing[0]}, which Weft has not>" if "_missing" in vars(cls) else super().__repr__()


def _class(name: str, reason: str) -> type:
    def __init_subclass__(cls: type, **options: Any) -> None:
        REPORT.count_use(name)
        warnings.warn(
            f"{cls.__module__}.{cls.__qualname__} derives from {name}, which Weft has not ({reason}): what it inherits "
            "is not there.",
            stacklevel=2,
        )

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        """Accept any arguments: libraries make instances of their subclasses while they are imported."""

    def __getattr__(self: Any, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        fail(f"{name}.{attribute}", reason)

    module, _, short = name.rpartition(".")
    body = {
        "__module__": module,
        "__doc__": f"Not there when Weft runs as JAX: {reason}.",
        "__init__": __init__,
        "__getattr__": __getattr__,
        "__init_subclass__": classmethod(__init_subclass__),
        "__class_getitem__": classmethod(lambda cls, item: cls),
        "_missing": (name, reason),
    }
    return MissingMeta(short, (), body)


def _exception(name: str) -> type:
    """Make a class of exceptions that nothing raises, so that `except` clauses can name it."""
    module, _, short = name.rpartition(".")
    return type(short, (Exception,), {"__module__": module, "__doc__": "Nothing raises it."})


def _later(name: str, reason: str) -> Any:
    """Return the result of a use of a placeholder: during the import of a library another placeholder, such as a
    decorated function, which raises when used; otherwise raise."""
    if _is_importing():
        return MissingValue(name, reason)
    fail(name, reason)


def _is_importing() -> bool:
    """Return whether a module other than the main program is being imported."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return frame.f_back is not None and frame.f_back.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return False
