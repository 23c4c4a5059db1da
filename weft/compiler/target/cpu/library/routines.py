"""Routines by name: compiled when they are first asked for, and loaded as long as the process runs."""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft.base.forks import RenewedLock
from weft.compiler.target.cpu import link, objects, pool
from weft.compiler.target.cpu.library import capsules, guard, shared
from weft.compiler.target.cpu.library.writer import PARALLEL, STEP
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Target
from weft.compiler.target.threads import in_background

# Fills a buffer with zeros: its index in the table, and how many bytes.
ZEROS = "weft_zeros"

_lock = RenewedLock()
_libraries: dict[str, link.Library] = {}


def address(routine: str) -> int:
    """Where a routine is in this process. Not for threads that compile, which it waits for."""
    with _lock.current:
        return _address(routine, {})


def _address(routine: str, begun: dict[str, Callable[[], Object]]) -> int:
    """The same, with the code of what threads have `begun`. What a routine calls is compiled by several threads."""
    library = _libraries.get(routine)
    if library is None:
        code = begun[routine]() if routine in begun else _object(routine, link.make_object)
        missing = [name for name in code.imports if _is_routine(name) and name not in begun and name not in _libraries]
        if len(missing) > 1:
            begun |= {name: in_background(functools.partial(_object, name, link.object_in_thread)) for name in missing}
        link.provide({name: _imported(name, begun) for name in code.imports})
        library = link.load(code)
        _libraries.update(dict.fromkeys(code.exports, library))
    return library.addresses[routine]


def _object(routine: str, make: Callable[[str, Target, Tier], Object]) -> Object:
    """The code of a routine. Loops over elements are worth being optimised: those of functions that routines share, and
    of steps; others only call libraries."""
    tier = Tier.LIGHT if shared.is_shared(routine) or STEP in routine else Tier.QUICK
    return objects.cached_object(f"routine {routine}", lambda: _text(routine), host(), tier, make)


def _text(routine: str) -> str:
    # What writes code is loaded when there is none on disk.
    from weft.compiler.target.cpu.library.texts import text

    return text(routine)


def _is_routine(name: str) -> bool:
    """Whether what a routine calls is our code: not the library, the guard or the pool."""
    return not (capsules.is_capsule(name) or guard.is_guard(name) or name == PARALLEL)


def _imported(name: str, begun: dict[str, Callable[[], Object]]) -> int:
    """The address of what a routine calls: the library, the guard, the pool, or a function of ours."""
    if capsules.is_capsule(name):
        return capsules.address(name)
    if guard.is_guard(name):
        return guard.guard().addresses[name]
    if name == PARALLEL:
        return pool.library().addresses[name]
    return _address(name, begun)
