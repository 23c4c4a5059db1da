"""What equations and fusions cost in bytes and flops, and the reasons that follow from it.

Bytes are those that a kernel reads from memory and writes to it: an operand is read once if its elements are read in
order, a slice reads what it takes, a gather reads an element for each element of its result, an update in place writes
what is new. Flops are weighted: one is an addition, and the weight of a function is about how many additions take as
long.
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


class Reason(NamedTuple):
    """Why two operations were or were not fused: the rule that decided, on which, how, and by what."""

    rule: str
    producer: str
    consumer: str
    verdict: bool
    details: tuple[tuple[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """One line: `instruction: mul.3 into loop.7: yes (reads 64, writes 32)`."""
        told = ", ".join(f"{name} {_short(value)}" for name, value in self.details)
        verdict = "yes" if self.verdict else "no"
        return f"{self.rule}: {self.producer} into {self.consumer}: {verdict}" + (f" ({told})" if told else "")

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
        return self.read + self.written

    def plus(self, other: Cost, times: int = 1) -> Cost:
        return Cost(
            self.read + times * other.read, self.written + times * other.written, self.flops + times * other.flops
        )


_bytes: Memo[Type, int] = Memo(10_000)


def bytes_of(aval: Type) -> int:
    """The bytes of a value; types that are no arrays count nothing."""
    known = _bytes.get(aval)
    if known is None:
        known = 0
        if isinstance(aval, ArrayType):
            known = element_count(aval.shape) * dtypes.storage(aval.dtype).itemsize
        _bytes.keep(aval, known)
    return known


def equation_flops(equation: Equation) -> float:
    """Flops of an equation; those of a library or a sub-jaxpr are counted elsewhere."""
    if not equation.outvars or not isinstance(equation.outvars[0].aval, ArrayType):
        return 0
    return equation.primitive.flops(equation)


def traffic(equation: Equation, properties: Properties) -> tuple[Sequence[int], int]:
    """Bytes an equation on its own reads of each operand, and bytes that it writes."""
    if properties.alias:
        return [0] * len(equation.invars), 0
    operands, results = ([bytes_of(a.aval) for a in atoms] for atoms in (equation.invars, equation.outvars))
    return equation.primitive.traffic(operands, results)


def equation_cost(equation: Equation) -> Cost:
    """What one equation costs: as a kernel of its own, as a fusion, or with its sub-jaxprs."""
    if equation.primitive is fusion:
        return fusion_cost(equation.params["jaxpr"])
    properties = structure(equation)
    if properties.role == CONTROL:
        return _control_cost(equation)
    reads, written = traffic(equation, properties)
    return Cost(sum(reads), written, equation_flops(equation))


def _control_cost(equation: Equation) -> Cost:
    """All iterations of a scan, the costlier branch of a cond, one iteration of any other loop."""
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
    """What the jaxpr of a fusion costs: its operands, read once by those of its equations that read them, and its
    results."""
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
            written.update((v, bytes_of(v.aval)) for v in equation.outvars)
    read = sum(min(sum(counts), max(bytes_of(v.aval), *counts)) for v, counts in reads.items() if counts)
    results = {source.get(v, v) for v in jaxpr.outvars if type(v) is Var}
    return Cost(read, sum(written.get(v, 0) for v in results), flops)


def jaxpr_cost(jaxpr: Jaxpr) -> Cost:
    """The sum over the equations of a jaxpr."""
    total = Cost()
    for equation in jaxpr.eqns:
        total = total.plus(equation_cost(equation))
    return total
