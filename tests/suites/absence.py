"""Stand-ins for names that do not exist here: they can be imported, and raise as soon as they are used."""

from __future__ import annotations

import builtins
from typing import Any


class AbsentName(Exception):
    """A public name of the peer that Weft's floor does not have."""


class PrivateName(Exception):
    """A private name of the peer; Weft need not have it."""


class NotInstalled(Exception):
    """A library that a test needs and that is not installed here."""


def stand_in(path: str, error: type[Exception]) -> type:
    """Create a class in the place of `path` that raises `error` when it is called or asked for an attribute.

    A name of an exception becomes an exception class, so that `assertRaises` accepts it; nothing raises it.
    """
    module, _, name = path.rpartition(".")
    if name.endswith(("Error", "Exception", "Warning")):
        return type(name, (Exception,), {"__module__": module})

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            raise error(path)

        def __getattr__(cls, attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            if error is NotInstalled:
                return stand_in(f"{path}.{attribute}", error)
            raise error(f"{path}.{attribute}")

        def __instancecheck__(cls, instance: object) -> bool:
            return False

        def __subclasscheck__(cls, subclass: type) -> bool:
            return False

    return Meta(name or path, (), {"__module__": module})


UNAVAILABLE = ("tensorflow", "grain", "torch", "onnxruntime", "tf_keras")
"""Libraries that test files of Keras import at their top and that few of their tests use."""


def install_stand_ins(folder: str) -> None:
    """Let imports of unavailable libraries succeed in files below `folder`."""
    original = builtins.__import__

    def import_or_stand_in(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        root, *rest = name.split(".")
        if level or root not in UNAVAILABLE or folder not in str((globals or {}).get("__file__", "")):
            return original(name, globals, locals, fromlist, level)
        found = stand_in(root, NotInstalled)
        for part in rest if fromlist else ():
            found = getattr(found, part)
        return found

    builtins.__import__ = import_or_stand_in
