"""Routines by name: compiled when they are first asked for, and loaded as long as the process runs."""

from __future__ import annotations

from weft.base.forks import RenewedLock
from weft.compiler.target.cpu import link, objects, pool
from weft.compiler.target.cpu.library import capsules, guard, shared
from weft.compiler.target.cpu.library.writer import LOOPING, PARALLEL
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.targets import host

# Fills a buffer with zeros: its index in the table, and how many bytes.
ZEROS = "weft_zeros"

_lock = RenewedLock()
_libraries: dict[str, link.Library] = {}


def address(routine: str) -> int:
    """Where a routine is in this process."""
    with _lock.current:
        library = _libraries.get(routine)
        if library is None:
            tier = Tier.LIGHT if shared.is_shared(routine) or routine.startswith(LOOPING) else Tier.QUICK
            code = objects.cached_object(f"routine {routine}", lambda: _text(routine), host(), tier)
            link.provide({name: _imported(name) for name in code.imports})
            library = link.load(code)
            _libraries.update(dict.fromkeys(code.exports, library))
        return library.addresses[routine]


def _text(routine: str) -> str:
    # What writes code is loaded when there is none on disk.
    from weft.compiler.target.cpu.library.texts import text

    return text(routine)


def _imported(name: str) -> int:
    """The address of what a routine calls: the library, the guard, the pool, or a function that routines share."""
    if capsules.is_capsule(name):
        return capsules.address(name)
    if guard.is_guard(name):
        return guard.guard().addresses[name]
    if name == PARALLEL:
        return pool.library().addresses[name]
    return address(name)
