"""Kernels mapped to a grid: text in, text out; and random kernels, which compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.random_kernels import RandomKernel
from tests.compiler.running import assert_same, interpreted, numbers
from weft.base import dtypes
from weft.compiler.kernel import ahead
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.grid import map_to_grid
from weft.compiler.kernel.ir import Kernel, LoopKind
from weft.compiler.kernel.printer import to_text
from weft.compiler.kernel.verifier import verify

FLOAT = dtypes.float32


def test_elements_side_by_side_are_one_threads() -> None:
    k = KernelBuilder("rows")
    x, b, y = k.buffer("x", FLOAT, 24), k.buffer("b", FLOAT, 8), k.buffer("y", FLOAT, 24, written=True)
    with k.loop(3, kind=LoopKind.THREADS) as i, k.loop(8, kind=LoopKind.LANES) as j:
        k.store(y, i * 8 + j, k.compute("add", k.load(x, i * 8 + j), k.load(b, j)))
    (kernel,) = map_to_grid(k.finish(), 16)
    assert to_text(verify(kernel)) == (
        "kernel(x0: f32[24], x1: f32[8], y2: f32[24] written)\n"
        "  for i0 in 0..6 threads:\n"
        "    a: i32 = position i0\n"
        "    b: i32 = rem a 2:i32\n"
        "    c: i32 = div a 2:i32\n"
        "    for i1 in 0..4 lanes 4:\n"
        "      d: f32 = x0[4*b + 8*c + i1]\n"
        "      e: f32 = x1[4*b + i1]\n"
        "      f: f32 = add d e\n"
        "      y2[4*b + 8*c + i1] = f\n"
    )


def test_the_last_thread_has_what_is_left() -> None:
    k = KernelBuilder("odd")
    x, y = k.buffer("x", FLOAT, 10), k.buffer("y", FLOAT, 10, written=True)
    with k.loop(10, kind=LoopKind.LANES) as i:
        k.store(y, i, k.load(x, i))
    (kernel,) = map_to_grid(k.finish(), 16)
    assert "for i0 in 0..3 threads" in to_text(kernel) and "below -4*i0 + 10 lanes 4" in to_text(kernel)


def test_loops_beside_each_other_are_kernels() -> None:
    """Each with the buffers and the values that it needs."""
    k = KernelBuilder("pieces")
    x, z, y = k.buffer("x", FLOAT, 4), k.buffer("z", FLOAT, 8), k.buffer("y", FLOAT, 12, written=True)
    with k.loop(4, kind=LoopKind.THREADS) as i:
        with k.loop(1) as j:
            k.store(y, i * 3 + j, k.load(x, i + j))
        with k.loop(2) as j:
            k.store(y, i * 3 + j + 1, k.load(z, i * 2 + j))
    kernel = k.finish()
    parts = map_to_grid(kernel, 16)
    assert [[b.name for b in part.buffers] for part in parts] == [["x", "y"], ["z", "y"]]
    assert map_to_grid(kernel, 16, distribute=False) == [kernel]
    check(kernel, 0)


def stores(offsets: list[int], stride: int, count: int = 4) -> Kernel:
    """A loop that is not known to be of independent iterations, with a store at each of some offsets."""
    k = KernelBuilder("stores")
    x, y = k.buffer("x", FLOAT, 64), k.buffer("y", FLOAT, 64, written=True)
    with k.loop(count) as i:
        value = k.load(x, i)
        for offset in offsets:
            k.store(y, i * stride + offset, value)
    return k.finish()


@pytest.mark.parametrize(
    ("offsets", "stride", "independent"),
    [
        ([0], 1, True),
        ([0, 1], 2, True),
        ([0, 1], 1, False),  # the next iteration stores there too
        ([0, 16, 32], 4, True),  # apart, between which all iterations fit
        ([0, 8, 16], 4, False),
        ([0, 1, 16, 17], 2, True),
        ([0, 1, 5], 4, False),  # at 5 also the next one
        ([0], 0, False),
    ],
)
def test_iterations_are_independent_if_they_store_apart(offsets: list[int], stride: int, independent: bool) -> None:
    (kernel,) = map_to_grid(stores(offsets, stride), 16)
    assert (kernel.parallel is not None) == independent, to_text(kernel)


def test_what_reads_what_others_store_is_not_mapped() -> None:
    k = KernelBuilder("cumulative")
    y = k.buffer("y", FLOAT, 9, written=True)
    with k.loop(8) as i:
        k.store(y, i + 1, k.compute("add", k.load(y, i), k.load(y, i + 1)))
    kernel = k.finish()
    assert map_to_grid(kernel, 16) == [kernel]
    k = KernelBuilder("own")
    y = k.buffer("y", FLOAT, 8, written=True)
    with k.loop(8) as i:
        k.store(y, i, k.compute("add", k.load(y, i), k.load(y, i)))
    (kernel,) = map_to_grid(k.finish(), 16)
    assert kernel.count == 2  # threads with four elements each


@pytest.fixture
def all_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has vectors is loaded ahead, however little is computed with it."""
    for name, value in {"HEAVY": 0, "HEAVIEST": 1 << 20, "LEAST_THREADS": 1}.items():
        monkeypatch.setattr(ahead, name, value)


def test_threads_load_ahead_what_they_compute_long_with(all_ahead: None) -> None:
    """Four vectors each, which are a quarter of the rows apart, or two where an iteration loads twice as much."""
    k = KernelBuilder("rows")
    x, b, y = k.buffer("x", FLOAT, 64), k.buffer("b", FLOAT, 8), k.buffer("y", FLOAT, 64, written=True)
    with k.loop(8, kind=LoopKind.THREADS) as i, k.loop(8, kind=LoopKind.LANES) as j:
        k.store(y, i * 8 + j, k.compute("add", k.load(x, i * 8 + j), k.load(b, j)))
    (kernel,) = map_to_grid(k.finish(), 16)
    assert to_text(verify(kernel)) == (
        "kernel(x0: f32[64], x1: f32[8], y2: f32[64] written)\n"
        "  for i0 in 0..8 threads:\n"
        "    a: i32 = position i0\n"
        "    b: i32 = rem a 2:i32\n"
        "    c: i32 = div a 2:i32\n"
        "    for i1 in 0..4 lanes 4:\n"
        "      d: f32 = x0[4*b + 8*c + i1]\n"
        "      e: f32 = x1[4*b + i1]\n"
        "      f: f32 = x0[4*b + 8*c + i1 + 32]\n"
        "      g: f32 = x1[4*b + i1]\n"
        "      h: f32 = add d e\n"
        "      y2[4*b + 8*c + i1] = h\n"
        "      i: f32 = add f g\n"
        "      y2[4*b + 8*c + i1 + 32] = i\n"
    )
    k = KernelBuilder("own")
    x, y = k.buffer("x", FLOAT, 64), k.buffer("y", FLOAT, 64, written=True)
    with k.loop(64, kind=LoopKind.LANES) as j:
        k.store(y, j, k.compute("add", k.load(y, j), k.compute("sin", k.load(x, j))))
    (kernel,) = map_to_grid(k.finish(), 16)
    text = to_text(verify(kernel))
    assert kernel.count == 4 and text.index("x0[4*i0 + i1 + 48]") < text.index("y1[4*i0 + i1]") < text.index("sin")


def test_few_threads_and_light_bodies_load_nothing_ahead() -> None:
    def count(op: str, size: int) -> int:
        k = KernelBuilder(op)
        x, y = k.buffer("x", FLOAT, size), k.buffer("y", FLOAT, size, written=True)
        with k.loop(size, kind=LoopKind.LANES) as j:
            k.store(y, j, k.compute(op, k.load(x, j)))
        return map_to_grid(k.finish(), 16)[0].count

    assert count("neg", 1 << 26) == 1 << 24 and count("erf", 1 << 26) == 1 << 22
    assert count("erf", 1 << 22) == 1 << 19 and count("erf", 1 << 21) == 1 << 19


def check(kernel: Kernel, seed: int) -> None:
    """Mapped, it computes the same; the interpreter also finds threads that touch what another one stores."""
    rng = np.random.default_rng(seed)
    arrays = [numbers(rng, b.dtype, b.size) for b in kernel.buffers]
    expected = interpreted(kernel, arrays)
    current = dict(zip(kernel.buffers, arrays, strict=True))
    for part in map_to_grid(kernel, 16):
        after = interpreted(part, [current[b] for b in part.buffers])
        current.update(zip(part.buffers, after, strict=True))
    for buffer, want in zip(kernel.buffers, expected, strict=True):
        assert_same(current[buffer], want, f"seed {seed}, {buffer.name}:\n{to_text(kernel)}")


def check_many(seeds: range) -> None:
    kernels = [RandomKernel(seed).kernel for seed in seeds]
    for kernel, seed in zip(kernels, seeds, strict=True):
        check(kernel, seed)
    assert sum(map_to_grid(kernel, 16) != [kernel] for kernel in kernels) > len(kernels) // 3


@pytest.mark.parametrize("block", range(4))
def test_random_kernels_compute_the_same(block: int) -> None:
    check_many(range(5 * block, 5 * block + 5))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_kernels_compute_the_same(block: int) -> None:
    check_many(range(1000 + 50 * block, 1050 + 50 * block))


def test_random_kernels_compute_the_same_when_they_load_ahead(all_ahead: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for seed in range(100, 600):
        kernel = RandomKernel(seed).kernel
        counts = [part.count for part in map_to_grid(kernel, 16)]
        with monkeypatch.context() as m:
            m.setattr(ahead, "MOST_VECTORS", 1)
            single = [part.count for part in map_to_grid(kernel, 16)]
        if counts != single:
            check(kernel, seed)
            found += 1
    assert found > 3
