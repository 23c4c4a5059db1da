"""Attention by cuDNN on a simulated GPU: what users write is recognised, with its cotangents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.keras
import weft.linen
import weft.numpy as wnp
from tests.cuda.simulated import simulated_gpu
from tests.cuda.test_matmuls import Gpu, check, there
from weft.base import dtypes
from weft.compiler import compile as compiler
from weft.compiler.compile import compile_program
from weft.compiler.program.ir import Call
from weft.compiler.target.cuda.library.views import reshape_strides
from weft.compiler.target.cuda.targets import of_capability
from weft.runtime.cuda.libraries import early

BATCH, POSITIONS, HEADS, WIDTH = 2, 64, 3, 16


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    with simulated_gpu(monkeypatch) as (device, driver):
        yield device, driver, driver.with_libraries("cudnn")["cudnn"]


def operands(*shapes: tuple[int, ...], dtype: str = "bfloat16") -> list[np.ndarray]:
    rng, storage = np.random.default_rng(0), dtypes.storage(dtypes.as_dtype(dtype))
    return [rng.normal(size=shape).astype(np.float32).astype(storage) for shape in shapes]


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


def calls_of(function: Callable[..., Any], *arrays: np.ndarray, capability: tuple[int, int] = (9, 0)) -> list[str]:
    """The routines that a program calls. Programs by our own kernels take long to simulate."""
    jaxpr = weft.make_jaxpr(function)(*arrays).jaxpr
    target = of_capability(*capability, frozenset({"cudnn"}))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), target).program
    return [step.routine for step in program.all_steps() if isinstance(step, Call)]


def test_what_is_read_elsewhere_is_computed() -> None:
    def weights(q: Any, k: Any, v: Any) -> Any:
        p = weft.nn.softmax((q * 0.25) @ k.swapaxes(-1, -2))
        return p @ v, p

    assert calls_of(weights, *operands(*[OUTSIDE] * 3)) == []
    assert calls_of(lambda *args: weights(*args)[0], *operands(*[OUTSIDE] * 3)) == ["cudnn_attention"]


def test_other_sizes_are_our_own() -> None:
    arrays = operands(*[OUTSIDE] * 3)
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
                strides = reshape_strides(base.shape, base.strides, new)
                reshaped = base.reshape(new)
                if strides is None:
                    assert not np.shares_memory(reshaped, base)
                else:
                    wide = [n for n, size in enumerate(new) if size != 1]
                    assert np.shares_memory(reshaped, base)
                    assert [strides[n] for n in wide] == [reshaped.strides[n] for n in wide]


# ------------------------------------------------------------------------------------------------- masks and biases


def masks(*shape: int) -> np.ndarray:
    """A mask that leaves something of each row but of some in the first batch."""
    found = np.random.default_rng(1).random(shape) < 0.7
    found[..., 0] = True
    for row in (3, 5):
        found[0, ..., row % shape[-2], :] = False
    return found


def biases(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def filled(fill: float) -> Callable[..., Any]:
    """Plain code, heads outside."""

    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        s = wnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type="float32") * WIDTH**-0.5
        return weft.nn.softmax(wnp.where(mask, s, fill)).astype(v.dtype) @ v

    return attention


def twice(q: Any, k: Any, v: Any, mask: Any, padding: Any) -> Any:
    """Two masks, one after the other."""
    s = wnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
    s = wnp.where(mask, s.astype("float32"), -1e30)
    return wnp.einsum("bhqk,bkhd->bqhd", weft.nn.softmax(wnp.where(padding, s, -1e30)).astype(q.dtype), v)


def added(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """A mask as a large negative number that is added."""
    s = wnp.einsum("bqhd,bkhd->bhqk", q, k).astype("float32") * 0.25 + (1.0 - mask.astype("float32")) * -1e9
    return wnp.einsum("bhqk,bkhd->bqhd", weft.nn.softmax(s).astype(q.dtype), v)


def distances(q: Any, k: Any, v: Any) -> Any:
    """Scores fall with the distance, by another factor for each head."""
    distance = wnp.arange(POSITIONS)[None, :] - wnp.arange(POSITIONS)[:, None]
    factors = 2.0 ** -wnp.arange(1, HEADS + 1, dtype="float32")
    return weft.nn.dot_product_attention(q, k, v, bias=(factors[:, None, None] * distance)[None], is_causal=True)


attention = weft.nn.dot_product_attention
linen_attention = weft.linen.dot_product_attention
SQUARE = (POSITIONS, POSITIONS)
LENGTHS = np.array([POSITIONS // 2, 0], np.int32)
MASKED: dict[str, tuple[Callable[..., Any], tuple[int, ...], list[np.ndarray]]] = {
    "mask": (lambda q, k, v, m: attention(q, k, v, mask=m), INSIDE, [masks(BATCH, 1, *SQUARE)]),
    "mask of heads": (lambda q, k, v, m: attention(q, k, v, mask=m), INSIDE, [masks(BATCH, HEADS, *SQUARE)]),
    "mask for all": (lambda q, k, v, m: attention(q, k, v, mask=m), INSIDE, [masks(1, 1, *SQUARE)]),
    "padding": (lambda q, k, v, m: attention(q, k, v, mask=m), INSIDE, [masks(BATCH, 1, 1, POSITIONS)]),
    "padding, causal": (
        lambda q, k, v, m: attention(q, k, v, mask=m, is_causal=True),
        INSIDE,
        [masks(BATCH, 1, 1, POSITIONS)[..., ::-1]],
    ),
    "lengths": (
        lambda q, k, v, n: attention(q, k, v, query_seq_lengths=n, key_value_seq_lengths=n), INSIDE, [LENGTHS],
    ),
    "window": (lambda q, k, v: attention(q, k, v, local_window_size=(5, 3)), INSIDE, []),
    "where": (filled(-1e20), OUTSIDE, [masks(BATCH, 1, *SQUARE)]),
    "where, infinite": (filled(-np.inf), OUTSIDE, [masks(BATCH, HEADS, *SQUARE)]),
    "two masks": (twice, INSIDE, [masks(BATCH, 1, *SQUARE), masks(BATCH, 1, 1, POSITIONS)]),
    "linen": (lambda q, k, v, m: linen_attention(q, k, v, mask=m), INSIDE, [masks(BATCH, 1, *SQUARE)]),
    "linen, bias": (lambda q, k, v, b: linen_attention(q, k, v, bias=b), INSIDE, [biases(1, HEADS, *SQUARE)]),
    "bias": (lambda q, k, v, b: attention(q, k, v, bias=b), INSIDE, [biases(1, HEADS, *SQUARE)]),
    "short bias": (
        lambda q, k, v, b, m: attention(q, k, v, bias=b, mask=m),
        INSIDE,
        [(1000 * biases(1, HEADS, *SQUARE)).astype(operands((1,))[0].dtype), masks(BATCH, 1, *SQUARE)],
    ),
    "bias for each": (lambda q, k, v, b: attention(q, k, v, bias=b), INSIDE, [biases(BATCH, HEADS, *SQUARE)]),
    "bias for all": (lambda q, k, v, b: attention(q, k, v, bias=b), INSIDE, [biases(*SQUARE)]),
    "bias and mask": (
        lambda q, k, v, b, m: attention(q, k, v, bias=b, mask=m),
        INSIDE,
        [biases(1, HEADS, *SQUARE), masks(BATCH, 1, *SQUARE)],
    ),
    "bias, causal": (
        lambda q, k, v, b: attention(q, k, v, bias=b, is_causal=True), INSIDE, [biases(BATCH, 1, *SQUARE) - 1e6],
    ),
    "added": (added, INSIDE, [masks(BATCH, 1, *SQUARE) | (np.arange(POSITIONS) == 7)]),
    "distances": (distances, INSIDE, []),
}  # fmt: skip


def compared(found: Any, expected: Any) -> None:
    """That results are nan where those of float32 are, and near them elsewhere."""
    for one, other in zip(map(np.asarray, found), map(np.asarray, expected), strict=True):
        limit = 3e-2 * float(np.nanmax(np.abs(other), initial=1e-3))
        np.testing.assert_allclose(one.astype(np.float32), other, atol=limit)


def with_cotangents(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The result, and the cotangents of the first so many operands."""

    def run(*args: Any) -> Any:
        out, pull = weft.vjp(lambda *first: function(*first, *args[count:]), *args[:count])
        return (out, *pull(wnp.cos(wnp.arange(out.size, dtype="float32")).reshape(out.shape).astype(out.dtype)))

    return run


def wide(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Operands in float32."""
    return [a.astype(np.float32) if a.dtype.kind in "fV" else a for a in arrays]


@pytest.mark.parametrize("name", MASKED)
def test_masks_and_biases(gpu: Gpu, name: str) -> None:
    function, shape, more = MASKED[name]
    arrays = [*operands(*[shape] * 3), *more]
    for f, matmuls in ((lambda *a: [function(*a)], [2]), (with_cotangents(function, 3), [2, 5])):
        gpu[2].calls.clear()
        found = weft.jit(f)(*there(gpu, *arrays))
        assert [call.count("matmul") for call in gpu[2].calls] == matmuls
        compared(found, weft.jit(f)(*wide(arrays)))


WITH_COTANGENTS = (
    "bias",
    "short bias",
    "bias for each",
    "bias for all",
    "bias and mask",
    "bias, causal",
    "linen, bias",
)


@pytest.mark.parametrize("name", WITH_COTANGENTS)
def test_cotangents_of_biases(gpu: Gpu, name: str) -> None:
    function, shape, more = MASKED[name]
    arrays = [*operands(*[shape] * 3), *more]
    f = with_cotangents(function, 4)
    found = weft.jit(f)(*there(gpu, *arrays))
    assert [call.count("matmul") for call in gpu[2].calls] == [2, 5]
    compared(found, weft.jit(f)(*wide(arrays)))


def test_layers_with_one_mask() -> None:
    def layers(x: Any, mask: Any) -> Any:
        for _ in range(2):
            x = attention(x * 2, x * 3, x * 4, mask=mask) + x
        return wnp.sum(x.astype("float32") ** 2)

    assert calls_of(weft.grad(layers), *operands(INSIDE), masks(BATCH, 1, *SQUARE)) == ["cudnn_attention"] * 4


def test_other_architectures() -> None:
    """cuDNN has attention from 8.0 on; what it does with biases was measured on 9.0 alone."""
    arrays, mask = operands(*[INSIDE] * 3), masks(BATCH, 1, *SQUARE)
    masked = lambda q, k, v, m: attention(q, k, v, mask=m)
    for capability, plain, with_mask in (((7, 5), 0, 0), ((8, 0), 1, 0), ((9, 0), 1, 1), ((12, 0), 1, 0)):
        assert len(calls_of(library, *arrays, capability=capability)) == plain
        assert len(calls_of(masked, *arrays, mask, capability=capability)) == with_mask


def test_layers_of_modules() -> None:
    """Attention of linen and Keras with a mask is one call."""
    x, mask = operands((BATCH, POSITIONS, HEADS * WIDTH))[0], masks(BATCH, 1, *SQUARE)
    layer = weft.linen.MultiHeadDotProductAttention(HEADS, dtype="bfloat16")
    parameters = layer.init(weft.random.key(0), x, mask=mask)
    run = lambda x, mask: layer.apply(parameters, x, mask=mask)
    assert "cudnn_attention" in calls_of(run, x, mask)
    keras_layer = weft.keras.layers.MultiHeadAttention(HEADS, WIDTH, dtype="bfloat16")
    keras_layer(x, x)
    run = lambda x, mask: keras_layer(x, x, attention_mask=mask[:, 0], use_causal_mask=True)
    assert "cudnn_attention" in calls_of(run, x, mask)


def test_calls_are_prepared_while_kernels_are_written(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of equal layers once, by a thread for each direction, and the program finds them."""
    started: list[Any] = []
    monkeypatch.setattr(early, "in_background", started.append)
    libraries = gpu[1].libraries

    def layers(x: Any) -> Any:
        for _ in range(3):
            x = library(x * 2, x * 3, x * 4) + x
        return wnp.sum(x.astype("float32") ** 2)

    def prepared(*_: Any) -> None:
        for work in started:
            work()
        assert len(started) == len(libraries._prepared) == 2

    build = compiler.build
    monkeypatch.setattr(compiler, "build", lambda *args, **more: (prepared(), build(*args, **more))[1])
    weft.jit(weft.grad(layers))(*there(gpu, *operands(INSIDE)))
    assert len(libraries._prepared) == 2
