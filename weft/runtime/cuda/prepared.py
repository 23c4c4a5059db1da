"""The steps of a program, prepared for one GPU: which loops are one kernel, code, and calls of libraries."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any

from weft.base.spans import measured
from weft.compiler import cache
from weft.compiler.compilation import Compilation
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import (
    TAPE_ROUTINES,
    Branch,
    Call,
    Communicate,
    Launch,
    Loop,
    Program,
    SetAddress,
    Start,
    Step,
    Wait,
    While,
)
from weft.compiler.program.outline import Outline
from weft.compiler.program.times import TIMED
from weft.compiler.target.code_stats import CodeIsGone, CodeStats
from weft.compiler.target.cuda.library.calls import NOT_RECORDED
from weft.compiler.target.cuda.loop_code import LoopCode, loop_code, positions
from weft.compiler.target.threads import in_background
from weft.runtime.cuda.flags import without_trap
from weft.runtime.cuda.libraries.program import ProgramCalls, prepared_calls, routines_of

# Steps that a graph has at most: loops are unrolled in it.
MOST_STEPS = 6000
# The loops of a program that are one kernel, on disk.
LOOPS, LOOPS_MAGIC = ".l", b"weft gpu loops 2\n"


class PreparedSteps:
    """The steps of a program with all that starting them on a GPU takes. A program from disk that is completed
    (`Compilation.complete`) has other steps afterwards, which are prepared anew."""

    def __init__(self, compilation: Compilation, driver: Any, stats: CodeStats) -> None:
        program = compilation.program
        self.steps: list[Step] = program.steps
        # What is started, and the flag that says whether a check has failed.
        self.started, self.flag = without_trap(self.steps) if compilation.flagged else (self.steps, None)
        # Libraries choose algorithms while threads compile.
        pending = [
            in_background(partial(driver.in_thread, partial(prepared_calls, program, driver, {routine})))
            for routine in sorted(routines_of(program))
        ]
        try:
            self.loops, self.entries = _code(compilation, driver, stats)
        finally:
            with measured(stats.seconds, "compile", "libraries"):
                for wait in pending:
                    wait()
        self.calls = ProgramCalls(program, driver)
        self.can_record = 0 < (recorded_steps(self.started, self.loops) or 0) <= MOST_STEPS
        # What takes time: a loop that is one kernel is one step.
        timed = [s for s in _steps_outside(self.steps, self.loops) if isinstance(s, TIMED) or s in self.loops]
        self.timed = dict.fromkeys(timed)

    def entry(self, symbol: str) -> Any:
        """The code of a kernel or a loop, by its name."""
        return self.entries[symbol]


def prepared(compilation: Compilation, driver: Any, stats: CodeStats) -> PreparedSteps:
    """The steps of a program for a GPU. If it comes from disk and its code is no longer there, it is compiled."""
    try:
        return PreparedSteps(compilation, driver, stats)
    except CodeIsGone:
        compilation.complete()
        return PreparedSteps(compilation, driver, stats)


def _code(compilation: Compilation, driver: Any, stats: CodeStats) -> tuple[dict[Step, LoopCode], dict[str, Any]]:
    """The loops that are one kernel, and the entries of these and of all other kernels."""
    loops = _loops(compilation, driver.processors)
    outside = _steps_outside(compilation.program.steps, loops)
    kernels = [step.kernel for step in outside if isinstance(step, Launch)]
    return loops, driver.code.entries([*kernels, *loops.values()], compilation.target, stats)


def _loops(compilation: Compilation, processors: int) -> dict[Step, LoopCode]:
    """The loops of a program that are one kernel on a GPU with so many processors. Which these are is stored with the
    program: it takes the kernels to find out."""
    program = compilation.program
    steps = list(program.all_steps())
    if not any(isinstance(step, Loop | While | Branch) for step in steps):
        return {}
    key = None if compilation.key is None else cache.key_of(f"{compilation.key} {processors}", compilation.target)
    if all(isinstance(step.kernel, Kernel) for step in steps if isinstance(step, Launch)):
        # What finds and writes loops is not loaded for programs from disk.
        from weft.compiler.target.cuda.loops import loops_of

        found = loops_of(program, compilation.target, processors, _is_unrolled)
        if key is not None:
            cache.write(key + LOOPS, LOOPS_MAGIC, json.dumps(positions(found, steps)).encode())
        return found
    content = None if key is None else cache.read(key + LOOPS, LOOPS_MAGIC)
    if content is None:
        raise CodeIsGone(program.name)
    return {steps[i]: _stored_loop(steps[i], program, *shape) for i, *shape in json.loads(content)}


def _stored_loop(step: Step, program: Program, blocks: int, parts: int, exchanges: Sequence[int]) -> LoopCode:
    return loop_code(Outline(step, program, lambda step: True), blocks, parts, exchanges)


def _is_unrolled(step: Step) -> bool:
    """Whether a loop is unrolled in a graph."""
    return (recorded_steps([step], ()) or MOST_STEPS + 1) <= MOST_STEPS


def _steps_outside(steps: Sequence[Step], loops: Container[Step]) -> Iterator[Step]:
    """All steps but those inside of loops that are one kernel."""
    for step in steps:
        yield step
        if step not in loops:
            for body in step.bodies:
                yield from _steps_outside(body, loops)


def recorded_steps(steps: Sequence[Step], loops: Container[Step], with_collectives: bool = False) -> int | None:
    """How many steps a graph of these has, where some loops are one; None if they are known only when they run.
    Collectives are in it where one GPU runs alone, and nobody has to start them at the same time."""
    total = 0
    for step in steps:
        match step:
            case _ if step in loops:
                total += 1
            case Communicate() | Start(step=Communicate()) if with_collectives:
                total += 1
            case While() | Branch() | Communicate() | Start(step=Communicate()) | Call(routine="host"):
                return None
            case Call() if step.routine in NOT_RECORDED or step.routine in TAPE_ROUTINES:
                return None
            case Loop():
                inside = recorded_steps(step.body, loops, with_collectives)
                if inside is None or not isinstance(step.count, int):
                    return None
                total += step.count * inside
            case SetAddress() | Wait():
                pass
            case _:
                total += 1
    return total
