"""Flat programs: elementwise programs for arrays of any length, which is an argument of their one kernel.

Outside of jit the same function is called with arrays of many shapes. A kernel for each would cost tens of milliseconds
every time; this one is compiled once for an operation and its dtypes. It takes the same passes and emitter as every
program, over arrays of one fixed length; then the bound of its one loop becomes an argument. Lanes do not depend on
each other, so an element has the same bits as in any other kernel. The fixed length is too short to be split over
threads, and no other buffer has it as its size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.base import dtypes
from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.errors import InternalError
from weft.compiler.compilation import FLAT_LENGTH, FLAT_MOST, Compilation, Flat, with_length
from weft.compiler.compile import compile_program
from weft.compiler.kernel.ir import Buffer, Index, Kernel, Load, Loop, LoopKind, Statement, Store, Value, Variable
from weft.compiler.kernel.substitute import substitute
from weft.compiler.kernel.threads import BLOCK
from weft.compiler.program.assign import assign
from weft.compiler.program.ir import Kind as SlotKind, Launch, Program, Slot
from weft.compiler.target.target import Target
from weft.compiler.verify import verify_program
from weft.ir.jaxpr import Jaxpr

MOST_VALUES = 4096


def compile_flat(jaxpr: Jaxpr, target: Target, way: Flat, options: CompileOptions = DEFAULT) -> Compilation:
    """Compile a jaxpr of elementwise operations on arrays of `FLAT_LENGTH` (or scalars) for arrays of every length
    below `FLAT_MOST`. The program has one more argument, the first: the length, an int64. Both `way`s share one kernel.
    """
    # One operation may be defined by many others: all of them must be one fusion, however many there are.
    fusion = replace(target.fusion, values=MOST_VALUES, sites=MOST_VALUES, repeated=MOST_VALUES)
    compilation = compile_program(jaxpr, (), replace(target, fusion=fusion), options)
    compilation.traced, compilation.flat = with_length(jaxpr), way
    compilation.program = assign(_of_any_length(compilation.program, grain=int(way is Flat.THREADS)))
    if options.verifies:
        verify_program(compilation.program, target.memory_spaces)
    return compilation


def _of_any_length(program: Program, grain: int) -> Program:
    """Make the length the first argument of a program, which must be one kernel over its arguments and results."""
    if (
        len(program.steps) != 1
        or not isinstance(program.steps[0], Launch)
        or program.aliases != [None] * len(program.results)
    ):
        raise InternalError(f"The flat program {program.name} must be one kernel.", stage="flat")
    launch = program.steps[0]
    count = Slot(SlotKind.ARGUMENT, dtypes.int64.itemsize, 0)
    for slot in program.arguments:
        slot.index += 1
    for slot, buffer in zip(launch.slots, launch.full.buffers, strict=True):
        if buffer.size == FLAT_LENGTH:
            slot.size = FLAT_MOST * buffer.dtype.itemsize
    step = Launch(_with_length(launch.full), (count, *launch.slots), grain, launch.label)
    step.line, step.origin = launch.line, launch.origin
    return replace(program, steps=[step], arguments=[count, *program.arguments], nanoseconds=0.0)


def _with_length(kernel: Kernel) -> Kernel:
    """Add a first buffer to a kernel, from which its one loop reads its number of iterations, in blocks for threads."""
    loops = [s for s in kernel.body if isinstance(s, Loop)]
    if (
        len(loops) != 1
        or loops[0].kind is not LoopKind.LANES
        or loops[0].stop != FLAT_LENGTH
        or loops[0].limit is not None
    ):
        raise InternalError(f"The kernel {kernel.name} must be one loop over {FLAT_LENGTH} elements.", stage="flat")
    buffers = {b: replace(b, size=FLAT_MOST) if b.size == FLAT_LENGTH else b for b in kernel.buffers}
    count = Buffer("count", np.dtype(np.int64), 1)
    length = Value(count.dtype)

    def longer(statement: Statement) -> Statement:
        match statement:
            case Loop():
                block = Variable("block")
                shift = Index.of(statement.variable) + block * BLOCK
                body = substitute(tuple(longer(s) for s in statement.body), statement.variable, shift)
                inner = replace(statement, stop=BLOCK, body=body, limit=Index.of(length) - block * BLOCK)
                return Loop(block, 0, FLAT_MOST // BLOCK, (inner,), LoopKind.THREADS)
            case Load() | Store():
                return replace(statement, buffer=buffers[statement.buffer])
            case _:
                return statement

    body = (Load(length, count, Index()), *(longer(s) for s in kernel.body))
    return Kernel("flat_" + kernel.name, (count, *buffers.values()), body)
