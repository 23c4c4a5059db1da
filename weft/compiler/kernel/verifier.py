"""Check that a kernel follows the rules of the kernel language."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, assert_never

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.kernel import group_matmuls
from weft.compiler.kernel.builder import result_dtype
from weft.compiler.kernel.ir import (
    RANKED_LANES,
    Accumulate,
    Buffer,
    Carry,
    Compute,
    Constant,
    GroupMatmul,
    If,
    Index,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    Matmul,
    Position,
    Prefetch,
    Rank,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Store,
    TileMatmul,
    Value,
    Variable,
)
from weft.compiler.kernel.printer import statement_text, to_text
from weft.compiler.kernel.tiles import SUPPORTED
from weft.compiler.kernel.widths import widths


def verify(kernel: Kernel) -> Kernel:
    """Raise `InternalError` unless the kernel is well formed; return it.

    Every value is defined once, before its use and in an enclosing block; dtypes agree with buffers and primitives; an
    unconditional access whose index depends on loop variables only is in bounds; loops over lanes are not nested, the
    loop over threads is outermost, and only buffers with `written` are written.
    """
    _Verifier(kernel).check()
    return kernel


class _Verifier:
    """Visits the blocks of a kernel with the values in scope."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers = frozenset((*kernel.buffers, *kernel.local))
        self.widths = widths(kernel)
        self.defined: set[Value] = set()
        # Values in scope; and those defined before the enclosing loop over lanes, if there is one.
        self.visible: set[Value] = set()
        self.outside: frozenset[Value] = frozenset()
        self.loops: dict[Variable, Loop] = {}
        self.lanes: Loop | None = None
        self.guarded = False
        self.statement: Statement | None = None

    def fail(self, what: str) -> NoReturn:
        where = "" if self.statement is None else f": {statement_text(self.kernel, self.statement).strip()}"
        raise InternalError(what.rstrip(".") + where, stage=f"kernel {self.kernel.name}", text=to_text(self.kernel))

    def check(self) -> None:
        if len(self.buffers) != len(self.kernel.buffers) + len(self.kernel.local):
            self.fail("A buffer is listed twice")
        threads = [s for s in self.kernel.body if isinstance(s, Loop) and s.kind is LoopKind.THREADS]
        if len(threads) > 1:
            self.fail("There are two loops over threads")
        if threads and any(_stores(s) for s in self.kernel.body if s is not threads[0]):
            self.fail("Something is stored beside the loop over threads, so every thread would")
        self.block(self.kernel.body, top=True)

    def block(self, body: Iterable[Statement], top: bool = False, finals: Iterable[Value] = ()) -> None:
        """Check the statements of a block, whose values are out of scope after it. `finals` are used at its end."""
        before, owner = set(self.visible), self.statement
        for statement in body:
            self.statement = statement
            if isinstance(statement, Loop) and statement.kind is LoopKind.THREADS and not top:
                self.fail("A loop over threads is inside of another block")
            self.check_statement(statement)
        self.statement = owner
        for value in finals:
            self.use(value)
        self.visible = before

    def check_statement(self, statement: Any) -> None:
        match statement:
            case Constant(result, _):
                self.define(result)
            case Position():
                self.check_position(statement)
            case Load():
                self.check_load(statement)
            case Store():
                self.check_store(statement)
            case TileMatmul():
                self.check_tiles(statement)
            case GroupMatmul():
                self.check_group_matmul(statement)
            case Prefetch():
                self.check_prefetch(statement)
            case Accumulate():
                self.use(statement.value)
                self.check_count(statement.buffer, statement.index, statement.value.dtype)
            case Rank():
                self.check_rank(statement)
            case Compute():
                self.check_compute(statement)
            case ReduceLanes():
                self.check_lane_reduction(statement)
            case Shuffle():
                self.check_shuffle(statement)
            case Shift():
                self.check_shift(statement)
            case Last(result, vector):
                self.use(vector, result.dtype)
                self.check_lanes(vector)
                self.define(result)
            case If():
                self.check_branch(statement)
            case Loop():
                self.check_loop(statement)
            case _:
                assert_never(statement)

    def check_position(self, s: Position) -> None:
        self.check_index(s.index)
        if s.result.dtype not in (dtypes.int32, dtypes.int64):
            self.fail(f"A position must be int32 or int64; got {s.result.dtype}")
        self.define(s.result)

    def check_load(self, s: Load) -> None:
        self.check_access(s.buffer, s.index, s.condition, s.result.dtype)
        if (s.condition is None) != (s.otherwise is None):
            self.fail("A condition and an alternative value must come together")
        if s.otherwise is not None:
            self.use(s.otherwise, s.buffer.dtype)
        self.define(s.result)

    def check_store(self, s: Store) -> None:
        self.use(s.value)
        self.check_access(s.buffer, s.index, s.condition, s.value.dtype)
        if not s.buffer.written:
            self.fail(f"The buffer {s.buffer.name} is only read, and stored to")
        if self.runs() and self.lanes is not None and not any(self.differs(term) for term, _ in s.index.terms):
            self.fail("All lanes store to one element")

    def check_count(self, buffer: Buffer, index: Index, dtype: Any) -> None:
        """Check a statement that counts: in lanes, into integers of a local buffer."""
        self.check_access(buffer, index, None, dtype)
        if buffer not in self.kernel.local or self.lanes is None or dtypes.kind(dtype) not in "iu":
            self.fail("Counting must be in a loop over lanes, in integers of a local buffer")

    def check_rank(self, s: Rank) -> None:
        self.use(s.digit, dtypes.uint32)
        self.check_count(s.buffer, s.index, s.result.dtype)
        lanes = self.lanes
        if lanes is None or lanes.limit is not None or lanes.count % lanes.width or lanes.width % RANKED_LANES:
            self.fail("Lanes are ranked in a loop that must have whole vectors only")
        self.define(s.result)

    def check_prefetch(self, s: Prefetch) -> None:
        if s.buffer not in self.buffers or not s.buffer.written:
            self.fail(f"The buffer {s.buffer.name} is not written by the kernel")
        if self.lanes is not None:
            self.fail("A prefetch is inside of a loop over lanes")
        self.check_index(s.index)

    def check_compute(self, s: Compute) -> None:
        for operand in s.operands:
            self.use(operand)
        if result_dtype(s.op, s.operands, dict(s.params)) != s.result.dtype:
            self.fail(f"{s.op} does not return {s.result.dtype}")
        self.check_equal_widths(s.operands)
        self.define(s.result)

    def check_lane_reduction(self, s: ReduceLanes) -> None:
        self.use(s.vector, s.result.dtype)
        if self.lanes is not None:
            self.fail("A reduction of lanes is inside of a loop over lanes")
        if self.widths[s.vector] != s.width or s.width & (s.width - 1):
            self.fail(
                f"A reduction of {s.width} lanes needs a vector of that power of two; got {self.widths[s.vector]}"
            )
        if result_dtype(s.op, (s.vector, s.vector), {}) != s.result.dtype:
            self.fail(f"{s.op} does not return {s.result.dtype}")
        self.define(s.result)

    def check_shuffle(self, s: Shuffle) -> None:
        for vector in s.vectors:
            self.use(vector, s.result.dtype)
        found = {self.widths[vector] for vector in s.vectors}
        if self.lanes is not None:
            self.fail("A shuffle is inside of a loop over lanes")
        if len(s.vectors) not in (1, 2) or len(found) != 1 or 1 in found or len(s.lanes) < 2:
            self.fail("A shuffle must have one vector or two of one width")
        if any(not 0 <= lane < len(s.vectors) * max(found) for lane in s.lanes):
            self.fail("A shuffle takes lanes that its vectors do not have")
        self.define(s.result)

    def check_shift(self, s: Shift) -> None:
        self.use(s.vector, s.result.dtype)
        self.use(s.fill, s.result.dtype)
        self.check_lanes(s.vector)
        if not 0 < s.by < self.widths[s.result]:
            self.fail(f"A shift by {s.by} must be by at least 1 and less than the {self.widths[s.result]} lanes")
        self.define(s.result)

    def check_branch(self, s: If) -> None:
        self.use(s.condition, dtypes.bool_)
        if self.lanes is not None or self.widths[s.condition] != 1:
            self.fail("A branch needs one condition for all lanes")
        guarded, self.guarded = self.guarded, True
        self.block(s.body)
        self.guarded = guarded

    def check_tiles(self, s: TileMatmul) -> None:
        if self.lanes is not None:
            self.fail("Tiles must not be multiplied inside of a loop over lanes")
        if not all(count in (1, 2) for count in (s.rows, s.columns)) or s.steps < 1:
            self.fail("A tile matmul must have one or two tiles along each side, and at least one along K")
        floats = [d == dtypes.bfloat16 for d in s.dtypes]
        if any(d not in SUPPORTED for d in s.dtypes) or floats[0] != floats[1]:
            self.fail(f"There are no tiles of {s.dtypes[0]} and {s.dtypes[1]}")
        stored = [np.dtype(np.uint16) if d == dtypes.bfloat16 else d for d in s.dtypes]
        # The buffer of an operand that is not packed has the dtype of its elements.
        left = stored[0] if s.left.dtype == s.dtypes[0] else s.left.dtype
        if [left, s.right.dtype, s.out.dtype] != [*stored, dtypes.float32 if floats[0] else dtypes.int32]:
            self.fail("The buffers of a tile matmul must have the storage dtypes of its operands and sums")
        if not s.out.written:
            self.fail(f"The buffer {s.out.name} is only read, and stored to")
        for buffer, index in s.accesses():
            self.check_access(buffer, index, None, buffer.dtype)

    def check_group_matmul(self, s: GroupMatmul) -> None:
        if self.lanes is not None or self.guarded or not self.in_threads:
            self.fail("All threads of a group must multiply together, in each iteration of the loop over threads")
        dtype = s.left.buffer.dtype
        if dtype not in group_matmuls.SUPPORTED or s.right.buffer.dtype != dtype or s.out.dtype != dtypes.float32:
            self.fail(f"There are no products of {dtype} and {s.right.buffer.dtype} as {s.out.dtype}")
        if s.out not in self.kernel.local:
            self.fail(f"The sums of a group must be in local memory; {s.out.name} is not")
        if s.threads not in group_matmuls.THREADS:
            self.fail(f"The number of threads must be one of {group_matmuls.THREADS}; got {s.threads}")
        # Each warp computes half of the rows and its part of the columns, in pairs of units.
        least = 2 * group_matmuls.UNIT_ROWS, s.threads // 64 * 2 * group_matmuls.UNIT_COLUMNS
        if any(n < lowest or n & (n - 1) for n, lowest in zip((s.rows, s.columns), least, strict=True)):
            self.fail(f"Rows and columns must be powers of two, at least {least[0]} and {least[1]}")
        if s.chunk < 2 * group_matmuls.k_step(dtype) or s.chunk & (s.chunk - 1) or s.k_size < 1 or s.copies < 2:
            self.fail(
                "Chunks along K must be powers of two, of at least two steps, and there must be at least two of them"
            )
        if s.stride % 2 or s.stride < s.columns:
            self.fail("Rows of sums must be pairs, which do not overlap")
        for operand in (s.left, s.right):
            if operand.buffer.written:
                self.fail(f"The kernel writes {operand.buffer.name}, which it multiplies")
            if 1 not in (operand.stride, operand.k_stride) or min(operand.stride, operand.k_stride) < 0:
                self.fail("The elements of an operand must lie side by side along K or across it")
            if operand.limit is not None:
                self.check_index(operand.limit)
        for buffer, index in s.accesses():
            self.check_access(buffer, index, None, buffer.dtype)

    def check_loop(self, loop: Loop) -> None:
        self.check_loop_header(loop)
        before = set(self.visible)
        for carry in loop.carries:
            self.check_carry(carry)
        lanes, outside = self.lanes, self.outside
        if loop.kind is LoopKind.LANES:
            self.lanes, self.outside = loop, frozenset(before)
        self.loops[loop.variable] = loop
        self.block(loop.body, finals=[carry.final for carry in loop.carries])
        del self.loops[loop.variable]
        self.lanes, self.outside = lanes, outside
        self.visible = before
        for carry in loop.carries:
            self.define(carry.result)

    def check_loop_header(self, loop: Loop) -> None:
        if loop.step < 1 or loop.width < 1 or loop.variable in self.loops:
            self.fail("A loop needs a positive step and width, and a variable of its own")
        if loop.kind is LoopKind.LANES and self.lanes is not None:
            self.fail("A loop over lanes is inside of another one")
        if loop.kind is not LoopKind.LANES and loop.width != 1:
            self.fail("Only a loop over lanes has a width")
        if loop.kind is LoopKind.THREADS and (loop.carries or loop.limit is not None):
            self.fail("A loop over threads must have no carries and no limit")
        if loop.limit is not None:
            self.check_index(loop.limit)
            if any(self.differs(term) for term, _ in loop.limit.terms):
                self.fail("The limit of a loop must not differ between lanes")

    def check_carry(self, carry: Carry) -> None:
        self.use(carry.initial, carry.inside.dtype, initial=True)
        if self.widths[carry.initial] not in (1, self.widths[carry.inside]):
            self.fail("A carry must start with a scalar or with as many lanes as the loop has")
        if not carry.inside.dtype == carry.final.dtype == carry.result.dtype:
            self.fail("A carry must not change its dtype")
        self.define(carry.inside)

    # -- values ----------------------------------------------------------------------------------------------------

    def define(self, value: Value) -> None:
        if value in self.defined:
            self.fail("A value is defined twice")
        self.defined.add(value)
        self.visible.add(value)

    def use(self, value: Value, dtype: Any = None, initial: bool = False) -> None:
        if value not in self.visible:
            self.fail("A value is used that is not defined in this block or one around it")
        if dtype is not None and value.dtype != dtype:
            self.fail(f"A value is {value.dtype}, but {dtype} is needed")
        if value in self.outside and self.widths[value] != 1 and not initial:
            self.fail("A loop over lanes uses a vector of another one, other than to start a carry")

    def differs(self, term: Variable | Value) -> bool:
        """Return whether a term may differ between lanes; a loop over one lane counts too."""
        if isinstance(term, Variable):
            return self.loops[term].kind is LoopKind.LANES
        return self.lanes is not None and term not in self.outside

    @property
    def in_threads(self) -> bool:
        """Whether the statement is directly in the loop over threads."""
        return [loop.kind for loop in self.loops.values()] == [LoopKind.THREADS]

    def runs(self) -> bool:
        """Return whether no enclosing loop is empty."""
        return all(loop.count for loop in self.loops.values())

    def check_equal_widths(self, operands: Iterable[Value]) -> None:
        if len({self.widths[v] for v in operands} - {1}) > 1:
            self.fail("Vectors of different width must not be combined")

    def check_lanes(self, vector: Value) -> None:
        """Check a statement that moves data between lanes: the loop over lanes must have carries, because otherwise its
        tail has no vectors.

        A scalar is the same in all lanes, so it may be an operand.
        """
        if self.lanes is None or not self.lanes.carries:
            self.fail("Lanes are moved outside of a loop over lanes with carries, which they must be in")
        if self.widths[vector] not in (1, self.lanes.width):
            self.fail(f"A vector of {self.lanes.width} lanes is needed, not of {self.widths[vector]}")

    # -- memory ----------------------------------------------------------------------------------------------------

    def check_index(self, index: Index) -> None:
        for term, _ in index.terms:
            if isinstance(term, Variable):
                if term not in self.loops:
                    self.fail(f"The variable {term.name} is used outside of its loop")
                continue
            self.use(term)
            if dtypes.kind(term.dtype) not in "iu":
                self.fail(f"An index must be an integer, but depends on a value of {term.dtype}")
            if self.lanes is None and self.widths[term] != 1:
                self.fail("An index outside of loops over lanes must not depend on a vector")

    def check_access(self, buffer: Buffer, index: Index, condition: Value | None, dtype: Any) -> None:
        if buffer not in self.buffers:
            self.fail(f"The buffer {buffer.name} does not belong to the kernel")
        if buffer.dtype != dtype:
            self.fail(
                f"The value must have the dtype of its buffer: {buffer.name} has {buffer.dtype}, the value {dtype}"
            )
        self.check_index(index)
        if condition is not None:
            self.use(condition, dtypes.bool_)
            return
        if self.guarded or not all(isinstance(t, Variable) for t, _ in index.terms):
            return
        if not self.runs():
            return
        low, high = -self.most(index * -1), self.most(index, whole=buffer.padded)
        if low < 0 or high >= buffer.size:
            self.fail(f"The buffer {buffer.name} has only {buffer.size} elements, but {low} to {high} are touched")

    def most(self, index: Index, whole: bool = False) -> int:
        """Return the greatest value of an index over loop variables. With `whole` vectors, lanes excluded by a limit
        count too.
        """
        total = int(index.constant)
        for term, coefficient in index.terms:
            if not isinstance(term, Variable):
                return 1 << 62
            loop = self.loops[term]
            count = -(-loop.count // loop.width) * loop.width if whole else loop.count
            last = loop.start + (count - 1) * loop.step
            total += int(coefficient * (last if coefficient > 0 else loop.start))
        # Below a limit with other variables terms may cancel, which bounds the sum tighter than each range alone.
        for term, coefficient in index.terms:
            limit = self.loops[term].limit if isinstance(term, Variable) else None
            if whole and self.lanes is not None and term is self.lanes.variable:
                continue
            if coefficient > 0 and limit is not None:
                total = min(total, self.most(index + (limit - 1 - Index.of(term)) * coefficient, whole))
        return total


def _stores(statement: Statement) -> bool:
    match statement:
        case Store() | Accumulate() | Rank() | Matmul():
            return True
        case Loop(body=body) | If(body=body):
            return any(map(_stores, body))
    return False
