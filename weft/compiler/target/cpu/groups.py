"""Collective programs without kernels: the results of members are copies of slices of operands, or sums of them.

A collective over a group is a jaxpr on the operands of all members (`primitives/collectives.py`). Where that jaxpr only
slices, concatenates and adds, it need not be compiled: two library routines copy and add boxes according to a table.
Other jaxprs are compiled like any program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.compiler.compilation import Compilation, Details
from weft.compiler.program.assign import assign
from weft.compiler.program.cost import estimate
from weft.compiler.program.ir import Call, Fill, Kind, Program, Slot, Step, byte_size
from weft.compiler.target.cpu.library.boxes import COPY, sum_name
from weft.compiler.target.target import Target
from weft.ir.context import Trace, context
from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.types import ArrayType, array_type
from weft.primitives.collectives import Collective, combine_tree
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.movement.slicing import slice as slice_primitive

# Tables for more than SHARED bytes are shared among threads, in chunks of about CHUNK bytes, but at most MOST_CHUNKS.
SHARED, CHUNK, MOST_CHUNKS = 1 << 20, 1 << 19, 128
# Rows shorter than SHORT_ROW bytes are left to kernels, unless they have at most FEW_BYTES in total.
SHORT_ROW, FEW_BYTES = 64, 1 << 14
# Dimensions of a box besides its rows.
OUTER = 2
INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


class OperandView(NamedTuple):
    """Strided view of an operand, with offset and strides in elements."""

    operand: int
    offset: int
    strides: tuple[int, ...]


class ValueSlice(NamedTuple):
    """Box of a value: a view, or the sum of several, added in the order of `tree`."""

    start: tuple[int, ...]
    sizes: tuple[int, ...]
    terms: tuple[OperandView, ...]
    tree: Any = 0  # nested pairs of indices into `terms`


class TableEntry(NamedTuple):
    """Table entry for copying or adding a box: the bytes of a row, and the number of rows along two dimensions. `ends`
    has for each term, and then for each target, the index of its slot, an offset and two strides in bytes."""

    row: int
    counts: tuple[int, ...]
    ends: tuple[tuple[int, int, tuple[int, ...]], ...]

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.row * math.prod(self.counts) * len(self.ends)


class _NeedsKernels(Exception):
    """Raised if a jaxpr has other operations, or is faster with kernels."""


def group_program(equation: Equation, members: int, target: Target) -> Program | None:
    """Build the program of a collective for a group of `members`, or return None if it needs kernels. The result is the
    program of the collective's jaxpr, without tracing it."""
    primitive = equation.primitive
    assert isinstance(primitive, Collective)
    types: list[Any] = [a.aval for a in equation.invars for _ in range(members)]
    results: list[Any] = [v.aval for v in equation.outvars for _ in range(members)]
    before = context.trace, context.manual
    context.trace, context.manual = _TableTrace(), frozenset()
    try:
        args = _operands(types)
        operands = [args[i * members : (i + 1) * members] for i in range(len(equation.invars))]
        values = [x for result in primitive.group_results(operands, **equation.params) for x in result]
        program = _Tables(f"{primitive.name} of {members}", types, results, values).program()
    except _NeedsKernels:
        return None
    finally:
        context.trace, context.manual = before
    program.nanoseconds = estimate(assign(program), target.kernel)
    return program


def group_compilation(jaxpr: Jaxpr, target: Target) -> Compilation | None:
    """Build the program of a collective's jaxpr without kernels, or return None if it needs them."""
    types: list[Any] = [v.aval for v in jaxpr.invars]
    try:
        if jaxpr.consts:
            raise _NeedsKernels
        values: dict[Any, Any] = dict(zip(jaxpr.invars, _operands(types), strict=True))
        for equation in jaxpr.eqns:
            args = [a.val if isinstance(a, Literal) else values[a] for a in equation.invars]
            (values[equation.outvars[0]],) = _TableTrace().process(equation.primitive, args, equation.params)
        results = [None if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]
        program = _Tables(jaxpr.name, types, [v.aval for v in jaxpr.outvars], results).program()
    except _NeedsKernels:
        return None
    program.nanoseconds = estimate(assign(program), target.kernel)
    return Compilation(jaxpr, (), program, target, details=Details(jaxpr, []))


class _Value:
    """Array whose slices are known; without slices it is all zeros."""

    __slots__ = ("dtype", "shape", "slices")

    def __init__(self, shape: tuple[int, ...], dtype: Any, slices: tuple[ValueSlice, ...]) -> None:
        self.shape, self.dtype, self.slices = shape, dtype, slices

    @property
    def aval(self) -> Any:
        """Abstract type of the array."""
        return array_type(self.shape, self.dtype)


class _TableTrace(Trace):
    """Trace that evaluates the operations of collectives on values in slices."""

    __slots__ = ()

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        rule = _RULES.get(primitive)
        if rule is None:
            raise _NeedsKernels
        return [rule(*args, **params)]


def _operands(types: Sequence[Any]) -> list[_Value]:
    """Return the arguments of these types as values, each one view of its operand."""
    values = []
    for i, t in enumerate(types):
        shape = t.shape if isinstance(t, ArrayType) else (None,)
        if not all(isinstance(n, int) for n in shape):
            raise _NeedsKernels
        view = OperandView(i, 0, _strides(shape))  # type: ignore[arg-type]
        values.append(_Value(shape, t.dtype, (ValueSlice((0,) * len(shape), shape, (view,)),)))  # type: ignore[arg-type]
    return values


def _get_slices(value: Any) -> tuple[ValueSlice, ...]:
    """Return the slices of an operand; raise _NeedsKernels for a constant."""
    if type(value) is not _Value:
        raise _NeedsKernels
    return value.slices


@functools.cache
def _balance(terms: int) -> Any:
    """Return the tree in which the library's routines add this many terms."""
    return combine_tree(lambda *pair: pair, range(terms))


class _Tables:
    """Writer of the tables for values computed from arguments."""

    def __init__(self, name: str, types: Sequence[Any], results: Sequence[Any], values: Sequence[Any]) -> None:
        self.name, self.types, self.results, self.values = name, types, results, values

    def program(self) -> Program:
        """Build the program whose steps write all results."""
        arguments = [Slot(Kind.ARGUMENT, byte_size(t), i) for i, t in enumerate(self.types)]
        outputs = [Slot(Kind.RESULT, byte_size(t), i) for i, t in enumerate(self.results)]
        steps: list[Step] = []
        targets: dict[Any, list[int]] = {}
        for i, value in enumerate(self.values):
            targets.setdefault(value, []).append(i)
        copies: list[TableEntry] = []
        sums: dict[str, list[TableEntry]] = {}
        for value, indices in targets.items():
            slices = _get_slices(value)
            if not slices:
                steps += [Fill(outputs[i]) for i in indices if outputs[i].size]
            element, size = _element(self.results[indices[0]])
            for value_slice in slices:
                if not math.prod(value_slice.sizes):
                    continue
                if len(value_slice.terms) == 1:
                    first = self.box(value_slice, value.shape, indices[:1], size)
                    source, (_, offset, strides) = first.ends
                    places = [len(self.types) + i for i in indices]
                    copies += [first._replace(ends=(source, (slot, offset, strides))) for slot in places]
                    continue
                if element is None or value_slice.tree != _balance(len(value_slice.terms)):
                    raise _NeedsKernels
                name = sum_name(element, len(value_slice.terms), len(indices))
                sums.setdefault(name, []).append(self.box(value_slice, value.shape, indices, size))
        constants: list[np.ndarray] = []
        slots: list[Slot] = []
        for name, boxes in ((COPY, copies), *sums.items()):
            if boxes:
                step = _call(name, boxes, arguments, outputs, len(constants))
                steps.append(step[0])
                constants.append(step[1])
                slots.append(step[0].slots[0])
        return Program(self.name, steps, arguments, outputs, [None] * len(outputs), constants, constant_slots=slots)

    def box(self, value_slice: ValueSlice, shape: Sequence[int], results: Sequence[int], size: int) -> TableEntry:
        """Return the table entry that writes a slice of a value to results."""
        strides = _strides(shape)
        offset = sum(s * stride for s, stride in zip(value_slice.start, strides, strict=True))
        operands = len(self.types)
        ends = [(t.operand, t.offset, t.strides) for t in value_slice.terms]
        ends += [(operands + i, offset, strides) for i in results]
        counts, merged = _merge_dimensions(value_slice.sizes, [e[2] for e in ends])
        if any(s[-1:] != (1,) for s in merged):  # rows of one element
            counts, merged = (*counts, 1), [(*s, 1) for s in merged]
        row, outer = size * counts[-1], counts[:-1]
        total = row * math.prod(outer)
        if len(outer) > OUTER or (row < SHORT_ROW and total > FEW_BYTES):
            raise _NeedsKernels
        missing = OUTER - len(outer)
        return TableEntry(
            row,
            (*[1] * missing, *outer),
            tuple(
                (slot, size * first, (*[0] * missing, *(size * s for s in own[:-1])))
                for (slot, first, _), own in zip(ends, merged, strict=True)
            ),
        )


def _call(
    routine: str, boxes: Sequence[TableEntry], arguments: Sequence[Slot], outputs: Sequence[Slot], constant: int
) -> tuple[Call, np.ndarray]:
    """Return the step that executes a table, and the table."""
    tiles = 0
    if sum(b.bytes for b in boxes) > SHARED:
        chunk = max(CHUNK, sum(b.bytes for b in boxes) // MOST_CHUNKS)
        boxes = [part for b in boxes for part in _split(b, -(-b.bytes // chunk))]
        tiles = len(boxes)
    entries = [len(boxes)]
    for b in boxes:
        entries += [b.row, *b.counts]
        for index, offset, strides in b.ends:
            entries += [1 + index, offset, *strides]  # slot 0 is the table itself
    table = np.array(entries, np.int64)
    slot = Slot(Kind.CONSTANT, table.nbytes, constant)
    step = Call(f"{routine}_tiles" if tiles else routine, (slot, *arguments, *outputs), tuple(outputs), tiles=tiles)
    step.label = routine.removeprefix("weft_")
    return step, table


def _split(box: TableEntry, parts: int) -> list[TableEntry]:
    """Split a box into about this many boxes, along its outermost dimension larger than 1 or else its rows by cache
    lines."""
    axis = next((i for i, count in enumerate(box.counts) if count > 1), None)
    unit = 64 if axis is None else 1
    count = -(-box.row // unit) if axis is None else box.counts[axis]
    each = -(-count // max(1, min(parts, count)))
    found = []
    for first in range(0, count, each):
        here = min(each, count - first)
        if axis is None:
            row = min(here * unit, box.row - first * unit)
            ends = tuple((slot, offset + first * unit, strides) for slot, offset, strides in box.ends)
            found.append(box._replace(row=row, ends=ends))
        else:
            counts = (*box.counts[:axis], here, *box.counts[axis + 1 :])
            ends = tuple((slot, offset + first * strides[axis], strides) for slot, offset, strides in box.ends)
            found.append(TableEntry(box.row, counts, ends))
    return found


# --------------------------------------------------------------------------------------------------- evaluation rules


def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> _Value:
    if strides is not None and any(s != 1 for s in strides):
        raise _NeedsKernels
    slices, shape = _get_slices(x), tuple([b - a for a, b in zip(start_indices, limit_indices, strict=True)])
    found = []
    for value_slice in slices:
        ranges = [
            (max(a, first), min(a + size, last))
            for a, size, first, last in zip(
                value_slice.start, value_slice.sizes, start_indices, limit_indices, strict=True
            )
        ]
        if all([first < last for first, last in ranges]):
            inside = [first - a for (first, _), a in zip(ranges, value_slice.start, strict=True)]
            terms = tuple(
                [
                    OperandView(
                        t.operand, t.offset + sum([i * s for i, s in zip(inside, t.strides, strict=True)]), t.strides
                    )
                    for t in value_slice.terms
                ]
            )
            start = tuple([first - b for (first, _), b in zip(ranges, start_indices, strict=True)])
            sizes = tuple([last - first for first, last in ranges])
            found.append(ValueSlice(start, sizes, terms, value_slice.tree))
    if slices and not found and math.prod(shape):
        raise _NeedsKernels
    return _Value(shape, x.dtype, tuple(found))


def _reshape(x: Any, *, new_sizes: Any, dimensions: Any, **params: Any) -> _Value:
    """Reshape a value: any reshape of a whole operand, otherwise only dimensions of size 1 may be added or removed."""
    slices = _get_slices(x)
    old, new = x.shape, tuple(new_sizes)
    if dimensions is not None:
        raise _NeedsKernels
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        if len(slices) != 1 or len(slices[0].terms) != 1 or slices[0].terms[0].strides != _strides(old):
            raise _NeedsKernels
        view = slices[0].terms[0]._replace(strides=_strides(new))
        return _Value(new, x.dtype, (ValueSlice((0,) * len(new), new, (view,)),))
    others = [i for i, n in enumerate(old) if n != 1]

    def rearrange(values: Sequence[int], unit: int) -> tuple[int, ...]:
        rest = iter([values[i] for i in others])
        return tuple([unit if n == 1 else next(rest) for n in new])

    return _Value(
        new,
        x.dtype,
        tuple(
            ValueSlice(
                rearrange(p.start, 0),
                rearrange(p.sizes, 1),
                tuple([OperandView(t.operand, t.offset, rearrange(t.strides, 0)) for t in p.terms]),
                p.tree,
            )
            for p in slices
            if math.prod(p.sizes)
        ),
    )


def _concatenate(*operands: Any, dimension: int) -> _Value:
    dim, first, found = dimension, 0, []
    for x in operands:
        slices = _get_slices(x)
        if not slices and math.prod(x.shape):
            raise _NeedsKernels  # zeros beside other operands
        for p in slices:
            start = (*p.start[:dim], p.start[dim] + first, *p.start[dim + 1 :])
            found.append(ValueSlice(start, p.sizes, p.terms, p.tree))
        first += x.shape[dim]
    shape = operands[0].shape
    return _Value((*shape[:dim], first, *shape[dim + 1 :]), operands[0].dtype, tuple(found))


def _zeros(x: Any, *, shape: Any, broadcast_dimensions: Any, **params: Any) -> _Value:
    # All bits must be zero: -0.0 has others.
    if type(x) is _Value or np.any(np.asarray(x).reshape(-1).view(np.uint8)):
        raise _NeedsKernels
    return _Value(tuple(shape), np.asarray(x).dtype, ())


def _add(x: Any, y: Any) -> _Value:
    a, b = _get_slices(x), _get_slices(y)
    if len(a) != 1 or len(b) != 1 or a[0].sizes != b[0].sizes:
        raise _NeedsKernels
    shift = len(a[0].terms)

    def shift_tree(tree: Any) -> Any:
        return tree + shift if isinstance(tree, int) else tuple(map(shift_tree, tree))

    tree = (a[0].tree, shift_tree(b[0].tree))
    return _Value(x.shape, x.dtype, (ValueSlice(a[0].start, a[0].sizes, (*a[0].terms, *b[0].terms), tree),))


_RULES: dict[Any, Any] = {
    slice_primitive: _slice,
    reshape: _reshape,
    concatenate: _concatenate,
    broadcast_in_dim: _zeros,
    add: _add,
}


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements, 0 for dimensions of size 1."""
    found, stride = [], 1
    for n in reversed(shape):
        found.append(0 if n == 1 else stride)
        stride *= n
    return tuple(reversed(found))


def _merge_dimensions(
    sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Drop dimensions of size 1 from a box and merge those that are adjacent in all views."""
    counts: list[int] = []
    own: list[list[int]] = [[] for _ in strides]
    for i in reversed(range(len(sizes))):
        if sizes[i] == 1:
            continue
        if counts and all(s[i] == o[0] * counts[0] for s, o in zip(strides, own, strict=True)):
            counts[0] *= sizes[i]
            continue
        counts.insert(0, sizes[i])
        for s, o in zip(strides, own, strict=True):
            o.insert(0, s[i])
    return tuple(counts), [tuple(o) for o in own]


def _element(aval: Any) -> tuple[str | None, int]:
    """Return the type in which elements are added, and their size; None for types that the machine does not add."""
    dtype = dtypes.storage(aval.dtype)
    kind, size = dtype.kind, dtype.itemsize
    if isinstance(aval.dtype, dtypes.ExtendedDtype):
        return None, size
    if kind == "c":
        return f"f{4 * size}", size
    if kind == "f" and size >= 4:
        return f"f{8 * size}", size
    return (f"i{8 * size}" if dtype.name in INTEGERS else None), size
