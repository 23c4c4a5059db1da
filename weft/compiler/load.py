"""A Program compiled now, or loaded from disk as an earlier process stored it.

From disk come the steps and the names of kernels, which is all that running takes, and nothing of the compiler is
loaded. Who looks inside (stages, fusions, profiles by line) asks for the rest, and then the jaxpr is compiled
after all: by the same rules, so to the same steps.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.base import events
from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.lazy import lazy
from weft.base.spans import measured
from weft.compiler import cache
from weft.compiler.compilation import Compilation, Flat, Tuner, with_length
from weft.compiler.fingerprint import fingerprint, written
from weft.compiler.program import stored
from weft.compiler.program.ir import Begin, Program
from weft.compiler.schedules import pinned
from weft.compiler.target.target import Target
from weft.ir.at_sizes import JaxprAtSizes
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import Type

if TYPE_CHECKING:
    from weft.compiler import compile as compiler, family, flat as flat_programs
else:
    compiler = lazy("weft.compiler.compile")
    family = lazy("weft.compiler.family")
    flat_programs = lazy("weft.compiler.flat")


def compilation_of(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    options: CompileOptions = DEFAULT,
    flagged: bool = False,
    tune: Tuner | None = None,
    flat: Flat = Flat.NO,
    begin: Begin | None = None,
) -> Compilation:
    """The program with its memory planned, ready to be linked; with one flag for all its checks, or a trap for each.
    A flat one is for arrays of any length, which is its first argument (`compiler/flat.py`). `begin` is told of steps
    as they are built, if they are."""
    donated = tuple(donated)
    if isinstance(jaxpr, JaxprAtSizes) and options.debugs:
        jaxpr = jaxpr.plain()  # which value was the first is told by numbers
    if isinstance(jaxpr, JaxprAtSizes):
        # Its kernels are on disk, but not the program: that takes less to make than to read.
        return family.compile_instance(jaxpr, donated, target, options, flagged)
    seconds: dict[str, float] = {}
    key = None
    if is_storing(options):
        with measured(seconds, "compile", "fingerprint"):
            # Without measured contractions the Program may be another one.
            kind = [] if flat is Flat.NO else [flat.value]
            key = _key(jaxpr, target, options, donated, flagged, tune is not None, *kind)
    if key is not None:
        with measured(seconds, "compile", "program from disk"):
            program = stored_program(key, jaxpr.name)
        events.happened.tell(events.CACHE_REQUEST)
        events.happened.tell(events.CACHE_MISS if program is None else events.CACHE_HIT)
        if program is not None:
            events.took(events.CACHE_RETRIEVAL, seconds["program from disk"], fun_name=jaxpr.name)
        if program is not None:
            result = stored_compilation(jaxpr, donated, program, target, options, flagged, flat)
            result.seconds, result.key = seconds, key
            return result
    result = _compile(jaxpr, donated, target, options, flagged, flat, tune, begin=begin)
    result.seconds = seconds | result.seconds
    if key is not None:
        with measured(result.seconds, "compile", "program to disk"):
            result.key = store_program(key, result.program)
    return result


def is_storing(options: CompileOptions) -> bool:
    """Whether what is compiled is stored on disk, and looked for there."""
    return cache.folder() is not None and not options.verifies and not os.environ.get("WEFT_DUMP")


def stored_program(key: str, name: str) -> Program | None:
    """The steps that are on disk under a key, if there are any and no other schedules were measured since then, which
    hold for them too."""
    content = cache.load_program(key)
    program = None if content is None else stored.from_bytes(content, name)
    if program is None or not all(pinned(k) in (None, chosen) for k, chosen in program.schedules.items()):
        return None
    return program


def store_program(key: str, program: Program) -> str | None:
    """Store steps under a key, and return it; None if they cannot be stored."""
    content = stored.to_bytes(program)
    if content is None:
        return None
    cache.store_program(key, content)
    return key


def stored_compilation(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    program: Program,
    target: Target,
    options: CompileOptions = DEFAULT,
    flagged: bool = False,
    flat: Flat = Flat.NO,
) -> Compilation:
    """A program whose steps are known, by their kernels' names at least; compiled after all when somebody looks
    inside."""
    traced = jaxpr if flat is Flat.NO else with_length(jaxpr)
    compile_again = functools.partial(
        _compile, jaxpr, donated, target, options, flagged, flat, None, schedules=program.schedules
    )
    return Compilation(
        traced, tuple(donated), program, target, options, flagged=flagged, flat=flat, recompile=compile_again
    )


def _compile(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    options: CompileOptions,
    flagged: bool,
    flat: Flat,
    tune: Tuner | None,
    schedules: Any = None,
    begin: Begin | None = None,
) -> Compilation:
    if flat is not Flat.NO:
        return flat_programs.compile_flat(jaxpr, target, flat, options)
    return compiler.compile_program(jaxpr, donated, target, options, flagged, tune, schedules, begin)


def compiled_again(
    jaxpr: Jaxpr, donated: Sequence[bool], target: Target, options: CompileOptions, schedules: Mapping[str, str]
) -> Compilation:
    """A jaxpr whose steps are on disk compiled to the same steps."""
    return _compile(jaxpr, donated, target, options, False, Flat.NO, None, schedules)


def typed_compilation(
    name: str,
    args: Sequence[Type],
    results: Sequence[Type],
    donated: Sequence[bool],
    program: Program,
    target: Target,
    options: CompileOptions,
    recompile: Callable[[], Compilation],
) -> Compilation:
    """A program whose steps are known, and of the jaxpr only the types; `recompile` makes the rest when somebody looks
    inside."""
    traced = Jaxpr((), [Var(t) for t in args], [Var(t) for t in results], [], (), name)
    return Compilation(traced, tuple(donated), program, target, options, recompile=recompile)


def _key(jaxpr: Jaxpr, target: Target, options: CompileOptions, *details: Any) -> str | None:
    """The name of the program on disk, or None if it cannot have one."""
    meaning, settings = fingerprint(jaxpr), written(options.tracing)
    if meaning is None or settings is None:
        return None
    return cache.program_key(f"{meaning} {settings} {details}", target)
