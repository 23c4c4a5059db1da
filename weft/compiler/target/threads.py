"""Threads that compile: LLVM and assemblers run without the GIL."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from weft.base.forks import in_child
from weft.base.settings import config, overrides

Made = TypeVar("Made")


def compiled_in_threads(
    texts: Sequence[Callable[[], str]], compile_text: Callable[[str], Made], background: bool = False
) -> list[Made]:
    """What each of several texts compiles to. While threads of their own compile them, this one makes the next text."""
    if len(texts) == 1:
        return [compile_text(texts[0]())]
    pending = [submitted(functools.partial(compile_text, text()), background) for text in texts]
    return [result() for result in pending]


def submitted(work: Callable[[], Made], background: bool = False) -> Callable[[], Made]:
    """Start work in a thread; returns a function that waits for it and returns its result, or raises. Work in the
    `background` has other threads, so that nobody else waits for it."""
    try:
        return _threads(background).submit(work).result
    except RuntimeError:  # the process is about to end, and its threads take nothing more
        return work


def in_background(work: Callable[[], Made]) -> Callable[[], Made]:
    """As `submitted`, for work that finds the disk cache where this thread does."""
    found = {name: getattr(config, name) for name in ("compilation_cache", "compilation_cache_dir")}

    def started() -> Made:
        with overrides(**found):
            return work()

    return submitted(started)


@functools.cache
def _threads(background: bool) -> ThreadPoolExecutor:
    """Threads that compile, for as long as the process runs; each keeps its target machines."""
    return ThreadPoolExecutor(compiling_threads(), "weft-better-code" if background else "weft-code")


def compiling_threads() -> int:
    """How many threads compile at once."""
    return max(1, os.cpu_count() or 1)


# Threads do not survive a fork.
in_child(_threads.cache_clear)
