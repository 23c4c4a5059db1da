"""What the folder of a target adds to the compiler: its emitters, and the library calls that compute what has none.

The compiler asks `tables_of` for the tables of a target and knows none by name. A target's folder registers how to load
its tables where it makes targets, so that a process that only runs compiled programs never loads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr


@dataclass(frozen=True)
class Tables:
    """`emitter_of` returns a function from a `Fusion` to its `Emission` for a kind of fusion, or None; `plan` the call
    of a library for an unfused equation, or for a fusion of the kind "library". Those `compose` makes, where one call
    computes several equations of a jaxpr. `definition` returns how an equation is defined by others on the target."""

    emitter_of: Callable[[str], Callable[[Any], Any] | None]
    plan: Callable[[Equation, Target], LibraryCall]
    compose: Callable[[Jaxpr, Target], Jaxpr] | None = None
    definition: Callable[[Equation, Target], Callable[..., Any] | None] | None = None


_loaders: dict[str, Callable[[], Tables]] = {}


def register(kind: str, load: Callable[[], Tables]) -> None:
    """Have the tables of all targets of a kind loaded by a function, when they are first asked for."""
    _loaders[kind] = load


def tables_of(target: Target) -> Tables:
    """The tables of a target."""
    load = _loaders.get(target.kind)
    if load is None:
        known = ", ".join(sorted(_loaders)) or "none"
        raise InternalError(f"There is no code generator for targets of kind {target.kind!r}; there are: {known}.")
    return load()
