"""What a local jaxpr communicates, and why: which value, for which line, by which shardings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.source import Location
from weft.compiler.partition.propagate import Propagation
from weft.compiler.partition.rules import Dims, parts_of
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, subjaxprs

# Collectives that combine the values of all devices; others bring values to where they are not.
SUMS = ("psum", "pmax", "pmin", "reduce_scatter")


@dataclass(frozen=True)
class Collective:
    """A collective of a local jaxpr: how many bytes each device sends each time, of which value, for which line, why,
    and how often."""

    kind: str
    axis: Any
    bytes: float
    value: str
    source: Location | None
    reason: str
    times: float = 1.0

    @property
    def total_bytes(self) -> float:
        """The bytes that each device sends in one run."""
        return self.bytes * self.times

    @property
    def line(self) -> str:
        """The user's line, as `train.py:41`; empty if there is none."""
        return "" if self.source is None else self.source.file_and_line()


def wire_bytes(kind: str, local: float, count: int) -> float:
    """The bytes that a device sends in a collective among `count` devices of an operand with so many bytes."""
    match kind:
        case "psum" | "pmax" | "pmin":
            return 2 * local * (count - 1) / count
        case "reduce_scatter" | "all_to_all":
            return local * (count - 1) / count
        case "all_gather":
            return local * (count - 1)
        case "pvary" | "axis_index":
            return 0.0
        case _:
            return local if count > 1 else 0.0


class Reasons:
    """Explains collectives by what propagation has found. `names` are those of the arguments."""

    def __init__(self, shardings: Propagation, names: Sequence[str] = ()) -> None:
        self.shardings = shardings
        self.names: dict[Any, str] = dict(zip(shardings.jaxpr.invars, names, strict=False))
        self._definitions: dict[Var, Equation] | None = None

    def written(self, equation: Equation, sizes: Mapping[Any, int], local: float, times: float) -> Collective | None:
        """A collective that the user has written, on an operand with so many bytes; None if nothing is sent."""
        axes = [a for a in equation.primitive.named_axes(equation.params) if a in sizes]
        count = wire_bytes(equation.primitive.name, local, parts_of(axes, sizes))
        if not count:
            return None
        axis = axes[0] if len(axes) == 1 else tuple(axes)
        (operand, *_) = equation.invars
        reason = f"{equation.primitive.name} is written here"
        return Collective(equation.primitive.name, axis, count, self.name(operand), equation.source, reason, times)

    def name(self, a: Atom) -> str:
        """A value in words: an argument by its name, another by what it is the result of."""
        found = self.names.get(a)
        if found is not None:
            return f"{found}: {a.aval.short()}"
        equation = self._definition(a)
        return a.aval.short() if equation is None else f"{operation(equation)}: {a.aval.short()}"

    def _definition(self, a: Atom) -> Equation | None:
        if self._definitions is None:
            self._definitions = {}
            _define(self.shardings.jaxpr, self._definitions)
        return self._definitions.get(a)  # type: ignore[arg-type]

    def origin(self, v: Var, axis: Any) -> str:
        """What a value is split over an axis by, followed back to who has said it: `x (argument)`."""
        seen: set[Var] = set()
        while v not in seen:
            seen.add(v)
            found = next((r for r in self.shardings.reasons.get(v, ()) if r.axis == axis), None)
            if found is None:
                break
            if found.source is None:
                return f"{self._short(v)} ({found.said})"
            v = found.source
        return ""

    def _short(self, v: Var) -> str:
        if v in self.names:
            return self.names[v]
        equation = self._definition(v)
        return v.aval.short() if equation is None else operation(equation)

    def because(self, kind: str, axis: Any, v: Var, dst: Dims, equation: Equation | None, reason: str) -> str:
        """Why a collective over an axis is there. `reason` says who wants the value, which is to be split as `dst`."""
        if kind in SUMS:
            origin = "" if equation is None else self._among(equation, equation.invars, v, axis)
            return f"{reason}{f': {origin}' if origin else ''}"
        first = self._split(self._short(v), v, axis)
        how = "whole" if not any(dst) else f"split as {spec_text(dst)}"
        text = f"{first}; {reason} {how}"
        if equation is not None:
            other = self._among(equation, (*equation.outvars, *equation.invars), v, axis)
            text += f", because {other}" if other else ""
        return text

    def reads(self, axis: Any, a: Atom, equation: Equation, what: str) -> str:
        """Why neighbours along an axis send the edges of their parts of an operand."""
        split = f"{self._split(self._short(a), a, axis)}; " if type(a) is Var else ""
        return f"{split}{operation(equation)} reads {what}"

    def _among(self, equation: Equation, values: Sequence[Atom], v: Var, axis: Any) -> str:
        """Which other value of an equation is split over an axis, and by what."""
        for a in values:
            if a is not v and type(a) is Var and any(axis in axes for axes in self.shardings[a]):
                return self._split("its result" if a in equation.outvars else self._short(a), a, axis)
        return ""

    def _split(self, name: str, v: Var, axis: Any) -> str:
        """`w is stored split over d (argument)`, `h is split over d by x (argument)`."""
        by, own = self.origin(v, axis), f"{self._short(v)} ("
        text = f"{name} is {'stored ' if v in self.shardings.stored else ''}split over {axis}"
        if by.startswith(own):
            return f"{text} ({by.removeprefix(own)}"
        return f"{text} by {by}" if by else text


def _define(jaxpr: Jaxpr, found: dict[Var, Equation]) -> None:
    for equation in jaxpr.eqns:
        found.update(dict.fromkeys(equation.outvars, equation))
        for body in subjaxprs(equation.params):
            _define(body, found)


def operation(equation: Equation) -> str:
    """`tanh at model.py:40`."""
    at = "" if equation.source is None else f" at {equation.source.file_and_line()}"
    return f"{equation.primitive.name}{at}"


def spec_text(dims: Dims) -> str:
    """`P('x', None)`."""
    entries = [repr(axes[0] if len(axes) == 1 else axes) if axes else "None" for axes in dims]
    return f"P({', '.join(entries)})"
