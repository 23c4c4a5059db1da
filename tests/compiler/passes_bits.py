"""Shared by the tests of passes: the passes by name, edge values, and bitwise comparison of jaxprs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.compiler.host import hoist
from weft.base import dtypes
from weft.compiler.passes.accumulate import accumulate
from weft.compiler.passes.canonicalize import canonicalize
from weft.compiler.passes.decompose import decompose
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.fold_constants import fold_constants
from weft.compiler.passes.inline import inline
from weft.compiler.passes.merge_equal import merge_equal
from weft.compiler.passes.simplify import simplify
from weft.ir import interpreter
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.types import ArrayType

PASSES: dict[str, Callable[[Jaxpr], Jaxpr]] = {
    p.__name__: p
    for p in (
        inline,
        decompose,
        canonicalize,
        fold_constants,
        simplify,
        merge_equal,
        accumulate,
        hoist,
        drop_dead,
    )
}


def run_contiguous(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """One equation on contiguous arrays: in which order NumPy sums depends on strides, which programs do not have."""
    args = [np.ascontiguousarray(a).reshape(a.shape) if isinstance(a, np.ndarray) else a for a in operands]
    results = equation.primitive.eval(*args, **equation.params)
    return results if equation.primitive.multiple_results else (results,)


def results_of(jaxpr: Jaxpr, arrays: Sequence[Any], monkeypatch: Any) -> list[Any]:
    """The interpreter's results, including sub-jaxprs, independent of memory layout."""
    with monkeypatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(interpreter, "run_equation", run_contiguous)
        return interpreter.run(jaxpr, arrays)


def assert_same_bits(after: Sequence[Any], before: Sequence[Any], what: str) -> None:
    assert len(after) == len(before)
    for i, (a, b) in enumerate(zip(after, before, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{what}: result {i}"
        same = np.frombuffer(a.tobytes(), np.uint8) == np.frombuffer(b.tobytes(), np.uint8)
        assert same.all(), f"{what}: result {i} is\n{a}\nand was\n{b}"


def edges(dtype: Any) -> np.ndarray:
    """The numbers of a dtype where algebra breaks."""
    kind = dtypes.kind(dtype)
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        limits = dtypes.iinfo(dtype)
        return np.array([0, 1, 2, 3, limits.min, limits.max, limits.max - 1, limits.min + 1], object).astype(dtype)
    if kind == "c":
        parts = edges(dtypes.to_real_dtype(dtype))
        return (parts[:, None] + np.zeros((), dtype)).astype(dtype).ravel() + edges_imaginary(parts, dtype)
    limits = ml_dtypes.finfo(dtype)
    some = [0.0, -0.0, 1.0, -1.0, 1.5, -2.75, 3.0, np.inf, -np.inf, np.nan, -np.nan]
    extremes = [limits.max, limits.min, limits.tiny, limits.smallest_subnormal, -limits.smallest_subnormal]
    return np.array([*some, *map(float, extremes)]).astype(dtype)


def edges_imaginary(parts: np.ndarray, dtype: Any) -> np.ndarray:
    result = np.zeros(parts.shape, dtype)
    result.imag = parts[::-1]
    return result


def edge_array(aval: ArrayType, rng: np.random.Generator) -> np.ndarray:
    """An array of a type, full of numbers at the edges and some ordinary ones. Scalars are not nan: which of two nans
    comes out of a sum is not the same in NumPy for arrays and for scalars."""
    shape: Any = aval.shape
    pool = edges(aval.dtype)
    if not shape:
        pool = pool[pool == pool]
    kind = dtypes.kind(aval.dtype)
    if kind in "fc":
        pool = np.concatenate([pool, (rng.standard_normal(8) * 3).astype(aval.dtype)])
    size = int(np.prod(shape))
    chosen = np.concatenate([rng.permutation(pool), rng.choice(pool, size)])[:size]
    return np.array(chosen.reshape(shape), order="C")
