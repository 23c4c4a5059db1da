"""LLVM text of the function that runs the steps of a program: `i32 name(arguments, results, workspace, integers)`.

It reads no global state and writes only to results, donated arguments and the workspace. Addresses that steps set and
counters of loops are on its stack. It returns 0, or the status of the first check that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.base.errors import InternalError
from weft.compiler.program.ir import Kind
from weft.compiler.target.cpu.standalone.rows import Hole, Memory, Row
from weft.compiler.target.llvm import (
    Function,
    Module,
    Parameter,
    Value,
    constant,
    i8,
    i32,
    i64,
    integer,
    ptr,
    void,
    zero,
)


class Columns:
    """Integers of several programs with equal rows: constants where all programs agree, else columns of a table."""

    def __init__(self, programs: Sequence[Sequence[int]]) -> None:
        self.fixed: list[int | None] = []
        self.positions: list[int] = []
        varying: list[int] = []
        for n, column in enumerate(zip(*programs, strict=True)):
            same = min(column) == max(column)
            self.fixed.append(column[0] if same else None)
            self.positions.append(-1 if same else len(varying))
            if not same:
                varying.append(n)
        self.table = [[integers[n] for n in varying] for integers in programs]

    @property
    def width(self) -> int:
        """Number of integers in a row of the table."""
        return len(self.table[0])


class DriverWriter:
    """Writer of one driver. Kernels are functions of the same module; `constants` is the address of all constants.

    Launches that are large enough go through the function `parallel`, if there is one, which shares chunks of them
    among threads.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        columns: Columns,
        constants: Value,
        parallel: str | None,
        routine_symbol: Callable[[str], str] = str,
    ) -> None:
        parameters = [Parameter(p, ptr) for p in ("arguments", "results", "workspace", "integers")]
        self.f: Function = module.function(name, i32, parameters, "internal")
        self.arguments, self.results, self.workspace, self.row = self.f.arguments
        self.columns, self.constants, self.parallel = columns, constants, parallel
        self._routine_symbol = routine_symbol
        self._calls = 0
        self._pointers: dict[int, Value] = {}
        self._counters: dict[int, Value] = {}

    def run(self, rows: Sequence[Row]) -> None:
        """Write the whole function."""
        self.table = self.f.alloca(ptr, _most_operands(rows) + 1)
        self.steps(rows)
        self.f.ret(constant(0, i32))

    # -- operands --------------------------------------------------------------------------------------------------

    def number(self, hole: Hole) -> Value:
        """Return an integer of the program."""
        fixed = self.columns.fixed[hole.position]
        if fixed is not None:
            return constant(fixed, i64)
        return self.f.load(i64, self.f.offset(self.row, i64, self.columns.positions[hole.position]), 8)

    def address(self, memory: Memory) -> Value:
        """Return the address of a slot."""
        f = self.f
        match memory.kind:
            case Kind.CONSTANT | Kind.TEMPORARY:
                assert memory.offset is not None
                base = self.constants if memory.kind is Kind.CONSTANT else self.workspace
                return f.offset(base, i8, self.number(memory.offset))
            case Kind.ARGUMENT:
                return f.load(ptr, f.offset(self.arguments, ptr, memory.number), 4)
            case Kind.RESULT:
                return f.load(ptr, f.offset(self.results, ptr, memory.number), 4)
            case _:
                return f.load(ptr, self.pointer(memory.number), 8)

    def pointer(self, register: int) -> Value:
        """Return the place of an address that steps set."""
        if register not in self._pointers:
            self._pointers[register] = self.f.alloca(ptr, align=8)
        return self._pointers[register]

    def counter(self, register: int) -> Value:
        """Return the place of a loop's counter."""
        if register not in self._counters:
            self._counters[register] = self.f.alloca(i64, align=8)
        return self._counters[register]

    # -- steps -----------------------------------------------------------------------------------------------------

    def steps(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.step(row)

    def step(self, row: Row) -> None:
        f = self.f
        match row:
            case "launch", symbol, count, grain, operands:
                self.launch(symbol, count, grain, operands)
            case "call", routine, parameters, tiles, operands:
                self.call(self._routine_symbol(routine), parameters, tiles, operands)
            case "copy", target, source, size:
                f.copy(self.address(target), self.address(source), self.number(size))
            case "fill", target, size:
                f.fill(self.address(target), constant(0, i8), self.number(size))
            case "set_address", register, base, counter, stride:
                offset = f.mul(f.load(i64, self.counter(counter), 8), self.number(stride))
                f.store(f.offset(self.address(base), i8, offset, inbounds=False), self.pointer(register), 8)
            case "count", target, counter:
                f.store(f.trunc(f.load(i64, self.counter(counter), 8), i32), self.address(target), 4)
            case "loop", counter, count, reverse, body:
                self.loop(counter, count, reverse, body)
            case "while", counter, condition, predicate, body:
                self.while_loop(counter, condition, predicate, body)
            case "branch", index, kind, branches:
                self.branch(index, kind, branches)
            case "fail", status:
                f.ret(constant(status, i32))
                f.start(f.label("unreachable"))
            case _:
                raise InternalError(f"Unknown row of a program: {row}.", stage="llvm")

    def launch(self, symbol: str, count: Hole, grain: Hole, operands: Sequence[Memory]) -> None:
        f = self.f
        for n, operand in enumerate(operands):
            f.store(self.address(operand), f.offset(self.table, ptr, n), 4)
        iterations = self.number(count)
        if self.parallel is None or self.columns.fixed[grain.position] == 0:
            f.call(symbol, void, self.table, constant(0, i64), iterations)
            return
        chunk = self.number(grain)
        if self.columns.fixed[grain.position] is None:  # 0 at some sizes: one chunk
            chunk = f.select(f.icmp("eq", chunk, constant(0, i64)), iterations, chunk)
        f.call(self.parallel, i64, f.module.address(symbol), self.table, iterations, chunk)

    def call(self, symbol: str, parameters: Sequence[int], tiles: int, operands: Sequence[Memory]) -> None:
        """Call a routine, all tiles at once or shared by threads."""
        f = self.f
        self._calls += 1
        block = f.module.table(f"{f.name}.call{self._calls}", i64, parameters or [0], align=8)
        addresses = [*(self.address(operand) for operand in operands), *[block][: bool(tiles)]]
        for n, address in enumerate(addresses):
            f.store(address, f.offset(self.table, ptr, n), 4)
        if not tiles:
            f.call(symbol, i64, self.table, block, zero(ptr))
        elif self.parallel is None:
            f.call(symbol, void, self.table, constant(0, i64), constant(tiles, i64))
        else:
            f.module.declare(symbol, void, [ptr, i64, i64])
            f.call(self.parallel, i64, f.module.address(symbol), self.table, constant(tiles, i64), constant(1, i64))

    def loop(self, counter: int, count: Hole | Memory, reverse: bool, body: Sequence[Row]) -> None:
        f = self.f
        if isinstance(count, Hole):
            bound = self.number(count)
        else:
            bound = f.sext(f.load(i32, self.address(count), 4), i64)
        place = self.counter(counter)
        with f.loop(constant(0, i64), bound) as index:
            last = f.sub(bound, constant(1, i64))
            f.store(f.sub(last, index) if reverse else index, place, 8)
            self.steps(body)

    def while_loop(self, counter: int | None, condition: Sequence[Row], predicate: Memory, body: Sequence[Row]) -> None:
        f = self.f
        if counter is not None:
            f.store(constant(0, i64), self.counter(counter), 8)
        top, inside, end = f.label("top"), f.label("inside"), f.label("end")
        f.branch(top)
        f.start(top)
        self.steps(condition)
        f.branch_if(f.icmp("ne", f.load(i8, self.address(predicate), 1), constant(0, i8)), inside, end)
        f.start(inside)
        self.steps(body)
        if counter is not None:
            place = self.counter(counter)
            f.store(f.add(f.load(i64, place, 8), constant(1, i64)), place, 8)
        f.branch(top)
        f.start(end)

    def branch(self, index: Memory, kind: int, branches: Sequence[Sequence[Row]]) -> None:
        f, size = self.f, abs(kind)
        read = f.load(integer(8 * size), self.address(index), size)
        case = read if size == 8 else (f.sext if kind < 0 else f.zext)(read, i64)
        labels, end, last = [f.label("case") for _ in branches], f.label("end"), len(branches) - 1
        chosen = f.smin(f.smax(case, constant(0, i64)), constant(last, i64))
        f.switch(chosen, labels[last], dict(enumerate(labels[:last])))
        for label, rows in zip(labels, branches, strict=True):
            f.start(label)
            self.steps(rows)
            f.branch(end)
        f.start(end)


def _most_operands(rows: Sequence[Row]) -> int:
    """Return the largest number of operands of a launch."""
    most = 0
    for row in rows:
        match row:
            case ("launch", _, _, _, operands) | ("call", _, _, _, operands):
                most = max(most, len(operands))
            case "loop", _, _, _, body:
                most = max(most, _most_operands(body))
            case "while", _, condition, _, body:
                most = max(most, _most_operands(condition), _most_operands(body))
            case "branch", _, _, branches:
                most = max(most, *map(_most_operands, branches))
            case _:
                pass
    return most
