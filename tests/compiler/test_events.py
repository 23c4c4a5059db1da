"""Asynchronous steps and memory spaces: the same bits as without them, and every mistake is detected."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program, interpret
from tests.compiler.memory import elements
from tests.compiler.started_steps import start_everything
from tests.compiler.test_program import PROGRAMS, arrays_of, compilation_of, whole
from tests.fuzz.checks import case_of
from tests.fuzz.generator import NO_RULE, generate
from weft import lax
from weft.base.errors import InternalError
from weft.compiler.compile import Compilation
from weft.compiler.load import from_steps
from weft.compiler.program import stored
from weft.compiler.program.assign import assign
from weft.compiler.program.cost import estimate
from weft.compiler.program.ir import (
    Call,
    Copy,
    Count,
    Event,
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
from weft.compiler.program.printer import step_texts, to_text
from weft.compiler.program.times import TIMED
from weft.compiler.program.verifier import verify
from weft.compiler.provenance import costs
from weft.compiler.target.cpu.assemble import Assembly
from weft.runtime.cpu.executable import Executable

# -------------------------------------------------------------------------------------------------------------- laws


def bytes_of(results: Sequence[Any]) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in results]


def copies(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [a.copy() for a in arrays]


def check_started(compilation: Compilation, arrays: Sequence[np.ndarray], seeds: Sequence[int], native: bool) -> None:
    """A program whose steps are started has the bits that it had, compiled and interpreted."""
    plain = Executable(compilation)
    expected = [bytes_of(plain(copies(arrays)))]
    if native:
        plain.optimise()
        expected.append(bytes_of(plain(copies(arrays))))
    interpreted = bytes_of(interpret(compilation.program, copies(arrays)))
    content = stored.to_bytes(compilation.program)
    nanoseconds = compilation.program.nanoseconds
    for seed in seeds:
        again = compile_program(compilation.traced, [a.donated for a in compilation.program.arguments])
        assert stored.to_bytes(again.program) == content, "compiling it again returns another program"
        program = verify(start_everything(again.program, seed))
        inner = [step.step for step in program.all_steps() if isinstance(step, Start)]
        movable = [step for step in program.all_steps() if isinstance(step, Launch | Call | Copy)]
        assert inner == movable
        assert estimate(program, again.target.kernel) == pytest.approx(nanoseconds)
        executable = Executable(again)
        assert bytes_of(executable(copies(arrays))) == expected[0]
        if native:
            executable.optimise()
            assert bytes_of(executable(copies(arrays))) == expected[1]
        assert bytes_of(interpret(program, copies(arrays))) == interpreted
        check_stored(again, arrays, expected[0])


def check_stored(compilation: Compilation, arrays: Sequence[np.ndarray], expected: list[bytes]) -> None:
    content = stored.to_bytes(compilation.program)
    if content is None:
        return
    name = compilation.traced.name
    program = stored.from_bytes(content, name)
    assert stored.to_bytes(program) == content
    donated = [a.donated for a in program.arguments]
    again = from_steps(compilation.traced, donated, program, compilation.target)
    assert bytes_of(Executable(again)(copies(arrays))) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_started_steps_change_no_bit(name: str) -> None:
    function, args = PROGRAMS[name]
    check_started(compilation_of(function, *args), arrays_of(function, *args), range(2), native=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_started_steps_and_donated_arguments(name: str) -> None:
    function, args = PROGRAMS[name]
    donated = (True,) * len(weft.tree.leaves(args))
    check_started(compilation_of(function, *args, donated=donated), arrays_of(function, *args), [2], native=False)


def called(x: Any) -> Any:
    """Libraries, and Python whose calls keep their order."""
    product = x @ wnp.linalg.solve(x @ x.T + 9 * wnp.eye(6), x)
    once = weft.pure_callback(lambda a: a * 2, weft.ShapeDtypeStruct((6, 6), np.float32), product)
    return weft.pure_callback(lambda a: a + 1, weft.ShapeDtypeStruct((6, 6), np.float32), once), wnp.sort(x) + once


def test_calls_of_libraries_and_of_python_are_started_too() -> None:
    check_started(compilation_of(called, whole(6, 6)), [whole(6, 6)], range(3), native=False)


def check_random(seed: int) -> None:
    with suppress(*NO_RULE):
        case = case_of(replace(generate(seed), checks=False))
        with weft.enable_x64(case.wide):
            compilation = compile_program(case.jaxpr, case.donated)
            if elements(compilation.program) < 20_000:
                check_started(compilation, case.arrays, [seed], native=False)


def test_random_programs() -> None:
    for seed in range(8):
        check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        check_random(seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_verifier_accepts_has_the_same_bits(name: str) -> None:
    """Steps are started where they may not be, too: whoever reads too early or writes too early is found."""
    function, args = PROGRAMS[name]
    compilation, arrays = compilation_of(function, *args), arrays_of(function, *args)
    expected = bytes_of(interpret(compilation.program, copies(arrays)))
    for seed in range(3):
        program = start_everything(compilation_of(function, *args).program, seed, reckless=True)
        try:
            verify(program)
        except InternalError:
            continue
        assert bytes_of(interpret(program, copies(arrays))) == expected


# -------------------------------------------------------------------------------------------- programs written by hand


class Example:
    """Two arguments and two results of 64 bytes, and temporaries."""

    def __init__(self) -> None:
        self.a, self.b = (Slot(Kind.ARGUMENT, 64, n) for n in range(2))
        self.x, self.y = (Slot(Kind.RESULT, 64, n) for n in range(2))
        self.t, self.u = (Slot(Kind.TEMPORARY, 64) for _ in range(2))
        self.e, self.f = Event(), Event()

    def program(self, *steps: Step) -> Program:
        arguments, results = [self.a, self.b], [self.x, self.y]
        return assign(Program("example", list(steps), arguments, results, [None, None], []))


A, B = np.arange(16, dtype=np.float32), np.arange(16, 32, dtype=np.float32)


def copied(target: Slot, source: Slot) -> Copy:
    return Copy(target, source, 64)


def test_the_text_of_started_steps() -> None:
    m = Example()
    program = m.program(
        Start(copied(m.t, m.a), m.e),
        Start(copied(m.x, m.b), m.f),
        Wait(m.e),
        copied(m.y, m.t),
        Wait(m.f),
    )
    assert to_text(verify(program)) == (
        "program example: temporaries 64 bytes, constants 0 bytes\n"
        "  start e0: t0[64@0] = copy in0 (64 bytes)\n"
        "  start e1: out0 = copy in1 (64 bytes)\n"
        "  wait e0\n"
        "  out1 = copy t0[64@0] (64 bytes)\n"
        "  wait e1"
    )
    lines = step_texts(program)
    start, *_, wait = program.steps
    assert isinstance(start, Start)
    assert lines[start] == f"start e0: {lines[start.step]}" and lines[wait] == "wait e1"
    content = stored.to_bytes(program)
    assert content is not None and to_text(stored.from_bytes(content, "example")) == to_text(program)
    for got, want in zip(interpret(program, [A, B]), [B, A], strict=True):
        np.testing.assert_array_equal(got.view(np.float32), want)


def test_memory_of_a_started_step_lasts_to_its_wait() -> None:
    def temporaries(started: bool) -> Program:
        m = Example()
        first: list[Step] = [copied(m.t, m.a), copied(m.x, m.t)]
        later: list[Step] = [copied(m.u, m.b), copied(m.y, m.u)]
        if started:
            first[1] = Start(first[1], m.e)
            later.append(Wait(m.e))
        return verify(m.program(*first, *later))

    assert temporaries(False).temporary_bytes == 64
    assert temporaries(True).temporary_bytes == 128


MISTAKES: dict[str, tuple[Callable[[Example], list[Step]], str]] = {
    "no wait": (
        lambda m: [Start(copied(m.x, m.a), m.e), copied(m.y, m.b)],
        "`start e0: out0 = copy in0 .* must be waited for in the same block",
    ),
    "early read": (
        lambda m: [Start(copied(m.x, m.a), m.e), copied(m.y, m.x), Wait(m.e)],
        "`out1 = copy out0 .* reads result0.* before the end of `start e0: out0 = copy in0",
    ),
    "early read by what is started": (
        lambda m: [Start(copied(m.x, m.a), m.e), Start(copied(m.y, m.x), m.f), Wait(m.e), Wait(m.f)],
        "`start e1: out1 = copy out0 .* reads result0.* before the end of `start e0: out0 = copy in0",
    ),
    "early write of what is read": (
        lambda m: [copied(m.t, m.a), Start(copied(m.x, m.t), m.e), copied(m.t, m.b), Wait(m.e), copied(m.y, m.t)],
        "= copy in1 .* writes temporary.* before the end of `start e0: out0 = copy t0",
    ),
    "early write of what is written": (
        lambda m: [Start(copied(m.x, m.a), m.e), copied(m.x, m.b), Wait(m.e), copied(m.y, m.x)],
        "`out0 = copy in1 .* writes result0.* before the end of",
    ),
    "wait before start": (
        lambda m: [Wait(m.e), Start(copied(m.x, m.a), m.e), copied(m.y, m.b)],
        "`wait e0` comes before the start of `out0 = copy in0",
    ),
    "wait without start": (
        lambda m: [copied(m.x, m.a), copied(m.y, m.b), Wait(m.e)],
        "`wait e0` waits for an event that no step starts",
    ),
    "two waits": (
        lambda m: [Start(copied(m.x, m.a), m.e), Wait(m.e), copied(m.y, m.b), Wait(m.e)],
        "`wait e0` must not wait again for `start e0: out0 = copy in0",
    ),
    "an event used twice": (
        lambda m: [Start(copied(m.x, m.a), m.e), Wait(m.e), Start(copied(m.y, m.b), m.e), Wait(m.e)],
        "Every start must have its own event; `start e0: out1 = copy in1 .* has that of `start e0: out0 = copy in0",
    ),
    "wait in another block": (
        lambda m: [
            Start(copied(m.x, m.a), m.e),
            Loop(FrameRegister("counter"), FrameRegister("bound"), 1, False, [Wait(m.e), copied(m.y, m.b)], object()),
        ],
        "`wait e0` must be in the same block as `start e0",
    ),
    "what cannot be started": (
        lambda m: [Start(Fill(m.x), m.e), Wait(m.e), copied(m.y, m.b)],
        "`start e0: out0 = zeros` must start a launch, a call, a copy or a collective",
    ),
    "a loop that reads too early": (
        lambda m: [
            Start(copied(m.t, m.a), m.e),
            Loop(FrameRegister("counter"), FrameRegister("bound"), 1, False, [copied(m.x, m.t)], object()),
            Wait(m.e),
            copied(m.y, m.t),
        ],
        "`for counter0 below 1 .*` reads temporary.* before the end of `start e0: t0",
    ),
    "a condition that is asked too early": (
        lambda m: [
            copied(m.t, m.a),
            Start(copied(m.t, m.b), m.e),
            While([], m.t, FrameRegister("test"), [copied(m.x, m.a)], object()),
            Wait(m.e),
            copied(m.y, m.b),
        ],
        "`while:` reads temporary.* before the end of `start e0: t0",
    ),
    "a slice that is read too early": (
        lambda m: [
            Start(copied(m.t, m.a), m.e),
            *sliced(m, lambda part: [Copy(m.x, part, 16)]),
            Wait(m.e),
            copied(m.y, m.t),
        ],
        "reads pointed.* before the end of `start e0: t0",
    ),
    "a slice that points elsewhere": (
        lambda m: [copied(m.t, m.a), copied(m.y, m.t), *sliced(m, lambda part: moved_while_read(m, part))],
        "points pointed.* elsewhere before the end of",
    ),
    "calls of Python in another order": (
        lambda m: [Start(python(m.x, m.a), m.e), python(m.y, m.b), Wait(m.e)],
        "`out1 = host .* uses Python before the end of `start e0: out0 = host",
    ),
}


def python(target: Slot, source: Slot) -> Call:
    def host(value: np.ndarray, out: Sequence[np.ndarray]) -> None:
        out[0][...] = value

    types = (((16,), np.float32),) * 2
    return Call("host", (source, target), (target,), host=host, types=types, results=1, label="identity")


def sliced(m: Example, body: Callable[[Slot], list[Step]]) -> list[Step]:
    """A loop over slices of `t`."""
    counter = FrameRegister("counter")
    part = Slot(Kind.POINTED, 16, register=FrameRegister("pointer"))
    steps: list[Step] = [SetAddress(part, m.t, counter, 16), *body(part)]
    return [Loop(counter, FrameRegister("bound"), 4, False, steps, object())]


def moved_while_read(m: Example, part: Slot) -> list[Step]:
    counter = FrameRegister("counter")
    again = SetAddress(part, m.t, counter, 16)
    inner = Loop(counter, FrameRegister("bound"), 1, False, [again], object())
    return [Start(Copy(m.x, part, 16), m.e), inner, Wait(m.e)]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_detected(name: str) -> None:
    steps, message = MISTAKES[name]
    m = Example()
    with pytest.raises(InternalError, match=message):
        verify(m.program(*steps(m)))


@pytest.mark.parametrize(
    "name, message",
    [
        ("no wait", "copy was started, but no step waits for it"),
        ("early read", r"Byte 0 of result1\[64\] was never written, and the program ends"),
        ("wait before start", "A step waits for an event that was not started"),
        ("two waits", "A step waits for an event that was not started"),
    ],
)
def test_the_interpreter_detects_them_too(name: str, message: str) -> None:
    m = Example()
    with pytest.raises(InternalError, match=message):
        interpret(m.program(*MISTAKES[name][0](m)), [A, B])


def test_the_interpreter_runs_what_was_started_at_its_end() -> None:
    m = Example()
    steps, _ = MISTAKES["early write of what is read"]
    late, _ = interpret(m.program(*steps(m)), [A, B])
    np.testing.assert_array_equal(late.view(np.float32), B)


def test_results_of_a_started_step_cannot_be_read_early() -> None:
    """Also where older values are: in a donated argument."""
    m = Example()
    m.a.donated = True
    steps = [Start(copied(m.a, m.b), m.e), python(m.x, m.a), Wait(m.e), copied(m.y, m.a)]
    with pytest.raises(InternalError, match=r"Byte 0 of argument0\[64\] was never written, and identity reads it"):
        interpret(m.program(*steps), [A.copy(), B])


def test_memory_planned_without_the_wait_is_detected() -> None:
    m = Example()
    steps: list[Step] = [copied(m.t, m.a), copied(m.x, m.t), copied(m.u, m.b), copied(m.y, m.u)]
    program = verify(m.program(*steps))
    program.steps = [steps[0], Start(steps[1], m.e), *steps[2:], Wait(m.e)]
    with pytest.raises(InternalError, match="overlap"):
        verify(program)
    late, _ = interpret(program, [A, B])
    np.testing.assert_array_equal(late.view(np.float32), B)


# ------------------------------------------------------------------------------------------------------ memory spaces


def across(m: Example) -> Program:
    """The first argument through memory of the host, while the second is copied."""
    there = Slot(Kind.TEMPORARY, 64, space="host")
    second = Slot(Kind.TEMPORARY, 64, space="host")
    return m.program(
        copied(m.t, m.a),
        Start(copied(there, m.t), m.e),
        copied(second, m.b),
        copied(m.u, second),
        Wait(m.e),
        copied(m.x, there),
        copied(m.y, m.u),
    )


SPACES = ("device", "host")


def test_every_memory_space_has_a_block() -> None:
    program = verify(across(Example()), SPACES)
    assert program.temporary_bytes == 128 and program.space_bytes == {"host": 128}
    assert to_text(program) == (
        "program example: temporaries 128 bytes, constants 0 bytes, temporaries in host 128 bytes\n"
        "  t0[64@0] = copy in0 (64 bytes)\n"
        "  start e0: t1[64@0 host] = copy t0[64@0] (64 bytes)\n"
        "  t2[64@64 host] = copy in1 (64 bytes)\n"
        "  t3[64@64] = copy t2[64@64 host] (64 bytes)\n"
        "  wait e0\n"
        "  out0 = copy t1[64@0 host] (64 bytes)\n"
        "  out1 = copy t3[64@64] (64 bytes)"
    )
    for got, want in zip(interpret(program, [A, B]), [A, B], strict=True):
        np.testing.assert_array_equal(got.view(np.float32), want)
    content = stored.to_bytes(program)
    assert content is not None
    again = stored.from_bytes(content, "example")
    assert to_text(again) == to_text(program) and again.space_bytes == program.space_bytes
    assert json.loads(content.partition(b"\n")[0])["space_bytes"] == {"host": 128}


def test_registers_come_after_the_blocks_of_spaces() -> None:
    m = Example()
    aside = Slot(Kind.TEMPORARY, 64, space="host")
    loop = sliced(m, lambda part: [Copy(m.y, part, 16)])
    fill = Fill(m.y)
    program = verify(m.program(copied(aside, m.a), copied(m.t, aside), fill, *loop, copied(m.x, m.t)), SPACES)
    first, second = interpret(program, [A, B])
    np.testing.assert_array_equal(first.view(np.float32), A)
    np.testing.assert_array_equal(second.view(np.float32)[:4], A[12:])


def test_a_cpu_has_one_memory_space() -> None:
    program = across(Example())
    with pytest.raises(InternalError, match=r"temporary\[64 host\] is in the memory space 'host'; .* has 'device'"):
        verify(program)
    with pytest.raises(InternalError, match="A program for a CPU must use one memory space"):
        Assembly(program, lambda _: 0, 0, 0)


WRONG_SPACES: dict[str, tuple[Callable[[Example, Slot], list[Step]], str]] = {
    "a routine": (
        lambda m, s: [copied(s, m.a), python(m.x, s), copied(m.y, s)],
        r"`out0 = host .* needs temporary\[64 host\] in the memory space 'device'",
    ),
    "a started routine": (
        lambda m, s: [Start(python(s, m.a), m.e), Wait(m.e), copied(m.x, s), copied(m.y, s)],
        r"needs temporary\[64 host\] in the memory space 'device'",
    ),
    "a counter": (
        lambda m, s: [
            Loop(counter := FrameRegister("counter"), FrameRegister("bound"), 1, False, [Count(s, counter)], object()),
            copied(m.x, m.a),
            copied(m.y, m.a),
        ],
        r"needs temporary\[64 host\] in the memory space 'device'",
    ),
    "a slice": (
        lambda m, s: [
            copied(s, m.a),
            copied(m.t, m.a),
            *sliced(m, lambda part: [SetAddress(part, s, FrameRegister("counter", 3), 16), Copy(m.x, part, 16)]),
            copied(m.y, m.a),
        ],
        r"is in another memory space than temporary\[64 host\]",
    ),
}


@pytest.mark.parametrize("name", WRONG_SPACES)
def test_only_copies_cross_spaces(name: str) -> None:
    steps, message = WRONG_SPACES[name]
    m = Example()
    with pytest.raises(InternalError, match=message):
        verify(m.program(*steps(m, Slot(Kind.TEMPORARY, 64, space="host"))), SPACES)


def test_spaces_of_arguments_results_and_constants() -> None:
    m = Example()
    m.a.space = m.x.space = "host"
    program = verify(m.program(copied(m.x, m.a), copied(m.y, m.a)), SPACES)
    assert "out0[host] = copy in0[host]" in to_text(program)
    program.aliases[0] = 0
    m.a.donated, m.x.space = True, "device"
    program.steps.pop(0)
    with pytest.raises(InternalError, match="Result 0 has the memory of an argument in another memory space"):
        verify(program, SPACES)
    program.constant_slots.append(Slot(Kind.CONSTANT, 64, 0, space="host"))
    with pytest.raises(InternalError, match="Constants must be in the memory space 'device'"):
        verify(program, SPACES)


def test_a_kernel_has_its_slots_in_the_default_space() -> None:
    program = compilation_of(lambda x: wnp.sort(x * 2.0), whole(8)).program
    launch = next(step for step in program.all_steps() if isinstance(step, Launch))
    launch.slots[0].space = "host"
    with pytest.raises(InternalError, match=r"kernel 0 .* needs argument0\[32 host\] in the memory space 'device'"):
        verify(program, SPACES)


# ------------------------------------------------------------------------------------------------------- looking inside


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, row: (wnp.sort(c) + row, c.sum()), x[0] @ x, x)


def test_started_steps_are_timed_and_explained() -> None:
    x = whole(6, 6)
    compilation = compilation_of(scanned, x)
    spent = sum(cost.bytes for cost in costs(compilation.program.all_steps()).values())
    start_everything(compilation.program, 0)
    assert sum(cost.bytes for cost in costs(compilation.program.all_steps()).values()) == spent
    executable = Executable(compilation)
    plain = executable([x])
    timed, log = executable.run_timed([x], 1000)
    assert bytes_of(timed) == bytes_of(plain)
    steps = [s for s in executable.program.all_steps() if isinstance(s, TIMED)]
    assert [time.step for time in log.times] == steps and all(time.runs for time in log.times)
    texts = step_texts(executable.program)
    assert all(step in texts for step in executable.program.all_steps())
    executable.inside.verify()
    assert "start e0: " in executable.inside.program()


def test_assigning_memory_again_changes_nothing() -> None:
    program = compilation_of(scanned, whole(6, 6)).program
    content = stored.to_bytes(program)
    assert stored.to_bytes(assign(program)) == content
