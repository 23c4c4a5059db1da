"""The registry of primitives by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.ir.hooks import hooks

if TYPE_CHECKING:
    from weft.ir.primitive import Primitive

_registry: dict[str, Primitive] = {}


def primitive(definition: type[Primitive]) -> Any:
    """Register a primitive class and return its only instance; calling the instance binds it."""
    name = definition.__dict__.get("name", definition.__name__)
    definition.name = name
    if name in _registry:
        raise ValueError(f"A primitive named `{name}` exists already; choose another name.")
    instance = definition()
    instance.__doc__ = definition.__doc__
    _registry[name] = instance
    return instance


def lookup(name: str) -> Primitive:
    """Return the primitive registered under `name`, importing its module if necessary."""
    found = _registry.get(name)
    if found is None:
        hooks.import_primitive(name)
        if name not in _registry:
            raise ValueError(f"There is no primitive named `{name}`.")
        found = _registry[name]
    return found


def is_builtin(operation: Primitive) -> bool:
    """Return whether every process has the same primitive under this name: it is registered and defined by Weft.

    Only programs of such primitives are stored on disk and exported by name.
    """
    return _registry.get(operation.name) is operation and type(operation).__module__.startswith("weft.")


def all_primitives() -> list[Primitive]:
    """Return all primitives in order of registration."""
    return list(_registry.values())
