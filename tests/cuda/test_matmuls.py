"""Contractions by cuBLASLt on a simulated GPU, whose library is NumPy with the same arguments: layouts, batches, loops,
types and what follows a matmul."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from tests.cuda.stand_ins.objects import StandIn
from weft import lax
from weft.base import dtypes
from weft.compiler.compile import compile_program
from weft.compiler.emit.contractions import thread_contraction
from weft.compiler.program.ir import Launch
from weft.compiler.program.printer import to_text
from weft.compiler.target.cuda.targets import hopper
from weft.sharding.device import Device

Gpu = tuple[Device, SimulatedDriver, StandIn]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    with simulated_gpu(monkeypatch) as (device, driver):
        yield device, driver, driver.with_libraries("cublasLt")["cublasLt"]


def there(gpu: Gpu, *arrays: Any) -> list[Any]:
    return [weft.device_put(a, gpu[0]) for a in arrays]


def ramps(dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Small integers, which all types multiply exactly, or nearly."""
    rng = np.random.default_rng(0)
    found = [rng.integers(-3, 4, shape).astype(dtypes.storage(dtypes.as_dtype(dtype))) for shape in shapes]
    return [a * a.dtype.type(1 + 0.5j) if a.dtype.kind == "c" else a for a in found]


def compare(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            np.asarray(one).astype(wide), np.asarray(other).astype(wide), rtol=tolerance, atol=tolerance
        )


def check(gpu: Gpu, f: Callable[..., Any], *arrays: np.ndarray, calls: int, tolerance: float = 1e-6) -> list[Any]:
    """The same on the CPU and by so many calls; again when it is recorded."""
    compiled, operands = weft.jit(f), there(gpu, *arrays)
    expected = compiled(*arrays)
    found: Any = None
    for _ in range(3):
        gpu[2].calls.clear()
        del found
        found = compiled(*operands)
        assert len(gpu[2].calls) == calls
        compare(found, expected, tolerance)
    return list(gpu[2].calls)


LAYOUTS = {
    "plain": ("ik,kj->ij", (40, 36), (36, 48)),
    "left transposed": ("ki,kj->ij", (36, 40), (36, 48)),
    "right transposed": ("ik,jk->ij", (40, 36), (48, 36)),
    "both transposed": ("ki,jk->ij", (36, 40), (48, 36)),
    "batch": ("bik,bkj->bij", (3, 40, 36), (3, 36, 48)),
    "batch inside": ("ibk,jbk->bij", (40, 3, 36), (48, 3, 36)),
    "batch of heads": ("bihk,bjhk->bhij", (2, 40, 3, 36), (2, 48, 3, 36)),
    "two sums": ("iab,abj->ij", (40, 4, 9), (4, 9, 48)),
    "two sums apart": ("aib,jab->ij", (4, 40, 9), (48, 4, 9)),
    "free axes apart": ("iak,kj->iaj", (8, 5, 36), (36, 48)),
    "vector": ("ik,k->i", (300, 200), (200,)),
    "row": ("k,kj->j", (200,), (200, 300)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(gpu: Gpu, name: str) -> None:
    spec, *shapes = LAYOUTS[name]
    check(
        gpu, lambda x, y: wnp.einsum(spec, x, y), *ramps("float32", *shapes), calls=2 if name == "batch of heads" else 1
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", ["both transposed", "batch of heads"])
def test_types(gpu: Gpu, dtype: str, name: str) -> None:
    spec, *shapes = LAYOUTS[name]
    with weft.enable_x64():
        check(gpu, lambda x, y: wnp.einsum(spec, x, y), *ramps(dtype, *shapes), calls=1 if "both" in name else 2)


def test_sums_may_be_wider_than_operands(gpu: Gpu) -> None:
    def widened(dtype: str) -> Callable[..., Any]:
        return lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=dtype)

    check(gpu, widened("float32"), *ramps("bfloat16", (40, 36), (36, 48)), calls=1)
    check(gpu, widened("int32"), *ramps("int8", (40, 48), (48, 64)), calls=1)  # transposed first
    check(gpu, widened("int32"), *ramps("int8", (40, 37), (37, 64)), calls=0)  # by our own kernel
    check(gpu, widened("int8"), *ramps("int8", (40, 48), (48, 64)), calls=0)


FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")
MIXED = [("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "bfloat16"), ("float16", "bfloat16"), ("float16", "float32")]


def widened_einsum(spec: str, dtype: str) -> Callable[..., Any]:
    return lambda x, y: wnp.einsum(spec, x, y, preferred_element_type=dtype)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("result", ["float32", "bfloat16", "float16"])
def test_floats_of_eight_bits(gpu: Gpu, dtype: str, result: str) -> None:
    """By a call for them where the library has it, or one for bfloat16."""
    for name in ("plain", "right transposed", "batch"):
        spec, *_ = LAYOUTS[name]
        for k in (48, 44):
            sizes = {"b": 3, "i": 40, "j": 64, "k": k}
            shapes = [tuple(sizes[axis] for axis in side) for side in spec.split("->")[0].split(",")]
            own = dtype == "float8_e4m3fn" and k % 16 == 0
            if own or result != "float16":
                check(gpu, widened_einsum(spec, result), *ramps(dtype, *shapes), calls=1)


@pytest.mark.parametrize("pair", MIXED)
def test_operands_of_two_dtypes(gpu: Gpu, pair: tuple[str, str]) -> None:
    """Nothing of either operand is lost."""
    x, y = (ramps(dtype, shape)[0] for dtype, shape in zip(pair, ((40, 48), (48, 64)), strict=True))
    if pair == ("float16", "bfloat16"):
        x, y = x * x.dtype.type(1 + 2.0**-10), y * y.dtype.type(2.0**20)
    check(gpu, lambda x, y: lax.dot(x, y, preferred_element_type="float32"), x, y, calls=1)


def test_precision(gpu: Gpu) -> None:
    x, y = ramps("float32", (40, 36), (36, 48))
    for precision, compute in ((None, 77), ("highest", 68), ("high", 68), ("F32_F32_F32", 68), ("TF32_TF32_F32", 77)):
        found = check(gpu, lambda x, y, p=precision: lax.dot(x, y, precision=p), x, y, calls=1)
        assert [call[2] for call in found] == [compute]
    with weft.default_matmul_precision("float32"):
        (call,) = check(gpu, lambda x, y: x @ y, x, y, calls=1)
        assert call[2] == 68


def test_small_ones_are_fused(gpu: Gpu) -> None:
    check(gpu, lambda x, y: wnp.tanh(x @ y) + 1, *ramps("float32", (8, 8), (8, 8)), calls=0)


SMALL_BATCHES = {
    "plain": ("bik,bkj->bij", (3, 8, 12), (3, 12, 16)),
    "left transposed": ("bki,bkj->bij", (3, 12, 8), (3, 12, 16)),
    "right transposed": ("bik,bjk->bij", (3, 8, 12), (3, 16, 12)),
    "odd sizes": ("bik,bkj->bij", (5, 9, 7), (5, 7, 15)),
    "batch inside": ("ibk,kbj->bij", (6, 3, 5), (5, 3, 10)),
    "one right operand": ("bik,kj->bij", (3, 4, 6), (6, 8)),
    "two sums": ("biac,bacj->bij", (3, 4, 2, 3), (3, 2, 3, 6)),
}


@pytest.mark.parametrize("name", SMALL_BATCHES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32"])
def test_small_ones_of_a_batch_are_tiles_of_threads(
    gpu: Gpu, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what follows them. Sums are in the order of K, so that they are those of one thread."""
    monkeypatch.setattr(thread_contraction, "LEAST_THREADS", 1)
    spec, *shapes = SMALL_BATCHES[name]

    def f(x: Any, y: Any) -> Any:
        found = wnp.einsum(spec, x, y)
        return found, found * 2 + 1

    with weft.enable_x64():
        arrays = ramps(dtype, *shapes)
        check(gpu, f, *arrays, calls=0)
        traced = weft.make_jaxpr(f)(*arrays)
        program = compile_program(traced, [False] * 2, hopper(frozenset({"cublasLt"}))).program
    (kernel,) = [step.full for step in program.all_steps() if isinstance(step, Launch)]
    assert kernel.name == "contraction" and not kernel.local
    out = np.einsum(spec, *(np.ones(shape) for shape in shapes))
    assert out.size // kernel.count >= thread_contraction.LEAST_RESULTS


RELU, BIAS, GELU, AUX = 2, 4, 32, 128


@pytest.mark.parametrize(
    ("function", "epilogue"),
    [
        (lambda x, w, b: x @ w + b, BIAS),
        (lambda x, w, b: b + x @ w, BIAS),
        (lambda x, w, b: weft.nn.relu(x @ w + b), BIAS | RELU),
        (lambda x, w, b: weft.nn.relu(x @ w), RELU),
        (lambda x, w, b: weft.nn.gelu(x @ w + b), BIAS | GELU),
        (lambda x, w, b: weft.nn.gelu(x @ w), GELU),
        (lambda x, w, b: (lambda h: (h * 2, weft.nn.gelu(h)))(x @ w + b), BIAS | GELU | AUX),
        (lambda x, w, b: (lambda h: (h * 2, weft.nn.relu(h)))(x @ w + b), BIAS),
        (lambda x, w, b: (lambda h: (h * 2, h + b))(x @ w), 1),
        (lambda x, w, b: (x @ w).astype("bfloat16") + b.astype("bfloat16"), 1),
    ],
)
def test_what_follows(gpu: Gpu, function: Callable[..., Any], epilogue: int) -> None:
    (call,) = check(gpu, function, *ramps("float32", (40, 36), (36, 48), (48,)), calls=1, tolerance=2e-6)
    assert call[1] == epilogue


def test_what_follows_in_short_floats(gpu: Gpu) -> None:
    arrays = ramps("bfloat16", (40, 36), (36, 48), (48,))
    (call,) = check(gpu, lambda x, w, b: weft.nn.gelu(x @ w + b), *arrays, calls=1, tolerance=2e-2)
    assert call[1] == BIAS | GELU

    def rounded(x: Any, w: Any, b: Any) -> Any:
        return lax.dot(x, w, preferred_element_type="float32").astype("bfloat16") + b

    (call,) = check(gpu, rounded, *arrays, calls=1, tolerance=2e-2)
    assert call[1] == BIAS
    three = ramps("bfloat16", (2, 20, 36), (36, 4, 12), (4, 12))
    (call,) = check(gpu, lambda x, w, b: wnp.einsum("bik,khd->bihd", x, w) + b, *three, calls=1, tolerance=2e-2)
    assert call[1] == BIAS
    # A vector for each row is no bias.
    other = ramps("bfloat16", (40, 36), (36, 40), (40,))
    (call,) = check(gpu, lambda x, w, b: x @ w + b[:, None], *other, calls=1, tolerance=2e-2)
    assert call[1] == 1


def test_gradients(gpu: Gpu) -> None:
    def loss(w: Any, b: Any, x: Any) -> Any:
        return wnp.sum(weft.nn.gelu(x @ w + b) ** 2)

    w, b, x = ramps("float32", (36, 48), (48,), (40, 36))
    found = check(gpu, weft.value_and_grad(loss, (0, 1, 2)), w, b, x, calls=3, tolerance=2e-5)
    assert sorted(call[1] for call in found) == [1, 1, BIAS | GELU | AUX]


def test_in_loops(gpu: Gpu) -> None:
    def layers(ws: Any, x: Any) -> Any:
        return lax.scan(lambda x, w: (wnp.tanh(x @ w), None), x, ws)[0]

    check(gpu, layers, *ramps("float32", (3, 1026, 1026), (16, 1026)), calls=3, tolerance=1e-3)
    # Slices of a size that says little about addresses.
    check(gpu, layers, *ramps("float32", (3, 1025, 1025), (17, 1025)), calls=3, tolerance=1e-3)
    assert gpu[1].calls.count("record") == 2  # with the calls in them
    assert "loop" not in gpu[1].calls
    # A loop without calls is one kernel.
    check(gpu, layers, *ramps("float32", (3, 36, 36), (40, 36)), calls=0, tolerance=1e-5)
    assert "loop" in gpu[1].calls


def test_long_ones_are_measured(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.runtime.cuda.libraries.cublaslt.LONG", 1)
    _, driver, _ = gpu
    x, w = there(gpu, *ramps("float32", (40, 36), (36, 48)))
    for _ in range(2):
        weft.jit(lambda x, w: x @ w)(x, w)
        assert driver.calls.count("measured") == 3
    assert "in" not in driver.calls and len({*driver.memory}) >= 3


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.runtime.cuda.libraries.find.try_load", lambda name: None)
    with simulated_gpu(monkeypatch) as (device, driver):
        x = weft.device_put(np.ones((40, 40), np.float32), device)
        np.testing.assert_array_equal(np.asarray(weft.jit(lambda x: x @ x)(x)), 40)  # by our own kernel
        driver.library_names = frozenset({"cublasLt"})
        with pytest.raises(NotImplementedError, match=r"weft-jit\[cuda\], or the wheel nvidia-cublas"):
            weft.jit(lambda x: x @ x + 1)(x)


def test_one_element_of_each_row(gpu: Gpu) -> None:
    """The gradient of picking them is computed where it is used."""

    def loss(x: Any, y: Any) -> Any:
        return wnp.sum(weft.nn.logsumexp(x, -1) - wnp.take_along_axis(x, y[..., None], -1)[..., 0])

    x, y = np.random.default_rng(0).normal(size=(2, 3, 50)).astype(np.float32), np.array([[1, -1, 49], [0, 7, 60]])
    check(gpu, weft.grad(loss), x, y.astype(np.int32), calls=0, tolerance=1e-5)
    jaxpr = weft.make_jaxpr(weft.grad(loss))(x, y.astype(np.int32)).jaxpr
    program = compile_program(jaxpr, [False] * 2, hopper(frozenset({"cublasLt"}))).program
    assert "scatter" not in to_text(program)


def test_rows_that_are_added_to_others(gpu: Gpu) -> None:
    """The gradient of an embedding: threads take rows in turn, and each row's updates are one thread's, in order."""

    def loss(w: Any, g: Any, t: Any) -> Any:
        return wnp.sum(w[t] * g)

    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(40, 64)).astype(np.float32), rng.normal(size=(96, 64)).astype(np.float32)
    t = rng.integers(-40, 44, 96).astype(np.int32)
    check(gpu, weft.grad(loss), w, g, t, calls=0, tolerance=0.0)
    jaxpr = weft.make_jaxpr(weft.grad(loss))(w, g, t).jaxpr
    program = compile_program(jaxpr, [False] * 3, hopper()).program
    (scatter,) = (s.full for s in program.all_steps() if isinstance(s, Launch) and s.label == "scatter")
    assert scatter.count == 8 * 8  # parts of a row, and threads that take turns


def test_operands_of_two_dtypes_are_converted() -> None:
    """There is no call for them, and our own kernels would take long."""

    def mixed(x: Any, w: Any) -> Any:
        return lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=np.float32)

    operands = weft.ShapeDtypeStruct((64, 64), np.float32), weft.ShapeDtypeStruct((64, 64), wnp.bfloat16)
    jaxpr = weft.make_jaxpr(mixed)(*operands).jaxpr
    program = compile_program(jaxpr, [False, False], hopper(frozenset({"cublasLt"}))).program
    assert [type(step).__name__ for step in program.steps] == ["Launch", "Call"]
