"""Calls that return before their work is done: order, errors, donation, memory, threads, forks, interrupts."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import pickle
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
from weft.runtime.cpu import executable, queue
from weft.runtime.promise import Promise

pytestmark = pytest.mark.skipif(not queue.is_possible(), reason="there are no threads on this system")
ITERATIONS = np.int32(1000)
LONG = 1 << 16  # elements: arrays that have memory of their own


@pytest.fixture(autouse=True)
def everything_is_queued(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have all programs queued that can be, and none left from one test to the next."""
    monkeypatch.setattr(executable, "WORTH_QUEUEING", 0)
    monkeypatch.setattr(queue, "MOST_WAITED_FOR", 10**9)
    weft.effects_barrier()
    yield
    weft.effects_barrier()


GATE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@contextlib.contextmanager
def closed_queue() -> Iterator[Callable[[], None]]:
    """Keep everything in the queue from running until the yielded function is called, which takes a moment."""
    opened = threading.Event()
    gate = GATE(lambda *_: opened.wait(60) and 0)
    address = ctypes.cast(gate, ctypes.c_void_p).value
    with queue._lock:
        if queue._worker is None:
            queue._start_worker()
        index = queue._submit()(address, 0, b"", 0, 0)
    try:
        yield lambda: threading.Timer(0.02, opened.set).start()
    finally:
        opened.set()
        queue._until(index)


def slow(x: Any, n: Any = ITERATIONS) -> Any:
    """x + 1, in many small steps."""
    return x + lax.fori_loop(0, n, lambda i, c: c * 0.5 + 0.5, wnp.ones((8,)) + x.reshape(-1)[0] * 0)[0]


def warm(function: Callable[..., Any], *args: Callable[[], Any], **options: Any) -> Any:
    """Return a jitted function that has a dispatcher for such arguments, which are made anew each time."""
    jitted = weft.jit(function, **options)
    for _ in range(3):
        weft.block_until_ready(jitted(*[make() for make in args]))
    return jitted


def ones(size: int = LONG) -> Any:
    return wnp.zeros(size) + 1


def is_promised(array: Any) -> bool:
    return type(array._memory) is Promise


@pytest.fixture(scope="module")
def jitted() -> Any:
    before, executable.WORTH_QUEUEING = executable.WORTH_QUEUEING, 0
    try:
        return warm(slow, ones)
    finally:
        executable.WORTH_QUEUEING = before


def test_a_call_returns_before_the_work_is_done(jitted: Any) -> None:
    with closed_queue() as open_soon:
        y = jitted(ones())
        assert is_promised(y) and not y.is_ready() and not y.is_deleted()
        assert y.shape == (LONG,) and y.nbytes == 4 * LONG and y.itemsize == 4  # known without waiting
        y.copy_to_host_async()
        assert not y.is_ready()
        open_soon()
        assert y.block_until_ready() is y and y.is_ready() and not is_promised(y)
    np.testing.assert_array_equal(y, 2)


READERS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "item": lambda y: np.full(LONG, y[0].item()),
    "float": lambda y: np.full(LONG, float(y[3])),
    "sum": lambda y: np.full(LONG, y.sum() / LONG),
    "eager": lambda y: np.asarray(y * 1),
    "pickle": lambda y: np.asarray(pickle.loads(pickle.dumps(y))),
    "copy": lambda y: np.asarray(copy.copy(y)),
    "deepcopy": lambda y: np.asarray(copy.deepcopy(y)),
    "dlpack": lambda y: np.from_dlpack(y),
    "device_put": lambda y: np.asarray(weft.device_put(y, weft.devices()[0])),
    "device_get": weft.device_get,
    "tolist": lambda y: np.array(y.tolist()),
    "bytes": lambda y: np.frombuffer(y.tobytes(), np.float32),
    "pointer": lambda y: (y.unsafe_buffer_pointer(), np.asarray(y))[1],
    "iteration": lambda y: np.array([float(v) for v, _ in zip(y[:3], range(3), strict=True)] + [2.0] * (LONG - 3)),
    "grad": lambda y: np.asarray(weft.grad(lambda v: (v * v).sum())(y)),
    "callback": lambda y: np.asarray(
        weft.jit(lambda v: weft.pure_callback(lambda a: a * 1, weft.ShapeDtypeStruct((LONG,), np.float32), v))(y)
    ),
    "while": lambda y: np.asarray(lax.while_loop(lambda c: c[0] > 99, lambda c: c * 2, y)),
    "repr": lambda y: (repr(y), np.asarray(y))[1],
    "shards": lambda y: np.asarray(y.addressable_shards[0].data),
}


@pytest.mark.parametrize("name", READERS)
def test_readers_wait(jitted: Any, name: str) -> None:
    with closed_queue() as open_soon:
        y = jitted(ones())
        assert not y.is_ready()
        open_soon()
        np.testing.assert_array_equal(READERS[name](y), np.full(LONG, 4 if name == "grad" else 2))


def test_chains_do_not_wait_and_keep_their_order(jitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "WORTH_QUEUEING", 10**12)
    short = warm(lambda x, y: x * 2 + y, ones, ones)
    monkeypatch.setattr(executable, "WORTH_QUEUEING", 0)
    x, all_of_them = ones(), []
    with closed_queue() as open_soon:
        for i in range(6):  # the short program is queued since its arguments are
            x = jitted(x) if i % 2 == 0 else short(x, x)
            all_of_them.append(x)
        assert not any(y.is_ready() for y in all_of_them)
        open_soon()
        expected = 1.0
        for i, y in enumerate(all_of_them):
            expected = expected + 1 if i % 2 == 0 else expected * 3
            np.testing.assert_array_equal(y, expected)
            assert all(earlier.is_ready() for earlier in all_of_them[: i + 1])


def test_a_synchronous_program_does_not_wait_for_others(jitted: Any) -> None:
    short = weft.jit(lambda x: x * 2)
    other = ones(8)
    with closed_queue(), _off():
        for _ in range(4):
            np.testing.assert_array_equal(short(other), 2)


class _off:
    def __enter__(self) -> None:
        weft.config.update("cpu_enable_async_dispatch", False)

    def __exit__(self, *_: Any) -> None:
        weft.config.update("cpu_enable_async_dispatch", True)


def test_the_setting(jitted: Any) -> None:
    with _off():
        for _ in range(4):
            assert not is_promised(jitted(ones()))
    assert is_promised(jitted(ones()))


def test_short_programs_stay_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "WORTH_QUEUEING", 10**9)
    short = warm(lambda x: x + 1, lambda: ones(8))
    for _ in range(5):
        y = short(ones(8))
        assert not is_promised(y) and y.is_ready()


def test_a_program_that_becomes_short_is_not_queued_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    f = warm(slow, lambda: ones(8), lambda: ITERATIONS)
    assert is_promised(f(ones(8), ITERATIONS))
    weft.effects_barrier()
    monkeypatch.setattr(executable, "WORTH_QUEUEING", 10**12)
    y = f(ones(8), ITERATIONS)
    assert is_promised(y)
    y.block_until_ready()
    assert not is_promised(f(ones(8), ITERATIONS))


def test_a_program_that_is_waited_for_at_once_runs_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST_WAITED_FOR", 2)
    f = warm(slow, lambda: ones(8))
    (call,) = (v for d in f._table.recent for v in d.__globals__.values() if isinstance(v, queue.QueuedCall))
    for _ in range(2):
        call.record_end(True)
    assert [is_promised(f(ones(8))) for _ in range(queue.CALLS_IN_CALLER)] == [False] * queue.CALLS_IN_CALLER
    y = f(ones(8))  # another attempt
    assert is_promised(y)
    weft.effects_barrier()
    call.record_end(False)
    assert is_promised(f(ones(8)))


def test_numpy_arguments_may_change_after_the_call() -> None:
    f = warm(lambda x: slow(x) * 1, lambda: np.ones(100, np.float32))
    x = np.ones(100, np.float32)
    with closed_queue():
        y = f(x)
        assert not y.is_ready()
        x[:] = 7
    np.testing.assert_array_equal(y, 2)


def test_large_numpy_arguments_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    f = warm(slow, lambda: np.ones(100, np.float32))
    assert is_promised(f(np.ones(100, np.float32)))
    weft.effects_barrier()
    monkeypatch.setattr(queue, "BYTES_A_NANOSECOND", 0)
    assert not is_promised(f(np.ones(100, np.float32)))


def test_arrays_may_be_deleted_while_they_are_read_or_written(jitted: Any) -> None:
    x = ones()
    with closed_queue():
        y, z = jitted(x), jitted(x)
        x.delete()
        z.delete()
        del z
        others = [wnp.zeros(LONG) + 5 for _ in range(4)]  # that would get the memory, if it were free
    np.testing.assert_array_equal(y, 2)
    for other in others:
        np.testing.assert_array_equal(other, 5)
    with pytest.raises(errors.DonatedArrayError):
        np.asarray(x)


def test_what_jobs_hold_is_let_go(jitted: Any) -> None:
    y = jitted(ones())
    job = y._memory.job
    y.block_until_ready()
    assert job.held is None and not queue.flying


@pytest.mark.parametrize("kind", ["promised", "ready", "read by others", "seen by NumPy", "of two arrays"])
def test_donation(kind: str) -> None:
    step = warm(lambda x: slow(x) * 1, ones, donate_argnums=0)
    read = warm(slow, ones, lambda: ITERATIONS)
    with closed_queue() as open_soon:
        x = step(ones())
        if kind != "promised":
            open_soon()
            x.block_until_ready()
    with closed_queue() if kind in ("promised", "read by others") else contextlib.nullcontext():
        if kind == "promised":
            x = step(ones())
        reader = read(x, ITERATIONS) if kind == "read by others" else None
        view = np.asarray(x) if kind == "seen by NumPy" else None
        other = weft.device_put(x, weft.devices()[0]) if kind == "of two arrays" else None
        address = x._memory.address
        y = step(x)
        assert x.is_deleted()
    with pytest.raises(errors.DonatedArrayError, match="test_asynchrony"):
        np.asarray(x)
    np.testing.assert_array_equal(y, 3)
    assert (y._pointer == address) == (kind in ("promised", "ready", "read by others"))
    for seen in (view, other):
        if seen is not None:
            np.testing.assert_array_equal(seen, 2)
    if reader is not None:
        np.testing.assert_array_equal(reader, 3)


def test_a_donating_loop_uses_the_same_memory() -> None:
    step = warm(lambda x: x + 1, ones, donate_argnums=0)
    x = step(ones())
    addresses = set()
    for _ in range(30):
        x = step(x)
        addresses.add(x._memory.address)
    np.testing.assert_array_equal(x, 32)
    assert len(addresses) == 1


def test_a_synchronous_call_does_not_overwrite_what_is_read(jitted: Any) -> None:
    step = warm(lambda x: x * 2, ones, donate_argnums=0)
    x = ones()
    with closed_queue():
        y = jitted(x)
        with _off():
            z = step(x)
            z = step(z)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, 2)
    np.testing.assert_array_equal(z, 4)


def test_an_array_that_is_donated_and_passed_is_refused(jitted: Any) -> None:
    f = warm(lambda x, y: x + y, ones, ones, donate_argnums=0)
    x = jitted(ones())
    with pytest.raises(errors.DonatedArrayError, match="another argument"):
        f(x, x)
    np.testing.assert_array_equal(x, 2)


def test_few_programs_are_ahead(jitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short = warm(slow, lambda: ones(8), lambda: ITERATIONS)
    with closed_queue() as open_soon:
        results = [short(ones(8), ITERATIONS) for _ in range(queue.MOST_JOBS)]
        assert len(queue.flying) == queue.MOST_JOBS and not results[0].is_ready()
        open_soon()
        short(ones(8), ITERATIONS)
        assert len(queue.flying) <= queue.MOST_JOBS and results[0].is_ready()
    weft.effects_barrier()
    monkeypatch.setattr(queue, "MOST_BYTES", 6 * LONG)
    with closed_queue() as open_soon:
        y = jitted(ones())
        open_soon()
        jitted(ones())
        assert y.is_ready() and len(queue.flying) == 1


def test_programs_that_call_python_do_so_in_the_call(jitted: Any, capsys: Any) -> None:
    @weft.jit
    def f(x: Any) -> Any:
        weft.debug.print("{}", x[0], ordered=True)
        return x + 1

    for i in range(4):
        y = f(jitted(ones() * i))
        assert y.is_ready() and capsys.readouterr().out == f"{i + 1.0}\n"


def test_checks_raise_in_the_call() -> None:
    with weft.checks("all"):
        f = weft.jit(lambda x, i: x[i])
        for _ in range(3):
            f(wnp.ones(3), 1)
        with pytest.raises(errors.OutOfBoundsIndexError):
            f(wnp.ones(3), 7)


def test_many_results_and_devices(jitted: Any) -> None:
    f = warm(lambda x: [x[:8] + i for i in range(40)] + [x + i for i in range(3)], lambda: jitted(ones()))
    with closed_queue():
        y = f(jitted(ones()))
        assert not any(part.is_ready() for part in y)
    for i, part in enumerate(y):
        np.testing.assert_array_equal(part, 2 + (i if i < 40 else i - 40))
    committed = weft.device_put(ones(), weft.devices()[0])
    for _ in range(3):
        z = jitted(committed)
        assert z.committed and z.devices() == {weft.devices()[0]}
    np.testing.assert_array_equal(z, 2)


def test_threads(jitted: Any) -> None:
    short = warm(slow, lambda: ones(100), lambda: ITERATIONS)
    failures: list[Any] = []

    def work(seed: int) -> None:
        x = ones(100) * seed
        for _ in range(20):
            x = short(x, ITERATIONS)
        if not (np.asarray(x) == seed + 20).all():
            failures.append(np.asarray(x))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_two_threads_wait_for_one_array(jitted: Any) -> None:
    found: list[Any] = []
    with closed_queue():
        y = jitted(ones())
        threads = [threading.Thread(target=lambda: found.append(np.asarray(y))) for _ in range(3)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and all((a == 2).all() for a in found)


def test_python_runs_beside_a_program(jitted: Any) -> None:
    """A thread that holds the GIL does not hold the program up: it needs no change of threads by Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        y = jitted(ones())
        deadline = time.perf_counter() + 60
        while not y.is_ready() and time.perf_counter() < deadline:
            pass
        assert y.is_ready()
    finally:
        sys.setswitchinterval(before)
    np.testing.assert_array_equal(y, 2)


# -- interrupts, forks, exit -------------------------------------------------------------------------------------------


class Alarm(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no alarms on this system")
@pytest.mark.parametrize("beside", [False, True], ids=["at once", "when the worker runs it"])
def test_an_interrupt_of_a_wait_ends_what_is_in_the_queue(jitted: Any, beside: bool) -> None:
    def ring(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    f = warm(slow, lambda: ones(8), lambda: np.int32(1))
    try:
        y = f(ones(8), np.int32(2**31 - 1))
        z = f(y, np.int32(1))
        if beside:
            time.sleep(0.2)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            y.block_until_ready()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for array in (y, z):
        assert array.is_ready()
        for read in (np.asarray, weft.block_until_ready, lambda a: a + 1, lambda a: f(a, np.int32(1))):
            with pytest.raises(errors.JaxRuntimeError, match=r"interrupted") as raised:
                read(array)
            assert "test_asynchrony.py" in str(raised.value)
    np.testing.assert_array_equal(f(ones(8), np.int32(5)), 2)
    np.testing.assert_array_equal(jitted(ones()), 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_waits_and_the_child_has_a_queue_of_its_own(jitted: Any) -> None:
    y = jitted(ones())
    child = os.fork()
    if child == 0:
        good = y.is_ready() and (np.asarray(y) == 2).all()
        z = jitted(y)
        good = good and is_promised(z) and (np.asarray(jitted(z)) == 4).all()
        os._exit(0 if good else 1)
    assert y.is_ready()
    np.testing.assert_array_equal(jitted(y), 3)
    assert os.waitpid(child, 0)[1] == 0


EXIT = """
    import numpy as np, weft, weft.numpy as wnp
    from weft import lax
    from weft.runtime.cpu import executable
    executable.WORTH_QUEUEING = 0
    f = weft.jit(lambda x, n: lax.fori_loop(0, n, lambda i, c: wnp.sin(c), x))
    for _ in range(3):
        f(wnp.ones(8), np.int32(1)).block_until_ready()
    y = f(wnp.ones(8), np.int32(2**31 - 1))
    z = f(y, np.int32(1))
    print("end", flush=True)
"""


def test_a_process_ends_while_programs_are_in_the_queue() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(EXIT)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)
