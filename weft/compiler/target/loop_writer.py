"""Lowering of a loop's outline to LLVM, as far as all targets share it. How kernels are launched, memory is copied and
threads synchronise is the target's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Kernel
from weft.compiler.program.exchange import last_copies
from weft.compiler.program.outline import Operand, Outline, Row
from weft.compiler.target.llvm import Function, Value, constant, i8, i32, i64, integer


class LoopWriter(ABC):
    """Writer of one function for a loop.

    `addresses` and `counters` come from outside of the loop, `values` has the pointers and counters that it sets
    itself. `exchanges` has the indices of the counters of loops without copies at the end of the body: they swap two
    addresses instead.
    """

    def __init__(self, function: Function, outline: Outline, exchanges: Sequence[int] = ()) -> None:
        self.f, self.outline, self.exchanges = function, outline, exchanges
        self.exchanged: dict[Operand, Value] = {}
        self.values: dict[Operand, Value] = {}
        self.addresses: Sequence[Value] = ()
        self.counters: Sequence[Value] = ()

    # -- hooks of targets ------------------------------------------------------------------------------------------

    @abstractmethod
    def launch(self, kernel: Kernel, count: int, pointers: Sequence[Value]) -> None:
        """Run a kernel."""

    @abstractmethod
    def copy(self, target: Value, source: Value, size: int) -> None:
        """Copy bytes."""

    @abstractmethod
    def fill(self, target: Value, size: int) -> None:
        """Fill bytes with zeros."""

    @abstractmethod
    def count(self, target: Value, counter: Value) -> None:
        """Store a counter as an int32."""

    @abstractmethod
    def wait(self) -> None:
        """Write a barrier: no thread continues before all have arrived."""

    @abstractmethod
    def end_iteration(self, iterations: Operand | int | None, body: Sequence[Row]) -> None:
        """Write the end of an iteration of `body`; `iterations` is the trip count, or None if it is unknown."""

    # -- rows ------------------------------------------------------------------------------------------------------

    def address(self, operand: Operand) -> Value:
        if operand in self.exchanged:
            return self.exchanged[operand]
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
                self.launch(kernel, count, [self.address(operand) for operand in operands])
                self.wait()
            case "copy", target, source, size:
                self.copy(self.address(target), self.address(source), size)
                self.wait()
            case "fill", target, size:
                self.fill(self.address(target), size)
                self.wait()
            case "set_address", target, base, counter, stride:
                offset = f.mul(self.counter(counter), constant(stride, i64))
                self.values[target] = f.offset(self.address(base), i8, offset, inbounds=False)
            case "count", target, counter:
                self.count(self.address(target), self.counter(counter))
                self.wait()
            case "loop", counter, iterations, reverse, body:
                self.loop(counter, iterations, reverse, body)
            case "while", counter, condition, predicate, body:
                self.while_loop(counter, condition, predicate, body)
            case "branch", index, kind, branches:
                self.branch(index, kind, branches)
            case _:
                raise InternalError(f"Unknown row in the outline of a loop: {row}.", stage="llvm")

    def loop(self, counter: Operand, iterations: Operand | int, reverse: bool, body: Sequence[Row]) -> None:
        f = self.f
        count = (
            constant(iterations, i64)
            if isinstance(iterations, int)
            else f.sext(f.load(i32, self.address(iterations), 4), i64)
        )
        pairs = last_copies(body) if counter[1] in self.exchanges else []
        operands = [operand for pair in pairs for operand in (pair.carry, pair.new)]
        before = [self.address(operand) for operand in operands]
        with f.loop(constant(0, i64), count, carried=before) as index:
            self.exchanged.update(zip(operands, index.values, strict=True))
            self.values[counter] = f.sub(f.sub(count, constant(1, i64)), index) if reverse else index
            self.rows(body[: len(body) - len(pairs)])
            self.end_iteration(iterations, body)
            swapped = [index.values[n ^ 1] for n in range(len(operands))]
            index.give(*swapped)
        for operand in operands:
            del self.exchanged[operand]
        if pairs:
            odd = f.icmp("ne", f.and_(count, constant(1, i64)), constant(0, i64))
            with f.when(odd):
                for pair in pairs:
                    self.copy(self.address(pair.carry), self.address(pair.new), pair.size)
            self.wait()

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
        self.wait()  # the next predicate is written only when all threads have read this one
        f.branch_if(holds, inside, end)
        f.start(inside)
        self.rows(body)
        f.store(f.add(index, constant(1, i64)), iteration, 8)
        self.end_iteration(None, body)
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
