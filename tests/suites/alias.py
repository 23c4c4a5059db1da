"""Let the name of a peer library mean Weft's floor in this process, for the peer's own tests.

Each module of the peer becomes a module whose names are looked up in this order:

1. a replacement (`replacements.py`)
2. a module of the peer: another such module, or for test utilities the peer's own file, executed
3. an object of the peer's public API: the object of Weft's floor under that public path, else `AbsentName`
4. a private object: the object of the same name anywhere in Weft's floor, else `PrivateName`
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import pkgutil
import sys
import types
from collections.abc import Sequence
from typing import Any

from tests.suites.absence import AbsentName, PrivateName, stand_in
from tests.suites.libraries import Library


class Alias(types.ModuleType):
    """A module of the peer whose names are answered by Weft."""

    def __init__(self, name: str, names: Names) -> None:
        super().__init__(name)
        self.__names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        return self.__names.look_up(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted(self.__names.table.get(self.__name__, {}).keys() | self.__dict__.keys())


class Names(importlib.abc.Loader):
    """Importer of the peer's modules and resolver of their names."""

    def __init__(self, library: Library, source: pathlib.Path, replacements: dict[str, Any]) -> None:
        self.library = library
        self.source = source
        self.replacements = replacements
        self.table: dict[str, dict[str, list[Any]]] = json.loads(library.table.read_text(encoding="utf-8"))

    @functools.cached_property
    def by_name(self) -> dict[str, Any]:
        """All objects of Weft's floor by their names; the first module that has a name counts."""
        found: dict[str, Any] = {}
        root = importlib.import_module(self.library.floor)
        prefix = self.library.floor + "."
        for name in [self.library.floor, *(module.name for module in pkgutil.walk_packages(root.__path__, prefix))]:
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            for key, value in vars(module).items():
                if not key.startswith("__") and str(getattr(value, "__module__", "")).startswith("weft"):
                    found.setdefault(key, value)
        return found

    def resolve(self, path: str) -> Any:
        """Return the object of Weft under a public path of the peer; raise AttributeError if there is none."""
        for prefix, target in self.library.roots:
            if path != prefix and not path.startswith(prefix + "."):
                continue
            found: Any = importlib.import_module(target)
            name = target
            try:
                for part in filter(None, path[len(prefix) :].split(".")):
                    name += "." + part
                    found = getattr(found, part) if hasattr(found, part) else importlib.import_module(name)
            except (AttributeError, ModuleNotFoundError):
                continue
            return found
        raise AttributeError(path)

    def look_up(self, module: str, name: str) -> Any:
        """Return what `name` means in the peer's module."""
        path = f"{module}.{name}"
        if path in self.replacements:
            return self.replacements[path]
        kind, detail = self.table.get(module, {}).get(name, (None, None))
        if path in self.table and kind in (None, "module"):
            return importlib.import_module(path)
        if kind is None:
            return importlib.import_module(path) if name.endswith("_test") else self.resolve(path)
        if kind == "module":
            return importlib.import_module(detail)
        if kind == "public":
            return self._public(module, detail)
        return self._private(path, name, kind, detail)

    def _public(self, module: str, paths: list[str]) -> Any:
        for path in sorted(paths, key=lambda path: (path.rpartition(".")[0] != module, path.count("."))):
            if path in self.replacements:
                return self.replacements[path]
            try:
                return self.resolve(path)
            except AttributeError:
                continue
        return stand_in(paths[0], AbsentName)

    def _private(self, path: str, name: str, kind: str, detail: str) -> Any:
        without_source = ".".join(part for part in path.split(".") if part not in ("src", "_src"))
        for each in (path, without_source):
            try:
                return self.resolve(each)
            except AttributeError:
                continue
        if name in self.by_name:
            return self.by_name[name]
        if kind == "value":
            try:
                return ast.literal_eval(detail)
            except (SyntaxError, ValueError):
                pass
        return stand_in(path, PrivateName)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module of the peer; other libraries are left to other finders."""
        if name.partition(".")[0] != self.library.name:
            return None
        utilities = self.library.utilities
        if name.endswith("_test") or any(name == each or name.startswith(each + ".") for each in utilities):
            file = self.source / (name.replace(".", "/") + ".py")
            folder = self.source / name.replace(".", "/")
            if file.exists():
                return importlib.util.spec_from_file_location(name, file)
            if (folder / "__init__.py").exists():
                return importlib.util.spec_from_file_location(
                    name, folder / "__init__.py", submodule_search_locations=[str(folder)]
                )
        if name not in self.table:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Create the module that answers by look-ups."""
        return Alias(spec.name, self)

    def exec_module(self, module: types.ModuleType) -> None:
        """Name the file that the module would have; nothing is executed."""
        module.__file__ = str(self.source / (module.__name__.replace(".", "/") + ".py"))


def install(library: Library, source: pathlib.Path) -> None:
    """Answer imports of `library` by Weft's floor, and those of jax by Weft, from now on."""
    from weft import compat

    compat.install()
    from tests.suites.replacements import replacements

    sys.meta_path.insert(0, Names(library, source, replacements(library)))
