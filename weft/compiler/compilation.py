"""A program on its way to code: compiled now, or found on disk as an earlier process left it.

From disk come the steps and the names of kernels, which is all that running takes, and nothing of the compiler is
loaded. Whoever looks inside (stages, fusions, profiles by line) asks for the rest, and then the program is compiled
after all: by the same rules from the same traced program, so to the same steps.
"""

from __future__ import annotations

import os
import pathlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from weft.base import dtypes
from weft.base.settings import config
from weft.base.spans import measured
from weft.compiler import cache
from weft.compiler.fingerprint import fingerprint, written
from weft.compiler.program import stored
from weft.compiler.program.ir import Program
from weft.compiler.schedules import pinned
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import array_type

if TYPE_CHECKING:
    from weft.compiler.pipeline import Stage


# In a flat program, the length that stands for all, and the bound of those that it is for.
FLAT_LENGTH, FLAT_MOST = (1 << 13) - 1, 1 << 18


class Flat(Enum):
    """Whether a program is for arrays of one length, or of any, by one thread or by several."""

    NO = "no"
    ALONE = "alone"
    THREADS = "threads"


# Measures the schedules of products that have none yet.
Tuner = Callable[[Jaxpr, Target], None]


@dataclass
class Details:
    """What the compiler had in hand between the traced program and the steps."""

    fused: Jaxpr
    stages: list[Stage]


@dataclass
class Compilation:
    """What became of a program, and how long each part took; where it is dumped, if it is."""

    traced: Jaxpr
    donated: tuple[bool, ...]
    program: Program
    target: Target
    details: Details | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    folder: pathlib.Path | None = None
    flagged: bool = False
    flat: Flat = Flat.NO
    settings: tuple[Any, ...] = field(default_factory=config.key)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def fused(self) -> Jaxpr:
        """The program in the form of which steps are made."""
        return self.complete().fused

    @property
    def stages(self) -> list[Stage]:
        """What each pass left behind."""
        return self.complete().stages

    def complete(self) -> Details:
        """Compile what came from disk, and give its steps their kernels, lines and equations."""
        with self._lock:
            if self.details is None:
                with config.as_of(self.settings):
                    made = self._compiled()
                stored.complete(self.program, made.program)
                self.seconds.update(made.seconds)
                self.details = made.details
            assert self.details is not None
            return self.details

    def _compiled(self) -> Compilation:
        if self.flat is not Flat.NO:
            from weft.compiler.flat import compile_flat

            return compile_flat(self.traced.replace(invars=self.traced.invars[1:]), self.target, self.flat)
        from weft.compiler.compile import compile_program

        return compile_program(self.traced, self.donated, self.target, self.flagged, schedules=self.program.schedules)


def compilation_of(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    flagged: bool = False,
    tune: Tuner | None = None,
    flat: Flat = Flat.NO,
) -> Compilation:
    """The program with its memory planned, ready to be linked; with one flag for all its checks, or a trap for each.
    A flat one is for arrays of any length, which is its first argument (`compiler/flat.py`)."""
    donated = tuple(donated)
    seconds: dict[str, float] = {}
    key = None
    if cache.folder() is not None and not config.enable_checks and not os.environ.get("WEFT_DUMP"):
        with measured(seconds, "compile", "fingerprint"):
            # A program whose products were not measured is another one, until they are.
            key = _key(jaxpr, target, donated, flagged, tune is not None, *([] if flat is Flat.NO else [flat.value]))
    if key is not None:
        with measured(seconds, "compile", "program from disk"):
            content = cache.load_program(key)
            program = None if content is None else stored.from_bytes(content, jaxpr.name)
        # Who has measured since then has chosen for this program too.
        if program is not None and all(pinned(k) in (None, chosen) for k, chosen in program.schedules.items()):
            traced = jaxpr if flat is Flat.NO else with_length(jaxpr)
            return Compilation(traced, donated, program, target, None, seconds, flagged=flagged, flat=flat)
    # The compiler is loaded when the first program is compiled.
    if flat is not Flat.NO:
        from weft.compiler.flat import compile_flat

        made = compile_flat(jaxpr, target, flat)
    else:
        from weft.compiler.compile import compile_program

        made = compile_program(jaxpr, donated, target, flagged, tune)
    made.seconds = seconds | made.seconds
    if key is not None:
        with measured(made.seconds, "compile", "program to disk"):
            kept = stored.to_bytes(made.program)
            if kept is not None:
                cache.store_program(key, kept)
    return made


def with_length(jaxpr: Jaxpr) -> Jaxpr:
    """A program with one more argument, the first: the length of its arrays."""
    return jaxpr.replace(invars=[Var(array_type((), dtypes.int64)), *jaxpr.invars])


def _key(jaxpr: Jaxpr, target: Target, *options: Any) -> str | None:
    """The name of the program on disk, or None if it cannot have one."""
    meaning, settings = fingerprint(jaxpr), written(config.key())
    if meaning is None or settings is None:
        return None
    return cache.program_key(f"{meaning} {settings} {options}", target)
