"""Steps of a program with what one GPU needs to start them: loops that are one kernel, code, and calls of libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.base.lazy import lazy
from weft.base.spans import measured
from weft.compiler import cache
from weft.compiler.compilation import Compilation
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import Branch, Launch, Loop, Program, Step, While
from weft.compiler.program.outline import Outline
from weft.compiler.program.times import TIMED
from weft.compiler.target.code_stats import CodeIsGone, CodeStats
from weft.compiler.target.cuda.loop_code import LoopCode, loop_code, positions
from weft.compiler.target.threads import in_background
from weft.runtime.cuda.flags import without_trap
from weft.runtime.cuda.graph_plan import GraphPlan, Node, graph_plan, is_unrolled, steps_outside
from weft.runtime.cuda.libraries.program import Alignments, ProgramCalls, find_routines, prepare_calls, round_up

if TYPE_CHECKING:
    from weft.compiler.target.cuda import loops
else:
    loops = lazy("weft.compiler.target.cuda.loops")

# File of the loops of a program that are one kernel.
LOOPS, LOOPS_MAGIC = ".l", b"weft gpu loops 2\n"


class PreparedSteps:
    """Steps of a program with everything that a GPU needs to start them.

    A program from disk has other steps after it is completed (`Compilation.complete`), which are prepared again.
    """

    def __init__(self, compilation: Compilation, driver: Any, stats: CodeStats) -> None:
        program = compilation.program
        self.steps: list[Step] = program.steps
        # The steps that are started, and the flag of failed checks.
        self.started, self.flag = without_trap(self.steps) if compilation.flagged else (self.steps, None)
        # Libraries choose algorithms while threads compile.
        pending = [
            in_background(partial(driver.in_thread, partial(prepare_calls, program, driver, {routine})))
            for routine in sorted(find_routines(program))
        ]
        try:
            self.loops = _loops(compilation, driver.processors)
            # None if the host must start the steps.
            self.plan: GraphPlan | None = graph_plan(
                self.started, self.loops, driver.conditional_nodes, Alignments(program).of
            )
            self.nodes: Mapping[Step, Node] = {} if self.plan is None else self.plan.nodes
            outside = steps_outside(program.steps, self.loops)
            kernels = [step.kernel for step in outside if isinstance(step, Launch)]
            codes = [node.code for node in self.nodes.values()]
            self.entries = driver.code.entries([*kernels, *self.loops.values(), *codes], compilation.target, stats)
        finally:
            with measured(stats.seconds, "compile", "libraries"):
                for wait in pending:
                    wait()
        self.calls = ProgramCalls(program, driver)
        self.can_record = self.plan is not None and self.plan.steps > 0
        # The memory of nodes is behind that of libraries.
        self.node_offset = round_up(self.calls.temporary_bytes)
        needed = 0 if self.plan is None else self.plan.memory
        self.temporary_bytes = self.node_offset + needed if needed else self.calls.temporary_bytes
        # Steps that are timed: a loop that is one kernel or one node is one step.
        whole = {**self.loops, **self.nodes}
        self.timed = dict.fromkeys(s for s in steps_outside(self.steps, whole) if isinstance(s, TIMED) or s in whole)

    def entry(self, symbol: str) -> Any:
        """Return the code of a kernel or a loop by its symbol."""
        return self.entries[symbol]


def prepare_steps(compilation: Compilation, driver: Any, stats: CodeStats) -> PreparedSteps:
    """Prepare the steps of a program for a GPU; compile it if it comes from disk and its code has been deleted."""
    try:
        return PreparedSteps(compilation, driver, stats)
    except CodeIsGone:
        compilation.complete()
        return PreparedSteps(compilation, driver, stats)


def _loops(compilation: Compilation, processors: int) -> dict[Step, LoopCode]:
    """Find the loops of a program that are one kernel on a GPU with this many multiprocessors.

    They are stored with the program, since finding them needs the kernels.
    """
    program = compilation.program
    steps = list(program.all_steps())
    if not any(isinstance(step, Loop | While | Branch) for step in steps):
        return {}
    key = None if compilation.key is None else cache.make_key(f"{compilation.key} {processors}", compilation.target)
    if all(isinstance(step.kernel, Kernel) for step in steps if isinstance(step, Launch)):
        found = loops.find_loops(program, compilation.target, processors, lambda step: is_unrolled([step], {}))
        if key is not None:
            cache.write(key + LOOPS, LOOPS_MAGIC, json.dumps(positions(found, steps)).encode())
        return found
    content = None if key is None else cache.read(key + LOOPS, LOOPS_MAGIC)
    if content is None:
        raise CodeIsGone(program.name)
    return {steps[i]: _loop_from_disk(steps[i], program, *shape) for i, *shape in json.loads(content)}


def _loop_from_disk(step: Step, program: Program, blocks: int, parts: int, exchanges: Sequence[int]) -> LoopCode:
    return loop_code(Outline(step, program, lambda step: True), blocks, parts, exchanges)
