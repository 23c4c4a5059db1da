"""Process may fork at any moment: while other threads import, trace, compile and run."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from typing import Any

import pytest

from weft.base import forks
from weft.base.memo import cached_property

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

# Threads begin with a process that has not loaded the compiler yet, so the first forks fall into imports.
STRESS = """
    import os, random, sys, threading, time, warnings
    import numpy as np
    import weft, weft.numpy as wnp
    from weft import lax

    warnings.simplefilter("ignore")  # Python's, about threads
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    stop = threading.Event()
    MAKERS = [
        lambda n: lambda v: wnp.tanh(v * n),
        lambda n: lambda v: wnp.sort(v) @ wnp.ones((v.shape[0], n % 9 + 1)),
        lambda n: lambda v: lax.fori_loop(0, n % 5 + 2, lambda i, c: wnp.sin(c) * n + i, v),
        lambda n: weft.grad(lambda v: (wnp.cumsum(v) ** 2).sum() * n),
        lambda n: lambda v: wnp.linalg.qr(wnp.outer(v, v) + n)[0],
        lambda n: lambda v: wnp.fft.fft(v).real * n,
    ]

    def busy(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            function = weft.jit(random.Random(10 * turn + number).choice(MAKERS)(turn))
            for _ in range(3):
                function(np.ones(16 + turn % 7, np.float32))

    def child():
        total = weft.jit(lambda v: wnp.sum(v * 3, 0) + lax.fori_loop(0, 3, lambda i, c: c + 1.0, 0.0))
        for _ in range(3):
            assert (np.asarray(total(np.ones((600, 600), np.float32))) == 1803).all()
        np.testing.assert_allclose(weft.jit(wnp.linalg.inv)(np.eye(4, dtype=np.float32) * 2), np.eye(4) / 2)

    threads = [threading.Thread(target=busy, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    moments, failures = random.Random(seed), 0
    for number in range(count):
        time.sleep(0.08 * moments.random())
        process = os.fork()
        if process == 0:
            code = 1
            try:
                child()
                code = 0
            finally:
                os._exit(code)
        deadline = time.monotonic() + 60
        while True:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                failures += status != 0
                break
            if time.monotonic() > deadline:
                os.kill(process, 9)
                os.waitpid(process, 0)
                failures += 1
                break
            time.sleep(0.005)
    stop.set()
    print(failures, flush=True)
    os._exit(0)
"""


def stress(count: int, seed: int) -> None:
    arguments = [sys.executable, "-c", textwrap.dedent(STRESS), str(count), str(seed)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60 + 30 * count, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_forks_while_threads_import_compile_and_run() -> None:
    stress(6, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_forks_while_threads_import_compile_and_run(seed: int) -> None:
    stress(60, seed)


def status_of_child() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        os._exit(0 if not forks._taken else 1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_a_fork_waits_for_a_lock_and_lets_it_go() -> None:
    lock = forks.held(threading.Lock())
    order: list[str] = []

    def hold() -> None:
        with lock:
            inside.set()
            finish.wait(0.2)
            order.append("left")

    inside, finish = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    try:
        thread.start()
        inside.wait()
        assert status_of_child() == 0
        order.append("forked")
        thread.join()
        assert order == ["left", "forked"]
        assert lock.acquire(timeout=1)
        lock.release()
        with forks.held(threading.RLock()):  # what the thread itself holds is no hindrance
            assert status_of_child() == 0
    finally:
        del forks._locks[-2:]


def test_a_lock_that_is_named_twice_is_taken_once() -> None:
    lock = threading.Lock()
    try:
        assert forks.held(forks.held(lock)) is lock
        start = time.monotonic()
        assert status_of_child() == 0
        assert time.monotonic() - start < forks.PATIENCE / 2
    finally:
        forks._locks.remove(lock)
    assert all(other is not lock for other in forks._locks)


def test_others_let_a_fork_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that takes a lock again and again would have it again before anybody else sees it free."""
    lock = forks.held(threading.Lock())
    stop, waits = threading.Event(), []

    def busy() -> None:
        while not stop.is_set():
            started = time.monotonic()
            forks.let_fork()
            waits.append(time.monotonic() - started)
            with lock:
                stop.wait(0.02)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert status_of_child() == 0
        assert not forks._forking
        forks._forking.add(threading.get_ident())  # not for itself
        forks.let_fork()
        forks._forking.add(-1)
        monkeypatch.setattr(forks, "COURTESY", 0.05)
        forks.let_fork()  # not for ever
    finally:
        forks._forking.clear()
        stop.set()
        for thread in threads:
            thread.join()
        forks._locks.pop()
    assert max(waits) < 1


def test_no_lock_is_added_during_a_fork() -> None:
    """A fork that waits for one lock would not know of another that is added and taken meanwhile."""
    lock = forks.held(threading.Lock())
    order: list[str] = []
    before = len(forks._locks)

    def add() -> None:
        while not order:
            time.sleep(0.001)
        forks.held(threading.Lock())
        order.append("added")

    def during() -> None:
        order.append("forking")
        time.sleep(0.1)
        order.append("forks")

    thread = threading.Thread(target=add)
    try:
        thread.start()
        while not forks._take_all():  # threads of other tests may be compiling
            time.sleep(forks.GLANCE)
        during()
        assert len(forks._locks) == before
        forks._let_go()
        thread.join()
        assert order == ["forking", "forks", "added"] and len(forks._locks) == before + 1
    finally:
        forks._let_go()
        del forks._locks[forks._locks.index(lock) :]


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.1)
    lock: Any = forks.held(threading.Lock())
    try:
        with lock:
            assert status_of_child() == 0
    finally:
        forks._locks.pop()


def test_properties_that_another_thread_is_computing() -> None:
    class Computed:
        @cached_property
        def value(self) -> list[int]:
            if threading.current_thread() is thread:
                inside.set()
                finish.wait(60)
            return [1]

    inside, finish, shared = threading.Event(), threading.Event(), Computed()
    thread = threading.Thread(target=lambda: shared.value)
    thread.start()
    inside.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        os._exit(0 if Computed().value == [1] and shared.value == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    first = shared.value
    finish.set()
    thread.join()
    assert shared.value is first


def test_no_property_holds_a_lock() -> None:
    """Not where a forked process may go on: drivers of GPUs are of no use there, and loaders have processes."""
    package = pathlib.Path(forks.__file__).parents[1]
    for path in package.rglob("*.py"):
        if not {"cuda", "data"} & set(path.relative_to(package).parts):
            assert "import cached_property" not in path.read_text(encoding="utf-8").replace(
                "from weft.base.memo import cached_property", ""
            ), path
            assert "functools.cached_property" not in path.read_text(encoding="utf-8"), path


def test_one_file_knows_of_forks() -> None:
    """Of Weft itself; loaders, which are written with public names, see to their own processes."""
    package = pathlib.Path(forks.__file__).parents[1]
    knowing = {path.name for path in package.rglob("*.py") if "register_at_fork" in path.read_text(encoding="utf-8")}
    assert knowing == {"forks.py", "processes.py"} and (package / "data" / "processes.py").exists()


def test_a_lock_for_long_work_is_free_in_a_forked_process() -> None:
    lock, taken, finish = forks.RenewedLock(), threading.Event(), threading.Event()

    def work() -> None:
        with lock.current:
            taken.set()
            finish.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert taken.wait(60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, about threads
            process = os.fork()
        if process == 0:
            os._exit(0 if lock.current.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        assert not lock.current.acquire(blocking=False), "the parent's is held still"
    finally:
        finish.set()
        thread.join()
