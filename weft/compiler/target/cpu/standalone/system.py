"""Routines of BLAS and LAPACK in libraries that are linked against these: `weft_cholesky_d`, for example, loops over a
batch of matrices and calls `dpotrf_`.

Their symbols begin with the name of the library in place of `weft`, so that one program can link several libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from weft.compiler.target.cpu.library import guard, texts
from weft.compiler.target.cpu.library.capsules import is_capsule
from weft.compiler.target.cpu.library.writer import PARALLEL, TILES
from weft.compiler.target.llvm import Module, Parameter, constant, i64, ptr, void
from weft.compiler.target.target import Target

_DECLARED = re.compile(r"^declare [^@\n]*@([\w.$]+)\(", re.MULTILINE)
_DEFINED = re.compile(r"^define (?!internal)", re.MULTILINE)
_FORTRAN = re.compile(r"@weft_(?:blas|lapack)_(\w+)")


def routine_symbol(routine: str, prefix: str) -> str:
    """Return the name of a routine in a library."""
    return f"{prefix}_{routine.removeprefix('weft_')}"


def routine_texts(routines: Iterable[str], target: Target, prefix: str, threads: bool) -> Iterator[tuple[str, str]]:
    """Yield names and LLVM modules of routines, of the functions that they call, and of what they need besides: a guard
    without effect, and without `threads` a function that runs chunks in the caller."""
    # The form of a routine with tiles is in the same module.
    known = {routine.removesuffix(TILES) for routine in routines}
    waiting = sorted(known)
    while waiting:
        routine = waiting.pop()
        text = texts.text(routine, target)
        needed = {name.removesuffix(TILES) for name in _DECLARED.findall(text) if _is_routine(name)} - known
        waiting += sorted(needed)
        known |= needed
        yield routine_symbol(routine, prefix), _rename(text, prefix)
    if known:
        yield f"{prefix}_guard", _rename(_support(target, threads), prefix)


def _is_routine(name: str) -> bool:
    return not (name.startswith("llvm.") or is_capsule(name) or guard.is_guard(name) or name == PARALLEL)


def _rename(text: str, prefix: str) -> str:
    """Rename functions of LAPACK as compilers of Fortran do, and others to hidden ones of the library."""
    return _DEFINED.sub("define hidden ", _FORTRAN.sub(r"@\1_", text)).replace("@weft_", f"@{prefix}_")


def _support(target: Target, threads: bool) -> str:
    module = Module(target.triple)
    for name in (guard.ENTER, guard.LEAVE):
        module.function(name, void, []).ret()
    if not threads:
        f = module.function(
            PARALLEL, i64, [Parameter("kernel", ptr), Parameter("table", ptr), Parameter("n", i64), Parameter("g", i64)]
        )
        kernel, table, count, _ = f.arguments
        f.call_pointer(kernel, void, table, constant(0, i64), count)
        f.ret(constant(0, i64))
    return module.text()
