"""The text of a small loop as one function, from the rows of its outline: `i64 name(table, parameters,
registers, watch)`.

Kernels are written where they are launched, by the same code that writes them alone, so they compute the same bits.
Memory from outside is in the table; counters of loops around are in registers, whose indices are the parameters of the
call.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.errors import InternalError
from weft.compiler.kernel.cost import work
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.outline import Operand, Row
from weft.compiler.target.cpu import interrupt
from weft.compiler.target.cpu.loops import NativeOutline, full, times
from weft.compiler.target.cpu.lower import lower_at
from weft.compiler.target.llvm import Module, Parameter, Value, constant, i8, i32, i64, integer, ptr, vector
from weft.compiler.target.target import Target

# Nanoseconds that a loop may take without looking for interrupts.
LONG = 100_000.0


def loop_text(outline: NativeOutline, target: Target) -> str:
    """The module with the function of a loop whose kernels are known."""
    module = Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    _Writer(module, outline, target).run()
    return module.text()


class _Writer:
    """Writes one function. `values` has the pointers and counters that the loop sets itself."""

    def __init__(self, module: Module, outline: NativeOutline, target: Target) -> None:
        parameters = [Parameter(name, ptr) for name in ("table", "parameters", "registers", "watch")]
        f = self.f = module.function(outline.symbol, i64, parameters)
        self.outline = outline
        self.target = target
        self.values: dict[Operand, Value] = {}
        # What comes from outside is read once, in front of everything.
        table, indices, registers, self.watch = f.arguments
        # Iterations before the next look for interrupts.
        self.budget = f.alloca(i64, align=8)
        f.store(f.load(i64, f.offset(self.watch, i64, interrupt.NEXT_BUDGET), 8), self.budget, 8)
        self.interrupted = f.label("interrupted")
        self.works = {symbol: work(kernel, target.kernel) for symbol, kernel in full(outline.kernels)}
        self.addresses = [f.load(ptr, f.offset(table, ptr, n), 8) for n in range(len(outline.addresses))]
        named = [f.load(i64, f.offset(indices, i64, n), 8) for n in range(len(outline.counters))]
        self.counters = [f.load(i64, f.offset(registers, i64, index), 8) for index in named]

    def run(self) -> None:
        f = self.f
        outside = list(self.addresses)
        for i, size in enumerate(self.outline.locals):
            if size:
                # LLVM makes registers of room on the stack, but never of memory that others could see.
                self.addresses[i] = f.alloca(vector(i8, abs(size)))
                f.copy(self.addresses[i], outside[i], constant(abs(size), i64))
        self.rows(self.outline.rows)
        for i, size in enumerate(self.outline.locals):
            if size > 0:
                f.copy(outside[i], self.addresses[i], constant(size, i64))
        f.ret(constant(0, i64))
        f.start(self.interrupted)
        f.ret(constant(interrupt.INTERRUPTED, i64))

    def address(self, operand: Operand) -> Value:
        return self.addresses[operand[1]] if operand[0] == "outside" else self.values[operand]

    def counter(self, operand: Operand) -> Value:
        return self.counters[operand[1]] if operand[0] == "outside" else self.values[operand]

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.row(row)

    def row(self, row: Row) -> None:
        f = self.f
        match row:
            case "launch", symbol, count, operands:
                kernel = self.outline.kernels[symbol]
                assert isinstance(kernel, Kernel), f"{symbol} is known by name only"
                pointers = [self.address(operand) for operand in operands]
                lower_at(f, kernel, self.target, pointers, constant(0, i64), constant(count, i64))
            case "copy", target, source, size:
                f.copy(self.address(target), self.address(source), constant(size, i64))
            case "fill", target, size:
                f.fill(self.address(target), constant(0, i8), constant(size, i64))
            case "set_address", target, base, counter, stride:
                offset = f.mul(self.counter(counter), constant(stride, i64))
                self.values[target] = f.offset(self.address(base), i8, offset, inbounds=False)
            case "count", target, counter:
                f.store(f.trunc(self.counter(counter), i32), self.address(target), 4)
            case "loop", counter, iterations, reverse, body:
                self.loop(counter, iterations, reverse, body)
            case "while", counter, condition, predicate, body:
                self.while_loop(counter, condition, predicate, body)
            case "branch", index, kind, branches:
                self.branch(index, kind, branches)
            case _:
                raise InternalError(f"A row of a loop is {row}.", stage="llvm")

    def loop(self, counter: Operand, iterations: Operand | int, reverse: bool, body: Sequence[Row]) -> None:
        f = self.f
        count = (
            constant(iterations, i64)
            if isinstance(iterations, int)
            else f.sext(f.load(i32, self.address(iterations), 4), i64)
        )
        with f.loop(0, count) as index:
            self.values[counter] = f.sub(f.sub(count, constant(1, i64)), index) if reverse else index
            self.rows(body)
            # Where all iterations together are short, whoever runs the loop looks.
            if not isinstance(iterations, int) or iterations * times(body, self.works)[0] > LONG:
                self.spend()

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
        f.branch_if(holds, inside, end)
        f.start(inside)
        self.rows(body)
        f.store(f.add(index, constant(1, i64)), iteration, 8)
        self.spend()
        f.branch(top)
        f.start(end)

    def spend(self) -> None:
        """After an iteration: look for interrupts, once in a while."""
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

    def branch(self, index: Operand, kind: int, branches: Sequence[Sequence[Row]]) -> None:
        f, size = self.f, abs(kind)
        read = f.load(integer(8 * size), self.address(index), size)
        case = read if size == 8 else (f.sext if kind < 0 else f.zext)(read, i64)
        labels, end = [f.label("case") for _ in branches], f.label("end")
        last = len(branches) - 1
        chosen = f.smin(f.smax(case, constant(0, i64)), constant(last, i64))
        f.switch(chosen, labels[last], dict(enumerate(labels[:last])))
        for label, rows in zip(labels, branches, strict=True):
            f.start(label)
            self.rows(rows)
            f.branch(end)
        f.start(end)
