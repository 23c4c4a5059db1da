"""Row, column and full reductions: kernels compute the reductions, for every dtype and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import check, close, fused_program, fusions_with_operands, launched
from tests.compiler.fuse_programs import (
    PROGRAMS,
    layer_norm,
    logsumexp,
    random_program,
    rms_norm,
    softmax,
    total,
)
from tests.compiler.host import AVX2, AVX512
from tests.compiler.running import MACHINES, compiled, interpreted
from weft import lax
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission, get_size, literal_arrays, storage
from weft.compiler.fuse.fusion import fusions
from weft.compiler.kernel.interpreter import run as interpret
from weft.compiler.kernel.ir import Loop, LoopKind, Statement
from weft.compiler.kernel.printer import to_text
from weft.ir.interpreter import run


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "log softmax": lambda x: x - logsumexp(x)[..., None],
    "logsumexp": logsumexp,
    "logsumexp gradient": weft.grad(total(logsumexp)),
    "softmax gradient": weft.grad(total(softmax)),
    "layer norm": lambda x: layer_norm(x, np.float32(1.5), np.float32(0.5)),
    "layer norm gradient": weft.grad(total(lambda x: layer_norm(x, np.float32(1.5), np.float32(0.5)))),
    "rms norm": lambda x: rms_norm(x, np.float32(0.5)),
    "moments": lambda x: (wnp.mean(x, -1), wnp.var(x, -1), wnp.max(x, -1), wnp.min(wnp.sin(x), -1)),
    "with a full result": lambda x: (wnp.sin(x), wnp.sum(wnp.sin(x), -1)),
    "full results of two passes": lambda x: (wnp.sin(x), x - wnp.sum(x, -1)[..., None]),
    "full results of three passes": lambda x: in_three_passes(x),
}


def in_three_passes(x: Any) -> Any:
    """The exponential is needed once more after the first result, in whose memory it could wait, is written."""
    exponential = wnp.exp(x - wnp.max(x, -1)[..., None])
    first = wnp.sum(exponential, -1)[..., None]
    second = wnp.sum(exponential * first, -1)[..., None]
    return x * first, exponential / second


@pytest.mark.parametrize("shape", [(5, 37), (3, 2, 130), (40, 3), (19,), (1, 7), (0, 5), (300, 2)])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, shape: tuple[int, ...]) -> None:
    def compare(got: np.ndarray, want: np.ndarray) -> None:
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)

    kinds = check(ROWS[name], normal(*shape), compare=compare, machines=["avx2"] if shape[0] > 5 else ["host"])
    assert kinds and (0 in shape or "row" in kinds or "all" in kinds)


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5, 37), (0,)),
    ((5, 37), (0, 1)),
    ((3, 4, 29), (1,)),
    ((3, 4, 29), (0, 2)),
    ((3, 4, 29), (1, 2)),
    ((2, 3, 4, 5), (1, 3)),
    ((2, 3, 4, 5), (0, 2)),
    ((50, 3), (0,)),
    ((1, 6, 1), (1,)),
    ((4, 1), (1,)),
    ((0, 3), (0,)),
    ((3, 0), (0,)),
    ((7,), (0,)),
    ((), ()),
]
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": wnp.sum,
    "prod": wnp.prod,
    "max": lambda x, axis: lax.reduce_max(x, axis),
    "min": lambda x, axis: lax.reduce_min(x, axis),
    "and": lambda x, axis: lax.reduce_and((x * 8).astype(np.int32), axis),
    "or": lambda x, axis: lax.reduce_or(x > 1, axis),
    "xor": lambda x, axis: lax.reduce_xor((x * 8).astype(np.int8), axis),
}


@pytest.mark.parametrize("shape, axes", SHAPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = normal(*shape)
    check(lambda x: REDUCTIONS[name](x * 1.5, axis=axes) * 2, x, compare=close(1e-5), machines=["host"])


OPERANDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "transposed": (lambda x, y: wnp.sum(x.T + y, 1), (normal(30, 40), normal(40, 30))),
    "transposed, columns": (lambda x, y: wnp.max(x.T * y, 0), (normal(30, 40), normal(40, 30))),
    "repeated along the fold": (lambda x, b: wnp.sum(x * b[:, None, None], (1, 2)), (normal(3, 4, 50), normal(3))),
    "repeated around": (lambda x, b: wnp.sum(x * b[None, :, None], (0, 2)), (normal(3, 4, 50), normal(4))),
    "repeated within the fold": (lambda x, b: wnp.sum(x * b[None, :, None], (1, 2)), (normal(3, 4, 50), normal(4))),
    "reversed": (lambda x: wnp.sum(x[:, ::-1] * 2, 1), (normal(5, 40),)),
    "padded": (lambda x: wnp.sum(lax.pad(x, 0.5, ((1, 2, 0), (3, 1, 1))), 0), (normal(5, 20),)),
    "reshaped": (lambda x: wnp.sum(x.reshape(6, 20, 5), (0, 2)), (normal(30, 20),)),
    "looked up": (lambda x, i: wnp.sum(x[i], 1), (normal(30, 20), np.array([1, 5, 3], np.int32))),
    "reshaped softmax": (lambda x: softmax(x.reshape(6, 4, 25)), (normal(24, 25),)),
    "ones in shapes": (lambda x: wnp.sum(x[:, None, :, None], (1, 2, 3)), (normal(4, 5),)),
    "complex": (lambda x: lax.reduce_max(x, (0,)), (np.array([-np.inf - 5j, -np.inf - 7j], np.complex64),)),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands(name: str) -> None:
    function, args = OPERANDS[name]
    kinds = check(function, *args, compare=close(1e-5))
    assert len(kinds) == 1 and kinds[0] in ("row", "column", "all")


DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "int4",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float64",
    "complex64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low = 0 if dtype in ("bool", "uint16") else -3
    x = np.random.default_rng(0).integers(low, 4, (9, 40)).astype(np.int8).astype(kind)
    with weft.enable_x64(True):
        for axes in ((0,), (1,), (0, 1)):
            if dtype != "bool":
                check(lambda x, axes=axes: lax.reduce_sum(x, axes), x)
            check(lambda x, axes=axes: lax.reduce_max(x, axes), x)
        check(lambda x: lax.reduce_min(x, (0,)), x[:0])


def emission_of(function: Callable[..., Any], *args: Any) -> Emission:
    (fusion,) = fusions(fused_program(function, *args))
    return emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], AVX512)


LONG: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((300, 1001), (0, 1)),
    ((3, 100_003), (1,)),
    ((100_003, 3), (0,)),
    ((4003, 67), (0,)),
    ((515, 700), (0,)),
    ((3, 200, 2500), (1,)),
    ((70_000, 8), (0,)),
]


@pytest.mark.parametrize("shape, axes", LONG)
def test_long_reductions_are_split_for_threads(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = normal(*shape)

    def function(x: Any) -> Any:
        return wnp.sum(x * x, axes) * 2, wnp.max(x, axes), x + 1

    check(function, x, compare=close(5e-5), interpret=False)
    kernel = emission_of(lambda x: wnp.sum(x * x, axes), x).launches[0].kernel
    assert kernel.parallel is not None and kernel.parallel.count >= 7


SHARED: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "rows": (softmax, normal(40, 33)),
    "short rows": (softmax, normal(9000, 3)),
    "everything": (lambda x: wnp.sum(x), normal(300, 1001)),
    "columns": (lambda x: wnp.sum(x, 0), normal(515, 700)),
    "searches": (lambda x: wnp.argmax(x, 0), normal(300_001)),
    "running sums": (lambda x: wnp.cumsum(x), normal(300_001)),
    "running sums of columns": (lambda x: wnp.cumsum(x, 0), normal(150, 3000)),
}


@pytest.mark.parametrize("name", SHARED)
def test_results_do_not_depend_on_threads(name: str) -> None:
    function, x = SHARED[name]
    ((equation, operands),) = fusions_with_operands(function, x)
    program, features = equation.params["jaxpr"], MACHINES["host"]()
    emission = emit(equation.params["kind"], program, equation.params["hero"], AVX512)
    assert emission.launches[0].kernel.parallel is not None
    one, other = (
        launched(emission, operands, program, lambda kernel, arrays, p=p: compiled(kernel, arrays, features, parts=p))
        for p in (1, 3)
    )
    assert [a.tobytes() for a in one] == [a.tobytes() for a in other]


@pytest.mark.parametrize("name", [*ROWS, "running sum"])
@pytest.mark.parametrize("shape", [(5, 37), (40, 3)])
def test_an_argument_may_have_the_memory_of_a_result(name: str, shape: tuple[int, ...]) -> None:
    function = ROWS.get(name, lambda x: wnp.cumsum(x, 1) * x)
    ((equation, operands),) = fusions_with_operands(function, normal(*shape))
    jaxpr = equation.params["jaxpr"]
    emission = emit(equation.params["kind"], jaxpr, equation.params["hero"], AVX2)
    wanted = launched(emission, operands, jaxpr, interpreted)
    for argument, result in emission.in_place:
        buffer = len(operands) + result
        buffers = [np.ascontiguousarray(a).reshape(-1).copy() for a in operands]
        buffers += [np.zeros(get_size(v), storage(v)) for v in jaxpr.outvars]
        buffers += [np.zeros(s.size, s.dtype) for s in emission.scratch] + literal_arrays(jaxpr)
        buffers[buffer] = buffers[argument]
        for launch in emission.launches:
            interpret(launch.kernel, [buffers[n] for n in launch.operands])
        for i, want in enumerate(wanted):
            np.testing.assert_array_equal(buffers[len(operands) + i], want.reshape(-1))
    assert emission.in_place or name in ("logsumexp", "moments", "softmax gradient", "layer norm gradient")


def test_nan_and_infinity_propagate() -> None:
    x = normal(4, 70)
    x[1, 3], x[2, 5], x[3, 69] = np.nan, np.inf, -np.inf
    check(lambda x: (wnp.max(x, 1), wnp.min(x, 1), wnp.sum(x, 1)), x, compare=close(1e-6))
    check(lambda x: wnp.max(x, 0), x)


def test_the_sign_of_a_zero_is_preserved() -> None:
    def same_bits(got: np.ndarray, want: np.ndarray) -> None:
        assert got.tobytes() == want.tobytes()

    check(lambda x: lax.reduce_sum(x, (1,)), np.full((3, 20), -0.0, np.float32), compare=same_bits)
    check(lambda x: lax.reduce_prod(x, (1,)), np.full((3, 1), -0.0, np.float32), compare=same_bits)


def test_the_exponential_of_softmax_is_computed_once() -> None:
    emission = emission_of(softmax, normal(8, 100))

    (launch,) = emission.launches
    assert to_text(launch.kernel).count("= exp ") == 1
    assert emission.in_place == frozenset({(0, 0)})


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("random", "effects", "while gradient")])
def test_reductions_of_whole_programs(name: str) -> None:
    function, args = PROGRAMS[name]
    check_kinds(function, *args)


@pytest.mark.parametrize("seed", range(12))
def test_reductions_of_random_programs(seed: int) -> None:
    function, args = random_program(np.random.default_rng(seed), 14)
    check_kinds(function, *args)


def check_kinds(function: Callable[..., Any], *args: Any) -> None:
    """Every reduction of a jaxpr, interpreted, computes what its fusion means."""
    for equation, operands in fusions_with_operands(function, *args):
        program, kind = equation.params["jaxpr"], equation.params["kind"]
        if kind in ("row", "column", "all", "argmax", "cumulative"):
            emission = emit(kind, program, equation.params["hero"], AVX2)
            for got, want in zip(
                launched(emission, operands, program, interpreted), run(program, operands), strict=True
            ):
                wide = np.complex128 if got.dtype.kind == "c" else np.float64
                want = np.asarray(want).astype(wide)
                scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
                tolerance = 2e-2 if got.dtype.itemsize == 2 else 1e-5
                np.testing.assert_allclose(got.astype(wide), want, rtol=tolerance, atol=tolerance * scale)


def lane_loops(body: Sequence[Statement]) -> list[Loop]:
    """All loops over lanes in a block."""
    loops = [s for s in body if isinstance(s, Loop)]
    return [inner for s in loops for inner in ([s] if s.kind is LoopKind.LANES else lane_loops(s.body))]


def test_contiguous_dimensions_are_one_loop() -> None:
    (launch,) = emission_of(lambda x: wnp.sum(x * x, (2, 3)), normal(2, 5, 7, 9)).launches
    assert [loop.stop for loop in lane_loops(launch.kernel.body)] == [63]
    (rows,) = launch.kernel.body[-1:]
    assert isinstance(rows, Loop) and rows.stop == 10


def test_lanes_run_over_short_rows() -> None:
    (launch,) = emission_of(lambda x: wnp.sum(x, 1), normal(40, 3)).launches
    (lanes,) = lane_loops(launch.kernel.body)
    assert lanes.stop == 40 and any(isinstance(s, Loop) and s.stop == 3 for s in lanes.body)
