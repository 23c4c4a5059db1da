"""Run a kernel interpreted and compiled, and compare bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.kernel.interpreter import run
from weft.compiler.kernel.ir import Kernel
from weft.compiler.kernel.verifier import verify
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.cpu.lower import lower
from weft.compiler.target.cpu.targets import host, host_avx2, host_scalar
from weft.compiler.target.target import Target
from weft.runtime.cpu.guarded import Edge, Guarded, Layout

MACHINES = {"host": host, "avx2": host_avx2, "scalar": host_scalar}


def aligned(size: int, dtype: Any) -> np.ndarray:
    """An array of zeros that begins where a cache line does."""
    whole = np.zeros(size * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + size * np.dtype(dtype).itemsize].view(dtype)


def call(kernel: Kernel, arrays: Sequence[np.ndarray], target: Target, tier: Tier = Tier.LIGHT, parts: int = 1) -> None:
    """Compile a kernel and run it on arrays, its loop over threads in so many parts, the last first."""
    library = link.compile_and_load(lower(kernel, target, several=tier is Tier.QUICK), target, tier)
    count = 1 if kernel.parallel is None else kernel.parallel.count
    edges = [count * part // parts for part in range(parts + 1)] if kernel.parallel is not None else [0, 1]
    for begin, end in reversed(list(itertools.pairwise(edges))):
        library.run("kernel", [a.ctypes.data for a in arrays], begin, end)


def interpreted(
    kernel: Kernel, arrays: Sequence[np.ndarray], written: Sequence[np.ndarray | None] | None = None
) -> list[np.ndarray]:
    """The arrays after the kernel was interpreted. `written` says what of them has a value, and is changed."""
    copies = [a.copy() for a in arrays]
    run(verify(kernel), copies, written=written)
    return copies


def compiled(
    kernel: Kernel, arrays: Sequence[np.ndarray], target: Target, edge: Edge = Edge.END, **options: Any
) -> list[np.ndarray]:
    """The arrays after the kernel was compiled and called. Each is between guard pages, and may
    not be written unless the kernel says so; what is left of its own pages must not have changed."""
    memory = Guarded(Layout.of([array.nbytes for array in arrays], edge))
    for i, array in enumerate(arrays):
        memory.put(i, array)
    memory.forbid_writing(i for i, buffer in enumerate(kernel.buffers) if not buffer.written)
    copies = [
        memory.view(memory.address + offset, array.shape, array.dtype)
        for offset, array in zip(memory.layout.offsets, arrays, strict=True)
    ]
    call(kernel, copies, target, **options)
    for i, buffer in enumerate(kernel.buffers):
        assert memory.is_poisoned_around(i, arrays[i].nbytes), f"{buffer.name}: something beside it is written"
    return [np.array(copy) for copy in copies]


def assert_same(actual: np.ndarray, expected: np.ndarray, what: str = "") -> None:
    """Equal to the bit, but for the payload of a nan."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if dtypes.kind(expected.dtype) in "fc":
        nan = expected != expected
        assert np.array_equal(actual != actual, nan), f"{what}: {actual} for {expected}"
        actual, expected = (np.where(nan, np.zeros_like(a), a) for a in (actual, expected))
    assert actual.tobytes() == expected.tobytes(), f"{what}: {actual} for {expected}"


def assert_compiles(kernel: Kernel, arrays: Sequence[np.ndarray], target: Target, **options: Any) -> list[np.ndarray]:
    """Check that compiled code matches the interpreter bit for bit; return the arrays afterwards."""
    expected = interpreted(kernel, arrays)
    actual = compiled(kernel, arrays, target, **options)
    for one, other, buffer in zip(actual, expected, kernel.buffers, strict=True):
        assert_same(one, other, f"{kernel.name}, {buffer.name}")
    return actual


def numbers(rng: np.random.Generator, dtype: Any, size: int) -> np.ndarray:
    """Numbers that are exact in every dtype, small enough that short sums of them are too."""
    kind = dtypes.kind(np.dtype(dtype))
    if kind == "b":
        return rng.integers(0, 2, size).astype(bool)
    low = 0 if kind == "u" else -8
    whole = rng.integers(low, 9, size).astype(np.float64)
    if kind == "c":
        return (whole + 1j * rng.integers(-8, 9, size)).astype(dtype)
    if kind in "iu" and np.dtype(dtype).kind == "V":
        return (whole % 2).astype(np.int8).astype(dtype)
    return whole.astype(dtype)
