"""Estimated times of the steps of a program on a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.compiler.fuse.cost import equation_cost
from weft.compiler.kernel.cost import work
from weft.compiler.program.ir import Copy, Launch, Step
from weft.compiler.target.costs import KernelCosts
from weft.ir.jaxpr import Equation
from weft.plan.machine import Machine

NANO = 1e-9


def get_step_timer(machine: Machine) -> Callable[[Step], float]:
    """Return the function that estimates the time of each step of one program: that of its kernel if the program is
    compiled for the machine, else that of the equation it comes from, counted once."""
    costs = machine.kernels
    if costs is not None:
        return lambda step: kernel_seconds(step, machine, costs)
    seen: set[Equation] = set()

    def seconds(step: Step) -> float:
        if step.origin is None or step.origin in seen:  # an equation may take several steps
            return 0.0
        seen.add(step.origin)
        return equation_seconds(equation_cost(step.origin), machine)

    return seconds


def kernel_seconds(step: Step, machine: Machine, costs: KernelCosts) -> float:
    """Return the time of a step by its kernel, or by its library call."""
    match step:
        case Launch():
            return NANO * (costs.launch + work(step.full, costs))
        case Copy():
            return NANO * step.size * costs.copied_byte
        case _ if step.origin is None:
            return NANO * costs.launch
        case _:
            return max(NANO * costs.library_call, equation_seconds(equation_cost(step.origin), machine))


def equation_seconds(cost: Any, machine: Machine) -> float:
    """Return the time of flops or of bytes at best, whichever is longer."""
    return max(cost.flops / machine.flops, cost.bytes / machine.memory_bandwidth)
