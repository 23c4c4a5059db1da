"""Tapes: sequences that a loop of unknown length writes on the way forward and reads on the way back.

A tape is an unbounded sequence of elements of one type that is zero wherever nothing was written. So it forms a vector
space like arrays do, and reading, writing and adding have tangents and transposes of their own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.primitive import Axis, No, Primitive, lookup, primitive
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType, TapeType, Type, array_type, get_aval
from weft.ir.varying import cast_to_state
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front
from weft.trace.closed import stage_subjaxpr

_COUNT = array_type((), np.dtype(np.int32))


class Tape:
    """Interpreter's tape: entries in a list that grows. Appending to the newest handle is in place; any other write
    copies."""

    __slots__ = ("aval", "entries", "length")

    def __init__(self, element: Type, entries: list[Any] | None = None, length: int = 0):
        self.aval = TapeType(element)
        self.entries: list[Any] = [] if entries is None else entries
        self.length = length

    def zero(self) -> Any:
        element = self.aval.element
        if isinstance(element, TapeType):
            return Tape(element.element)
        assert isinstance(element, ArrayType)
        return np.zeros(element.shape, dtypes.storage(element.dtype))

    def read(self, position: int) -> Any:
        return self.entries[position] if 0 <= position < self.length else self.zero()

    def map(self, element: Type, function: Any) -> Tape:
        """Return a tape of another type, entry by entry; tapes among the entries are mapped inside."""
        inner = element.element if isinstance(element, TapeType) else element
        entries = [e.map(inner, function) if isinstance(e, Tape) else function(e) for e in self.entries[: self.length]]
        return Tape(element, entries, self.length)

    def write(self, position: int, value: Any) -> Tape:
        if position < 0:
            return self
        entries = self.entries
        if len(entries) != self.length or position < self.length:
            entries = entries[: self.length]
        while len(entries) < position:
            entries.append(self.zero())
        if position == len(entries):
            entries.append(value)
        else:
            entries[position] = value
        return Tape(self.aval.element, entries, len(entries))


class TapePrimitive(Primitive):
    """Base of the operations on tapes."""

    types_placement = True  # a tape is where its elements are

    def samples(self) -> Any:
        return iter(())  # loops create tapes; the laws of loops cover them


@primitive
class tape_new(TapePrimitive):
    """Empty tape."""

    def type(self, *, element: Type) -> TapeType:
        return TapeType(element)

    def eval(self, *, element: Type) -> Tape:
        return Tape(element)


@primitive
class tape_write(TapePrimitive):
    """Tape with `value` at `position`; linear in tape and value together."""

    def type(self, tape: TapeType, position: Type, value: Type) -> TapeType:
        return tape

    def eval(self, tape: Tape, position: Any, value: Any) -> Tape:
        return tape.write(int(position), value)

    def jvp(self, tangents: Sequence[Any], out: Any, tape: Any, position: Any, value: Any) -> Any:
        if type(tangents[0]) is Zero and type(tangents[2]) is Zero:
            return Zero.of(out.aval)
        return tape_write(instantiate(tangents[0]), position, instantiate(tangents[2]))

    def transpose(self, cotangent: Any, tape: Any, position: Any, value: Any) -> Sequence[Any]:
        to_tape = to_value = None
        if is_linear(tape):
            to_tape = tape_write(cotangent, position, zeros(tape.aval.element))
        if is_linear(value):
            to_value = tape_read(cotangent, position)
        return [to_tape, None, to_value]

    def batch(self, axis: Axis, args: Any, dims: Any) -> tuple[Any, int]:
        tape, position, value = args
        position = common_position(position, dims[1])
        return tape_write(batch_tape(tape, dims[0], axis), position, batch_value(value, dims[2], axis)), 0


@primitive
class tape_read(TapePrimitive):
    """Element of the tape at `position`; zeros where nothing was written."""

    linear = (0,)

    def type(self, tape: TapeType, position: Type) -> Type:
        return tape.element

    def eval(self, tape: Tape, position: Any) -> Any:
        return tape.read(int(position))

    def transpose(self, cotangent: Any, tape: Any, position: Any) -> Sequence[Any]:
        return [tape_write(zeros(tape.aval), position, cotangent), None]

    def batch(self, axis: Axis, args: Any, dims: Any) -> tuple[Any, int]:
        tape, position = args
        return tape_read(batch_tape(tape, dims[0], axis), common_position(position, dims[1])), 0


@primitive
class tape_length(TapePrimitive):
    """Number of entries of a tape, as an int32. Only compiled code measures tapes, after differentiation."""

    zero_derivative = True

    def type(self, tape: TapeType) -> ArrayType:
        return array_type((), np.dtype(np.int32))

    def eval(self, tape: Tape) -> Any:
        return np.asarray(tape.length, np.int32)

    batch = No("the elements of a batch have tapes of one length")


@primitive
class tape_add(TapePrimitive):
    """Sum of two tapes, entry by entry."""

    linear = "all"

    def type(self, x: TapeType, y: TapeType) -> TapeType:
        return x

    def eval(self, x: Tape, y: Tape) -> Tape:
        if not y.length:
            return x
        if not x.length:
            return y
        length = max(x.length, y.length)
        plus = self.eval if isinstance(x.aval.element, TapeType) else np.add
        return Tape(x.aval.element, [plus(x.read(i), y.read(i)) for i in range(length)], length)

    def transpose(self, cotangent: Any, x: Any, y: Any) -> Sequence[Any]:
        return [cotangent if is_linear(x) else None, cotangent if is_linear(y) else None]

    def batch(self, axis: Axis, args: Any, dims: Any) -> tuple[Any, int]:
        return tape_add(*(batch_tape(t, d, axis) for t, d in zip(args, dims, strict=True))), 0

    def definition(self, x: Any, y: Any) -> Any:
        return entrywise(get_aval(x), [x, y], [], add_tangents)  # type: ignore[arg-type]


@primitive
class tape_select(TapePrimitive):
    """Selects, for each element of a batch, its tape out of several: `which` has the leading dimensions of every
    entry."""

    def type(self, which: ArrayType, *cases: TapeType) -> TapeType:
        return cases[0]

    def eval(self, which: Any, *cases: Tape) -> Tape:
        length = max(c.length for c in cases)
        element = cases[0].aval.element

        def entry(position: int) -> Any:
            values = [c.read(position) for c in cases]
            if isinstance(element, TapeType):
                return self.eval(which, *values)
            case = np.asarray(which, np.int32).reshape((*which.shape, *[1] * (values[0].ndim - which.ndim)))
            return np.choose(case, values)

        return Tape(element, [entry(i) for i in range(length)], length)

    def jvp(self, tangents: Sequence[Any], out: Any, which: Any, *cases: Any) -> Any:
        if all(type(t) is Zero for t in tangents[1:]):
            return Zero.of(out.aval)
        return tape_select(which, *map(instantiate, tangents[1:]))

    def transpose(self, cotangent: Any, which: Any, *cases: Any) -> Sequence[Any]:
        nothing = [zeros(cotangent.aval)] * len(cases)
        return [
            None,
            *(
                tape_select(which, *nothing[:k], cotangent, *nothing[k + 1 :]) if is_linear(c) else None
                for k, c in enumerate(cases)
            ),
        ]

    def batch(self, axis: Axis, args: Any, dims: Any) -> tuple[Any, int]:
        which = move_batch_to_front(args[0], dims[0], axis)
        return tape_select(which, *(batch_tape(t, d, axis) for t, d in zip(args[1:], dims[1:], strict=True))), 0

    def definition(self, which: Any, *cases: Any) -> Any:
        def choose(*values: Any) -> Any:
            *entries, index = values
            aval: Any = get_aval(entries[0])
            if isinstance(aval, TapeType):
                return tape_select(index, *entries)
            rank = len(index.shape)
            if len(aval.shape) > rank:
                index = broadcast_in_dim(index, shape=aval.shape, broadcast_dimensions=tuple(range(rank)))
            return lookup("select_n")(index, *entries)

        return entrywise(get_aval(cases[0]), cases, [which], choose)  # type: ignore[arg-type]


@primitive
class tape_broadcast(TapePrimitive):
    """Tape with every entry repeated along a new dimension `dim`."""

    linear = (0,)

    def type(self, tape: TapeType, *, size: Any, dim: int) -> TapeType:
        return with_entries(tape, lambda t: t.with_dimension(dim, size))

    def eval(self, tape: Tape, *, size: int, dim: int) -> Tape:
        element = self.type(tape.aval, size=size, dim=dim).element
        return tape.map(element, lambda e: np.repeat(np.expand_dims(e, dim), size, axis=dim))

    def transpose(self, cotangent: Any, tape: Any, *, size: Any, dim: int) -> Sequence[Any]:
        return [tape_sum(cotangent, dim=dim)]

    def batch(self, axis: Axis, args: Any, dims: Any, *, size: Any, dim: int) -> tuple[Any, int]:
        return tape_broadcast(args[0], size=size, dim=dim + 1), 0

    def definition(self, tape: Any, *, size: Any, dim: int) -> Any:
        def repeat_entry(entry: Any) -> Any:
            aval: Any = get_aval(entry)
            if isinstance(aval, TapeType):
                return tape_broadcast(entry, size=size, dim=dim)
            shape = (*aval.shape[:dim], size, *aval.shape[dim:])
            dimensions = tuple(i for i in range(len(shape)) if i != dim)
            return broadcast_in_dim(entry, shape=shape, broadcast_dimensions=dimensions)

        return entrywise(self.type(get_aval(tape), size=size, dim=dim), [tape], [], repeat_entry)  # type: ignore[arg-type]


@primitive
class tape_sum(TapePrimitive):
    """Tape with every entry summed over its dimension `dim`."""

    linear = (0,)

    def type(self, tape: TapeType, *, dim: int) -> TapeType:
        return with_entries(tape, lambda t: t.without_dimension(dim))

    def eval(self, tape: Tape, *, dim: int) -> Tape:
        return tape.map(self.type(tape.aval, dim=dim).element, lambda e: np.sum(e, axis=dim, dtype=e.dtype))

    def transpose(self, cotangent: Any, tape: Any, *, dim: int) -> Sequence[Any]:
        innermost = tape.aval
        while isinstance(innermost, TapeType):
            innermost = innermost.element
        return [tape_broadcast(cotangent, size=innermost.shape[dim], dim=dim)]

    def batch(self, axis: Axis, args: Any, dims: Any, *, dim: int) -> tuple[Any, int]:
        return tape_sum(args[0], dim=dim + 1), 0

    def definition(self, tape: Any, *, dim: int) -> Any:
        def total(entry: Any) -> Any:
            if isinstance(get_aval(entry), TapeType):
                return tape_sum(entry, dim=dim)
            return lookup("reduce_sum")(entry, axes=(dim,))

        return entrywise(self.type(get_aval(tape), dim=dim), [tape], [], total)  # type: ignore[arg-type]


def entrywise(result: TapeType, tapes: Sequence[Any], others: Sequence[Any], function: Callable[..., Any]) -> Any:
    """Return a tape with `function(entries of the tapes, others)` at each position that one of them has: a loop,
    because compiled code can only create, measure, read and write tapes. If entries are tapes themselves, the body of
    the loop has the same operation, which is decomposed in the same way."""
    count = tape_length(tapes[0])
    for tape in tapes[1:]:
        count = lookup("max")(count, tape_length(tape))
    held = [*tapes, *others]

    def iteration(step: Any, *values: Any) -> list[Any]:
        *args, out = values
        entries = [tape_read(t, step) for t in args[: len(tapes)]]
        return [tape_write(out, step, function(*entries, *args[len(tapes) :]))]

    body = stage_subjaxpr(iteration, [_COUNT, *map(get_aval, held), result], name="tape")
    loop: Any = lookup("repeat")
    (out,) = loop(count, *held, tape_new(element=result.element), jaxpr=body, nconsts=len(held), reverse=False)
    return out


def with_entries(tape: TapeType, change: Any) -> TapeType:
    """Return the type of a tape whose (innermost) entries have a changed type."""
    element = tape.element
    return TapeType(with_entries(element, change) if isinstance(element, TapeType) else change(element))


def common_position(position: Any, dim: int | None) -> Any:
    """Return one position for a batch. Positions are counts of steps: elements still in their loop have taken every
    step so far, so theirs is the largest; the loop masks reads and writes of the others."""
    return position if dim is None else lookup("reduce_max")(position, axes=(dim,))


def batch_tape(tape: Any, dim: int | None, axis: Axis) -> Any:
    """Return a tape whose entries have the batch dimension first."""
    return tape_broadcast(tape, size=axis.size, dim=0) if dim is None else tape


def batch_value(value: Any, dim: int | None, axis: Axis) -> Any:
    """Return an array or a tape with the batch dimension first."""
    if isinstance(get_aval(value), TapeType):
        return batch_tape(value, dim, axis)
    return move_batch_to_front(value, dim, axis)


def zeros(aval: Type) -> Any:
    """Return zeros of a tangent type."""
    if isinstance(aval, TapeType):
        return tape_new(element=aval.element)
    assert isinstance(aval, ArrayType)
    if aval.dtype == dtypes.float0:  # has no bytes, so nothing is computed
        return np.zeros(aval.shape, dtypes.float0)
    found = broadcast_in_dim(np.zeros((), dtypes.storage(aval.dtype)), shape=aval.shape, broadcast_dimensions=())
    return cast_to_state(found, aval)


def add_tangents(x: Any, y: Any) -> Any:
    """Add two tangents of one type."""
    aval = get_aval(x)
    if isinstance(aval, TapeType):
        return tape_add(x, y)
    if isinstance(aval, ArrayType) and aval.dtype == dtypes.float0:
        return x
    return add(x, y)
