"""Attention by cuDNN on a simulated GPU: what users write is recognised, with its cotangents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import simulated_gpu
from tests.cuda.test_matmuls import Gpu, check, there
from weft.base import dtypes
from weft.compiler.compile import compile_program
from weft.compiler.program.ir import Call
from weft.compiler.target.cuda.targets import hopper

BATCH, POSITIONS, HEADS, WIDTH = 2, 64, 3, 16


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    with simulated_gpu(monkeypatch) as (device, driver):
        yield device, driver, driver.with_libraries("cudnn")["cudnn"]


def operands(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32).astype(dtypes.storage(dtypes.bfloat16)) for shape in shapes]


def heads_inside(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    """[batch, positions, heads, width], as models have it."""
    s = wnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH).astype(np.float32)
    if causal:
        s = wnp.where(wnp.tril(wnp.ones(s.shape[-2:], bool)), s, -wnp.inf)
    return wnp.einsum("bhqk,bkhd->bqhd", weft.nn.softmax(s.astype("float32")).astype(q.dtype), v)


def heads_outside(q: Any, k: Any, v: Any) -> Any:
    """[batch, heads, positions, width], without a mask."""
    s = (q * WIDTH**-0.5) @ k.swapaxes(-1, -2)
    return weft.nn.softmax(s) @ v


def library(q: Any, k: Any, v: Any) -> Any:
    return weft.nn.dot_product_attention(q, k, v, is_causal=True)


def packed(x: Any) -> Any:
    """Queries, keys and values are parts of one array, which nobody copies."""
    q, k, v = wnp.split(x.reshape(BATCH, POSITIONS, 3 * HEADS, WIDTH), 3, axis=2)
    return library(q, k, v)


INSIDE, OUTSIDE = (BATCH, POSITIONS, HEADS, WIDTH), (BATCH, HEADS, POSITIONS, WIDTH)
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "heads inside, causal": (heads_inside, [INSIDE] * 3),
    "heads inside": (
        lambda q, k, v: heads_inside(q, k, v, False),
        [INSIDE, (BATCH, 2 * POSITIONS, HEADS, WIDTH), (BATCH, 2 * POSITIONS, HEADS, WIDTH)],
    ),
    "heads outside": (heads_outside, [OUTSIDE] * 3),
    "one head": (heads_outside, [(POSITIONS, WIDTH)] * 3),
    "dot_product_attention": (library, [INSIDE] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_forward(gpu: Gpu, name: str) -> None:
    function, shapes = CASES[name]
    (call,) = check(gpu, function, *operands(*shapes), calls=1, tolerance=3e-2)
    assert call.count("matmul") == 2


@pytest.mark.parametrize("name", CASES)
def test_cotangents(gpu: Gpu, name: str) -> None:
    function, shapes = CASES[name]

    def loss(*args: Any) -> Any:
        return wnp.sum(function(*args).astype("float32") ** 2)

    arrays = operands(*shapes)
    compiled = weft.jit(weft.grad(loss, (0, 1, 2)))
    found = [np.asarray(a).astype(np.float32) for a in compiled(*there(gpu, *arrays))]
    assert [call.count("matmul") for call in gpu[2].calls] == [2, 5]
    wide = weft.jit(weft.grad(loss, (0, 1, 2)))(*(a.astype(np.float32) for a in arrays))
    for one, other in zip(found, wide, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), atol=3e-2 * float(np.abs(np.asarray(other)).max()))


def calls_of(function: Callable[..., Any], *arrays: np.ndarray) -> list[str]:
    """The routines that a program calls. Programs by our own kernels take long to simulate."""
    jaxpr = weft.make_jaxpr(function)(*arrays).jaxpr
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper(frozenset({"cudnn"}))).program
    return [step.routine for step in program.all_steps() if isinstance(step, Call)]


def test_what_is_read_elsewhere_is_computed() -> None:
    def weights(q: Any, k: Any, v: Any) -> Any:
        p = weft.nn.softmax((q * 0.25) @ k.swapaxes(-1, -2))
        return p @ v, p

    assert calls_of(weights, *operands(*[OUTSIDE] * 3)) == []
    assert calls_of(lambda *args: weights(*args)[0], *operands(*[OUTSIDE] * 3)) == ["cudnn_attention"]


def test_other_masks_and_sizes_are_our_own() -> None:
    def later(q: Any, k: Any, v: Any) -> Any:
        s = wnp.where(wnp.tril(wnp.ones((POSITIONS, POSITIONS), bool), 1), q @ k.swapaxes(-1, -2), -wnp.inf)
        return weft.nn.softmax(s) @ v

    arrays = operands(*[OUTSIDE] * 3)
    assert calls_of(later, *arrays) == []
    assert calls_of(lambda q, k, v: weft.nn.softmax(q @ k.swapaxes(-1, -2), -2) @ v, *arrays) == []
    assert calls_of(heads_outside, *operands(*[(2, 20, WIDTH)] * 3)) == []
    assert calls_of(heads_outside, *(a.astype(np.float32) for a in arrays)) == []
    # Cotangents of two of three operands: the rest is our own, and so is all of it.
    assert calls_of(weft.grad(lambda *a: heads_outside(*a).astype("float32").sum(), (0, 1)), *arrays) == []


def test_several_layers_share_a_mask() -> None:
    def layers(x: Any) -> Any:
        for _ in range(2):
            x = heads_inside(x * 2, x * 3, x * 4) + x
        return wnp.sum(x.astype("float32") ** 2)

    assert calls_of(weft.grad(layers), *operands(INSIDE)) == ["cudnn_attention"] * 4


def test_parts_of_one_array(gpu: Gpu) -> None:
    arrays = operands((BATCH, POSITIONS, 3 * HEADS * WIDTH))
    (call,) = check(gpu, packed, *arrays, calls=1, tolerance=3e-2)
    assert call.count("matmul") == 2
    assert "launch" not in gpu[1].calls

    def loss(x: Any) -> Any:
        return wnp.sum(packed(x).astype("float32") ** 2)

    gpu[2].calls.clear()
    (found,) = there(gpu, *arrays)
    gradient = np.asarray(weft.jit(weft.grad(loss))(found)).astype(np.float32)
    assert [c.count("matmul") for c in gpu[2].calls] == [2, 5]
    wide = np.asarray(weft.jit(weft.grad(loss))(arrays[0].astype(np.float32)))
    np.testing.assert_allclose(gradient, wide, atol=3e-2 * float(np.abs(wide).max()))
