"""Checks of programs on a plugin's devices: one flag for all of them, an additional result of the program.

The flag is read where a value is read or waited for. If it is set, Weft's own code for CPUs runs the same program on
the same arguments, with a trap for each check, and raises the error of the one that failed. So memory of arguments is
not donated, and arguments are held until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.compile_options import CompileOptions
from weft.base.dataclass import dataclass
from weft.base.errors import FailedCheckError
from weft.compiler.passes.choose_platform import choose_platform
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.flags import with_flag
from weft.compiler.passes.inline import inline
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr
from weft.primitives.control.check import CHECK, drop_checks
from weft.runtime.device import CPU, HOME
from weft.runtime.execution_backend import execution_backend
from weft.runtime.pjrt.client import Buffer

# Most runs with unread flags: another one waits for the oldest.
MOST_PENDING = 16
EFFECTS = frozenset({CHECK})


def needs_flag(jaxpr: Jaxpr, options: CompileOptions) -> bool:
    """Return whether a program has checks, and no other effects: it may run a second time."""
    return jaxpr.effects <= EFFECTS and (options.tests_values or CHECK in jaxpr.effects)


def add_flag(jaxpr: Jaxpr, platform: str, options: CompileOptions) -> tuple[Jaxpr, bool]:
    """Return a program whose last result is its flag, without its checks, and True; and False if none can fail."""
    opened = drop_dead(choose_platform(inline(jaxpr), Target(platform, "", "", "", 128)))
    flagged = with_flag(opened, (None,) * len(opened.invars), options, outermost=True)
    return (drop_checks(opened), False) if flagged is None else (flagged, True)


def find_failure(jaxpr: Jaxpr, options: CompileOptions, operands: Sequence[Any]) -> None:
    """Run a program with traps on the CPU, and raise the error of the check that fails."""
    executable = execution_backend(CPU).compile(jaxpr, (), CPU, options)
    with np.errstate(all="ignore"):
        executable([a._value for a in operands], None, HOME)


@dataclass(frozen=True)
class PendingFlag:
    """Flag of a run, and the function that raises the error of the check that failed."""

    flag: Buffer
    find: Callable[[], None]

    def check(self) -> None:
        """Wait for the run, and raise the error of a failed check."""
        client = self.flag.client
        if client.copy_out(self.flag, (), np.dtype(np.bool_)):
            self.find()
            raise FailedCheckError(
                "A check of a program must hold on every device; one failed on a plugin's, but not on the CPU.",
                received=f"a program on {client.plugin.name!r}, which rounds differently",
            )


def check_flags(flags: list[PendingFlag], most: int = 0) -> None:
    """Check the oldest flags until at most `most` remain."""
    while len(flags) > most:
        flags.pop(0).check()
