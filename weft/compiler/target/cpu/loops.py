"""Small loops as one native function: the kernels of the body are inlined in sequence, and nothing is interpreted
between them.

A loop is first separated from its program (`Outline`). Its code depends only on its rows and on the texts of its
kernels, so the digest of the rows is the code's name: equal loops share code, and a program from disk finds the code of
its loops without its kernels. Bytecode calls the code as a routine, with the addresses of outside memory in its table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.spans import measured
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import kernel_symbol
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

# Most statements of kernels in one function, counted for each launch: LLVM's time grows faster than linearly.
MOST_STATEMENTS = 600
# Nanoseconds that the bytecode interpreter takes for a launch and for any other step.
LAUNCH_COST, STEP_COST = 6.0, 2.0
# Least saving for which a loop is compiled: a fraction of its time, and nanoseconds per run.
LEAST_PART, LEAST_NANOSECONDS = 0.04, 300.0
# Memory of at most this many bytes, and this many in total, is in registers while the loop runs.
MOST_LOCAL, MOST_LOCAL_TOGETHER = 128, 2048


class NativeOutline(Outline):
    """Loop for one thread that cannot fail except by an interrupt: no launch is shared by threads, and no copy is
    long."""

    def __init__(self, step: Step, program: Program) -> None:
        super().__init__(step, program, _is_small)
        self.locals = self._locals()

    def _locals(self) -> tuple[int, ...]:
        """Return, for each address, the number of bytes that the code may keep in registers and write back at the end;
        0 if it may not, because other addresses alias the memory; negative if the memory is constant."""
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
        """Name of the code."""
        return f"loop_{hashlib.blake2b(repr((self.locals, self.rows)).encode(), digest_size=10).hexdigest()}"


def _is_small(step: Step) -> bool:
    """Return whether one thread executes the step alone."""
    return not (isinstance(step, Launch) and step.grain) and not (isinstance(step, Copy) and step.size >= SHARED_COPY)


@dataclass(frozen=True)
class NativeLoop:
    """Code of a loop, and the operands that bytecode calls it with."""

    code: kernels.CompiledKernel
    addresses: tuple[Address, ...]
    counters: tuple[int, ...]


def native_loops(
    program: Program, target: Target, stats: kernels.CompileStats, make: bool
) -> tuple[dict[Step, NativeLoop], bool]:
    """Return the outermost loops of a program that have code of their own; and whether others would benefit from code,
    which is compiled only if `make`."""
    found: dict[Step, NativeLoop] = {}
    wanted = False
    with measured(stats.seconds, "compile", "loops"):
        inner = list(program.steps)
        while inner:
            step = inner.pop()
            outline = _outline(step, program) if isinstance(step, Loop | While) else None
            if outline is not None:
                pool.library()  # provides `weft_look`, which the code calls
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
    """Text of a loop's code, generated on demand: the lowering of kernels is not imported before."""

    def __init__(self, outline: NativeOutline, target: Target) -> None:
        self.outline, self.target = outline, target

    def __call__(self) -> str:
        from weft.compiler.target.cpu.loop_text import loop_text

        return loop_text(self.outline, self.target)


# ------------------------------------------------------------------------------------------------------------- savings


def worth(step: Step, outline: NativeOutline, target: Target) -> bool:
    """Return whether compiling a loop saves enough. Loops with kernels known by name only cannot be lowered, and have
    no cost."""
    if not all(isinstance(kernel, Kernel) for kernel in outline.kernels.values()):
        return False
    sizes = {symbol: _statements(kernel) for symbol, kernel in full(outline.kernels)}
    launches = [inner for inner in nested_steps([step]) if isinstance(inner, Launch)]
    if sum(sizes[kernel_symbol(launch.kernel)] for launch in launches) > MOST_STATEMENTS:
        return False
    # Imported late: only compilation needs the costs of kernels.
    from weft.compiler.program.cost import launch_work

    works = {kernel_symbol(launch.kernel): launch_work(launch, target.kernel) for launch in launches}
    spent, saved = times(outline.rows, works)
    return saved >= LEAST_NANOSECONDS and saved >= LEAST_PART * (spent + saved)


def full(known: Mapping[str, Any]) -> Iterator[tuple[str, Kernel]]:
    """Return the kernels that are known by more than their names."""
    return ((symbol, kernel) for symbol, kernel in known.items() if isinstance(kernel, Kernel))


def times(rows: Sequence[Row], works: Mapping[str, float]) -> tuple[float, float]:
    """Estimate the nanoseconds of rows, and the additional nanoseconds of the bytecode interpreter."""
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
                # As if all branches were equally frequent.
                parts = [times(branch, works) for branch in branches]
                spent += sum(part[0] for part in parts) / len(parts)
                saved += sum(part[1] for part in parts) / len(parts) + 3 * STEP_COST
            case "copy" | "fill", *_, size:
                spent, saved = spent + size / 64, saved + STEP_COST
            case _:
                saved += STEP_COST
    return spent, saved


def _statements(kernel: Kernel) -> int:
    """Return the number of statements to compile, nested ones included."""

    def of(body: Sequence[Any]) -> int:
        return sum(1 + of(getattr(statement, "body", ())) for statement in body)

    return of(kernel.body)
