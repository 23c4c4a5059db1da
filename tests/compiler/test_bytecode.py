"""The bytecode interpreter: each instruction, loops, branches, status, threads, and the floating-point mode."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.compiler.native_kernels import FLUSHING, address, chunk_sums, kernels, set_mode, this_thread
from tests.compiler.test_pool import in_child, in_thread, until
from weft.base.errors import InternalError
from weft.base.settings import num_threads
from weft.compiler.program.outline import Address
from weft.compiler.target.cpu import bytecode, link
from weft.compiler.target.cpu.bytecode import COPY_PIECE, SHARED_COPY, BytecodeAssembler, Label, Op
from weft.compiler.target.cpu.targets import aarch64

ROUTINE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.POINTER(ctypes.c_int64)] * 3)
# Registers that hold the addresses of the arrays given to `run`, and the first free one.
FIRST_FREE = 8


def run(program: BytecodeAssembler, *arrays: np.ndarray[Any, Any], registers: Sequence[int] = ()) -> list[int]:
    """The registers after a program: arrays are in 0, 1, ..., and `registers` from FIRST_FREE on."""
    status, held = run_status(program, *arrays, registers=registers)
    assert status == 0
    return held


def run_status(
    program: BytecodeAssembler, *arrays: np.ndarray[Any, Any], registers: Sequence[int] = ()
) -> tuple[int, list[int]]:
    """As `run`, for a program that may fail: the status too."""
    code = program.finish()
    addresses = [array.ctypes.data for array in arrays]
    held = (ctypes.c_int64 * 16)(*addresses, *[0] * (FIRST_FREE - len(addresses)), *registers)
    assert program.registers <= len(held)
    status = bytecode.run(code.ctypes.data, held)
    return status, list(held)


def routine(function: Callable[[Any, Any, Any], int]) -> Any:
    """A routine in Python, and its address as `.address`; keep it while it may be called."""
    result = ROUTINE(function)
    result.address = ctypes.cast(result, ctypes.c_void_p).value
    return result


# -- instructions ------------------------------------------------------------------------------------------------------


def test_end() -> None:
    program = BytecodeAssembler()
    program.end()
    assert program.finish().tolist() == [0, Op.END]
    assert run(program, registers=[1, 2, 3])[8:11] == [1, 2, 3]


def test_launch_passes_addresses() -> None:
    x = np.arange(10, dtype=np.float32)
    program = BytecodeAssembler()
    program.launch(address("add_one"), 3, [Address(0, 8)])
    program.launch(address("add_one"), 0, [Address(0)])
    program.launch(address("empty"), 5, [])
    program.end()
    run(program, x)
    assert x.tolist() == [0, 1, 3, 4, 5, 5, 6, 7, 8, 9]
    assert program.finish()[0] == 1


def test_launch_with_many_addresses() -> None:
    data, sums = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    program = BytecodeAssembler()
    program.launch(address("sum"), 100, [Address(0), Address(1, 4 * 7), *[Address(0, n) for n in range(40)]])
    program.launch(address("sum"), 10, [Address(0, 40), Address(1)])
    program.end()
    assert program.finish()[0] == 42
    run(program, data, sums)
    assert (sums[7], sums[0]) == (4950, 145)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_parallel_sums_do_not_depend_on_the_number_of_threads(threads: int, rng: np.random.Generator) -> None:
    for count in (1, 2, 17, 1000, 4096):
        for grain in (1, 16, 100, 5000):
            data, sums = rng.standard_normal(count).astype(np.float32), np.zeros(count, np.float32)
            program = BytecodeAssembler()
            program.parallel(address("sum"), count, grain, [Address(0), Address(1)])
            program.end()
            with num_threads(threads):
                run(program, data, sums)
            assert sums.tobytes() == chunk_sums(data, grain).tobytes()


def test_parallel_uses_as_many_threads_as_the_setting_says() -> None:
    names = np.zeros(40, np.int64)
    program = BytecodeAssembler()
    program.parallel(address("who"), 40, 1, [Address(0)])
    program.end()

    def threads() -> set[int]:
        run(program, names)
        return set(names.tolist())

    for _ in range(2):
        with num_threads(2):
            assert until(lambda: len(threads()) == 2)
        with num_threads(1):
            assert threads() == {this_thread()}


def test_call_passes_the_table_and_registers() -> None:
    seen = []

    def f(table: Any, numbers: Any, registers: Any) -> int:
        seen.append((table[0], table[1], numbers[0], numbers[1], numbers[2], registers[8]))
        registers[9] = 77
        return 0

    called = routine(f)
    x = np.zeros(4)
    program = BytecodeAssembler()
    program.call(called.address, [Address(0), Address(0, 24)], [5, -6, 1 << 60])
    program.call(called.address, [Address(0, 8), Address(8, -1)], [1, 2, 3])
    program.end()
    held = run(program, x, registers=[12])
    start = x.ctypes.data
    assert seen == [(start, start + 24, 5, -6, 1 << 60, 12), (start + 8, 11, 1, 2, 3, 12)]
    assert held[9] == 77


@pytest.mark.parametrize("status", [1, -1, 1 << 40, -(1 << 63)])
def test_a_status_ends_the_program(status: int) -> None:
    failing, fine = routine(lambda *_: status), routine(lambda *_: 0)
    program = BytecodeAssembler()
    program.set(8, 1)
    program.call(fine.address, [])
    program.call(failing.address, [])
    program.set(8, 2)
    program.end()
    got, held = run_status(program)
    assert (got, held[8]) == (status, 1)


@pytest.mark.parametrize("size", [SHARED_COPY - 1, SHARED_COPY, SHARED_COPY + 1, 3 * COPY_PIECE * 4 + 77])
def test_copy_by_several_threads(size: int) -> None:
    source = np.random.default_rng(0).integers(0, 255, size + 64).astype(np.uint8)
    target = np.zeros(size + 64, np.uint8)
    shifted = source.copy()
    program = BytecodeAssembler()
    program.copy(Address(1, 8), Address(0, 5), size)
    program.copy(Address(2, 9), Address(2), size)  # they overlap
    program.end()
    run(program, source, target, shifted)
    np.testing.assert_array_equal(target[8 : size + 8], source[5 : size + 5])
    assert not target[:8].any() and not target[size + 8 :].any()
    np.testing.assert_array_equal(shifted[9 : size + 9], source[:size])


def test_copy_and_fill() -> None:
    x, y = np.arange(1, 9, dtype=np.int32), np.zeros(8, np.int32)
    program = BytecodeAssembler()
    program.copy(Address(1, 4), Address(0, 8), 12)
    program.copy(Address(0, 4), Address(0), 24)  # they overlap
    program.fill(Address(0, 28), 4)
    program.fill(Address(0), 0)
    program.copy(Address(1), Address(0), 0)
    program.end()
    run(program, x, y)
    assert x.tolist() == [1, 1, 2, 3, 4, 5, 6, 0] and y.tolist() == [0, 3, 4, 5, 0, 0, 0, 0]


def test_registers() -> None:
    program = BytecodeAssembler()
    program.set(8, -5)
    program.add(8, 1 << 40)
    program.set(9, 3)
    program.add(9, -10)
    program.end()
    assert run(program)[8:10] == [(1 << 40) - 5, -7]


def test_a_pointer_advances_with_a_counter() -> None:
    x = np.arange(10, dtype=np.float32)
    program = BytecodeAssembler()
    program.set_address(9, Address(0, 8), 8, 12)
    program.launch(address("add_one"), 1, [Address(9, 4)])
    program.set_address(9, Address(0, 36), 8, -4)
    program.launch(address("add_one"), 1, [Address(9)])
    program.end()
    held = run(program, x, registers=[2])
    assert held[9] == x.ctypes.data + 36 - 8
    assert x.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 8, 10]


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_read_every_integer(dtype: str) -> None:
    kind = np.dtype(dtype)
    values = [0, 1] if kind.kind == "b" else [np.iinfo(kind).min, np.iinfo(kind).max, 1]
    x = np.array(values, kind)
    for position, value in enumerate(x):
        program = BytecodeAssembler()
        program.set(8, -1)
        program.read(8, Address(0, position * kind.itemsize), -kind.itemsize if kind.kind == "i" else kind.itemsize)
        program.end()
        assert run(program, x)[8] == int(np.array(value).astype(np.int64))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_write_does_not_touch_neighbours(size: int) -> None:
    x = np.full(16, 0xAB, np.uint8)
    program = BytecodeAssembler()
    program.write(Address(0, 4), 8, size)
    program.end()
    run(program, x, registers=[-2])
    expected = b"\xab" * 4 + (-2).to_bytes(size, "little", signed=True) + b"\xab" * (12 - size)
    assert x.tobytes() == expected


def test_jumps_are_signed_and_strict() -> None:
    for a, b in ((1, 2), (2, 1), (-1, 1), (1, -1), (3, 3), (-(1 << 63), (1 << 63) - 1), (0, 0)):
        program = BytecodeAssembler()
        less, zero = program.label(), program.label()
        program.jump_less(8, 9, less)
        program.set(10, 1)
        program.here(less)
        program.jump_zero(8, zero)
        program.set(11, 1)
        program.here(zero)
        program.end()
        held = run(program, registers=[a, b, 0, 0])
        assert held[10:12] == [int(a >= b), int(a != 0)]


@pytest.mark.parametrize("index, chosen", [(-(1 << 63), 0), (-1, 0), (0, 0), (1, 1), (2, 2), (3, 2), (1 << 62, 2)])
def test_switch_takes_the_nearest_target(index: int, chosen: int) -> None:
    program = BytecodeAssembler()
    targets, after = [program.label() for _ in range(3)], program.label()
    program.switch(8, targets)
    for i, target in enumerate(targets):
        program.here(target)
        program.set(9, i)
        program.jump(after)
    program.here(after)
    program.end()
    assert run(program, registers=[index, -1])[9] == chosen


# -- programs ----------------------------------------------------------------------------------------------------------


def loop(program: BytecodeAssembler, counter: int, count: int, body: Callable[[], None]) -> None:
    """`for counter in range(count)`, with the limit in the register after the counter."""
    after, test = program.label(), program.label()
    program.set(counter, 0)
    program.set(counter + 1, count)
    program.jump(test)
    top = program.here()
    body()
    program.add(counter, 1)
    program.here(test)
    program.jump_less(counter, counter + 1, top)
    program.jump(after)
    program.here(after)


@pytest.mark.parametrize("rows, columns", [(0, 3), (3, 0), (1, 1), (4, 6)])
def test_nested_loops(rows: int, columns: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = x.copy()
    expected[:rows, :columns] += 1
    program = BytecodeAssembler()

    def column() -> None:
        program.set_address(13, Address(12), 10, 4)
        program.launch(address("add_one"), 1, [Address(13)])

    def row() -> None:
        program.set_address(12, Address(0), 8, 24)
        loop(program, 10, columns, column)

    loop(program, 8, rows, row)
    program.end()
    held = run(program, x)
    np.testing.assert_array_equal(x, expected)
    assert held[8] == rows


def test_a_loop_that_runs_while_memory_says_so() -> None:
    # Fibonacci numbers in two registers; a routine says when to stop.
    flag, out = np.ones(1, np.bool_), np.zeros(1, np.int64)

    def judge(table: Any, numbers: Any, registers: Any) -> int:
        flag[0] = registers[9] < numbers[0]
        return 0

    judged = routine(judge)
    program = BytecodeAssembler()
    top, after = program.label(), program.label()
    program.set(8, 0)
    program.set(9, 1)
    program.set(12, 0)
    program.here(top)
    program.call(judged.address, [], [1000])
    program.read(10, Address(0), 1)
    program.jump_zero(10, after)
    program.set_address(11, Address(8), 9, 1)  # the sum of two registers
    program.set_address(8, Address(9), 12, 1)  # register 12 holds 0, so this is a move
    program.set_address(9, Address(11), 12, 1)
    program.jump(top)
    program.here(after)
    program.write(Address(1), 9, 8)
    program.end()
    run(program, flag, out)
    assert out[0] == 1597


def test_many_parallel_launches_in_one_program() -> None:
    x = np.zeros(256, np.float32)
    program = BytecodeAssembler()
    loop(program, 8, 20_000, lambda: program.parallel(address("add_one"), 256, 32, [Address(0)]))
    program.end()
    for threads in (1, 2):
        with num_threads(threads):
            run(program, x)
    assert (x == 40_000).all()


def test_python_threads_run_programs_at_once() -> None:
    barrier = threading.Barrier(3)

    def work() -> bool:
        x = np.zeros(512, np.float32)
        program = BytecodeAssembler()
        loop(program, 8, 2000, lambda: program.parallel(address("add_one"), 512, 16, [Address(0)]))
        program.end()
        barrier.wait()
        with num_threads(2):
            for _ in range(5):
                run(program, x)
        return bool((x == 10_000).all())

    waits = [in_thread(work) for _ in range(2)]
    assert work() and all(wait() for wait in waits)


def test_a_program_runs_in_a_forked_process() -> None:
    def work() -> bool:
        x = np.zeros(512, np.float32)
        program = BytecodeAssembler()
        program.parallel(address("add_one"), 512, 16, [Address(0)])
        program.end()
        with num_threads(2):
            run(program, x)
        return bool((x == 1).all())

    assert work() and in_child(work) and work()


def test_a_routine_may_run_a_program() -> None:
    x = np.zeros(4, np.float32)
    inner = BytecodeAssembler()
    inner.launch(address("add_one"), 4, [Address(0)])
    inner.end()
    again = routine(lambda *_: run_status(inner, x)[0])
    outer = BytecodeAssembler()
    loop(outer, 8, 3, lambda: outer.call(again.address, []))
    outer.end()
    run(outer, x)
    assert x.tolist() == [3] * 4


# -- floats ------------------------------------------------------------------------------------------------------------


def test_denormals_do_not_depend_on_the_mode_of_the_thread() -> None:
    x = np.full(1000, np.finfo(np.float32).tiny, np.float32)
    program = BytecodeAssembler()
    program.launch(address("half"), 1000, [Address(0)])
    program.parallel(address("half"), 1000, 10, [Address(0)])
    program.end()
    code, held = program.finish(), (ctypes.c_int64 * 2)(x.ctypes.data)
    with num_threads(2):
        before = set_mode(FLUSHING)
        try:
            direct = np.full(1, np.finfo(np.float32).tiny, np.float32)
            kernels().run("half", [direct.ctypes.data])
            status = bytecode.run(code.ctypes.data, held)
        finally:
            after = set_mode(before)
    assert direct[0] == 0  # the mode is one that flushes
    assert status == 0 and (x == np.finfo(np.float32).tiny / 4).all()
    assert after & ~0x3F == FLUSHING & ~0x3F


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_an_invalid_instruction_ends_the_program() -> None:
    for word in (len(Op), -1, 1 << 40):
        code = np.array([0, word], np.int64)
        assert bytecode.run(code.ctypes.data, None) == bytecode.NOT_AN_INSTRUCTION


def nowhere(program: BytecodeAssembler) -> None:
    program.jump(Label())
    program.finish()


def twice(program: BytecodeAssembler) -> None:
    program.here(program.here())


WRONG: dict[str, Callable[[BytecodeAssembler], object]] = {
    "must end with END": lambda p: p.finish(),
    "was never bound": nowhere,
    "already": twice,
    "no register -1": lambda p: p.set(-1, 0),
    "no register -2": lambda p: p.launch(0, 1, [Address(-2)]),
    "kind 3": lambda p: p.read(0, Address(0), 3),
    "of 3 bytes": lambda p: p.write(Address(0), 0, 3),
    "-4 bytes": lambda p: p.copy(Address(0), Address(1), -4),
    "-8 bytes": lambda p: p.fill(Address(0), -8),
    "needs a target": lambda p: p.switch(0, []),
}


@pytest.mark.parametrize("message", WRONG)
def test_the_assembler_refuses_mistakes(message: str) -> None:
    program = BytecodeAssembler()
    program.set(0, 1)
    with pytest.raises(InternalError, match=message):
        WRONG[message](program)


def test_a_program_may_not_run_off_its_end() -> None:
    program = BytecodeAssembler()
    after = program.label()
    program.jump(after)
    program.here(after)
    with pytest.raises(InternalError, match="must end with END"):
        program.finish()


def test_other_machines_have_the_interpreter() -> None:
    code = bytecode.interpreter_object(aarch64())
    assert code.exports[:3] == ("weft_interpret", "weft_run", "weft_enter") and "weft_parallel" in code.imports


def test_threads_that_are_the_first_to_ask_get_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would free the code of the first, whose addresses somebody has."""
    loads: list[object] = []

    def load(code: object, symbols: object) -> object:
        time.sleep(0.01)
        loads.append(object())
        return loads[-1]

    monkeypatch.setattr(link, "load", load)
    begin = threading.Barrier(8)
    library = link.load_once(lambda: begin.wait(10), dict)  # type: ignore[arg-type, return-value]
    with ThreadPoolExecutor(8) as threads:
        found = [future.result() for future in [threads.submit(library) for _ in range(8)]]
    assert len(loads) == 1 and all(each is loads[0] for each in found)
