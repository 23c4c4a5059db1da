"""Tapes as steps. A tape is a handle (address, length) of entries that grow; see `target/cpu/tape.py` for the routines.

Only making, reading, writing and measuring a tape are steps; sums of tapes and the like are loops over these, written
by `decompose`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.errors import InternalError
from weft.compiler.program.ir import Call, Count, Fill, Register, Slot
from weft.ir.types import TapeType

if TYPE_CHECKING:
    from weft.compiler.program.block import Block
    from weft.compiler.program.build import Builder
    from weft.ir.jaxpr import Equation


def build_tape(builder: Builder, block: Block, position: int, equation: Equation) -> None:
    """The step of an operation on tapes."""
    name = equation.primitive.name
    operands = [builder.atom(block, a) for a in equation.invars]
    (v,) = equation.outvars
    if name == "tape_new":
        builder.steps.append(Fill(builder.place(block, v, position)))
    elif name == "tape_read":
        size = builder.size(v.aval)
        read(builder, operands[0], operands[1], builder.place(block, v, position), size)
    elif name == "tape_write":
        tape, place, value = operands
        dies = block.dead(tape, position, from_now=False) and v not in block.targets
        if dies:
            block.put(v, tape)
        made = tape if dies else builder.place(block, v, position)
        write(builder, tape, place, value, made, builder.size(equation.invars[2].aval))
    elif name == "tape_length":
        made = builder.place(block, v, position)
        builder.steps.append(Call("weft_tape_length", (operands[0], made), (made,), label=name))
    else:
        raise InternalError(f"`{name}` must be gone before steps are made.", stage="program")


def read(builder: Builder, tape: Slot, place: Slot, made: Slot, size: int) -> None:
    builder.steps.append(Call("weft_tape_read", (tape, place, made), (made,), (size,), label="tape_read"))


def write(builder: Builder, tape: Slot, place: Slot, value: Slot, made: Slot, size: int) -> None:
    slots = (tape, place, value, made)
    builder.steps.append(Call("weft_tape_write", slots, (made,), (size,), label="tape_write"))


def read_at(builder: Builder, element: TapeType, tape: Slot, counter: Register) -> Slot:
    """The entry of a tape at a loop's counter."""
    place, made = builder.temporary(4), builder.temporary(builder.size(element))
    builder.steps.append(Count(place, counter))
    read(builder, tape, place, made, made.size)
    return made


def write_at(builder: Builder, element: Any, tape: Slot, counter: Register, value: Slot) -> None:
    """Write the entry of a tape at a loop's counter, in place."""
    place = builder.temporary(4)
    builder.steps.append(Count(place, counter))
    write(builder, tape, place, value, tape, builder.size(element))
