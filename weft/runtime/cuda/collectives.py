"""Plans of collectives on GPUs: calls of NCCL, and copies before and after them.

NCCL works on contiguous memory: it sums, concatenates and sends arrays. A collective along another dimension than the
first packs or unpacks blocks of rows before or after that on each GPU. A group of one GPU copies its operand, and needs
no library.
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
    """Transposition of blocks of rows between an array and a packed buffer: the number of blocks, the rows of each, and
    the bytes of a row.

    In the buffer blocks are contiguous; in the array a row of one block is followed by the same row of the next block.
    """

    blocks: int
    rows: int
    width: int

    @property
    def bytes(self) -> int:
        return self.blocks * self.rows * self.width

    @property
    def lie_together(self) -> bool:
        """Whether blocks are contiguous in the array too."""
        return self.rows == 1 or self.blocks == 1

    def collect(self, stream: Any, array: int, buffer: int) -> None:
        """Start copying from the array to the buffer."""
        for i in range(self.blocks):
            target = buffer + i * self.rows * self.width
            source = array + i * self.width
            stream.copy_rows(target, self.width, source, self.blocks * self.width, self.width, self.rows)

    def distribute(self, stream: Any, array: int, buffer: int) -> None:
        """Start copying from the buffer to the array."""
        for i in range(self.blocks):
            target = array + i * self.width
            source = buffer + i * self.rows * self.width
            stream.copy_rows(target, self.blocks * self.width, source, self.width, self.width, self.rows)


@dataclass(frozen=True)
class Member:
    """GPU in a collective: its rank, handle of the communicator, stream, and addresses of its operand and result."""

    rank: int
    handle: Any
    stream: Any
    operand: int
    result: int


# Returns the calls of NCCL of a member, whose operand and result are as NCCL has them.
Calls = Callable[[Member], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class CollectivePlan:
    """Plan of a collective for the members of a group: calls, rows that are packed before and unpacked after them, and
    bytes that are filled with zeros before."""

    calls: Calls
    before: Rows | None = None
    after: Rows | None = None
    zeros: Callable[[int], int] = lambda rank: 0  # bytes of the result of a member

    @property
    def workspace(self) -> int:
        """Bytes of temporary memory that a member needs."""
        return self._offset + (self.after.bytes if self.after else 0)

    @property
    def _offset(self) -> int:
        return -(-self.before.bytes // ALIGNMENT) * ALIGNMENT if self.before else 0

    def begin(self, member: Member, workspace: int) -> list[tuple[Any, ...]]:
        """Start the work of a member before its calls, in its stream; return the calls."""
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
        """Start the work of a member after its calls."""
        if self.after:
            self.after.distribute(member.stream, member.result, workspace + self._offset)


# The plan of a collective for one operand, a member of this process, and the address of its temporary memory.
Part = tuple[CollectivePlan, Member, int]


def start(parts: Sequence[Part], start_calls: Callable[[list[tuple[Any, ...]]], None]) -> None:
    """Start collectives of the members of a group in this process, in the stream of each.

    `start_calls` starts calls of NCCL together.
    """
    calls = [call for plan, member, workspace in parts for call in plan.begin(member, workspace)]
    if calls:  # a permutation may have none for these members
        start_calls(calls)
    for plan, member, workspace in parts:
        plan.end(member, workspace)


def alone(equation: Equation, stream: Any, operand: int, result: int) -> None:
    """Start a collective of a group of one: a copy of the operand, or zeros for an empty permutation."""
    size = byte_size(equation.outvars[0].aval)
    perm = equation.params.get("perm")
    if size and perm is not None and not perm:
        stream.fill(result, size)
    elif size and operand != result:
        stream.copy(result, operand, size)


def plan_collective(equation: Equation, count: int) -> list[CollectivePlan]:
    """Plan the collective of an equation for groups of `count` members, one plan for each operand.

    Raise NotSupportedError if NCCL cannot execute it.
    """
    one = _TERMS.get(equation.primitive)
    if one is not None:
        pairs = zip(equation.invars, equation.outvars, strict=True)
        return [_plan_operand(Equation([i], [o], one, equation.params), count) for i, o in pairs]
    return [_plan_operand(equation, count)]


def _plan_operand(equation: Equation, count: int) -> CollectivePlan:
    build = _PLANS.get(equation.primitive)
    if build is None:
        raise NotSupportedError(
            f"`{equation.primitive.name}` cannot run on several GPUs yet.",
            fix="psum, pmax, pmin, all_gather, psum_scatter, all_to_all, ppermute, pbroadcast",
        )
    return build(equation, count)


def _length(equation: Equation, operation: str, divisor: int = 1) -> tuple[int, int]:
    """Return the number of elements that NCCL combines, and their type."""
    aval: Any = equation.invars[0].aval
    dtype = dtypes.storage(aval.dtype)
    per_element = 1
    if dtype.kind == "c" and operation == "sum":
        dtype, per_element = np.dtype(f"f{dtype.itemsize // 2}"), 2
    name = "uint8" if dtype.kind == "b" else dtype.name
    if name not in TYPES:
        raise NotSupportedError(
            f"NCCL cannot compute the {operation} of {dtypes.name(aval.dtype)}.",
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
    """Return the packing of an array's blocks along a dimension; None if they are contiguous."""
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


# Collectives of several operands, by the collective that each operand goes through.
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
