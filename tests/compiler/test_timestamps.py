"""Programs that time their steps: the same bits, every step counted, ordered events; and WEFT_DUMP."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.base import tree
from weft.base.spans import now
from weft.compiler.program.ir import Call, Launch, Loop
from weft.compiler.program.times import TIMED
from weft.compiler.provenance import costs, get_lines, step_lines
from weft.compiler.target.cpu import timestamps
from weft.compiler.target.cpu.targets import host

Sample = tuple[Callable[..., Any], tuple[Any, ...]]


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, _: (wnp.sin(c) + 1, c.sum()), x, None, length=7)


def nested(x: Any) -> Any:
    def inner(c: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, v: v * 0.5 + i, c)

    return lax.while_loop(lambda c: c.sum() < 40, lambda c: inner(c) + 1, x)


SAMPLES: dict[str, Sample] = {
    "elementwise": (lambda x: wnp.tanh(x) * 2 + x[::-1], (np.linspace(-2, 2, 1000, dtype=np.float32),)),
    "scan": (scanned, (np.ones((8, 8), np.float32),)),
    "while": (nested, (np.ones(16, np.float32),)),
    "cond": (lambda x: lax.cond(x.sum() > 0, wnp.sin, wnp.cos, x), (np.ones(16, np.float32),)),
    "library": (lambda x: wnp.linalg.cholesky(x @ x.T + 9 * wnp.eye(6)), (np.ones((6, 6), np.float32),)),
    "tiles": (lambda x: wnp.linalg.eigh(x + x.swapaxes(1, 2))[0] + 1, (np.ones((64, 8, 8), np.float32),)),
    "argument": (lambda x, y: (x, y + 1), (np.ones(3, np.float32), np.ones(3, np.float32))),
    "empty": (lambda x: (), (np.ones(3, np.float32),)),
}


def get_executable(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    found = weft.jit(function).lower(*args).compile().runtime_executable()
    found.compilation.complete()  # another test may have stored the program on disk, without its lines
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_timed_programs_compute_the_same_bits(name: str) -> None:
    function, args = SAMPLES[name]
    executable = get_executable(function, args)
    arrays = [np.asarray(a) for a in tree.leaves(args)]
    plain = executable(arrays)
    start = now()
    timed, log = executable.run_timed(arrays, 1000)
    end = now()
    for a, b in zip(plain, timed, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert [t.step for t in log.times] == [s for s in executable.program.all_steps() if isinstance(s, TIMED)]
    events = log.events
    assert log.dropped == 0 and len(events) == sum(t.runs for t in log.times)
    # One after the other, within the time of the run; and the sums are those of the events.
    moments = events[:, 1:].reshape(-1)
    assert np.all(np.diff(moments) >= 0)
    assert not len(events) or start <= moments[0] <= moments[-1] <= end
    for i, time in enumerate(log.times):
        own = events[events[:, 0] == i]
        assert time.runs == len(own) and time.nanoseconds == (own[:, 2] - own[:, 1]).sum()


@pytest.mark.parametrize("name", SAMPLES)
def test_dispatched_calls_are_timed_too(name: str) -> None:
    function, args = SAMPLES[name]
    f = weft.jit(function)
    inputs = tuple(wnp.asarray(a) for a in args)
    want = [np.asarray(leaf).tobytes() for leaf in tree.leaves(f(*inputs))]
    with weft.profile(quiet=True) as profile:
        for _ in range(5):
            assert [np.asarray(leaf).tobytes() for leaf in tree.leaves(f(*inputs))] == want
    assert f._table.by_hint
    _, log = get_executable(function, args).run_timed([np.asarray(a) for a in args])
    assert sum(k.runs for k in profile.kernels) == 5 * sum(t.runs for t in log.times)


def test_tiles_are_recorded() -> None:
    function, args = SAMPLES["tiles"]
    assert any(isinstance(s, Call) and s.tiles for s in get_executable(function, args).program.all_steps())


def test_steps_of_loops_count_their_iterations() -> None:
    executable = get_executable(scanned, (np.ones((8, 8), np.float32),))
    _, log = executable.run_timed([np.ones((8, 8), np.float32)])
    inside = {s for step in executable.program.steps if isinstance(step, Loop) for s in step.body}
    assert {t.runs for t in log.times if t.step in inside} == {7}
    assert {t.runs for t in log.times if t.step not in inside} <= {1}


def test_a_full_log_goes_on_counting() -> None:
    executable = get_executable(scanned, (np.ones((8, 8), np.float32),))
    _, log = executable.run_timed([np.ones((8, 8), np.float32)], events=3)
    total = sum(t.runs for t in log.times)
    assert total > 7 and len(log.events) == 3 and log.dropped == total - 3


def test_a_branch_that_is_not_taken_has_no_runs() -> None:
    function, args = SAMPLES["cond"]
    executable = get_executable(function, args)
    _, log = executable.run_timed([args[0]])
    assert {t.runs for t in log.times} == {0, 1}


def test_calls_of_python_are_timed() -> None:
    calls = []

    def slow(x: Any) -> Any:
        calls.append(now())
        while now() < calls[-1] + 2_000_000:
            pass
        return x

    shape = weft.ShapeDtypeStruct((3,), np.float32)
    executable = get_executable(lambda x: weft.pure_callback(slow, shape, x) + 1, (np.ones(3, np.float32),))
    _, log = executable.run_timed([np.ones(3, np.float32)])
    (time,) = [t for t in log.times if isinstance(t.step, Call)]
    assert len(calls) == time.runs == 1 and time.nanoseconds >= 2_000_000


def test_the_timestamp_module_compiles_for_other_machines() -> None:
    for triple in ("aarch64-apple-darwin", "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"):
        assert timestamps.can_time(triple) and "clock_gettime" in timestamps.text(triple)
    assert not timestamps.can_time("x86_64-pc-windows-msvc") and timestamps.can_time(host().triple)


# -- where steps come from ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_every_step_has_a_line_and_shares_add_up(name: str) -> None:
    function, args = SAMPLES[name]
    program = get_executable(function, args).program
    for step in program.all_steps():
        shares = step_lines(step)
        if isinstance(step, (Launch, Call)):
            assert step.origin is not None and shares
        if shares:
            assert sum(shares.values()) == pytest.approx(1) and min(shares.values()) >= 0
        if step.origin is not None:
            assert set(shares) >= set(get_lines(step.origin))


@pytest.mark.parametrize("name", ["elementwise", "library", "argument"])
def test_costs_of_steps_add_up_to_those_of_the_program(name: str) -> None:
    function, args = SAMPLES[name]
    executable = get_executable(function, args)
    whole = executable.inside.cost_analysis()
    found = [c for s, c in costs(executable.program.all_steps()).items() if isinstance(s, (Launch, Call))]
    assert sum(c.flops for c in found) == pytest.approx(whole["flops"])
    assert sum(c.functions for c in found) == pytest.approx(whole["transcendentals"])
    assert sum(c.bytes for c in found) == pytest.approx(whole["bytes accessed"])


# -- dumps -------------------------------------------------------------------------------------------------------------


def test_a_dump_has_every_stage_with_its_time(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path))

    def dumped(x: Any) -> Any:
        return wnp.sin(x).sum() * 5

    compiled = weft.jit(dumped).lower(np.ones(9, np.float32)).compile()
    (folder,) = [f for f in tmp_path.iterdir() if "dumped" in f.name]
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert "20_program.txt" in texts and compiled.program in texts["20_program.txt"]
    # Better code than the quick one is taken where an earlier test has made it.
    assembly = f"23_assembly_{compiled.runtime_executable().tier.name.lower()}.s"
    for name, text in compiled.kernels.items():
        assert name in texts["21_kernels.txt"] and text in texts["21_kernels.txt"]
        assert f"@{name}(" in texts["22_llvm.ll"] and f"{name}:" in texts[assembly]
    for name, text in texts.items():
        if name != "00_traced.txt":
            assert re.match(r"[#;] .*\d+\.\d+ ms", text), name
    # Better code is another text of assembly.
    compiled.runtime_executable().optimise()
    assert (folder / "23_assembly_light.s").read_text().startswith("# tier light")
