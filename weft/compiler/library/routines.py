"""Routines by name: compiled when they are first asked for, and kept as long as the process runs."""

from __future__ import annotations

import threading

from weft.base.errors import InternalError
from weft.base.forks import in_child
from weft.compiler.library import blas, capsules, factors, guard, moves, singular, solves, spectra
from weft.compiler.library.writer import FAMILIES, NUMBERS, TILES, write_family
from weft.compiler.target import llvm
from weft.compiler.target.cpu import cache, link
from weft.compiler.target.cpu.features import Features, host
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.llvm import Parameter, constant, i8, i64, ptr, zero

# Importing a module of families is what registers them.
FAMILY_MODULES = (factors, singular, solves, spectra)
# Fills a place with zeros: which one, and how many bytes.
ZEROS = "weft_zeros"

_lock = threading.RLock()
_libraries: dict[str, link.Library] = {}


@in_child
def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


def text(routine: str, features: Features | None = None) -> str:
    """The module that has a routine, or a function that routines call."""
    machine = features or host()
    if routine == ZEROS:
        return _zeros(machine)
    if moves.is_move(routine):
        return moves.write(routine, machine)
    name, _, letter = routine.removesuffix(TILES).removeprefix("weft_").rpartition("_")
    if letter in NUMBERS:
        if name in blas.PRODUCTS:
            return blas.write(name, letter, machine)
        if name in FAMILIES:
            return write_family(FAMILIES[name], letter, machine)
    raise InternalError(f"There is no routine {routine}.", stage="library")


def _zeros(features: Features) -> str:
    module = llvm.Module(triple=features.triple)
    f = module.function(ZEROS, i64, [Parameter("table", ptr), Parameter("numbers", ptr), Parameter("registers", ptr)])
    table, numbers, _ = f.arguments
    place, size = (f.load(i64, f.offset(numbers, i64, n), 8) for n in range(2))
    f.fill(f.load(ptr, f.offset(table, ptr, place), 8), constant(0, i8), size)
    f.ret(zero(i64))
    return module.text()


def address(routine: str) -> int:
    """Where a routine is in this process."""
    with _lock:
        library = _libraries.get(routine)
        if library is None:
            tier = Tier.LIGHT if moves.is_move(routine) else Tier.QUICK
            made = cache.kept(f"routine {routine}", lambda: text(routine), host(), tier)
            link.provide({name: _imported(name) for name in made.imports})
            library = link.load(made)
            _libraries.update(dict.fromkeys(made.exports, library))
        return library.addresses[routine]


def _imported(name: str) -> int:
    """The address of what a routine calls: the library, the guard, or a function that routines share."""
    if capsules.is_capsule(name):
        return capsules.address(name)
    if guard.is_guard(name):
        return guard.guard().addresses[name]
    return address(name)
