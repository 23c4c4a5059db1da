"""Which of the user's lines a step is for, and what it costs: the link between source, equations, kernels and times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from weft.base.source import Location
from weft.compiler.analysis import operations_of
from weft.compiler.fuse.classify import structure
from weft.compiler.fuse.cost import equation_cost, equation_flops
from weft.compiler.fuse.fusion import fusion
from weft.compiler.kernel.ir import Compute, If, Loop, Statement
from weft.compiler.program.cost import launch_work
from weft.compiler.program.ir import Call, Copy, Fill, Launch, Step
from weft.compiler.target.target import ANY
from weft.ir.fusing import element_count
from weft.ir.jaxpr import Equation
from weft.ir.types import ArrayType

Part = TypeVar("Part")


class Line(NamedTuple):
    """A line of the user's."""

    file: str
    number: int

    @staticmethod
    def of(location: Location) -> Line:
        return Line(location.file, location.line)


class StepCost(NamedTuple):
    """What a step does each time it runs. `work` counts a function as the additions that take as long."""

    flops: float = 0.0
    functions: float = 0.0
    work: float = 0.0
    read: float = 0.0
    written: float = 0.0

    @property
    def bytes(self) -> float:
        return self.read + self.written

    def times(self, scale: float) -> StepCost:
        return StepCost(*(scale * count for count in self))

    def plus(self, other: StepCost) -> StepCost:
        return StepCost(*(a + b for a, b in zip(self, other, strict=True)))


def equations_of(equation: Equation) -> tuple[Equation, ...]:
    """The equations that one of the fused jaxpr is made of."""
    return equation.params["jaxpr"].eqns if equation.primitive is fusion else (equation,)


def lines_of(equation: Equation) -> dict[Line, float]:
    """The lines that an equation of the fused jaxpr is for, each with its share of the work; they add up to 1."""
    weights: dict[Line, float] = {}
    for inner in equations_of(equation):
        source = inner.source or equation.source
        if source is not None:
            line = Line.of(source)
            weights[line] = weights.get(line, 0.0) + _weight(inner)
    return _shares(weights)


def scopes_of(equation: Equation) -> dict[str, float]:
    """The named scopes that an equation of the fused jaxpr is in, with their shares: `encoder/layer1`."""
    weights: dict[str, float] = {}
    for inner in equations_of(equation):
        # Transformations are in the stack as calls.
        name = "/".join(part for part in inner.stack if "(" not in part)
        weights[name] = weights.get(name, 0.0) + _weight(inner)
    return _shares(weights)


def _weight(equation: Equation) -> float:
    """How much of a fusion's time an equation is likely to take: its flops, or one for each element that it copies."""
    shapes = [v.aval.shape for v in equation.outvars if isinstance(v.aval, ArrayType)]
    elements = float(max((element_count(shape) for shape in shapes), default=1))
    properties = structure(equation)
    return 0.0 if properties.alias else max(equation_flops(equation), elements)


def step_lines(step: Step) -> dict[Line, float]:
    """The lines that a step is for, with their shares."""
    found = lines_of(step.origin) if step.origin is not None else {}
    if not found and step.line is not None:
        found = {Line.of(step.line): 1.0}
    return found


def costs(steps: Iterable[Step]) -> dict[Step, StepCost]:
    """What each step costs. Where an equation has several kernels they share its flops by how much work they are and
    its bytes by the memory that they read and write; where it calls a library, the call has all of it."""
    groups: dict[int, list[Step]] = {}
    found: dict[Step, StepCost] = {}
    for step in steps:
        match step:
            case Copy():
                found[step] = StepCost(read=step.size, written=step.size)
            case Fill():
                found[step] = StepCost(written=step.target.size)
            case Launch() | Call() if step.origin is not None:
                groups.setdefault(id(step.origin), []).append(step)
            case _:
                found[step] = StepCost()
    for group in groups.values():
        cost = _equation(group[0].origin)
        by_bytes: dict[Step, float]
        by_flops: dict[Step, float]
        calls = [step for step in group if isinstance(step, Call)]
        launches = [step for step in group if isinstance(step, Launch)]
        if calls:
            by_bytes = by_flops = {**dict.fromkeys(launches, 0.0), **dict.fromkeys(calls, 1.0)}
        else:
            # One that only packs an operand is little work, but copies all of it.
            by_bytes = {step: float(touched_bytes(step)) for step in launches}
            # Kernels that only copy have no flops, unless all of them do.
            by_flops = {step: launch_work(step, ANY.kernel) * _computes(step.full.body) for step in launches}
        bytes_share, flops_share = _shares(by_bytes), _shares(by_flops if any(by_flops.values()) else by_bytes)
        for step in group:
            found[step] = StepCost(
                flops=flops_share[step] * cost.flops,
                functions=flops_share[step] * cost.functions,
                work=flops_share[step] * cost.work,
                read=bytes_share[step] * cost.read,
                written=bytes_share[step] * cost.written,
            )
    return found


def touched_bytes(step: Step) -> int:
    """The bytes of all memory that a step reads or writes."""
    return sum(slot.size for slot in dict.fromkeys((*step.reads, *step.writes)))


def _shares(weights: dict[Part, float]) -> dict[Part, float]:
    """Weights that add up to 1."""
    total = sum(weights.values())
    return {part: weight / total if total else 1 / len(weights) for part, weight in weights.items()}


def _computes(body: Iterable[Statement]) -> bool:
    """Whether a kernel has any operation on values."""
    return any(
        isinstance(statement, Compute) or (isinstance(statement, (Loop, If)) and _computes(statement.body))
        for statement in body
    )


def _equation(equation: Equation | None) -> StepCost:
    if equation is None:
        return StepCost()
    cost = equation_cost(equation)
    return StepCost(*operations_of(equation), cost.flops, cost.read, cost.written)
