"""Schedules: all of one contraction compute the same bits; the fastest is found and stored, and stays."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.host import compilation_of, compile_program
from weft import lax
from weft.base import settings
from weft.compiler import cache, schedules
from weft.compiler.program.ir import Call
from weft.compiler.schedules import FIRST, LIBRARY
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Libraries, Target
from weft.ir.jaxpr import Equation, Jaxpr
from weft.runtime.cpu import tuning
from weft.runtime.cpu.executable import Executable


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A place of its own for what is found, and products that are large although they are small."""
    monkeypatch.setattr(tuning, "LEAST", 0.0)
    monkeypatch.setattr(schedules, "_pins", {})
    path = tmp_path / "schedules"
    with settings.compilation_cache_dir(str(path)), settings.autotune_milliseconds(60_000):
        yield path


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


CONTRACTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "square": (lambda a, b: a @ b, (numbers(96, 96), numbers(96, 96))),
    "with an end": (lambda a, b: weft.numpy.tanh(a @ b + 1), (numbers(70, 33), numbers(33, 90))),
    "transposed": (lambda a, b: a @ b.T, (numbers(64, 100), numbers(80, 100))),
    "tall": (lambda a, b: a @ b, (numbers(500, 20), numbers(20, 30))),
    "batched": (lambda a, b: a @ b, (numbers(6, 30, 40), numbers(6, 40, 50))),
    "double": (lambda a, b: a @ b, (numbers(60, 70, dtype=np.float64), numbers(70, 50, dtype=np.float64))),
    "convolution": (conv, (numbers(2, 12, 12, 8), numbers(3, 3, 8, 16))),
}


def traced(name: str) -> tuple[Jaxpr, tuple[np.ndarray, ...]]:
    function, arguments = CONTRACTIONS[name]
    with weft.enable_x64(arguments[0].dtype == np.float64):
        return weft.make_jaxpr(function)(*arguments), arguments


def product_in(jaxpr: Jaxpr) -> Equation:
    (found,) = tuning._contractions(compile_program(jaxpr).fused)
    return found


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_all_schedules_compute_the_same_bits(name: str) -> None:
    jaxpr, arguments = traced(name)
    contest = tuning._contest(product_in(jaxpr), host())
    assert contest is not None and len(contest.names) > 1
    expected = None
    for schedule in contest.names:
        result = Executable(compile_program(jaxpr, schedules={contest.key: schedule}))
        assert result.program.schedules == {contest.key: schedule}
        found = np.asarray(result(list(arguments))[0]).tobytes()
        assert expected is None or found == expected
        expected = found


class Clock:
    """Time that only passes when a schedule runs, by how slow the test says it is."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.now, self.seconds = 0.0, seconds

    def perf_counter(self) -> float:
        return self.now

    def executable(self, contest: tuning.Contest, target: Any, name: str) -> Any:
        def run(arrays: Any) -> None:
            self.now += self.seconds.get(name, 1.0)

        return run


def race(
    monkeypatch: pytest.MonkeyPatch, jaxpr: Jaxpr, seconds: dict[str, float], target: Target | None = None
) -> dict[str, str]:
    """Compile with schedules whose times the test sets; return those that were chosen."""
    clock = Clock(seconds)
    with monkeypatch.context() as patched:
        patched.setattr(tuning, "time", clock)
        patched.setattr(tuning, "_executable", clock.executable)
        return compile_program(jaxpr, target=target, tune=tuning.tune).program.schedules


def test_the_fastest_is_stored_for_later_processes(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path) -> None:
    jaxpr, _ = traced("square")
    assert list(race(monkeypatch, jaxpr, {"2": 0.5}).values()) == ["2"]
    # Another process, on which the first would be quicker: what was found stays.
    monkeypatch.setattr(schedules, "_pins", {})
    assert list(race(monkeypatch, jaxpr, {FIRST: 0.1}).values()) == ["2"]
    assert list(compile_program(jaxpr).program.schedules.values()) == ["2"]


def test_noise_does_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr, _ = traced("square")
    assert list(race(monkeypatch, jaxpr, {"1": 0.97, "3": 0.99}).values()) == [FIRST]


def test_measuring_respects_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock({})
    monkeypatch.setattr(tuning, "time", clock)
    monkeypatch.setattr(tuning, "_executable", clock.executable)
    jaxpr = weft.make_jaxpr(lambda a, b: ((a @ b) @ numbers(50, 9), b @ numbers(50, 40)))(
        numbers(30, 40), numbers(40, 50)
    )
    with settings.autotune_milliseconds(2_500):
        compile_program(jaxpr, tune=tuning.tune)
    assert clock.now < 2.5 + 2 * tuning.MOST_SCHEDULES
    measured = len(schedules._pins)
    with settings.autotune_milliseconds(1_000_000):
        compile_program(jaxpr, tune=tuning.tune)
    assert 0 < measured < len(schedules._pins)


def test_a_stored_program_is_rebuilt_for_a_new_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr, _ = traced("square")
    compilation_of(jaxpr)
    assert compilation_of(jaxpr).details is None
    race(monkeypatch, jaxpr, {"1": 0.5})
    changed = compilation_of(jaxpr)
    assert changed.details is not None and list(changed.program.schedules.values()) == ["1"]
    assert compilation_of(jaxpr).details is None


def either(own: bool) -> Target:
    """A machine on which products of any size may be a library's, or are our own unless they were measured."""
    own_dtypes = frozenset({np.dtype(np.float32)}) if own else frozenset()
    return replace(host(), libraries=Libraries(contraction_size=1, own_dtypes=own_dtypes))


@pytest.mark.parametrize("winner", [LIBRARY, FIRST, "1"])
@pytest.mark.parametrize("own", [False, True])
def test_a_library_or_our_own_kernels(monkeypatch: pytest.MonkeyPatch, own: bool, winner: str) -> None:
    """Whichever is the default, each of them can be chosen."""
    a, b = numbers(40, 50), numbers(50, 40)
    jaxpr = weft.make_jaxpr(lambda a, b: (a @ b) @ (a @ b))(a, b)
    assert set(race(monkeypatch, jaxpr, {winner: 0.1}, either(own)).values()) == {winner}
    out = Executable(compile_program(jaxpr, target=either(own)))
    calls = [step for step in out.program.all_steps() if isinstance(step, Call)]
    assert len(calls) == (2 if winner == LIBRARY else 0)
    (result,) = out([a, b])
    expected = np.linalg.matrix_power(a.astype(np.float64) @ b.astype(np.float64), 2)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-3)


def test_unmeasured_choices_are_stored_too(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = weft.make_jaxpr(lambda a, b: a @ b)(numbers(40, 50), numbers(50, 30))
    first = compile_program(jaxpr, target=either(True)).program.schedules
    assert race(monkeypatch, jaxpr, {LIBRARY: 0.1, "1": 0.2, FIRST: 1.0}, either(True)) == first


def test_nothing_is_measured_without_a_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr, _ = traced("square")
    monkeypatch.setattr(tuning, "_winner", lambda *args: pytest.fail("measured"))
    with settings.compilation_cache(False):
        assert set(compile_program(jaxpr, tune=tuning.tune).program.schedules.values()) == {FIRST}


def test_jit_measures_and_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    winner = tuning._winner
    monkeypatch.setattr(tuning, "_winner", lambda *args: calls.append(args) or winner(*args))
    a = numbers(64, 64)

    def function(a: Any) -> Any:
        return a @ a

    with settings.autotune_milliseconds(0):
        plain = np.asarray(weft.jit(function)(a))
    assert not calls
    weft.clear_caches()
    tuned = np.asarray(weft.jit(function)(a))
    assert calls
    assert tuned.tobytes() == plain.tobytes()


def test_the_first_of_two_concurrent_pins_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr, _ = traced("square")
    key = schedules.make_key(jaxpr, 0, host())
    assert key is not None
    with monkeypatch.context() as patched:
        # The other one writes after this one has looked.
        patched.setattr(schedules, "get_pin", lambda key: None)
        cache.store_schedule(key, "2")
        assert schedules.pin(key, "1") == "2"
    monkeypatch.setattr(schedules, "_pins", {})
    assert schedules.get_pin(key) == "2"
