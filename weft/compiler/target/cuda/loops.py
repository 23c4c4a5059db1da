"""Loops as one kernel: its threads run through all iterations together, and wait for each other after every step.

What a launch of a kernel would be by a grid of its own is done by the threads that there are, each of which has several
iterations of the kernel's loop over threads. If one block of threads is enough they wait at its barrier, else at a
counter in memory, which all blocks increment and watch: so there are no more blocks than the GPU runs at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.ir import Branch, Copy, Launch, Loop, Program, Step, While
from weft.compiler.program.outline import Address, NoOutline, Operand, Outline, Row
from weft.compiler.target import llvm
from weft.compiler.target.cuda.groups import WARP, Barrier, Group, GroupLowering, group_of
from weft.compiler.target.cuda.thread import ThreadLowering, block_of_grid, thread_of_block
from weft.compiler.target.llvm import constant, i8, i32, i64, integer, ptr
from weft.compiler.target.target import Target
from weft.compiler.target.vectors import VectorLowering

# Threads of a block: as many as the largest group of threads has.
THREADS = 256
# Iterations of a kernel's loop over threads for each thread, up to which one block is enough, and up to which a loop is
# one kernel at all: a grid has more threads, and so more of its memory under way.
OF_ONE_BLOCK, MOST = 8, 8
# Statements of kernels in one loop, so that compiling it does not take long.
MOST_STATEMENTS = 600


@dataclass(frozen=True)
class LoopCode:
    """The kernel of a loop: what it takes from outside, and the blocks of threads that it wants."""

    symbol: str
    outline: Outline
    blocks: int

    @property
    def addresses(self) -> list[Address]:
        """The memory that it takes as parameters."""
        return self.outline.addresses

    @property
    def counters(self) -> list[int]:
        """The registers of counters that it takes as parameters."""
        return self.outline.counters


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
        if code is not None and (code.blocks == 1 or not is_unrolled(step)):
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
    blocks = 1 if most <= OF_ONE_BLOCK * THREADS else min(processors, -(-most // THREADS))
    digest = hashlib.blake2b(repr((outline.rows, blocks)).encode(), digest_size=10).hexdigest()
    return LoopCode(f"loop_{digest}", outline, blocks)


def _can_do(step: Step, target: Target, processors: int) -> bool:
    """Whether the threads of one kernel can do a step in a time that is not much longer than a grid's."""
    most = MOST * THREADS * processors
    if isinstance(step, Launch):
        kernel = step.full
        return not kernel.sizes and not kernel.local and _threads_of(kernel, target) <= most
    return not isinstance(step, Copy) or step.size <= 16 * most


def _threads_of(kernel: Kernel, target: Target) -> int:
    """The threads that a kernel would be launched with."""
    group = group_of(kernel, target)
    return int(kernel.count) * (1 if group is None else group.members)


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
    """Add the kernel of a loop to a module: its parameters are addresses, counters, and the address of a counter that
    is zero when it starts."""
    _Writer(module, code, target).run()


class _Writer:
    """Writes one loop. `values` has the pointers and counters that the loop sets itself."""

    def __init__(self, module: llvm.Module, code: LoopCode, target: Target) -> None:
        self.code, self.outline, self.target = code, code.outline, target
        names = [f"address{n}" for n in range(len(code.addresses))]
        parameters = [llvm.Parameter(name, ptr) for name in names]
        parameters += [llvm.Parameter(f"counter{n}", i64) for n in range(len(code.counters))]
        parameters.append(llvm.Parameter("arrived", ptr))
        f = self.f = module.function(code.symbol, llvm.void, parameters, linkage="ptx_kernel")
        self.addresses = f.arguments[: len(names)]
        self.counters = f.arguments[len(names) : -1]
        self.arrived = f.arguments[-1]
        self.values: dict[Operand, llvm.Value] = {}
        self.thread = thread_of_block(f)
        first = f.mul(f.zext(block_of_grid(f), i64), constant(THREADS, i64))
        self.index = f.add(first, f.zext(self.thread, i64))
        self.stride = THREADS * code.blocks
        self.launches = 0
        # How often blocks have waited for each other.
        self.waits = f.alloca(i32, align=4)
        f.store(constant(0, i32), self.waits, 4)

    def run(self) -> None:
        self.rows(self.outline.rows)
        self.f.ret()

    def address(self, operand: Operand) -> llvm.Value:
        return self.addresses[operand[1]] if operand[0] == "outside" else self.values[operand]

    def counter(self, operand: Operand) -> llvm.Value:
        return self.counters[operand[1]] if operand[0] == "outside" else self.values[operand]

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.row(row)

    def row(self, row: Row) -> None:
        f = self.f
        match row:
            case "launch", symbol, _, operands:
                kernel = self.outline.kernels[symbol]
                assert isinstance(kernel, Kernel)
                self.launch(kernel, [self.address(operand) for operand in operands])
                self.wait()
            case "copy", target, source, size:
                self.copy(size, self.address(target), self.address(source))
                self.wait()
            case "fill", target, size:
                self.copy(size, self.address(target), None)
                self.wait()
            case "set_address", target, base, counter, stride:
                offset = f.mul(self.counter(counter), constant(stride, i64))
                self.values[target] = f.offset(self.address(base), i8, offset, inbounds=False)
            case "count", target, counter:
                with f.when(f.icmp("eq", self.index, constant(0, i64))):
                    f.store(f.trunc(self.counter(counter), i32), self.address(target), 4)
                self.wait()
            case "loop", counter, iterations, reverse, body:
                self.loop(counter, iterations, reverse, body)
            case "while", counter, condition, predicate, body:
                self.while_loop(counter, condition, predicate, body)
            case "branch", index, kind, branches:
                self.branch(index, kind, branches)
            case _:
                raise InternalError(f"A row of a loop is {row}.", stage="llvm")

    # -- steps -----------------------------------------------------------------------------------------------------

    def launch(self, kernel: Kernel, pointers: Sequence[llvm.Value]) -> None:
        """A kernel by all threads: each of them, or each group, has every so-manieth iteration of the loop over
        threads."""
        f = self.f
        group = group_of(kernel, self.target)
        lowering: VectorLowering
        if group is None:
            first, stride = self.index, self.stride
            lowering = ThreadLowering(f, kernel, self.target)
        else:
            first, stride = f.udiv(self.index, constant(group.members, i64)), self.stride // group.members
            member = f.urem(self.thread, constant(group.members, i32))
            lowering = GroupLowering(f, kernel, self.target, group, member, self.barrier(group), f"{self.launches}.")
        self.launches += 1
        lowering.pointers = dict(zip(kernel.buffers, pointers, strict=True))
        with f.loop(first, constant(int(kernel.count), i64), stride) as index, lowering.scope():
            lowering.begin, lowering.end = index, f.add(index, constant(1, i64))
            lowering.block(kernel.body)

    def barrier(self, group: Group) -> Barrier | None:
        """Where the threads of a group of several warps wait: a block has up to 16 barriers, of which the first is that
        of all its threads."""
        if group.members <= WARP:
            return None
        return Barrier(
            self.f.add(self.f.udiv(self.thread, constant(group.members, i32)), constant(1, i32)), group.members
        )

    def copy(self, size: int, target: llvm.Value, source: llvm.Value | None) -> None:
        """Copy bytes, or fill with zeros: by words as long as the size is a multiple of, at most four bytes."""
        f = self.f
        width = next(w for w in (4, 2, 1) if size % w == 0)
        element = integer(8 * width)
        with f.loop(self.index, constant(size // width, i64), self.stride) as index:
            value = constant(0, element)
            if source is not None:
                value = f.load(element, f.offset(source, element, index), width)
            f.store(value, f.offset(target, element, index), width)

    def wait(self) -> None:
        """All threads come here before one goes on, and see what the others have written."""
        f = self.f
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

    # -- control ---------------------------------------------------------------------------------------------------

    def loop(self, counter: Operand, iterations: Operand | int, reverse: bool, body: Sequence[Row]) -> None:
        f = self.f
        count = (
            constant(iterations, i64)
            if isinstance(iterations, int)
            else f.sext(f.load(i32, self.address(iterations), 4), i64)
        )
        with f.loop(constant(0, i64), count) as index:
            self.values[counter] = f.sub(f.sub(count, constant(1, i64)), index) if reverse else index
            self.rows(body)

    def while_loop(
        self, counter: Operand | None, condition: Sequence[Row], predicate: Operand, body: Sequence[Row]
    ) -> None:
        f = self.f
        iteration = f.alloca(i64, align=8)
        f.store(constant(0, i64), iteration, 8)
        top, inside, end = f.label("top"), f.label("inside"), f.label("end")
        f.branch(top)
        f.start(top)
        index = f.load(i64, iteration, 8)
        if counter is not None:
            self.values[counter] = index
        self.rows(condition)
        holds = f.icmp("ne", f.load(i8, self.address(predicate), 1), constant(0, i8))
        # The next condition may be written only when all threads have read this one.
        self.wait()
        f.branch_if(holds, inside, end)
        f.start(inside)
        self.rows(body)
        f.store(f.add(index, constant(1, i64)), iteration, 8)
        f.branch(top)
        f.start(end)

    def branch(self, index: Operand, kind: int, branches: Sequence[Sequence[Row]]) -> None:
        f, size = self.f, abs(kind)
        read = f.load(integer(8 * size), self.address(index), size)
        case = read if size == 8 else (f.sext if kind < 0 else f.zext)(read, i64)
        self.wait()
        labels, end = [f.label("case") for _ in branches], f.label("end")
        last = len(branches) - 1
        chosen = f.smin(f.smax(case, constant(0, i64)), constant(last, i64))
        f.switch(chosen, labels[last], dict(enumerate(labels[:last])))
        for label, rows in zip(labels, branches, strict=True):
            f.start(label)
            self.rows(rows)
            f.branch(end)
        f.start(end)
