"""Interleaved accesses: strided lanes use contiguous vectors, with the bits of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.running import MACHINES, assert_compiles, assert_same, numbers
from weft.base import dtypes
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Kernel, LoopKind
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.lower import lower
from weft.compiler.target.cpu.targets import aarch64, of_flags
from weft.runtime.cpu.guarded import Edge

AVX512 = of_flags(
    "x86_64-unknown-linux-gnu", "skylake-avx512", dict.fromkeys(("avx512f", "avx512vl", "avx512bw", "avx512dq"), True)
)


def rotated(dtype: Any, size: int, columns: int, width: int = 8, used: int | None = None) -> Kernel:
    """Rows of a few columns, each column handed on to the next; of `used` columns only, the others are constant."""
    k = KernelBuilder("rotated")
    x, y = k.buffer("x", dtype, size * columns), k.buffer("y", dtype, size * columns, written=True)
    used = columns if used is None else used
    with k.loop(size, kind=LoopKind.LANES, width=width) as i:
        for column in range(columns):
            taken = k.load(x, i * columns + (column + 1) % used) if column < used else k.constant(1, np.dtype(dtype))
            k.store(y, i * columns + column, taken)
    return k.finish()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint4", "bfloat16", "float32", "float64", "complex64"])
def test_columns(dtype: str, machine: str) -> None:
    """Whole vectors, tails, and what a row has beside the columns that are read: nothing beyond is touched."""
    exact = dtypes.as_dtype(dtype)
    for size, columns, used in ((37, 2, 2), (16, 3, 3), (37, 3, 2), (37, 4, 1), (70, 5, 4), (9, 8, 8)):
        kernel = rotated(exact, size, columns, used=used)
        x = numbers(np.random.default_rng(size), exact, size * columns)
        for edge in Edge:
            assert_compiles(kernel, [x, np.zeros_like(x)], MACHINES[machine](), edge=edge)


def test_gathers_are_gone() -> None:
    for columns in range(2, 9):
        text = lower(rotated(np.dtype(np.float32), 37, columns), AVX512)
        assert "gather" not in text and "scatter" not in text
    for columns, used in ((9, 9), (8, 3), (5, 2)):
        text = lower(rotated(np.dtype(np.float32), 37, columns, used=used), AVX512)
        assert "gather" in text and ("scatter" in text) == (columns > 8)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex64"])
def test_other_machines_have_code_for_them(dtype: str) -> None:
    for features in (AVX512, aarch64()):
        result = link.make_object(lower(rotated(np.dtype(dtype), 37, 3), features), features)
        assert result.imports == ()


@pytest.mark.parametrize("machine", MACHINES)
def test_order_in_one_buffer(machine: str) -> None:
    """Loads stay behind earlier stores to their buffer and before later ones."""
    k = KernelBuilder("order")
    x = k.buffer("x", np.float32, 2 * 21, written=True)
    y = k.buffer("y", np.float32, 2 * 21, written=True)
    with k.loop(21, kind=LoopKind.LANES, width=8) as i:
        before = k.load(x, i * 2)
        k.store(x, i * 2, k.scalars.add(before, before))
        k.store(x, i * 2 + 1, k.load(x, i * 2))
        k.store(y, i * 2 + 1, k.load(x, i * 2 + 1))
        k.store(y, i * 2, before)
    arrays = [numbers(np.random.default_rng(0), np.float32, 42) for _ in range(2)]
    after = assert_compiles(k.finish(), arrays, MACHINES[machine]())
    first = arrays[0][::2]
    np.testing.assert_array_equal(after[0].reshape(21, 2), np.stack([2 * first, 2 * first], 1))
    np.testing.assert_array_equal(after[1].reshape(21, 2), np.stack([first, 2 * first], 1))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("count", [3, 5, 6, 7, 11])
def test_short_copies(count: int, machine: str) -> None:
    """Rows of fewer elements than lanes, copied by vectors of 8, 4, 2 and 1."""
    k = KernelBuilder("short")
    x, y = k.buffer("x", np.float32, 10 * count), k.buffer("y", np.float32, 10 * count, written=True)
    with k.loop(10) as row, k.loop(count, kind=LoopKind.LANES, width=16) as i:
        k.store(y, row * count + i, k.load(x, row * -count + i + 9 * count))
    data = numbers(np.random.default_rng(count), np.float32, 10 * count)
    after = assert_compiles(k.finish(), [data, np.zeros_like(data)], MACHINES[machine]())
    assert_same(after[1], data.reshape(10, count)[::-1].ravel().copy())
