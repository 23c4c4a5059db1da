"""Programs of collectives without kernels: the results of members are copies of parts of operands, or sums of them.

A collective over a group is a jaxpr on the operands of all members (`primitives/collectives.py`). Where that jaxpr only
slices, concatenates and adds, it need not be compiled: two routines of the library copy and add boxes, and a table says
which. What this finds no table for is compiled like any program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.compilation import Compilation, Details
from weft.compiler.program.assign import assign
from weft.compiler.program.cost import estimate
from weft.compiler.program.ir import Call, Fill, Kind, Program, Slot, Step, bytes_of
from weft.compiler.target.cpu.library.boxes import COPY, sum_name
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.types import ArrayType
from weft.primitives.collectives import tree_combined
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.movement.slicing import slice as slice_primitive

# Tables for more than this many bytes are shared among threads, in pieces of about this many bytes, but no more than so
# many.
SHARED, PIECE, MOST_PIECES = 1 << 20, 1 << 19, 128
# Rows that are shorter than this many bytes are left to kernels, if all of them together are not small.
SHORT_ROW, FEW_BYTES = 64, 1 << 14
# Dimensions that a box has besides its rows.
OUTER = 2
INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


@dataclass(frozen=True)
class View:
    """Where elements of an operand are: from an offset on, at these strides."""

    operand: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A box of a value, which is a view or the sum of several, as the tree over them has it."""

    start: tuple[int, ...]
    sizes: tuple[int, ...]
    terms: tuple[View, ...]
    tree: Any = 0  # nested pairs of positions of `terms`


@dataclass(frozen=True)
class Box:
    """What one entry of a table copies or adds: rows of so many bytes, and how many there are along two dimensions.
    `ends` has for each term, and then for each target, the index of its slot, an offset and two strides in bytes."""

    row: int
    counts: tuple[int, ...]
    ends: tuple[tuple[int, int, tuple[int, ...]], ...]

    @property
    def bytes(self) -> int:
        """What it reads and writes."""
        return self.row * math.prod(self.counts) * len(self.ends)


class _NeedsKernels(Exception):
    """The jaxpr does something else, or something that kernels do better."""


def group_compilation(jaxpr: Jaxpr, target: Target) -> Compilation | None:
    """The program of a collective without kernels, or None if it has to be compiled."""
    try:
        program = _Tables(jaxpr).program()
    except _NeedsKernels:
        return None
    program.nanoseconds = estimate(assign(program), target.kernel)
    return Compilation(jaxpr, (), program, target, Details(jaxpr, []))


class _Tables:
    """Finds the pieces of every value, and writes the tables."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.values: dict[Any, tuple[Piece, ...]] = {}  # no pieces: zeros
        if jaxpr.consts:
            raise _NeedsKernels
        for i, v in enumerate(jaxpr.invars):
            shape = _shape(v)
            self.values[v] = (Piece((0,) * len(shape), shape, (View(i, 0, _strides(shape)),)),)
        for equation in jaxpr.eqns:
            rule = _RULES.get(equation.primitive)
            if rule is None:
                raise _NeedsKernels
            (out,) = equation.outvars
            self.values[out] = rule(self, equation)

    def read(self, atom: Any) -> tuple[Piece, ...]:
        if isinstance(atom, Literal):
            raise _NeedsKernels
        return self.values[atom]

    def program(self) -> Program:
        """The steps that write all results."""
        types: list[Any] = [v.aval for v in self.jaxpr.invars]
        results: list[Any] = [v.aval for v in self.jaxpr.outvars]
        arguments = [Slot(Kind.ARGUMENT, bytes_of(t), i) for i, t in enumerate(types)]
        outputs = [Slot(Kind.RESULT, bytes_of(t), i) for i, t in enumerate(results)]
        steps: list[Step] = []
        targets: dict[Any, list[int]] = {}
        for i, v in enumerate(self.jaxpr.outvars):
            targets.setdefault(v, []).append(i)
        copies: list[Box] = []
        sums: dict[str, list[Box]] = {}
        for v, indices in targets.items():
            pieces = self.read(v)
            if not pieces:
                steps += [Fill(outputs[i]) for i in indices if outputs[i].size]
            element, size = _element(v.aval)
            for piece in pieces:
                if not math.prod(piece.sizes):
                    continue
                if len(piece.terms) == 1:
                    copies += [self.box(piece, _shape(v), [i], size) for i in indices]
                    continue
                if element is None or piece.tree != tree_combined(lambda *pair: pair, range(len(piece.terms))):
                    raise _NeedsKernels
                name = sum_name(element, len(piece.terms), len(indices))
                sums.setdefault(name, []).append(self.box(piece, _shape(v), indices, size))
        constants: list[np.ndarray] = []
        slots: list[Slot] = []
        for name, boxes in ((COPY, copies), *sums.items()):
            if boxes:
                step = _call(name, boxes, arguments, outputs, len(constants))
                steps.append(step[0])
                constants.append(step[1])
                slots.append(step[0].slots[0])
        return Program(
            self.jaxpr.name, steps, arguments, outputs, [None] * len(outputs), constants, constant_slots=slots
        )

    def box(self, piece: Piece, shape: Sequence[int], results: Sequence[int], size: int) -> Box:
        """The entry that writes a piece of a value to results."""
        strides = _strides(shape)
        offset = sum(s * stride for s, stride in zip(piece.start, strides, strict=True))
        operands = len(self.jaxpr.invars)
        ends = [(t.operand, t.offset, t.strides) for t in piece.terms]
        ends += [(operands + i, offset, strides) for i in results]
        counts, merged = _merged(piece.sizes, [e[2] for e in ends])
        if any(s[-1:] != (1,) for s in merged):  # rows of one element
            counts, merged = (*counts, 1), [(*s, 1) for s in merged]
        row, outer = size * counts[-1], counts[:-1]
        total = row * math.prod(outer)
        if len(outer) > OUTER or (row < SHORT_ROW and total > FEW_BYTES):
            raise _NeedsKernels
        missing = OUTER - len(outer)
        return Box(
            row,
            (*[1] * missing, *outer),
            tuple(
                (slot, size * first, (*[0] * missing, *(size * s for s in own[:-1])))
                for (slot, first, _), own in zip(ends, merged, strict=True)
            ),
        )


def _call(
    routine: str, boxes: Sequence[Box], arguments: Sequence[Slot], outputs: Sequence[Slot], constant: int
) -> tuple[Call, np.ndarray]:
    """The step that does what a table says, and the table."""
    tiles = 0
    if sum(b.bytes for b in boxes) > SHARED:
        piece = max(PIECE, sum(b.bytes for b in boxes) // MOST_PIECES)
        boxes = [part for b in boxes for part in _split(b, -(-b.bytes // piece))]
        tiles = len(boxes)
    entries = [len(boxes)]
    for b in boxes:
        entries += [b.row, *b.counts]
        for index, offset, strides in b.ends:
            entries += [1 + index, offset, *strides]  # the table itself is in front of the slots
    table = np.array(entries, np.int64)
    slot = Slot(Kind.CONSTANT, table.nbytes, constant)
    step = Call(f"{routine}_tiles" if tiles else routine, (slot, *arguments, *outputs), tuple(outputs), tiles=tiles)
    step.label = routine.removeprefix("weft_")
    return step, table


def _split(box: Box, parts: int) -> list[Box]:
    """A box in about so many parts: along the outermost dimension that there is, or else its rows in lines of the
    cache."""
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
            found.append(replace(box, row=row, ends=ends))
        else:
            counts = (*box.counts[:axis], here, *box.counts[axis + 1 :])
            ends = tuple((slot, offset + first * strides[axis], strides) for slot, offset, strides in box.ends)
            found.append(Box(box.row, counts, ends))
    return found


# ------------------------------------------------------------------------------------------------- values of equations


def _sliced(tables: _Tables, equation: Equation) -> tuple[Piece, ...]:
    params, pieces = equation.params, tables.read(equation.invars[0])
    if params["strides"] is not None and any(s != 1 for s in params["strides"]):
        raise _NeedsKernels
    found = []
    for piece in pieces:
        ranges = [
            (max(a, first), min(a + size, last))
            for a, size, first, last in zip(
                piece.start, piece.sizes, params["start_indices"], params["limit_indices"], strict=True
            )
        ]
        if all(first < last for first, last in ranges):
            inside = [first - a for (first, _), a in zip(ranges, piece.start, strict=True)]
            terms = tuple(
                replace(t, offset=t.offset + sum(i * s for i, s in zip(inside, t.strides, strict=True)))
                for t in piece.terms
            )
            start = tuple(first - b for (first, _), b in zip(ranges, params["start_indices"], strict=True))
            sizes = tuple(last - first for first, last in ranges)
            found.append(Piece(start, sizes, terms, piece.tree))
    if pieces and not found and _count(equation.outvars[0]):
        raise _NeedsKernels
    return tuple(found)


def _reshaped(tables: _Tables, equation: Equation) -> tuple[Piece, ...]:
    """Dimensions of size 1 come and go; other reshapes are those of whole operands."""
    pieces = tables.read(equation.invars[0])
    old, new = _shape(equation.invars[0]), _shape(equation.outvars[0])
    if equation.params.get("dimensions") is not None:
        raise _NeedsKernels
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        if len(pieces) != 1 or len(pieces[0].terms) != 1 or pieces[0].terms[0].strides != _strides(old):
            raise _NeedsKernels
        view = replace(pieces[0].terms[0], strides=_strides(new))
        return (Piece((0,) * len(new), new, (view,)),)
    others = [i for i, n in enumerate(old) if n != 1]

    def rearranged(values: Sequence[int], unit: int) -> tuple[int, ...]:
        rest = iter([values[i] for i in others])
        return tuple(unit if n == 1 else next(rest) for n in new)

    return tuple(
        Piece(
            rearranged(p.start, 0),
            rearranged(p.sizes, 1),
            tuple(replace(t, strides=rearranged(t.strides, 0)) for t in p.terms),
            p.tree,
        )
        for p in pieces
        if math.prod(p.sizes)
    )


def _concatenated(tables: _Tables, equation: Equation) -> tuple[Piece, ...]:
    dim, first, found = equation.params["dimension"], 0, []
    for atom in equation.invars:
        pieces = tables.read(atom)
        if not pieces and _count(atom):
            raise _NeedsKernels  # zeros between others
        for p in pieces:
            start = (*p.start[:dim], p.start[dim] + first, *p.start[dim + 1 :])
            found.append(replace(p, start=start))
        first += _shape(atom)[dim]
    return tuple(found)


def _zeros(tables: _Tables, equation: Equation) -> tuple[Piece, ...]:
    (atom,) = equation.invars
    # The bits of minus zero are others.
    if isinstance(atom, Literal) and not np.any(np.asarray(atom.val).reshape(-1).view(np.uint8)):
        return ()
    raise _NeedsKernels


def _added(tables: _Tables, equation: Equation) -> tuple[Piece, ...]:
    a, b = map(tables.read, equation.invars)
    if len(a) != 1 or len(b) != 1 or a[0].sizes != b[0].sizes:
        raise _NeedsKernels
    shift = len(a[0].terms)

    def shifted(tree: Any) -> Any:
        return tree + shift if isinstance(tree, int) else tuple(map(shifted, tree))

    tree = (a[0].tree, shifted(b[0].tree))
    return (Piece(a[0].start, a[0].sizes, (*a[0].terms, *b[0].terms), tree),)


_RULES: dict[Any, Any] = {
    slice_primitive: _sliced,
    reshape: _reshaped,
    concatenate: _concatenated,
    broadcast_in_dim: _zeros,
    add: _added,
}


def _shape(v: Any) -> tuple[int, ...]:
    shape: Any = v.aval.shape if isinstance(v.aval, ArrayType) else (None,)
    if not all(isinstance(n, int) for n in shape):
        raise _NeedsKernels
    return shape


def _count(v: Any) -> int:
    """How many elements a value has."""
    shape: Any = _shape(v)
    return math.prod(shape)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Those of an array whose last dimension is contiguous, in elements; of dimensions of size 1 they are 0."""
    found, stride = [], 1
    for n in reversed(shape):
        found.append(0 if n == 1 else stride)
        stride *= n
    return tuple(reversed(found))


def _merged(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """A box without dimensions of size 1, and with those as one that follow each other in all views."""
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
    """What elements are added as, and their size; None where they are not added like numbers of the machine."""
    dtype = dtypes.storage(aval.dtype)
    kind, size = dtype.kind, dtype.itemsize
    if isinstance(aval.dtype, dtypes.ExtendedDtype):
        return None, size
    if kind == "c":
        return f"f{4 * size}", size
    if kind == "f" and size >= 4:
        return f"f{8 * size}", size
    return (f"i{8 * size}" if dtype.name in INTEGERS else None), size
