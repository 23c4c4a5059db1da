"""What becomes of a traced jaxpr on its way to code, and how long each part took."""

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


# The length that a flat program is traced with, in place of every length, and the bound of the lengths that it is for.
FLAT_LENGTH, FLAT_MOST = (1 << 13) - 1, 1 << 18


class Flat(Enum):
    """Whether a program is for arrays of one length, or of any, by one thread or by several."""

    NO = "no"
    ALONE = "alone"
    THREADS = "threads"


# Measures the schedules of contractions that have none yet.
Tuner = Callable[[Jaxpr, Target], None]


@dataclass
class Details:
    """What the compiler had between the traced jaxpr and the steps."""

    fused: Jaxpr
    stages: list[Stage]


@dataclass
class Compilation:
    """What a jaxpr was compiled to, and how long each part took; where it is dumped, if it is."""

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
    # Compiles what came from disk after all, by the same rules from the same traced jaxpr, so to the same steps.
    recompile: Callable[[], Compilation] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def fused(self) -> Jaxpr:
        """The jaxpr after fusion, of which the steps are built."""
        return self.complete().fused

    @property
    def stages(self) -> list[Stage]:
        """The jaxpr after each pass."""
        return self.complete().stages

    def complete(self) -> Details:
        """Compile what came from disk, and give its steps their kernels, lines and equations."""
        with self._lock:
            if self.details is None:
                if self.recompile is None:
                    raise InternalError(f"The program {self.program.name} was not compiled here.", stage="compile")
                with self.options.in_force():
                    compiled = self.recompile()
                stored.complete(self.program, compiled.program)
                self.seconds.update(compiled.seconds)
                self.details, self.traced = compiled.details, compiled.traced
            assert self.details is not None
            return self.details


def with_length(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with one more argument, the first: the length of its arrays."""
    return jaxpr.replace(invars=[Var(array_type((), dtypes.int64)), *jaxpr.invars])
