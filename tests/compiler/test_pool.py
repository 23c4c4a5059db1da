"""The thread pool: every chunk runs once with any number of threads, callers do not block, and it ends cleanly."""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.compiler.native_kernels import FLUSHING, address, chunk_sums, set_mode, table, this_thread
from weft.base.settings import config, num_threads
from weft.compiler.target.cpu import interrupt, link, pool, queue
from weft.compiler.target.cpu.pool import Waiting
from weft.compiler.target.cpu.targets import aarch64, host
from weft.compiler.target.target import Target
from weft.runtime.cpu import tiers

ROOT = pathlib.Path(__file__).parents[2]
counts_threads = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")


class Pool:
    """A pool of its own, as the functions that it exports."""

    def __init__(self, how: Waiting) -> None:
        library = link.load(pool.pool_object(host(), how))
        self.parallel_address = library.addresses["weft_parallel"]
        self.start = library.function("weft_pool_start", None, ctypes.c_int32)
        self.stop = library.function("weft_pool_stop", ctypes.c_int32)
        self.reset = library.function("weft_pool_reset")
        long = ctypes.c_int64
        self.parallel = library.function("weft_parallel", None, ctypes.c_void_p, ctypes.c_void_p, long, long)

    def visits(self, count: int, grain: int) -> np.ndarray[Any, Any]:
        """How often a job ran each index."""
        result = np.zeros(count, np.int32)
        self.parallel(address("visit"), table(result), count, grain)
        return result


@pytest.fixture(params=[Waiting.FUTEX, Waiting.CONDITION], ids=lambda how: how.name.lower())
def own(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool without workers, for each way to sleep."""
    if request.param is Waiting.FUTEX and pool.waiting(host().triple) is not Waiting.FUTEX:
        request.param = pool.waiting(host().triple)
    result = Pool(request.param)
    yield result
    result.start(0)
    assert result.stop() == 1


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Start a function in another Python thread; calling the result waits for what it returns."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()

    def finish() -> Any:
        thread.join(60)
        assert not thread.is_alive() and results
        return results[0]

    return finish


def until(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes to hold."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


# -- jobs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_index_is_visited_once(own: Pool, workers: int) -> None:
    own.start(workers)
    for count in (0, 1, 2, 7, 64, 1000):
        for grain in (1, 3, 64, 2000):
            assert (own.visits(count, grain) == 1).all()
    assert own.visits(5, 0).tolist() == own.visits(5, -3).tolist() == [1] * 5
    own.parallel(address("hold"), None, -1, 1)  # nothing to do: the kernel is not called


def test_chunks_and_their_sums_do_not_depend_on_the_number_of_threads(own: Pool, rng: np.random.Generator) -> None:
    for count, grain in ((1, 1), (10, 3), (100, 7), (4096, 64), (5000, 4999)):
        data = rng.standard_normal(count).astype(np.float32)
        expected = chunk_sums(data, grain).tobytes()
        for workers in (0, 1, 3):
            own.start(workers)
            for _ in range(20):
                sums = np.zeros_like(data)
                own.parallel(address("sum"), table(data, sums), count, grain)
                assert sums.tobytes() == expected


def test_bytes_are_copied_by_chunks(rng: np.random.Generator) -> None:
    source = rng.integers(0, 256, 10_007, np.uint8)
    with num_threads(3):
        for size in (0, 1, 63, 64, 65, 10_000):
            for grain in (1, 64, 1000, 20_000):
                target = np.zeros_like(source)
                pool.copy(target.ctypes.data + 3, source.ctypes.data + 5, size, grain)
                assert (target[3 : 3 + size] == source[5 : 5 + size]).all()
                assert not target[:3].any() and not target[3 + size :].any()


def threads_of(own: Pool, count: int = 40) -> set[int]:
    """The threads that took part in a job."""
    names = np.zeros(count, np.int64)
    own.parallel(address("who"), table(names), count, 1)
    return set(names.tolist())


def test_workers_take_part_as_many_as_are_allowed(own: Pool) -> None:
    own.start(2)
    assert until(lambda: len(threads_of(own)) == 3)
    assert this_thread() in threads_of(own)
    own.start(1)
    assert all(len(threads_of(own)) <= 2 for _ in range(10))
    own.start(0)
    assert threads_of(own) == {this_thread()}


def tasks() -> set[str]:
    """The threads of the process."""
    return set(os.listdir("/proc/self/task"))


def alive() -> int:
    """How many threads the process has."""
    return len(tasks())


def final_count() -> int:
    """How many threads the process has, when those that have been joined are gone."""
    tiers.wait()  # what earlier tests have left to be compiled may start threads
    counts = [alive()]
    assert until(lambda: counts.append(alive()) is None and len(set(counts[-20:])) == 1 and len(counts) > 20)
    return counts[-1]


@counts_threads
def test_threads_are_created_by_the_first_job_that_can_use_them(own: Pool) -> None:
    before = final_count()
    others = set(os.listdir("/proc/self/task"))
    own.start(0)
    own.visits(100, 1)
    own.start(3)
    own.visits(100, 100)  # one chunk
    assert alive() == before
    own.visits(100, 1)
    assert alive() == before + 3
    # They leave signals to Python's threads: all that can be blocked is.
    for thread in set(os.listdir("/proc/self/task")) - others:
        status = pathlib.Path("/proc/self/task", thread, "status").read_text()
        assert int(status.split("SigBlk:")[1].split()[0], 16) & 0x7FFF == 0x7FFF & ~(1 << 8) & ~(1 << 18)
    assert own.stop() == 1
    assert until(lambda: alive() == before)
    assert (own.visits(100, 1) == 1).all()
    assert alive() == before + 3


def test_a_kernel_may_start_a_job_of_its_own(own: Pool) -> None:
    own.start(1)
    for _ in range(200):
        visits = np.zeros((50, 8), np.int32)
        pointers = (ctypes.c_void_p * 2)(visits.ctypes.data, own.parallel_address)
        own.parallel(address("nested"), pointers, 50, 3)
        assert (visits == 1).all()


def test_two_callers_at_once(own: Pool) -> None:
    own.start(1)

    def work() -> bool:
        return all((own.visits(257, 4) == 1).all() for _ in range(1000))

    waits = [in_thread(work) for _ in range(2)]
    assert work() and all(wait() for wait in waits)


def test_a_busy_pool_does_not_block_callers(own: Pool) -> None:
    own.start(1)
    flags = np.zeros(2, np.int32)
    wait = in_thread(lambda: own.parallel(address("hold"), table(flags), 2, 1))
    assert until(lambda: flags[0] == 1)
    assert own.stop() == 0
    assert threads_of(own) == {this_thread()}
    assert (own.visits(100, 1) == 1).all()
    flags[1] = 1
    wait()
    assert own.stop() == 1


def test_the_caller_sleeps_until_a_slow_worker_has_left(own: Pool) -> None:
    own.start(1)
    visits, caller = np.zeros(100, np.int32), np.array([this_thread()])
    for _ in range(20):  # an alarm that is missed would be for ever
        visits[:] = 0
        own.parallel(address("tarry"), table(visits, caller), 100, 1)
        assert (visits == 1).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_many_jobs_and_pauses(own: Pool, workers: int) -> None:
    own.start(workers)
    data = np.zeros(64, np.float32)
    pointers = table(data)
    for _ in range(20_000):
        own.parallel(address("add_one"), pointers, 64, 8)
    assert (data == 20_000).all()
    for pause in (0.0001, 0.0002, 0.002, 0.05, 0.05):
        for _ in range(3):
            time.sleep(pause)
            assert (own.visits(1000, 10) == 1).all()


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not tell where threads may run")
def test_threads_may_run_wherever_the_process_may(own: Pool) -> None:
    """Also after they have left the caller's processor, for which they forbid it to themselves for a moment."""
    own.start(3)
    for _ in range(20):
        own.visits(1000, 10)
        time.sleep(0.001)  # they go to sleep in between
    allowed = os.sched_getaffinity(0)
    assert until(lambda: all(os.sched_getaffinity(int(t)) == allowed for t in os.listdir("/proc/self/task")))


def test_denormals_do_not_depend_on_the_mode_of_the_creating_thread(own: Pool) -> None:
    own.start(1)
    smallest = np.finfo(np.float32).tiny
    data = np.zeros(400_000, np.float32)

    def worker_took_part() -> bool:
        data[:] = smallest
        own.parallel(address("half"), table(data), data.size, 1000)
        return bool(data.view(np.int32).any())  # as floats they would be zero for this thread

    before = set_mode(FLUSHING)
    try:
        assert until(worker_took_part)
    finally:
        set_mode(before)
    assert set(data.tolist()) <= {0.0, float(smallest / 2)}


def test_stopping_and_starting_again_and_again(own: Pool) -> None:
    for workers in (1, 2, 5, 1, 3) * 8:
        own.start(workers)
        assert (own.visits(64, 1) == 1).all()
        assert own.stop() == 1
    assert own.stop() == 1


# -- processes ---------------------------------------------------------------------------------------------------------


def in_child(function: Callable[[], bool]) -> bool:
    """Whether a function returns True in a forked process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about threads of others
        child = os.fork()
    if child == 0:
        fine = False
        try:
            fine = bool(function())
        finally:
            os._exit(0 if fine else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.fixture
def shared() -> Iterator[Callable[[], bool]]:
    """The pool of the process with two threads, as a job that tells whether it was done right."""
    before = num_threads.global_value
    pool.set_threads(2)
    long = ctypes.c_int64
    parallel = pool.library().function("weft_parallel", None, ctypes.c_void_p, ctypes.c_void_p, long, long)

    def job() -> bool:
        pool.prepare()
        visits = np.zeros(100, np.int32)
        parallel(address("visit"), table(visits), 100, 1)
        return bool((visits == 1).all())

    yield job
    pool.set_threads(before)


def takes_part(threads: int) -> bool:
    """Whether so many threads come to share a job of the process's pool."""
    long = ctypes.c_int64
    parallel = pool.library().function("weft_parallel", None, ctypes.c_void_p, ctypes.c_void_p, long, long)

    def seen() -> bool:
        names = np.zeros(40, np.int64)
        parallel(address("who"), table(names), 40, 1)
        return len(set(names.tolist())) == threads

    return until(seen)


def test_a_forked_process_has_a_pool_of_its_own(shared: Callable[[], bool]) -> None:
    assert shared() and takes_part(2)
    for _ in range(5):
        assert in_child(lambda: shared() and takes_part(2))
        assert in_child(lambda: in_child(shared))
        assert shared()
    assert takes_part(2)


def threads_of_a_child() -> int:
    """How many threads a forked process has. Those of other libraries, such as SciPy's transforms, may start again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(alive())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@counts_threads
def test_workers_end_before_a_fork(shared: Callable[[], bool]) -> None:
    assert pool.stop()
    final_count()
    # A fork also ends the threads of other libraries, which may start others after it; and some may end meanwhile.
    without, others = threads_of_a_child(), tasks()
    assert shared() and len(tasks() - others) == 1
    assert threads_of_a_child() == without
    assert alive() <= len(others)
    others = tasks()
    assert shared() and len(tasks() - others) == 1


def test_a_process_forked_while_a_job_runs(shared: Callable[[], bool]) -> None:
    assert shared()
    flags = np.zeros(2, np.int32)
    long = ctypes.c_int64
    parallel = pool.library().function("weft_parallel", None, ctypes.c_void_p, ctypes.c_void_p, long, long)
    wait = in_thread(lambda: parallel(address("hold"), table(flags), 2, 1))
    assert until(lambda: flags[0] == 1)
    try:
        assert in_child(lambda: shared() and takes_part(2))
        assert shared()
    finally:
        flags[1] = 1
        wait()
    assert shared() and takes_part(2)


def test_a_process_forked_without_python_knowing_goes_on_alone(own: Pool) -> None:
    own.start(1)
    assert until(lambda: len(threads_of(own)) == 2)
    assert in_child(lambda: bool((own.visits(100, 1) == 1).all()))  # nothing resets a pool of the tests
    assert (own.visits(100, 1) == 1).all()


EXIT = """
    import sys, threading, ctypes
    import numpy as np
    from tests.compiler.native_kernels import address, table
    from weft.compiler.target.cpu import pool
    pool.set_threads(3)
    long = ctypes.c_int64
    parallel = pool.library().function("weft_parallel", None, ctypes.c_void_p, ctypes.c_void_p, long, long)
    visits = np.zeros(1000, np.int32)
    parallel(address("visit"), table(visits), 1000, 1)
    assert (visits == 1).all()
"""
# Arrays of the daemons are in their frames: at exit Python frees what modules hold, but not those.
DAEMON = """
    def work():
        visits = np.zeros(1000, np.int32)
        while True:
            parallel(address("visit"), table(visits), 1000, 1)
    threading.Thread(target=work, daemon=True).start()
"""
HOLDING = """
    begun = []
    def work():
        flags = np.zeros(2, np.int32)
        begun.append(flags)
        parallel(address("hold"), table(flags), 2, 1)
    threading.Thread(target=work, daemon=True).start()
    while not begun or not begun[0][0]: pass
"""


each_ending = pytest.mark.parametrize(
    "rest", ["", DAEMON, HOLDING, "    sys.exit(0)\n"], ids=["plain", "daemon", "holding", "exit"]
)


def seconds_to_end(rest: str) -> float:
    """How long a process with a pool takes to end after its last statement."""
    report = "    import time; print(time.time())\n"
    text = textwrap.dedent(EXIT + rest.replace("sys.exit(0)", "print(__import__('time').time()); sys.exit(0)") + report)
    result = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=60)
    ended = time.time()
    assert (result.returncode, result.stderr) == (0, "")
    return ended - float(result.stdout)


@each_ending
def test_a_process_ends(rest: str) -> None:
    seconds_to_end(rest)


@pytest.mark.timing
@each_ending
def test_a_process_ends_at_once(rest: str) -> None:
    assert seconds_to_end(rest) < 5


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_number_of_threads_is_a_setting_outside_of_keys() -> None:
    assert 1 <= pool.available() <= (os.cpu_count() or 1)
    key = config.key()
    with num_threads(3):
        assert pool.threads() == 3 and config.num_threads == 3
        assert config.key() is key
    with num_threads(0):
        assert pool.threads() == pool.available()
    with num_threads(100_000):
        assert pool.threads() == pool.MOST_WORKERS + 1
    for wrong in (-1, 1.5, True, "two"):
        with pytest.raises(ValueError, match="num_threads"):
            num_threads(wrong)


def test_a_scope_decides_for_its_block(shared: Callable[[], bool]) -> None:
    assert shared() and takes_part(2)
    with num_threads(1):
        assert shared() and takes_part(1)
    assert shared() and takes_part(2)
    pool.set_threads(1)
    assert config.num_threads == 1 and takes_part(1)


# -- other machines ----------------------------------------------------------------------------------------------------


APPLE = Target("cpu", "arm64-apple-darwin23.0.0", "apple-m1", "+neon", 128)
WINDOWS = Target("cpu", "x86_64-pc-windows-msvc", "x86-64", "+sse2", 128)
ELSEWHERE = Target("cpu", "powerpc64le-unknown-linux-gnu", "pwr9", "", 128)


@pytest.mark.parametrize(
    "target, how, needs",
    [
        (aarch64(), Waiting.FUTEX, {"syscall", "pthread_create"}),
        (APPLE, Waiting.CONDITION, {"pthread_cond_wait", "pthread_create"}),
        (ELSEWHERE, Waiting.CONDITION, {"pthread_cond_wait", "pthread_create"}),
        (WINDOWS, Waiting.NO_THREADS, set()),
    ],
    ids=["aarch64", "apple", "powerpc", "windows"],
)
def test_other_machines_have_a_pool(target: Target, how: Waiting, needs: set[str]) -> None:
    assert pool.waiting(target.triple) is how
    result = pool.pool_object(target)
    pools = {"weft_parallel", "weft_pool_start", "weft_pool_stop", "weft_pool_reset"}
    beside = set() if how is Waiting.NO_THREADS else {"weft_copy_bytes", *queue.NAMES}
    assert set(result.exports) == pools | beside | set(interrupt.NAMES)
    imports = {name for name in result.imports if not name.startswith("Py")}
    assert needs <= imports and (needs or not imports)


def test_without_threads_the_caller_runs_everything() -> None:
    own = Pool(Waiting.NO_THREADS)
    own.start(3)
    assert (own.visits(100, 7) == 1).all() and threads_of(own) == {this_thread()}
    assert own.stop() == 1


def test_a_program_without_better_code_does_not_keep_others_from_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Program:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        def optimise(self, yields: bool) -> None:
            if self.error is not None:
                raise self.error
            seen.append("better")

    monkeypatch.setattr(threading, "excepthook", lambda told: seen.append(str(told.exc_value)))
    programs: Any = [Program(MemoryError("no room")), Program(None)]
    for program in programs:
        tiers.improve(program)
    assert tiers.wait(30) and seen == ["no room", "better"]
