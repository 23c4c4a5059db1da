"""Checks of programs on a simulated GPU: errors are raised where a value is read, and programs stay graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from weft import lax
from weft.base.settings import overrides
from weft.runtime.cuda.flags import MOST_PENDING
from weft.sharding.device import Device


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    with simulated_gpu(monkeypatch) as found:
        yield found


def put(device: Device, *values: float) -> Any:
    return weft.device_put(np.array(values, np.float32), device)


def test_errors_are_raised_where_values_are_read(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu
    f = weft.jit(lambda x: wnp.log(x) + 1)
    with weft.debug_nans(True):
        good, bad = put(device, 1, 2), put(device, 1, -2)
        for _ in range(4):
            np.testing.assert_allclose(np.asarray(f(good)), np.log([1, 2]) + 1, rtol=1e-6)
        assert "record" in driver.calls and "start" in driver.calls
        copies = driver.calls.count("out 1")
        y = f(bad)  # nobody waits
        z = f(good)
        assert driver.calls.count("out 1") == copies
        with pytest.raises(FloatingPointError, match="nan in result 0 of `log`, the first at index"):
            np.asarray(y)
        np.testing.assert_allclose(np.asarray(z), np.log([1, 2]) + 1, rtol=1e-6)
        f(bad)
        with pytest.raises(FloatingPointError):
            z.block_until_ready()  # which waits for all work
        for _ in range(MOST_PENDING):
            f(good)
        f(bad)
        with pytest.raises(FloatingPointError):
            for _ in range(MOST_PENDING + 1):
                f(good)


def test_indices_in_loops_and_donated_arguments(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, driver = gpu

    def program(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, c: c + x[i], wnp.float32(0)), x * 2

    f = weft.jit(program, donate_argnums=0)
    with overrides(checks="all"):
        for count in (3, 3, 3):
            x = put(device, 1, 2, 3)
            assert float(f(x, count)[0]) == 6 and x.is_deleted()
        assert "loop" in " ".join(driver.calls)  # one kernel
        total, _ = f(put(device, 1, 2, 3), 4)
        with pytest.raises(IndexError, match=r"Index 3 is out of bounds.*"):
            float(total)


def test_checks_of_users(gpu: tuple[Device, SimulatedDriver]) -> None:
    device, _ = gpu

    def checked(x: Any) -> Any:
        weft.experimental.checkify.check(wnp.all(x > 0), "negative {x}", x=x[1])
        return x * 2

    found = weft.jit(checked)(put(device, 1, -1))
    with pytest.raises(weft.errors.FailedCheckError, match=r"negative -1\.0"):
        found.block_until_ready()
    error, doubled = weft.jit(weft.experimental.checkify.checkify(checked))(put(device, 1, -1))
    assert "negative -1.0" in error.get() and float(doubled[0]) == 2
