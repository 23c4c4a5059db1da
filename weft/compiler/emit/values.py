"""The value at an index: all of fusion.

A fusion's inner program is never walked equation by equation. Its hero asks for elements, each element for the
elements it is
made of, down to loads; what was asked for before, in a block still open, is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import InternalError
from weft.compiler.emit.indices import INT64, applied, condition, sources
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, Value
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ops.elementwise import Elementwise
from weft.ops.families import Indexing
from weft.ops.iota import iota
from weft.ops.random import threefry2x32
from weft.ops.slicing import dynamic_slice

Place = tuple[Index, ...]


def row_major(shape: Sequence[int], index: Sequence[Index]) -> Index:
    """The position of an element in a flat buffer."""
    total, stride = Index(), 1
    for size, i in zip(reversed(shape), reversed(index), strict=True):
        if size != 1:
            total = total + i * stride
        stride *= size
    return total


def space_of(v: Any) -> tuple[int, ...]:
    """The shape without dimensions of size 1: what loops see of it."""
    return tuple(d for d in v.aval.shape if d != 1)


def expanded(v: Any, index: Place) -> Place:
    """An index of a value's space as one of its shape."""
    given = iter(index)
    return tuple(Index() if d == 1 else next(given) for d in v.aval.shape)


class Values:
    """The elements of a fusion's values, in the kernel being built."""

    def __init__(
        self,
        k: KernelBuilder,
        jaxpr: Jaxpr,
        argument: Callable[[Var], Buffer],
        literal: Callable[[Literal], Value],
    ):
        self.k = k
        self.argument = argument
        self.literal = literal
        self.defined: dict[Any, Equation] = {v: e for e in jaxpr.eqns for v in e.outvars}
        self.overrides: dict[Any, Value] = {}  # results of heroes, known at the index being visited

    def at(self, atom: Atom, index: Place, guard: Value | None = None) -> Value:
        """The element of a value at an index. Where the guard does not hold, memory is not touched and anything may
        come."""
        k = self.k
        if isinstance(atom, Literal):
            return self.literal(atom)
        if not atom.aval.shape:  # type: ignore[attr-defined]
            # There is always such an element, so that what asks for it need not be guarded.
            index, guard = (), None
        key = ("value", atom, tuple((i.constant, frozenset(i.terms)) for i in index), guard)
        found = k.recall(key)
        if found is None:
            found = self._make(atom, index, guard)
            k.remember(key, found)
        return found

    def _make(self, atom: Var, index: Place, guard: Value | None) -> Value:
        if atom in self.overrides:
            return self.overrides[atom]
        equation = self.defined.get(atom)
        if equation is None:
            shape = atom.aval.shape  # type: ignore[attr-defined]
            return self.k.load(self.argument(atom), row_major(shape, index), guard)
        primitive, params = equation.primitive, equation.params
        if isinstance(primitive, Elementwise):
            operands = [self.at(v, index, guard) for v in equation.invars]
            return primitive.emit(self.k.scalars, *operands, **params)
        if primitive is threefry2x32:
            operands = [self.at(v, index, guard) for v in equation.invars]
            return self.k.compute(primitive.name, *operands, part=equation.outvars.index(atom))
        if isinstance(primitive, Indexing):
            return self._moved(equation, index, guard)
        if primitive is iota:
            place = self.k.position(index[params["dimension"]])
            return self.k.scalars.convert(place, params["dtype"])
        if primitive is dynamic_slice:
            return self._sliced(equation, index, guard)
        raise InternalError(f"`{primitive.name}` has no value at an index; the fusion pass must not place it here.")

    def _moved(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        """An element that comes from one of several places: the first whose condition holds."""
        types = tuple(v.aval for v in equation.invars)
        found = sources(equation.primitive, types, tuple(sorted(equation.params.items(), key=lambda item: item[0])))
        result: Value | None = None
        for operand, index_map in reversed(found):
            holds = condition(self.k, index_map.constraints, index_map, index)
            inner = guard if holds is None else holds if guard is None else self.k.compute("and", guard, holds)
            value = self.at(equation.invars[operand], applied(self.k, index_map, index), inner)
            result = value if result is None or holds is None else self.k.compute("select_n", holds, result, value)
        assert result is not None
        return result

    def _sliced(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        operand, *starts = equation.invars
        shape = operand.aval.shape  # type: ignore[attr-defined]
        place = []
        for start, offset, size, extent in zip(starts, index, equation.params["slice_sizes"], shape, strict=True):
            first = self.k.scalars.convert(self.at(start, (), guard), INT64)
            low, high = self.k.constant(0, INT64), self.k.constant(extent - size, INT64)
            place.append(offset + Index.of(self.k.compute("clamp", low, first, high)))
        return self.at(operand, tuple(place), guard)
