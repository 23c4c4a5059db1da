"""Kernels of a program that is still being built: threads compile the first ones while the next ones are emitted."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import symbol_of
from weft.compiler.program.cost import estimate_steps, launch_work, launches
from weft.compiler.program.ir import Program, Step
from weft.compiler.target.cpu import link, objects
from weft.compiler.target.cpu.carries import carries_much
from weft.compiler.target.cpu.kernels import TOGETHER, is_known, statements, text_of
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.target import Target
from weft.compiler.target.threads import compiling_threads, submitted
from weft.ir.jaxpr import Equation

# A module is complete when its kernels have so many statements, if two threads compile. With more threads it is
# smaller, and so is the first one, since threads wait for it; small ones take more time of LLVM in all, and each is a
# file on disk.
FIRST_STATEMENTS, STATEMENTS, LEAST_STATEMENTS = 60, 160, 40
# Kernels whose loops carry much take almost three times as long in quick code, or twice, if that takes several
# iterations at a time. Where all launches of one would take longer than so many nanoseconds in light code, the two
# milliseconds more are well spent that it takes to compile this; for more, the six to ten of light code.
WORTH_SEVERAL, WORTH_LIGHT = 1e6, 1e7


def hot_kernels(program: Program, target: Target, devices: int) -> set[str]:
    """The kernels of a program that are worth light code before it runs for the first time, on so many devices."""
    nanoseconds: defaultdict[str, float] = defaultdict(float)
    kernels: dict[str, Kernel] = {}
    for step, times in launches(program.steps):
        if isinstance(step.kernel, Kernel) and step.nanoseconds is None:
            name = symbol_of(step.kernel)
            kernels[name] = step.kernel
            nanoseconds[name] += times * launch_work(step, target.kernel)
    long = [name for name, total in nanoseconds.items() if total * devices > WORTH_LIGHT]
    return {name for name in long if carries_much(kernels[name], target)}


class Ahead:
    """Code of kernels, compiled by threads from the moment on that a program has steps with them; it runs on so many
    devices. A program whose steps take longer than `most` nanoseconds is compiled with more care, which nothing is
    begun for."""

    def __init__(self, target: Target, most: float, devices: int = 1) -> None:
        self._target, self._most, self._devices = target, most, devices
        self._nanoseconds = 0.0
        self._seen: set[str] = set()
        self._several: set[str] = set()  # those whose quick code takes several iterations at a time
        self._next: list[tuple[str, Kernel]] = []  # those of the module in quick code that is not complete
        self._statements = 0  # ... of it
        self._begun: dict[Tier, list[Callable[[], Object]]] = {Tier.QUICK: [], Tier.LIGHT: []}

    def steps(self, steps: Sequence[Step], equal: Mapping[Equation, int]) -> None:
        """Begin to compile the kernels of the next steps of the program; contractions of which there are `equal` ones
        run as often."""
        self._nanoseconds += estimate_steps(steps, self._target.kernel)
        if self._nanoseconds > self._most:
            self._next.clear()
            return
        for step, times in launches(steps):
            if isinstance(step.kernel, Kernel):
                count = 1 if step.origin is None else equal.get(step.origin, 1)
                self._add(step.kernel, times * count * launch_work(step, self._target.kernel))

    def _add(self, kernel: Kernel, nanoseconds: float) -> None:
        name = symbol_of(kernel)
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
        text = text_of(kernels, self._target, self._several)
        self._begun[tier].append(submitted(functools.partial(link.object_in_thread, text, self._target, tier)))

    def complete(self) -> None:
        """Begin to compile what is left: nothing comes soon."""
        if self._next:
            self._begin(self._next, Tier.QUICK)
            self._next, self._statements = [], 0

    def complete_others(self) -> None:
        """Begin to compile what is left when all steps are there, beside what threads are at. If they are at nothing,
        who waits for it can compile it."""
        if any(self._begun.values()):
            self.complete()

    def objects(self, tier: Tier) -> Iterator[Object]:
        """The code of what was begun in a tier, one module after the other, when it is there."""
        begun, self._begun[tier] = self._begun[tier], []
        return (wait() for wait in begun)
