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
from weft.compiler.target.cuda.library.views import reshaped_strides
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
    # Cotangents of values alone do not need those of scores, which the call computes.
    assert calls_of(weft.grad(lambda *a: heads_outside(*a).astype("float32").sum(), 2), *arrays) == []


Cotangent = Callable[..., Any]
COTANGENTS: dict[str, Cotangent] = {
    "the result": lambda out, q, k, v: out,
    "queries": lambda out, q, k, v: q,
    "keys": lambda out, q, k, v: k,
    "values": lambda out, q, k, v: v,
    "a constant": lambda out, q, k, v: wnp.ones_like(out),
}


def pulled_back(function: Callable[..., Any], cotangent: Cotangent) -> Callable[..., Any]:
    """Attention and its cotangents for one that is computed from the result and the operands."""

    def run(*args: Any) -> Any:
        out, pull = weft.vjp(function, *args)
        return out, pull(cotangent(out, *args))

    return run


def check_gradients(gpu: Gpu, function: Callable[..., Any], *arrays: np.ndarray) -> None:
    """That a function of attention calls cuDNN for both directions, and has the results of float32."""
    gpu[2].calls.clear()
    found = weft.tree.leaves(weft.jit(function)(*there(gpu, *arrays)))
    assert [call.count("matmul") for call in gpu[2].calls] == [2, 5]
    wide = weft.tree.leaves(weft.jit(function)(*(a.astype(np.float32) for a in arrays)))
    for one, other in zip(found, map(np.asarray, wide), strict=True):
        np.testing.assert_allclose(np.asarray(one).astype(np.float32), other, atol=3e-2 * float(np.abs(other).max()))


@pytest.mark.parametrize("name", COTANGENTS)
def test_any_cotangent(gpu: Gpu, name: str) -> None:
    check_gradients(gpu, pulled_back(library, COTANGENTS[name]), *operands(*[INSIDE] * 3))


def test_all_functions_have_any_cotangent() -> None:
    for function, shapes in CASES.values():
        if len(set(shapes)) == 1:
            for cotangent in COTANGENTS.values():
                assert calls_of(pulled_back(function, cotangent), *operands(*shapes)) == ["cudnn_attention"] * 2


def test_some_cotangents(gpu: Gpu) -> None:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return wnp.sum(library(q, k, v).astype("float32") ** 2)

    arrays = operands(*[INSIDE] * 3)
    for some in (0, (1, 2)):
        check_gradients(gpu, weft.grad(loss, some), *arrays)


def test_operands_that_are_the_same_array(gpu: Gpu) -> None:
    def loss(q: Any, k: Any) -> Any:
        return wnp.sum(library(q, k, k).astype("float32") ** 2)

    check_gradients(gpu, weft.grad(loss, (0, 1)), *operands(*[INSIDE] * 2))
    check_gradients(gpu, weft.grad(lambda x: loss(x, x)), *operands(INSIDE))


def test_the_result_is_only_needed_for_cotangents(gpu: Gpu) -> None:
    check_gradients(gpu, weft.grad(lambda *args: library(*args).sum(), (0, 1, 2)), *operands(*[INSIDE] * 3))


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

    gpu[1].calls.clear()
    check_gradients(gpu, weft.grad(loss), *arrays)
    # One kernel, for the cotangent of the result: the cotangents of parts are written to where they belong.
    assert gpu[1].calls.count("launch") == 1


def split_heads(x: Any) -> Any:
    """As `packed`, where the features of all heads are cut before they are those of heads."""
    q, k, v = (a.reshape(*a.shape[:2], HEADS, WIDTH) for a in wnp.split(x, 3, axis=2))
    return library(q, k, v).reshape(*x.shape[:2], HEADS * WIDTH)


def test_parts_that_are_reshaped(gpu: Gpu) -> None:
    arrays = operands((BATCH, POSITIONS, 3 * HEADS * WIDTH))
    check(gpu, split_heads, *arrays, calls=1, tolerance=3e-2)
    assert "launch" not in gpu[1].calls
    gpu[1].calls.clear()
    check_gradients(gpu, weft.grad(lambda x: wnp.sum(split_heads(x).astype("float32") ** 2)), *arrays)
    assert gpu[1].calls.count("launch") == 1


def test_strides_of_reshaped_arrays() -> None:
    rng = np.random.default_rng(0)
    shapes = [(2, 3, 4, 6), (24, 6), (2, 1, 12, 6), (6, 24), (8, 18), (2, 72), (144,), (1, 144, 1), (3, 2, 24)]
    for shape in shapes:
        for permutation in (tuple(range(len(shape))), tuple(rng.permutation(len(shape)))):
            base = np.zeros(shape, np.int8).transpose(permutation)
            for new in shapes:
                strides = reshaped_strides(base.shape, base.strides, new)
                reshaped = base.reshape(new)
                if strides is None:
                    assert not np.shares_memory(reshaped, base)
                else:
                    wide = [n for n, size in enumerate(new) if size != 1]
                    assert np.shares_memory(reshaped, base)
                    assert [strides[n] for n in wide] == [reshaped.strides[n] for n in wide]
