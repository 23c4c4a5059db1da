"""Many threads compile and run at once, call back into Python, fail, and fork; each gets its own results."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.runtime.cpu import tiers

THREADS = 8


def together(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """`work` of each number, in threads that begin at one moment."""
    barrier = threading.Barrier(count)

    def begin(thread: int) -> Any:
        barrier.wait()
        return work(thread)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def total(x: Any) -> Any:
    """Compute with kernels, a loop, and temporaries."""
    carry, rows = lax.scan(lambda c, r: (c * 2 - r, c + r), x[0], x)
    return carry, wnp.cumsum(rows, 0) @ x.T, wnp.sum(lax.fori_loop(0, 3, lambda i, c: c + i * x, x))


def numbers(seed: int, rows: int = 7, columns: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (rows, columns)).astype(np.float32)


def bits(result: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in weft.tree.leaves(result)]


def test_one_function_in_many_threads() -> None:
    jitted = weft.jit(total)
    expected = {seed: bits(total(numbers(seed))) for seed in range(THREADS)}

    def work(thread: int) -> bool:
        return all(bits(jitted(numbers(thread))) == expected[thread] for _ in range(40))

    assert all(together(work))
    assert jitted.cache_size() == 1


@pytest.mark.parametrize("attempt", range(3))
def test_first_calls_race(attempt: int) -> None:
    """The function is traced and compiled under contention, for signatures that are the same and that are not."""
    jitted = weft.jit(lambda x: total(x * (attempt + 1)))

    def work(thread: int) -> bool:
        x = numbers(thread, 3 + thread % 3, 5)
        return bits(jitted(x)) == bits(total(x * (attempt + 1)))

    assert all(together(work))
    assert jitted.cache_size() == 3


def test_many_functions_at_once() -> None:
    def work(thread: int) -> bool:
        held = []
        for iteration in range(6):
            jitted = weft.jit(lambda x, iteration=iteration: wnp.sum(x * (thread + iteration), 0) - x[iteration])
            x = numbers(thread)
            held += [bits(jitted(x)) == bits(wnp.sum(x * (thread + iteration), 0) - x[iteration]) for _ in range(3)]
        return all(held)

    assert all(together(work))


def test_large_loops_share_the_workers() -> None:
    """Programs that are shared among threads of the pool run in several threads of Python at once."""
    jitted = weft.jit(lambda x: (x * 2 + 1, wnp.sum(x, 0), x.T @ x))
    args = {seed: numbers(seed, 700, 160) for seed in range(4)}
    expected = {seed: bits((x * 2 + 1, x.sum(0), x.T @ x)) for seed, x in args.items()}
    assert all(together(lambda thread: all(bits(jitted(args[thread])) == expected[thread] for _ in range(15)), 4))


def test_code_is_replaced_while_programs_run() -> None:
    jitted = weft.jit(total)
    x = numbers(3)
    expected = bits(total(x))
    stop = threading.Event()

    def run() -> bool:
        same = True
        while not stop.is_set():
            same = same and bits(jitted(x)) == expected
        return same

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(run) for _ in range(3)]
        assert tiers.wait(60)
        stop.set()
        assert all(r.result() for r in running)
    assert bits(jitted(x)) == expected


def test_callbacks_of_several_threads() -> None:
    """Each call's numbers come to its own callback, in its own thread."""
    seen: dict[int, set[int]] = {}

    def note(thread: np.ndarray, x: np.ndarray) -> np.ndarray:
        seen.setdefault(int(thread), set()).add(threading.get_ident())
        return x + thread

    def function(thread: Any, x: Any) -> Any:
        kind = weft.ShapeDtypeStruct(x.shape, x.dtype)
        y = weft.pure_callback(note, kind, thread, x * 2)
        return lax.fori_loop(0, 3, lambda i, c: weft.pure_callback(note, kind, thread, c), y) - 1

    jitted = weft.jit(function)
    x = numbers(1)

    def work(thread: int) -> bool:
        same = [np.array_equal(np.asarray(jitted(np.float32(thread), x)), x * 2 + 4 * thread - 1) for _ in range(10)]
        return all(same) and seen[thread] == {threading.get_ident()}

    assert all(together(work))


def test_callbacks_that_raise_in_some_threads() -> None:
    """An exception comes out of the call it belongs to, and the others go on."""

    def check(x: np.ndarray) -> np.ndarray:
        if x[0] < 0:
            raise ValueError(f"negative {int(x[0])}")
        return x

    jitted = weft.jit(lambda x: weft.pure_callback(check, weft.ShapeDtypeStruct(x.shape, x.dtype), x + 1) * 2)

    def work(thread: int) -> bool:
        good = []
        for iteration in range(12):
            start = -10 * thread - 5 if (thread + iteration) % 3 == 0 else thread
            x = np.full(4, start, np.float32)
            try:
                result = jitted(x)
            except Exception as error:
                good.append(start < 0 and f"negative {start + 1}" in str(error))
            else:
                good.append(start >= 0 and bool((np.asarray(result) == 2 * (start + 1)).all()))
        return all(good)

    assert all(together(work))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_other_threads_compute() -> None:
    """The child has one thread and all of the program: it runs what is compiled, and compiles anew."""
    jitted = weft.jit(total)
    x = numbers(5)
    expected = bits(total(x))
    jitted(x)
    stop = threading.Event()

    def busy(thread: int) -> None:
        iteration = 0
        while not stop.is_set():
            iteration += 1
            assert bits(jitted(x)) == expected
            weft.jit(lambda v, iteration=iteration: v * iteration + thread)(x)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(busy, thread) for thread in range(3)]
        try:
            codes = [child_status(jitted, x, expected) for _ in range(3)]
        finally:
            stop.set()
        for r in running:
            r.result()
    assert codes == [0, 0, 0]


def child_status(jitted: Callable[..., Any], x: np.ndarray, expected: list[bytes]) -> int:
    """Return the exit status of a forked process that computes, within a minute."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            large = np.ones((600, 600), np.float32)
            same = bits(jitted(x)) == expected
            fresh = np.asarray(weft.jit(lambda v: wnp.sum(v * 3, 0))(large))
            code = 0 if same and bool((fresh == 1800).all()) else 2
        finally:
            os._exit(code)
    for _ in range(6000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        stop_waiting.wait(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


stop_waiting = threading.Event()  # never set: its wait is a sleep
