"""The text of a small loop as one function, from the rows of its outline: `i64 name(table, numbers, registers)`.

Kernels are written where they are launched, by the same code that writes them alone, so they compute the same bits.
Memory from outside is in the table; counters of loops around are in registers, whose numbers the call gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from weft.compiler.kernel.ir import Kernel
from weft.compiler.target.cpu.features import Features
from weft.compiler.target.cpu.loops import Operand, Row
from weft.compiler.target.cpu.lower import lower_at
from weft.compiler.target.llvm import Module, Parameter, Value, constant, i8, i32, i64, integer, ptr


def loop_text(name: str, rows: Sequence[Row], kernels: Mapping[str, Kernel], features: Features) -> str:
    """The module with the function."""
    module = Module(triple=features.triple, vector_bits=features.vector_bits or 128)
    _Writer(module, name, kernels, features).run(rows)
    return module.text()


class _Writer:
    """Writes one function. `values` has what each operand is: an address or a counter."""

    def __init__(self, module: Module, name: str, kernels: Mapping[str, Kernel], features: Features) -> None:
        parameters = [Parameter("table", ptr), Parameter("numbers", ptr), Parameter("registers", ptr)]
        self.f = module.function(name, i64, parameters)
        self.kernels = kernels
        self.features = features
        self.places: dict[int, Value] = {}
        self.counters: dict[int, Value] = {}
        self.values: dict[Operand, Value] = {}

    def run(self, rows: Sequence[Row]) -> None:
        # What comes from outside is read once, in front of everything.
        for place, counter in _outside(rows):
            if place is not None and place not in self.places:
                self.places[place] = self.f.load(ptr, self.f.offset(self.f.arguments[0], ptr, place), 8)
            if counter is not None and counter not in self.counters:
                self.counters[counter] = self.held(counter)
        self.rows(rows)
        self.f.ret(constant(0, i64))

    def held(self, counter: int) -> Value:
        """What a counter of a loop around is at."""
        _, numbers, registers = self.f.arguments
        number = self.f.load(i64, self.f.offset(numbers, i64, counter), 8)
        return self.f.load(i64, self.f.offset(registers, i64, number), 8)

    def place(self, operand: Operand) -> Value:
        return self.places[operand[1]] if operand[0] == "outside" else self.values[operand]

    def counter(self, operand: Operand) -> Value:
        return self.counters[operand[1]] if operand[0] == "outside" else self.values[operand]

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.row(row)

    def row(self, row: Row) -> None:
        f = self.f
        match row:
            case "launch", symbol, count, operands:
                kernel = self.kernels[symbol]
                pointers = [self.place(operand) for operand in operands]
                lower_at(f, kernel, self.features, pointers, constant(0, i64), constant(count, i64))
            case "copy", target, source, size:
                f.copy(self.place(target), self.place(source), constant(size, i64))
            case "fill", target, size:
                f.fill(self.place(target), constant(0, i8), constant(size, i64))
            case "point", target, base, counter, stride:
                moved = f.mul(self.counter(counter), constant(stride, i64))
                self.values[target] = f.offset(self.place(base), i8, moved, inbounds=False)
            case "count", target, counter:
                f.store(f.trunc(self.counter(counter), i32), self.place(target), 4)
            case "loop", counter, turns, reverse, body:
                self.loop(counter, turns, reverse, body)
            case "while", counter, condition, predicate, body:
                self.while_loop(counter, condition, predicate, body)
            case "branch", index, kind, branches:
                self.branch(index, kind, branches)
            case _:
                assert_never(row)  # type: ignore[arg-type]

    def loop(self, counter: Operand, turns: Operand | int, reverse: bool, body: Sequence[Row]) -> None:
        f = self.f
        count = constant(turns, i64) if isinstance(turns, int) else f.sext(f.load(i32, self.place(turns), 4), i64)
        with f.loop(0, count) as index:
            self.values[counter] = f.sub(f.sub(count, constant(1, i64)), index) if reverse else index
            self.rows(body)

    def while_loop(
        self, counter: Operand | None, condition: Sequence[Row], predicate: Operand, body: Sequence[Row]
    ) -> None:
        f = self.f
        turn = f.alloca(i64, align=8)
        f.store(constant(0, i64), turn, 8)
        top, inside, end = f.label("top"), f.label("inside"), f.label("end")
        f.branch(top)
        f.start(top)
        number = f.load(i64, turn, 8)
        if counter is not None:
            self.values[counter] = number
        self.rows(condition)
        holds = f.icmp("ne", f.load(i8, self.place(predicate), 1), constant(0, i8))
        f.branch_if(holds, inside, end)
        f.start(inside)
        self.rows(body)
        f.store(f.add(number, constant(1, i64)), turn, 8)
        f.branch(top)
        f.start(end)

    def branch(self, index: Operand, kind: int, branches: Sequence[Sequence[Row]]) -> None:
        f, size = self.f, abs(kind)
        read = f.load(integer(8 * size), self.place(index), size)
        number = read if size == 8 else (f.sext if kind < 0 else f.zext)(read, i64)
        labels, end = [f.label("case") for _ in branches], f.label("end")
        last = len(branches) - 1
        chosen = f.smin(f.smax(number, constant(0, i64)), constant(last, i64))
        f.switch(chosen, labels[last], dict(enumerate(labels[:last])))
        for label, rows in zip(labels, branches, strict=True):
            f.start(label)
            self.rows(rows)
            f.branch(end)
        f.start(end)


def _outside(rows: Sequence[Row]) -> list[tuple[int | None, int | None]]:
    """Numbers of places and of counters from outside, in the order that rows mention them."""
    found: list[tuple[int | None, int | None]] = []

    def place(operand: Operand) -> None:
        if operand[0] == "outside":
            found.append((operand[1], None))

    def counter(operand: Operand) -> None:
        if operand[0] == "outside":
            found.append((None, operand[1]))

    for row in rows:
        match row:
            case "launch", _, _, operands:
                for operand in operands:
                    place(operand)
            case "copy", target, source, _:
                place(target)
                place(source)
            case "fill", target, _:
                place(target)
            case "point", _, base, turn, _:
                place(base)
                counter(turn)
            case "count", target, turn:
                place(target)
                counter(turn)
            case "loop", _, turns, _, body:
                if not isinstance(turns, int):
                    place(turns)
                found += _outside(body)
            case "while", _, condition, predicate, body:
                found += _outside(condition)
                place(predicate)
                found += _outside(body)
            case "branch", index, _, branches:
                place(index)
                for branch in branches:
                    found += _outside(branch)
            case _:
                assert_never(row)  # type: ignore[arg-type]
    return found
