"""LLVM text of each routine."""

from __future__ import annotations

import functools

from weft.base.errors import InternalError
from weft.compiler.target import llvm
from weft.compiler.target.cpu.library import blas, boxes, factorizations, hermitian, shared, singular, solves, spectra
from weft.compiler.target.cpu.library.writer import ELEMENT_TYPES, FAMILIES, STEP, TILES, ZEROS, write_family
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import Parameter, constant, i8, i64, ptr, zero
from weft.compiler.target.target import Target

# Importing a module registers its families.
FAMILY_MODULES = (factorizations, hermitian, singular, solves, spectra)


def text(routine: str, target: Target | None = None) -> str:
    """Return the LLVM module that defines a routine, or a function that routines call."""
    machine = target or host()
    if routine == ZEROS:
        return _zeros(machine)
    if shared.is_shared(routine):
        return shared.write(routine, machine)
    if boxes.is_boxes(routine):
        return boxes.write(routine, machine)
    whole = routine.partition(STEP)[0].removesuffix(TILES)
    name, _, letter = whole.removeprefix("weft_").rpartition("_")
    if letter in ELEMENT_TYPES:
        if name in blas.MATMULS:
            return blas.write(name, letter, machine)
        if name in FAMILIES:
            found = _family(name, letter, machine)
            if (own := routine.removesuffix(TILES)) in found:
                return found[own]
    raise InternalError(f"Unknown library routine {routine}.", stage="library")


@functools.lru_cache(2)
def _family(name: str, letter: str, target: Target) -> dict[str, str]:
    """Return the modules of a routine; cached because they are requested one after the other."""
    return write_family(FAMILIES[name], letter, target)


def _zeros(target: Target) -> str:
    module = llvm.Module(triple=target.triple)
    f = module.function(
        ZEROS, i64, [Parameter("table", ptr), Parameter("parameters", ptr), Parameter("registers", ptr)]
    )
    table, parameters, _ = f.arguments
    index, size = (f.load(i64, f.offset(parameters, i64, n), 8) for n in range(2))
    f.fill(f.load(ptr, f.offset(table, ptr, index), 8), constant(0, i8), size)
    f.ret(zero(i64))
    return module.text()
