"""Ctrl-C and alarms stop compiled programs, exceptions of callbacks propagate, and everything works afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.runtime.cpu import tiers

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no alarms on this system")
SCALAR = weft.ShapeDtypeStruct((), np.float32)
# Programs run for hours unless they are stopped; on a machine with other work a stop may take longer than the promised
# fifth of a second.
FOREVER, PATIENCE = 1 << 30, 5.0


class Alarm(Exception):
    """Raised by the handler of the tests."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Set an alarm that raises after some seconds."""

    def ring(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def stopped(call: Callable[[], Any], alarm: Callable[[float], None], after: float = 0.05) -> float:
    """Seconds from an alarm until a call raised it; the less of two, since others may use the processors."""
    took = []
    for _ in range(2):
        start = time.monotonic()
        alarm(after)
        with pytest.raises(Alarm):
            weft.block_until_ready(call())
        took.append(time.monotonic() - start - after)
    return min(took)


def scalar_loop(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < FOREVER, lambda c: (c[0] + 1, c[1] * 0.5 + 1), (0, x))


def counted_loop(x: Any) -> Any:
    return lax.fori_loop(0, FOREVER, lambda i, c: wnp.sin(c) + i, x)


def nested_loop(x: Any) -> Any:
    inner = lambda c: lax.fori_loop(0, 1000, lambda i, c: wnp.sin(c) + i, c)
    return lax.while_loop(lambda c: c[0] < FOREVER, lambda c: (c[0] + 1, inner(c[1])), (0, x))


def library_loop(x: Any) -> Any:
    return lax.fori_loop(0, FOREVER, lambda i, c: wnp.linalg.qr(c)[0] + 1, x)


def parallel_loop(x: Any) -> Any:
    return lax.fori_loop(0, FOREVER, lambda i, c: wnp.tanh(c @ c), x)


LOOPS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "scalars": (scalar_loop, np.float32(1)),
    "vectors": (counted_loop, np.ones(8, np.float32)),
    "large vectors": (counted_loop, np.ones(1 << 18, np.float32)),
    "loops in loops": (nested_loop, np.ones(8, np.float32)),
    "library calls": (library_loop, np.ones((16, 16), np.float32)),
    "matrices": (parallel_loop, np.ones((256, 256), np.float32)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_an_alarm_stops_a_loop(name: str, alarm: Callable[[float], None]) -> None:
    function, x = LOOPS[name]
    jitted = weft.jit(function)
    compiled = jitted.lower(x).compile()  # an alarm that comes while it compiles is another matter
    assert stopped(lambda: compiled(x), alarm) < PATIENCE
    with pytest.raises(Alarm):  # the second call asks for better code
        alarm(0.05)
        weft.block_until_ready(jitted(x))
    tiers.wait(30)
    assert stopped(lambda: jitted(x), alarm) < PATIENCE


@pytest.mark.timing
def test_a_stop_comes_soon(alarm: Callable[[float], None]) -> None:
    jitted = weft.jit(scalar_loop)
    jitted.lower(np.float32(1)).compile()
    assert min(stopped(lambda: jitted(np.float32(1)), alarm) for _ in range(3)) < 0.2


def test_loops_outside_of_jit_stop_too(alarm: Callable[[float], None]) -> None:
    assert stopped(lambda: scalar_loop(np.float32(1)), alarm, 0.3) < PATIENCE


def test_handlers_that_do_not_raise_run_and_the_program_continues() -> None:
    rang: list[float] = []
    count = 3_000_000
    jitted = weft.jit(lambda n: lax.fori_loop(0, n, lambda i, c: wnp.sin(c) + 1, wnp.zeros(8)))
    expected = np.asarray(jitted(count))
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        start = time.monotonic()
        for _ in range(20):
            found = np.asarray(jitted(count))
            if len([moment for moment in rang if moment > start]) > 1:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rang
    np.testing.assert_array_equal(found, expected)


def test_other_threads_go_on_when_the_main_one_is_stopped(alarm: Callable[[float], None]) -> None:
    done: list[Any] = []
    other = weft.jit(lambda n: lax.fori_loop(0, n, lambda i, c: wnp.sin(c) + 1, wnp.zeros(8)))
    expected = np.asarray(other(2_000_000))
    thread = threading.Thread(target=lambda: done.append(np.asarray(other(2_000_000))))
    thread.start()
    assert stopped(lambda: scalar_loop(np.float32(1)), alarm) < PATIENCE
    thread.join()
    np.testing.assert_array_equal(done[0], expected)


def test_memory_and_programs_are_usable_after_a_stop(alarm: Callable[[float], None]) -> None:
    body = lambda c: (c[0] + 1, wnp.tanh(c[1] @ c[1]))
    jitted = weft.jit(lambda n, x: lax.while_loop(lambda c: c[0] < n, body, (0, x)))
    x = wnp.ones((64, 64)) / 64
    expected = np.asarray(jitted(10, x)[1])
    for _ in range(3):
        assert stopped(lambda: jitted(FOREVER, x), alarm, 0.05) < PATIENCE
        np.testing.assert_array_equal(np.asarray(jitted(10, x)[1]), expected)


def test_tapes_of_a_stopped_program_are_freed(alarm: Callable[[float], None]) -> None:
    def f(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, wnp.sin(c[1])), (0, x))[1]

    jitted = weft.jit(weft.grad(f))
    expected = float(jitted(1.0, 5))
    assert stopped(lambda: jitted(1.0, FOREVER), alarm, 0.05) < PATIENCE
    assert float(jitted(1.0, 5)) == expected


def test_donated_arguments_of_a_stopped_call_are_gone(alarm: Callable[[float], None]) -> None:
    def f(n: Any, x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + 1), (0, x))[1]

    jitted = weft.jit(f, donate_argnums=1)
    jitted(0, wnp.ones(1 << 12))  # compiled before the clock runs
    for _ in range(4):  # the general way, and that of dispatchers
        x = wnp.ones(1 << 12) * 2
        alarm(0.05)
        with pytest.raises(Alarm):
            jitted(FOREVER, x).block_until_ready()
        assert x.is_deleted()
        with pytest.raises(errors.DonatedArrayError, match="donated to a jitted call"):
            x + 1
        np.testing.assert_array_equal(np.asarray(jitted(0, wnp.ones(1 << 12))), 1)


# -- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, Alarm])
def test_what_a_callback_raises_comes_out(raised: type[BaseException]) -> None:
    def fail(x: Any) -> Any:
        if x > 2:
            raise raised("from the callback")
        return x

    @weft.jit
    def f(x: Any) -> Any:
        body = lambda i, c: weft.pure_callback(fail, SCALAR, c) + 1
        return lax.fori_loop(0, FOREVER, body, x)

    expected = errors.JaxRuntimeError if issubclass(raised, Exception) else raised
    for _ in range(3):
        with pytest.raises(expected, match="from the callback") as caught:
            f(0.0)
        chain = caught.value if expected is raised else caught.value.__cause__
        assert isinstance(chain, raised)
        names = []
        traceback = chain.__traceback__
        while traceback is not None:
            names.append(traceback.tb_frame.f_code.co_name)
            traceback = traceback.tb_next
        assert names[-1] == "fail"


def test_an_alarm_is_not_lost_in_a_loop_of_callbacks(alarm: Callable[[float], None], capfd: Any) -> None:
    """The handler may run anywhere between native code and the user's function."""

    @weft.jit
    def f(x: Any) -> Any:
        return lax.fori_loop(0, FOREVER, lambda i, c: weft.pure_callback(lambda v: v, SCALAR, c) + 1, x)

    f.lower(0.0).compile()
    for after in np.linspace(0.01, 0.05, 15):
        alarm(float(after))
        with pytest.raises((Alarm, errors.JaxRuntimeError)) as caught:
            f(0.0)
        assert caught.type is Alarm or isinstance(caught.value.__cause__, Alarm)
    assert capfd.readouterr().err == ""


def test_a_program_called_by_a_callback_is_stopped_too(alarm: Callable[[float], None]) -> None:
    @weft.jit
    def outer(x: Any) -> Any:
        return weft.pure_callback(lambda v: np.asarray(scalar_loop(v)[1]), SCALAR, x)

    with pytest.raises(errors.JaxRuntimeError) as caught:
        alarm(0.5)
        outer(1.0)
    assert isinstance(caught.value.__cause__, Alarm)


CONTROL_C = """
    import signal
    import weft
    from weft import lax
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts tests in the background ignores it
    f = weft.jit(lambda x: lax.while_loop(lambda c: c[0] < 1 << 30, lambda c: (c[0] + 1, c[1] * 0.5), (0, x)))
    f.lower(1.0).compile()
    for number in range(3):
        print("ready", flush=True)
        try:
            weft.block_until_ready(f(1.0))
        except KeyboardInterrupt:
            print("stopped", flush=True)
"""


def test_control_c() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CONTROL_C)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for _ in range(3):
                assert process.stdout.readline() == "ready\n"
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "stopped\n"
            assert process.communicate(timeout=60) == ("", "")
            assert process.returncode == 0
        finally:
            process.kill()
