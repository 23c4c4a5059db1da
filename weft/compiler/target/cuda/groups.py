"""Kernels whose lanes are threads: a group of threads has the lanes of a loop over lanes together, a few of them each.

A group computes one iteration of the loop over threads. What is the same in all lanes every thread computes for itself,
and what is stored outside of loops over lanes the first one stores. Lanes are combined in the order that the kernel
language says, halves onto each other: between threads by exchanges inside of a warp, and through shared memory where a
group has several. Threads wait for each other before one reads what another one may have written.

Where a group has local memory and its loops over lanes are in loops of independent iterations, it has several teams:
each of them has all lanes, and does some of the iterations.
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
from weft.compiler.target.cuda.registers import Registers, forwarded, rounds_of
from weft.compiler.target.cuda.thread import ThreadLowering, thread_of_block
from weft.compiler.target.lanes import Lane
from weft.compiler.target.llvm import constant, i1, i32, i64
from weft.compiler.target.lower import flat, unflat
from weft.compiler.target.target import Target

WARP = 32
# Lanes from which on a group of threads has them, threads of a block of small groups, and bytes that they share.
LEAST_LANES, BLOCK, SHARED_BYTES = 32, 128, 48 << 10
# Threads of the teams of a group together, and statements that do not touch memory.
TEAM_THREADS, COMPUTES = 512, (Constant, Position, Compute)
# The vectors that a thread reads at a time in a long loop, if one takes at most so many statements.
TOGETHER, MOST_TOGETHER = 4, 24
# The address space of memory that the threads of a block share, and the alignment of what is there.
SHARED, SHARED_ALIGNMENT = 3, 16


@dataclass(frozen=True)
class Group:
    """So many threads, of which each has so many lanes; `width` lanes in all. It has `local` bytes of memory. If it has
    several teams, each of them has as many threads and all lanes."""

    members: int
    lanes: int
    local: int = 0
    teams: int = 1

    @property
    def width(self) -> int:
        return self.members * self.lanes

    @property
    def threads(self) -> int:
        """Those of all teams."""
        return self.members * self.teams

    @property
    def block(self) -> int:
        """The threads of a block: one group that has several warps, or some that have none."""
        if self.threads > WARP:
            return self.threads
        return min(BLOCK, max(WARP, SHARED_BYTES // max(1, self.local) * self.threads // WARP * WARP))

    @property
    def count(self) -> int:
        """The groups of a block."""
        return self.block // self.threads


@dataclass(frozen=True)
class Barrier:
    """A barrier of a block, for some of its threads."""

    index: llvm.Value
    count: int


@dataclass(frozen=True)
class Room:
    """Memory of a block for the local buffers of so many groups."""

    address: llvm.Value
    groups: int


def room_for(kernel: Kernel, groups: int) -> int:
    """The bytes that the local buffers of so many groups take."""
    sizes = (_room(buffer, kernel) * groups for buffer in kernel.local)
    return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in sizes)


def group_of(kernel: Kernel, target: Target) -> Group | None:
    """The group of threads that has the lanes of a kernel, if lanes are to be threads."""
    widths = {s.width for s in _statements(kernel.body) if isinstance(s, ReduceLanes) or _is_over_lanes(s)}
    if len(widths) != 1 or any(isinstance(s, Shuffle | TileMatmul) for s in _statements(kernel.body)) or kernel.sizes:
        return None
    (width,) = widths
    local = sum(_room(buffer, kernel) for buffer in kernel.local)
    if _matmuls(kernel):
        return Group(
            width // target.thread_lanes, target.thread_lanes, local, _teams(kernel, width // target.thread_lanes)
        )
    if width < LEAST_LANES or (_exchanges(kernel.body) and width > WARP * target.thread_lanes):
        return None
    # Lanes that are ranked are those of a warp.
    each = 1 if any(isinstance(s, Rank) for s in _statements(kernel.body)) else target.thread_lanes
    return Group(width // each, each, local, _teams(kernel, width // each))


def bytes_at_launch(kernel: Kernel, target: Target) -> int:
    """The local memory that a kernel is launched with, where it is more than code can have by itself: for products of
    matrices. Others have no more of it than that, in registers aside."""
    group = group_of(kernel, target) if _matmuls(kernel) else None
    return 0 if group is None or group.local * group.count <= SHARED_BYTES else group.local * group.count


def _matmuls(kernel: Kernel) -> list[GroupMatmul]:
    return [s for s in _statements(kernel.body) if isinstance(s, GroupMatmul)]


def _teams(kernel: Kernel, members: int) -> int:
    """How many teams of so many threads do the iterations of loops together. Each of these loops has iterations that
    are independent, and one loop over lanes, so that nobody waits inside of it; nothing else touches memory."""
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
            raise InternalError(f"The threads of a group cannot do the loops of {kernel.name} together.")
        return count // members
    if not independent:
        return 1
    most = min(TEAM_THREADS // members, max(int(loop.count) for loop in loops))  # type: ignore[attr-defined]
    return 1 << most.bit_length() - 1 if most > 1 else 1


def _is_computed(statement: Statement, stored: set[Buffer]) -> bool:
    """Whether all threads do a statement, each for itself."""
    return isinstance(statement, COMPUTES) or (isinstance(statement, Load) and statement.buffer not in stored)


def _is_of_teams(loop: Statement, stored: set[Buffer]) -> bool:
    if not isinstance(loop, Loop) or loop.kind is not LoopKind.SERIAL or loop.carries or repeats(loop):
        return False
    lanes = [s for s in loop.body if not _is_computed(s, stored)]
    exchanged = _exchanges(lanes) or any(isinstance(s, ReduceLanes) for s in _statements(lanes))
    return len(lanes) == 1 and _is_over_lanes(lanes[0]) and not exchanged


def _room(buffer: Buffer, kernel: Kernel) -> int:
    """The bytes of a local buffer. Those of groups side by side begin in neighbouring banks of memory, of which there
    are as many words as a warp has threads: what threads of several groups touch at once is in different ones."""
    step, itemsize = 4 * WARP, buffer.dtype.itemsize
    multiplied = [group_matmuls.room(s) for s in _matmuls(kernel) if s.out is buffer]
    if multiplied:
        return -(-max(multiplied) // step) * step
    return -(-int(buffer.size) * itemsize // step) * step + max(4, itemsize)


def _is_long(loop: Loop) -> bool:
    """Whether a loop over lanes has many vectors for each thread, and computes little of what it loads."""
    reads = all(isinstance(s, (*COMPUTES, Load)) for s in loop.body) and any(isinstance(s, Load) for s in loop.body)
    return reads and len(loop.body) <= MOST_TOGETHER and loop.count >= 4 * TOGETHER * loop.width


def _exchanges(body: Iterable[Statement]) -> bool:
    """Whether lanes get what others have."""
    return any(isinstance(s, Shift | Last) for s in _statements(body))


def _is_over_lanes(statement: Statement) -> bool:
    return isinstance(statement, Loop) and statement.kind is LoopKind.LANES


def _statements(body: Iterable[Statement]) -> Iterator[Any]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If):
            yield from _statements(statement.body)


class GroupLowering(ThreadLowering):
    """Writes one thread of a group, which is its `member`, an i32. Groups of several warps are blocks, or have a
    barrier of their own; a block has `groups` of these. Names of memory that threads share begin with a prefix."""

    def __init__(
        self,
        function: llvm.Function,
        kernel: Kernel,
        target: Target,
        group: Group,
        member: llvm.Value,
        barrier: Barrier | None = None,
        prefix: str = "",
        room: Room | None = None,
        groups: int = 1,
    ) -> None:
        super().__init__(function, kernel, target)
        self.group, self.member, self.barrier, self.prefix, self.groups = group, member, barrier, prefix, groups
        self.local: dict[Buffer, llvm.Value] = {}
        # Since threads waited for each other last.
        self.read: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.registers, self.forwarded = Registers(), forwarded(kernel, group.lanes)
        # Whether the statements are those of a loop that teams do together.
        self.distributed = False
        in_memory = [b for b in kernel.local if b not in self.forwarded.local]
        if in_memory:
            count = group.count if room is None else room.groups
            first = function.udiv(thread_of_block(function), constant(group.threads, i32))
            begin = 0
            at_launch = room is None and bool(bytes_at_launch(kernel, target))
            if at_launch and len(in_memory) > 1:
                raise InternalError(f"The kernel {kernel.name} has several local buffers, and too much of them.")
            matmuls = _matmuls(kernel)
            for n, buffer in enumerate(in_memory):
                each = _room(buffer, kernel)
                size = each * count
                if at_launch:
                    memory = function.module.shared_at_launch(f"{function.name}_local", SHARED)
                elif room is None:
                    memory = self.shared(f"local{n}", size)
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
            # What is inside of serial loops and branches has its own order.
            inside = isinstance(statement, If) or (isinstance(statement, Loop) and not _is_over_lanes(statement))
            if self.is_of_teams(statement) or not (inside or self.distributed):
                self.order(statement)
            self.statement(statement)

    def is_of_teams(self, statement: Statement) -> bool:
        """Whether it is a loop whose iterations teams do together."""
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
        """Wait for the other threads if the statement touches what they may have written, or writes what they read."""
        reads, writes = self.touched((statement,))
        if reads & self.written or writes & (self.read | self.written):
            self.wait()
        self.read |= reads
        self.written |= writes

    def enter(self, loop: Loop, carried: Sequence[Lane]) -> None:
        super().enter(loop, carried)
        # What the iteration before has written, or has read and this one writes.
        if self.variable is None and loop.kind is LoopKind.SERIAL and repeats(loop):
            self.wait()

    def touched(self, body: Sequence[Statement]) -> tuple[set[Buffer], set[Buffer]]:
        """The buffers whose memory statements read, and those that they write."""
        found = [s for s, _ in accesses(body) if s not in self.forwarded.stores and s not in self.forwarded.loads]
        return {s.buffer for s in found if isinstance(s, Load | Rank)}, {
            s.buffer for s in found if isinstance(s, Store | Prefetch | Accumulate | Rank)
        } | {s.out for s in found if isinstance(s, GroupMatmul)}

    def wait(self) -> None:
        """All threads of the group come here before one goes on, and see what the others have written."""
        if self.barrier is not None:
            index, count = self.barrier.index, constant(self.barrier.count, i32)
            self.f.call("llvm.nvvm.barrier.cta.sync.aligned.count", llvm.void, index, count)
        elif self.group.threads > WARP:
            self.f.call("llvm.nvvm.barrier.cta.sync.aligned.all", llvm.void, constant(0, i32))
        else:
            self.f.call("llvm.nvvm.bar.warp.sync", llvm.void, self.mask_of_group())
        self.read, self.written = set(), set()

    def mask_of_group(self) -> llvm.Value:
        """The threads of a warp that are of this group, as bits."""
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
                self.values[result] = self.reduced(op, self.broadcast(self.values[vector], self.group.lanes))
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
                # What is computed there may not be.
                unrolled, self.registers.loop = self.registers.loop, None
                self.registers.forget()
                super().statement(statement)
                self.registers.forget()
                self.registers.loop = unrolled
            case _:
                super().statement(statement)

    def accumulate(self, buffer: Buffer, index: Index, value: Value) -> None:
        """Add to an element that other threads add to as well, lane after lane."""
        f = self.f
        (added,) = self.lanes(self.width).stored(self.broadcast(self.values[value], self.width))
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
        """How often the digit of this thread was counted before, by earlier vectors and by threads before it in the
        warp. Bit by bit the threads of the warp tell each other their digits; the first of those with the same digit
        counts for all. (Masks in shared memory, set by atomic operations, take longer.)"""
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
        return self.lanes(1).loaded([result], statement.buffer.dtype)

    def wait_in_warp(self) -> None:
        """The threads of a warp come here before one goes on."""
        self.f.call("llvm.nvvm.bar.warp.sync", llvm.void, constant(-1, i32))

    def load(self, buffer: Buffer, index: Index, condition: Value | None, otherwise: Value | None) -> Lane:
        found = self.registers.find(buffer, index)
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
        """The lanes of this thread: whole vectors, a group's lanes apart, and then perhaps one that is not whole."""
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
        elif rounds_of(loop, each):
            for n in range(rounds_of(loop, each)):
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
        """All threads have as many vectors, since they exchange lanes; the last one is masked."""
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
        """Vectors of this thread without masks; of long loops that only read, some at a time, so that a thread does not
        wait for each of them."""
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

    def reduced(self, op: str, lane: Lane) -> Lane:
        """All lanes of the group combined, in every thread."""
        members = self.group.members
        if members > WARP:
            found = self.of_warps(lane)
            while len(found) > 1:
                half = len(found) // 2
                found = [self.compute(op, [a, b], {}) for a, b in zip(found[:half], found[half:], strict=True)]
            (lane,) = found
        apart = min(members, WARP) // 2
        while apart:
            lane = self.compute(op, [lane, self.exchanged(lane, "down", apart)], {})
            apart //= 2
        return self.exchanged(self.reduce_lanes(op, lane, self.group.lanes), "idx", 0)

    def of_warps(self, lane: Lane) -> list[Lane]:
        """The lanes that the thread of this index has in each warp of the group."""
        f, members = self.f, self.group.members
        own = f.mul(f.udiv(thread_of_block(f), constant(members, i32)), constant(members, i32))
        self.wait()  # until what was there before has been read
        columns: list[list[llvm.Value]] = []
        for n, part in enumerate(lane.parts):
            element = f.zext(part, llvm.vector(llvm.i8, part.type.count)) if part.type.element is i1 else part
            size = element.type.element.bits // 8 * element.type.count
            room = self.shared(f"{n}", size * members * self.groups)
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

    def shared(self, name: str, size: int) -> llvm.Value:
        """Memory that the threads of a block share."""
        return self.f.module.shared(f"{self.f.name}.{self.prefix}{name}", size, SHARED)

    def shift(self, lane: Lane, by: int, fill: Lane) -> Lane:
        """Lanes of the group shifted up; the first ones are those of `fill`."""
        each = self.group.lanes
        parts = zip(self.broadcast(lane, each).parts, self.broadcast(fill, each).parts, strict=True)
        return lane.with_parts([self.shifted(part, by, first) for part, first in parts])

    def shifted(self, part: llvm.Value, by: int, fill: llvm.Value) -> llvm.Value:
        """Each lane is one of this thread, or of one before it, if there is such a thread in the group."""
        f, result = self.f, part
        for n in range(self.group.lanes):
            before, index = divmod(n - by, self.group.lanes)
            element = f.extract(part, index)
            if before:
                is_first = f.icmp("ult", self.member, constant(-before, i32))
                element = f.select(is_first, f.extract(fill, n), self.exchanged_part(element, "up", -before))
            result = f.insert(result, element, n)
        return result

    def last(self, lane: Lane) -> Lane:
        """The last lane of the group, in all threads."""
        if lane.width == 1:
            return lane
        ends = [self.f.extract(part, self.group.lanes - 1) for part in lane.parts]
        return lane.with_parts([self.exchanged_part(end, "idx", self.group.members - 1) for end in ends])

    def exchanged(self, lane: Lane, kind: str, by: int) -> Lane:
        """The lane of another thread of the warp: the one so many after this, or that of an index."""
        return lane.with_parts([self.exchanged_part(part, kind, by) for part in lane.parts])

    def exchanged_part(self, part: llvm.Value, kind: str, by: int) -> llvm.Value:
        f, type = self.f, part.type
        if type.is_vector:
            elements = [self.exchanged_part(f.extract(part, n), kind, by) for n in range(type.count)]
            result = llvm.zero(type)
            for n, element in enumerate(elements):
                result = f.insert(result, element, n)
            return result
        bits = part if type.kind == "int" else f.bitcast(part, llvm.integer(type.bits))
        if type.bits < 32:
            received = f.trunc(self.exchanged_word(f.zext(bits, i32), kind, by), bits.type)
        elif type.bits == 32:
            received = self.exchanged_word(bits, kind, by)
        else:
            low = self.exchanged_word(f.trunc(bits, i32), kind, by)
            high = self.exchanged_word(f.trunc(f.lshr(bits, constant(32, i64)), i32), kind, by)
            received = f.or_(f.zext(low, i64), f.shl(f.zext(high, i64), constant(32, i64)))
        return received if type.kind == "int" else f.bitcast(received, type)

    def exchanged_word(self, word: llvm.Value, kind: str, by: int) -> llvm.Value:
        """A word of another thread of the group, which is a segment of the warp."""
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
