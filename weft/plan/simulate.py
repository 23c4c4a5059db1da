"""Simulation of a run in which collectives overlap computation: one clock for computation, one for the links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.compiler.partition.reasons import wire_bytes
from weft.compiler.program.ir import Branch, Communicate, Event, Loop, Start, Step, Wait, While
from weft.plan.machine import Machine


class Simulation:
    """Simulation of steps on two clocks. `seconds` returns the time of a step that computes; `sizes` are the axis
    sizes of the mesh."""

    def __init__(self, seconds: Callable[[Step], float], machine: Machine, sizes: Mapping[Any, int]) -> None:
        self.seconds, self.machine, self.sizes = seconds, machine, sizes

    def run(self, steps: Sequence[Step]) -> float:
        """Return the seconds from the start of a block to its end."""
        compute = link = 0.0
        ends: dict[Event, float] = {}
        for step in steps:
            match step:
                case Start(Communicate() as started, event):
                    link = ends[event] = max(compute, link) + self.sending(started)
                case Wait(event):
                    compute = max(compute, ends.get(event, 0.0))
                case Communicate():
                    compute = link = max(compute, link) + self.sending(step)
                case Loop():
                    compute += self.run(step.body) * (step.count if isinstance(step.count, int) else 1)
                case While():
                    compute += self.run(step.condition) + self.run(step.body)
                case Branch():
                    compute += max(map(self.run, step.branches), default=0.0)
                case _:
                    compute += self.seconds(step)
        return max(compute, link)

    def sending(self, step: Communicate) -> float:
        """Return the seconds of a collective."""
        equation = step.equation
        axes = [a for a in equation.primitive.named_axes(equation.params) if a in self.sizes]
        count = 1
        for a in axes:
            count *= self.sizes[a]
        kind = "psum" if len(step.operands) > 1 else equation.primitive.name
        size = wire_bytes(kind, sum(slot.size for slot in step.operands), count)
        if not size:
            return 0.0
        along = self.machine.along(tuple(axes))
        return along.latency + size / along.bandwidth
