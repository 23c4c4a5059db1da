"""Segments of a program between collectives: a GPU runs each as a graph.

All processes must capture a collective, or none; and whether they do depends on the addresses of their arrays. So
graphs contain no collectives, and each GPU has its own.
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
    """Return whether a step contains a collective, or waits for one."""
    if isinstance(step, Start):
        return communicates(step.step)
    return isinstance(step, Communicate | Wait) or any(communicates(inner) for body in step.bodies for inner in body)


def cut_at_collectives(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Split steps into segments without collectives, and single steps that contain or wait for one."""
    found: list[tuple[Step, ...]] = []
    for step in steps:
        if found and not communicates(step) and not communicates(found[-1][-1]):
            found[-1] = (*found[-1], step)
        else:
            found.append((step,))
    return found


class Stretch:
    """Steps of one GPU without a collective, and their graphs by the registers at their start."""

    def __init__(self, steps: Sequence[Step], loops: Mapping[Step, LoopCode]) -> None:
        self._steps = steps
        # A single step is started as fast by itself.
        self._can_record = is_unrolled(steps, loops, least=2)
        # Each graph with the registers after its steps.
        self._graphs: dict[bytes, tuple[Any, np.ndarray]] = {}
        self._seen: dict[bytes, None] = {}

    def start(self, run: Run) -> None:
        """Start the steps; as a graph from the second time on with the same registers."""
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
