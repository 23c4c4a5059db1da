"""Build the steps of tapes. A tape is a handle (address, length) of entries that grow; see `target/cpu/tape.py` for the
routines.

Only creating, reading and writing a tape and taking its length are steps; `decompose` lowers sums of tapes and the like
to loops over these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.base.errors import InternalError
from weft.compiler.program.ir import Call, Count, Fill, FrameRegister, Slot
from weft.ir.types import TapeType
from weft.primitives.control.tape import tape_length, tape_new, tape_read, tape_write

if TYPE_CHECKING:
    from weft.compiler.program.block import JaxprValues
    from weft.compiler.program.build import ProgramBuilder
    from weft.ir.jaxpr import Equation


def build_tape(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    """Build the step of an operation on tapes."""
    build = _BUILDERS.get(equation.primitive)
    if build is None:
        raise InternalError(f"`{equation.primitive.name}` must be lowered before steps are built.", stage="program")
    build(builder, block, position, equation)


def _build_new(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    builder.steps.append(Fill(builder.allocate(block, equation.outvars[0], position)))


def _build_read(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    tape, index = (builder.atom(block, a) for a in equation.invars)
    (v,) = equation.outvars
    read(builder, tape, index, builder.allocate(block, v, position), builder.size(v.aval))


def _build_write(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    tape, index, value = (builder.atom(block, a) for a in equation.invars)
    (v,) = equation.outvars
    dies = block.dead(tape, position, from_now=False) and v not in block.targets
    if dies:
        block.put(v, tape)
    out = tape if dies else builder.allocate(block, v, position)
    write(builder, tape, index, value, out, builder.size(equation.invars[2].aval))


def _build_length(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    tape = builder.atom(block, equation.invars[0])
    out = builder.allocate(block, equation.outvars[0], position)
    builder.steps.append(Call("weft_tape_length", (tape, out), (out,), label=equation.primitive.name))


_BUILDERS: dict[Any, Callable[[ProgramBuilder, JaxprValues, int, Equation], None]] = {
    tape_length: _build_length,
    tape_new: _build_new,
    tape_read: _build_read,
    tape_write: _build_write,
}


def read(builder: ProgramBuilder, tape: Slot, index: Slot, out: Slot, size: int) -> None:
    builder.steps.append(Call("weft_tape_read", (tape, index, out), (out,), (size,), label="tape_read"))


def write(builder: ProgramBuilder, tape: Slot, index: Slot, value: Slot, out: Slot, size: int) -> None:
    slots = (tape, index, value, out)
    builder.steps.append(Call("weft_tape_write", slots, (out,), (size,), label="tape_write"))


def read_at(builder: ProgramBuilder, element: TapeType, tape: Slot, counter: FrameRegister) -> Slot:
    """Read the entry of a tape at a loop's counter into a new temporary."""
    index, out = builder.temporary(4), builder.temporary(builder.size(element))
    builder.steps.append(Count(index, counter))
    read(builder, tape, index, out, out.size)
    return out


def write_at(builder: ProgramBuilder, element: Any, tape: Slot, counter: FrameRegister, value: Slot) -> None:
    """Write the entry of a tape at a loop's counter, in place."""
    index = builder.temporary(4)
    builder.steps.append(Count(index, counter))
    write(builder, tape, index, value, tape, builder.size(element))
