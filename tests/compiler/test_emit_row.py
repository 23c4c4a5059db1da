"""Folds by rows, by columns and of everything: kernels give what the reductions mean, for every dtype and shape."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.compiler.running import interpreted
from weft import lax
from weft.compiler.emit.dispatch import emit
from weft.compiler.emit.emission import Emission
from weft.compiler.fuse.fusion import fusions
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
}


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
FOLDS: dict[str, Callable[..., Any]] = {
    "sum": wnp.sum,
    "prod": wnp.prod,
    "max": lambda x, axis: lax.reduce_max(x, axis),
    "min": lambda x, axis: lax.reduce_min(x, axis),
    "and": lambda x, axis: lax.reduce_and((x * 8).astype(np.int32), axis),
    "or": lambda x, axis: lax.reduce_or(x > 1, axis),
    "xor": lambda x, axis: lax.reduce_xor((x * 8).astype(np.int8), axis),
}


@pytest.mark.parametrize("shape, axes", SHAPES)
@pytest.mark.parametrize("name", FOLDS)
def test_folds(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = normal(*shape)
    check(lambda x: FOLDS[name](x * 1.5, axis=axes) * 2, x, compare=close(1e-5), machines=["host"])


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
    return emit(fusion.params["kind"], fusion.params["jaxpr"], fusion.params["hero"], 64)


@pytest.mark.parametrize("shape, axes", [((300, 1001), (0, 1)), ((3, 100_003), (1,)), ((100_003, 3), (0,)), ((4003, 67), (0,)), ((515, 700), (0,)), ((3, 200, 2500), (1,)), ((70_000, 8), (0,))])  # fmt: skip
def test_long_folds_are_shared_out(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = normal(*shape)

    def function(x: Any) -> Any:
        return wnp.sum(x * x, axes) * 2, wnp.max(x, axes), x + 1

    check(function, x, compare=close(5e-5), interpret=False)
    for launch in emission_of(lambda x: wnp.sum(x * x, axes), x).launches[:1]:
        assert launch.kernel.parallel is not None and launch.kernel.parallel.count >= 7


def test_nan_and_infinity_are_kept() -> None:
    x = normal(4, 70)
    x[1, 3], x[2, 5], x[3, 69] = np.nan, np.inf, -np.inf
    check(lambda x: (wnp.max(x, 1), wnp.min(x, 1), wnp.sum(x, 1)), x, compare=close(1e-6))
    check(lambda x: wnp.max(x, 0), x)


def test_the_sign_of_a_zero_is_kept() -> None:
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
def test_folds_of_whole_programs(name: str) -> None:
    function, args = PROGRAMS[name]
    check_kinds(function, *args)


@pytest.mark.parametrize("seed", range(12))
def test_folds_of_random_programs(seed: int) -> None:
    function, args = random_program(np.random.default_rng(seed), 14)
    check_kinds(function, *args)


def check_kinds(function: Callable[..., Any], *args: Any) -> None:
    """Every fold of a program, interpreted, gives what its fusion means."""
    for equation, operands in fusions_with_operands(function, *args):
        program, kind = equation.params["jaxpr"], equation.params["kind"]
        if kind in ("row", "column", "all", "argmax", "cumulative"):
            emission = emit(kind, program, equation.params["hero"], 32)
            for got, want in zip(
                launched(emission, operands, program, interpreted), run(program, operands), strict=True
            ):
                wide = np.complex128 if got.dtype.kind == "c" else np.float64
                want = np.asarray(want).astype(wide)
                scale = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
                tolerance = 2e-2 if got.dtype.itemsize == 2 else 1e-5
                np.testing.assert_allclose(got.astype(wide), want, rtol=tolerance, atol=tolerance * scale)
