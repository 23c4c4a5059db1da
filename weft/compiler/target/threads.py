"""Thread pools for compilation: LLVM and assemblers run without the GIL."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from weft.base.forks import in_child
from weft.base.settings import config, overrides

Made = TypeVar("Made")


def compile_in_threads(
    texts: Sequence[Callable[[], str]], compile_text: Callable[[str], Made], background: bool = False
) -> list[Made]:
    """Compile several texts and return the results in their order. While pool threads compile one text, the calling
    thread generates the next."""
    if len(texts) == 1:
        return [compile_text(texts[0]())]
    pending = [submit(functools.partial(compile_text, text()), background) for text in texts]
    return [result() for result in pending]


def submit(work: Callable[[], Made], background: bool = False) -> Callable[[], Made]:
    """Start work in a thread; return a function that waits for it and returns its result or raises its error. Work in
    the `background` has a pool of its own, so that foreground compilations do not wait for it."""
    try:
        return _threads(background).submit(work).result
    except RuntimeError:  # the interpreter is shutting down, and the pool accepts no more work
        return work


def in_background(work: Callable[[], Made]) -> Callable[[], Made]:
    """Start work as `submit` does, with the calling thread's settings of the disk cache."""
    found = {name: getattr(config, name) for name in ("compilation_cache", "compilation_cache_dir")}

    def start() -> Made:
        with overrides(**found):
            return work()

    return submit(start)


@functools.cache
def _threads(background: bool) -> ThreadPoolExecutor:
    """Return the pool of compiling threads, which lives as long as the process; each thread has its own target
    machines."""
    return ThreadPoolExecutor(compiling_threads(), "weft-better-code" if background else "weft-code")


def compiling_threads() -> int:
    """Return the number of threads that compile at once."""
    return max(1, os.cpu_count() or 1)


# Threads do not survive a fork.
in_child(_threads.cache_clear)
