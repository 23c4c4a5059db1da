"""Shuffles: lanes selected by index, and squares transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.compiler.running import MACHINES, assert_compiles, numbers
from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.maps.transpose import transpose_square
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Kernel, LoopKind, Value
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.verifier import verify


def read(k: KernelBuilder, dtype: Any, width: int, rows: int) -> Sequence[Value]:
    """The rows of a buffer as vectors."""
    x = k.buffer("x", dtype, width * rows)
    with k.loop(width, kind=LoopKind.LANES, width=width, carries=[k.constant(0, dtype)] * rows) as (i, _):
        carried = k.carry(*(k.load(x, i + row * width) for row in range(rows)))
    return carried


def write(k: KernelBuilder, vectors: Sequence[Value], width: int) -> None:
    """Vectors as the rows of a buffer."""
    y = k.buffer("y", vectors[0].dtype, width * len(vectors), written=True)
    with k.loop(width, kind=LoopKind.LANES, width=width, carries=vectors) as (i, inside):
        for row, vector in enumerate(inside):
            k.store(y, i + row * width, vector)
        k.carry(*inside)


def shuffled(dtype: Any, chosen: Sequence[int], rows: int = 2, width: int = 8) -> Kernel:
    k = KernelBuilder("shuffle")
    write(k, [k.shuffle(read(k, dtype, width, rows), chosen)], len(chosen))
    return k.finish()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16", "float32", "complex64"])
def test_lanes_are_selected_by_index(dtype: str, machine: str) -> None:
    exact = dtypes.as_dtype(dtype)
    x = numbers(np.random.default_rng(0), exact, 16)
    for chosen in ((0, 8, 1, 9, 2, 10, 3, 11), (7,) * 4, tuple(range(16))):
        kernel = shuffled(exact, chosen)
        after = assert_compiles(kernel, [x, np.zeros(len(chosen), exact)], MACHINES[machine]())
        np.testing.assert_array_equal(after[1], x[list(chosen)])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("side", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "complex64", "complex128"])
def test_squares_are_transposed(dtype: str, side: int, machine: str) -> None:
    exact = np.dtype(dtype)
    k = KernelBuilder("turn")
    write(k, transpose_square(k, read(k, exact, side, side)), side)
    x = np.arange(side * side).astype(exact)
    after = assert_compiles(k.finish(), [x, np.zeros(side * side, exact)], MACHINES[machine]())
    np.testing.assert_array_equal(after[1], x.reshape(side, side).T.reshape(-1))


def test_the_text_has_the_lanes() -> None:
    assert "= shuffle" in to_text(shuffled(np.float32, (3, 9))) and "lanes 3 9" in to_text(shuffled(np.float32, (3, 9)))


def test_lanes_out_of_range() -> None:
    with pytest.raises(InternalError, match="lanes that its vectors do not have"):
        verify(shuffled(np.float32, (3, 16)))
    with pytest.raises(InternalError, match="one vector or two"):
        verify(shuffled(np.float32, (3, 4), rows=3))


def test_shuffles_are_outside_of_loops_over_lanes() -> None:
    k = KernelBuilder("inside")
    x, y = k.buffer("x", np.float32, 8), k.buffer("y", np.float32, 8, written=True)
    with k.loop(8, kind=LoopKind.LANES, width=8) as i:
        k.store(y, i, k.shuffle([k.load(x, i)], range(8)))
    with pytest.raises(InternalError, match="inside of a loop over lanes"):
        verify(k.finish())
