"""Modules that are imported at the first use of one of their attributes.

They stand among the imports of a file and read like one of them. An import is delayed for one of two reasons: the
package is optional or slow to load (SciPy, h5py, mpi4py), or start-up time needs it (the compiler is loaded with the
first program, an emitter with the first fusion of its kind). A delayed import of Weft's own modules also has a branch
for type checkers:

    if TYPE_CHECKING:
        from weft.runtime.cpu import executable
    else:
        executable = lazy("weft.runtime.cpu.executable")

`tests/unit/test_imports.py` reads both forms: a delayed import must not go up the layers or close a cycle either.
"""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Proxy of a module. Every read of an attribute goes through the table of loaded modules, so that a test may
    replace the module, and a package that is missing raises ImportError each time.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(load(self._name), attribute)

    def __repr__(self) -> str:
        return f"lazy({self._name!r})"


def load(name: str) -> Any:
    """Import a module now and return it."""
    return importlib.import_module(name)


def is_importable(name: str) -> bool:
    """Return whether a module can be imported; if so, it is imported."""
    try:
        load(name)
    except ImportError:
        return False
    return True


def lazy(name: str) -> Any:
    """Return a proxy that imports the module `name` when an attribute of it is first read."""
    return LazyModule(name)
