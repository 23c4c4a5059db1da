"""Loops as one kernel: its threads run through all iterations together, and wait for each other after every step.

What a launch of a kernel would be by a grid of its own is done by the threads that there are, each of which has several
iterations of the kernel's loop over threads. If one block of threads is enough they wait at its barrier, else at a
counter in memory, which all blocks increment and watch: so there are no more blocks than the GPU runs at once.

A loop over independent parts (`parts.py`) has some blocks for each part, which wait at a barrier of their cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.exchange import exchanging_loops
from weft.compiler.program.ir import Branch, Copy, Launch, Loop, Program, Step, While
from weft.compiler.program.outline import NoOutline, Operand, Outline, Row
from weft.compiler.target import llvm
from weft.compiler.target.cuda.groups import SHARED, WARP, Barrier, Group, GroupLowering, Room, group_of, room_for
from weft.compiler.target.cuda.loop_code import THREADS, LoopCode, loop_code
from weft.compiler.target.cuda.parts import parts_of
from weft.compiler.target.cuda.thread import ThreadLowering, block_of_grid, thread_of_block
from weft.compiler.target.llvm import constant, i32, i64, integer, ptr
from weft.compiler.target.loop_writer import LoopWriter
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering

# Iterations of a kernel's loop over threads for each thread, up to which one block is enough, and up to which a loop is
# one kernel at all: a grid has more threads, and so more of its memory under way.
OF_ONE_BLOCK, MOST = 8, 8
# Bytes of the local memory of a block at most.
LOCAL_BYTES = 32 << 10
# Iterations after which a loop looks for interrupts.
LOOK_EVERY = 1024
# Statements of kernels in one loop, so that compiling it does not take long.
MOST_STATEMENTS = 600


def loops_of(
    program: Program, target: Target, processors: int, is_unrolled: Callable[[Step], bool]
) -> dict[Step, LoopCode]:
    """The loops and branches of a program that are one kernel, the outermost ones that can, on a GPU that has so many
    processors. Of those that need several blocks and are unrolled otherwise, none is."""
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
    parts = parts_of(outline, program, processors) if most > THREADS else 1
    each = -(-most // (parts * THREADS))
    if parts > 1 and each <= OF_ONE_BLOCK * target.cluster_blocks:
        blocks = min(1 << (each - 1).bit_length(), target.cluster_blocks, 1 << (processors // parts).bit_length() - 1)
    else:
        parts, blocks = 1, 1 if most <= OF_ONE_BLOCK * THREADS else min(processors, -(-most // THREADS))
    return loop_code(outline, blocks, parts, exchanging_loops(outline))


def _can_do(step: Step, target: Target, processors: int) -> bool:
    """Whether the threads of one kernel can do a step in a time that is not much longer than a grid's."""
    most = MOST * THREADS * processors
    if isinstance(step, Launch):
        kernel = step.full
        return not kernel.sizes and _has_room(kernel, target) and _threads_of(kernel, target) <= most
    return not isinstance(step, Copy) or step.size <= 16 * most


def _has_room(kernel: Kernel, target: Target) -> bool:
    """Whether a block has the local memory of a kernel's groups."""
    group = group_of(kernel, target)
    if not room_for(kernel, 1):
        return True
    return group is not None and group.threads <= THREADS and room_for(kernel, THREADS // group.threads) <= LOCAL_BYTES


def _threads_of(kernel: Kernel, target: Target) -> int:
    """The threads that a kernel would be launched with."""
    group = group_of(kernel, target)
    return int(kernel.count) * (1 if group is None else group.threads)


def _threads(row: Row, outline: Outline, target: Target) -> int:
    """The most threads that a launch in a row, or in those inside of it, would have."""
    match row:
        case "launch", symbol, _, _:
            kernel = outline.kernels[symbol]
            assert isinstance(kernel, Kernel)
            return _threads_of(kernel, target)
        case "copy" | "fill", *_, size:
            return -(-size // 4)
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
    """Add the kernel of a loop to a module: its parameters are addresses, counters, the address of a counter that is
    zero when it starts, and that of a word of the host which is not zero when it is to end."""
    _Writer(module, code, target).run()


class _Writer(LoopWriter):
    """Writes one loop for the threads of some blocks."""

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
        # The index of the thread among those of its part.
        first = f.mul(f.zext(f.urem(block, constant(code.blocks, i32)), i64), constant(THREADS, i64))
        self.index = f.add(first, f.zext(self.thread, i64))
        self.stride = THREADS * code.blocks
        self.launches = 0
        if code.parts > 1 and code.blocks > 1:
            f.attributes = f'"nvvm.cluster_dim"="{code.blocks}" "nvvm.maxntid"="{THREADS}" '
        self.room = self.local_memory()
        # How often blocks have waited for each other.
        self.waits = f.alloca(i32, align=4)
        f.store(constant(0, i32), self.waits, 4)
        # Those of all loops, since it looks for interrupts every so many of them.
        self.iterations = f.alloca(i32, align=4)
        f.store(constant(0, i32), self.iterations, 4)

    def run(self) -> None:
        self.rows(self.outline.rows)
        self.f.ret()

    def launch(self, kernel: Kernel, count: int, pointers: Sequence[llvm.Value]) -> None:
        """A kernel by all threads: each of them, or each group, has every so-manieth iteration of the loop over
        threads."""
        f = self.f
        group = group_of(kernel, self.target)
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
                lowering.wait()  # the next iteration writes there again

    def own(self, count: int) -> tuple[llvm.Value, llvm.Value]:
        """The first of so many iterations or words that this part has, and where they end."""
        each = constant(count // self.code.parts, i64)
        first = self.f.mul(self.part, each)
        return first, self.f.add(first, each)

    def local_memory(self) -> llvm.Value | None:
        """Memory of a block for the local buffers of all kernels, one after the other."""
        kernels = [k for k in self.outline.kernels.values() if isinstance(k, Kernel) and room_for(k, 1)]
        if not kernels:
            return None
        groups = [group_of(kernel, self.target) for kernel in kernels]
        sizes = [room_for(k, THREADS // g.threads) for k, g in zip(kernels, groups, strict=True) if g is not None]
        return self.f.module.shared(f"{self.f.name}.local", max(sizes), SHARED)

    def barrier(self, group: Group) -> Barrier | None:
        """Where the threads of a group of several warps wait: a block has up to 16 barriers, of which the first is that
        of all its threads."""
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

    def iterated(self, iterations: Operand | int | None, body: Sequence[Row]) -> None:
        """Look for interrupts once in a while: the kernel ends if the host has set a word of its memory. Reading that
        takes about a microsecond, so one thread does; the others of its part are told."""
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
        """All threads come here before one goes on, and see what the others have written."""
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
    """The integer that so many bytes are copied by, of at most four."""
    return integer(8 * next(width for width in (4, 2, 1) if size % width == 0))
