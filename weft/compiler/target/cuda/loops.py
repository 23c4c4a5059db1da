"""Loops as one kernel: its threads run all iterations, with a barrier after every step.

Each launch in the loop body is done by the threads of the one kernel; a thread runs several iterations of the
launched kernel's loop over threads. One block synchronises at its barrier; several blocks at a counter in memory that
all increment and poll, so there are at most as many blocks as the GPU runs at once.

A loop over independent parts (`parts.py`) has a few blocks for each part, which synchronise at a cluster barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.exchange import exchanging_loops
from weft.compiler.program.ir import Branch, Copy, Launch, Loop, Program, Step, While
from weft.compiler.program.outline import NoOutline, Operand, Outline, Row
from weft.compiler.target import llvm
from weft.compiler.target.cuda.groups import (
    SHARED,
    WARP,
    Barrier,
    GroupLowering,
    Room,
    ThreadGroup,
    choose_group,
    room_for,
)
from weft.compiler.target.cuda.loop_code import THREADS, LoopCode, loop_code
from weft.compiler.target.cuda.parts import count_parts
from weft.compiler.target.cuda.thread import ThreadLowering, block_of_grid, thread_of_block
from weft.compiler.target.llvm import constant, i32, i64, integer, ptr
from weft.compiler.target.loop_writer import LoopWriter
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering

# Iterations of a kernel's loop over threads per thread up to which one block is used, and up to which a loop is one
# kernel at all: a grid has more threads, and so more loads in flight.
OF_ONE_BLOCK, MOST = 8, 8
# Most shared memory of a block in bytes.
LOCAL_BYTES = 32 << 10
# Iterations between two polls for interrupts.
LOOK_EVERY = 1024
# Most statements of kernels in one loop, which bounds compile time.
MOST_STATEMENTS = 600


def find_loops(
    program: Program, target: Target, processors: int, is_unrolled: Callable[[Step], bool]
) -> dict[Step, LoopCode]:
    """Find the outermost loops and branches of a program that can be one kernel on a GPU with `processors`
    multiprocessors. Loops that need several blocks are left out if the graph unrolls them."""
    found: dict[Step, LoopCode] = {}
    inner = list(program.steps)
    while inner:
        step = inner.pop()
        code = _code(step, program, target, processors) if isinstance(step, Loop | While | Branch) else None
        if code is not None and (not code.counts or not is_unrolled(step)):
            found[step] = code
        else:
            inner.extend(child for body in step.bodies for child in body)
    return found


def _code(step: Step, program: Program, target: Target, processors: int) -> LoopCode | None:
    try:
        outline = Outline(step, program, lambda inner: _can_do(inner, target, processors))
    except NoOutline:
        return None
    launched = [kernel for kernel in outline.kernels.values() if isinstance(kernel, Kernel)]
    if sum(_statements(kernel.body) for kernel in launched) > MOST_STATEMENTS:
        return None
    most = max(_threads(row, outline, target) for row in outline.rows)
    parts = count_parts(outline, program, processors) if most > THREADS else 1
    each = -(-most // (parts * THREADS))
    if parts > 1 and each <= OF_ONE_BLOCK * target.cluster_blocks:
        blocks = min(1 << (each - 1).bit_length(), target.cluster_blocks, 1 << (processors // parts).bit_length() - 1)
    else:
        parts, blocks = 1, 1 if most <= OF_ONE_BLOCK * THREADS else min(processors, -(-most // THREADS))
    return loop_code(outline, blocks, parts, exchanging_loops(outline))


def _can_do(step: Step, target: Target, processors: int) -> bool:
    """Return whether the threads of one kernel can do a step in a time close to that of a grid."""
    most = MOST * THREADS * processors
    if isinstance(step, Launch):
        kernel = step.full
        return not kernel.sizes and _has_room(kernel, target) and _count_kernel_threads(kernel, target) <= most
    return not isinstance(step, Copy) or step.size <= 16 * most


def _has_room(kernel: Kernel, target: Target) -> bool:
    """Return whether a block has enough shared memory for a kernel's groups."""
    group = choose_group(kernel, target)
    if not room_for(kernel, 1):
        return True
    return group is not None and group.threads <= THREADS and room_for(kernel, THREADS // group.threads) <= LOCAL_BYTES


def _count_kernel_threads(kernel: Kernel, target: Target) -> int:
    """Return the number of threads that a kernel would be launched with."""
    group = choose_group(kernel, target)
    return int(kernel.count) * (1 if group is None else group.threads)


def _threads(row: Row, outline: Outline, target: Target) -> int:
    """Return the largest number of threads of a launch in a row, or in the rows inside it."""
    match row:
        case "launch", symbol, _, _:
            kernel = outline.kernels[symbol]
            assert isinstance(kernel, Kernel)
            return _count_kernel_threads(kernel, target)
        case "copy" | "fill", *_, size:
            result: int = -(-size // 4)
            return result
        case "loop", _, _, _, body:
            return max((_threads(inner, outline, target) for inner in body), default=1)
        case "while", _, condition, _, body:
            return max(_threads(inner, outline, target) for inner in (*condition, *body))
        case "branch", _, _, branches:
            return max((_threads(inner, outline, target) for branch in branches for inner in branch), default=1)
    return 1


def _statements(body: Sequence[object]) -> int:
    return sum(1 + _statements(getattr(statement, "body", ())) for statement in body)


def lower_loop(module: llvm.Module, code: LoopCode, target: Target) -> None:
    """Add the kernel of a loop to a module. Its parameters are addresses, counters, the address of a barrier counter
    that is zero at the start, and that of a host word that is nonzero to stop the kernel."""
    _LoopLowering(module, code, target).run()


class _LoopLowering(LoopWriter):
    """Code of one loop for the threads of its blocks."""

    def __init__(self, module: llvm.Module, code: LoopCode, target: Target) -> None:
        self.code, self.target = code, target
        count = len(code.addresses)
        parameters = [llvm.Parameter(f"address{n}", ptr) for n in range(count)]
        parameters += [llvm.Parameter(f"counter{n}", i64) for n in range(len(code.counters))]
        parameters += [llvm.Parameter("arrived", ptr), llvm.Parameter("interrupt", ptr)]
        f = module.function(code.symbol, llvm.void, parameters, linkage="ptx_kernel")
        super().__init__(f, code.outline, code.exchanges)
        self.addresses, self.counters = f.arguments[:count], f.arguments[count:-2]
        self.arrived, self.interrupt = f.arguments[-2:]
        self.thread = thread_of_block(f)
        block = block_of_grid(f)
        self.part = f.zext(f.udiv(block, constant(code.blocks, i32)), i64)
        # Index of the thread in its part.
        first = f.mul(f.zext(f.urem(block, constant(code.blocks, i32)), i64), constant(THREADS, i64))
        self.index = f.add(first, f.zext(self.thread, i64))
        self.stride = THREADS * code.blocks
        self.launches = 0
        if code.parts > 1 and code.blocks > 1:
            f.attributes = f'"nvvm.cluster_dim"="{code.blocks}" "nvvm.maxntid"="{THREADS}" '
        self.room = self.local_memory()
        # Number of barriers between blocks so far.
        self.waits = f.alloca(i32, align=4)
        f.store(constant(0, i32), self.waits, 4)
        # Iterations of all loops, which decide when to poll for interrupts.
        self.iterations = f.alloca(i32, align=4)
        f.store(constant(0, i32), self.iterations, 4)

    def run(self) -> None:
        self.rows(self.outline.rows)
        self.f.ret()

    def launch(self, kernel: Kernel, count: int, pointers: Sequence[llvm.Value]) -> None:
        """Write a kernel for all threads: each thread or group runs every `stride`-th iteration of its loop over
        threads."""
        f = self.f
        group = choose_group(kernel, self.target)
        lowering: VectorLowering
        if group is None:
            first, stride = self.index, self.stride
            lowering = ThreadLowering(f, kernel, self.target)
        else:
            first, stride = f.udiv(self.index, constant(group.threads, i64)), self.stride // group.threads
            member = f.urem(self.thread, constant(group.members, i32))
            groups = THREADS // group.threads
            room = None if self.room is None else Room(self.room, groups)
            barrier, prefix = self.barrier(group), f"{self.launches}."
            lowering = GroupLowering(f, kernel, self.target, group, member, barrier, prefix, room, groups)
        self.launches += 1
        lowering.pointers = dict(zip(kernel.buffers, pointers, strict=True))
        if isinstance(lowering, GroupLowering):
            lowering.pointers |= lowering.local
        start, stop = self.own(count)
        with f.loop(f.add(start, first), stop, stride) as index, lowering.scope():
            lowering.begin, lowering.end = index, f.add(index, constant(1, i64))
            lowering.block(kernel.body)
            if isinstance(lowering, GroupLowering) and kernel.local and count > stride * self.code.parts:
                lowering.wait()  # the next iteration overwrites local buffers

    def own(self, count: int) -> tuple[llvm.Value, llvm.Value]:
        """Return the range of `count` iterations or words that belongs to this part."""
        each = constant(count // self.code.parts, i64)
        first = self.f.mul(self.part, each)
        return first, self.f.add(first, each)

    def local_memory(self) -> llvm.Value | None:
        """Reserve shared memory for the local buffers of all kernels, which reuse it one after the other."""
        kernels = [k for k in self.outline.kernels.values() if isinstance(k, Kernel) and room_for(k, 1)]
        if not kernels:
            return None
        groups = [choose_group(kernel, self.target) for kernel in kernels]
        sizes = [room_for(k, THREADS // g.threads) for k, g in zip(kernels, groups, strict=True) if g is not None]
        return self.f.module.shared_memory(f"{self.f.name}.local", max(sizes), SHARED)

    def barrier(self, group: ThreadGroup) -> Barrier | None:
        """Return the named barrier of a group of several warps. A block has 16; the first synchronises all its
        threads."""
        if group.threads <= WARP:
            return None
        index = self.f.udiv(self.thread, constant(group.threads, i32))
        return Barrier(self.f.add(index, constant(1, i32)), group.threads)

    def copy(self, target: llvm.Value, source: llvm.Value, size: int) -> None:
        f, element = self.f, _word(size)
        start, stop = self.own(size // (element.bits // 8))
        with f.loop(f.add(start, self.index), stop, self.stride) as index:
            value = f.load(element, f.offset(source, element, index), element.bits // 8)
            f.store(value, f.offset(target, element, index), element.bits // 8)

    def fill(self, target: llvm.Value, size: int) -> None:
        f, element = self.f, _word(size)
        start, stop = self.own(size // (element.bits // 8))
        with f.loop(f.add(start, self.index), stop, self.stride) as index:
            f.store(constant(0, element), f.offset(target, element, index), element.bits // 8)

    def count(self, target: llvm.Value, counter: llvm.Value) -> None:
        f = self.f
        with f.when(f.icmp("eq", self.index, constant(0, i64))):
            f.store(f.trunc(counter, i32), target, 4)

    def end_iteration(self, iterations: Operand | int | None, body: Sequence[Row]) -> None:
        """Look for interrupts every `LOOK_EVERY` iterations and leave the kernel if the host has set its word. The
        read takes about a microsecond, so one thread does it and publishes the result to its part."""
        f = self.f
        if (
            isinstance(iterations, int)
            and iterations <= LOOK_EVERY
            and not any(row[0] in ("loop", "while") for row in body)
        ):
            return
        done = f.add(f.load(i32, self.iterations, 4), constant(1, i32))
        f.store(done, self.iterations, 4)
        look, leave, go_on = f.label("look"), f.label("leave"), f.label("go_on")
        f.branch_if(f.icmp("eq", f.and_(done, constant(LOOK_EVERY - 1, i32)), constant(0, i32)), look, go_on)
        f.start(look)
        told = f.offset(f.module.variable(f"{f.name}.told", i32, self.code.parts), i32, self.part)
        with f.when(f.icmp("eq", self.index, constant(0, i64))):
            word = f.effect("ld.relaxed.sys.global.u32 $0, [$1];", "=r,l", self.interrupt, returns=i32)
            assert word is not None
            f.effect("st.relaxed.gpu.global.u32 [$0], $1;", "l,r", told, word)
        self.wait()
        stop = f.effect("ld.relaxed.gpu.global.u32 $0, [$1];", "=r,l", told, returns=i32)
        assert stop is not None
        f.branch_if(f.icmp("ne", stop, constant(0, i32)), leave, go_on)
        f.start(leave)
        f.ret()
        f.start(go_on)

    def wait(self) -> None:
        """Write a barrier of all threads of the part, after which they see each other's writes."""
        f = self.f
        if self.code.parts > 1 and self.code.blocks > 1:
            f.call("llvm.nvvm.barrier.cluster.arrive.aligned", llvm.void)
            f.call("llvm.nvvm.barrier.cluster.wait.aligned", llvm.void)
            return
        f.call("llvm.nvvm.barrier.cta.sync.aligned.all", llvm.void, constant(0, i32))
        if self.code.blocks == 1:
            return
        waits = f.add(f.load(i32, self.waits, 4), constant(1, i32))
        f.store(waits, self.waits, 4)
        with f.when(f.icmp("eq", self.thread, constant(0, i32))):
            f.effect("red.release.gpu.global.add.u32 [$0], 1;", "l", self.arrived)
            all_there = f.mul(waits, constant(self.code.blocks, i32))
            top, end = f.label("watch"), f.label("seen")
            f.branch(top)
            f.start(top)
            count = f.effect("ld.acquire.gpu.global.u32 $0, [$1];", "=r,l", self.arrived, returns=i32)
            assert count is not None
            f.branch_if(f.icmp("ult", count, all_there), top, end)
            f.start(end)
        f.call("llvm.nvvm.barrier.cta.sync.aligned.all", llvm.void, constant(0, i32))


def _word(size: int) -> llvm.Type:
    """Return the widest integer type, of at most four bytes, that divides a size."""
    return integer(8 * next(width for width in (4, 2, 1) if size % width == 0))
