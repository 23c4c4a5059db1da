"""Limit of one thread for the BLAS library during our calls.

The threads that compute a program are ours. A library that split a matmul among its own threads as well would be
slower, and its results would depend on their number. So the first thread that enters sets the library's number of
threads to one, and the last to leave restores the previous one: outside of our calls the library is as the user set it.
"""

from __future__ import annotations

import functools

from weft.base.forks import in_child
from weft.compiler.target import llvm
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.library import capsules
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import constant, i32, void

ENTER, LEAVE, RESET = "weft_guard_enter", "weft_guard_leave", "weft_guard_reset"
_GET, _SET = "weft_threads_get", "weft_threads_set"


def guard_text(controlled: bool) -> str:
    """Return the LLVM module; its functions do nothing where the library's threads cannot be controlled."""
    module = llvm.Module(triple=host().triple)
    locked, inside, before = (module.variable(name, i32) for name in ("locked", "inside", "before"))
    none, one = constant(0, i32), constant(1, i32)

    def lock(f: llvm.Function) -> None:
        with f.repeat() as region:
            region.again(f.icmp("ne", f.atomic_update("xchg", locked, one, "acquire"), none))

    def unlock(f: llvm.Function) -> None:
        f.atomic_store(none, locked, "release")

    f = module.function(ENTER, void, [])
    if controlled:
        lock(f)
        count = f.load(i32, inside, 4)
        f.store(f.add(count, one), inside, 4)
        with f.when(f.icmp("eq", count, none)):
            threads = f.call(_GET, i32)
            assert threads is not None
            f.store(threads, before, 4)
            with f.when(f.icmp("ne", threads, one)):
                f.call(_SET, void, one)
        unlock(f)
    f.ret()

    def put_back(f: llvm.Function) -> None:
        threads = f.load(i32, before, 4)
        with f.when(f.icmp("ne", threads, one)):
            f.call(_SET, void, threads)

    f = module.function(LEAVE, void, [])
    if controlled:
        lock(f)
        count = f.sub(f.load(i32, inside, 4), one)
        f.store(count, inside, 4)
        with f.when(f.icmp("eq", count, none)):
            put_back(f)
        unlock(f)
    f.ret()

    # For a child process after a fork: threads that were inside do not exist there.
    f = module.function(RESET, void, [])
    if controlled:
        with f.when(f.icmp("ne", f.load(i32, inside, 4), none)):
            put_back(f)
        f.store(none, inside, 4)
        unlock(f)
    f.ret()
    return module.text()


@functools.cache
def guard() -> link.LoadedCode:
    """Return the loaded guard of this process."""
    control = capsules.thread_control()
    symbols = {} if control is None else dict(zip((_GET, _SET), control, strict=True))
    library = link.compile_and_load(guard_text(control is not None), tier=link.Tier.QUICK, symbols=symbols)
    in_child(library.function(RESET))
    return library


def is_guard(symbol: str) -> bool:
    """Return whether a symbol names a function of the guard."""
    return symbol in (ENTER, LEAVE)
