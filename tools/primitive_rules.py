"""Count, for each rule and attribute of `Primitive`, the classes and the primitives that override it.

    python tools/primitive_rules.py

A property that only one class overrides belongs to that operation and not to all (docs/design/primitive.md).
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import weft.lax
from weft.ir.higher_order import HigherOrder
from weft.ir.primitive import Primitive
from weft.ir.registry import all_primitives, lookup
from weft.lax.primitive_modules import MODULES


def members(owner: type) -> dict[str, str]:
    """Return the name of the class that defines each public attribute and method of a class."""
    found: dict[str, str] = {}
    for cls in reversed(owner.__mro__[:-1]):
        for name, value in [*cls.__dict__.items(), *((n, None) for n in inspect.get_annotations(cls))]:
            if not name.startswith("_") and not isinstance(value, classmethod | staticmethod | property):
                found.setdefault(name, cls.__name__)
    return found


def overriding(name: str) -> tuple[set[str], set[str]]:
    """Return the classes and the primitives that override a member of `Primitive`."""
    base: Any = inspect.getattr_static(Primitive, name, None)
    classes, primitives = set(), set()
    for primitive in all_primitives():
        if inspect.getattr_static(type(primitive), name, None) is not base:
            primitives.add(primitive.name)
            classes.add(next(c.__qualname__ for c in type(primitive).__mro__ if name in c.__dict__))
    return classes, primitives


def main() -> None:
    """Print the members of `Primitive` by mix-in."""
    for names in MODULES.values():
        for name in names.split():
            lookup(name)
    by_owner: dict[str, list[str]] = defaultdict(list)
    for name, owner in members(Primitive).items():
        by_owner[owner].append(name)
    once = 0
    for owner, names in by_owner.items():
        print(f"{owner}: {len(names)}")
        for name in names:
            classes, primitives = overriding(name)
            once += len(classes) <= 1
            print(f"    {name:20s} {len(classes):4d} classes {len(primitives):4d} primitives")
    own = set(members(HigherOrder)) - set(members(Primitive))
    print(f"HigherOrder: {len(own)} more")
    print(f"{sum(map(len, by_owner.values()))} members, {once} of them overridden by at most one class")


if __name__ == "__main__":
    assert weft.lax
    main()
