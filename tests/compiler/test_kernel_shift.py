"""Shifts between lanes: compiled code computes what the interpreter computes, also in the tail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.running import MACHINES, assert_compiles, numbers
from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Kernel, LoopKind
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.verifier import verify


def running_sum(size: int, width: int, dtype: Any) -> Kernel:
    """Each element with all before it: lanes in steps, and the last lane carried on."""
    k = KernelBuilder("running_sum")
    x, y = k.buffer("x", dtype, size), k.buffer("y", dtype, size, written=True)
    zero = k.constant(0, np.dtype(dtype))
    with k.loop(size, kind=LoopKind.LANES, width=width, carries=[zero]) as (i, (before,)):
        lanes = k.load(x, i)
        step = 1
        while step < width:
            lanes = k.scalars.add(k.shift(lanes, step, zero), lanes)
            step *= 2
        k.store(y, i, k.scalars.add(before, lanes))
        k.carry(k.scalars.add(before, k.last(lanes)))
    return k.finish()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [1, 7, 16, 37])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "complex64"])
def test_a_cumulative_sum(dtype: str, size: int, machine: str) -> None:
    x = numbers(np.random.default_rng(size), dtype, size)
    _, y = assert_compiles(running_sum(size, 8, dtype), [x, np.zeros(size, dtype)], MACHINES[machine]())
    np.testing.assert_array_equal(y, np.cumsum(x, dtype=dtype))


def test_a_shift_is_filled_by_lanes_of_a_vector() -> None:
    k = KernelBuilder("shifted")
    x, y = k.buffer("x", np.int32, 11), k.buffer("y", np.int32, 11, written=True)
    with k.loop(11, kind=LoopKind.LANES, width=4, carries=[k.constant(0, np.dtype(np.int32))]) as (i, (before,)):
        value = k.load(x, i)
        k.store(y, i, k.shift(value, 2, before))
        k.carry(value)
    kernel = k.finish()
    assert "shift b by 2 fill a" in to_text(kernel)
    _, shifted = assert_compiles(kernel, [np.arange(1, 12, dtype=np.int32), np.zeros(11, np.int32)], MACHINES["host"]())
    assert shifted.tolist() == [0, 0, 1, 2, 1, 2, 5, 6, 5, 6, 9]


def test_what_all_lanes_have_is_shifted() -> None:
    k = KernelBuilder("shifted")
    x, y = k.buffer("x", np.int32, 1), k.buffer("y", np.int32, 11, written=True)
    value = k.load(x, 0)
    with k.loop(11, kind=LoopKind.LANES, width=4, carries=[k.constant(0, np.dtype(np.int32))]) as (i, (before,)):
        k.store(y, i, k.shift(value, 2, before))
        k.carry(k.last(value))
    _, shifted = assert_compiles(k.finish(), [np.full(1, 7, np.int32), np.zeros(11, np.int32)], MACHINES["host"]())
    assert shifted.tolist() == [0, 0] + [7] * 9


@pytest.mark.parametrize("where", ["no lanes", "no carry", "too far"])
def test_lanes_are_shifted_only_in_loops_over_lanes(where: str) -> None:
    k = KernelBuilder("wrong")
    x, y = k.buffer("x", np.int32, 8), k.buffer("y", np.int32, 8, written=True)
    zero = k.constant(0, np.dtype(np.int32))
    if where == "too far":
        with k.loop(8, kind=LoopKind.LANES, width=4, carries=[zero]) as (i, (before,)):
            k.store(y, i, k.shift(k.load(x, i), 4, zero))
            k.carry(before)
    else:
        lanes = (LoopKind.SERIAL, 1) if where == "no lanes" else (LoopKind.LANES, 4)
        with k.loop(8, kind=lanes[0], width=lanes[1]) as i:
            k.store(y, i, k.last(k.load(x, i)))
    with pytest.raises(InternalError, match=r"shift by 4|Lanes are moved"):
        verify(k.finish())
