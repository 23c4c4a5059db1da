"""Bytecode and its interpreter: a native function that runs a program of launches, copies and jumps, without Python.

The bytecode of a program is an array of 64-bit integers, written by a `BytecodeAssembler`; what changes from run to run
(addresses of buffers, counters of loops) is in an array of 64-bit registers that the caller owns. An *address* is two
integers, a register and an offset in bytes: registers[register] + offset. Kernels and routines are called with a table
of pointers that the interpreter fills from the addresses of the instruction.

Launches and iterations of loops are counted, and every few of them the interpreter checks for interrupts (`interrupt`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.program.outline import Address
from weft.compiler.target.cpu import float_mode, interrupt, link, objects, pool, spmd
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i8, i64, integer, ptr, void
from weft.compiler.target.target import Target


class Op(IntEnum):
    """Opcodes, the first integer of an instruction. Its operands follow in the order of the text."""

    END = 0
    """No operands. End of the program, with status 0."""
    LAUNCH = 1
    """kernel, count, n, n addresses: `kernel(table, 0, count)` in this thread."""
    PARALLEL = 2
    """kernel, count, grain, n, n addresses: `kernel(table, begin, end)` for chunks of [0, count), shared among
    threads."""
    CALL = 3
    """routine, n, m, n addresses, m parameters: `i64 routine(table, parameters, registers, watch)`; most routines take
    no watch. A status other than 0 ends the program with this status."""
    COPY = 4
    """target address, source address, bytes. The two may overlap."""
    FILL = 5
    """address, bytes: set the bytes to zero."""
    SET = 6
    """register, value: store the value in the register."""
    ADD = 7
    """register, value: add the value to the register."""
    SET_ADDRESS = 8
    """register, address, counter, stride: store the address + registers[counter] * stride in the register."""
    READ = 9
    """register, address, kind: load an integer of `kind` bytes; a negative kind is signed."""
    WRITE = 10
    """address, register, bytes: store the low bytes of a register."""
    JUMP = 11
    """target, an index into the bytecode."""
    JUMP_LESS = 12
    """register a, register b, target: jump if a < b, both signed."""
    JUMP_ZERO = 13
    """register, target: jump if it holds 0."""
    SWITCH = 14
    """register, n, n targets: jump to the target of that index; an index outside of the range takes the nearest
    target."""
    REPEAT = 15
    """target: jump back, to the next iteration of a loop."""
    COMMUNICATE = 16
    """index: stop with the status `COMMUNICATES` + index. The address of the next instruction is stored in the integer
    before the registers; `weft_resume` continues there."""


# Status of a program that reaches an integer that is not an opcode.
NOT_AN_INSTRUCTION = -(1 << 62)
READ_KINDS = (1, -1, 2, -2, 4, -4, 8)
WRITE_SIZES = (1, 2, 4, 8)
# Copies of at least this many bytes are shared among threads, in chunks: one thread alone does not use the whole memory
# bandwidth.
SHARED_COPY, COPY_PIECE = 1 << 20, 1 << 18
# Control does not continue after these.
_LEAVING = (Op.END, Op.JUMP, Op.SWITCH, Op.REPEAT)


class Label:
    """Position in a program, which jumps may refer to before it is known."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: int | None = None


class BytecodeAssembler:
    """Writer of a program, one method per instruction."""

    def __init__(self) -> None:
        self._code = [0]
        self._most_addresses = 0
        self._last: Op | None = None
        self._jumps: list[tuple[int, Label]] = []
        # Number of registers that the program uses: one more than the greatest index.
        self.registers = 0

    @property
    def instructions(self) -> Sequence[int]:
        """Instructions written so far, with jump targets unresolved."""
        return self._code

    # -- labels ----------------------------------------------------------------------------------------------------

    def label(self) -> Label:
        """Return a label for a later position."""
        return Label()

    def here(self, label: Label | None = None) -> Label:
        """Bind a label, or a new one, to the position of the next instruction and return it."""
        label = Label() if label is None else label
        if label.position is not None:
            raise InternalError(f"A label can be bound only once; it is at {label.position} already.")
        label.position = len(self._code)
        # A jump target is reachable.
        self._last = None
        return label

    def finish(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the bytecode. `run` takes its address, which is valid as long as the array lives."""
        if self._last not in _LEAVING:
            raise InternalError("A program must end with END, JUMP, SWITCH or a jump back.")
        code = np.array(self._code, dtype=np.int64)
        code[0] = self._most_addresses
        for position, label in self._jumps:
            if label.position is None:
                raise InternalError(f"The label of the jump at {position} was never bound.")
            code[position] = label.position
        return code

    # -- instructions ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        self._put(Op.END)

    def launch(self, kernel: int, count: int, addresses: Sequence[Address]) -> None:
        self._put(Op.LAUNCH, kernel, count, len(addresses), *self._addresses(*addresses))

    def parallel(self, kernel: int, count: int, grain: int, addresses: Sequence[Address]) -> None:
        self._put(Op.PARALLEL, kernel, count, grain, len(addresses), *self._addresses(*addresses))

    def call(self, routine: int, addresses: Sequence[Address], parameters: Sequence[int] = ()) -> None:
        self._put(Op.CALL, routine, len(addresses), len(parameters), *self._addresses(*addresses), *parameters)

    def copy(self, target: Address, source: Address, size: int) -> None:
        self._put(Op.COPY, *self._addresses(target, source), _size(size))

    def fill(self, target: Address, size: int) -> None:
        self._put(Op.FILL, *self._addresses(target), _size(size))

    def set(self, register: int, value: int) -> None:
        self._put(Op.SET, self._register(register), value)

    def add(self, register: int, value: int) -> None:
        self._put(Op.ADD, self._register(register), value)

    def set_address(self, register: int, address: Address, counter: int, stride: int) -> None:
        self._put(Op.SET_ADDRESS, self._register(register), *self._addresses(address), self._register(counter), stride)

    def read(self, register: int, address: Address, kind: int) -> None:
        kind = 8 if kind == -8 else kind
        if kind not in READ_KINDS:
            raise InternalError(f"A program cannot read an integer of kind {kind}.")
        self._put(Op.READ, self._register(register), *self._addresses(address), kind)

    def write(self, address: Address, register: int, size: int) -> None:
        if size not in WRITE_SIZES:
            raise InternalError(f"A program cannot write an integer of {size} bytes.")
        self._put(Op.WRITE, *self._addresses(address), self._register(register), size)

    def jump(self, target: Label) -> None:
        self._put(Op.JUMP if target.position is None else Op.REPEAT, target)

    def jump_less(self, a: int, b: int, target: Label) -> None:
        self._put(Op.JUMP_LESS, self._register(a), self._register(b), target)

    def jump_zero(self, register: int, target: Label) -> None:
        self._put(Op.JUMP_ZERO, self._register(register), target)

    def communicate(self, index: int) -> None:
        self._put(Op.COMMUNICATE, index)

    def switch(self, register: int, targets: Sequence[Label]) -> None:
        if not targets:
            raise InternalError("A switch of a program needs a target.")
        self._put(Op.SWITCH, self._register(register), len(targets), *targets)

    # -- encoding --------------------------------------------------------------------------------------------------

    def _put(self, op: Op, *operands: int | Label) -> None:
        self._last = op
        self._code.append(int(op))
        for operand in operands:
            if isinstance(operand, Label):
                self._jumps.append((len(self._code), operand))
                self._code.append(0)
            else:
                self._code.append(operand)

    def _register(self, index: int) -> int:
        if index < 0:
            raise InternalError(f"A program has no register {index}.")
        self.registers = max(self.registers, index + 1)
        return index

    def _addresses(self, *addresses: Address) -> list[int]:
        self._most_addresses = max(self._most_addresses, len(addresses))
        return [part for register, offset in addresses for part in (self._register(register), offset)]


def _size(size: int) -> int:
    if size < 0:
        raise InternalError(f"A program cannot copy {size} bytes.")
    return size


# ---------------------------------------------------------------------------------------------------- the native code


def interpreter_text(target: Target) -> str:
    """Return the LLVM module of `weft_interpret` and of its entry points for Python; it needs the functions of the
    pool."""
    written = _InterpreterText(target).module
    _write_run(written)
    _write_enter(written)
    spmd.write(written, target.triple)
    return written.text()


def _write_run(module: Module) -> None:
    """Write weft_run(code, registers): run the interpreter without the GIL."""
    parameters = [Parameter("code", ptr), Parameter("registers", ptr)]
    interrupt.write_without_gil(module, "weft_run", parameters, lambda f: _call_interpreter(f, *f.arguments))


def _write_enter(module: Module) -> None:
    """Write weft_enter(code, frame, passed, all): copy `passed` registers from `frame` to `all` registers on the stack,
    and run the interpreter. The caller's frame is only read, so it can be a bytes object."""

    def body(f: Function) -> Value:
        code, frame, passed, count = f.arguments
        registers = f.room(i64, count, 64)
        f.copy(registers, frame, f.mul(passed, constant(8, i64)))
        return _call_interpreter(f, code, registers)

    parameters = [Parameter("code", ptr), Parameter("frame", ptr), Parameter("passed", i64), Parameter("all", i64)]
    interrupt.write_without_gil(module, "weft_enter", parameters, body)
    # The same for threads that do not hold the GIL.
    f = module.function("weft_run_frame", i64, parameters)
    f.ret(body(f))


def _call_interpreter(f: Function, code: Value, registers: Value) -> Value:
    status = f.call("weft_interpret", i64, code, registers, f.offset(code, i64, 1))
    assert status is not None
    return status


class _InterpreterText:
    """Writer of the interpreter: a loop around a switch, with a block for each opcode."""

    def __init__(self, target: Target) -> None:
        self.module = Module(target.triple, vector_bits=target.vector_bits or 128)
        self.write_pieces()
        parameters = [Parameter("code", ptr), Parameter("registers", ptr), Parameter("start", ptr)]
        f = self.f = self.module.function("weft_interpret", i64, parameters)
        self.code, self.registers, start = f.arguments
        # The next instruction and the status. LLVM keeps both in machine registers.
        self.position, self.status = f.alloca(ptr, align=8), f.alloca(i64, align=8)
        addresses = f.load(i64, self.code, 8, invariant=True)
        self.table = f.room(ptr, f.smax(addresses, constant(1, i64)), 64)
        # Budget until the next check for interrupts: a machine register too.
        self.watch, self.budget = interrupt.watch(f, target.triple), f.alloca(i64, align=8)
        f.store(constant(interrupt.FIRST_BUDGET, i64), self.budget, 8)
        mode = float_mode.set_default(f, target.triple)
        f.store(constant(0, i64), self.status, 8)
        f.store(start, self.position, 8)
        self.step, self.look, self.leave = f.label("step"), f.label("look"), f.label("leave")
        self.interrupted = f.label("interrupted")
        labels = {op: f.label(op.name.lower()) for op in Op if op is not Op.END}
        unknown = f.label("unknown")
        f.branch(self.step)

        f.start(self.step)
        self.here = f.load(ptr, self.position, 8)
        f.switch(self.operand(0), unknown, {int(op): label for op, label in labels.items()} | {int(Op.END): self.leave})
        for op, label in labels.items():
            f.start(label)
            getattr(self, f"write_{op.name.lower()}")()

        f.start(unknown)
        f.store(constant(NOT_AN_INSTRUCTION, i64), self.status, 8)
        f.branch(self.leave)
        f.start(self.look)
        budget = interrupt.look(f, self.watch)
        f.store(budget, self.budget, 8)
        f.branch_if(f.icmp("eq", budget, constant(0, i64)), self.interrupted, self.step, unlikely=True)
        f.start(self.interrupted)
        f.store(constant(interrupt.INTERRUPTED, i64), self.status, 8)
        f.branch(self.leave)
        f.start(self.leave)
        float_mode.restore(f, mode)
        f.ret(f.load(i64, self.status, 8))

    def write_pieces(self) -> None:
        """Write pieces: a kernel that copies chunks, with a table of target, source and size in bytes."""
        parameters = [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)]
        f = self.module.function("pieces", void, parameters, linkage="internal")
        table, begin, end = f.arguments
        target, source = (f.load(ptr, f.offset(table, ptr, n), 8) for n in range(2))
        size, piece = f.load(i64, f.offset(table, i64, 2), 8), constant(COPY_PIECE, i64)
        first = f.mul(begin, piece)
        last = f.smin(f.mul(end, piece), size)
        f.copy(f.offset(target, i8, first), f.offset(source, i8, first), f.sub(last, first))
        f.ret()

    # -- operands --------------------------------------------------------------------------------------------------

    def operand(self, index: int | Value) -> Value:
        """Load the integer at an index of the instruction: 0 is the opcode."""
        return self.f.load(i64, self.f.offset(self.here, i64, index), 8, invariant=True)

    def register(self, index: int) -> Value:
        """Return the address of the register that is the operand at an index."""
        return self.f.offset(self.registers, i64, self.operand(index))

    def register_value(self, index: int) -> Value:
        """Load the value of the register that is the operand at an index."""
        return self.f.load(i64, self.register(index), 8)

    def address(self, index: int | Value) -> Value:
        """Compute the address that is the operand at an index."""
        f = self.f
        pair = f.offset(self.here, i64, index)
        register = f.load(i64, pair, 8, invariant=True)
        offset = f.load(i64, f.offset(pair, i64, 1), 8, invariant=True)
        return f.offset(f.load(ptr, f.offset(self.registers, i64, register), 8), i8, offset, inbounds=False)

    def fill_table(self, first: int, count: Value) -> None:
        """Fill the table with `count` addresses, which begin at an index of the instruction."""
        f = self.f
        with f.loop(0, count) as i:
            address = self.address(f.add(f.add(i, i), constant(first, i64)))
            f.store(address, f.offset(self.table, ptr, i), 8)

    def go(self, size: int | Value, cost: int = 0) -> None:
        """Continue with the instruction `size` integers later, after taking `cost` from the budget."""
        self.go_on(self.f.offset(self.here, i64, size), cost)

    def go_to(self, target: Value, cost: int = 0) -> None:
        """Continue at a position of the program."""
        self.go_on(self.f.offset(self.code, i64, target), cost)

    def go_on(self, position: Value, cost: int) -> None:
        f = self.f
        f.store(position, self.position, 8)
        if not cost:
            f.branch(self.step)
            return
        left = f.sub(f.load(i64, self.budget, 8), constant(cost, i64))
        f.store(left, self.budget, 8)
        f.branch_if(f.icmp("sle", left, constant(0, i64)), self.look, self.step, unlikely=True)

    def share(self, kernel: Value, table: Value, count: Value, grain: Value) -> None:
        """Run a job of the pool; leave the interpreter if it was interrupted."""
        f = self.f
        status = f.call("weft_parallel", i64, kernel, table, count, grain)
        assert status is not None
        fine = f.label("fine")
        f.branch_if(f.icmp("ne", status, constant(0, i64)), self.interrupted, fine, unlikely=True)
        f.start(fine)

    def after_addresses(self, first: int, count: Value) -> Value:
        """Return the index after `count` addresses that begin at index `first`."""
        return self.f.add(self.f.add(count, count), constant(first, i64))

    # -- instructions ----------------------------------------------------------------------------------------------

    def write_launch(self) -> None:
        f, addresses = self.f, self.operand(3)
        self.fill_table(4, addresses)
        f.call_pointer(f.inttoptr(self.operand(1), ptr), void, self.table, constant(0, i64), self.operand(2))
        self.go(self.after_addresses(4, addresses), cost=1)

    def write_parallel(self) -> None:
        f, addresses = self.f, self.operand(4)
        self.fill_table(5, addresses)
        self.share(f.inttoptr(self.operand(1), ptr), self.table, self.operand(2), self.operand(3))
        self.go(self.after_addresses(5, addresses), cost=interrupt.JOB_COST)

    def write_call(self) -> None:
        f, addresses = self.f, self.operand(2)
        self.fill_table(4, addresses)
        after = self.after_addresses(4, addresses)
        parameters = f.offset(self.here, i64, after)
        routine = f.inttoptr(self.operand(1), ptr)
        status = f.call_pointer(routine, i64, self.table, parameters, self.registers, self.watch)
        assert status is not None
        f.store(status, self.status, 8)
        failed, fine = f.label("failed"), f.label("fine")
        f.branch_if(f.icmp("ne", status, constant(0, i64)), failed, fine, unlikely=True)
        f.start(failed)
        f.branch(self.leave)
        f.start(fine)
        self.go(f.add(after, self.operand(3)), cost=interrupt.JOB_COST)

    def write_copy(self) -> None:
        f, target, source, size = self.f, self.address(1), self.address(3), self.operand(5)
        shared, alone = f.label("shared"), f.label("alone")
        # Chunks of overlapping ranges would be overwritten before they are read.
        apart = f.sub(f.ptrtoint(target, i64), f.ptrtoint(source, i64))
        distance = f.smax(apart, f.sub(constant(0, i64), apart))
        large = f.and_(f.icmp("sge", size, constant(SHARED_COPY, i64)), f.icmp("sge", distance, size))
        f.branch_if(large, shared, alone, unlikely=True)
        f.start(shared)
        table = f.alloca(i64, 3, 8)
        for i, value in enumerate((target, source, size)):
            f.store(value, f.offset(table, i64, i), 8)
        count = f.sdiv(f.add(size, constant(COPY_PIECE - 1, i64)), constant(COPY_PIECE, i64))
        self.share(self.module.address("pieces"), table, count, constant(1, i64))
        self.go(6, cost=interrupt.JOB_COST)
        f.start(alone)
        f.copy(target, source, size)
        self.go(6)

    def write_fill(self) -> None:
        self.f.fill(self.address(1), constant(0, i8), self.operand(3))
        self.go(4)

    def write_set(self) -> None:
        self.f.store(self.operand(2), self.register(1), 8)
        self.go(3)

    def write_add(self) -> None:
        self.f.store(self.f.add(self.register_value(1), self.operand(2)), self.register(1), 8)
        self.go(3)

    def write_set_address(self) -> None:
        f = self.f
        address = f.offset(self.address(2), i8, f.mul(self.register_value(4), self.operand(5)), inbounds=False)
        f.store(address, self.register(1), 8)
        self.go(6)

    def write_read(self) -> None:
        f, address, target, kind = self.f, self.address(2), self.register(1), self.operand(4)
        labels = {kind: f.label("read") for kind in READ_KINDS}
        f.switch(kind, labels[8], {kind: label for kind, label in labels.items() if kind != 8})
        for kind_read, label in labels.items():
            f.start(label)
            size = abs(kind_read)
            read = f.load(integer(8 * size), address, size)
            f.store((f.sext if kind_read < 0 else f.zext)(read, i64), target, 8)
            self.go(5)

    def write_write(self) -> None:
        f, address, value, size = self.f, self.address(1), self.register_value(3), self.operand(4)
        labels = {size: f.label("write") for size in WRITE_SIZES}
        f.switch(size, labels[8], {size: label for size, label in labels.items() if size != 8})
        for size_written, label in labels.items():
            f.start(label)
            f.store(f.trunc(value, integer(8 * size_written)), address, size_written)
            self.go(5)

    def write_jump(self) -> None:
        self.go_to(self.operand(1))

    def write_repeat(self) -> None:
        self.go_to(self.operand(1), cost=1)

    def write_jump_less(self) -> None:
        self.jump_if(self.f.icmp("slt", self.register_value(1), self.register_value(2)), 3)

    def write_jump_zero(self) -> None:
        self.jump_if(self.f.icmp("eq", self.register_value(1), constant(0, i64)), 2)

    def jump_if(self, condition: Value, target: int) -> None:
        """Jump to the target, which is the last operand, if the condition holds; otherwise continue after it."""
        f = self.f
        jump, stay = f.label("taken"), f.label("stay")
        f.branch_if(condition, jump, stay)
        f.start(jump)
        self.go_to(self.operand(target))
        f.start(stay)
        self.go(target + 1)

    def write_communicate(self) -> None:
        f = self.f
        after = f.offset(self.here, i64, 2)
        f.store(after, f.offset(self.registers, i64, constant(-1, i64)), 8)
        f.store(f.add(self.operand(1), constant(spmd.COMMUNICATES, i64)), self.status, 8)
        f.branch(self.leave)

    def write_switch(self) -> None:
        f = self.f
        last = f.sub(self.operand(2), constant(1, i64))
        chosen = f.smin(f.smax(self.register_value(1), constant(0, i64)), last)
        self.go_to(self.operand(f.add(chosen, constant(3, i64))))


@functools.cache
def interpreter_object(target: Target | None = None) -> Object:
    """Return the object code of the interpreter. It is compiled without passes, which takes a fifth of the time, and is
    as fast: all it does is load and call."""
    target = target or host()
    return objects.load_object("interpreter", lambda: interpreter_text(target), target, Tier.QUICK)


# The loaded interpreter.
library = link.load_once(lambda: interpreter_object(host()), lambda: pool.library().addresses)


@functools.cache
def _run() -> Callable[[Any, Any], int]:
    """Return `weft_run` of this process."""
    return interrupt.python_function(library(), "weft_run", ctypes.c_void_p, ctypes.c_void_p)


def run(code: int, registers: Any) -> int:
    """Run the program at an address, with registers given by address or as a ctypes array; return its status. Raise
    what a callback or a signal handler raised."""
    pool.prepare()
    return _run()(code, registers)


@functools.cache
def run_frame() -> int:
    """Return the address of `weft_run_frame`, which is `enter` without the GIL."""
    return library().addresses["weft_run_frame"]


@functools.cache
def run_devices() -> Callable[[int], int]:
    """Return `weft_run_devices` of this process, which runs the devices of a call (`spmd`) and returns a status."""
    return interrupt.python_function(library(), "weft_run_devices", ctypes.c_void_p)


@functools.cache
def enter() -> Callable[[int, bytes, int, int], int]:
    """Return `weft_enter` of this process, which is `run` with the first registers passed as bytes."""
    types = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64
    return interrupt.python_function(library(), "weft_enter", *types)
