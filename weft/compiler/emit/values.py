"""The value at an index: all of fusion.

A fusion's inner program is never walked equation by equation. Its hero asks for elements, each element for the
elements it is
made of, down to loads; what was asked for before, in a block still open, is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit import bits
from weft.compiler.emit.indices import INT64, applied, both, condition, position_dtype, sources
from weft.compiler.emit.moved import bits_of
from weft.compiler.emit.windows import first_of_window, split_dimensions, window_place
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Buffer, Index, Value
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ops.concatenate import split
from weft.ops.convert import bitcast_convert_type
from weft.ops.elementwise import Elementwise
from weft.ops.families import Indexing, Reduction, kept_axes
from weft.ops.gather import GatherScatterMode, default_fill, gather
from weft.ops.iota import iota
from weft.ops.random import random_unwrap, random_wrap, threefry2x32
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
        shape = atom.aval.shape  # type: ignore[attr-defined]
        if not shape:
            # There is always such an element, so that what asks for it need not be guarded.
            index, guard = (), None
        index = tuple(Index() if d == 1 else i for d, i in zip(shape, index, strict=True))
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
            operands = [self.at(v, self._beside(v, index), guard) for v in equation.invars]
            return primitive.emit(self.k.scalars, *operands, **params)
        if isinstance(primitive, Indexing):
            return self._moved(equation, index, guard)
        if isinstance(primitive, Reduction):
            return self._folded(equation, index, guard)
        if primitive is threefry2x32:
            operands = [self.at(v, self._beside(v, index), guard) for v in equation.invars]
            return self.k.compute(primitive.name, *operands, part=equation.outvars.index(atom))
        if primitive is iota:
            place = index[params["dimension"]]
            return self.k.scalars.convert(self.k.position(place, position_dtype(self.k, place)), params["dtype"])
        if primitive is dynamic_slice:
            return self._sliced(equation, index, guard)
        if primitive is split:
            before = sum(params["sizes"][: equation.outvars.index(atom)])
            moved = tuple(i + before if axis == params["axis"] else i for axis, i in enumerate(index))
            return self.at(equation.invars[0], moved, guard)
        if primitive is gather:
            return self._gathered(equation, index, guard)
        if primitive is bitcast_convert_type:
            return self._bits(equation, index, guard)
        if primitive is random_unwrap:
            key = self.at(equation.invars[0], index[:-1], guard)
            return bits.word_of_key(self.k, key, index[-1])
        if primitive is random_wrap:
            count = equation.invars[0].aval.shape[-1]  # type: ignore[attr-defined]
            return bits.key_of_words(self.k, self._last(equation.invars[0], index, count, guard))
        raise InternalError(f"`{primitive.name}` has no value at an index; the fusion pass must not place it here.")

    def _beside(self, v: Any, index: Place) -> Place:
        """The index of an elementwise operand: that of the result, or none for a scalar."""
        return index if v.aval.shape else ()

    def _last(self, v: Any, index: Place, count: int, guard: Value | None) -> list[Value]:
        """All elements along the last dimension."""
        return [self.at(v, (*index, Index(number)), guard) for number in range(count)]

    def _moved(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        """An element that comes from one of several places: the first whose condition holds."""
        types = tuple(v.aval for v in equation.invars)
        found = sources(equation.primitive, types, tuple(sorted(equation.params.items(), key=lambda item: item[0])))
        result: Value | None = None
        for operand, index_map in reversed(found):
            holds = condition(self.k, index_map.constraints, index_map, index)
            if holds is not None and holds is self.k.constant(False, np.bool_) and len(found) > 1:
                continue
            inner = both(self.k, guard, holds)
            value = self.at(equation.invars[operand], applied(self.k, index_map, index), inner)
            result = value if result is None or holds is None else self.k.compute("select_n", holds, result, value)
        if result is None:
            raise InternalError(f"`{equation.primitive.name}` has an element that comes from nowhere.")
        return result

    def _folded(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        """A reduction over dimensions of size 1. It still starts from the neutral element, which shows in a zero's
        sign."""
        (operand,), axes, k = equation.invars, equation.params["axes"], self.k
        card: Any = equation.primitive
        given = iter(index)
        shape = operand.aval.shape  # type: ignore[attr-defined]
        value = self.at(operand, tuple(Index() if a in axes else next(given) for a in range(len(shape))), guard)
        if not axes:
            return value
        wide = dtypes.accumulation_dtype(value.dtype)
        started = card.combine(k.scalars, k.constant(card.initial(wide), wide), k.scalars.convert(value, wide))
        return k.scalars.convert(started, value.dtype)

    def _sliced(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        operand, *starts = equation.invars
        sizes = equation.params["slice_sizes"]
        first = self.clamped_starts(starts, operand.aval.shape, sizes)  # type: ignore[attr-defined]
        return self.at(operand, tuple(i + start for i, start in zip(index, first, strict=True)), guard)

    def clamped_starts(self, starts: Sequence[Atom], shape: Sequence[int], sizes: Sequence[int]) -> list[Index]:
        """Where a slice of `sizes` starts: the scalars given, moved so that it lies inside."""
        k, places = self.k, []
        for start, size, extent in zip(starts, sizes, shape, strict=True):
            if size == extent:
                places.append(Index())
                continue
            number = self.at(start, ())
            if number.dtype == dtypes.uint64:  # the greatest are no int64
                number = k.compute("min", number, k.constant(extent - size, number.dtype))
            number = k.scalars.convert(number, INT64)
            number = k.compute("clamp", k.constant(0, INT64), number, k.constant(extent - size, INT64))
            k.ranges[number] = (0, extent - size)
            places.append(Index.of(number))
        return places

    def _gathered(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        """An element of a window that starts where the indices say."""
        (operand, indices), params, k = equation.invars, equation.params, self.k
        offset, collapsed, starts, batching, index_batching = params["dimension_numbers"]
        shape, sizes = operand.aval.shape, params["slice_sizes"]  # type: ignore[attr-defined]
        many, inner = split_dimensions(index, offset)
        windows = dict(zip(kept_axes(len(shape), (*collapsed, *batching)), inner, strict=True))
        vector = [self.at(indices, (*many, Index(c)), guard) for c in range(len(starts))]
        filled = params["mode"] is GatherScatterMode.FILL_OR_DROP
        first, inside = first_of_window(k, vector, [shape[d] - sizes[d] for d in starts], clip=not filled)
        pairs = list(zip(batching, index_batching, strict=True))
        place = window_place(shape, tuple(many), windows, dict(zip(starts, first, strict=True)), pairs)
        value = self.at(operand, place, both(k, guard, inside))
        if inside is None or not filled:
            return value
        fill, dtype = params["fill_value"], dtypes.storage(operand.aval.dtype)  # type: ignore[attr-defined]
        nothing = k.constant(default_fill(dtype) if fill is None else fill, dtype)
        if value.dtype != dtype:
            nothing = bits_of(k, nothing)
        return k.compute("select_n", inside, nothing, value)

    def _bits(self, equation: Equation, index: Place, guard: Value | None) -> Value:
        """The bits of an element as another dtype: of equal width, a piece of a wider one, or of several narrower."""
        (operand,), dtype = equation.invars, dtypes.storage(equation.params["new_dtype"])
        old, new = (dtypes.itemsize_bits(d) for d in (operand.aval.dtype, dtype))  # type: ignore[attr-defined]
        if old == new:
            return self.k.scalars.bitcast(self.at(operand, index, guard), dtype)
        if old > new:
            return bits.piece(self.k, self.at(operand, index[:-1], guard), index[-1], dtype)
        return bits.joined(self.k, self._last(operand, index, new // old, guard), dtype)
