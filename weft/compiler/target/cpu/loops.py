"""Small loops as one native function: the kernels of the body are inlined in sequence, and nothing is interpreted
between them.

A loop is first separated from its program (`Outline`). Its code depends only on its rows and on the texts of its
kernels, so the digest of the rows is the code's name: equal loops share code, and a program from disk finds the code of
its loops without its kernels. Bytecode calls the code as a routine, with the addresses of outside memory in its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.base.lazy import lazy
from weft.base.spans import measured
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.ir import (
    Launch,
    Loop,
    Program,
    Step,
    While,
    nested_steps,
)
from weft.compiler.program.outline import Address, NoOutline
from weft.compiler.target.cpu import kernels, pool
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.native_outline import NativeOutline, full, times
from weft.compiler.target.target import Target

if TYPE_CHECKING:
    from weft.compiler.program import cost
    from weft.compiler.target.cpu import loop_text
else:
    cost = lazy("weft.compiler.program.cost")
    loop_text = lazy("weft.compiler.target.cpu.loop_text")

# Most statements of kernels in one function, counted for each launch: LLVM's time grows faster than linearly.
MOST_STATEMENTS = 600
# Least saving for which a loop is compiled: a fraction of its time, and nanoseconds per run.
LEAST_PART, LEAST_NANOSECONDS = 0.04, 300.0


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
                if code is None and pays_off(step, outline, target):
                    if make:
                        code = kernels.routine(outline.symbol, _LoopText(outline, target), target, Tier.LIGHT)
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


class _LoopText:
    """Text of a loop's code, generated on demand: the lowering of kernels is not imported before."""

    def __init__(self, outline: NativeOutline, target: Target) -> None:
        self.outline, self.target = outline, target

    def __call__(self) -> str:
        return loop_text.loop_text(self.outline, self.target)


# ------------------------------------------------------------------------------------------------------------- savings


def pays_off(step: Step, outline: NativeOutline, target: Target) -> bool:
    """Return whether compiling a loop saves enough. Loops with kernels known by name only cannot be lowered, and have
    no cost."""
    if not all(isinstance(kernel, Kernel) for kernel in outline.kernels.values()):
        return False
    sizes = {symbol: _statements(kernel) for symbol, kernel in full(outline.kernels)}
    launches = [inner for inner in nested_steps([step]) if isinstance(inner, Launch)]
    if sum(sizes[kernel_symbol(launch.kernel)] for launch in launches) > MOST_STATEMENTS:
        return False
    works = {kernel_symbol(launch.kernel): cost.launch_work(launch, target.kernel) for launch in launches}
    spent, saved = times(outline.rows, works)
    return saved >= LEAST_NANOSECONDS and saved >= LEAST_PART * (spent + saved)


def _statements(kernel: Kernel) -> int:
    """Return the number of statements to compile, nested ones included."""

    def of(body: Sequence[Any]) -> int:
        return sum(1 + of(getattr(statement, "body", ())) for statement in body)

    return of(kernel.body)
