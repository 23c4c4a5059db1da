"""Importer behind `import jax`: modules whose names are looked up in Weft on access.

Each module of JAX is a module of its own, not the one of Weft under another name: it has JAX's names and no others, so
that `hasattr` agrees with JAX, and libraries that replace its attributes change nothing in Weft.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

from weft.compat.environment import apply_environment
from weft.compat.manifest import Manifest, ModuleEntry
from weft.compat.missing import NO_COUNTERPART, placeholder

ROOTS = ("jax", "jaxlib")
_NOT_FOUND: Any = object()


class JaxModule(types.ModuleType):
    """Module with the names of a module of JAX."""

    _entry: ModuleEntry
    _manifest: Manifest

    def __getattr__(self, name: str) -> Any:
        # Not under the name of a module that is being set up, which the import system asks.
        if "_entry" not in self.__dict__:
            raise AttributeError(name)
        value = resolve(self._manifest, self._entry, name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self._entry.all_names, *(name for name in self.__dict__ if name.startswith("__"))})


def resolve(manifest: Manifest, entry: ModuleEntry, name: str) -> Any:
    """Return the value of `name` in a module of JAX."""
    full = f"{entry.name}.{name}"
    if name == "__all__":  # for `import *`
        return sorted(entry.names)
    if (found := look_up(manifest, entry, name)) is not _NOT_FOUND:
        return found
    refusal = manifest.refusal(entry.name)
    if name in entry.all_names or (refusal is not None and not name.startswith("_")):
        reason = refusal or entry.reason(name) or NO_COUNTERPART
        kind = ("class" if name[:1].isupper() else "value") if refusal else entry.kind(name)
        return placeholder(full, kind, reason)
    raise AttributeError(f"module {entry.name!r} has no attribute {name!r}")


def look_up(manifest: Manifest, entry: ModuleEntry, name: str) -> Any:
    """Return the object of Weft for a name, or `_NOT_FOUND`."""
    if name in entry.targets:
        module, _, attribute = entry.targets[name].rpartition(".")
        return getattr(importlib.import_module(module), attribute)
    full = f"{entry.name}.{name}"
    if full in manifest.modules:
        return importlib.import_module(full)
    if name in entry.all_names:
        for source in sources(entry):
            found = getattr(source, name, _NOT_FOUND)
            if found is not _NOT_FOUND:
                return found
    return _NOT_FOUND


def is_there(manifest: Manifest, entry: ModuleEntry, name: str) -> bool:
    """Return whether Weft has an object for a name."""
    return look_up(manifest, entry, name) is not _NOT_FOUND


def sources(entry: ModuleEntry) -> list[types.ModuleType]:
    """Return the modules in which the names of a module are looked up: those of the manifest, or Weft's module of the
    same name."""
    if entry.sources:
        return [importlib.import_module(source) for source in entry.sources]
    own = "weft" + entry.name.removeprefix("jax")
    try:
        return [importlib.import_module(own)]
    except ModuleNotFoundError as error:
        if error.name is None or not (own + ".").startswith(error.name + "."):
            raise
        return []


class Distribution(importlib.metadata.Distribution):
    """Distribution for `importlib.metadata`: a name and a version."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{path}: JAX is Weft in this process, and has no files")


class Finder(importlib.abc.Loader):
    """Entry of `sys.meta_path` for `jax` and `jaxlib`."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the loader of a module of JAX; raise for a module that Weft does not provide."""
        if fullname.partition(".")[0] not in ROOTS:
            return None
        if not self.manifest.has_module(fullname):
            where = "a private module" if "._" in fullname else "no module of JAX " + self.manifest.version
            raise ModuleNotFoundError(
                f"No module named {fullname!r} when Weft runs as JAX: it is {where} that Weft does not answer for",
                name=fullname,
            )
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=__file__, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return JaxModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        entry = self.manifest.modules.get(name) or ModuleEntry(name)
        loaded = sources(entry)
        module.__doc__ = next((source.__doc__ for source in loaded), None)
        module.__file__ = os.path.join(os.path.dirname(__file__), name.replace(".", os.sep), "__init__.py")
        vars(module).update(_manifest=self.manifest, _entry=entry)
        if name == "jax":
            apply_environment()
        if name in ("jax", "jaxlib", "jax.version", "jaxlib.version"):
            version = self.manifest.version
            module.__version__ = version  # type: ignore[attr-defined]
            module.__version_info__ = tuple(map(int, version.split(".")))  # type: ignore[attr-defined]

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """Find the distributions for `importlib.metadata.version("jax")`."""
        wanted = getattr(context, "name", None)
        return [Distribution(name, self.manifest.version) for name in ROOTS if wanted in (None, name)]

    def invalidate_caches(self) -> None:
        """Do nothing: there are no caches."""


def find_real_jax() -> list[str]:
    """Return the modules of the real JAX that are loaded already."""
    return [n for n, m in sys.modules.items() if n.partition(".")[0] in ROOTS and not isinstance(m, JaxModule)]
