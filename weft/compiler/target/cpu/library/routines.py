"""Library routines by name: compiled at their first use, and loaded as long as the process runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.base.forks import RenewedLock
from weft.base.lazy import lazy
from weft.compiler.target.cpu import link, objects, pool
from weft.compiler.target.cpu.library import capsules, guard, shared
from weft.compiler.target.cpu.library.writer import PARALLEL, STEP
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Target
from weft.compiler.target.threads import in_background

if TYPE_CHECKING:
    from weft.compiler.target.cpu.library import texts
else:
    texts = lazy("weft.compiler.target.cpu.library.texts")

_lock = RenewedLock()
_libraries: dict[str, link.LoadedCode] = {}


def address(routine: str) -> int:
    """Return the address of a routine in this process. Compiling threads must not call it: it waits for them."""
    with _lock.current:
        return _address(routine, {})


def _address(routine: str, begun: dict[str, Callable[[], Object]]) -> int:
    """Return the address of a routine; `begun` has functions that wait for code that threads are compiling. The
    functions that a routine calls are compiled by several threads."""
    library = _libraries.get(routine)
    if library is None:
        code = begun[routine]() if routine in begun else _object(routine, link.make_object)
        missing = [name for name in code.imports if _is_routine(name) and name not in begun and name not in _libraries]
        if len(missing) > 1:
            begun |= {name: in_background(functools.partial(_object, name, link.object_in_thread)) for name in missing}
        link.provide({name: _resolve_import(name, begun) for name in code.imports})
        library = link.load(code)
        _libraries.update(dict.fromkeys(code.exports, library))
    return library.addresses[routine]


def _object(routine: str, make: Callable[[str, Target, Tier], Object]) -> Object:
    """Return the code of a routine. Only loops over elements pay for optimisation: those of shared functions, and of
    steps; other routines only call libraries."""
    tier = Tier.LIGHT if shared.is_shared(routine) or STEP in routine else Tier.QUICK
    return objects.load_object(f"routine {routine}", lambda: _text(routine), host(), tier, make)


def _text(routine: str) -> str:
    return texts.text(routine)


def _is_routine(name: str) -> bool:
    """Return whether a symbol that a routine calls is our code: not the library, the guard or the pool."""
    return not (capsules.is_capsule(name) or guard.is_guard(name) or name == PARALLEL)


def _resolve_import(name: str, begun: dict[str, Callable[[], Object]]) -> int:
    """Return the address of a symbol that a routine calls: of the library, the guard, the pool, or a function of
    ours."""
    if capsules.is_capsule(name):
        return capsules.address(name)
    if guard.is_guard(name):
        return guard.guard().addresses[name]
    if name == PARALLEL:
        return pool.library().addresses[name]
    return _address(name, begun)
