"""Driver of many devices: one program, a register file for each device, and no thread that waits for another.

Every device runs until it ends or stops at a collective. When all devices of a group have stopped at the same one, the
collective runs: it is a small program of its own, whose arguments are the operands of all members and whose results are
those of all members. Then the members continue. If no device can continue, the devices are at different collectives or
have ended: that is an error, not a deadlock.

The driver's state is an array of integers, a *call*; `CALL` and `ENTRY` name its words.
"""

from __future__ import annotations

from enum import IntEnum

from weft.compiler.target.cpu import interrupt
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i8, i64, ptr, void

# Status of a program that has stopped at its first collective; those of the others follow.
COMMUNICATES = 1 << 32
# State of a device that can continue, and the status of a call in which no device can.
READY, MISMATCH = -1, 1 << 33


class CALL(IntEnum):
    """Words of a call: the bytecode; the number of devices; their register files; their states (READY, 0 when ended, or
    a status); the collectives; whether devices run in the threads of the pool; the device that failed."""

    CODE = 0
    DEVICES = 1
    REGISTERS = 2
    STATES = 3
    COLLECTIVES = 4
    PARALLEL = 5
    FAILED = 6


class ENTRY(IntEnum):
    """Words of a collective: the bytecode of its program; its registers, their initial values and the bytes of these;
    the number of members of a group; for each device the list of its group's members; the number of operands and
    results of each member, and their addresses as pairs of a register and an offset; the register of the first
    argument."""

    CODE = 0
    REGISTERS = 1
    TEMPLATE = 2
    BYTES = 3
    MEMBERS = 4
    GROUPS = 5
    SLOTS = 6
    ADDRESSES = 7
    FIRST = 8


def write(module: Module, triple: str) -> None:
    """Write the driver into the module of the interpreter."""
    _write_run_some(module)
    _write_communicate(module)
    _write_drive(module, triple)
    interrupt.write_without_gil(
        module, "weft_run_devices", [Parameter("call", ptr)], lambda f: _call(f, "weft_drive", f.arguments[0])
    )


def _call(f: Function, name: str, *args: Value) -> Value:
    status = f.call(name, i64, *args)
    assert status is not None
    return status


def _word(f: Function, base: Value, index: int | Value) -> Value:
    return f.load(i64, f.offset(base, i64, index), 8)


def _pointer(f: Function, base: Value, index: int | Value) -> Value:
    return f.load(ptr, f.offset(base, i64, index), 8)


def _write_run_some(module: Module) -> None:
    """Write run_some(call, begin, end): run the devices of a range that can continue."""
    parameters = [Parameter("call", ptr), Parameter("begin", i64), Parameter("end", i64)]
    f = module.function("run_some", void, parameters, linkage="internal")
    call, begin, end = f.arguments
    code, files, states = (_pointer(f, call, n) for n in (CALL.CODE, CALL.REGISTERS, CALL.STATES))
    with f.loop(begin, end) as device:
        run, after = f.label("run"), f.label("after")
        f.branch_if(f.icmp("eq", _word(f, states, device), constant(READY, i64)), run, after)
        f.start(run)
        registers = _pointer(f, files, device)
        start = _pointer(f, registers, constant(-1, i64))
        f.store(_call(f, "weft_interpret", code, registers, start), f.offset(states, i64, device), 8)
        f.branch(after)
        f.start(after)
    f.ret()


def _write_communicate(module: Module) -> None:
    """Write communicate(call, entry, members): run a collective for one group."""
    parameters = [Parameter("call", ptr), Parameter("collective", ptr), Parameter("members", ptr)]
    f = module.function("communicate", i64, parameters, linkage="internal")
    call, entry, members = f.arguments
    files = _pointer(f, call, CALL.REGISTERS)
    code, registers, template, addresses = (
        _pointer(f, entry, n) for n in (ENTRY.CODE, ENTRY.REGISTERS, ENTRY.TEMPLATE, ENTRY.ADDRESSES)
    )
    f.copy(registers, template, _word(f, entry, ENTRY.BYTES))
    count, first = _word(f, entry, ENTRY.MEMBERS), f.offset(registers, i64, _word(f, entry, ENTRY.FIRST))
    with f.loop(0, _word(f, entry, ENTRY.SLOTS)) as slot:
        pair = f.offset(addresses, i64, f.add(slot, slot))
        register, offset = _word(f, pair, 0), _word(f, pair, 1)
        row = f.offset(first, i64, f.mul(slot, count))
        with f.loop(0, count) as member:
            own = _pointer(f, files, _word(f, members, member))
            address = f.offset(_pointer(f, own, register), i8, offset, inbounds=False)
            f.store(address, f.offset(row, i64, member), 8)
    f.ret(_call(f, "weft_interpret", code, registers, f.offset(code, i64, 1)))


def _write_drive(module: Module, triple: str) -> None:
    """Write weft_drive(call): run all devices to their ends and return a status."""
    f = module.function("weft_drive", i64, [Parameter("call", ptr)])
    (call,) = f.arguments
    watch = interrupt.watch(f, triple)
    budget = f.alloca(i64, align=8)
    f.store(constant(interrupt.FIRST_BUDGET, i64), budget, 8)
    count, states = _word(f, call, CALL.DEVICES), _pointer(f, call, CALL.STATES)
    collectives = _pointer(f, call, CALL.COLLECTIVES)
    device, progress, waiting = (f.alloca(i64, align=8) for _ in range(3))
    zero, one = constant(0, i64), constant(1, i64)
    labels = {
        name: f.label(name)
        for name in (
            *("round", "shared", "alone", "ran", "check", "each", "stopped", "failed", "at", "group", "ended"),
            *("someone", "next", "checked", "look", "interrupted", "stuck", "done", "stays", "goes"),
        )
    }
    f.branch(labels["round"])

    f.start(labels["round"])
    f.branch_if(f.icmp("ne", _word(f, call, CALL.PARALLEL), zero), labels["shared"], labels["alone"])
    f.start(labels["shared"])
    status = _call(f, "weft_parallel", module.address("run_some"), call, count, one)
    f.branch_if(f.icmp("ne", status, zero), labels["interrupted"], labels["ran"], unlikely=True)
    f.start(labels["alone"])
    f.call("run_some", void, call, zero, count)
    f.branch(labels["ran"])

    f.start(labels["ran"])
    for variable in (device, progress, waiting):
        f.store(zero, variable, 8)
    f.branch(labels["check"])
    f.start(labels["check"])
    d = f.load(i64, device, 8)
    f.branch_if(f.icmp("slt", d, count), labels["each"], labels["checked"])
    f.start(labels["each"])
    state = _word(f, states, d)
    idle = f.or_(f.icmp("eq", state, zero), f.icmp("eq", state, constant(READY, i64)))
    f.branch_if(idle, labels["next"], labels["stopped"])
    f.start(labels["stopped"])
    index = f.sub(state, constant(COMMUNICATES, i64))
    f.branch_if(f.icmp("slt", index, zero), labels["failed"], labels["at"], unlikely=True)
    f.start(labels["failed"])
    f.store(d, f.offset(call, i64, CALL.FAILED), 8)
    f.ret(state)

    f.start(labels["at"])
    entry = f.offset(collectives, i64, f.mul(index, constant(len(ENTRY), i64)))
    members = _pointer(f, _pointer(f, entry, ENTRY.GROUPS), d)
    size = _word(f, entry, ENTRY.MEMBERS)
    missing = f.alloca(i64, align=8)
    f.store(zero, missing, 8)
    with f.loop(0, size) as member:
        other = _word(f, states, _word(f, members, member))
        absent = f.zext(f.icmp("ne", other, state), i64)
        f.store(f.add(f.load(i64, missing, 8), absent), missing, 8)
    f.branch_if(f.icmp("ne", f.load(i64, missing, 8), zero), labels["stays"], labels["group"])
    f.start(labels["stays"])
    f.store(one, waiting, 8)
    f.branch(labels["next"])
    f.start(labels["group"])
    status = _call(f, "communicate", call, entry, members)
    f.branch_if(f.icmp("ne", status, zero), labels["someone"], labels["goes"], unlikely=True)
    f.start(labels["someone"])
    f.store(d, f.offset(call, i64, CALL.FAILED), 8)
    f.ret(status)
    f.start(labels["goes"])
    with f.loop(0, size) as member:
        f.store(constant(READY, i64), f.offset(states, i64, _word(f, members, member)), 8)
    f.store(one, progress, 8)
    f.branch(labels["next"])

    f.start(labels["next"])
    f.store(f.add(f.load(i64, device, 8), one), device, 8)
    f.branch(labels["check"])

    f.start(labels["checked"])
    f.branch_if(f.icmp("ne", f.load(i64, progress, 8), zero), labels["look"], labels["ended"])
    f.start(labels["ended"])
    f.branch_if(f.icmp("ne", f.load(i64, waiting, 8), zero), labels["stuck"], labels["done"], unlikely=True)
    f.start(labels["stuck"])
    f.ret(constant(MISMATCH, i64))
    f.start(labels["done"])
    f.ret(zero)

    f.start(labels["look"])
    left = f.sub(f.load(i64, budget, 8), one)
    f.store(left, budget, 8)
    asks, goes_on = f.label("asks"), f.label("goes_on")
    f.branch_if(f.icmp("sle", left, zero), asks, labels["round"], unlikely=True)
    f.start(asks)
    more = interrupt.look(f, watch)
    f.store(more, budget, 8)
    f.branch_if(f.icmp("eq", more, zero), labels["interrupted"], goes_on, unlikely=True)
    f.start(goes_on)
    f.branch(labels["round"])
    f.start(labels["interrupted"])
    f.ret(constant(interrupt.INTERRUPTED, i64))
