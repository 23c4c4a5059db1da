"""Kernels of contractions compute what `dot_general` computes, for all layouts, dtypes and sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import check, close, fused_program, fusions_with_operands, launched
from tests.compiler.host import AVX512
from tests.compiler.running import MACHINES, call, compiled
from weft import lax
from weft.compiler.emit.dispatch import emit
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.ir import Kernel, Loop, LoopKind
from weft.compiler.kernel.printer import to_text
from weft.compiler.target.target import Target
from weft.primitives.contraction.contract import dot_general

EXACT = np.testing.assert_array_equal


def whole(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Small integers, of which every sum of products is exact."""
    rng = np.random.default_rng((seed, *shape))
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    numbers = rng.integers(0 if kind == "u" else -2, 3, shape)
    return (numbers + 1j * rng.integers(-2, 3, shape)).astype(dtype) if kind == "c" else numbers.astype(dtype)


def contract(numbers: Any, **params: Any) -> Callable[..., Any]:
    return lambda a, b: dot_general(a, b, dimension_numbers=numbers, **params)


@pytest.mark.parametrize("index", range(len(list(dot_general.samples()))))
def test_samples_of_the_primitive(index: int) -> None:
    sample = list(dot_general.samples())[index]
    kinds = check(lambda a, b: dot_general(a, b, **sample.params), *sample.args, compare=close(1e-6))
    assert kinds == ["contraction"]


PLAIN = (((1,), (0,)), ((), ()))
NT = (((1,), (1,)), ((), ()))
TN = (((0,), (0,)), ((), ()))
TT = (((0,), (1,)), ((), ()))


@pytest.mark.parametrize(
    "size", [(1, 1, 1), (2, 3, 2), (5, 7, 10), (13, 17, 33), (7, 40, 64), (1, 30, 90), (90, 30, 1)]
)
@pytest.mark.parametrize("name", ["nn", "nt", "tn", "tt"])
def test_layouts(name: str, size: tuple[int, int, int]) -> None:
    """Rows and columns around every tile boundary: sums of integers are exact in any order."""
    m, k, n = size
    a = whole(m, k) if name[0] == "n" else whole(k, m)
    b = whole(k, n) if name[1] == "n" else whole(n, k)
    numbers = {"nn": PLAIN, "nt": NT, "tn": TN, "tt": TT}[name]
    assert check(contract(numbers), a, b, compare=EXACT, interpret=m * k * n < 10_000) == ["contraction"]


LARGE: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "blocks of rows": (PLAIN, (131, 64), (64, 130)),
    "rows and columns": (PLAIN, (150, 90), (90, 97)),
    "copied right": (NT, (200, 96), (70, 96)),
    "copied both": (TT, (96, 200), (70, 96)),
    "long sums": (PLAIN, (3, 200_001), (200_001, 2)),
    "long sums of rows": (TN, (40_000, 9), (40_000, 40)),
    "one long sum": (((((0,), (0,)), ((), ()))), (1_100_000,), (1_100_000,)),
    "wide row": (PLAIN, (1, 1000), (1000, 1111)),
    "tall column": (PLAIN, (1111, 1000), (1000, 1)),
    "batch": (((((2,), (1,)), ((0,), (0,)))), (20, 33, 40), (20, 40, 35)),
    "small batch": (((((2,), (1,)), ((0,), (0,)))), (3, 64, 80), (3, 80, 96)),
    "tiny in a batch": (((((2,), (1,)), ((0,), (0,)))), (3001, 3, 3), (3001, 3, 3)),
    "dots in a batch": (((((1,), (1,)), ((0,), (0,)))), (5000, 3), (5000, 3)),
    "batch last": (((((0,), (0,)), ((2,), (2,)))), (5, 6, 300), (5, 7, 300)),
    "many axes": (((((1, 3), (2, 0)), ((2,), (3,)))), (5, 6, 3, 20, 4), (20, 7, 6, 3, 17)),
    "outer product": (((((), ()), ((), ()))), (70, 3), (130,)),
    "chunks of the depth": (PLAIN, (300, 1531), (1531, 260)),
    "chunks of a transposed matrix": (TT, (1531, 300), (260, 1531)),
    "rows far apart in chunks": (PLAIN, (20, 500), (500, 1024)),
    "groups of panels": (PLAIN, (50, 30), (30, 3001)),
    "large": (PLAIN, (401, 397), (397, 433)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_matmuls_in_blocks_panels_parts_and_chunks(name: str) -> None:
    numbers, left, right = LARGE[name]
    assert check(contract(numbers), whole(*left), whole(*right), compare=EXACT, interpret=False) == ["contraction"]


# Copies of squares that are turned, with rows, columns and lanes at the edge; products of masked panels.
TRANSPOSED: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "rows and lanes left": (NT, (90, 107), (90, 107)),
    "only lanes that are missing": (NT, (90, 107), (80, 107)),
    "nothing left": (NT, (96, 64), (128, 64)),
    "less than a square": (NT, (90, 9), (90, 9)),
    "of the left": (TN, (150, 601), (150, 90)),
    "of both": (TT, (150, 601), (90, 150)),
    "in a batch": (((((1,), (2,)), ((0,), (0,)))), (3, 80, 520), (3, 70, 80)),
    "short sums": (PLAIN, (600, 17), (17, 1001)),
    "pages": (PLAIN, (130, 150), (150, 1040)),
    "pages read once": (PLAIN, (13, 150), (150, 3000)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_packing_by_squares_and_the_remainder(name: str, dtype: Any) -> None:
    numbers, left, right = TRANSPOSED[name]
    a, b = whole(*left, dtype=dtype), whole(*right, dtype=dtype)
    with weft.enable_x64(True):
        assert check(contract(numbers), a, b, compare=EXACT, interpret=False) == ["contraction"]


def test_masked_lanes_are_neither_read_nor_written() -> None:
    """Lanes beyond the result see zeros, whatever stood in the memory of the copy before."""
    a, b = whole(90, 107), whole(90, 107)
    a[:, 0], b[:, 0] = np.inf, 1.0
    assert check(contract(NT), a, b, compare=EXACT, interpret=False) == ["contraction"]


DTYPES = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint32, np.int64, np.float16, np.float32, np.float64, np.complex64,
    np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_dtypes(dtype: Any) -> None:
    for size in ((3, 5, 4), (9, 20, 37)):
        m, k, n = size
        a, b = whole(m, k, dtype=dtype), whole(n, k, dtype=dtype, seed=1)
        compare = close(0.07) if np.dtype(dtype).name.startswith("float8") else EXACT
        with weft.enable_x64(True):
            assert check(contract(NT), a, b, compare=compare, interpret=m == 3) == ["contraction"]


MIXED = [
    (np.int8, np.int8, np.int32),
    (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
    (np.float32, ml_dtypes.bfloat16, None),
    (np.int8, np.float32, None),
    (np.float32, np.complex64, None),
    (np.float32, np.int32, np.int32),
    (np.bool_, np.float32, None),
    (ml_dtypes.int4, ml_dtypes.int4, np.int32),
    (np.float32, np.float32, np.float64),
]


@pytest.mark.parametrize(("left", "right", "preferred"), MIXED)
def test_mixed_dtypes(left: Any, right: Any, preferred: Any) -> None:
    a, b = whole(6, 21, dtype=left), whole(21, 19, dtype=right)
    named = None if preferred is None else np.dtype(preferred)
    assert check(contract(PLAIN, preferred_element_type=named), a, b, compare=EXACT) == ["contraction"]


def test_short_floats_are_summed_in_float32_at_any_size() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(150, 150)).astype(ml_dtypes.bfloat16) for _ in range(2))
    assert check(contract(PLAIN), a, b, compare=close(0.01), interpret=False) == ["contraction"]


def test_special_values() -> None:
    a = np.array([[np.inf, 1.0, 0.0], [np.nan, 0.0, 1.0], [-0.0, -0.0, -0.0], [1e-45, 1e38, 3e38]], np.float32)
    b = np.array([[1.0, 0.0, -1.0], [1.0, 2.0, 1e38], [1.0, 1.0, 1e-45]], np.float32)
    with np.errstate(all="ignore"):
        check(contract(PLAIN), a, b, compare=close(1e-6))


BEFORE_AND_AFTER: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "bias and activation": (lambda a, b, c: wnp.maximum(a @ b + c, 0.0), ((19, 20), (20, 21), (21,))),
    "scaled operands": (lambda a, b: (a * 2.0 + 1.0) @ (b * b), ((19, 20), (20, 21))),
    "two results": (lambda a, b: ((a @ b), (a @ b) * 2.0), ((9, 20), (20, 21))),
    "sum with another": (lambda a, b, c: a @ b - c, ((9, 20), (20, 21), (9, 21))),
    "sliced and reversed": (lambda a, b: a[:, 1:15] @ b[::-1], ((19, 20), (14, 21))),
    "padded": (lambda a, b: lax.pad(a, 0.0, ((1, 0, 0), (2, 1, 0))) @ b, ((6, 11), (14, 21))),
    "broadcast": (lambda a, b: wnp.broadcast_to(a, (9, 20)) @ b, ((20,), (20, 21))),
    "batch and bias": (lambda a, b, c: a @ b + c, ((4, 6, 20), (4, 20, 21), (21,))),
    "projection": (lambda a, b: wnp.einsum("btd,dhe->bhte", a, b), ((2, 5, 12), (12, 3, 8))),
    "long": (lambda a, b: wnp.tanh(a @ b * 0.1) * (a @ b), ((19, 20), (20, 21))),
    "long, in panels": (lambda a, b, c: wnp.tanh(a @ b * 0.1) + c, ((43, 20), (20, 150), (43, 150))),
    "long, of two results": (lambda a, b: (a @ b, wnp.exp(a @ b * 0.1)), ((9, 20), (20, 37))),
    "row times matrix": (lambda a, b, c: wnp.exp(-wnp.abs(a @ b + c)), ((20,), (20, 21), (21,))),
}


@pytest.mark.parametrize("name", BEFORE_AND_AFTER)
def test_prologues_and_epilogues(name: str) -> None:
    function, shapes = BEFORE_AND_AFTER[name]
    args = [whole(*shape, seed=n) for n, shape in enumerate(shapes)]
    assert "contraction" in check(function, *args, compare=close(2e-6))


def test_epilogues_of_large_k() -> None:
    a, b, c = whole(3, 400_000), whole(400_000, 2), whole(2, seed=1)
    assert check(lambda a, b, c: wnp.tanh(a @ b * 1e-3 + c), a, b, c, compare=close(2e-6), interpret=False) == [
        "contraction"
    ]


@pytest.mark.parametrize("shapes", [((300, 1531), (1531, 260)), ((20, 500), (500, 1024))])
def test_epilogues_after_the_last_chunk(shapes: Any) -> None:
    a, b, c = whole(*shapes[0]), whole(*shapes[1]), whole(shapes[1][1], seed=1)
    kinds = check(lambda a, b, c: wnp.tanh(a @ b * 1e-2 + c), a, b, c, compare=close(2e-6), interpret=False)
    assert kinds == ["contraction"]


# --------------------------------------------------------------------------------------------------------- the kernels


def kernels(function: Callable[..., Any], *args: np.ndarray, target: Target = AVX512) -> list[Kernel]:
    found = [f for f in fusions(fused_program(function, *args)) if f.params["kind"] == "contraction"]
    result = []
    for f in found:
        emission = emit("contraction", f.params["jaxpr"], f.params["hero"], target)
        result += [launch.kernel for launch in emission.launches]
    return result


def test_equal_contractions_have_equal_kernels() -> None:
    (one,) = kernels(lambda a, b: wnp.maximum(a @ b, 0.5), whole(30, 40), whole(40, 50))
    (other,) = kernels(lambda a, b: wnp.maximum(a @ b, 0.25), whole(30, 40, seed=3), whole(40, 50))
    assert to_text(one) == to_text(other)


def test_large_contractions_use_threads() -> None:
    """A large matmul has a parallel loop with several iterations, also if only K is large."""
    shapes = ((256, 128, 256), (2, 300_000, 2), (8, 512, 2048), (16, 1000, 3000), (1024, 1024, 1024))
    for args in ((np.ones((m, k), np.float32), np.ones((k, n), np.float32)) for m, k, n in shapes):
        shared = [k.parallel for k in kernels(lambda a, b: a @ b, *args)]
        assert max(0 if loop is None else loop.count for loop in shared) >= 4


def test_sums_of_a_tile_are_carried_in_the_innermost_loop() -> None:
    (kernel,) = kernels(lambda a, b: a @ b, whole(64, 64), whole(64, 64))
    carried = [len(loop.carries) for loop in _loops(kernel.body) if loop.kind is LoopKind.SERIAL and loop.carries]
    assert carried and min(carried) >= 4


@pytest.mark.parametrize("dtype", [np.complex64, ml_dtypes.bfloat16])
def test_long_epilogues_of_dtypes(dtype: Any) -> None:
    a, b = whole(13, 8, dtype=dtype), whole(8, 21, dtype=dtype)
    (kernel,) = kernels(lambda a, b: wnp.exp(wnp.cos(a @ b)), a, b)
    assert kernel.local
    check(
        lambda a, b: wnp.exp(wnp.cos(a @ b * 0.5)), a, b, compare=close(1e-2 if dtype is ml_dtypes.bfloat16 else 2e-6)
    )


def test_a_long_epilogue_is_there_once_for_the_rows_of_a_tile() -> None:
    (kernel,) = kernels(lambda a, b: wnp.tanh(a @ b), whole(67, 64), whole(64, 64))
    bodies = [loop for loop in _loops(kernel.body) if loop.carries and loop.kind is LoopKind.SERIAL]
    assert to_text(kernel).count("tanh") == len(bodies) == 2  # whole tiles, and the one at the edge


def _loops(body: Any) -> list[Loop]:
    found = []
    for statement in body:
        if isinstance(statement, Loop):
            found += [statement, *_loops(statement.body)]
    return found


@pytest.mark.parametrize(
    "shapes",
    [((130, 96), (96, 150)), ((5, 300_000), (300_000, 3)), ((300, 1531), (1531, 260)), ((20, 500), (500, 1024))],
)
def test_results_do_not_depend_on_how_threads_share_the_work(shapes: Any) -> None:
    rng = np.random.default_rng(0)
    args = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    ((equation, operands),) = fusions_with_operands(lambda a, b: a @ b, *args)
    program, hero = equation.params["jaxpr"], equation.params["hero"]
    result = []
    for parts in (1, 2, 7):
        emission = emit("contraction", program, hero, MACHINES["host"]())
        runner = partial(compiled, target=MACHINES["host"](), parts=parts)
        result.append(launched(emission, operands, program, runner)[0].tobytes())
    assert result[0] == result[1] == result[2]


@pytest.mark.parametrize("shapes", [((70, 130), (130, 90)), ((300, 1531), (1531, 260)), ((20, 500), (500, 1024))])
def test_schedules_compute_the_same_bits(shapes: Any) -> None:
    rng = np.random.default_rng(0)
    args = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    ((equation, operands),) = fusions_with_operands(lambda a, b: a @ b, *args)
    program, hero, target = equation.params["jaxpr"], equation.params["hero"], MACHINES["host"]()
    count = emit("contraction", program, hero, target, 1).schedules  # the first does not know of others
    assert count > 1
    result = set()
    for i in range(count):
        emission = emit("contraction", program, hero, target, i)
        result.add(launched(emission, operands, program, partial(compiled, target=target))[0].tobytes())
    assert len(result) == 1


@pytest.mark.parametrize("shapes", [((30, 20), (20, 37), (30, 37)), ((3, 300_000), (300_000, 2), (3, 2))])
def test_the_result_may_overwrite_the_addend(shapes: Any) -> None:
    args = [whole(*shape, seed=n) for n, shape in enumerate(shapes)]
    ((equation, operands),) = fusions_with_operands(lambda a, b, c: a @ b + c, *args)
    program, target = equation.params["jaxpr"], MACHINES["host"]()
    emission = emit("contraction", program, equation.params["hero"], target)
    (added,) = [n for n, operand in enumerate(operands) if operand.shape == shapes[2]]
    assert emission.in_place == {(added, 0)}
    buffers = [a.reshape(-1).copy() for a in operands]
    buffers += [buffers[added], *(np.zeros(s.size, s.dtype) for s in emission.scratch)]
    for launch in emission.launches:
        call(launch.kernel, [buffers[n] for n in launch.operands], target)
    np.testing.assert_array_equal(buffers[added].reshape(shapes[2]), args[0] @ args[1] + args[2])
