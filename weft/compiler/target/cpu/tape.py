"""Tapes in native code: growable sequences, as the reverse mode of unbounded loops needs them.

A tape is a handle of two integers, the address of its entries and their count. The entries are in a block from malloc
with a header of four integers: the previous block in the list of all blocks of this run, its capacity (in entries), the
number of written entries, and padding. A write at the end of a tape whose block has no more entries than the tape
happens in place; any other write copies, so that older handles keep their contents. All blocks are freed when the
program ends.
"""

from __future__ import annotations

import ctypes
from typing import Any

from weft.compiler.program.frame import TAPES
from weft.compiler.target.cpu import link, objects
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i8, i32, i64, ptr, void

HEAD = 32  # bytes before the entries
LEAST_ROOM = 16


def text(triple: str) -> str:
    """Return the LLVM module with all routines."""
    module = Module(triple, vector_bits=128)
    module.declare("malloc", ptr, [i64])
    module.declare("free", void, [ptr])
    _read(module)
    _write(module)
    _length(module)
    _free(module)
    return module.text()


def _routine(module: Module, name: str) -> Function:
    return module.function(
        name, i64, [Parameter("table", ptr), Parameter("parameters", ptr), Parameter("registers", ptr)]
    )


def _pointer(f: Function, index: int) -> Value:
    return f.load(ptr, f.offset(f.arguments[0], ptr, index), 8)


def _word(f: Function, base: Value, index: int) -> Value:
    return f.load(i64, f.offset(base, i64, index), 8)


def _put(f: Function, value: Value, base: Value, index: int) -> None:
    f.store(value, f.offset(base, i64, index), 8)


def _read(module: Module) -> None:
    """Write weft_tape_read(tape, position (int32), result; bytes of an entry): the entry, or zeros if it does not
    exist."""
    f = _routine(module, "weft_tape_read")
    tape, index_address, target = (_pointer(f, n) for n in range(3))
    size = _word(f, f.arguments[1], 0)
    position = f.sext(f.load(i32, index_address, 4), i64)
    there = f.icmp("ult", position, _word(f, tape, 1))
    found, missing, end = f.label("found"), f.label("missing"), f.label("end")
    f.branch_if(there, found, missing)
    f.start(found)
    entries = f.load(ptr, tape, 8)
    f.copy(target, f.offset(entries, i8, f.mul(position, size)), size)
    f.branch(end)
    f.start(missing)
    f.fill(target, constant(0, i8), size)
    f.branch(end)
    f.start(end)
    f.ret(constant(0, i64))


def _write(module: Module) -> None:
    """Write weft_tape_write(tape, position (int32), value, result; bytes of an entry)."""
    f = _routine(module, "weft_tape_write")
    tape, index_address, value, result = (_pointer(f, n) for n in range(4))
    size = _word(f, f.arguments[1], 0)
    registers = f.arguments[2]
    zero, one = constant(0, i64), constant(1, i64)
    position = f.sext(f.load(i32, index_address, 4), i64)
    data, length = _word(f, tape, 0), _word(f, tape, 1)
    ahead, check, fresh, in_place, copy, end, wrong = (
        f.label(n) for n in ("ahead", "check", "fresh", "in_place", "copy", "end", "wrong")
    )
    # A negative position writes nothing.
    f.branch_if(f.icmp("slt", position, zero), wrong, ahead)
    f.start(wrong)
    _put(f, data, result, 0)
    _put(f, length, result, 1)
    f.ret(zero)

    f.start(ahead)
    after = f.smax(f.add(position, one), length)
    f.branch_if(f.icmp("eq", data, zero), copy, check)
    f.start(check)
    head = f.sub(data, constant(HEAD, i64))
    head_pointer = f.inttoptr(head, ptr)
    room, used = _word(f, head_pointer, 1), _word(f, head_pointer, 2)
    # In place if this handle is the newest, the position is not before its end, and there is room.
    newest = f.and_(f.icmp("eq", used, length), f.icmp("sge", position, length))
    f.branch_if(f.and_(newest, f.icmp("sle", after, room)), in_place, copy)

    f.start(in_place)
    _put(f, after, head_pointer, 2)
    f.branch(fresh)

    f.start(copy)
    wanted = f.smax(f.mul(after, constant(2, i64)), constant(LEAST_ROOM, i64))
    bytes_of_block = f.add(f.mul(wanted, size), constant(HEAD, i64))
    block = f.call("malloc", ptr, bytes_of_block)
    assert block is not None
    none = f.icmp("eq", f.ptrtoint(block, i64), zero)
    failed, allocated = f.label("failed"), f.label("allocated")
    f.branch_if(none, failed, allocated)
    f.start(failed)
    f.ret(constant(2, i64))
    f.start(allocated)
    _put(f, _word(f, registers, TAPES), block, 0)
    _put(f, f.ptrtoint(block, i64), registers, TAPES)
    _put(f, wanted, block, 1)
    _put(f, after, block, 2)
    entries = f.offset(block, i8, HEAD)
    f.copy(entries, f.inttoptr(data, ptr), f.mul(length, size))
    new_data = f.ptrtoint(entries, i64)
    f.branch(fresh)

    f.start(fresh)
    where = f.phi(i64, (data, in_place), (new_data, allocated))
    base = f.inttoptr(where, ptr)
    # Entries between the old end and the new one are zero.
    gap = f.smax(f.sub(position, length), zero)
    f.fill(f.offset(base, i8, f.mul(length, size)), constant(0, i8), f.mul(gap, size))
    f.copy(f.offset(base, i8, f.mul(position, size)), value, size)
    _put(f, where, result, 0)
    _put(f, after, result, 1)
    f.branch(end)
    f.start(end)
    f.ret(zero)


def _length(module: Module) -> None:
    """Write weft_tape_length(tape, result (int32))."""
    f = _routine(module, "weft_tape_length")
    tape, result = (_pointer(f, n) for n in range(2))
    f.store(f.trunc(_word(f, tape, 1), i32), result, 4)
    f.ret(constant(0, i64))


def _free(module: Module) -> None:
    """Write weft_tape_free(registers): free all blocks of a run, given its registers."""
    f = module.function("weft_tape_free", void, [Parameter("registers", ptr)])
    (registers,) = f.arguments
    first = _word(f, registers, TAPES)
    zero = constant(0, i64)
    with f.when(f.icmp("ne", first, zero)), f.repeat(first) as region:
        block = f.inttoptr(region.values[0], ptr)
        following = f.load(i64, block, 8)
        f.call("free", void, block)
        region.again(f.icmp("ne", following, zero), following)
    _put(f, zero, registers, TAPES)
    f.ret()


# The loaded routines, compiled for the first program with a tape.
library = link.load_once(lambda: objects.load_object("tape", lambda: text(host().triple), host(), Tier.LIGHT))


def address(routine: str) -> int:
    """Return the address of a routine."""
    return library().addresses[routine]


def free(registers: Any) -> None:
    """Free the tapes of a finished run."""
    function = library().function("weft_tape_free", None, ctypes.c_void_p)
    function(registers)
