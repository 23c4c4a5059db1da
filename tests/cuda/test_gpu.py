"""On a real GPU (`make test-gpu`): the samples of the laws, whole programs, and that runs repeat themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.test_arrays import CREATED
from tests.cuda.test_attention import (
    CASES as ATTENTION,
    MASKED,
    WITH_COTANGENTS,
    compared,
    operands,
    wide,
    with_cotangents,
)
from tests.cuda.test_convolutions import CASES, convolution
from tests.cuda.test_linear_algebra import MATRICES, compare
from tests.cuda.test_matmuls import FLOAT8, LAYOUTS, SMALL_BATCHES, ramps, widened_einsum
from tests.cuda.test_meshes import COLLECTIVES, mapped
from tests.cuda.test_ptx import SAME
from tests.cuda.test_runtime import nested
from tests.cuda.test_scatters import SCATTERS, rows
from tests.cuda.test_sorts import DTYPES, SHAPES, SORTS, by_two, same_bits, values
from tests.cuda.test_tapes import X as START, cases as tape_cases
from tests.cuda.test_tensor_cores import PAIRS, operands as factors, product
from tests.laws.laws import assert_close
from tests.laws.samples import Case
from tests.laws.test_compiled import merged
from tests.unit.test_documentation import blocks
from weft import lax
from weft.base import dtypes
from weft.base.settings import overrides
from weft.compiler.target.cuda import targets
from weft.experimental import checkify, io_callback
from weft.runtime.array import copy_array
from weft.runtime.cuda import communicators, driver, spmd
from weft.runtime.cuda.copies import CHUNK, MEDIUM
from weft.runtime.device import get_placement
from weft.runtime.execute import get_executable


@pytest.fixture(autouse=True)
def needs_a_gpu() -> None:
    """The driver is loaded when these tests run, not when tests are collected."""
    if not driver.count():
        pytest.skip("there is no GPU")


@pytest.mark.parametrize("cases", [cases for _, cases in SAME], ids=[name for name, _ in SAME])
def test_samples_equal_eval(cases: list[Case]) -> None:
    """Within the budget of the card; and the bits of the CPU, where the same text of mathematics is compiled."""
    placement = get_placement(weft.devices("gpu")[0], True)
    jaxpr = merged(cases)
    arrays = [
        copy_array(np.asarray(a), t, placement) for case in cases for a, t in zip(case.arrays, case.types, strict=True)
    ]
    results = iter(get_executable(jaxpr, device=placement.device)(arrays, None, placement))
    for case in cases:
        for i, expected in enumerate(case.results):
            assert_close(next(results), expected, case.tolerance, f"{case}, result {i}")


@pytest.fixture(params=[False, True], ids=["of warps", "of warpgroups"])
def without_libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Contractions are our own kernels', by the units of single warps, or of four together where there are such."""
    monkeypatch.setattr(driver, "present", frozenset)
    monkeypatch.setattr(targets, "WARPGROUPS", {90: 128} if request.param else {})
    targets.of_capability.cache_clear()
    yield
    monkeypatch.undo()
    targets.of_capability.cache_clear()


@pytest.mark.parametrize(
    "sizes", [(520, 392, 264), (257, 131, 75), (64, 64, 8192), (2304, 2048, 256), (4104, 2056, 520)], ids=str
)
@pytest.mark.parametrize(("dtype", "transposes"), PAIRS)
@pytest.mark.usefixtures("without_libraries")
def test_tensor_cores_without_libraries(dtype: Any, transposes: tuple[bool, bool], sizes: tuple[int, int, int]) -> None:
    arrays = factors(*sizes, transposes, dtype)
    gpu, f = weft.devices("gpu")[0], product(transposes)
    got = [weft.jit(f)(*(weft.device_put(x, gpu) for x in arrays)) for _ in range(3)]
    want = f(*(x.astype(np.float64) for x in arrays))
    error = np.abs(np.asarray(got[0]).astype(np.float64) - want).max() / np.abs(want).max()
    assert error < (2.0**-8 if dtypes.name(got[0].dtype) == "bfloat16" else 2.0**-10)
    assert len({np.asarray(x).tobytes() for x in got}) == 1


def program(w: Any, x: Any) -> Any:
    """Products, reductions, elementwise functions, loops of both kinds and random numbers."""

    def loss(w: Any) -> Any:
        h = wnp.tanh(x @ w)
        total, _ = lax.scan(lambda c, row: (c + wnp.sum(row * row), c), wnp.float32(0), h)
        return total + wnp.sum(weft.nn.softmax(h) * weft.random.normal(weft.random.key(0), h.shape))

    value, gradient = weft.value_and_grad(loss)(w)
    steps = lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 2 + 1, c[1] + 1), (value * 0, 0))[1]
    return value, gradient, steps


def test_programs_equal_the_cpu_and_themselves() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(20, 30)).astype(np.float32), rng.normal(size=(40, 20)).astype(np.float32)
    here = weft.jit(program)(w, x)
    gpu = weft.devices("gpu")[0]
    there = [weft.device_put(a, gpu) for a in (w, x)]
    first = [np.asarray(r) for r in weft.jit(program)(*there)]
    for one, other in zip(first, here, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=2e-5, atol=2e-5)
    for _ in range(10):
        for one, other in zip(weft.jit(program)(*there), first, strict=True):
            assert np.asarray(one).tobytes() == other.tobytes()


@pytest.mark.parametrize("columns", [30, 1000, 40_000])
def test_loops_are_kernels(columns: int) -> None:
    """Of one block of threads, and of several that wait for each other; ten runs have one result."""
    gpu = weft.devices("gpu")[0]
    x = np.random.default_rng(0).normal(size=(7, columns)).astype(np.float32)
    there = weft.device_put(x, gpu)
    f = weft.jit(nested)
    first = [np.asarray(r) for r in f(there, 5)]
    for one, other in zip(first, weft.jit(nested)(x, 5), strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=2e-4, atol=2e-4)
    for _ in range(10):
        for one, other in zip(f(there, 5), first, strict=True):
            assert np.asarray(one).tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", ["int8", "bool", "bfloat16", "float16", "float32"])
@pytest.mark.parametrize("shape", [(5, 33), (300, 5000), (3, 40_001)], ids=str)
def test_lanes_of_several_sizes_go_between_warps(dtype: str, shape: tuple[int, int]) -> None:
    """In one kernel: elements and their indices, bools and sums."""
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtypes.storage(dtypes.as_dtype(dtype)))
    f = weft.jit(lambda x: (wnp.argmax(x, 1), (x > 2).any(1), x.astype("float32").sum(1), wnp.argmin(x, 1)))
    for found, expected in zip(f(weft.device_put(x, weft.devices("gpu")[0])), f(x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("size", [2, 40, 3000, 100_000])
def test_cumulative_operations_of_what_is_the_same_everywhere(size: int) -> None:
    f = weft.jit(lambda x: (wnp.cumsum(wnp.broadcast_to(x, (3, size)), 1), lax.cummax(wnp.broadcast_to(x, (size,)))))
    x = np.float32([3])
    for found, expected in zip(f(weft.device_put(x, weft.devices("gpu")[0])), f(x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "complex64", "bool"])
def test_operations_outside_of_programs(dtype: str) -> None:
    gpu = weft.devices("gpu")[0]
    x = np.ones((3, 4), dtypes.as_dtype(dtype))
    y = weft.device_put(x, gpu)
    for f in (lambda a: a + a, lambda a: a * a, lambda a: wnp.sum(a, 0), lambda a: a.T, lambda a: a[1:, ::2]):
        result = f(y)
        assert result.device is gpu
        np.testing.assert_array_equal(np.asarray(result), np.asarray(f(wnp.asarray(x))))


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 8), (3, 5), (1, 7)])
@pytest.mark.parametrize("precision", [None, "highest"])
def test_nans_go_through_relu_of_convolutions(inputs: int, outputs: int, precision: str | None) -> None:
    """With numbers of features that engines like, and others."""
    x, w = ramps("float32", (2, 6, 5, inputs), (3, 3, inputs, outputs))
    x[0, 2, 2, 0] = np.nan
    params = {"padding": "SAME", "precision": precision}
    f = weft.jit(lambda x, w, b: weft.nn.relu(convolution(CASES["same"][0], x, w, **params) + b))
    b = np.arange(outputs, dtype=np.float32)
    there = [weft.device_put(a, weft.devices("gpu")[0]) for a in (x, w, b)]
    np.testing.assert_allclose(np.asarray(f(*there)), np.asarray(f(x, w, b)), rtol=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nans_go_through_relu_of_matmuls(dtype: str) -> None:
    x, w, b = ramps(dtype, (64, 96), (96, 128), (128,))
    x[3, 5] = np.nan
    f = weft.jit(lambda x, w, b: weft.nn.relu(x @ w + b))
    there = [weft.device_put(a, weft.devices("gpu")[0]) for a in (x, w, b)]
    found, expected = (np.asarray(f(*operands), np.float32) for operands in (there, (x, w, b)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("name", SORTS)
@pytest.mark.parametrize("shape", [*SHAPES, (70, 20_001), (1, 1 << 20)], ids=str)
def test_sorts(name: str, shape: tuple[int, ...]) -> None:
    x = values("float32", *shape)
    f = weft.jit(SORTS[name])
    there = weft.device_put(x, weft.devices("gpu")[0])
    for found, expected in zip(weft.tree.leaves(f(there)), weft.tree.leaves(f(x)), strict=True):
        same_bits(np.asarray(found), expected)


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_scatters(name: str, dtype: str) -> None:
    if dtype == "complex64" and name == "max":
        pytest.skip("complex numbers have no order")
    for cells, count, width in ((40, 1200, 3), (5000, 1200, 3), (1000, 50_000, 64), (3_000_000, 100_000, 1)):
        arrays = rows(cells, count, width, dtype)
        f = weft.jit(SCATTERS[name])
        there = [weft.device_put(a, weft.devices("gpu")[0]) for a in arrays]
        same_bits(np.asarray(f(*there)), f(*map(wnp.asarray, arrays)))


@pytest.mark.parametrize("length", [7, 70, 1000])
def test_sorts_in_loops(length: int) -> None:
    def program(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, wnp.sort(c[1] * -1, -1)), (0, x))[1]

    x = values("float32", 9, length)
    there = weft.device_put(x, weft.devices("gpu")[0])
    # Products that are nan have other bits there.
    np.testing.assert_array_equal(np.asarray(weft.jit(program)(there)), np.asarray(weft.jit(program)(x)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorts_of_all_dtypes(dtype: str) -> None:
    with weft.enable_x64():
        for shape in ((5, 9), (3, 300), (2, 1500), (2, 4500), (1, 100_000)):
            x = values(dtype, *shape)
            there = weft.device_put(x, weft.devices("gpu")[0])
            for f in (weft.jit(wnp.sort), weft.jit(wnp.argsort)):
                same_bits(np.asarray(f(there)), f(x))
            if dtype == "int64":
                for found, expected in zip(weft.jit(by_two)(there % 5), weft.jit(by_two)(x % 5), strict=True):
                    same_bits(np.asarray(found), expected)


def many(spec: str, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
    """The same matrices in a batch that keeps a GPU busy."""
    operands = zip(spec.split("->")[0].split(","), shapes, strict=True)
    named = (zip(axes, shape, strict=True) for axes, shape in operands)
    return spec, *(tuple(20_000 if axis == "b" else size for axis, size in pairs) for pairs in named)


MATMULS = LAYOUTS | {f"many, {name}": many(*case) for name, case in SMALL_BATCHES.items()}


@pytest.mark.parametrize("name", MATMULS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "complex64", "complex128"])
def test_matmuls(name: str, dtype: str) -> None:
    """Small integers, so that all formats multiply them exactly."""
    spec, *shapes = MATMULS[name]
    with weft.enable_x64():
        arrays = ramps(dtype, *shapes)
        gpu = weft.devices("gpu")[0]
        f = weft.jit(lambda x, y: wnp.einsum(spec, x, y))
        found = [np.asarray(f(*(weft.device_put(a, gpu) for a in arrays))) for _ in range(3)]
        np.testing.assert_array_equal(found[0], np.asarray(f(*arrays)))
        assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_convolutions_and_their_gradients(name: str, dtype: str) -> None:
    layout, x_shape, w_shape, params = CASES[name]

    def loss(x: Any, w: Any) -> Any:
        y = convolution(layout, x, w, **params)
        return wnp.sum(y * y * 0.5, dtype=wnp.float32), y

    arrays = ramps(dtype, x_shape, w_shape)
    f = weft.jit(weft.value_and_grad(loss, (0, 1), has_aux=True))
    gpu = weft.devices("gpu")[0]
    for _ in range(2):
        found, expected = f(*(weft.device_put(a, gpu) for a in arrays)), f(*arrays)
        for one, other in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
            limit = 2e-3 if dtype == "float32" else 2e-2
            np.testing.assert_allclose(
                np.asarray(one).astype(np.float32), np.asarray(other).astype(np.float32), rtol=limit, atol=1
            )


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_and_its_cotangents(name: str) -> None:
    function, shapes = ATTENTION[name]
    arrays = operands(*shapes)
    gpu = weft.devices("gpu")[0]

    def loss(*args: Any) -> Any:
        return wnp.sum(function(*args).astype("float32") ** 2)

    f = weft.jit(weft.grad(loss, (0, 1, 2)))
    there = [weft.device_put(a, gpu) for a in arrays]
    first = [np.asarray(a) for a in f(*there)]
    for one, other in zip(first, f(*(a.astype(np.float32) for a in arrays)), strict=True):
        limit = 3e-2 * float(np.abs(np.asarray(other)).max())
        np.testing.assert_allclose(one.astype(np.float32), np.asarray(other), atol=limit)
    for _ in range(10):
        assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(first, f(*there), strict=True))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", MASKED)
def test_attention_with_masks_and_biases(name: str, dtype: str) -> None:
    """Forward, with cotangents, and with those of a bias, against float32; ten runs have one result."""
    function, shape, more = MASKED[name]
    arrays = [*operands(*[shape] * 3, dtype=dtype), *more]
    gpu = weft.devices("gpu")[0]
    there = [weft.device_put(a, gpu) for a in arrays]
    for f in (
        lambda *a: [function(*a)],
        *(with_cotangents(function, n) for n in (3, 4) if n < 4 or name in WITH_COTANGENTS),
    ):
        compiled = weft.jit(f)
        first = [np.asarray(a) for a in compiled(*there)]
        compared(first, weft.jit(f)(*wide(arrays)))
        for _ in range(10):
            assert all(a.tobytes() == np.asarray(b).tobytes() for a, b in zip(first, compiled(*there), strict=True))


@pytest.mark.parametrize("cases", [cases for _, cases in MATRICES], ids=[name for name, _ in MATRICES])
def test_linear_algebra(cases: list[Case]) -> None:
    placement = get_placement(weft.devices("gpu")[0], True)
    arrays = [
        copy_array(np.asarray(a), t, placement) for case in cases for a, t in zip(case.arrays, case.types, strict=True)
    ]
    compare(cases, get_executable(merged(cases), device=placement.device)(arrays, None, placement))


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("result", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sizes", [(256, 512, 384), (100, 48, 64), (40, 44, 64), (1, 1024, 4096), (1, 4096, 16)])
def test_matmuls_of_eight_bits(dtype: str, result: str, sizes: tuple[int, int, int]) -> None:
    """Sums of products of small integers are exact, whichever way they are computed."""
    m, k, n = sizes
    gpu = weft.devices("gpu")[0]
    for spec, shapes in (("ik,kj->ij", ((m, k), (k, n))), ("bki,bjk->bij", ((2, k, m), (2, n, k)))):
        f = weft.jit(widened_einsum(spec, result))
        x, y = ramps(dtype, *shapes)
        found, expected = (
            np.asarray(f(*a)).astype(np.float32) for a in ([weft.device_put(b, gpu) for b in (x, y)], (x, y))
        )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_follows_matmuls(dtype: str) -> None:
    arrays = ramps(dtype, (256, 512), (512, 384), (384,))
    gpu = weft.devices("gpu")[0]
    there = [weft.device_put(a, gpu) for a in arrays]
    for function in (
        lambda x, w, b: x @ w + b,
        lambda x, w, b: weft.nn.relu(x @ w * 0.01 + b),
        lambda x, w, b: weft.nn.relu(x @ w + b),
        lambda x, w, b: weft.nn.gelu(x @ w + b),
        lambda x, w, b: (lambda h: (h * 2, weft.nn.gelu(h)))(x @ w + b),
        lambda x, w, b: lax.dot(x, w, preferred_element_type=wnp.float32).astype(x.dtype) + b,
    ):
        found, expected = weft.jit(function)(*there), weft.jit(function)(*arrays)
        for one, other in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
            limit = 1e-5 if dtype == "float32" else 2e-2
            np.testing.assert_allclose(
                np.asarray(one).astype(np.float32), np.asarray(other).astype(np.float32), rtol=limit, atol=limit
            )


def test_memory_statistics_and_an_array_too_large() -> None:
    gpu = weft.devices("gpu")[0]
    memory = get_placement(gpu, True).memory
    before = memory.bytes_in_use
    x = weft.device_put(np.ones(1 << 20, np.float32), gpu)
    assert memory.bytes_in_use - before == 4 << 20
    del x
    assert memory.bytes_in_use == before
    with pytest.raises(MemoryError, match="on the GPU"):
        memory.take(1 << 45)


@pytest.mark.parametrize("name", tape_cases())
def test_reverse_mode_of_while(name: str) -> None:
    f, gpu = tape_cases()[name], weft.devices("gpu")[0]
    for _ in range(2):
        found = weft.tree.leaves(f(weft.device_put(START, gpu)))
        for one, other in zip(found, weft.tree.leaves(f(START)), strict=True):
            assert one.device is gpu
            limit = 5e-2 if name == "half" else 1e-3
            np.testing.assert_allclose(
                np.asarray(one).astype(np.float32), np.asarray(other).astype(np.float32), rtol=limit
            )


@pytest.mark.parametrize(
    "size", [0, 1, 65_535, 65_536, 65_537, MEDIUM, MEDIUM + 1, CHUNK - 4, CHUNK, CHUNK + 4, 100_000_000]
)
def test_copies_of_all_sizes(size: int) -> None:
    """Beside programs that are under way, and while others change the array that was copied."""
    gpu = weft.devices("gpu")[0]
    w = weft.device_put(np.eye(2048, dtype=np.float32), gpu)
    busy = weft.jit(lambda w: lax.fori_loop(0, 50, lambda i, c: c @ w, w))
    value = np.random.default_rng(0).integers(0, 255, size, np.uint8)
    for asynchronous in (False, True):
        for _ in range(3):
            busy(w)
            mine = value.copy()
            x = weft.device_put(mine, gpu)
            mine[:] = 7
            y = x ^ np.uint8(1)
            if asynchronous:
                x.copy_to_host_async()
                y.copy_to_host_async()
                busy(w)
            np.testing.assert_array_equal(np.asarray(x), value)
            np.testing.assert_array_equal(np.asarray(y), value ^ 1)


def test_arrays_are_created_on_the_default_device() -> None:
    gpu = weft.devices("gpu")[0]
    expected = {name: create() for name, create in CREATED.items()}
    with weft.default_device("gpu"):
        for name, create in CREATED.items():
            found = create()
            assert found.devices() == {gpu}, name
            if not weft.dtypes.issubdtype(found.dtype, weft.dtypes.prng_key):
                np.testing.assert_allclose(np.asarray(found), np.asarray(expected[name]), rtol=1e-6, err_msg=name)


def test_checks_and_callbacks() -> None:
    gpu = weft.devices("gpu")[0]
    x = weft.device_put(np.array([1, -1, 2], np.float32), gpu)
    with weft.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        weft.jit(lambda x: wnp.log(x) + 1)(x).block_until_ready()
    with overrides(checks="all"), pytest.raises(IndexError):
        weft.jit(lambda x, i: x[i])(x, 7).block_until_ready()

    def checked(x: Any) -> Any:
        checkify.check(wnp.all(x > 0), "negative {x}", x=x[1])
        return x * 2

    error, doubled = weft.jit(checkify.checkify(checked))(x)
    assert "negative -1.0" in error.get()
    np.testing.assert_array_equal(np.asarray(doubled), [2, -2, 4])
    seen: list[float] = []

    def step(c: Any, row: Any) -> Any:
        io_callback(lambda v: seen.append(float(v)), None, c + row, ordered=True)
        return c + row, weft.pure_callback(lambda v: np.asarray(v) * 3, weft.ShapeDtypeStruct((), np.float32), row)

    total, tripled = weft.jit(lambda x: lax.scan(step, wnp.float32(0), x))(x)
    weft.effects_barrier()
    assert seen == [1, 0, 2] and float(total) == 2
    np.testing.assert_array_equal(np.asarray(tripled), [3, -3, 6])


@pytest.mark.parametrize("by", ["copies", "nccl", "nccl as with other processes"])
def test_a_mesh_of_one_gpu(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By copies, and by NCCL with a communicator of one: its calls are recorded in graphs, or do not block and are
    beside the work of the GPU."""
    monkeypatch.setattr(spmd.CudaDevicesExecutable, "uses_library_alone", by != "copies")
    if by == "nccl as with other processes":
        monkeypatch.setattr(communicators, "get_peers", lambda devices: [0])
        monkeypatch.setattr(communicators, "_communicators", {})
        monkeypatch.setattr(spmd.CudaDevicesExecutable, "overlaps", True)
        monkeypatch.setattr(spmd.CudaDevicesExecutable, "is_one_graph", False)
    gpu = weft.devices("gpu")[0]
    mesh = weft.make_mesh((1,), ("i",), devices=[gpu])
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    there = weft.device_put(x, weft.NamedSharding(mesh, weft.P("i")))
    for name in COLLECTIVES:
        if name in ("psum_scatter, one", "all_to_all, last", "ppermute", "ppermute of some", "pbroadcast", "groups"):
            continue  # which are for four devices
        f = mapped(COLLECTIVES[name], mesh)
        expected = np.asarray(weft.vmap(COLLECTIVES[name], axis_name="i")(x))
        for _ in range(4):
            np.testing.assert_allclose(
                np.asarray(f(there)).astype(np.complex64), expected.astype(np.complex64), rtol=1e-6
            )
    sent = mapped(lambda x: lax.ppermute(x, "i", [(0, 0)]), mesh)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(sent(there)), x)


def test_the_page_runs() -> None:
    names: dict[str, object] = {}
    for i, block in enumerate(blocks("docs/gpus.md")):
        exec(compile(block, f"docs/gpus.md, block {i}", "exec"), names)
