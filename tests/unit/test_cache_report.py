"""Cache report: every trace of a function, with its cause, line and cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp


def counted(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """Return a function, and the number of runs of its body: one for each time that it was staged."""
    count = [0]

    def body(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return function(*args, **kwargs)

    return body, count


def test_every_trace_is_in_the_report(rng: np.random.Generator) -> None:
    body, count = counted(lambda x, scale: wnp.sin(x) * scale)
    f = weft.jit(body, static_argnames="scale")
    for _ in range(60):
        size, scale = int(rng.integers(1, 5)), float(rng.integers(1, 3))
        dtype = rng.choice([np.float32, np.int32])
        with weft.numpy_rank_promotion(str(rng.choice(["allow", "warn"]))):
            f(np.ones(size, dtype), scale=scale)
        if rng.random() < 0.1:
            f.clear_cache()
    report = f.cache_report()
    assert len(report) == report.total == count[0] > 8
    assert all(miss.line is not None and miss.line.file == __file__ for miss in report)
    assert all(miss.retained and miss.trace_seconds > 0 and miss.cause for miss in report)


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (lambda f: f({"w": wnp.ones(3)}, 1.0), "params['w']: now f32[3], before f32[2]"),
        (lambda f: f({"w": wnp.ones(2)}, 1), "x: now i32[]"),
        (lambda f: f({"w": wnp.ones(2), "b": 0.0}, 1.0), "keys in only one of them: ['b']"),
        (lambda f: f({"w": wnp.ones(2)}, 1.0, mode="fast"), "static arguments"),
        (lambda f: (f.clear_cache(), f({"w": wnp.ones(2)}, 1.0)), "was forgotten"),
    ],
)
def test_the_cause_names_what_differs(call: Callable[[Any], Any], cause: str) -> None:
    @weft.jit
    def plain(params: Any, x: Any) -> Any:
        return x

    def loss(params: Any, x: Any, mode: str = "slow") -> Any:
        return x

    f = weft.jit(loss, static_argnames="mode") if "static" in cause else plain
    f({"w": wnp.ones(2)}, 1.0)
    call(f)
    first, second = f.cache_report()
    assert "never staged before" in first.cause and cause in second.cause
    assert cause in str(f.cache_report())


def test_the_nearest_signature_is_the_one_that_differs_least(caplog: pytest.LogCaptureFixture) -> None:
    @weft.jit
    def f(x: Any, n: Any = 2) -> Any:
        return x * n

    f(wnp.ones(4))
    f(wnp.ones(3))
    f(wnp.ones(4), n=3)
    with weft.explain_cache_misses(True), caplog.at_level(logging.WARNING, logger="weft"):
        f(wnp.ones(4, dtype=wnp.int32))
    cause = "x: now i32[4], before f32[4]"
    assert cause in f.cache_report()[-1].cause and cause in caplog.text


def test_cache_hits_are_not_misses() -> None:
    f = weft.jit(lambda x: x + 1)
    for _ in range(5):
        f(wnp.ones(3))
    assert len(f.cache_report()) == 1 and f.cache_report().signatures == 1


def test_compiling_is_counted_when_it_happens() -> None:
    f = weft.jit(lambda x: wnp.cos(x) * 7)
    lowered = f.lower(wnp.ones(3))
    (miss,) = f.cache_report()
    assert miss.compiles == [] and "not compiled on its own" in str(miss)
    executable = lowered.compile().runtime_executable()
    (cost,) = miss.compiles
    stats = cost.compile_stats[0]
    assert miss.compile_seconds == cost.total > 0
    assert stats.compiled + stats.from_disk + stats.reused == len(executable.kernels) == 1
    assert {"passes", "emit", "memory"} <= set(cost.seconds)
    before = miss.compile_seconds
    executable.optimise()
    assert len(cost.compile_stats) == 2 and miss.compile_seconds > before
    assert "light code" in str(miss)


def test_a_function_that_closes_over_traced_values_says_so() -> None:
    functions = []

    @weft.jit
    def outer(x: Any) -> Any:
        @weft.jit
        def inner(y: Any) -> Any:
            return y * x

        functions.append(inner)
        return inner(x) + inner(x)

    outer(wnp.ones(3))
    report = functions[0].cache_report()
    assert len(report) == 2 and report.signatures == 0
    assert not any(miss.retained for miss in report) and "closes over" in str(report)


def test_old_misses_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.jit(lambda x: x)
    f._cache.misses = type(f._cache.misses)(maxlen=3)
    for size in range(5):
        f.trace(np.ones(size, np.float32))
    report = f.cache_report()
    assert (len(report), report.total) == (3, 5) and "\n3. " in str(report) and "\n2. " not in str(report)


def test_log_compiles_logs_tracing_and_compilation(caplog: pytest.LogCaptureFixture) -> None:
    @weft.jit
    def told(x: Any) -> Any:
        return wnp.exp(x) - 3

    with weft.log_compiles(True), caplog.at_level(logging.WARNING, logger="weft"):
        told(wnp.ones(4))
        said = caplog.text
        told(wnp.ones(4))
    assert "Finished tracing told in" in said and "never staged before" in said
    assert "Finished compiling told in" in said and "emit" in said and "test_cache_report.py:" in said
    assert caplog.text == said
