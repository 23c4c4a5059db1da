"""Collectives of devices in several processes: the part that each process computes, and the values that they exchange.

A collective is a jaxpr of the operands of all members. Values that depend on operands of one process only are computed
there and sent to the processes that need them: sums of its own members, slices, or operands as they are. So every
process evaluates the same equations as one process would, and gets the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var


@dataclass(frozen=True)
class Source:
    """Value to send: an operand of this process, or a result of its first jaxpr, by index."""

    is_operand: bool
    index: int


@dataclass(frozen=True)
class ProcessParts:
    """Part of one process in a collective.

    `first` computes the values to send from the operands of its members (None if all are operands). `sends` are pairs
    of a process and a value, `receives` of a process and a type, both in the order in which they are started. `second`
    computes the results of its members from their operands, the results of `first` and the received values.
    """

    first: Jaxpr | None
    sends: tuple[tuple[int, Source], ...]
    receives: tuple[tuple[int, Any], ...]
    second: Jaxpr


def process_parts(jaxpr: Jaxpr, operands: Sequence[int], results: Sequence[int], rank: int) -> ProcessParts:
    """Return the part of process `rank` in a collective, given the processes of its operands and results."""
    if jaxpr.constvars:
        raise InternalError("The jaxpr of a collective must have no constants.", stage="run")
    order = {v: i for i, v in enumerate([*jaxpr.invars, *(v for e in jaxpr.eqns for v in e.outvars)])}
    of: dict[Var, frozenset[int]] = {v: frozenset([p]) for v, p in zip(jaxpr.invars, operands, strict=True)}
    defined_by: dict[Var, Equation] = {}
    for equation in jaxpr.eqns:
        owners = frozenset(p for v in equation.invars if type(v) is Var for p in of[v])
        for v in equation.outvars:
            of[v], defined_by[v] = owners, equation

    def missing(process: int) -> list[Var]:
        """Return the variables that a process needs from others, in order."""
        found: set[Var] = set()
        seen: set[Any] = set()
        stack = [v for v, p in zip(jaxpr.outvars, results, strict=True) if p == process]
        while stack:
            v = stack.pop()
            if isinstance(v, Literal) or v in seen:
                continue
            seen.add(v)
            if len(of[v]) == 1 and process not in of[v]:
                found.add(v)
            elif v in defined_by:
                stack.extend(defined_by[v].invars)
        return sorted(found, key=order.__getitem__)

    own = [v for v, p in zip(jaxpr.invars, operands, strict=True) if p == rank]
    wanted = {p: [v for v in missing(p) if of[v] == {rank}] for p in sorted({*operands, *results} - {rank})}
    computed = sorted({v for vs in wanted.values() for v in vs if v in defined_by}, key=order.__getitem__)
    sends = tuple(
        (p, Source(False, computed.index(v)) if v in defined_by else Source(True, own.index(v)))
        for p, vs in wanted.items()
        for v in vs
    )
    received = sorted(missing(rank), key=lambda v: (min(of[v]), order[v]))
    first = _extract_jaxpr(jaxpr, own, computed) if computed else None
    mine = [v for v, p in zip(jaxpr.outvars, results, strict=True) if p == rank]
    second = _extract_jaxpr(jaxpr, [*own, *computed, *received], mine)
    return ProcessParts(first, sends, tuple((min(of[v]), v.aval) for v in received), second)


def _extract_jaxpr(jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Any]) -> Jaxpr:
    """Return the jaxpr of the equations that compute some variables from others."""
    needed = {v for v in outvars if type(v) is Var} - set(invars)
    equations = []
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(equation.outvars):
            needed.update(v for v in equation.invars if type(v) is Var and v not in invars)
            equations.append(equation)
    return Jaxpr((), invars, outvars, equations[::-1], name=jaxpr.name)
