"""Small loops as one native function: the kernels of the body are in it one after the other, and nothing is interpreted
between them.

A loop is first put down apart from its program (`Outline`). Its rows are all that its code depends on, besides the
texts of its kernels, so their digest is the code's name: equal loops share code, and a program from disk finds the code
of its loops without knowing kernels. Bytecode calls the code as a routine, with the addresses of memory from outside in
its table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.spans import measured
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import symbol_of
from weft.compiler.program.frame import CONSTANTS, FIRST_ARGUMENT, first_own
from weft.compiler.program.ir import (
    ESTIMATED_ITERATIONS,
    Copy,
    Launch,
    Loop,
    Program,
    Step,
    While,
    nested_steps,
)
from weft.compiler.program.outline import Address, NoOutline, Outline, Row
from weft.compiler.target.cpu import kernels, pool
from weft.compiler.target.cpu.bytecode import SHARED_COPY
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.target import Target

# Statements of kernels in one function, each launch counted by itself: LLVM's time grows faster than a function.
MOST_STATEMENTS = 600
# Nanoseconds that the bytecode interpreter takes for a launch and for any other step.
LAUNCH_COST, STEP_COST = 6.0, 2.0
# What a loop must save to be worth compiling: a part of its time, and so many nanoseconds a run.
LEAST_PART, LEAST_NANOSECONDS = 0.04, 300.0
# Memory of at most so many bytes, and of so many in all, is in registers while the loop runs.
MOST_LOCAL, MOST_LOCAL_TOGETHER = 128, 2048


class NativeOutline(Outline):
    """A loop that one thread can run and that cannot fail, but by being interrupted: no launch is shared by threads,
    and no copy is long."""

    def __init__(self, step: Step, program: Program) -> None:
        super().__init__(step, program, _is_small)
        self.locals = self._locals()

    def _locals(self) -> tuple[int, ...]:
        """For each address, how many bytes there the code may hold in registers and write back in the end; 0 if it may
        not, because the same memory is reached in another way too; a negative number if nobody writes to it."""
        left, found = MOST_LOCAL_TOGETHER, []
        first_pointer = first_own(self.program)
        unknown = any(address.register >= first_pointer for address in self.addresses)
        for address in self.addresses:
            size = self.sizes[address]
            apart = not any(
                other is not address
                and other.register == address.register
                and other.offset < address.offset + size
                and address.offset < other.offset + self.sizes[other]
                for other in self.addresses
            )
            alone = not unknown and apart and address not in self.fixed and size <= min(left, MOST_LOCAL)
            left -= size if alone else 0
            found.append((-size if self._constant(address) else size) if alone else 0)
        return tuple(found)

    def _constant(self, address: Address) -> bool:
        index = address.register - FIRST_ARGUMENT
        is_argument = 0 <= index < len(self.program.arguments)
        return address.register == CONSTANTS or (is_argument and not self.program.arguments[index].donated)

    @property
    def symbol(self) -> str:
        """The name of the code."""
        return f"loop_{hashlib.blake2b(repr((self.locals, self.rows)).encode(), digest_size=10).hexdigest()}"


def _is_small(step: Step) -> bool:
    """Whether a step is for one thread."""
    return not (isinstance(step, Launch) and step.grain) and not (isinstance(step, Copy) and step.size >= SHARED_COPY)


@dataclass(frozen=True)
class NativeLoop:
    """The code of a loop, and what bytecode calls it with."""

    code: kernels.CompiledKernel
    addresses: tuple[Address, ...]
    counters: tuple[int, ...]


def native_loops(
    program: Program, target: Target, stats: kernels.CompileStats, make: bool
) -> tuple[dict[Step, NativeLoop], bool]:
    """Loops of a program that have code of their own, the outermost that can; and whether others should have it, which
    are made only if `make` says so."""
    found: dict[Step, NativeLoop] = {}
    wanted = False
    with measured(stats.seconds, "compile", "loops"):
        inner = list(program.steps)
        while inner:
            step = inner.pop()
            outline = _outline(step, program) if isinstance(step, Loop | While) else None
            if outline is not None:
                pool.library()  # whose `weft_look` the code calls
                code = kernels.routine(outline.symbol, None, target, Tier.LIGHT)
                if code is None and worth(step, outline, target):
                    if make:
                        code = kernels.routine(outline.symbol, _Text(outline, target), target, Tier.LIGHT)
                    else:
                        wanted = True
                        continue
                if code is not None:
                    found[step] = NativeLoop(code, tuple(outline.addresses), tuple(outline.counters))
                    continue
            inner.extend(child for body in step.bodies for child in body)
    return found, wanted


def _outline(step: Step, program: Program) -> NativeOutline | None:
    try:
        return NativeOutline(step, program)
    except NoOutline:
        return None


class _Text:
    """The text of a loop's code, written when it is asked for: what lowers kernels is not loaded before."""

    def __init__(self, outline: NativeOutline, target: Target) -> None:
        self.outline, self.target = outline, target

    def __call__(self) -> str:
        from weft.compiler.target.cpu.loop_text import loop_text

        return loop_text(self.outline, self.target)


# -------------------------------------------------------------------------------------------------------- what it pays


def worth(step: Step, outline: NativeOutline, target: Target) -> bool:
    """Whether a loop gains enough. Of kernels known by name only nobody can say, and they cannot be lowered either."""
    if not all(isinstance(kernel, Kernel) for kernel in outline.kernels.values()):
        return False
    sizes = {symbol: _statements(kernel) for symbol, kernel in full(outline.kernels)}
    launches = [inner for inner in nested_steps([step]) if isinstance(inner, Launch)]
    if sum(sizes[symbol_of(launch.kernel)] for launch in launches) > MOST_STATEMENTS:
        return False
    # Costs of kernels are asked for here only, where programs are compiled.
    from weft.compiler.program.cost import launch_work

    works = {symbol_of(launch.kernel): launch_work(launch, target.kernel) for launch in launches}
    spent, saved = times(outline.rows, works)
    return saved >= LEAST_NANOSECONDS and saved >= LEAST_PART * (spent + saved)


def full(known: Mapping[str, Any]) -> Iterator[tuple[str, Kernel]]:
    """The kernels that are known by more than their names."""
    return ((symbol, kernel) for symbol, kernel in known.items() if isinstance(kernel, Kernel))


def times(rows: Sequence[Row], works: Mapping[str, float]) -> tuple[float, float]:
    """Nanoseconds that rows take by themselves, and in the bytecode interpreter besides."""
    spent = saved = 0.0
    for row in rows:
        match row:
            case "launch", symbol, _, _:
                spent, saved = spent + works[symbol], saved + LAUNCH_COST
            case "loop", _, iterations, _, body:
                within = times(body, works)
                count = iterations if isinstance(iterations, int) else ESTIMATED_ITERATIONS
                spent, saved = spent + count * within[0], saved + count * (within[1] + 3 * STEP_COST)
            case "while", _, condition, _, body:
                first, second = times(condition, works), times(body, works)
                spent += ESTIMATED_ITERATIONS * (first[0] + second[0])
                saved += ESTIMATED_ITERATIONS * (first[1] + second[1] + 3 * STEP_COST)
            case "branch", _, _, branches:
                # As if each were taken as often as the others.
                parts = [times(branch, works) for branch in branches]
                spent += sum(part[0] for part in parts) / len(parts)
                saved += sum(part[1] for part in parts) / len(parts) + 3 * STEP_COST
            case "copy" | "fill", *_, size:
                spent, saved = spent + size / 64, saved + STEP_COST
            case _:
                saved += STEP_COST
    return spent, saved


def _statements(kernel: Kernel) -> int:
    """How much there is to compile."""

    def of(body: Sequence[Any]) -> int:
        return sum(1 + of(getattr(statement, "body", ())) for statement in body)

    return of(kernel.body)
