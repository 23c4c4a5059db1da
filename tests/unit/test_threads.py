"""Tracing from many threads at once is safe: each thread has its own active trace, and caches are shared."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.api.automatic import AutomaticSizes
from weft.ir.types import array_type


def test_many_threads_trace_and_transform_at_once() -> None:
    barrier = threading.Barrier(8)

    def work(thread: int) -> np.ndarray:
        barrier.wait()
        results = []
        for size in range(1, 8):
            x = wnp.arange(size, dtype=wnp.float32) + thread

            def f(v: Any) -> Any:
                return wnp.sum(lax.scan(lambda c, y: (wnp.sin(c) + y, c * thread), v[0], v)[1])

            results.append(np.asarray(weft.jit(weft.grad(f))(x)))
            results.append(np.asarray(weft.vmap(weft.grad(lambda v: v**2))(x)))
        return np.concatenate(results)

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, range(8)))
    barrier = threading.Barrier(1)
    alone = [work(thread) for thread in range(8)]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_jitted_function_called_from_many_threads() -> None:
    jitted = weft.jit(lambda x: wnp.tanh(x) * x.shape[0])

    def call(size: int) -> bool:
        x = np.linspace(0, 1, size % 13 + 1, dtype=np.float32)
        return np.allclose(np.asarray(jitted(x)), np.tanh(x) * len(x), atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(200)))
    assert jitted.cache_size() == 13


def test_a_trace_in_one_thread_is_not_seen_by_another() -> None:
    seen = []

    def f(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(wnp.ones(2) + 1))
        thread.start()
        thread.join()
        return x * 2

    weft.make_jaxpr(f)(1.0)
    np.testing.assert_array_equal(np.asarray(seen[0]), [2, 2])


def test_caches_are_cleared_while_others_are_added() -> None:
    ends, failures = threading.Event(), []

    def add() -> None:
        while not ends.is_set():
            functions = [lambda x, n=n: x + n for n in range(50)]
            for function in functions:
                weft.jit(function)
                weft.jit(function, inline=True)

    def clear() -> None:
        try:
            for _ in range(300):
                weft.clear_caches()
        except RuntimeError as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        others = [threading.Thread(target=add) for _ in range(2)]
        for thread in others:
            thread.start()
        clear()
    finally:
        ends.set()
        sys.setswitchinterval(before)
        for thread in others:
            thread.join()
    assert not failures


def test_threads_propose_families_of_sizes() -> None:
    families = AutomaticSizes()

    def propose(seed: int) -> None:
        for n in np.random.default_rng(seed).integers(1, 60, 2000):
            families.propose("rest", (array_type((int(n), 3), np.float32),) * 5, lambda: ["x"] * 5)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(propose, seed) for seed in range(4)]:
                future.result()
    finally:
        sys.setswitchinterval(before)
