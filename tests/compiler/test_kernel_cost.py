"""Cost estimates of kernels are accurate enough to choose threads and schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.emitting import fused_program
from tests.compiler.host import AVX512
from weft.compiler.emit.dispatch import emit
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.cost import choose_grain, work
from weft.compiler.kernel.ir import Kernel, LoopKind


def kernels_of(function: Callable[..., Any], *arguments: np.ndarray) -> list[Kernel]:
    found: list[Kernel] = []
    for fusion in fusions(fused_program(function, *arguments, target=AVX512)):
        result = emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], AVX512)
        found += [launch.kernel for launch in result.launches]
    return found


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


@pytest.mark.parametrize("size", [64, 100, 128, 256, 512])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matmuls_are_estimated_by_peak_throughput(size: int, dtype: Any) -> None:
    """Two fused sums of 64 bytes in a cycle of a third of a nanosecond, and at most as much again around them."""
    with weft.enable_x64(True):
        a = numbers(size, size, dtype=dtype)
        total = sum(work(kernel, AVX512.kernel) for kernel in kernels_of(lambda a, b: a @ b, a, a))
    least = size**3 / (2 * 64 / np.dtype(dtype).itemsize) / 3
    assert least < total < 2.2 * least


def test_small_matmuls_use_one_thread() -> None:
    a, b = numbers(64, 64), numbers(256, 256)
    grain = partial(choose_grain, costs=AVX512.kernel)
    assert not any(map(grain, kernels_of(lambda a: a @ a, a)))
    assert any(map(grain, kernels_of(lambda b: b @ b, b)))


def test_what_is_read_again_comes_from_the_cache() -> None:
    """The same vectors added up a hundred times cost less than a hundred times as many."""

    def kernel(rows: int, stride: int) -> Kernel:
        k = KernelBuilder("sum")
        x, y = k.buffer("x", np.float32, 160_000), k.buffer("y", np.float32, 1600, written=True)
        with k.loop(1600, kind=LoopKind.LANES, width=16) as j:
            with k.loop(rows, carries=[k.constant(0, np.float32)]) as (i, (total,)):
                (total,) = k.carry(k.compute("add", total, k.load(x, i * stride + j)))
            k.store(y, j, total)
        return k.finish()

    assert work(kernel(100, 0), AVX512.kernel) < 0.5 * work(kernel(100, 1584), AVX512.kernel)


def test_gathers_cost_more_than_vectors() -> None:
    x, at = numbers(10_000), np.arange(10_000, dtype=np.int32)
    (lookup,) = kernels_of(lambda x, at: x[at], x, at)
    (plain,) = kernels_of(lambda x: x * 2 + 1, x)
    assert work(lookup, AVX512.kernel) > 2 * work(plain, AVX512.kernel)
