"""Memory for arrays: where it begins, and when it is used again."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import weft.numpy as wnp
from weft.runtime import memory

SIZES = [1, memory.SMALL + 1, memory.LARGE - 1, memory.LARGE, 3 * memory.LARGE + 5]


@pytest.mark.parametrize("size", SIZES)
def test_memory_begins_with_a_cache_line_and_can_be_written(size: int) -> None:
    for _ in range(3):
        chunk = memory.Chunk(size)
        assert chunk.address % memory.ALIGNMENT == 0
        view = chunk.view(chunk.address, (size,), np.dtype(np.uint8))
        view[0], view[-1] = 1, 2
        assert view.flags.writeable and view.nbytes == size


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_block_goes_back_unless_a_view_is_about(size: int) -> None:
    memory.pool.clear()
    block = memory.pool.take(size)
    view = block.view(block.address, (size,), np.dtype(np.uint8))
    address = block.address
    del block
    assert memory.pool.bytes == 0
    view[:] = 7
    del view
    again = memory.pool.take(size)
    held = again.address
    del again
    assert memory.pool.bytes >= size
    assert memory.pool.take(size).address == held
    assert address % memory.ALIGNMENT == 0


@pytest.mark.parametrize("count", [3, 5000, memory.LARGE])
def test_an_array_from_numpy_is_a_copy_that_begins_with_a_cache_line(count: int) -> None:
    given = np.arange(count + 1, dtype=np.float32)[1:]
    made = wnp.asarray(given)
    given[0] = -1
    assert float(made[0]) == 1 and float(made[-1]) == count
    if given.nbytes > memory.SMALL:
        assert made._address() % memory.ALIGNMENT == 0  # type: ignore[attr-defined]


def test_arrays_of_any_layout_are_copied() -> None:
    square = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    for given in (square.T, square[::2], square[:, ::-1], np.broadcast_to(square[0], (50, 100))):
        made = wnp.asarray(given)
        np.testing.assert_array_equal(np.asarray(made), given)
    gc.collect()
