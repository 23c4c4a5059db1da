"""A loop independent of its program, as rows of plain data.

Outside memory and registers are numbered in the order of their first use. The code of a loop depends only on its rows
and on the texts of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.kernel.printer import kernel_symbol
from weft.compiler.program.assign import slot_address
from weft.compiler.program.ir import (
    Branch,
    Copy,
    Count,
    Fill,
    FrameRegister,
    Kind,
    Launch,
    Loop,
    Program,
    SetAddress,
    Slot,
    Start,
    Step,
    Wait,
    While,
)

# Memory: ("outside", index in the table) or ("pointer", index of the register). Counters likewise, or ("iteration",
# index).
Operand: TypeAlias = tuple[str, int]
Row: TypeAlias = tuple[Any, ...]


class Address(NamedTuple):
    """An address: the contents of a register plus an offset in bytes."""

    register: int
    offset: int = 0


class NoOutline(Exception):
    """Raised for a step that cannot be a row."""


class Outline:
    """A loop independent of its program.

    `addresses` and `counters` are its inputs: memory, and registers that count iterations of enclosing loops. Started
    steps run at once, so waits need no row. Raises `NoOutline` for steps that `can_do` rejects and for calls of
    libraries or Python.
    """

    def __init__(self, step: Step, program: Program, can_do: Callable[[Step], bool]) -> None:
        self.program, self._can_do = program, can_do
        self.addresses: list[Address] = []
        self.counters: list[int] = []
        self.kernels: dict[str, Kernel | NamedKernel] = {}
        self._known: dict[Any, Operand] = {}
        self.sizes: dict[Address, int] = {}
        self.fixed: set[Address] = set()  # base addresses that others are computed from
        self._registers = 0
        # Operands of registers that the loop itself sets; None where they cannot be read any more.
        self._own: dict[FrameRegister, Operand | None] = {}
        self.rows = self._steps([step])

    def _steps(self, steps: Sequence[Step]) -> tuple[Row, ...]:
        """Return the rows of a block. Registers that it sets can be read only until its end."""
        before = dict(self._own)
        rows = tuple(self._step(step) for step in steps if not isinstance(step, Wait))
        self._own = {register: before.get(register) for register in self._own}
        return rows

    def _step(self, step: Any) -> Row:
        match step:
            case _ if not self._can_do(step):
                raise NoOutline
            case Launch(kernel, slots):
                symbol = kernel_symbol(kernel)
                self.kernels.setdefault(symbol, kernel)
                return "launch", symbol, step.iterations, tuple(self._slot(s) for s in slots)
            case Copy(target, source, size):
                return "copy", self._slot(target), self._slot(source), size
            case Fill(target):
                return "fill", self._slot(target), target.size
            case SetAddress(target, base, counter, stride):
                assert target.register is not None
                row = self._slot(base), self._counter(counter), stride
                self.fixed.add(self._address(base))
                return "set_address", self._set(target.register, "pointer"), *row
            case Count(target, counter):
                return "count", self._slot(target), self._counter(counter)
            case Loop():
                count = self._slot(step.count) if isinstance(step.count, Slot) else step.count
                return "loop", self._set(step.counter, "iteration"), count, step.reverse, self._steps(step.body)
            case While():
                counted = None if step.counter is None else self._set(step.counter, "iteration")
                condition = self._steps(step.condition)
                return "while", counted, condition, self._slot(step.predicate), self._steps(step.body)
            case Branch(index, dtype, _, branches):
                kind = -dtype.itemsize if dtype.kind == "i" else dtype.itemsize
                return "branch", self._slot(index), kind, tuple(self._steps(branch) for branch in branches)
            case Start(started):  # runs at once
                return self._step(started)
            case _:
                raise NoOutline

    def _set(self, register: FrameRegister, kind: str) -> Operand:
        operand = self._own[register] = kind, self._registers
        self._registers += 1
        return operand

    def _slot(self, slot: Slot) -> Operand:
        if slot.kind is Kind.POINTED and slot.register in self._own:
            return self._read(slot.register)
        address = self._address(slot)
        self.sizes[address] = max(self.sizes.get(address, 0), slot.size)
        return self._outside(address, self.addresses, address)

    def _address(self, slot: Slot) -> Address:
        return Address(*slot_address(slot, self.program))

    def _counter(self, register: FrameRegister) -> Operand:
        if register in self._own:
            return self._read(register)
        return self._outside(register, self.counters, register.index)

    def _read(self, register: FrameRegister) -> Operand:
        operand = self._own[register]
        if operand is None:  # set by a block that has ended
            raise NoOutline
        return operand

    def _outside(self, thing: Any, listed: list[Any], entry: Any) -> Operand:
        if thing not in self._known:
            self._known[thing] = "outside", len(listed)
            listed.append(entry)
        return self._known[thing]
