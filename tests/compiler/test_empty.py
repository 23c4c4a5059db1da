"""Arrays without elements: windows that meet padding only, sums of nothing, lookups in nothing, of every dtype.

Each program is compiled, and run step by step with all accesses to memory checked; both give what it means.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.memory import checked
from tests.compiler.running import assert_same
from weft import lax
from weft.base import dtypes
from weft.ir.interpreter import run
from weft.runtime.execute import get_executable

DTYPES = ("float32", "bfloat16", "float16", "float64", "int8", "int32", "bool", "complex64", "float8_e4m3fn")


def check(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """A function that returns a list: evaluated, compiled, and interpreted step by step."""
    jaxpr = weft.make_jaxpr(function)(*arrays)
    flat = [np.asarray(a) for a in weft.tree.leaves(arrays)]
    with np.errstate(all="ignore"):
        wanted = [np.asarray(w) for w in run(jaxpr, flat)]
    stepped = checked(jaxpr, flat)
    compiled = get_executable(jaxpr)(flat)
    for i, (want, got, one) in enumerate(zip(wanted, compiled, stepped, strict=True)):
        assert_same(np.asarray(got), want, f"result {i}, compiled")
        assert_same(one.view(want.dtype).reshape(want.shape), want, f"result {i}, step by step")
    return wanted


def ones(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.ones(shape, dtypes.as_dtype(dtype))


CONVOLUTIONS: list[dict[str, Any]] = [
    {"window_strides": (1,), "padding": [(2, 2)]},
    {"window_strides": (2,), "padding": [(3, 1)], "rhs_dilation": (2,)},
    {"window_strides": (1,), "padding": [(4, 3)], "lhs_dilation": (2,)},
    {"window_strides": (2,), "padding": [(4, 3)], "lhs_dilation": (3,)},
    {"window_strides": (1,), "padding": [(0, 0)]},
]


SHAPES = [((1, 2, 0), (3, 2, 1)), ((1, 2, 0), (3, 2, 2)), ((0, 2, 4), (3, 2, 2)), ((2, 0, 4), (3, 0, 2)),
          ((2, 2, 4), (0, 2, 2)), ((20, 9, 0), (40, 9, 1)), ((0, 0, 0), (0, 0, 1))]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_convolutions(dtype: str) -> None:
    """Along every dimension: batch, features, places of the operand."""

    def convolve(lefts: Any, rights: Any) -> Any:
        pairs = itertools.product(zip(lefts, rights, strict=True), CONVOLUTIONS)
        return [lax.conv_general_dilated(a, b, **params) for (a, b), params in pairs]

    with weft.enable_x64(dtype == "float64"):
        out = check(convolve, *([ones(shape, dtype) for shape in side] for side in zip(*SHAPES, strict=True)))
    for result in out:
        assert result.dtype == dtypes.as_dtype(dtype)
        assert not np.any(result), "a sum of nothing is zero"


def test_padding_times_infinity() -> None:
    """Padding is zeros that are multiplied: an infinity in the window results in nan."""

    def convolve(a: Any, b: Any) -> Any:
        return [lax.conv_general_dilated(a, b, (1,), [(2, 2)])]

    (result,) = check(convolve, ones((1, 2, 0), "float32"), np.full((3, 2, 1), np.inf, np.float32))
    assert np.isnan(result).all()


def test_convolutions_of_two_dimensions_and_groups() -> None:
    def convolve(a: Any, b: Any, c: Any, d: Any) -> Any:
        return [
            lax.conv_general_dilated(a, b, (1, 1), [(1, 1), (2, 1)]),
            lax.conv_general_dilated(c, d, (1, 2), [(1, 1), (2, 1)], feature_group_count=2),
            lax.conv_general_dilated(c, d, (1, 2), [(1, 1), (2, 1)], feature_group_count=2, lhs_dilation=(2, 2)),
            lax.conv_general_dilated(c[:, :2], d, (1, 2), [(1, 1), (2, 1)], batch_group_count=2),
        ]

    for size in ((0, 5), (5, 0), (0, 0)):
        shapes = ((2, 3, *size), (4, 3, 2, 2), (2, 4, *size), (6, 2, 2, 3))
        check(convolve, *(ones(shape, "float32") for shape in shapes))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_contractions(dtype: str) -> None:
    shapes = [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0,), (0,)), ((70, 0), (0, 90)), ((0, 0), (0, 0))]

    def contract(lefts: Any, rights: Any) -> Any:
        result = [wnp.matmul(a, b) for a, b in zip(lefts, rights, strict=True)]
        result += [wnp.einsum("bij,bjk->bik", wnp.stack([a] * n), wnp.stack([b] * n))
                 for n in (1, 3) for a, b in zip(lefts, rights, strict=True) if a.ndim == 2]  # fmt: skip
        return result + [m + 1 for m in result]

    check(contract, *([ones(shape, dtype) for shape in side] for side in zip(*shapes, strict=True)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_windows(dtype: str) -> None:
    def windows(arrays: Any) -> Any:
        result = []
        for x in arrays:
            rest = (1,) * (x.ndim - 1)
            for size, stride, pads, apart in (
                (2, 1, (2, 2), 1),
                (3, 2, (3, 1), 1),
                (2, 1, (4, 3), 2),
                (1, 1, (0, 0), 1),
            ):
                for reduce, initial in ((lax.add, 0), (lax.max, -5), (lax.min, 5)):
                    result.append(
                        lax.reduce_window(
                            x, np.asarray(initial, x.dtype), reduce, (size, *rest), (stride, *rest),
                            [pads, *((0, 0) for _ in rest)], (apart, *rest),
                        )
                    )  # fmt: skip
        return result

    check(windows, [ones(shape, dtype) for shape in ((0,), (0, 3), (4, 0), (0, 0), (0, 40))])


def test_selections_in_windows() -> None:
    """The gradient of a pooling, and that of its gradient."""

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, np.float32(-np.inf), lax.max, (2, 2), (1, 2), [(0, 1), (1, 0)]).sum()

    def gradients(arrays: Any) -> Any:
        result = [weft.grad(pooled)(x) for x in arrays]
        return result + [weft.jvp(weft.grad(pooled), (x,), (x,))[1] for x in arrays]

    check(gradients, [ones(shape, "float32") for shape in ((0, 3), (4, 0), (0, 0))])


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gathers(mode: str) -> None:
    def lookups(arrays: Any, where: Any) -> Any:
        result = []
        for x in arrays:
            for axis in range(x.ndim):
                if x.shape[axis]:  # of nothing, only nothing can be taken
                    result += [wnp.take(x, i, axis, mode=mode) for i in where]
                elif mode == "fill":
                    result += [x.at[(slice(None),) * axis + (i,)].get(mode=mode) for i in where]
                result.append(wnp.take(x, where[0], axis, mode=mode))
                result += [x.at[(slice(None),) * axis + (i,)].add(1, mode=mode if mode == "clip" else "drop")
                         for i in where]  # fmt: skip
                result.append(x.at[(slice(None),) * axis + (where[0],)].set(2))
        return result

    arrays = [ones(shape, "float32") for shape in ((0,), (0, 3), (4, 0), (0, 0), (3,))]
    check(lookups, arrays, [np.zeros(0, np.int32), np.array([0, 1, -1], np.int32), np.zeros((2, 0), np.int32)])


def test_along_axes() -> None:
    """Reductions, running sums, sorts and data movement."""

    def along(arrays: Any) -> Any:
        result = []
        for x in arrays:
            result += [wnp.pad(x, 2, constant_values=3), wnp.pad(x, 1).sum(), wnp.flip(x), wnp.concatenate([x, x])]
            for axis in range(x.ndim):
                result += [x.sum(axis), x.prod(axis), wnp.cumsum(x, axis), wnp.sort(x, axis), wnp.argsort(x, axis)]
                result += [wnp.pad(x, 1).sum(axis), wnp.pad(x, 1).max(axis), wnp.cumsum(wnp.pad(x, 1), axis)]
                result += [wnp.argmax(wnp.pad(x, 1), axis), wnp.moveaxis(x, axis, 0) * 2]
                result += [wnp.any(x > 0, axis), wnp.logical_and.reduce(x > 0, axis), wnp.repeat(x, 2, axis)]
                result += [lax.dynamic_slice_in_dim(x, np.int32(1), min(1, x.shape[axis]), axis)]
                result += [lax.dynamic_update_slice_in_dim(x, x, np.int32(1), axis)]
        return result

    check(along, [ones(shape, "float32") for shape in ((0,), (0, 3), (4, 0), (2, 0, 3), (0, 0), (0, 200))])


def test_matrices() -> None:
    def factors(arrays: Any) -> Any:
        result = []
        for x in arrays:
            result += [wnp.linalg.cholesky(x), wnp.linalg.det(x), wnp.linalg.inv(x), *wnp.linalg.qr(x)]
            result += [wnp.linalg.solve(x, x), lax.linalg.triangular_solve(x, x, lower=True), wnp.linalg.eigvalsh(x)]
        return result

    check(factors, [ones(shape, "float32") for shape in ((0, 0), (0, 3, 3), (2, 0, 0))])


def test_nothing_is_loaded_before_a_loop_without_iterations() -> None:
    """The index of a reshaped array without elements is constant, so its load moved out of the loop: past the end."""

    def function(x: Any) -> list[Any]:
        part = lax.integer_pow(lax.slice(x, (2,), (2,)), 4)
        return [lax.reduce_min(part, (0,)), lax.reshape(lax.floor(part), (1, 0))]

    check(function, ones((2,), "float32"))
