"""Ahead-of-time compilation of kernels while their program is still being built: threads compile the first ones while
the next ones are emitted."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.cost import estimate_steps, launch_work, launches
from weft.compiler.program.ir import Program, Step
from weft.compiler.target.cpu import link, objects
from weft.compiler.target.cpu.carries import carries_much
from weft.compiler.target.cpu.kernels import TOGETHER, is_known, statements, write_module
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.target import Target
from weft.compiler.target.threads import compiling_threads, submit
from weft.ir.jaxpr import Equation

# A module is complete when its kernels have STATEMENTS statements, if two threads compile. With more threads it is
# smaller, and so is the first one, since threads wait for it; small modules take more of LLVM's time in total, and each
# is a file on disk.
FIRST_STATEMENTS, STATEMENTS, LEAST_STATEMENTS = 60, 160, 40
# Kernels whose loops carry many values take almost three times as long in QUICK code, or twice, if it unrolls the
# loops. Where all launches of such a kernel would take more nanoseconds in LIGHT code than the first limit, unrolling
# pays for its additional two milliseconds of compilation; beyond the second, LIGHT code for its six to ten.
WORTH_SEVERAL, WORTH_LIGHT = 1e6, 1e7


def hot_kernels(program: Program, target: Target, devices: int) -> set[str]:
    """Return the symbols of kernels that are worth LIGHT code before the program's first run on this many devices."""
    nanoseconds: defaultdict[str, float] = defaultdict(float)
    kernels: dict[str, Kernel] = {}
    for step, times in launches(program.steps):
        if isinstance(step.kernel, Kernel) and step.nanoseconds is None:
            name = kernel_symbol(step.kernel)
            kernels[name] = step.kernel
            nanoseconds[name] += times * launch_work(step, target.kernel)
    long = [name for name, total in nanoseconds.items() if total * devices > WORTH_LIGHT]
    return {name for name in long if carries_much(kernels[name], target)}


class BackgroundCompilation:
    """Background compilation of kernels, from the moment that a program has steps with them.

    `devices` is the number of devices that run the code. A program whose steps take longer than `most` nanoseconds is
    compiled at a higher tier, for which nothing is started here.
    """

    def __init__(self, target: Target, most: float, devices: int = 1) -> None:
        self._target, self._most, self._devices = target, most, devices
        self._nanoseconds = 0.0
        self._seen: set[str] = set()
        self._several: set[str] = set()  # symbols of kernels whose QUICK code unrolls loops
        self._next: list[tuple[str, Kernel]] = []  # kernels of the incomplete module in QUICK code
        self._statements = 0  # ... and their statements
        self._begun: dict[Tier, list[Callable[[], Object]]] = {Tier.QUICK: [], Tier.LIGHT: []}

    def steps(self, steps: Sequence[Step], equal: Mapping[Equation, int]) -> None:
        """Start compiling the kernels of the program's next steps; `equal` has the number of equal contractions that
        share the code of one."""
        self._nanoseconds += estimate_steps(steps, self._target.kernel)
        if self._nanoseconds > self._most:
            self._next.clear()
            return
        for step, times in launches(steps):
            if isinstance(step.kernel, Kernel):
                count = 1 if step.origin is None else equal.get(step.origin, 1)
                self._add(step.kernel, times * count * launch_work(step, self._target.kernel))

    def _add(self, kernel: Kernel, nanoseconds: float) -> None:
        name = kernel_symbol(kernel)
        if name in self._seen:
            return
        self._seen.add(name)
        target = self._target
        nanoseconds *= self._devices
        is_hot = nanoseconds > WORTH_LIGHT and carries_much(kernel, target)
        if is_known(name, target, Tier.LIGHT if is_hot else Tier.QUICK):
            return
        if any(objects.is_stored(name, target, tier) for tier in (Tier.QUICK, Tier.LIGHT)):
            return
        if is_hot:
            self._begin([(name, kernel)], Tier.LIGHT)
            return
        if nanoseconds > WORTH_SEVERAL:
            self._several.add(name)
        self._next.append((name, kernel))
        self._statements += statements(kernel.body)
        most = max(LEAST_STATEMENTS, 2 * STATEMENTS // compiling_threads())
        if not self._begun[Tier.QUICK]:
            most = min(most, FIRST_STATEMENTS)
        if len(self._next) == TOGETHER or self._statements >= most:
            self.complete()

    def _begin(self, kernels: Sequence[tuple[str, Kernel]], tier: Tier) -> None:
        text = write_module(kernels, self._target, self._several)
        self._begun[tier].append(submit(functools.partial(link.object_in_thread, text, self._target, tier)))

    def complete(self) -> None:
        """Start compiling the incomplete module: no further kernels come soon."""
        if self._next:
            self._begin(self._next, Tier.QUICK)
            self._next, self._statements = [], 0

    def complete_others(self) -> None:
        """Start compiling the incomplete module when all steps are known, if threads are compiling already. Otherwise
        the thread that waits for the code can compile it itself."""
        if any(self._begun.values()):
            self.complete()

    def objects(self, tier: Tier) -> Iterator[Object]:
        """Yield the objects started in a tier, one module after the other, waiting for each."""
        begun, self._begun[tier] = self._begun[tier], []
        return (wait() for wait in begun)
