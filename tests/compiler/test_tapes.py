"""Tapes in compiled code: every handle keeps its entries, whatever is written through others afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.ir.types import array_type
from weft.primitives.control.tape import tape_length, tape_new, tape_read, tape_write

# Of each write: the handle that is written through, the position and the entry. Handles are numbered as they come; the
# first one is empty.
WRITES = [
    [(0, 0, 0), (1, 1, 1), (2, 0, 2)],  # an older entry, though the handle is the newest
    [(0, 0, 0), (1, 1, 1), (1, 1, 2)],  # two that go on from one
    [(0, 0, 0), (1, 3, 1), (2, 2, 2)],  # into a gap
    [(0, 0, 0), (1, -1, 1)],  # before the beginning
    [(n, n, n) for n in range(40)] + [(20, 20, 7), (40, 40, 8), (40, 5, 9)],  # more than there was room for
]


def writes_of(seed: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(n + 1)), int(rng.integers(-1, 24)), n) for n in range(30)]


@pytest.mark.parametrize("writes", [*WRITES, *map(writes_of, range(6))], ids=len)
def test_every_handle_keeps_its_entries(writes: list[tuple[int, int, int]]) -> None:
    values = np.random.default_rng(0).normal(size=(len(writes), 3)).astype(np.float32)
    positions = np.array([position for _, position, _ in writes], np.int32)
    lists: list[list[Any]] = [[]]
    for handle, position, entry in writes:
        new = list(lists[handle])
        if position >= 0:
            new += [np.zeros(3, np.float32)] * (position + 1 - len(new))
            new[position] = values[entry]
        lists.append(new)
    most = max(map(len, lists)) + 1

    def f(values: Any, positions: Any) -> Any:
        handles = [tape_new(element=array_type((3,), np.dtype(np.float32)))]
        for n, (handle, _, entry) in enumerate(writes):
            handles.append(tape_write(handles[handle], positions[n], values[entry]))
        read = [wnp.stack([tape_read(t, wnp.int32(n)) for n in range(most)]) for t in handles]
        return wnp.stack(read), wnp.stack([tape_length(t) for t in handles])

    entries, lengths = weft.jit(f)(values, positions)
    expected = np.zeros((len(lists), most, 3), np.float32)
    for n, one in enumerate(lists):
        expected[n, : len(one)] = one if one else np.zeros((0, 3))
    np.testing.assert_array_equal(np.asarray(lengths), list(map(len, lists)))
    np.testing.assert_array_equal(np.asarray(entries), expected)
