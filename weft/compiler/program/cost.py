"""Estimate the time of a program, for decisions that do not change its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.compiler.kernel.cost import work
from weft.compiler.program.ir import (
    ESTIMATED_ITERATIONS,
    Branch,
    Call,
    Copy,
    Launch,
    Loop,
    Program,
    Start,
    Step,
    Wait,
    While,
)
from weft.compiler.target.costs import KernelCosts


def estimate(program: Program, costs: KernelCosts) -> float:
    """Estimate the nanoseconds of one run on one thread."""
    return estimate_steps(program.steps, costs)


def launch_work(step: Launch, costs: KernelCosts) -> float:
    """Estimate the nanoseconds of one launch."""
    return work(step.full, costs) if step.nanoseconds is None else step.nanoseconds


def launches(steps: Sequence[Step], times: float = 1.0) -> Iterator[tuple[Launch, float]]:
    """Iterate over the launches in steps that run `times` times, each with the number of times that it runs."""
    for step in steps:
        if isinstance(step, Launch):
            yield step, times
        count = 1.0
        if isinstance(step, Loop):
            count = step.count if isinstance(step.count, int) else ESTIMATED_ITERATIONS
        elif isinstance(step, While):
            count = ESTIMATED_ITERATIONS
        for body in step.bodies:
            yield from launches(body, times * count)


def estimate_steps(steps: Sequence[Step], costs: KernelCosts) -> float:
    """Estimate the nanoseconds of steps on one thread."""
    total = 0.0
    for step in steps:
        match step:
            case Launch():
                total += costs.launch + launch_work(step, costs)
            case Call():
                total += costs.library_call
            case Copy():
                total += step.size * costs.copied_byte
            case Loop():
                count = step.count if isinstance(step.count, int) else ESTIMATED_ITERATIONS
                total += count * estimate_steps(step.body, costs)
            case While():
                total += ESTIMATED_ITERATIONS * (
                    estimate_steps(step.condition, costs) + estimate_steps(step.body, costs)
                )
            case Branch(label="check"):  # the branch that raises is taken at most once
                total += costs.launch
            case Branch():
                total += max(estimate_steps(branch, costs) for branch in step.branches)
            case Start():  # as if no other step overlapped it
                total += estimate_steps([step.step], costs)
            case Wait():
                pass
            case _:
                total += costs.launch
    return total
