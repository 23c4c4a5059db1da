"""From a program with its memory planned to words of the step machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import Kernel, NamedKernel
from weft.compiler.program.assign import address_of
from weft.compiler.program.ir import (
    TAPE_ROUTINES,
    Branch,
    Call,
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
from weft.compiler.target.cpu import tape
from weft.compiler.target.cpu.loops import NativeLoop
from weft.compiler.target.cpu.machine import Assembler, Place


class Assembly:
    """Writes one program. `addresses` are those of its kernels, `host` that of what calls Python with the number of the
    call, from `first_host` on; `loops` have code of their own, which is called in their place. `blocks` collects
    parameters of tiled calls, which must live as long as the words."""

    def __init__(
        self,
        program: Program,
        addresses: Callable[[Kernel | NamedKernel], int],
        host: int,
        first_host: int,
        loops: Mapping[Step, NativeLoop] | None = None,
    ) -> None:
        if program.space_bytes:
            what = f"The program {program.name} has temporaries in {', '.join(program.space_bytes)}."
            raise InternalError(f"{what} A CPU has one memory space.", stage="program")
        self.program = program
        self.addresses = addresses
        self.host = host
        self.next_host = first_host
        self.loops = loops or {}
        self.machine = Assembler()
        self.blocks: list[np.ndarray] = []
        self.pointers: list[tuple[int, np.ndarray]] = []

    def words(self) -> np.ndarray:
        self.steps(self.program.steps)
        self.machine.end()
        return self.machine.finish()

    def place(self, slot: Slot) -> Place:
        return Place(*address_of(slot, self.program))

    def places(self, slots: Sequence[Slot]) -> list[Place]:
        return [self.place(s) for s in slots]

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Any) -> None:
        m = self.machine
        native = self.loops.get(step)
        if native is not None:
            m.call(native.code.address, native.places, native.counters)
            return
        match step:
            case Launch(kernel, slots, grain):
                if grain:
                    m.parallel(self.addresses(kernel), kernel.count, grain, self.places(slots))
                else:
                    m.launch(self.addresses(kernel), kernel.count, self.places(slots))
            case Call():
                self.call(step)
            case Copy(target, source, size):
                m.copy(self.place(target), self.place(source), size)
            case Fill(target):
                m.fill(self.place(target), target.size)
            case SetAddress(target, base, counter, stride):
                assert target.register is not None
                m.point(target.register.index, self.place(base), counter.index, stride)
            case Count(target, counter):
                m.write(self.place(target), counter.index, 4)
            case Loop():
                self.loop(step)
            case While():
                self.while_loop(step)
            case Branch():
                self.branch(step)
            case Start(started):  # steps are synchronous here: it is over at once, and there is nothing to wait for
                self.step(started)
            case Wait():
                pass
            case _:
                assert_never(step)

    def call(self, step: Call) -> None:
        m, places = self.machine, self.places(step.slots)
        if step.routine == "host":
            m.call(self.host, places, [self.next_host])
            self.next_host += 1
        elif step.tiles:
            block = np.array(step.parameters, np.int64)
            self.blocks.append(block)
            # The block of numbers is at an address of its own, which a register has from the start.
            register = self.program.registers + len(self.pointers)
            self.pointers.append((register, block))
            m.parallel(_routine(step.routine), step.tiles, 1, [*places, Place(register)])
        elif step.routine in TAPE_ROUTINES:
            m.call(tape.address(step.routine), places, step.parameters)
        else:
            m.call(_routine(step.routine), places, step.parameters)

    def loop(self, step: Loop) -> None:
        m, counter, bound = self.machine, step.counter.index, step.bound.index
        top, body, end = m.label(), m.label(), m.label()
        start = counter if step.reverse else bound
        if isinstance(step.count, Slot):
            m.read(start, self.place(step.count), -4)
        else:
            m.set(start, step.count)
        m.set(bound if step.reverse else counter, 0)
        m.here(top)
        # Backwards the counter is one above the turn it is at until the turn begins, and the bound is 0.
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
        m, test = self.machine, step.test.index
        if step.counter is not None:
            m.set(step.counter.index, 0)
        top, end = m.here(), m.label()
        self.steps(step.condition)
        m.read(test, self.place(step.predicate), 1)
        m.jump_zero(test, end)
        self.steps(step.body)
        if step.counter is not None:
            m.add(step.counter.index, 1)
        m.jump(top)
        m.here(end)

    def branch(self, step: Branch) -> None:
        m, choice = self.machine, step.choice.index
        size = step.dtype.itemsize
        m.read(choice, self.place(step.index), -size if step.dtype.kind == "i" else size)
        end = m.label()
        if len(step.branches) == 2 and not step.branches[0] and step.dtype.kind in "bu":  # nothing to do for 0
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
    # Libraries are loaded for programs that call them.
    from weft.compiler.target.cpu.library.routines import address

    return address(name)
