"""The result of compiling a traced jaxpr, with the intermediate forms and the time of each phase."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from weft.base import dtypes
from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.program import stored
from weft.compiler.program.ir import Program
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import array_type

if TYPE_CHECKING:
    from weft.compiler.pipeline import Stage


# The length with which a flat program is traced, and the bound of the lengths that it accepts.
FLAT_LENGTH, FLAT_MOST = (1 << 13) - 1, 1 << 18


class Flat(Enum):
    """Whether a program is for arrays of one length (NO) or of any, run by one thread or by several."""

    NO = "no"
    ALONE = "alone"
    THREADS = "threads"


# Measures the schedules of contractions that have none yet.
Tuner = Callable[[Jaxpr, Target], None]


@dataclass
class Details:
    """Forms between the traced jaxpr and the steps."""

    fused: Jaxpr
    stages: list[Stage]


@dataclass
class Compilation:
    """Compiled form of a jaxpr, with the seconds of each phase, and the folder of its dump if it has one."""

    traced: Jaxpr
    donated: tuple[bool, ...]
    program: Program
    target: Target
    options: CompileOptions = DEFAULT
    details: Details | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    folder: pathlib.Path | None = None
    flagged: bool = False
    flat: Flat = Flat.NO
    key: str | None = None  # under which its steps are on disk
    # Compiles a program that was loaded from disk, from the same traced jaxpr, and so to the same steps.
    recompile: Callable[[], Compilation] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def fused(self) -> Jaxpr:
        """Jaxpr after fusion, from which the steps are built."""
        return self.complete().fused

    @property
    def stages(self) -> list[Stage]:
        """Jaxpr after each pass."""
        return self.complete().stages

    def complete(self) -> Details:
        """Compile a program that was loaded from disk, and give its steps their kernels, lines and equations."""
        with self._lock:
            if self.details is None:
                if self.recompile is None:
                    raise InternalError(f"The program {self.program.name} must have been compiled.", stage="compile")
                with self.options.in_force():
                    compiled = self.recompile()
                stored.complete(self.program, compiled.program)
                self.seconds.update(compiled.seconds)
                self.details, self.traced = compiled.details, compiled.traced
            assert self.details is not None
            return self.details


def with_length(jaxpr: Jaxpr) -> Jaxpr:
    """Add a first argument to a jaxpr: the length of its arrays."""
    return jaxpr.replace(invars=[Var(array_type((), dtypes.int64)), *jaxpr.invars])
