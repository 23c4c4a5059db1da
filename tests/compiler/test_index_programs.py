"""Random chains of data movement, arithmetic and reductions: compiled code equals `eval` bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.index_programs import program
from tests.compiler.running import assert_same
from weft.ir.interpreter import run
from weft.runtime.execute import get_executable

# Programs that are compiled together.
TOGETHER = 12
Programs = Sequence[tuple[Callable[..., Any], list[np.ndarray]]]


def check(programs: Programs, what: str) -> None:
    """All programs as one, compiled and interpreted."""

    def whole(arrays: Sequence[Sequence[Any]]) -> Any:
        return [function(*args) for (function, _), args in zip(programs, arrays, strict=True)]

    arrays = [args for _, args in programs]
    jaxpr = weft.make_jaxpr(whole)(arrays)
    flat = [np.asarray(a) for args in arrays for a in args]
    results = zip(get_executable(jaxpr)(flat), run(jaxpr, flat), strict=True)
    for i, (actual, expected) in enumerate(results):
        assert_same(np.asarray(actual), np.asarray(expected), f"{what}, result {i}")


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of all results. Each is scaled, so that elements count differently."""

    def total(*arrays: Any) -> Any:
        return sum((wnp.arange(r.size) % 3 * r.reshape(-1)).sum() for r in function(*arrays))

    return weft.grad(total, (0, 1))


def floats(numbers: range, large: bool = False) -> Programs:
    return [program(3 * n, large) for n in numbers]


@pytest.mark.parametrize("first", range(0, 96, TOGETHER))
def test_small_arrays(first: int) -> None:
    check([program(n) for n in range(first, first + TOGETHER)], f"programs from {first}")


def test_large_arrays() -> None:
    check([program(n, large=True) for n in range(TOGETHER)], "large programs")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 6000, 600))
def test_many(first: int) -> None:
    for n in range(first, first + 600, TOGETHER):
        check([program(m) for m in range(n, n + TOGETHER)], f"programs from {n}")
    for n in range(first // 10, first // 10 + 60, TOGETHER):
        check([program(m, large=True) for m in range(n, n + TOGETHER)], f"large programs from {n}")


@pytest.mark.parametrize("first", range(0, 24, TOGETHER))
def test_gradients(first: int) -> None:
    """The transposes of what moves numbers move them too: a crop of a pad, a sum of a broadcast."""
    check([(gradient(f), arrays) for f, arrays in floats(range(first, first + TOGETHER))], f"gradients from {first}")


# -- the smallest programs of what went wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", [
    lambda x: x.sum(0), lambda x: x.max(0), lambda x: wnp.cumsum(x, 0), lambda x: wnp.argmax(x, 0),
    lambda x: x - x.max(0), lambda x: x.sum((1, 2)),
], ids=["sum", "max", "cumsum", "argmax", "row", "inner"])  # fmt: skip
def test_padded_and_cropped(reduce: Callable[[Any], Any]) -> None:
    """That the padding is never reached was known for each dimension, but not any more for two of them as one loop."""

    def function(x: Any) -> Any:
        return reduce((wnp.pad(x, [(0, 0), (0, 0), (1, 1)]) * 2)[:, :, 1:-1])

    check([(function, [np.arange(24, dtype=np.float32).reshape(2, 3, 4)])], "padded and cropped")


def test_concatenated_and_sliced() -> None:
    """Which of two joined arrays an element is from was known for each dimension too."""

    def function(x: Any) -> Any:
        return wnp.concatenate([x + 1, x * 3], 2)[:, :, 4:].sum(0)

    check([(function, [np.arange(24, dtype=np.float32).reshape(2, 3, 4)])], "joined and cut")
