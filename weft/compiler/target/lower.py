"""Lowering of kernels to LLVM, as far as all targets share it: the statements of a kernel for one thread, one element
at a time.

`vectors.py` adds loops over lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.kernel.ir import (
    Buffer,
    Carry,
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    Position,
    Prefetch,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Store,
    Value,
    Variable,
    is_zero,
)
from weft.compiler.kernel.operations import OWN
from weft.compiler.kernel.widths import widths
from weft.compiler.target import llvm
from weft.compiler.target.lanes import Lane, Lanes
from weft.compiler.target.llvm import constant, constant_vector, i64
from weft.compiler.target.memory import Access, LaneMemory
from weft.compiler.target.target import Target
from weft.indexing.expression import Expression, Integer
from weft.ir.primitive import lookup
from weft.primitives.elementwise.elementwise import Elementwise


def apply_lanes(lanes: Lanes, operands: Sequence[Lane], op: str, params: Mapping[str, Any]) -> Lane:
    """Apply an operation to operands with equal numbers of lanes and return its result."""
    if op not in OWN:
        primitive = lookup(op)
        if isinstance(primitive, Elementwise):
            result: Lane = primitive.emit(lanes, *operands, **params)
            return result
    return lanes.apply(op, operands, params)


class Lowering:
    """Writer of one function. `variables` has loop variables as i64; a variable of a loop over lanes is that of its
    first lane."""

    lanes_type: type[Lanes] = Lanes

    def __init__(self, function: llvm.Function, kernel: Kernel, target: Target) -> None:
        self.f = function
        self.kernel = kernel
        self.target = target
        self.widths = widths(kernel)
        self.alignments = dict(zip(kernel.buffers, kernel.alignments, strict=False))
        self.values: dict[Value, Lane] = {}
        self.variables: dict[Variable, llvm.Value] = {}
        # Known divisors of the variables of serial loops, where they are not 1.
        self.factors: dict[Any, int] = {}
        self.pointers: dict[Buffer, llvm.Value] = {}
        self.begin = self.end = constant(0, i64)
        self.memory: dict[Any, LaneMemory] = {}
        self.widened: dict[int, Lanes] = {}
        # Scalars computed from indices, and results of the Threefry hash, by block: inner blocks see those of outer
        # ones.
        self.scalars: list[dict[Any, llvm.Value]] = [{}]
        self.pairs: list[dict[Any, tuple[Lane, Lane]]] = [{}]
        # The enclosing loop over lanes: its variable, its start, the step between lanes and their number.
        self.variable: Variable | None = None
        self.first: Any = 0
        self.step = 0
        self.width = 1
        # Values of the symbolic sizes, loaded at the beginning of the function.
        self.sizes: dict[Expression, llvm.Value] = {}

    def read_sizes(self) -> None:
        """Load the sizes that the kernel depends on."""
        if self.kernel.sizes:
            table = self.pointers[self.kernel.buffers[-1]]
            for n, size in enumerate(self.kernel.sizes):
                self.sizes[size] = self.f.load(i64, self.f.offset(table, i64, n), 8)

    def integer(self, value: Integer) -> llvm.Value:
        """Return an integer of the kernel, a constant or a symbolic size, as i64."""
        return self.sizes[value] if isinstance(value, Expression) else constant(value, i64)

    def block(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Open a scope of reusable scalars: values computed in a block that may not run are dropped at its end."""
        self.scalars.append({})
        self.pairs.append({})
        yield
        self.scalars.pop()
        self.pairs.pop()

    def statement(self, statement: Any) -> None:
        match statement:
            case Constant(result, value):
                self.values[result] = self.lanes(1).constant(value, result.dtype)
            case Position(result, index):
                self.values[result] = self.position(index, result.dtype)
            case Load(result, buffer, index, condition, otherwise):
                self.values[result] = self.load(buffer, index, condition, otherwise)
            case Store(buffer, index, value, condition):
                self.store(buffer, index, value, condition)
            case Prefetch(buffer, index):
                self.f.expect(self.access(buffer, index, safe=False)[1].base)
            case Compute(result, "threefry2x32", operands, params):
                self.values[result] = self.threefry(operands)[params["part"]]
            case Compute(result, op, operands, params):
                self.values[result] = self.compute(op, [self.values[v] for v in operands], params)
            case ReduceLanes(result, op, vector, width):
                self.values[result] = self.reduce_lanes(op, self.broadcast(self.values[vector], width), width)
            case Shuffle(result, vectors, chosen):
                self.values[result] = self.shuffle([self.values[v] for v in vectors], chosen)
            case Shift(result, vector, by, fill):
                self.values[result] = self.shift(self.values[vector], by, self.values[fill])
            case Last(result, vector):
                self.values[result] = self.last(self.values[vector])
            case If(condition, body):
                with self.f.when(self.values[condition].parts[0]), self.scope():
                    self.block(body)
            case Loop():
                self.loop(statement)
            case _:
                name = type(statement).__name__
                raise InternalError(f"A kernel for {self.target.kind} cannot contain the statement {name}.")

    # -- values ----------------------------------------------------------------------------------------------------

    def lanes(self, width: int) -> Lanes:
        lanes = self.widened.get(width)
        if lanes is None:
            lanes = self.widened[width] = self.lanes_type(self.f, width)
        return lanes

    def broadcast(self, lane: Lane, width: int) -> Lane:
        """Broadcast a scalar to `width` lanes; return a vector of that width unchanged."""
        return lane if lane.width == width else lane.with_parts([self.f.splat(part, width) for part in lane.parts])

    def chosen(self, mask: llvm.Value, a: Lane, b: Lane) -> Lane:
        return a.with_parts([self.f.select(mask, p, q) for p, q in zip(a.parts, b.parts, strict=True)])

    def compute(self, op: str, operands: Sequence[Lane], params: Mapping[str, Any]) -> Lane:
        return apply_lanes(*self.together(operands), op, params)

    def together(self, operands: Sequence[Lane]) -> tuple[Lanes, list[Lane]]:
        """Broadcast operands to the width of the widest one; return the builder for that width and the operands."""
        width = max(lane.width for lane in operands)
        return self.lanes(width), [self.broadcast(lane, width) for lane in operands]

    def threefry(self, operands: tuple[Value, ...]) -> tuple[Lane, Lane]:
        """Return both results of the hash, which are computed once for the two operations that take one each."""
        for known in reversed(self.pairs):
            if operands in known:
                result: tuple[Lane, Lane] = known[operands]
                return result
        lanes, widened = self.together([self.values[v] for v in operands])
        pair = self.pairs[-1][operands] = lanes.threefry2x32(*widened)
        return pair

    def reduce_lanes(self, op: str, lane: Lane, width: int) -> Lane:
        """Reduce lanes by combining halves until one is left. Booleans of one register are compared as an integer."""
        bits = lane.dtype == dtypes.bool_ and op in ("or", "and")
        while width > 1:
            if bits and width in (8, 16):
                word = self.f.bitcast(lane.parts[0], llvm.integer(width))
                bound = constant(0 if op == "or" else -1, word.type)
                return lane.with_parts([self.f.icmp("ne" if op == "or" else "eq", word, bound)])
            width //= 2
            low, high = (lane.with_parts([self.half(p, start, width) for p in lane.parts]) for start in (0, width))
            lane = self.compute(op, [low, high], {})
        return lane

    def half(self, part: llvm.Value, start: int, width: int) -> llvm.Value:
        return self.f.extract(part, start) if width == 1 else self.f.shuffle(part, None, range(start, start + width))

    def shift(self, lane: Lane, by: int, fill: Lane) -> Lane:
        """Shift lanes up by `by`; the first `by` lanes come from `fill`."""
        chosen = [i - by if i >= by else self.width + i for i in range(self.width)]
        return self.shuffle([self.broadcast(lane, self.width), self.broadcast(fill, self.width)], chosen)

    def last(self, lane: Lane) -> Lane:
        """Broadcast the last lane to all lanes; a scalar is returned unchanged."""
        return lane if lane.width == 1 else self.shuffle([lane], [lane.width - 1] * lane.width)

    def shuffle(self, vectors: Sequence[Lane], chosen: Sequence[int]) -> Lane:
        first, second = vectors[0].parts, vectors[1].parts if len(vectors) == 2 else [None] * len(vectors[0].parts)
        return vectors[0].with_parts([self.f.shuffle(a, b, chosen) for a, b in zip(first, second, strict=True)])

    def position(self, index: Index, dtype: Any) -> Lane:
        base, stride, offsets = self.index(index)
        element = llvm.integer(dtype.itemsize * 8)
        total = self.f.trunc(base, element)
        if not stride and offsets is None:
            return self.lanes(1).integer(total, dtype)
        total = self.f.splat(total, self.width)
        if stride:
            total = self.f.add(total, constant_vector([lane * stride for lane in range(self.width)], element))
        if offsets is not None:
            total = self.f.add(total, self.f.trunc(offsets, total.type))
        return self.lanes(self.width).integer(total, dtype)

    # -- indices ---------------------------------------------------------------------------------------------------

    def index(self, index: Index) -> tuple[llvm.Value, int, llvm.Value | None]:
        """Split an index into its value for the first lane, the constant stride between lanes, and the offsets of each
        lane that a stride cannot express (None: no such offsets)."""
        stride, offsets = 0, None
        uniform: list[tuple[Any, Integer]] = []
        for term, coefficient in index.terms:
            if isinstance(term, Variable):
                uniform.append((term, coefficient))
                if term is not self.variable or self.width == 1:
                    continue
                if not isinstance(coefficient, Expression):
                    stride += coefficient * self.step
                    continue
                # The stride between lanes is a symbolic size: each lane has its own offset.
                steps = constant_vector([lane * self.step for lane in range(self.width)], i64)
                scaled = self.f.mul(steps, self.f.splat(self.integer(coefficient), self.width))
                offsets = scaled if offsets is None else self.f.add(offsets, scaled)
            elif self.values[term].width == 1:
                uniform.append((term, coefficient))
            else:
                wide = scaled = self.values[term].wide_integer(self.f)
                if isinstance(coefficient, Expression):
                    scaled = self.f.mul(wide, self.f.splat(self.integer(coefficient), self.width))
                elif coefficient != 1:
                    scaled = self.f.mul(wide, constant(coefficient, wide.type))
                offsets = scaled if offsets is None else self.f.add(offsets, scaled)
        return self.scalar(index.constant, uniform), stride, offsets

    def scalar(self, offset: Integer, terms: Sequence[tuple[Any, Integer]]) -> llvm.Value:
        """Return offset + sum of coefficient * term as i64; equal sums are computed once."""
        key = (offset, frozenset(terms))
        for known in reversed(self.scalars):
            if key in known:
                result: llvm.Value = known[key]
                return result
        total = None
        if terms and not is_zero(offset):
            # Indices that differ by a constant share the sum without it; the constant becomes part of the address.
            total = self.f.add(self.scalar(0, terms), self.integer(offset))
            self.scalars[-1][key] = total
            return total
        for term, coefficient in terms:
            part = self.variables[term] if isinstance(term, Variable) else self.values[term].wide_integer(self.f)
            if isinstance(coefficient, Expression) or coefficient != 1:
                part = self.f.mul(part, self.integer(coefficient))
            total = part if total is None else self.f.add(total, part)
        if total is None:
            total = self.integer(offset)
        self.scalars[-1][key] = total
        return total

    # -- memory ----------------------------------------------------------------------------------------------------

    def access(self, buffer: Buffer, index: Index, safe: bool) -> tuple[LaneMemory, Access]:
        memory = self.memory.get(buffer.dtype)
        if memory is None:
            memory = self.memory[buffer.dtype] = LaneMemory(self.f, *Lanes.storage(buffer.dtype))
        base, stride, offsets = self.index(index)
        address = memory.address(self.pointers[buffer], base, safe and offsets is None)
        return memory, Access(address, stride, offsets, safe, self.alignment(buffer, index))

    def alignment(self, buffer: Buffer, index: Index) -> int:
        """Return the largest number of bytes that is known to divide the address of the first lane (1 if unknown)."""
        if not self.target.grid_bytes or self.kernel.sizes:
            return 1
        elements: list[Any] = [index.constant]
        for term, coefficient in index.terms:
            # Loops over lanes advance by whole vectors.
            whole = math.gcd(self.first, self.width * self.step) if term is self.variable else self.factors.get(term, 1)
            elements.append(coefficient * whole)
        known = self.alignments.get(buffer, self.target.grid_bytes)
        return math.gcd(self.target.grid_bytes, known, *(n * buffer.dtype.itemsize for n in elements))

    def load(self, buffer: Buffer, index: Index, condition: Value | None, otherwise: Value | None) -> Lane:
        memory, access = self.access(buffer, index, condition is None)
        if condition is None or otherwise is None:
            return self.lanes(1).from_storage(memory.load_one(access.base, access.align), buffer.dtype)
        return self.load_if(memory, access, buffer.dtype, self.values[condition].parts[0], self.values[otherwise])

    def load_if(self, memory: LaneMemory, access: Access, dtype: Any, holds: llvm.Value, rest: Lane) -> Lane:
        """Load one element if a condition holds, else return `rest`."""
        zeros = [llvm.zero(memory.element)] * memory.parts
        with self.f.when(holds, *zeros) as region, self.scope():
            region.give(*memory.load_one(access.base))
        return self.chosen(holds, self.lanes(1).from_storage(region.results, dtype), rest)

    def store(self, buffer: Buffer, index: Index, value: Value, condition: Value | None) -> None:
        memory, access = self.access(buffer, index, condition is None)
        parts = self.lanes(1).to_storage(self.values[value])
        if condition is None:
            memory.store_one(parts, access.base, access.align)
            return
        with self.f.when(self.values[condition].parts[0]), self.scope():
            memory.store_one(parts, access.base)

    # -- loops -----------------------------------------------------------------------------------------------------

    def initial(self, carry: Carry) -> Lane:
        """Return the initial value of a carry, in the width that it has in the loop; inside lanes always a vector,
        since later values may differ between lanes."""
        width = self.widths[carry.inside] if self.variable is None else self.width
        return self.broadcast(self.values[carry.initial], width)

    def stop(self, loop: Loop) -> llvm.Value:
        """Return the upper bound of the loop variable: the stop, or the limit if that is lower."""
        bound = self.integer(loop.stop)
        return bound if loop.limit is None else self.f.smin(bound, self.scalar(loop.limit.constant, loop.limit.terms))

    def loop(self, loop: Loop) -> None:
        threads = loop.kind is LoopKind.THREADS
        bounds = (self.begin, self.end, 1) if threads else (self.integer(loop.start), self.stop(loop), loop.step)
        count = None if threads or loop.limit is not None else loop.count
        copies = self.copies(loop, count) if isinstance(count, int) else 1
        if copies > 1:
            bounds = (*bounds[:2], copies * loop.step)
        started = [self.initial(carry) for carry in loop.carries]
        with self.f.loop(*bounds, carried=flat(started)) as index, self.scope():
            variable: llvm.Value = index
            if threads and loop.step != 1:
                variable = self.f.mul(variable, constant(loop.step, i64))
            if threads and not is_zero(loop.start):
                variable = self.f.add(variable, self.integer(loop.start))
            self.variables[loop.variable] = variable
            if not threads and loop.step != 1 and isinstance(loop.start, int):
                self.factors[loop.variable] = math.gcd(loop.start, loop.step)
            carried = unflat(started, index.values)
            for copy in range(copies):
                if copy:
                    self.variables[loop.variable] = self.f.add(index, constant(copy * loop.step, i64))
                self.enter(loop, carried)
                with self.scope():
                    self.block(loop.body)
                carried = self.finals(loop, started)
            index.give(*flat(carried))
        self.leave(loop, unflat(started, index.results))

    def copies(self, loop: Loop, count: int) -> int:
        """Return the unroll factor of a serial loop, a divisor of its trip count."""
        return 1

    def enter(self, loop: Loop, carried: Sequence[Lane]) -> None:
        for carry, lane in zip(loop.carries, carried, strict=True):
            self.values[carry.inside] = lane

    def finals(self, loop: Loop, like: Sequence[Lane]) -> list[Lane]:
        return [self.broadcast(self.values[c.final], a.width) for c, a in zip(loop.carries, like, strict=True)]

    def leave(self, loop: Loop, carried: Sequence[Lane]) -> None:
        for carry, lane in zip(loop.carries, carried, strict=True):
            self.values[carry.result] = lane


def flat(lanes: Sequence[Lane]) -> list[llvm.Value]:
    return [part for lane in lanes for part in lane.parts]


def unflat(like: Sequence[Lane], parts: Sequence[llvm.Value]) -> list[Lane]:
    """Regroup a flat list of LLVM values into lanes of the same dtypes as `like`."""
    left = iter(parts)
    return [lane.with_parts([next(left) for _ in lane.parts]) for lane in like]
