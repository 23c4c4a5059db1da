"""Kernels whose lanes are threads: a group of threads shares the lanes of a loop over lanes, a few lanes per thread.

A group computes one iteration of the loop over threads. Values that are the same in all lanes are computed by every
thread; stores outside of loops over lanes are done by the first thread. Lanes are reduced in the order that the kernel
language defines, halves onto each other: by shuffles within a warp, through shared memory between the warps of a group.
A barrier stands before each access to memory that another thread may have written.

A group with local memory whose loops over lanes are in loops of independent iterations has several teams: each team has
all lanes and runs some of the iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.compiler.kernel.grid import accesses, repeats
from weft.compiler.kernel.ir import (
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
)
from weft.compiler.target import llvm
from weft.compiler.target.cuda import group_matmuls
from weft.compiler.target.cuda.registers import Registers, count_rounds, find_forwarded
from weft.compiler.target.cuda.thread import ThreadLowering, thread_of_block
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import constant, i1, i32, i64
from weft.compiler.target.lower import flat, unflat
from weft.compiler.target.target import Target

WARP = 32
# Lanes from which a group of threads shares them, threads in a block of small groups, static shared memory of a block.
LEAST_LANES, BLOCK, SHARED_BYTES = 32, 128, 48 << 10
# Threads in all teams of a group, and statements that do not access memory.
TEAM_THREADS, COMPUTES = 512, (Constant, Position, Compute)
# Vectors that a thread loads at a time in a long loop, and statements per vector up to which it does.
TOGETHER, MOST_TOGETHER = 4, 24
# Address space of shared memory, and the alignment of buffers in it.
SHARED, SHARED_ALIGNMENT = 3, 16


@dataclass(frozen=True)
class ThreadGroup:
    """Shape of a group of threads: `members` threads with `lanes` lanes each, and `local` bytes of local memory.
    Each of its `teams` has `members` threads and all lanes."""

    members: int
    lanes: int
    local: int = 0
    teams: int = 1

    @property
    def width(self) -> int:
        return self.members * self.lanes

    @property
    def threads(self) -> int:
        """Threads of all teams."""
        return self.members * self.teams

    @property
    def block(self) -> int:
        """Threads of a block: one group of several warps, or as many smaller groups as fit."""
        if self.threads > WARP:
            return self.threads
        return min(BLOCK, max(WARP, SHARED_BYTES // max(1, self.local) * self.threads // WARP * WARP))

    @property
    def count(self) -> int:
        """Groups in a block."""
        return self.block // self.threads


@dataclass(frozen=True)
class Barrier:
    """Named barrier of a block for a subset of its threads."""

    index: llvm.Value
    count: int


@dataclass(frozen=True)
class Room:
    """Shared memory for the local buffers of several groups."""

    address: llvm.Value
    groups: int


def room_for(kernel: Kernel, groups: int) -> int:
    """Return the bytes of shared memory for the local buffers of `groups` groups."""
    sizes = (_room(buffer, kernel) * groups for buffer in kernel.local)
    return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in sizes)


def choose_group(kernel: Kernel, target: Target) -> ThreadGroup | None:
    """Return the group of threads that runs the lanes of a kernel, or None if each lane loop belongs to one thread."""
    widths = {s.width for s in _statements(kernel.body) if isinstance(s, ReduceLanes) or _is_over_lanes(s)}
    if len(widths) != 1 or any(isinstance(s, Shuffle | TileMatmul) for s in _statements(kernel.body)) or kernel.sizes:
        return None
    (width,) = widths
    local = sum(_room(buffer, kernel) for buffer in kernel.local)
    if _matmuls(kernel):
        return ThreadGroup(
            width // target.thread_lanes, target.thread_lanes, local, _teams(kernel, width // target.thread_lanes)
        )
    if width < LEAST_LANES or (_exchanges(kernel.body) and width > WARP * target.thread_lanes):
        return None
    # Rank needs one lane per thread of a warp.
    each = 1 if any(isinstance(s, Rank) for s in _statements(kernel.body)) else target.thread_lanes
    return ThreadGroup(width // each, each, local, _teams(kernel, width // each))


def bytes_at_launch(kernel: Kernel, target: Target) -> int:
    """Return the bytes of dynamic shared memory of a kernel: nonzero only for matrix products that exceed the static
    limit."""
    group = choose_group(kernel, target) if _matmuls(kernel) else None
    return 0 if group is None or group.local * group.count <= SHARED_BYTES else group.local * group.count


def _matmuls(kernel: Kernel) -> list[GroupMatmul]:
    return [s for s in _statements(kernel.body) if isinstance(s, GroupMatmul)]


def _teams(kernel: Kernel, members: int) -> int:
    """Return the number of teams of `members` threads that share the iterations of loops. Each of these loops must
    have independent iterations and contain one loop over lanes, so that no barrier is inside; nothing else may
    access memory."""
    threads = kernel.parallel
    if not kernel.local or threads is None:
        return 1
    stored = {s.buffer for s in _statements(threads.body) if isinstance(s, Store)}
    loops = [s for s in threads.body if not isinstance(s, GroupMatmul) and not _is_computed(s, stored)]
    independent = bool(loops) and all(_is_of_teams(loop, stored) for loop in loops)
    multiplied = _matmuls(kernel)
    if multiplied:
        (count,) = {s.threads for s in multiplied}
        if not independent or count % members:
            raise InternalError(
                f"For teams to share them, loops of {kernel.name} must have independent iterations, and its {count} "
                f"threads must be a multiple of {members}."
            )
        return count // members
    if not independent:
        return 1
    most = min(TEAM_THREADS // members, max(int(loop.count) for loop in loops))  # type: ignore[attr-defined]
    return 1 << most.bit_length() - 1 if most > 1 else 1


def _is_computed(statement: Statement, stored: set[Buffer]) -> bool:
    """Return whether every thread executes a statement on its own."""
    return isinstance(statement, COMPUTES) or (isinstance(statement, Load) and statement.buffer not in stored)


def _is_of_teams(loop: Statement, stored: set[Buffer]) -> bool:
    """Return whether teams can share the iterations of a loop."""
    if not isinstance(loop, Loop) or loop.kind is not LoopKind.SERIAL or loop.carries or repeats(loop):
        return False
    lanes = [s for s in loop.body if not _is_computed(s, stored)]
    exchanged = _exchanges(lanes) or any(isinstance(s, ReduceLanes) for s in _statements(lanes))
    return len(lanes) == 1 and _is_over_lanes(lanes[0]) and not exchanged


def _room(buffer: Buffer, kernel: Kernel) -> int:
    """Return the bytes of a local buffer. Adjacent groups start in adjacent banks of shared memory (as many as a
    warp has threads), so that threads of several groups access different banks."""
    step, itemsize = 4 * WARP, buffer.dtype.itemsize
    multiplied = [group_matmuls.room(s) for s in _matmuls(kernel) if s.out is buffer]
    if multiplied:
        return -(-max(multiplied) // step) * step
    result: int = -(-int(buffer.size) * itemsize // step) * step + max(4, itemsize)
    return result


def _is_long(loop: Loop) -> bool:
    """Return whether a loop over lanes has many vectors per thread and computes little per load."""
    reads = all(isinstance(s, (*COMPUTES, Load)) for s in loop.body) and any(isinstance(s, Load) for s in loop.body)
    return reads and len(loop.body) <= MOST_TOGETHER and loop.count >= 4 * TOGETHER * loop.width


def _exchanges(body: Iterable[Statement]) -> bool:
    """Return whether lanes read values of other lanes."""
    return any(isinstance(s, Shift | Last) for s in _statements(body))


def _is_over_lanes(statement: Statement) -> bool:
    return isinstance(statement, Loop) and statement.kind is LoopKind.LANES


def _statements(body: Iterable[Statement]) -> Iterator[Any]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If):
            yield from _statements(statement.body)


class GroupLowering(ThreadLowering):
    """Lowering of a kernel to one thread of a group; `member`, an i32, is its index. Groups of several warps are
    blocks or have a named barrier; a block has `groups` of them. Names of shared memory begin with `prefix`."""

    def __init__(
        self,
        function: llvm.Function,
        kernel: Kernel,
        target: Target,
        group: ThreadGroup,
        member: llvm.Value,
        barrier: Barrier | None = None,
        prefix: str = "",
        room: Room | None = None,
        groups: int = 1,
    ) -> None:
        super().__init__(function, kernel, target)
        self.group, self.member, self.barrier, self.prefix, self.groups = group, member, barrier, prefix, groups
        self.local: dict[Buffer, llvm.Value] = {}
        # Buffers accessed since the last barrier.
        self.read: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.registers, self.forwarded = Registers(), find_forwarded(kernel, group.lanes)
        # Whether the current statements are inside a loop whose iterations the teams share.
        self.distributed = False
        in_memory = [b for b in kernel.local if b not in self.forwarded.local]
        if in_memory:
            count = group.count if room is None else room.groups
            first = function.udiv(thread_of_block(function), constant(group.threads, i32))
            begin = 0
            at_launch = room is None and bool(bytes_at_launch(kernel, target))
            if at_launch and len(in_memory) > 1:
                raise InternalError(
                    f"{kernel.name} must have one local buffer, since it exceeds {SHARED_BYTES} bytes of local memory; "
                    f"it has {len(in_memory)}."
                )
            matmuls = _matmuls(kernel)
            for n, buffer in enumerate(in_memory):
                each = _room(buffer, kernel)
                size = each * count
                if at_launch:
                    memory = function.module.launch_memory(f"{function.name}_local", SHARED)
                elif room is None:
                    memory = self.shared_memory(f"local{n}", size)
                else:
                    memory = function.offset(room.address, llvm.i8, constant(begin, i32))
                    begin += -(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
                self.local[buffer] = function.offset(memory, llvm.i8, function.mul(first, constant(each, i32)))
                whole = count == 1 or any(s.out is buffer for s in matmuls)
                self.alignments[buffer] = SHARED_ALIGNMENT if whole else buffer.dtype.itemsize

    # -- order -----------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[Statement]) -> None:
        if self.variable is not None:
            super().block(body)
            return
        for statement in body:
            # Statements inside serial loops and branches are ordered one by one.
            inside = isinstance(statement, If) or (isinstance(statement, Loop) and not _is_over_lanes(statement))
            if self.is_of_teams(statement) or not (inside or self.distributed):
                self.order(statement)
            self.statement(statement)

    def is_of_teams(self, statement: Statement) -> bool:
        """Return whether a statement is a loop whose iterations the teams share."""
        inside = self.distributed or self.variable is not None
        return self.group.teams > 1 and not inside and isinstance(statement, Loop) and statement.kind is LoopKind.SERIAL

    def loop(self, loop: Loop) -> None:
        if not self.is_of_teams(loop):
            super().loop(loop)
            return
        f, teams = self.f, self.group.teams
        self.distributed = True
        thread = f.urem(thread_of_block(f), constant(self.group.threads, i32))
        team = f.udiv(thread, constant(self.group.members, i32))
        start = f.add(self.integer(loop.start), f.mul(f.zext(team, i64), constant(loop.step, i64)))
        if loop.count == teams and loop.limit is None:
            self.variables[loop.variable] = start
            with self.scope():
                self.block(loop.body)
        else:
            with f.loop(start, self.stop(loop), loop.step * teams) as index, self.scope():
                self.variables[loop.variable] = index
                self.block(loop.body)
        self.distributed = False

    def order(self, statement: Statement) -> None:
        """Write a barrier if the statement reads what other threads may have written, or writes what they may read."""
        reads, writes = self.accessed_buffers((statement,))
        if reads & self.written or writes & (self.read | self.written):
            self.wait()
        self.read |= reads
        self.written |= writes

    def enter(self, loop: Loop, carried: Sequence[Lane]) -> None:
        super().enter(loop, carried)
        # The previous iteration may have written what this one reads, or read what it writes.
        if self.variable is None and loop.kind is LoopKind.SERIAL and repeats(loop):
            self.wait()

    def accessed_buffers(self, body: Sequence[Statement]) -> tuple[set[Buffer], set[Buffer]]:
        """Return the buffers whose memory statements read, and those that they write."""
        found = [s for s, _ in accesses(body) if s not in self.forwarded.stores and s not in self.forwarded.loads]
        return {s.buffer for s in found if isinstance(s, Load | Rank)}, {
            s.buffer for s in found if isinstance(s, Store | Prefetch | Accumulate | Rank)
        } | {s.out for s in found if isinstance(s, GroupMatmul)}

    def wait(self) -> None:
        """Write a barrier of the group, after which its threads see each other's writes."""
        if self.barrier is not None:
            index, count = self.barrier.index, constant(self.barrier.count, i32)
            self.f.call("llvm.nvvm.barrier.cta.sync.aligned.count", llvm.void, index, count)
        elif self.group.threads > WARP:
            self.f.call("llvm.nvvm.barrier.cta.sync.aligned.all", llvm.void, constant(0, i32))
        else:
            self.f.call("llvm.nvvm.bar.warp.sync", llvm.void, self.mask_of_group())
        self.read, self.written = set(), set()

    def mask_of_group(self) -> llvm.Value:
        """Return the bit mask of the threads of the warp that belong to this group."""
        members = self.group.members
        if members >= WARP:
            return constant(-1, i32)
        lane = self.f.call("llvm.nvvm.read.ptx.sreg.laneid", i32)
        assert lane is not None
        first = self.f.and_(lane, constant(WARP - members, i32))
        return self.f.shl(constant((1 << members) - 1, i32), first)

    # -- statements ------------------------------------------------------------------------------------------------

    def statement(self, statement: Any) -> None:
        match statement:
            case ReduceLanes(result, op, vector):
                self.values[result] = self.reduce(op, self.broadcast(self.values[vector], self.group.lanes))
            case Accumulate(buffer, index, value):
                self.registers.forget(buffer)
                self.accumulate(buffer, index, value)
            case Rank(result):
                self.registers.forget(statement.buffer)
                self.values[result] = self.rank(statement)
            case GroupMatmul():
                group_matmuls.write(self, statement)
                self.written.add(statement.out)
            case Store(buffer, index, value) if statement in self.forwarded.stores:
                self.registers.put(buffer, index, self.broadcast(self.values[value], self.width))
            case If() | Loop() if not _is_over_lanes(statement):
                # Values computed inside may not be computed on all paths.
                unrolled, self.registers.loop = self.registers.loop, None
                self.registers.forget()
                super().statement(statement)
                self.registers.forget()
                self.registers.loop = unrolled
            case _:
                super().statement(statement)

    def accumulate(self, buffer: Buffer, index: Index, value: Value) -> None:
        """Add to elements that other threads add to as well, by an atomic addition per lane."""
        f = self.f
        (added,) = self.lanes(self.width).to_storage(self.broadcast(self.values[value], self.width))
        memory, access = self.access(buffer, index, safe=True)
        for n in range(self.width):
            offset = None if access.offsets is None else f.extract(access.offsets, n)
            if access.stride:
                apart = constant(n * access.stride, i64)
                offset = apart if offset is None else f.add(offset, apart)
            address = access.base if offset is None else memory.address(access.base, offset)
            one = f.extract(added, n) if self.width > 1 else added
            if self.mask is None:
                f.atomic_update("add", address, one, "monotonic")
                continue
            with f.when(f.extract(self.mask, n)), self.scope():
                f.atomic_update("add", address, one, "monotonic")

    def rank(self, statement: Rank) -> Lane:
        """Count how often earlier vectors, and earlier threads of the warp, had the digit of this thread. Threads
        exchange their digits by one ballot per bit; the first thread with a digit adds the count for all. Masks in
        shared memory, set by atomics, are slower."""
        f = self.f
        digit = self.values[statement.digit].parts[0]
        same = constant(-1, i32)
        for n in range(statement.bits):
            bit = f.trunc(f.lshr(digit, constant(n, i32)), i1)
            votes = f.call("llvm.nvvm.vote.ballot.sync", i32, constant(-1, i32), bit)
            assert votes is not None
            differ = f.xor(votes, f.sext(bit, i32))
            same = f.and_(same, f.xor(differ, constant(-1, i32)))
        earlier = f.call("llvm.nvvm.read.ptx.sreg.lanemask.lt", i32)
        assert earlier is not None
        before, count = f.ctpop(f.and_(same, earlier)), f.ctpop(same)
        memory, access = self.access(statement.buffer, statement.index + statement.digit, safe=False)
        (held,) = memory.load_one(access.base)
        self.wait_in_warp()
        with f.when(f.icmp("eq", before, constant(0, i32))):
            memory.store_one([f.add(held, f.zext(count, held.type) if held.type.bits > 32 else count)], access.base)
        self.wait_in_warp()
        result = f.add(held, f.zext(before, held.type) if held.type.bits > 32 else before)
        return self.lanes(1).from_storage([result], statement.buffer.dtype)

    def wait_in_warp(self) -> None:
        """Write a barrier of the warp."""
        self.f.call("llvm.nvvm.bar.warp.sync", llvm.void, constant(-1, i32))

    def load(self, buffer: Buffer, index: Index, condition: Value | None, otherwise: Value | None) -> Lane:
        found: Lane | None = self.registers.find(buffer, index)
        if found is None or condition is not None:
            found = super().load(buffer, index, condition, otherwise)
            if condition is None:
                self.registers.put(buffer, index, found)
        return found

    def store(self, buffer: Buffer, index: Index, value: Value, condition: Value | None) -> None:
        if self.variable is not None:
            super().store(buffer, index, value, condition)
            stored = self.values[value]
            exact = condition is None and stored.dtype == buffer.dtype
            self.registers.forget(buffer, but=index if exact else None)
            if exact:
                self.registers.put(buffer, index, self.broadcast(stored, self.width))
            return
        self.registers.forget(buffer)
        with self.f.when(self.f.icmp("eq", self.member, constant(0, i32))), self.scope():
            super().store(buffer, index, value, condition)

    def initial(self, carry: Carry) -> Lane:
        width = self.widths[carry.inside] if self.variable is None else self.width
        return self.broadcast(self.values[carry.initial], self.group.lanes if width == self.group.width else width)

    def loop_over_lanes(self, loop: Loop) -> None:
        """Write the vectors of this thread: whole ones, `group.width` lanes apart, then a masked one if the loop
        does not divide."""
        f, each = self.f, self.group.lanes
        before = self.variable, self.step, self.width, self.mask
        carried = [self.broadcast(self.values[c.initial], each) for c in loop.carries]
        stop = self.stop(loop)
        own = f.mul(f.zext(self.member, i64), constant(each * loop.step, i64))
        at = f.add(self.integer(loop.start), own)
        self.variable, self.step, self.width, self.mask = loop.variable, loop.step, each, None
        self.first = loop.start
        span = loop.width * loop.step
        if _exchanges(loop.body):
            carried = self.together_over_lanes(loop, at, own, stop, span, carried)
        elif count_rounds(loop, each):
            for n in range(count_rounds(loop, each)):
                self.registers.loop, self.registers.round = loop, n
                carried = self.vector(loop, f.add(at, constant(n * span, i64)), None, carried)
            self.registers.loop = None
        elif loop.limit is None and loop.count % loop.width == 0:
            rounds = int(loop.count) // loop.width
            carried = self.whole(loop, at, f.add(at, constant(rounds * span, i64)), span, carried)
        else:
            last = f.sub(stop, constant((each - 1) * loop.step, i64))
            carried = self.whole(loop, at, last, span, carried)
            left = f.add(f.smax(f.sub(last, at), constant(0, i64)), constant(span - 1, i64))
            edge = f.add(at, f.sub(left, f.urem(left, constant(span, i64))))
            with f.when(f.icmp("slt", edge, stop), *flat(carried)) as region, self.scope():
                mask = self.lanes_below(replace(loop, width=each), edge, stop)
                region.give(*flat(self.vector(loop, edge, mask, carried)))
            carried = unflat(carried, region.results)
        self.variable, self.step, self.width, self.mask = before
        self.leave(loop, carried)

    def together_over_lanes(
        self, loop: Loop, at: llvm.Value, own: llvm.Value, stop: llvm.Value, span: int, carried: list[Lane]
    ) -> list[Lane]:
        """Write a loop whose lanes exchange values: all threads run the same number of vectors, the last one masked."""
        f = self.f
        left = f.smax(f.sub(stop, self.integer(loop.start)), constant(0, i64))
        edge = f.sub(left, f.urem(left, constant(span, i64)))
        carried = self.whole(loop, at, f.add(at, edge), span, carried)
        if loop.limit is None and loop.count % loop.width == 0:
            return carried
        with f.when(f.icmp("slt", edge, left), *flat(carried)) as region, self.scope():
            last = f.add(self.integer(loop.start), f.add(edge, own))
            mask = self.lanes_below(replace(loop, width=self.group.lanes), last, stop)
            region.give(*flat(self.vector(loop, last, mask, carried)))
        return unflat(carried, region.results)

    def whole(self, loop: Loop, start: llvm.Value, stop: llvm.Value, span: int, carried: list[Lane]) -> list[Lane]:
        """Write the vectors of this thread that need no mask. Long loops that only read load several at a time,
        which hides latency."""
        f = self.f
        if _is_long(loop):
            left = f.add(f.smax(f.sub(stop, start), constant(0, i64)), constant(span - 1, i64))
            several = f.udiv(left, constant(TOGETHER * span, i64))
            middle = f.add(start, f.mul(several, constant(TOGETHER * span, i64)))
            with f.loop(start, middle, TOGETHER * span, carried=flat(carried)) as index, self.scope():
                inside = unflat(carried, index.values)
                for n in range(TOGETHER):
                    inside = self.vector(loop, f.add(index, constant(n * span, i64)), None, inside)
                index.give(*flat(inside))
            start, carried = middle, unflat(carried, index.results)
        with f.loop(start, stop, span, carried=flat(carried)) as index, self.scope():
            index.give(*flat(self.vector(loop, index, None, unflat(carried, index.values))))
        return unflat(carried, index.results)

    # -- between threads -------------------------------------------------------------------------------------------

    def reduce(self, op: str, lane: Lane) -> Lane:
        """Reduce the lanes of the group and return the result in every thread."""
        members = self.group.members
        if members > WARP:
            found = self.of_warps(lane)
            while len(found) > 1:
                half = len(found) // 2
                found = [self.compute(op, [a, b], {}) for a, b in zip(found[:half], found[half:], strict=True)]
            (lane,) = found
        apart = min(members, WARP) // 2
        while apart:
            lane = self.compute(op, [lane, self.exchange(lane, "down", apart)], {})
            apart //= 2
        return self.exchange(self.reduce_lanes(op, lane, self.group.lanes), "idx", 0)

    def of_warps(self, lane: Lane) -> list[Lane]:
        """Return the lanes that the thread with the same index has in each warp of the group, through shared memory."""
        f, members = self.f, self.group.members
        own = f.mul(f.udiv(thread_of_block(f), constant(members, i32)), constant(members, i32))
        self.wait()  # until the previous contents have been read
        columns: list[list[llvm.Value]] = []
        for n, part in enumerate(lane.parts):
            element = f.zext(part, llvm.vector(llvm.i8, part.type.count)) if part.type.element is i1 else part
            size = element.type.element.bits // 8 * element.type.count
            room = self.shared_memory(f"{n}", size * members * self.groups)
            f.store(element, f.offset(room, element.type, f.add(own, self.member)), min(16, size))
            columns.append([room, element])
        self.wait()
        index = f.add(own, f.and_(self.member, constant(WARP - 1, i32)))
        found = []
        for warp in range(members // WARP):
            parts = []
            for (room, element), part in zip(columns, lane.parts, strict=True):
                size = element.type.element.bits // 8 * element.type.count
                address = f.offset(room, element.type, f.add(index, constant(warp * WARP, i32)))
                value = f.load(element.type, address, min(16, size))
                parts.append(f.trunc(value, part.type) if part.type.element is i1 else value)
            found.append(lane.with_parts(parts))
        return found

    def shared_memory(self, name: str, size: int) -> llvm.Value:
        """Return memory that the threads of a block share."""
        return self.f.module.shared_memory(f"{self.f.name}.{self.prefix}{name}", size, SHARED)

    def shift(self, lane: Lane, by: int, fill: Lane) -> Lane:
        """Shift the lanes of the group up by `by`; the first ones come from `fill`."""
        each = self.group.lanes
        parts = zip(self.broadcast(lane, each).parts, self.broadcast(fill, each).parts, strict=True)
        return lane.with_parts([self.shift_part(part, by, first) for part, first in parts])

    def shift_part(self, part: llvm.Value, by: int, fill: llvm.Value) -> llvm.Value:
        """Shift one part of a lane. Each element comes from this thread or an earlier one, or from `fill` in the
        first threads."""
        f, result = self.f, part
        for n in range(self.group.lanes):
            before, index = divmod(n - by, self.group.lanes)
            element = f.extract(part, index)
            if before:
                is_first = f.icmp("ult", self.member, constant(-before, i32))
                element = f.select(is_first, f.extract(fill, n), self.exchange_part(element, "up", -before))
            result = f.insert(result, element, n)
        return result

    def last(self, lane: Lane) -> Lane:
        """Return the last lane of the group in all threads."""
        if lane.width == 1:
            return lane
        ends = [self.f.extract(part, self.group.lanes - 1) for part in lane.parts]
        return lane.with_parts([self.exchange_part(end, "idx", self.group.members - 1) for end in ends])

    def exchange(self, lane: Lane, kind: str, by: int) -> Lane:
        """Return the lane of another thread of the warp by a shuffle of a kind: `down`, `up` or `idx`."""
        return lane.with_parts([self.exchange_part(part, kind, by) for part in lane.parts])

    def exchange_part(self, part: llvm.Value, kind: str, by: int) -> llvm.Value:
        """Shuffle one part of a lane, word by word."""
        f, type = self.f, part.type
        if type.is_vector:
            elements = [self.exchange_part(f.extract(part, n), kind, by) for n in range(type.count)]
            result = llvm.zero(type)
            for n, element in enumerate(elements):
                result = f.insert(result, element, n)
            return result
        bits = part if type.kind == "int" else f.bitcast(part, llvm.integer(type.bits))
        if type.bits < 32:
            received = f.trunc(self.exchange_word(f.zext(bits, i32), kind, by), bits.type)
        elif type.bits == 32:
            received = self.exchange_word(bits, kind, by)
        else:
            low = self.exchange_word(f.trunc(bits, i32), kind, by)
            high = self.exchange_word(f.trunc(f.lshr(bits, constant(32, i64)), i32), kind, by)
            received = f.or_(f.zext(low, i64), f.shl(f.zext(high, i64), constant(32, i64)))
        return received if type.kind == "int" else f.bitcast(received, type)

    def exchange_word(self, word: llvm.Value, kind: str, by: int) -> llvm.Value:
        """Shuffle a 32-bit word within the group, which is a segment of the warp."""
        bound = 0 if kind == "up" else WARP - 1
        segment = (WARP - min(self.group.members, WARP)) << 8 | bound
        found = self.f.call(
            f"llvm.nvvm.shfl.sync.{kind}.i32",
            i32,
            self.mask_of_group(),
            word,
            constant(by, i32),
            constant(segment, i32),
        )
        assert found is not None
        return found
