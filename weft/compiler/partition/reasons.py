"""The collectives of a local jaxpr, and why each is needed: its value, source line and shardings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.source import Location
from weft.compiler.partition.propagate import Propagation
from weft.compiler.partition.rules import Dims, count_shards
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, subjaxprs

# Collectives that reduce the values of all devices; the others move values between devices.
SUMS = ("psum", "pmax", "pmin", "reduce_scatter")


@dataclass(frozen=True)
class CollectiveRecord:
    """A collective of a local jaxpr: the bytes that each device sends in one call, the value and source line that it is
    for, why it is needed, and how many times it runs."""

    kind: str
    axis: Any
    bytes: float
    value: str
    source: Location | None
    reason: str
    times: float = 1.0

    @property
    def total_bytes(self) -> float:
        """Bytes that each device sends in one run of the program."""
        return self.bytes * self.times

    @property
    def line(self) -> str:
        """The user's line, as `train.py:41`; empty if it is not known."""
        return "" if self.source is None else self.source.file_and_line()


def wire_bytes(kind: str, local: float, count: int) -> float:
    """Return the bytes that a device sends in a collective among `count` devices on an operand of `local` bytes."""
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
    """Explains collectives by the results of propagation. `names` are those of the arguments."""

    def __init__(self, shardings: Propagation, names: Sequence[str] = ()) -> None:
        self.shardings = shardings
        self.names: dict[Any, str] = dict(zip(shardings.jaxpr.invars, names, strict=False))
        self._definitions: dict[Var, Equation] | None = None

    def written(
        self, equation: Equation, sizes: Mapping[Any, int], local: float, times: float
    ) -> CollectiveRecord | None:
        """Describe a collective that the user wrote, on an operand of `local` bytes; None if it sends nothing."""
        axes = [a for a in equation.primitive.named_axes(equation.params) if a in sizes]
        count = wire_bytes(equation.primitive.name, local, count_shards(axes, sizes))
        if not count:
            return None
        axis = axes[0] if len(axes) == 1 else tuple(axes)
        (operand, *_) = equation.invars
        reason = f"{equation.primitive.name} is written here"
        return CollectiveRecord(
            equation.primitive.name, axis, count, self.name(operand), equation.source, reason, times
        )

    def name(self, a: Atom) -> str:
        """Describe a value: an argument by its name, any other by the operation that computes it."""
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
        """Return the annotation from which a value's split over an axis was propagated: `x (argument)`."""
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
        """Explain a collective over an axis. `reason` says what needs the value split as `dst`."""
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
        """Explain why neighbours along an axis exchange the edges of their shards of an operand."""
        split = f"{self._split(self._short(a), a, axis)}; " if type(a) is Var else ""
        return f"{split}{operation(equation)} reads {what}"

    def _among(self, equation: Equation, values: Sequence[Atom], v: Var, axis: Any) -> str:
        """Describe another value of an equation that is split over an axis, and why it is."""
        for a in values:
            if a is not v and type(a) is Var and any(axis in axes for axes in self.shardings[a]):
                return self._split("its result" if a in equation.outvars else self._short(a), a, axis)
        return ""

    def _split(self, name: str, v: Var, axis: Any) -> str:
        """Format `w is stored split over d (argument)` or `h is split over d by x (argument)`."""
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
    """Format an operation with its source line: `tanh at model.py:40`."""
    at = "" if equation.source is None else f" at {equation.source.file_and_line()}"
    return f"{equation.primitive.name}{at}"


def spec_text(dims: Dims) -> str:
    """Format a sharding: `P('x', None)`."""
    entries = [repr(axes[0] if len(axes) == 1 else axes) if axes else "None" for axes in dims]
    return f"P({', '.join(entries)})"
