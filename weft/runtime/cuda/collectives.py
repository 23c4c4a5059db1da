"""Collectives of GPUs: what each member copies, and what NCCL does.

NCCL works on memory that lies together: it sums arrays, concatenates them, and sends them. A collective along another
dimension than the first copies blocks of rows before or after that, on each GPU by itself. A group of one GPU copies
its operand, and needs no library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import NotSupportedError
from weft.compiler.program.ir import byte_size
from weft.compiler.program.overlap import merged_sums
from weft.ir.jaxpr import Equation
from weft.primitives.collectives.gathers import all_gather, all_gather_invariant, all_gather_reduced, reduce_scatter
from weft.primitives.collectives.permutations import all_to_all, pbroadcast, ppermute
from weft.primitives.collectives.reductions import pmax, pmin, psum
from weft.runtime.cuda.libraries.nccl import OPERATIONS, TYPES, byte_messages

ALIGNMENT = 256


@dataclass(frozen=True)
class Rows:
    """Blocks of rows between an array and a buffer in which the blocks lie one after the other: how many blocks there
    are, the rows of each, and the bytes of a row. In the array a row of one block is followed by the same row of the
    next."""

    blocks: int
    rows: int
    width: int

    @property
    def bytes(self) -> int:
        return self.blocks * self.rows * self.width

    @property
    def lie_together(self) -> bool:
        """Whether the array has the blocks one after the other too."""
        return self.rows == 1 or self.blocks == 1

    def collect(self, stream: Any, array: int, buffer: int) -> None:
        """Copy from the array to the buffer."""
        for i in range(self.blocks):
            target = buffer + i * self.rows * self.width
            source = array + i * self.width
            stream.copy_rows(target, self.width, source, self.blocks * self.width, self.width, self.rows)

    def distribute(self, stream: Any, array: int, buffer: int) -> None:
        """Copy from the buffer to the array."""
        for i in range(self.blocks):
            target = array + i * self.width
            source = buffer + i * self.rows * self.width
            stream.copy_rows(target, self.blocks * self.width, source, self.width, self.width, self.rows)


@dataclass(frozen=True)
class Member:
    """One GPU in a collective: its rank, its handle of the communicator, its stream, and where its operand and result
    are."""

    rank: int
    handle: Any
    stream: Any
    operand: int
    result: int


# From a member, with operand and result as NCCL has them, the calls that it makes.
Calls = Callable[[Member], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class CollectivePlan:
    """How members of a group do a collective: rows that are collected before and distributed after, calls, and what is
    filled with zeros before."""

    calls: Calls
    before: Rows | None = None
    after: Rows | None = None
    zeros: Callable[[int], int] = lambda rank: 0  # bytes of the result of a member

    @property
    def workspace(self) -> int:
        """Bytes that a member needs besides its operand and result."""
        return self._offset + (self.after.bytes if self.after else 0)

    @property
    def _offset(self) -> int:
        return -(-self.before.bytes // ALIGNMENT) * ALIGNMENT if self.before else 0

    def begin(self, member: Member, workspace: int) -> list[tuple[Any, ...]]:
        """Start what a member does before, in its stream; returns the calls that it makes then."""
        operand, result = member.operand, member.result
        zeros = self.zeros(member.rank)
        if zeros:
            member.stream.fill(result, zeros)
        if self.before:
            self.before.collect(member.stream, operand, workspace)
            operand = workspace
        if self.after:
            result = workspace + self._offset
        return self.calls(Member(member.rank, member.handle, member.stream, operand, result))

    def end(self, member: Member, workspace: int) -> None:
        """Start what a member does after its calls."""
        if self.after:
            self.after.distribute(member.stream, member.result, workspace + self._offset)


# A collective of one member of this process, and the memory that it needs.
Part = tuple[CollectivePlan, Member, int]


def start(parts: Sequence[Part], grouped: Callable[[list[tuple[Any, ...]]], None]) -> None:
    """Start collectives of the members of a group in this process, in the stream of each; `grouped` starts calls of
    NCCL together."""
    calls = [call for plan, member, workspace in parts for call in plan.begin(member, workspace)]
    if calls:  # nobody may send anything to these, nor they to others
        grouped(calls)
    for plan, member, workspace in parts:
        plan.end(member, workspace)


def alone(equation: Equation, stream: Any, operand: int, result: int) -> None:
    """A collective of a group of one: its result has the bytes of the operand, or nobody sends it anything."""
    size = byte_size(equation.outvars[0].aval)
    perm = equation.params.get("perm")
    if size and perm is not None and not perm:
        stream.fill(result, size)
    elif size and operand != result:
        stream.copy(result, operand, size)


def plans_of(equation: Equation, count: int) -> list[CollectivePlan]:
    """How groups of so many members do the collective of an equation: one plan for each operand. A NotSupportedError
    says what cannot be done."""
    one = _TERMS.get(equation.primitive)
    if one is not None:
        pairs = zip(equation.invars, equation.outvars, strict=True)
        return [_plan_of(Equation([i], [o], one, equation.params), count) for i, o in pairs]
    return [_plan_of(equation, count)]


def _plan_of(equation: Equation, count: int) -> CollectivePlan:
    build = _PLANS.get(equation.primitive)
    if build is None:
        raise NotSupportedError(
            f"`{equation.primitive.name}` does not run on several GPUs yet.",
            fix="psum, pmax, pmin, all_gather, psum_scatter, all_to_all, ppermute, pbroadcast",
        )
    return build(equation, count)


def _length(equation: Equation, operation: str, divisor: int = 1) -> tuple[int, int]:
    """How many numbers NCCL combines, and their type."""
    aval: Any = equation.invars[0].aval
    dtype = dtypes.storage(aval.dtype)
    per_element = 1
    if dtype.kind == "c" and operation == "sum":
        dtype, per_element = np.dtype(f"f{dtype.itemsize // 2}"), 2
    name = "uint8" if dtype.kind == "b" else dtype.name
    if name not in TYPES:
        raise NotSupportedError(
            f"NCCL has no {operation} of {dtypes.name(aval.dtype)}.",
            fix="x.astype('int32') before `" + equation.primitive.name + "`, and back after it",
        )
    return math.prod(aval.shape) * per_element // divisor, TYPES[name]


def _reduction(operation: str) -> Callable[[Equation, int], CollectivePlan]:
    def build(equation: Equation, count: int) -> CollectivePlan:
        length, kind = _length(equation, operation)
        code = OPERATIONS[operation]
        return CollectivePlan(
            lambda m: [("ncclAllReduce", m.operand, m.result, length, kind, code, m.handle, m.stream.handle)]
        )

    return build


def _rows(shape: Sequence[int], dimension: int, blocks: int, itemsize: int) -> Rows | None:
    """The blocks of an array along a dimension of this shape, whose size is theirs together; None if they lie one after
    the other."""
    rows = Rows(blocks, math.prod(shape[:dimension]), math.prod(shape[dimension:]) // blocks * itemsize)
    return None if rows.lie_together or not rows.bytes else rows


def _itemsize(equation: Equation) -> int:
    aval: Any = equation.invars[0].aval
    return dtypes.storage(aval.dtype).itemsize


def _gather(equation: Equation, count: int) -> CollectivePlan:
    out: Any = equation.outvars[0].aval
    size, byte = byte_size(equation.invars[0].aval), TYPES["int8"]
    after = _rows(out.shape, equation.params["all_gather_dimension"], count, _itemsize(equation))
    return CollectivePlan(
        lambda m: [("ncclAllGather", m.operand, m.result, size, byte, m.handle, m.stream.handle)], after=after
    )


def _scatter(equation: Equation, count: int) -> CollectivePlan:
    aval: Any = equation.invars[0].aval
    length, kind = _length(equation, "sum", count)
    before = _rows(aval.shape, equation.params["scatter_dimension"], count, _itemsize(equation))
    code = OPERATIONS["sum"]
    return CollectivePlan(
        lambda m: [("ncclReduceScatter", m.operand, m.result, length, kind, code, m.handle, m.stream.handle)],
        before=before,
    )


def _exchange(equation: Equation, count: int) -> CollectivePlan:
    aval: Any = equation.invars[0].aval
    out: Any = equation.outvars[0].aval
    itemsize, size = _itemsize(equation), byte_size(aval) // count
    return CollectivePlan(
        lambda m: byte_messages(
            [(m.operand + size * rank, rank) for rank in range(count)],
            [(m.result + size * rank, rank) for rank in range(count)],
            size,
            m.handle,
            m.stream.handle,
        ),
        before=_rows(aval.shape, equation.params["split_axis"], count, itemsize),
        after=_rows(out.shape, equation.params["concat_axis"], count, itemsize),
    )


def _permutation(equation: Equation, count: int) -> CollectivePlan:
    perm, size = equation.params["perm"], byte_size(equation.invars[0].aval)
    receivers = {destination for _, destination in perm}
    return CollectivePlan(
        lambda m: byte_messages(
            [(m.operand, destination) for source, destination in perm if source == m.rank],
            [(m.result, source) for source, destination in perm if destination == m.rank],
            size,
            m.handle,
            m.stream.handle,
        ),
        zeros=lambda rank: 0 if rank in receivers else size,
    )


def _broadcast(equation: Equation, count: int) -> CollectivePlan:
    source, size, byte = equation.params["source"], byte_size(equation.invars[0].aval), TYPES["int8"]
    return CollectivePlan(
        lambda m: [("ncclBroadcast", m.operand, m.result, size, byte, source, m.handle, m.stream.handle)]
    )


# Collectives of several operands, each of which is done as by another one.
_TERMS: dict[Any, Any] = {merged_sums: psum}
_PLANS: dict[Any, Callable[[Equation, int], CollectivePlan]] = {
    psum: _reduction("sum"),
    pmax: _reduction("max"),
    pmin: _reduction("min"),
    all_gather: _gather,
    all_gather_invariant: _gather,
    all_gather_reduced: _gather,
    reduce_scatter: _scatter,
    all_to_all: _exchange,
    ppermute: _permutation,
    pbroadcast: _broadcast,
}
