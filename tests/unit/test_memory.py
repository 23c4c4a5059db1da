"""Memory of arrays: alignment, and reuse."""

from __future__ import annotations

import gc
import itertools
import pathlib
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors
from weft.runtime.cpu import memory
from weft.runtime.device import HOME
from weft.runtime.memory import in_units

SIZES = [1, memory.SMALL + 1, memory.LARGE - 1, memory.LARGE, 3 * memory.LARGE + 5]


@pytest.mark.parametrize("size", SIZES)
def test_memory_is_aligned_and_writable(size: int) -> None:
    for _ in range(3):
        chunk = memory.Chunk(size)
        assert chunk.address % memory.ALIGNMENT == 0
        view = chunk.view(chunk.address, (size,), np.dtype(np.uint8))
        view[0], view[-1] = 1, 2
        assert view.flags.writeable and view.nbytes == size


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_block_is_returned_unless_a_view_exists(size: int) -> None:
    HOME.memory.pool.clear()
    block = HOME.memory.pool.take(size)
    view = block.view(block.address, (size,), np.dtype(np.uint8))
    address = block.address
    del block
    assert HOME.memory.pool.bytes == 0
    view[:] = 7
    del view
    again = HOME.memory.pool.take(size)
    held = again.address
    del again
    assert HOME.memory.pool.bytes >= size
    assert HOME.memory.pool.take(size).address == held
    assert address % memory.ALIGNMENT == 0


def test_cutting_memory_may_be_interrupted_by_what_cuts_memory() -> None:
    """Handlers of signals and finalizers run where something is called."""
    own = memory.DeviceMemory()
    pieces: list[tuple[int, Any, int]] = []

    def cut(size: int) -> None:
        pieces.append((*own.cut(size), size))

    def interrupt(_frame: Any, event: str, _argument: Any) -> None:
        if event in ("c_call", "c_return", "call", "return"):
            sys.setprofile(None)
            cut(64)
            sys.setprofile(interrupt)

    for _ in range(200):
        sys.setprofile(interrupt)
        try:
            cut(2048)
        finally:
            sys.setprofile(None)
    ordered = sorted(pieces, key=lambda piece: piece[0])
    assert all(a + size <= b for (a, _, size), (b, _, _) in itertools.pairwise(ordered)), "none is cut twice"
    for address, chunk, size in pieces:
        assert chunk.address <= address and address + size <= chunk.address + chunk.room, "its chunk keeps it"


@pytest.mark.parametrize("count", [3, 5000, memory.LARGE])
def test_an_array_from_numpy_is_an_aligned_copy(count: int) -> None:
    array = np.arange(count + 1, dtype=np.float32)[1:]
    copy = wnp.asarray(array)
    array[0] = -1
    assert float(copy[0]) == 1 and float(copy[-1]) == count
    if array.nbytes > memory.SMALL:
        assert copy._address() % memory.ALIGNMENT == 0  # type: ignore[attr-defined]


def test_arrays_of_any_layout_are_copied() -> None:
    square = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    for args in (square.T, square[::2], square[:, ::-1], np.broadcast_to(square[0], (50, 100))):
        result = wnp.asarray(args)
        np.testing.assert_array_equal(np.asarray(result), args)
    gc.collect()


# -- temporaries -------------------------------------------------------------------------------------------------------


def test_programs_share_the_memory_of_their_temporaries() -> None:
    device = memory.DeviceMemory()
    large, small = device.temporaries(40 * memory.SHARED), device.temporaries(3 * memory.SHARED)
    first = large.take()
    large.append(first)
    assert small.take() is first  # what is large enough
    other = large.take()
    assert other is not first  # both run now
    small.append(first)
    large.append(other)
    assert large.take() in (first, other) and small.take() in (first, other) and not large and not small


@pytest.mark.skipif(not memory._promises_freely(), reason="addresses count as memory")
def test_larger_temporaries_begin_where_smaller_ones_did() -> None:
    """The beginning is paged in, and what no program has touched takes no memory."""
    device = memory.DeviceMemory()
    small, large = (device.temporaries(size) for size in (memory.LARGE_TEMPORARIES, 6 * memory.LARGE_TEMPORARIES))
    first = small.take()
    assert first.address % memory.ALIGNMENT == 0
    memory.view(first.address, (memory.LARGE_TEMPORARIES,), np.dtype(np.uint8))[:] = 1
    resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    small.append(first)
    assert large.take() is first
    others = [device.temporaries(memory.MOST_RESERVED).take() for _ in range(3)]
    assert all(chunk.room >= memory.MOST_RESERVED for chunk in others)
    assert int(pathlib.Path("/proc/self/statm").read_text().split()[1]) < resident + 1000


def test_larger_temporaries_replace_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room after them."""
    monkeypatch.setattr(memory, "_promises_freely", lambda: False)
    device = memory.DeviceMemory()
    tiny, small, large = (device.temporaries(size) for size in (1000, 3 * memory.SHARED, 40 * memory.SHARED))
    held, freed = tiny.take(), small.take()
    tiny.append(held)
    small.append(freed)
    assert large.take().room >= 40 * memory.SHARED
    assert not small and tiny == [held]
    assert small.take().room >= 3 * memory.SHARED


def test_threads_never_share_temporaries_at_the_same_time() -> None:
    device = memory.DeviceMemory()
    used: set[int] = set()
    wrong: list[int] = []

    def work(size: int) -> None:
        free = device.temporaries(size)
        for _ in range(300):
            chunk = free.take()
            if id(chunk) in used or chunk.room < size:
                wrong.append(size)
            used.add(id(chunk))
            used.discard(id(chunk))
            free.append(chunk)

    threads = [threading.Thread(target=work, args=(k * memory.SHARED,)) for k in (1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- no more memory ----------------------------------------------------------------------------------------------------

# So many numbers nobody has room for: their addresses would need more bits than processors have.
TOO_MANY = 1 << 46


def double(x):
    return wnp.zeros(TOO_MANY) + x


@pytest.mark.parametrize(
    "call", [weft.jit(double), lambda x: wnp.zeros(TOO_MANY), double], ids=["jit", "make", "eager"]
)
def test_out_of_memory_says_how_much_and_where(call) -> None:
    for _ in range(3):  # the general way, and that of dispatchers
        with pytest.raises(MemoryError, match=r"256\.0 TiB were requested") as caught:
            call(1.0) if call is not wnp.zeros_like else call(1.0, shape=TOO_MANY)
        assert isinstance(caught.value, errors.OutOfMemoryError) and "test_memory.py" in str(caught.value)


def test_the_largest_buffers_have_lines() -> None:
    @weft.jit
    def f(x):
        large = wnp.ones(TOO_MANY) * x
        return wnp.sort(large)[::2].sum()

    for _ in range(3):
        with pytest.raises(errors.OutOfMemoryError, match="for the temporaries of f") as caught:
            f(1.0)
        assert "TiB written by" in str(caught.value) and "wnp.sort(large)" in str(caught.value)


def test_sizes_in_units() -> None:
    sizes = {0: "0 bytes", 1023: "1023 bytes", 1 << 10: "1.0 KiB", 3 << 19: "1.5 MiB", 1 << 31: "2.0 GiB"}
    assert {size: in_units(size) for size in sizes} == sizes


LIMITED = """
    import gc, resource
    import numpy as np
    import weft, weft.numpy as wnp
    from weft import lax
    from weft.runtime.device import HOME

    f = weft.jit(lambda x: wnp.ones(8 << 20) * x)  # 32 MB
    small = weft.jit(lambda x: wnp.tanh(x) + 1)
    tape = weft.grad(lambda x, n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, wnp.sin(c[1])), (0, x))[1])
    numbers = np.ones(1000, np.float32)
    for _ in range(3):
        f(2.0), small(numbers)
    tape(1.0, 5)
    weft.runtime.cpu.tiers.wait()
    HOME.memory.pool.clear()
    gc.collect()
    used = 4096 * int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (used + (90 << 20),) * 2)

    held = []
    try:
        while True:
            held.append(f(2.0))
    except weft.errors.OutOfMemoryError as error:
        assert "32.0 MiB were requested" in str(error) and "result 0 (f32[8388608])" in str(error), error
    assert 1 <= len(held) <= 3, len(held)
    assert float(small(numbers)[0]) > 1
    held.clear()
    held.append(f(2.0))
    assert float(held[0][-1]) == 2
    # What the pool has is given back before an array is refused.
    held.clear()
    assert HOME.memory.pool.bytes >= 32 << 20
    held.append(wnp.zeros(19 << 20))
    held.clear()
    try:
        tape(1.0, 1 << 30)
    except MemoryError as error:
        assert "while" in str(error) and "checkpoint" in str(error), error
    assert np.isfinite(float(tape(1.0, 5)))
    print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit for a process's memory")
def test_a_process_with_little_memory_continues() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_more_than_the_machine_has_is_refused_at_once() -> None:
    """Some systems promise any amount, and end the process that uses it."""
    with pytest.raises(weft.errors.OutOfMemoryError, match="were requested"):
        memory.Chunk(memory.most_memory() + 1)
    assert memory.most_memory() > 1 << 28
