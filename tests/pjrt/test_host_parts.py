"""Operations that StableHLO cannot express run on the host between parts of a program, and failed checks name their
line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.sharding.device import Device

VALUE = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def x(device: Device) -> Any:
    return weft.device_put(VALUE, device)


def test_callbacks_between_parts(x: Any, device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[np.ndarray] = []

    @weft.jit
    def f(x, unused):
        y = wnp.sin(x)
        weft.debug.print("mean {}", y.mean())
        y = weft.pure_callback(lambda a: a * 2, y, y)
        z = wnp.cos(y) + y
        weft.debug.callback(seen.append, z.sum())
        return z, 3.0, x, y.sum() * 2

    expected = np.cos(2 * np.sin(VALUE)) + 2 * np.sin(VALUE)
    for i in range(3):
        z, three, same, total = f(x, 1.0)
        np.testing.assert_allclose(z, expected, rtol=1e-5)
        np.testing.assert_array_equal(same, VALUE)
        assert z.device is device and float(three) == 3
        np.testing.assert_allclose(total, 4 * np.sin(VALUE).sum(), rtol=1e-4)
        weft.effects_barrier()
        assert len(seen) == i + 1
    assert capsys.readouterr().out.count("mean 0.029") == 3
    assert "stablehlo.sine" in f.lower(x, 1.0).compile().program


def test_donated_arguments_of_a_program_in_parts(x: Any) -> None:
    f = weft.jit(
        lambda x: weft.pure_callback(np.cumsum, weft.ShapeDtypeStruct((6,), np.float32), x + 1), donate_argnums=0
    )
    np.testing.assert_array_equal(f(x), np.cumsum(VALUE + 1))
    assert x.is_deleted()


def test_ordered_effects_keep_their_order(x: Any) -> None:
    seen: list[float] = []

    @weft.jit
    def f(x):
        for i in range(4):
            weft.io_callback(lambda a: seen.append(float(a)), None, x.sum() + i, ordered=True)
            x = x + 1
        return x

    f(x).block_until_ready()
    assert seen == [15 + 7 * i for i in range(4)]


def test_a_callback_in_a_loop_is_refused_with_its_line(x: Any) -> None:
    f = weft.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: weft.pure_callback(np.sin, x, x), x))
    with pytest.raises(errors.NotSupportedError, match="pure_callback") as caught:
        f(x)
    assert "test_host_parts.py" in str(caught.value)


def test_errors_of_callbacks_reach_the_caller(x: Any) -> None:
    def fail(a):
        raise ValueError("no")

    with pytest.raises(Exception, match="no"):
        weft.jit(lambda x: weft.pure_callback(fail, x, x) + 1)(x).block_until_ready()


def test_failed_checks_name_line_and_iteration(x: Any) -> None:
    with weft.checks(True):
        f = weft.jit(lambda t, i: lax.scan(lambda c, j: (c + t[j], None), 0.0, i)[0])
        assert float(f(x[0], wnp.arange(3))) == 3
        bad = f(x[0], wnp.arange(5))
        with pytest.raises(errors.OutOfBoundsIndexError, match="Index 3 is out of bounds") as caught:
            bad.block_until_ready()
    assert "in iteration 3" in str(caught.value) and "test_host_parts.py" in str(caught.value)
    assert float(f(x[0], wnp.arange(3))) == 3  # and is raised once


def test_nan_and_infinity_are_found(x: Any) -> None:
    for setting, function, kind in (
        (weft.debug_nans, lambda x: wnp.log(x - 1) * 2, "nan in result 0 of `log`"),
        (weft.debug_infs, lambda x: 1 / (1 / x), "inf in result 0 of `div`"),
    ):
        with setting(True):
            for call in (weft.jit(function), function):
                with pytest.raises(errors.NonFiniteValueError) as caught:
                    call(x).block_until_ready()
            assert kind in str(caught.value) or "div" in str(caught.value) or "log" in str(caught.value)
            np.testing.assert_allclose(weft.jit(function)(x + 2), function(VALUE + 2), rtol=1e-5)


def test_donated_arguments_of_checked_programs(device: Device) -> None:
    with weft.checks(True):
        f = weft.jit(lambda t, i: t.at[i].add(1.0), donate_argnums=0)
        table = weft.device_put(np.zeros(4, np.float32), device)
        result = f(table, wnp.int32(2))
        assert table.is_deleted() and np.asarray(result).tolist() == [0, 0, 1, 0]
        with pytest.raises(errors.OutOfBoundsIndexError):
            f(result, wnp.int32(7)).block_until_ready()


def test_checkify(x: Any) -> None:
    from weft.experimental import checkify

    def f(x):
        checkify.check(x[0, 0] > 0, "must be positive: {v}", v=x[0, 0])
        return x * 2

    error, result = checkify.checkify(weft.jit(f))(x)
    assert "must be positive: 0.0" in error.get()
    np.testing.assert_array_equal(result, VALUE * 2)
    with pytest.raises(errors.FailedCheckError, match="must be positive"):
        weft.jit(f)(x).block_until_ready()


def test_explain_is_refused(x: Any) -> None:
    with pytest.raises(errors.NotSupportedError, match="Times of steps"):
        weft.explain(weft.jit(lambda x: x + 1), write=False)(x)
