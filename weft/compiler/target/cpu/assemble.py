"""Assembly of a Program with planned memory into bytecode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.base.lazy import lazy
from weft.base.memo import cached_property
from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.program.assign import slot_address
from weft.compiler.program.ir import (
    TAPE_ROUTINES,
    Branch,
    Call,
    Communicate,
    Copy,
    Count,
    Fill,
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
from weft.compiler.program.outline import Address
from weft.compiler.target.cpu import tape
from weft.compiler.target.cpu.bytecode import BytecodeAssembler
from weft.compiler.target.cpu.loops import NativeLoop

if TYPE_CHECKING:
    from weft.compiler.target.cpu.library import routines
else:
    routines = lazy("weft.compiler.target.cpu.library.routines")


class Assembly:
    """Writer of one program's bytecode.

    `kernel_address` returns the address of a kernel; `host` is the address of the function that calls Python with the
    index of the call, from `first_host` on; `loops` have native code, which is called instead of them. `blocks`
    collects parameters of tiled calls, which must live as long as the bytecode.
    """

    def __init__(
        self,
        program: Program,
        kernel_address: Callable[[Kernel | NamedKernel], int],
        host: int,
        first_host: int,
        loops: Mapping[Step, NativeLoop] | None = None,
    ) -> None:
        if program.space_bytes:
            what = f"got temporaries in {', '.join(program.space_bytes)} in the program {program.name}"
            raise InternalError(f"A program for a CPU must use one memory space; {what}.", stage="program")
        self.program = program
        self.kernel_address = kernel_address
        self.host = host
        self.next_host = first_host
        self.loops = loops or {}
        self.assembler = BytecodeAssembler()
        self.blocks: list[np.ndarray] = []
        self.pointers: list[tuple[int, np.ndarray]] = []

    @cached_property
    def collectives(self) -> int:
        """Number of collectives; the indices of the waits for them come after those of their starts."""
        return sum(isinstance(step, Communicate) for step in self.program.all_steps())

    def bytecode(self) -> np.ndarray:
        """Assemble the program and return its bytecode."""
        self.steps(self.program.steps)
        self.assembler.end()
        return self.assembler.finish()

    def address(self, slot: Slot) -> Address:
        return Address(*slot_address(slot, self.program))

    def addresses(self, slots: Sequence[Slot]) -> list[Address]:
        return [self.address(s) for s in slots]

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Any) -> None:
        m = self.assembler
        native = self.loops.get(step)
        if native is not None:
            m.call(native.code.address, native.addresses, native.counters)
            return
        match step:
            case Launch(kernel, slots, grain):
                if grain:
                    m.parallel(self.kernel_address(kernel), step.iterations, grain, self.addresses(slots))
                else:
                    m.launch(self.kernel_address(kernel), step.iterations, self.addresses(slots))
            case Call():
                self.call(step)
            case Copy(target, source, size):
                m.copy(self.address(target), self.address(source), size)
            case Fill(target):
                m.fill(self.address(target), target.size)
            case SetAddress(target, base, counter, stride):
                assert target.register is not None
                m.set_address(target.register.index, self.address(base), counter.index, stride)
            case Count(target, counter):
                m.write(self.address(target), counter.index, 4)
            case Loop():
                self.loop(step)
            case While():
                self.while_loop(step)
            case Branch():
                self.branch(step)
            case Communicate(index=index):
                m.communicate(index)
            case Start(started):  # only collectives are asynchronous: other steps complete here
                self.step(started)
            case Wait(event):
                if isinstance(event.step, Communicate):
                    m.communicate(self.collectives + event.step.index)
            case _:
                assert_never(step)

    def call(self, step: Call) -> None:
        m, addresses = self.assembler, self.addresses(step.slots)
        if step.routine == "host":
            m.call(self.host, addresses, [self.next_host])
            self.next_host += 1
        elif step.tiles:
            block = np.array(step.parameters, np.int64)
            self.blocks.append(block)
            # The address of the parameters is in a pointer register that is set before the run.
            register = self.program.registers + len(self.pointers)
            self.pointers.append((register, block))
            m.parallel(_routine(step.routine), step.tiles, 1, [*addresses, Address(register)])
        elif step.routine in TAPE_ROUTINES:
            m.call(tape.address(step.routine), addresses, step.parameters)
        else:
            m.call(_routine(step.routine), addresses, step.parameters)

    def loop(self, step: Loop) -> None:
        m, counter, bound = self.assembler, step.counter.index, step.bound.index
        top, body, end = m.label(), m.label(), m.label()
        start = counter if step.reverse else bound
        if isinstance(step.count, Slot):
            m.read(start, self.address(step.count), -4)
        else:
            m.set(start, step.count)
        m.set(bound if step.reverse else counter, 0)
        m.here(top)
        # Backwards the counter is one above the index of the next iteration, and the bound is 0.
        m.jump_less(*((bound, counter) if step.reverse else (counter, bound)), body)
        m.jump(end)
        m.here(body)
        if step.reverse:
            m.add(counter, -1)
        self.steps(step.body)
        if not step.reverse:
            m.add(counter, 1)
        m.jump(top)
        m.here(end)

    def while_loop(self, step: While) -> None:
        m, test = self.assembler, step.test.index
        if step.counter is not None:
            m.set(step.counter.index, 0)
        top, end = m.here(), m.label()
        self.steps(step.condition)
        m.read(test, self.address(step.predicate), 1)
        m.jump_zero(test, end)
        self.steps(step.body)
        if step.counter is not None:
            m.add(step.counter.index, 1)
        m.jump(top)
        m.here(end)

    def branch(self, step: Branch) -> None:
        m, choice = self.assembler, step.choice.index
        size = step.dtype.itemsize
        m.read(choice, self.address(step.index), -size if step.dtype.kind == "i" else size)
        end = m.label()
        if len(step.branches) == 2 and not step.branches[0] and step.dtype.kind in "bu":  # branch 0 is empty
            m.jump_zero(choice, end)
            self.steps(step.branches[1])
            m.here(end)
            return
        labels = [m.label() for _ in step.branches]
        m.switch(choice, labels)
        for label, steps in zip(labels, step.branches, strict=True):
            m.here(label)
            self.steps(steps)
            m.jump(end)
        m.here(end)


def _routine(name: str) -> int:
    return routines.address(name)
