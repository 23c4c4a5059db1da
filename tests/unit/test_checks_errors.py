"""Errors of checks: the line, the index, the iteration and the lane; and the values of the setting `checks`."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.base.settings import overrides
from weft.ir.nans import allow_nans

TABLE = np.arange(10, dtype=np.float32)


def said(error: type[Exception], function: Any, *args: Any) -> str:
    with pytest.raises(error) as caught:
        function(*args)
    return str(caught.value)


def test_the_parts_of_a_message() -> None:
    table = wnp.asarray(TABLE)

    def outer(c: Any, i: Any) -> Any:
        total = lax.fori_loop(0, 3, lambda j, s: s + table[4 * i + j], 0.0)  # the line of the index
        return c, total

    @weft.jit
    def f(starts: Any) -> Any:
        return weft.vmap(lambda s: lax.scan(outer, 0.0, s)[1])(starts)

    with weft.checks("all"):
        assert f(np.array([[0, 1], [1, 0]])).shape == (2, 2)
        text = said(errors.OutOfBoundsIndexError, f, np.array([[0, 1], [1, 2]]))
    lines = text.splitlines()
    assert lines[0] == "Index 10 is out of bounds for axis 0 of an array of shape [10]."
    assert "test_checks_errors.py" in lines[1] and "s + table[4 * i + j]" in lines[1]
    assert lines[2].split(maxsplit=1) == ["received", "index 10"]
    assert lines[3].strip().startswith("in iteration 1 of scan at test_checks_errors.py:")
    assert lines[4].strip().startswith("in iteration 2 of scan at test_checks_errors.py:")
    assert lines[5].strip() == "in lane 1 of vmap"
    assert lines[6].strip().startswith("fix")


def test_lanes_by_name_and_from_outside_in() -> None:
    inner = weft.vmap(lambda x, i: x[i], axis_name="rows")
    mapped = weft.jit(weft.vmap(inner, in_axes=(None, 1), axis_name="columns"))
    table = np.zeros((2, 4), np.float32)
    with weft.checks("all"):
        text = said(errors.OutOfBoundsIndexError, mapped, table, np.array([[0, 1, 2], [3, 3, 4]]))
    assert "in lane 2 of vmap over 'columns'\n            in lane 1 of vmap over 'rows'" in text


def test_a_reversed_loop_names_the_iteration() -> None:
    table = wnp.asarray(TABLE)
    back = weft.jit(lambda xs: lax.scan(lambda c, i: (c, table[i]), 0.0, xs, reverse=True))
    with weft.checks("all"):
        assert "in iteration 3 of scan" in said(errors.OutOfBoundsIndexError, back, np.array([50, 1, 2, 99, 5]))


def test_the_first_of_many_and_their_count() -> None:
    with weft.checks("all"):
        text = said(errors.OutOfBoundsIndexError, weft.jit(lambda x, i: x[i]), TABLE, np.array([[1, 10], [-11, 99]]))
    assert "index 10 at [0, 1] of int32[2, 2], the first of 3 that are out of bounds" in text


def test_division_and_nan_in_loops() -> None:
    divide = weft.jit(lambda xs: lax.scan(lambda c, x: (c, 7 // x), 0, xs))
    root = weft.jit(lambda x: lax.while_loop(lambda v: v > -5.0, lambda v: wnp.sqrt(v) - 1.0, x))
    with weft.checks("all"):
        text = said(errors.IntegerDivisionError, divide, np.array([3, 2, 0]))
        assert "0 as the divisor" in text and "in iteration 2 of scan" in text and "7 // x" in text
        assert isinstance(errors.IntegerDivisionError("x"), ZeroDivisionError)
        text = said(errors.NonFiniteValueError, root, 5.0)
        assert text.startswith("nan in result 0 of `sqrt`.") and "in iteration 3 of while" in text


def test_errors_can_be_sent_to_other_processes() -> None:
    with weft.checks("all"), pytest.raises(errors.OutOfBoundsIndexError) as caught:
        weft.jit(lambda x, i: x[i])(TABLE, 10)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# ---------------------------------------------------------------------------------------------------------- the setting


def test_the_setting_takes_booleans() -> None:
    with weft.checks(True):
        assert weft.config.checks == "all"
    with weft.checks(False):
        assert weft.config.checks == "off"
    with weft.checks():
        assert weft.config.checks == "all"
    with pytest.raises(ValueError, match="'eager', 'all', 'off'"):
        weft.checks("some")


@pytest.mark.parametrize("setting", ["off", "eager"])
def test_without_checks_indices_are_clamped_and_dropped(setting: str) -> None:
    with weft.checks(setting):
        assert float(weft.jit(lambda x, i: x[i])(TABLE, 12)) == 9.0
        assert weft.jit(lambda x, i: x.at[i].set(5.0))(TABLE, 12).tolist() == TABLE.tolist()
        assert int(weft.jit(lambda x, y: lax.div(x, y))(5, 0)) == -1
        assert "trap" not in str(weft.make_jaxpr(lambda x, i: x[i])(TABLE, 3))
        assert "check" not in str(weft.make_jaxpr(lambda x, i: x[i])(TABLE, 3))


def test_one_function_under_several_settings() -> None:
    f = weft.jit(lambda x, i: x[i])
    for _ in range(3):
        assert float(f(TABLE, 12)) == 9.0
        with weft.checks("all"):
            said(errors.OutOfBoundsIndexError, f, TABLE, 12)
            assert float(f(TABLE, 3)) == 3.0


def test_eager_operations_are_checked_by_default() -> None:
    mapped = weft.vmap(lambda i: wnp.asarray(TABLE)[i])
    assert "in lane 1 of vmap" in said(errors.OutOfBoundsIndexError, mapped, np.array([1, 12]))
    with weft.checks("off"):
        assert mapped(np.array([1, 12])).tolist() == [1.0, 9.0]
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    said(errors.OutOfBoundsIndexError, lambda: lax.gather(TABLE, np.array([[12]]), numbers, (1,)))
    assert lax.gather(TABLE, np.array([[12]]), numbers, (1,), mode="clip").tolist() == [9.0]
    assert int(wnp.array(5) % 0) == 0 and int(lax.div(5, 0)) == -1  # these are defined
    with weft.checks("all"):
        said(errors.IntegerDivisionError, lambda: wnp.array(5) % 0)
        said(errors.NonFiniteValueError, lambda: wnp.log(wnp.float32(-1.0)))


@pytest.mark.parametrize("size", [4, 1 << 19])
def test_eager_debug_nans_for_small_and_large_arrays(size: int) -> None:
    values = np.ones(size, np.float32)
    values[size // 2] = -1.0
    with weft.debug_nans(True):
        text = said(errors.NonFiniteValueError, lambda: wnp.log(values))
    assert "nan in result 0 of `log`" in text and f"({size // 2},)" in text and "wnp.log(values)" in text


def test_checks_of_threads_do_not_mix() -> None:
    f = weft.jit(lambda x, i: lax.scan(lambda c, j: (c + x[j], None), 0.0, i)[0])
    texts: dict[int, str] = {}

    def work(thread: int) -> None:
        with weft.checks("all"):
            indices = np.zeros(200, np.int32)
            indices[thread * 10] = 20 + thread
            for _ in range(20):
                try:
                    f(TABLE, indices)
                except errors.OutOfBoundsIndexError as error:
                    texts[thread] = str(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in range(4):
        assert f"Index {20 + thread} " in texts[thread] and f"in iteration {thread * 10} of scan" in texts[thread]


def test_transformations_keep_the_checks() -> None:
    def f(x: Any, i: Any) -> Any:
        return wnp.sum(x[i] ** 2)

    bad = np.array([1, 10])
    with weft.checks("all"):
        for result in (
            weft.grad(f),
            weft.hessian(f),
            weft.jacrev(f),
            weft.checkpoint(f),
            weft.grad(weft.checkpoint(f)),
        ):
            said(errors.OutOfBoundsIndexError, weft.jit(result), TABLE, bad)
        pushed = weft.jit(lambda x, i: weft.jvp(lambda y: f(y, i), (x,), (x,)))
        said(errors.OutOfBoundsIndexError, pushed, TABLE, bad)
        assert np.allclose(weft.jit(weft.grad(f))(TABLE, np.array([1, 9])), 2 * TABLE * np.isin(np.arange(10), [1, 9]))


def test_unused_values() -> None:
    def safe_log(x: Any) -> Any:
        with allow_nans():
            y = wnp.log(x)
        return wnp.where(x > 0, y, 0.0)

    values = wnp.array([1.0, -1.0])
    with weft.debug_nans(True):
        assert weft.jit(safe_log)(values).tolist() == [0.0, 0.0]
        assert safe_log(values).tolist() == [0.0, 0.0]
        said(errors.NonFiniteValueError, weft.jit(lambda x: wnp.where(x > 0, wnp.log(x), 0.0)), values)


@pytest.mark.parametrize("setting", [{"checks": "all"}, {"debug_nans": True}, {"debug_infs": True}])
def test_every_stage_of_the_compiler_takes_them(setting: dict[str, Any]) -> None:
    def f(x: Any, i: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] + 1, wnp.tanh(s[1] @ s[1]) + x[i // (s[0] + 1)].sum()

        looped = lax.while_loop(lambda s: s[0] < 3, body, (0, wnp.outer(x, x)))[1]
        return lax.cond(i[0] > 2, lambda: looped, lambda: wnp.exp(-looped)), weft.nn.softmax(looped)

    with weft.checks("off"):
        expected = weft.jit(f)(TABLE / 10, np.arange(6, dtype=np.int32))
    with overrides(enable_checks=True, **setting):
        result = weft.jit(f)(TABLE / 10, np.arange(6, dtype=np.int32))
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
