"""Kernels of a program that is still being built: threads compile the first ones while the next ones are emitted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import symbol_of
from weft.compiler.program.cost import estimate_steps
from weft.compiler.program.ir import Launch, Step, nested_steps
from weft.compiler.target.cpu import link, objects
from weft.compiler.target.cpu.kernels import TOGETHER, is_known, statements, text_of
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.target import Target
from weft.compiler.target.threads import submitted

# A module is complete when its kernels have so many statements: LLVM needs some milliseconds for it.
STATEMENTS = 60


class Ahead:
    """Quick code of kernels, compiled by threads from the moment on that a program has steps with them. A program whose
    steps take longer than `most` nanoseconds is compiled with more care, which nothing is begun for."""

    def __init__(self, target: Target, most: float) -> None:
        self._target, self._most = target, most
        self._nanoseconds = 0.0
        self._seen: set[str] = set()
        self._next: list[tuple[str, Kernel]] = []  # those of the module that is not complete
        self._begun: list[Callable[[], Object]] = []

    def steps(self, steps: Sequence[Step]) -> None:
        """Begin to compile the kernels of the next steps of the program."""
        self._nanoseconds += estimate_steps(steps, self._target.kernel)
        if self._nanoseconds > self._most:
            self._next.clear()
            return
        for step in nested_steps(steps):
            if isinstance(step, Launch) and isinstance(step.kernel, Kernel):
                self._add(step.kernel)

    def _add(self, kernel: Kernel) -> None:
        name = symbol_of(kernel)
        if name in self._seen:
            return
        self._seen.add(name)
        if is_known(name, self._target) or any(
            objects.is_stored(name, self._target, tier) for tier in (Tier.QUICK, Tier.LIGHT)
        ):
            return
        self._next.append((name, kernel))
        if len(self._next) == TOGETHER or sum(statements(k.body) for _, k in self._next) >= STATEMENTS:
            self.complete()

    def complete(self) -> None:
        """Begin to compile what is left: nothing comes soon."""
        if self._next:
            work = functools.partial(link.object_in_thread, text_of(self._next, self._target), self._target, Tier.QUICK)
            self._next = []
            self._begun.append(submitted(work))

    def objects(self) -> list[Object]:
        """The code of what was begun, when it is there."""
        begun, self._begun = self._begun, []
        return [wait() for wait in begun]
