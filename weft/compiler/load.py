"""Compilation through the cache on disk: a Program is loaded as an earlier process stored it, or compiled now.

A stored Program has its steps and the names of kernels, which is all that is needed to run it, and no module of the
compiler is imported. The first access to stages, fusions or profiles by line compiles the jaxpr after all, by the same
rules and so to the same steps.
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
from weft.compiler.fingerprint import fingerprint, write_value
from weft.compiler.program import stored
from weft.compiler.program.ir import Begin, Program
from weft.compiler.schedules import get_pin
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


def load_or_compile(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    options: CompileOptions = DEFAULT,
    flagged: bool = False,
    tune: Tuner | None = None,
    flat: Flat = Flat.NO,
    begin: Begin | None = None,
) -> Compilation:
    """Load a program from the cache, or compile and store it: its memory is planned, and it is ready to be linked.

    Args:
        jaxpr: the traced program.
        donated: which arguments' memory results may take.
        target: the machine.
        options: the options of the compiler.
        flagged: whether checks set one flag for the whole program, instead of a trap for each.
        tune: measures schedules of contractions before these are chosen.
        flat: whether the program is for arrays of any length (`compiler/flat.py`).
        begin: called with each step that is built, so that its kernel can be compiled meanwhile.
    """
    donated = tuple(donated)
    if isinstance(jaxpr, JaxprAtSizes) and options.debugs:
        jaxpr = jaxpr.plain()  # codes of values and elements need concrete sizes
    if isinstance(jaxpr, JaxprAtSizes):
        # Only its kernels are on disk: the program is faster to make than to read.
        return family.compile_instance(jaxpr, donated, target, options, flagged)
    seconds: dict[str, float] = {}
    key = None
    if is_storing(options):
        with measured(seconds, "compile", "fingerprint"):
            # Measured contractions may change the Program, so `tune` is part of the key.
            kind = [] if flat is Flat.NO else [flat.value]
            key = _key(jaxpr, target, options, donated, flagged, tune is not None, *kind)
    if key is not None:
        with measured(seconds, "compile", "program from disk"):
            program = load_program(key, jaxpr.name)
        events.happened.tell(events.CACHE_REQUEST)
        events.happened.tell(events.CACHE_MISS if program is None else events.CACHE_HIT)
        if program is not None:
            events.took(events.CACHE_RETRIEVAL, seconds["program from disk"], fun_name=jaxpr.name)
        if program is not None:
            result = from_steps(jaxpr, donated, program, target, options, flagged, flat)
            result.seconds, result.key = seconds, key
            return result
    result = _compile(jaxpr, donated, target, options, flagged, flat, tune, begin=begin)
    result.seconds = seconds | result.seconds
    if key is not None:
        with measured(result.seconds, "compile", "program to disk"):
            result.key = store_program(key, result.program)
    return result


def is_storing(options: CompileOptions) -> bool:
    """Return whether programs are stored on disk and loaded from there."""
    return cache.folder() is not None and not options.verifies and not os.environ.get("WEFT_DUMP")


def load_program(key: str, name: str) -> Program | None:
    """Load the steps stored under a key; None if there are none, or other schedules were pinned since then."""
    content = cache.load_program(key)
    program = None if content is None else stored.from_bytes(content, name)
    if program is None or not all(get_pin(k) in (None, chosen) for k, chosen in program.schedules.items()):
        return None
    return program


def store_program(key: str, program: Program) -> str | None:
    """Store steps under a key, and return it; None if they cannot be stored."""
    content = stored.to_bytes(program)
    if content is None:
        return None
    cache.store_program(key, content)
    return key


def from_steps(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    program: Program,
    target: Target,
    options: CompileOptions = DEFAULT,
    flagged: bool = False,
    flat: Flat = Flat.NO,
) -> Compilation:
    """Make a compilation of loaded steps, which compiles the jaxpr when its intermediate forms are first read."""
    traced = jaxpr if flat is Flat.NO else with_length(jaxpr)
    again = functools.partial(
        _compile, jaxpr, donated, target, options, flagged, flat, None, schedules=program.schedules
    )
    return Compilation(traced, tuple(donated), program, target, options, flagged=flagged, flat=flat, recompile=again)


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


def compile_again(
    jaxpr: Jaxpr, donated: Sequence[bool], target: Target, options: CompileOptions, schedules: Mapping[str, str]
) -> Compilation:
    """Compile a jaxpr to the steps that it has on disk, with the same schedules."""
    return _compile(jaxpr, donated, target, options, False, Flat.NO, None, schedules)


def from_types(
    name: str,
    args: Sequence[Type],
    results: Sequence[Type],
    donated: Sequence[bool],
    program: Program,
    target: Target,
    options: CompileOptions,
    recompile: Callable[[], Compilation],
) -> Compilation:
    """Make a compilation of loaded steps without a jaxpr, from the types of its arguments and results; `recompile`
    makes the intermediate forms when they are first read."""
    traced = Jaxpr((), [Var(t) for t in args], [Var(t) for t in results], [], (), name)
    return Compilation(traced, tuple(donated), program, target, options, recompile=recompile)


def _key(jaxpr: Jaxpr, target: Target, options: CompileOptions, *details: Any) -> str | None:
    """Make the key of a program on disk, or None if it has no fingerprint."""
    meaning, settings = fingerprint(jaxpr), write_value(options.tracing)
    if meaning is None or settings is None:
        return None
    return cache.program_key(f"{meaning} {settings} {details}", target)
