"""Describe every module of a peer library, so that its names can be answered without importing it.

`python -m tests.suites.surface keras` runs with the real peer and writes a JSON table: for each module, each name is
another module, an object of the public API (with its public paths), a plain value, or private.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import types

from tests.suites.libraries import LIBRARIES

SKIPPED = ("_test", ".tensorflow", ".torch", ".openvino", "tfsm", "jax2tf", "test_utils.tf", "conftest")
"""Parts of module names that need libraries which are not installed, or are tests."""


def load_modules(name: str) -> dict[str, types.ModuleType]:
    """Import the library and all of its submodules that can be imported here."""
    root = importlib.import_module(name)
    base = pathlib.Path(root.__path__[0])
    names = {name}
    for path in base.rglob("*.py"):
        parts = [name, *path.relative_to(base).with_suffix("").parts]
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        names.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
    modules = {name: root}
    for each in sorted(names):
        if any(part in each for part in SKIPPED):
            continue
        try:
            modules[each] = importlib.import_module(each)
        except BaseException as error:  # a module may exit the process or need a device
            print(f"{each} cannot be imported: {type(error).__name__}: {str(error)[:80]}", file=sys.stderr)
    return modules


def is_public(module: str) -> bool:
    """Return whether users import from the module of this name."""
    parts = module.split(".")
    if parts[0] == "keras":
        return "src" not in parts and "_legacy" not in module and not any(p.startswith("_tf_keras") for p in parts)
    return not any(part.startswith("_") for part in parts) and parts[:2] != ["flax", "nnx"]


def describe(modules: dict[str, types.ModuleType]) -> dict[str, dict[str, list[object]]]:
    """Return a table of all names of all modules, as `[kind, detail]`."""
    public: dict[int, list[str]] = {}
    for name in sorted(filter(is_public, modules), key=lambda name: (name.count("."), name)):
        for key, value in vars(modules[name]).items():
            if not key.startswith("_") and not isinstance(value, types.ModuleType) and callable(value):
                public.setdefault(id(value), []).append(f"{name}.{key}")
    table: dict[str, dict[str, list[object]]] = {}
    for name, module in modules.items():
        entries = table[name] = {}
        for key, value in vars(module).items():
            if key.startswith("__") and key != "__version__":
                continue
            if isinstance(value, types.ModuleType):
                entries[key] = ["module", value.__name__]
            elif id(value) in public:
                entries[key] = ["public", public[id(value)]]
            elif isinstance(value, (int, float, str, tuple, list, type(None))):
                entries[key] = ["value", repr(value)[:2000]]
            else:
                entries[key] = ["private", getattr(value, "__module__", "") or ""]
    return table


def main() -> None:
    library = LIBRARIES[sys.argv[1]]
    library.table.parent.mkdir(parents=True, exist_ok=True)
    library.table.write_text(json.dumps(describe(load_modules(library.name))), encoding="utf-8")


if __name__ == "__main__":
    main()
