"""LLVM text of a small loop as one function, from the rows of its outline: `i64 name(table, parameters, registers,
watch)`.

Kernels are inlined at their launches by the same code that lowers them alone, so they compute the same bits. Addresses
from outside are in the table; counters of enclosing loops are in registers, whose indices are the parameters of the
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from weft.compiler.kernel.cost import work
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.outline import Operand, Row
from weft.compiler.target.cpu import interrupt
from weft.compiler.target.cpu.lower import lower_at
from weft.compiler.target.cpu.native_outline import NativeOutline, full, times
from weft.compiler.target.llvm import Module, Parameter, Value, constant, i8, i32, i64, ptr, vector
from weft.compiler.target.loop_writer import LoopWriter
from weft.compiler.target.target import Target

# Nanoseconds that a loop may take without checking for interrupts.
LONG = 100_000.0


def loop_text(outline: NativeOutline, target: Target) -> str:
    """Return the module with the function of a loop; all of its kernels must be known."""
    module = Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    _LoopTextWriter(module, outline, target).run()
    return module.text()


class _LoopTextWriter(LoopWriter):
    """Writer of one function for one thread."""

    def __init__(self, module: Module, outline: NativeOutline, target: Target) -> None:
        parameters = [Parameter(name, ptr) for name in ("table", "parameters", "registers", "watch")]
        f = module.function(outline.symbol, i64, parameters)
        super().__init__(f, outline)
        self.locals, self.target = outline.locals, target
        # Addresses and counters from outside are loaded once, before everything else.
        table, indices, registers, self.watch = f.arguments
        # Iterations before the next check for interrupts.
        self.budget = f.alloca(i64, align=8)
        f.store(f.load(i64, f.offset(self.watch, i64, interrupt.NEXT_BUDGET), 8), self.budget, 8)
        self.interrupted = f.label("interrupted")
        # Kernels with symbolic sizes have the same code for all sizes: their time is unknown.
        kernels = full(outline.kernels)
        self.works = {symbol: inf if kernel.sizes else work(kernel, target.kernel) for symbol, kernel in kernels}
        self.addresses = [f.load(ptr, f.offset(table, ptr, n), 8) for n in range(len(outline.addresses))]
        named = [f.load(i64, f.offset(indices, i64, n), 8) for n in range(len(outline.counters))]
        self.counters = [f.load(i64, f.offset(registers, i64, index), 8) for index in named]

    def run(self) -> None:
        f = self.f
        outside = self.addresses
        self.addresses = list(outside)
        for i, size in enumerate(self.locals):
            if size:
                # LLVM promotes stack memory to registers, but never memory that other code may see.
                self.addresses[i] = f.alloca(vector(i8, abs(size)))
                f.copy(self.addresses[i], outside[i], constant(abs(size), i64))
        self.rows(self.outline.rows)
        for i, size in enumerate(self.locals):
            if size > 0:
                f.copy(outside[i], self.addresses[i], constant(size, i64))
        f.ret(constant(0, i64))
        f.start(self.interrupted)
        f.ret(constant(interrupt.INTERRUPTED, i64))

    def launch(self, kernel: Kernel, count: int, pointers: Sequence[Value]) -> None:
        lower_at(self.f, kernel, self.target, pointers, constant(0, i64), constant(count, i64))

    def copy(self, target: Value, source: Value, size: int) -> None:
        self.f.copy(target, source, constant(size, i64))

    def fill(self, target: Value, size: int) -> None:
        self.f.fill(target, constant(0, i8), constant(size, i64))

    def count(self, target: Value, counter: Value) -> None:
        self.f.store(self.f.trunc(counter, i32), target, 4)

    def wait(self) -> None:
        """Write nothing: the loop has one thread."""

    def end_iteration(self, iterations: Operand | int | None, body: Sequence[Row]) -> None:
        """Count down to the next check for interrupts. If all iterations together are short, the caller of the loop
        checks."""
        if isinstance(iterations, int) and iterations * times(body, self.works)[0] <= LONG:
            return
        f = self.f
        due, fine = f.label("due"), f.label("fine")
        left = f.sub(f.load(i64, self.budget, 8), constant(1, i64))
        f.store(left, self.budget, 8)
        f.branch_if(f.icmp("sle", left, constant(0, i64)), due, fine, unlikely=True)
        f.start(due)
        budget = interrupt.look(f, self.watch)
        f.store(budget, self.budget, 8)
        f.branch_if(f.icmp("eq", budget, constant(0, i64)), self.interrupted, fine, unlikely=True)
        f.start(fine)
