"""Memos are bounded, can be cleared, and are thread-safe."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft
from weft import lax
from weft.base.memo import FunctionMemo, Memo


def test_a_value_is_found_by_its_key() -> None:
    memo: Memo[Any, int] = Memo(10)
    assert memo.get("a") is None and "a" not in memo
    assert memo.keep("a", 1) == 1 and memo.get("a") == 1 and "a" in memo
    assert memo.keep("a", 2) == 1, "the first value stays"
    with pytest.raises(TypeError):
        memo.get([])


def test_a_full_memo_is_cleared() -> None:
    memo: Memo[int, int] = Memo(10)
    for i in range(95):
        assert memo.keep(i, -i) == -i
        assert memo.get(i) == -i and len(memo) <= 10
    assert len(memo) == 5


def test_clear_caches_empties_all_but_lasting_ones() -> None:
    memo: Memo[int, int] = Memo(10)
    lasting: Memo[int, int] = Memo(10, lasting=True)
    get = memo.get
    for table in (memo, lasting):
        table.keep(1, 2)
    weft.clear_caches()
    assert (len(memo), len(lasting)) == (0, 1)
    memo.keep(3, 4)
    assert get(3) == 4, "a lookup that was taken before still looks into the same table"


def test_threads_agree_on_the_first_value() -> None:
    memo: Memo[int, object] = Memo(1000)
    found: list[list[object]] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        found.append([memo.keep(i, object()) for i in range(500)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(values == found[0] for values in found)


def test_a_memo_does_not_keep_functions_alive() -> None:
    memos: FunctionMemo[str, int] = FunctionMemo(3, 10)
    assert memos.of(len) is None and memos.of("text") is None

    def make() -> Any:
        return lambda: None

    functions = [make() for _ in range(3)]
    for n, function in enumerate(functions):
        memo = memos.of(function)
        assert memo is not None and memo.keep("n", n) == n and memos.of(function) is memo
    del functions[0], function
    gc.collect()
    assert len(memos._memos) == 2
    more = [make(), make()]
    assert all(memos.of(function) is not None for function in more) and len(memos._memos) <= 3


def test_clear_caches_forgets_bodies_of_loops() -> None:
    traced: list[None] = []

    def body(i: Any, x: Any) -> Any:
        traced.append(None)
        return x + i

    for _ in range(2):
        lax.fori_loop(0, 3, body, np.float32(1))
    once = len(traced)
    weft.clear_caches()
    assert float(lax.fori_loop(0, 3, body, np.float32(1))) == 4
    assert len(traced) == 2 * once


def test_clear_caches_forgets_functions_with_derivatives_of_their_own() -> None:
    traced: list[None] = []

    @weft.custom_jvp
    def double(x: Any) -> Any:
        traced.append(None)
        return x * 2

    double.defjvps(lambda t, out, x: t * 2)
    for _ in range(2):
        weft.jit(lambda x: double(x))(np.float32(1))
    once = len(traced)
    weft.clear_caches()
    weft.jit(lambda x: double(x))(np.float32(1))
    assert len(traced) == 2 * once


def test_a_memo_is_freed_with_its_owner() -> None:
    memo: Memo[int, int] = Memo(10)
    gone = weakref.ref(memo)
    del memo
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_begin_empty(duplicate: Any) -> None:
    memo: Memo[int, int] = Memo(2)
    memo.keep(1, 2)
    other = duplicate(memo)
    assert len(other) == 0 and other.get(1) is None
    other.keep(1, 3)
    assert (memo.get(1), other.get(1)) == (2, 3)
