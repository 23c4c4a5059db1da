"""Costs of equations and fusions in bytes and flops, and the reasons for fusion decisions.

Bytes are those that a kernel reads from memory and writes to it: an operand is read once if its elements are read in
order, a slice reads its elements only, a gather reads an element for each element of its result, an update in place
writes the update. Flops are weighted: an addition has weight 1, a transcendental function the number of additions that
take as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base import dtypes
from weft.base.memo import Memo
from weft.compiler.fuse.classify import structure
from weft.compiler.fuse.fusion import fusion
from weft.ir.fusing import CONTROL, SYMBOLIC_SIZE, Properties, element_count
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs
from weft.ir.types import ArrayType, Type

# Names and values of what decided.
Details = tuple[tuple[str, Any], ...]


class FusionReason(NamedTuple):
    """Why two operations were or were not fused: the rule that decided, on which, how, and by what."""

    rule: str
    producer: str
    consumer: str
    verdict: bool
    details: Details = ()

    @property
    def text(self) -> str:
        """One line: `instruction: mul.3 into loop.7: yes (reads 64, writes 32)`."""
        details = ", ".join(f"{name} {_short(value)}" for name, value in self.details)
        verdict = "yes" if self.verdict else "no"
        return f"{self.rule}: {self.producer} into {self.consumer}: {verdict}" + (f" ({details})" if details else "")

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _short(value: Any) -> str:
    return f"{value:.4g}" if type(value) is float else str(value)


class Cost(NamedTuple):
    """Bytes read and written, and flops."""

    read: int = 0
    written: int = 0
    flops: float = 0.0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """Return the sum of this cost and `times` times another."""
        return Cost(
            self.read + times * other.read, self.written + times * other.written, self.flops + times * other.flops
        )


_bytes: Memo[Type, int] = Memo(10_000)


def count_bytes(aval: Type) -> int:
    """Return the bytes of a value: estimated if its shape is symbolic, 0 unless it is an array."""
    known = _bytes.get(aval)
    if known is None:
        known = 0
        if isinstance(aval, ArrayType):
            known = element_count(aval.shape) * dtypes.storage(aval.dtype).itemsize
        _bytes.keep(aval, known)
    return known


def equation_flops(equation: Equation) -> float:
    """Return the flops of an equation; those of a library or a sub-jaxpr are counted elsewhere."""
    if not equation.outvars or not isinstance(equation.outvars[0].aval, ArrayType):
        return 0
    return equation.primitive.flops(equation)


def traffic(equation: Equation, properties: Properties) -> tuple[Sequence[int], int]:
    """Return the bytes that an equation on its own reads of each operand, and the bytes that it writes."""
    if properties.alias:
        return [0] * len(equation.invars), 0
    operands, results = ([count_bytes(a.aval) for a in atoms] for atoms in (equation.invars, equation.outvars))
    return equation.primitive.traffic(operands, results)


def equation_cost(equation: Equation) -> Cost:
    """Estimate the cost of one equation: as a kernel of its own, as a fusion, or with its sub-jaxprs."""
    if equation.primitive is fusion:
        return fusion_cost(equation.params["jaxpr"])
    properties = structure(equation)
    if properties.role == CONTROL:
        return _control_cost(equation)
    reads, written = traffic(equation, properties)
    return Cost(sum(reads), written, equation_flops(equation))


def _control_cost(equation: Equation) -> Cost:
    """Estimate the cost of all iterations of a scan, the costlier branch of a cond, or some iterations of a loop of
    unknown length."""
    costs = [jaxpr_cost(p) for p in subjaxprs(equation.params)]
    primitive: Any = equation.primitive
    if primitive.exclusive:
        return max(costs, key=lambda c: (c.bytes, c.flops), default=Cost())
    length = primitive.iterations(equation.params)
    times = length if type(length) is int else SYMBOLIC_SIZE
    total = Cost()
    for cost in costs:
        total = total.plus(cost, times)
    return total


def fusion_cost(jaxpr: Jaxpr) -> Cost:
    """Estimate the cost of a fusion from its jaxpr: it reads each operand once, and writes its results."""
    reads: dict[Var, list[int]] = {v: [] for v in (*jaxpr.invars, *jaxpr.constvars)}
    written: dict[Var, int] = {}
    source: dict[Var, Var] = {}  # the value whose bytes an alias shows
    flops = 0.0
    for equation in jaxpr.eqns:
        properties = structure(equation)
        if properties.alias and type(equation.invars[0]) is Var:
            source[equation.outvars[0]] = source.get(equation.invars[0], equation.invars[0])
            continue
        flops += equation_flops(equation)
        counts, amount = traffic(equation, properties)
        for atom, count in zip(equation.invars, counts, strict=True):
            if type(atom) is Var and (value := source.get(atom, atom)) in reads:
                reads[value].append(count)
        if len(equation.outvars) == 1:
            written[equation.outvars[0]] = amount
        else:
            written.update((v, count_bytes(v.aval)) for v in equation.outvars)
    read = sum(min(sum(counts), max(count_bytes(v.aval), *counts)) for v, counts in reads.items() if counts)
    results = {source.get(v, v) for v in jaxpr.outvars if type(v) is Var}
    return Cost(read, sum(written.get(v, 0) for v in results), flops)


def jaxpr_cost(jaxpr: Jaxpr) -> Cost:
    """Add up the costs of a jaxpr's equations."""
    total = Cost()
    for equation in jaxpr.eqns:
        total = total.plus(equation_cost(equation))
    return total
