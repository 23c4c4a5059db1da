"""Lowering of kernels to LLVM: loops over lanes as vectors, with masks where there are fewer elements than lanes.

A value that is equal in all lanes stays a scalar until an operation combines it with one that is not. The tail of a
loop over lanes is masked: in the only body, where the machine masks every type and a second body would not pay off;
elsewhere a body without masks comes first and the tail after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from weft.base import dtypes
from weft.compiler.kernel.interleaved import InterleavedGroup, groups
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopKind,
    Statement,
    Store,
    Value,
    Variable,
)
from weft.compiler.kernel.operations import operation_weight
from weft.compiler.target import llvm
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import constant, constant_vector, i32, i64
from weft.compiler.target.lower import Lowering, flat, unflat
from weft.compiler.target.memory import Access, LaneMemory, Mask
from weft.compiler.target.target import Target
from weft.indexing.expression import Expression

# Whole vectors have a body of their own without masks from this many vectors on, if its work (in additions) is at most
# this: the exponential of a softmax is the most.
SPLIT_VECTORS, SPLIT_WEIGHT = 8, 12
# Loops over fewer elements than lanes whose work is at most this are split into shorter vectors.
COPY_WEIGHT = 4


class VectorLowering(Lowering):
    """Writer of one function with vectors. `mask` has the active lanes of the loop over lanes (None: all)."""

    def __init__(self, function: llvm.Function, kernel: Kernel, target: Target) -> None:
        super().__init__(function, kernel, target)
        self.mask: llvm.Value | None = None
        # Distance of the bound from the first lane, where there is a mask.
        self.left = constant(0, i32)

    def block(self, body: Sequence[Statement]) -> None:
        if self.variable is None or self.width == 1:
            for statement in body:
                self.statement(statement)
            return
        found = groups(body, self.variable, self.step, self.is_uniform)
        for statement in body:
            group = found.get(statement)
            if group is None:
                self.statement(statement)
            elif isinstance(statement, Store):
                if statement is group.members[-1]:
                    self.store_group(group)
            elif statement is group.members[0]:
                self.load_group(group)

    def statement(self, statement: Any) -> None:
        match statement:
            case Loop(kind=LoopKind.LANES):
                self.loop_over_lanes(statement)
            case _:
                super().statement(statement)

    # -- memory ----------------------------------------------------------------------------------------------------

    def load(self, buffer: Buffer, index: Index, condition: Value | None, otherwise: Value | None) -> Lane:
        memory, access = self.access(buffer, index, condition is None)
        uniform = not access.stride and access.offsets is None
        if condition is None or otherwise is None:
            if uniform:
                return self.lanes(1).from_storage(memory.load_one(access.base, access.align), buffer.dtype)
            mask = None if buffer.padded and access.stride == 1 and access.offsets is None else self.mask
            return self.lanes(self.width).from_storage(memory.load(access, self.width, mask, None), buffer.dtype)
        holds, rest = self.values[condition].parts[0], self.values[otherwise]
        if uniform:
            return self.load_uniform(memory, access, buffer.dtype, holds, rest)
        lanes = self.lanes(self.width)
        parts = lanes.to_storage(self.broadcast(rest, self.width))
        mask = self.both(self.in_lanes(holds), self.mask)
        return lanes.from_storage(memory.load(access, self.width, mask, parts), buffer.dtype)

    def load_uniform(self, memory: LaneMemory, access: Access, dtype: Any, holds: llvm.Value, rest: Lane) -> Lane:
        """Load one element if it is needed by any active lane; other lanes get `rest`."""
        asked = self.both(holds, self.mask) if holds.type.is_vector else holds
        zeros = [llvm.zero(memory.element)] * memory.parts
        with self.f.when(self.f.reduce("or", asked), *zeros) as region, self.scope():
            region.give(*memory.load_one(access.base))
        width = max(rest.width, holds.type.count)
        read = self.broadcast(self.lanes(1).from_storage(region.results, dtype), width)
        return self.chosen(holds, read, self.broadcast(rest, width))

    def store(self, buffer: Buffer, index: Index, value: Value, condition: Value | None) -> None:
        memory, access = self.access(buffer, index, condition is None)
        parts = self.lanes(self.width).to_storage(self.broadcast(self.values[value], self.width))
        holds = None if condition is None else self.values[condition].parts[0]
        if self.width > 1:
            memory.store(parts, access, self.mask if holds is None else self.both(self.in_lanes(holds), self.mask))
        elif holds is None:
            memory.store_one(parts, access.base, access.align)
        else:
            with self.f.when(holds), self.scope():
                memory.store_one(parts, access.base)

    def is_uniform(self, term: Any) -> bool:
        """Return whether a term of an index is defined already and equal in all lanes."""
        return isinstance(term, Variable) or (term in self.values and self.values[term].width == 1)

    def load_group(self, group: InterleavedGroup) -> None:
        """Load interleaved lanes for all loads of a group."""
        memory, access = self.access(group.buffer, group.index, safe=True)
        columns = memory.load_interleaved(access.base, group.stride, group.offsets, self.width, self.mask_of_lanes())
        for member, offset in zip(group.members, group.offsets, strict=True):
            self.values[member.result] = self.lanes(self.width).from_storage(columns[offset], group.buffer.dtype)

    def store_group(self, group: InterleavedGroup) -> None:
        """Store interleaved lanes for all stores of a group."""
        memory, access = self.access(group.buffer, group.index, safe=True)
        lanes = self.lanes(self.width)
        ordered = sorted(zip(group.offsets, group.members, strict=True), key=lambda pair: pair[0])
        values = [self.broadcast(self.values[member.value], self.width) for _, member in ordered]
        columns = [part for value in values for part in lanes.to_storage(value)]
        memory.store_interleaved(columns, access.base, self.mask_of_lanes())

    def mask_of_lanes(self) -> Mask | None:
        """Return a function that builds the mask of numbers in memory from the lane that each belongs to, or None if
        all lanes are active."""
        if self.mask is None:
            return None
        left = self.left

        def mask(owners: Sequence[int | None]) -> llvm.Value:
            never = (1 << 31) - 1
            steps = constant_vector([never if lane is None else lane * self.step for lane in owners], i32)
            return self.f.icmp("slt", steps, self.f.splat(left, len(owners)))

        return mask

    def in_lanes(self, holds: llvm.Value) -> llvm.Value:
        return holds if holds.type.is_vector else self.f.splat(holds, self.width)

    def both(self, a: llvm.Value, b: llvm.Value | None) -> llvm.Value:
        return a if b is None else self.f.and_(a, b)

    # -- loops -----------------------------------------------------------------------------------------------------

    def loop_over_lanes(self, loop: Loop) -> None:
        """Write a loop over lanes: whole vectors without masks and a tail, or one masked loop where a second body would
        cost more."""
        if loop.limit is not None and not loop.limit.terms and isinstance(loop.stop, int):
            end = loop.limit.constant
            loop = loop if isinstance(end, Expression) else replace(loop, stop=min(loop.stop, end), limit=None)
        before = self.variable, self.step, self.width, self.mask
        carried = [self.broadcast(self.values[c.initial], loop.width) for c in loop.carries]
        start, stop = self.integer(loop.start), self.stop(loop)
        self.variable, self.step, self.width, self.mask = loop.variable, loop.step, loop.width, None
        self.first = loop.start
        if is_symbolic(loop):
            carried = self.unknown_count(loop, start, stop, carried)
            self.variable, self.step, self.width, self.mask = before
            self.leave(loop, carried)
            return
        whole, rest = divmod(loop.count, loop.width)
        if loop.width == 1 or (loop.limit is None and not rest):
            carried = self.vectors(loop, start, stop, carried, masked=False)
        elif not whole and loop.limit is None and not rest & (rest - 1) and (rest > 1 or not carried):
            carried = self.short_vector(loop, rest, start, carried)
        elif not whole and loop.limit is None and not carried and _only_copies(loop.body):
            self.short_vectors(loop, rest)
        elif self.target.masks and (whole or loop.limit is not None) and not self.splits(loop):
            carried = self.vectors(loop, start, stop, carried, masked=True)
        elif self.target.masks and not carried and not whole:
            self.vector(loop, start, self.lanes_below(loop, start, stop), carried)
        else:
            edge = constant(loop.start + whole * loop.width * loop.step, i64)
            if loop.limit is not None:
                edge = self.edge(loop, stop)
            if whole:
                carried = self.vectors(loop, start, edge, carried, masked=False)
            carried = self.tail(loop, edge, stop, carried)
        self.variable, self.step, self.width, self.mask = before
        self.leave(loop, carried)

    def unknown_count(self, loop: Loop, start: llvm.Value, stop: llvm.Value, carried: list[Lane]) -> list[Lane]:
        """Write a loop whose trip count depends on symbolic sizes: whole vectors, then the tail if there is one. A body
        with loops or with much work is written once, with masks."""
        if loop.width == 1:
            return self.vectors(loop, start, stop, carried, masked=False)
        has_loops = any(isinstance(statement, Loop) for statement in loop.body)
        if self.target.masks and (has_loops or _weight(loop.body) > SPLIT_WEIGHT):
            return self.vectors(loop, start, stop, carried, masked=True)
        edge = self.edge(loop, stop)
        return self.tail(loop, edge, stop, self.vectors(loop, start, edge, carried, masked=False))

    def splits(self, loop: Loop) -> bool:
        """Return whether whole vectors get a body of their own without masks. The second body costs next to nothing
        where work is light and the bound is known, since it is not a loop then; a body with loops, as in matmuls, would
        cost twice."""
        plain = loop.limit is None and not any(isinstance(statement, Loop) for statement in loop.body)
        return plain and loop.count // loop.width >= SPLIT_VECTORS and _weight(loop.body) <= SPLIT_WEIGHT

    def edge(self, loop: Loop, stop: llvm.Value) -> llvm.Value:
        """Return the index at which the first incomplete vector starts, for a bound that is known only at run time."""
        start = self.integer(loop.start)
        left = self.f.smax(self.f.sub(stop, start), constant(0, i64))
        stride = constant(loop.width * loop.step, i64)
        # Lanes are `step` apart: the last vector is complete if its last lane is below the bound.
        reach = self.f.add(left, constant(loop.step - 1, i64))
        return self.f.add(self.f.sub(reach, self.f.urem(reach, stride)), start)

    def vectors(self, loop: Loop, start: llvm.Value, stop: llvm.Value, carried: list[Lane], masked: bool) -> list[Lane]:
        """Write a loop that computes one vector per iteration; return the final carries."""
        whole = 0 if masked or loop.limit is not None or is_symbolic(loop) else loop.count // loop.width
        if whole == 1:
            return self.vector(loop, start, None, carried)
        copies, stride = self.copies(loop, whole) if whole else 1, loop.width * loop.step
        with self.f.loop(start, stop, copies * stride, carried=flat(carried)) as index, self.scope():
            mask = self.lanes_below(loop, index, stop) if masked else None
            values = self.vector(loop, index, mask, unflat(carried, index.values))
            for copy in range(1, copies):
                values = self.vector(loop, self.f.add(index, constant(copy * stride, i64)), None, values)
            index.give(*flat(values))
        return unflat(carried, index.results)

    def vector(self, loop: Loop, at: llvm.Value, mask: llvm.Value | None, carried: list[Lane]) -> list[Lane]:
        """Write one iteration of the body; return its carries, which change only in active lanes."""
        self.variables[loop.variable], self.mask = at, mask
        self.enter(loop, carried)
        with self.scope():
            self.block(loop.body)
        finals = self.finals(loop, carried)
        return finals if mask is None else [self.chosen(mask, a, b) for a, b in zip(finals, carried, strict=True)]

    def short_vector(self, loop: Loop, count: int, at: llvm.Value, carried: list[Lane]) -> list[Lane]:
        """Write a loop over fewer elements than lanes, a power of two, as one vector of this length: the processor does
        not forward from a masked store to a load that soon follows, nor from a short store to a longer load."""
        self.width = count
        begun = [lane.with_parts([self.half(part, 0, count) for part in lane.parts]) for lane in carried]
        finals = self.vector(loop, at, None, begun)
        self.width = loop.width
        mask = constant_vector([lane < count for lane in range(loop.width)], llvm.i1)
        return [self.chosen(mask, self.longer(a), b) for a, b in zip(finals, carried, strict=True)]

    def short_vectors(self, loop: Loop, count: int) -> None:
        """Write fewer elements than lanes as vectors of 8, 4, 2 and 1 elements: a masked store takes longer than two
        unmasked ones."""
        at = loop.start
        while count:
            self.width = 1 << (count.bit_length() - 1)
            self.vector(loop, self.integer(at), None, [])
            at, count = at + self.width * loop.step, count - self.width
        self.width = loop.width

    def longer(self, lane: Lane) -> Lane:
        """Pad a short vector to the full width by repeating its lanes."""
        chosen = [i % lane.width for i in range(self.width)]
        return lane.with_parts([self.f.shuffle(part, None, chosen) for part in lane.parts])

    def lanes_below(self, loop: Loop, at: llvm.Value, stop: llvm.Value) -> llvm.Value:
        """Return the mask of lanes below the bound, in the vector that starts at `at`."""
        left = self.f.sub(stop, at)
        if is_symbolic(loop) or loop.stop - loop.start >= 1 << 31:
            left = self.f.smin(left, constant(loop.width * loop.step, i64))
        steps = constant_vector([lane * loop.step for lane in range(loop.width)], i32)
        self.left = self.f.trunc(left, i32)
        return self.f.icmp("slt", steps, self.f.splat(self.left, loop.width))

    def tail(self, loop: Loop, edge: llvm.Value, stop: llvm.Value, carried: list[Lane]) -> list[Lane]:
        """Write the elements after the whole vectors, from `edge` on: masked where masks are free or lanes are carried,
        else one element at a time."""
        if not carried and not self.target.masks:
            self.width = 1
            with self.f.loop(edge, stop, loop.step) as index:
                self.vector(loop, index, None, [])
            return []
        if loop.limit is None and not is_symbolic(loop):
            return self.vector(loop, edge, self.lanes_below(loop, edge, stop), carried)
        with self.f.when(self.f.icmp("slt", edge, stop), *flat(carried)) as region, self.scope():
            mask = self.lanes_below(loop, edge, stop)
            region.give(*flat(self.vector(loop, edge, mask, carried)))
        return unflat(carried, region.results)


def is_symbolic(loop: Loop) -> bool:
    """Return whether the bounds of a loop depend on symbolic sizes."""
    limit = () if loop.limit is None else (loop.limit.constant, *(c for _, c in loop.limit.terms))
    return any(isinstance(bound, Expression) for bound in (loop.start, loop.stop, *limit))


def _only_copies(body: Iterable[Statement]) -> bool:
    """Return whether the statements only copy one or two elements."""
    return all(isinstance(statement, Load | Store) for statement in body) and _weight(body) <= COPY_WEIGHT


def _weight(body: Iterable[Statement]) -> float:
    """Return the work of statements, in additions."""
    total = 0.0
    for statement in body:
        match statement:
            case Compute(result=result, op=op):
                kind, size = dtypes.kind(result.dtype), result.dtype.itemsize
                # A complex number has two parts, and short floats are rounded after each operation.
                total += operation_weight(op) * (4 if kind == "c" or (kind == "f" and size < 4) else 1)
            case Load() | Store():
                total += 1
            case If(body=inner):
                total += _weight(inner)
    return total
