"""Source lines and costs of steps: the link between the user's lines, equations, kernels and times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from weft.base.source import Location
from weft.compiler.analysis import count_operations
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
    """Line of the user's source."""

    file: str
    number: int

    @staticmethod
    def of(location: Location) -> Line:
        """Return the line of a location."""
        return Line(location.file, location.line)


class StepCost(NamedTuple):
    """Cost of one run of a step. `work` counts a transcendental function as the additions that take as long."""

    flops: float = 0.0
    functions: float = 0.0
    work: float = 0.0
    read: float = 0.0
    written: float = 0.0

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return self.read + self.written

    def times(self, scale: float) -> StepCost:
        """Return the cost multiplied by a number."""
        return StepCost(*(scale * count for count in self))

    def plus(self, other: StepCost) -> StepCost:
        """Return the sum of two costs."""
        return StepCost(*(a + b for a, b in zip(self, other, strict=True)))


def get_equations(equation: Equation) -> tuple[Equation, ...]:
    """Return the equations of a fusion, or a single one that is not fused."""
    return equation.params["jaxpr"].eqns if equation.primitive is fusion else (equation,)


def get_lines(equation: Equation) -> dict[Line, float]:
    """Return the source lines of a fused equation with their shares of its work, which add up to 1."""
    weights: dict[Line, float] = {}
    for inner in get_equations(equation):
        source = inner.source or equation.source
        if source is not None:
            line = Line.of(source)
            weights[line] = weights.get(line, 0.0) + _weight(inner)
    return _shares(weights)


def get_scopes(equation: Equation) -> dict[str, float]:
    """Return the named scopes of a fused equation, such as `encoder/layer1`, with their shares of its work."""
    weights: dict[str, float] = {}
    for inner in get_equations(equation):
        # The stack also has transformations, written as calls.
        name = "/".join(part for part in inner.stack if "(" not in part)
        weights[name] = weights.get(name, 0.0) + _weight(inner)
    return _shares(weights)


def _weight(equation: Equation) -> float:
    """Estimate an equation's share of a fusion's time: its flops, or one for each element that it copies."""
    shapes = [v.aval.shape for v in equation.outvars if isinstance(v.aval, ArrayType)]
    elements = float(max((element_count(shape) for shape in shapes), default=1))
    properties = structure(equation)
    return 0.0 if properties.alias else max(equation_flops(equation), elements)


def step_lines(step: Step) -> dict[Line, float]:
    """Return the source lines of a step with their shares of its work."""
    found = get_lines(step.origin) if step.origin is not None else {}
    if not found and step.line is not None:
        found = {Line.of(step.line): 1.0}
    return found


def costs(steps: Iterable[Step]) -> dict[Step, StepCost]:
    """Estimate the cost of each step. Several kernels of one equation share its flops in proportion to their work, and
    its bytes in proportion to the memory that they access; a library call gets all of its equation's cost."""
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
            # A kernel that packs an operand does little work, but copies all of it.
            by_bytes = {step: float(count_bytes(step)) for step in launches}
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


def count_bytes(step: Step) -> int:
    """Return the bytes of all memory that a step reads or writes."""
    return sum(slot.size for slot in dict.fromkeys((*step.reads, *step.writes)))


def _shares(weights: dict[Part, float]) -> dict[Part, float]:
    """Scale weights so that they add up to 1."""
    total = sum(weights.values())
    return {part: weight / total if total else 1 / len(weights) for part, weight in weights.items()}


def _computes(body: Iterable[Statement]) -> bool:
    """Return whether a kernel has an operation on values, other than loads and stores."""
    return any(
        isinstance(statement, Compute) or (isinstance(statement, (Loop, If)) and _computes(statement.body))
        for statement in body
    )


def _equation(equation: Equation | None) -> StepCost:
    """Estimate the cost of a fused equation."""
    if equation is None:
        return StepCost()
    cost = equation_cost(equation)
    return StepCost(*count_operations(equation), cost.flops, cost.read, cost.written)
