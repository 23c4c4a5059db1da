"""Interface between the compiler and the folder of a target: its emitters, and its library calls for equations without
an emitter.

The compiler gets the tables of a target from `get_tables` and refers to no target by name. A target's folder registers
a loader for its tables in its `__init__.py`, so that a process that only runs compiled programs never loads them.
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
    """Code generators of a target.

    `get_emitter` returns, for a kind of fusion, a function from a `Fusion` to its `Emission`, or None. `plan` returns
    the library call for an unfused equation, or for a fusion of the kind "library"; `compose` rewrites a jaxpr so that
    one such call computes several of its equations. `definition` returns a function that computes an equation by
    simpler ones on the target, or None.
    """

    get_emitter: Callable[[str], Callable[[Any], Any] | None]
    plan: Callable[[Equation, Target], LibraryCall]
    compose: Callable[[Jaxpr, Target], Jaxpr] | None = None
    definition: Callable[[Equation, Target], Callable[..., Any] | None] | None = None


_loaders: dict[str, Callable[[], Tables]] = {}


def register(kind: str, load: Callable[[], Tables]) -> None:
    """Register the function that loads the tables of all targets of a kind; it runs at the first use."""
    _loaders[kind] = load


def get_tables(target: Target) -> Tables:
    """Return the tables of a target."""
    load = _loaders.get(target.kind)
    if load is None:
        known = ", ".join(sorted(_loaders)) or "none"
        raise InternalError(f"There is no code generator for targets of kind {target.kind!r}; registered: {known}.")
    return load()
