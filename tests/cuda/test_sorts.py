"""Sorts by groups of threads: the bits of the CPU, for all dtypes, and for rows of all lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import interpret
from tests.cuda.simulated import simulated_gpu
from tests.cuda.test_groups import compiled
from weft import lax
from weft.base import settings
from weft.base.errors import InternalError
from weft.compiler.kernel import interpreter
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Kernel, LoopKind
from weft.compiler.kernel.verifier import verify
from weft.compiler.target.cuda.groups import ThreadGroup, choose_group
from weft.compiler.target.cuda.lower import module_text
from weft.compiler.target.cuda.ptx import ptx
from weft.compiler.target.cuda.targets import hopper

SLOW = pytest.mark.slow
DTYPES = ("float32", "bfloat16", "float16", "float64", "int8", "uint32", "int64", "bool", "complex64", "float8_e4m3fn")


def values(dtype: str, *shape: int) -> np.ndarray:
    """Values of which some are equal; of floats, zeros of both signs and nans."""
    rng = np.random.default_rng(0)
    x = rng.integers(-99, 99, shape) * rng.integers(-3, 3, shape) / 2
    if dtype.startswith(("u", "b")) and dtype != "bfloat16":
        x = np.abs(x)
    x = np.where(x == 7, np.nan, x) if "float" in dtype or dtype == "complex64" else x
    with np.errstate(invalid="ignore"), settings.enable_x64(True):
        return np.asarray(wnp.asarray(x if dtype != "complex64" else x + 1j * x[..., ::-1]).astype(dtype))


def by_two(x: Any) -> Any:
    """Two keys and two operands that go with them, one of them not a word."""
    y = wnp.flip(x, -1)
    return lax.sort((x, y, wnp.arange(x.size).reshape(x.shape), x * 1j), num_keys=2)


SORTS: dict[str, Callable[[Any], Any]] = {
    "sort": wnp.sort,
    "argsort": wnp.argsort,
    "first axis": lambda x: (wnp.sort(x, 0), wnp.argsort(x, 0)),
    "descending": lambda x: (wnp.sort(x, descending=True), wnp.argsort(x, descending=True)),
    "with another": lambda x: lax.sort((x, wnp.flip(x, -1)), num_keys=1),
    "top": lambda x: lax.top_k(x, 5),
    "top many": lambda x: lax.top_k(x, min(200, x.shape[-1])),
    "top most": lambda x: lax.top_k(x, x.shape[-1] - 1),
}
SHAPES = ((13, 7), (3, 64), (2, 65), (2, 1000), (1, 4200), (2, 2049))
# The rest of sorts and of dtypes, and of tiles beyond the first, is for the slow tests, and for a GPU.
QUICK, QUICK_DTYPES = ("sort", "argsort", "first axis", "top"), ("float32", "bfloat16", "complex64")


def same_bits(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    found = found.view(expected.dtype).reshape(expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [s if math.prod(s) < 2000 else pytest.param(s, marks=SLOW) for s in SHAPES], ids=str)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=SLOW) for n in SORTS])
def test_sorts_have_the_bits_of_the_cpu(name: str, shape: tuple[int, ...]) -> None:
    x = values("float32", *shape)
    program, _ = compiled(SORTS[name], x)
    for found, expected in zip(interpret(program, [x.copy()]), weft.tree.leaves(SORTS[name](x)), strict=True):
        same_bits(found, expected)


@pytest.mark.parametrize("length", [9, 300, pytest.param(4500, marks=SLOW)])
@pytest.mark.parametrize("dtype", [d if d in QUICK_DTYPES else pytest.param(d, marks=SLOW) for d in DTYPES])
def test_all_dtypes(dtype: str, length: int) -> None:
    with settings.enable_x64(True):
        x = values(dtype, length)
        program, _ = compiled(wnp.sort, x)
        same_bits(interpret(program, [x.copy()])[0], wnp.sort(x))


def test_long_rows() -> None:
    """Tiles of a row, the last of which is not whole: with what words do not tell, and the first of them."""
    x = values("float32", 4200)
    for f in (wnp.sort, lambda x: lax.top_k(x, 3)):
        program, _ = compiled(f, x)
        for found, expected in zip(interpret(program, [x.copy()]), weft.tree.leaves(f(x)), strict=True):
            same_bits(found, expected)


@pytest.mark.parametrize("length", [9, pytest.param(300, marks=SLOW), pytest.param(2100, marks=SLOW)])
def test_several_keys_and_operands(length: int) -> None:
    x = values("int32", 2, length) % 5
    program, _ = compiled(by_two, x)
    for found, expected in zip(interpret(program, [x.copy()]), by_two(x), strict=True):
        same_bits(found, expected)


def kernels_of(length: int) -> list[Kernel]:
    return compiled(wnp.sort, np.ones(length, np.float32))[1]


def test_what_a_thread_ranks_stays_in_its_registers() -> None:
    """Words and ranks of a tile take no local memory."""
    (kernel,) = [k for k in kernels_of(8192)[:3] if k.name == "sort_scatter"]
    assert choose_group(kernel, hopper()) == ThreadGroup(256, 1, choose_group(kernel, hopper()).local)  # type: ignore[union-attr]
    text = ptx(module_text([("entry", kernel)], hopper()), hopper())
    assert "vote.sync.ballot" in text and "entry_$_local5" not in text


def test_sorts_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop whose steps are sorts of a few rows is one kernel, whose groups of threads have their memory side by
    side."""
    x = values("float32", 3, 70)

    def program(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, wnp.sort(c[1] * -1, -1)), (0, x))[1]

    with simulated_gpu(monkeypatch) as (gpu, driver):
        same_bits(np.asarray(weft.jit(program)(weft.device_put(x, gpu))), weft.jit(program)(x))
        assert "loop" in driver.calls


def counting(lanes: int, digit: int, limit: int | None = None) -> Kernel:
    """A kernel that ranks the digits of a vector of lanes, all in one table."""
    k = KernelBuilder("counting")
    x, y = k.buffer("x", "uint32", 64), k.buffer("y", "uint32", 64, written=True)
    table = k.local("table", "uint32", 4)
    with k.loop(4, kind=LoopKind.LANES, width=lanes) as i:
        k.store(table, i, k.constant(0, "uint32"))
    with k.loop(64, kind=LoopKind.LANES, width=lanes, limit=limit) as i:
        k.store(y, i, k.rank(table, 0, k.load(x, i), digit))
    return k.finish()


def test_ranks_count_lane_after_lane() -> None:
    x, y = np.array([0, 1, 1, 3] * 16, np.uint32), np.zeros(64, np.uint32)
    interpreter.run(verify(counting(32, 2)), [x, y])
    np.testing.assert_array_equal(y[:8], [0, 0, 1, 0, 1, 2, 3, 1])
    np.testing.assert_array_equal(y[-4:], [15, 30, 31, 15])


def test_ranks_are_of_whole_vectors_that_count_apart() -> None:
    with pytest.raises(InternalError, match="whole vectors"):
        verify(counting(32, 2, limit=40))
    with pytest.raises(InternalError, match="Lanes are ranked"):
        verify(counting(16, 2))
    arrays = [np.array([0, 1, 1, 3] * 16, np.uint32), np.zeros(64, np.uint32)]
    for kernel in (counting(64, 2), counting(32, 1)):  # two runs of lanes with one table; a digit that has more bits
        with pytest.raises(InternalError, match="other lanes count that"):
            interpreter.run(verify(kernel), arrays)
