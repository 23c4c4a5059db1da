"""Stretches of a program between collectives: a GPU runs each as a graph.

Processes must all record a collective or none, and what they have recorded depends on where their arrays are. So graphs
have no collectives in them, and each GPU has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler.program.ir import Communicate, Start, Step, Wait
from weft.compiler.target.cuda.loop_code import LoopCode
from weft.runtime.cuda.executable import MOST_GRAPHS, MOST_SEEN, Run
from weft.runtime.cuda.graph_plan import is_unrolled


def communicates(step: Step) -> bool:
    """Whether there is a collective in a step, or the wait for one."""
    if isinstance(step, Start):
        return communicates(step.step)
    return isinstance(step, Communicate | Wait) or any(communicates(inner) for body in step.bodies for inner in body)


def cut_at_collectives(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Steps in stretches without collectives, and by itself each that has one, or waits for one."""
    found: list[tuple[Step, ...]] = []
    for step in steps:
        if found and not communicates(step) and not communicates(found[-1][-1]):
            found[-1] = (*found[-1], step)
        else:
            found.append((step,))
    return found


class Stretch:
    """Steps of one GPU without a collective, and their graphs by the registers that they are started with."""

    def __init__(self, steps: Sequence[Step], loops: Mapping[Step, LoopCode]) -> None:
        self._steps = steps
        # A single step is started as quickly by itself.
        self._can_record = is_unrolled(steps, loops, least=2)
        # With each graph the registers as its steps leave them.
        self._graphs: dict[bytes, tuple[Any, np.ndarray]] = {}
        self._seen: dict[bytes, None] = {}

    def start(self, run: Run) -> None:
        """Start the steps; from the second time on, with the same registers, as a graph."""
        if not self._can_record:
            run.steps(self._steps)
            return
        key = run.registers.tobytes()
        found = self._graphs.get(key)
        if found is None and key in self._seen:
            del self._seen[key]
            while len(self._graphs) >= MOST_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)), None)
            graph = run.driver.record(lambda stream: self._record(run, stream))
            found = self._graphs[key] = graph, run.registers.copy()
        if found is None:
            while len(self._seen) >= MOST_SEEN:
                self._seen.pop(next(iter(self._seen)), None)
            self._seen[key] = None
            run.steps(self._steps)
        else:
            graph, registers = found
            run.driver.start(graph)
            run.registers[:] = registers

    def _record(self, run: Run, stream: Any) -> None:
        run.work, work = stream, run.work
        try:
            run.steps(self._steps)
        finally:
            run.work = work
