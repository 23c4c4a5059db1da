"""Public names of the installed JAX by module and kind; with --write they replace those of the manifest.

python -m tests.peer.jax_names            what the manifest lacks and what it has too much
python -m tests.peer.jax_names --write    the manifest with the names of this JAX; what people wrote in it stays
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import types
import typing
import warnings
from collections.abc import Iterator
from typing import Any

import jax

from weft.compat.manifest import Manifest, read_manifest, write_manifest

Names = dict[str, dict[str, str]]

# Modules that hold code and import for their own use; the others hold what they import.
IMPLEMENTATIONS = ("jax.experimental.", "jax.example_libraries.")


def public_names(manifest: Manifest) -> Names:
    """Return {module: {name: kind}} of every public module of JAX that can be imported and is not refused."""
    found: Names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ["jax", *(info.name for info in pkgutil.walk_packages(jax.__path__, "jax.", onerror=str))]:
            if "._" in name or manifest.refusal(name) is not None:
                continue
            module = importlib.import_module(name)
            found[name] = {key: kind for key in sorted(_exported(module)) if (kind := _kind(module, key))}
    return found


def _exported(module: types.ModuleType) -> set[str]:
    """Return the names that a module's source defines or exports, and its submodules that are loaded."""
    exports = not module.__name__.startswith(IMPLEMENTATIONS)
    names = {*_bound(ast.parse(inspect.getsource(module)), exports), *getattr(module, "__all__", ())}
    names |= {info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))}
    names &= set(dir(module))
    deprecated = vars(module).get("_deprecations", {})
    names |= {name for name, (_, value) in deprecated.items() if value is not None}
    return {name for name in names if not name.startswith("_")}


def _bound(node: ast.AST, exports: bool) -> Iterator[str]:
    """Names that statements bind; by an import if it renames or says `x as x`, or if the module is one of exports."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ImportFrom(module=str(source), names=aliases):
                every = exports and source.startswith("jax")
                if source != "jax._src.util":  # JAX's own map and zip
                    yield from (alias.asname or alias.name for alias in aliases if alias.asname or every)
            case ast.Import(names=aliases):
                yield from (alias.asname for alias in aliases if alias.asname)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try() | ast.With() | ast.ExceptHandler():
                yield from _bound(child, exports)


def _kind(module: types.ModuleType, name: str) -> str:
    """Return one of `KINDS`; empty for objects of other libraries, such as a module."""
    value: Any = getattr(module, name)
    if isinstance(value, types.ModuleType):
        full = f"{module.__name__}.{name}"
        return "module" if value.__name__ == full else ""
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    if type(value).__module__ in ("logging", "__future__") or getattr(typing, name, ...) is value:
        return ""
    if type(value).__module__ == "typing":  # callable, but nobody calls a union of types
        return "value"
    return "function" if callable(value) else "value"


def differences(manifest: Manifest, names: Names) -> list[str]:
    """Return a line for each difference."""
    lines = []
    for module in sorted(set(names) | {name for name, entry in manifest.modules.items() if not entry.is_private}):
        listed = manifest.modules[module].names if module in manifest.modules else {}
        real = names.get(module, {})
        for name in sorted(set(listed) | set(real)):
            if listed.get(name) != real.get(name):
                lines.append(
                    f"{module}.{name}: {listed.get(name, 'not')} in the manifest, {real.get(name, 'not')} in JAX"
                )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    manifest = read_manifest()
    if parser.parse_args().write:
        write_manifest(manifest, public_names(manifest))
        manifest = read_manifest()
    print(*differences(manifest, public_names(manifest)), sep="\n")


if __name__ == "__main__":
    main()
