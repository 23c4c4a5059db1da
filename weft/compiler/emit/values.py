"""Values of a fusion at an index: how all of a fusion is evaluated.

A fusion's jaxpr is never visited equation by equation. Its hero requests elements, and each element requests the
elements it is computed from (by the rule `value_at` of its primitive), down to loads. Elements computed earlier, in a
block that is still open, are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit import bits
from weft.compiler.emit.copied_dtypes import get_bits
from weft.compiler.emit.gather_windows import first_of_window
from weft.compiler.emit.indices import INT64, apply_map, both, condition, position_dtype, sources
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, Value
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var

MultiIndex = tuple[Index, ...]


def row_major(shape: Sequence[int], index: Sequence[Index]) -> Index:
    """Return the row-major offset of an index in a flat buffer."""
    total, stride = Index(), 1
    for size, i in zip(reversed(shape), reversed(index), strict=True):
        if size != 1:
            total = total + i * stride
        stride *= size
    return total


def get_space(v: Any) -> tuple[int, ...]:
    """Return the shape of a value without dimensions of size 1, which have no loops."""
    return tuple(d for d in v.aval.shape if d != 1)


def expand(v: Any, index: MultiIndex) -> MultiIndex:
    """Expand an index of a value's space to one of its shape."""
    rest = iter(index)
    return tuple(Index() if d == 1 else next(rest) for d in v.aval.shape)


class Values:
    """Elements of a fusion's values in the kernel under construction."""

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

    def at(self, atom: Atom, index: MultiIndex, guard: Value | None = None) -> Value:
        """Return the element of a value at an index. Where the guard does not hold, memory is not touched and the
        element is arbitrary.
        """
        k = self.k
        if isinstance(atom, Literal):
            return self.literal(atom)
        shape = atom.aval.shape  # type: ignore[attr-defined]
        if not shape:
            # A scalar always exists, so that its load needs no guard.
            index, guard = (), None
        index = tuple(Index() if d == 1 else i for d, i in zip(shape, index, strict=True))
        key = ("value", atom, tuple((i.constant, frozenset(i.terms)) for i in index), guard)
        found = k.recall(key)
        if found is None:
            found = self._make(atom, index, guard)
            k.remember(key, found)
        return found

    def _make(self, atom: Var, index: MultiIndex, guard: Value | None) -> Value:
        if atom in self.overrides:
            return self.overrides[atom]
        equation = self.defined.get(atom)
        if equation is None:
            shape = atom.aval.shape  # type: ignore[attr-defined]
            return self.k.load(self.argument(atom), row_major(shape, index), guard)
        result: Value = equation.primitive.value_at(_Element(self, equation, atom, index, guard), **equation.params)
        return result

    def clamp_starts(self, starts: Sequence[Atom], shape: Sequence[int], sizes: Sequence[int]) -> list[Index]:
        """Clamp the scalars `starts` so that a slice of `sizes` lies inside of `shape`; return its start."""
        k, clamped = self.k, []
        for start, size, extent in zip(starts, sizes, shape, strict=True):
            if size == extent:
                clamped.append(Index())
                continue
            first = self.at(start, ())
            if first.dtype == dtypes.uint64:  # the greatest do not fit int64
                first = k.compute("min", first, k.constant(extent - size, first.dtype))
            first = k.scalars.convert(first, INT64)
            first = k.compute("clamp", k.constant(0, INT64), first, k.constant(extent - size, INT64))
            k.ranges[first] = (0, extent - size)
            clamped.append(Index.of(first))
        return clamped


class _Element:
    """Element of an equation's result, as primitives see it; see `Element`."""

    def __init__(self, values: Values, equation: Equation, atom: Var, index: MultiIndex, guard: Value | None) -> None:
        self.index, self.scalars = index, values.k.scalars
        self._values, self._equation, self._atom, self._guard = values, equation, atom, guard

    @property
    def result(self) -> int:
        return self._equation.outvars.index(self._atom)

    @property
    def types(self) -> list[Any]:
        return [a.aval for a in self._equation.invars]

    def operand(self, i: int, index: Sequence[Any] | None = None, inside: Value | None = None) -> Value:
        guard = self._guard if inside is None else both(self._values.k, self._guard, inside)
        at = self.index if index is None else tuple(map(Index.of, index))
        return self._values.at(self._equation.invars[i], at, guard)

    def operands(self) -> list[Value]:
        at, index, guard = self._values.at, self.index, self._guard
        return [at(a, index if a.aval.shape else (), guard) for a in self._equation.invars]  # type: ignore[attr-defined]

    def source(self) -> Value:
        k, equation = self._values.k, self._equation
        types = tuple(a.aval for a in equation.invars)
        found = sources(equation.primitive, types, tuple(sorted(equation.params.items(), key=lambda item: item[0])))
        result: Value | None = None
        for i, index_map in reversed(found):
            holds = condition(k, index_map.constraints, index_map, self.index)
            if holds is not None and holds is k.constant(False, np.bool_) and len(found) > 1:
                continue
            guard = both(k, self._guard, holds)
            value = self._values.at(equation.invars[i], apply_map(k, index_map, self.index), guard)
            result = value if result is None or holds is None else k.compute("select_n", holds, result, value)
        if result is None:
            raise InternalError(f"Every element of `{equation.primitive.name}` must have a source; got one without.")
        return result

    def position(self, index: Any) -> Value:
        offset = Index.of(index)
        return self._values.k.position(offset, position_dtype(self._values.k, offset))

    def clamp_starts(self, starts: Sequence[int], shape: Sequence[Any], sizes: Sequence[Any]) -> list[Index]:
        return self._values.clamp_starts([self._equation.invars[i] for i in starts], shape, sizes)

    def window_start(
        self, components: Sequence[Value], limits: Sequence[int], clip: bool
    ) -> tuple[list[Index], Value | None]:
        return first_of_window(self._values.k, components, limits, clip)

    def constant_like(self, value: Value, constant: Any, dtype: Any) -> Value:
        out = self._values.k.constant(constant, dtype)
        return out if value.dtype == dtype else get_bits(self._values.k, out)

    def piece(self, value: Value, i: Any, dtype: Any) -> Value:
        return bits.piece(self._values.k, value, Index.of(i), dtype)

    def concatenate(self, values: Sequence[Value], dtype: Any) -> Value:
        return bits.concatenate_bits(self._values.k, values, dtype)

    def key_word(self, key: Value, i: Any) -> Value:
        return bits.key_word(self._values.k, key, Index.of(i))

    def pack_key(self, parts: Sequence[Value]) -> Value:
        return bits.pack_key(self._values.k, parts)
