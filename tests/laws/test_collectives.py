"""Laws of collectives: under vmap over their named axes, and further batch dimensions, they match NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.laws.laws import BATCH, assert_close, variants
from tests.laws.samples import CASES, Case, concrete
from weft.ir.primitive import Axis
from weft.ir.staged import infer_type
from weft.sharding import ManualAxisType
from weft.transforms.batch import batch_flat

NAMED = [case for case in CASES if case.environment]
each_sample = pytest.mark.parametrize("case", NAMED, ids=str)


def reduced(combine: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes: np.broadcast_to(combine(x, axis=axes, keepdims=True), x.shape)


def gathered(x: np.ndarray, dim: int, tiled: bool) -> np.ndarray:
    """Return what every element receives, with the axis as dimension 0 of the stack."""
    own = np.concatenate(list(x), dim) if tiled else np.stack(list(x), dim)
    return np.broadcast_to(own, (len(x), *own.shape))


def scattered(x: np.ndarray, dim: int, tiled: bool) -> np.ndarray:
    parts = np.split(x.sum(0, dtype=x.dtype), len(x), dim)
    return np.stack([p if tiled else np.squeeze(p, dim) for p in parts])


def exchanged(x: np.ndarray, split: int, concat: int) -> np.ndarray:
    return np.stack([np.stack([np.take(other, b, split) for other in x], concat) for b in range(len(x))])


def permuted(x: np.ndarray, perm: Any) -> np.ndarray:
    result = np.zeros_like(x)
    for source, destination in perm:
        result[destination] = x[source]
    return result


GATHERS = ("all_gather", "all_gather_invariant", "all_gather_reduced")
ALONG_ONE: dict[str, Callable[..., np.ndarray]] = {
    **dict.fromkeys(GATHERS, lambda x, p: gathered(x, p["all_gather_dimension"], p["tiled"])),
    "pbroadcast": lambda x, p: np.broadcast_to(x[p["source"]], x.shape),
    "reduce_scatter": lambda x, p: scattered(x, p["scatter_dimension"], p["tiled"]),
    "all_to_all": lambda x, p: exchanged(x, p["split_axis"], p["concat_axis"]),
    "ppermute": lambda x, p: permuted(x, p["perm"]),
}
REDUCTIONS = {"psum": np.sum, "pmax": np.max, "pmin": np.min}


def in_groups(x: np.ndarray, groups: Any, one: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply a function within groups of elements, with the axis as dimension 0 of the stack."""
    found = {i: own for group in groups for i, own in zip(group, one(x[list(group)]), strict=True)}
    return np.stack([found[i] for i in range(len(x))])


def expected(case: Case) -> np.ndarray:
    """Return the results of all elements, stacked along the named axes."""
    sizes, names, params = tuple(case.environment.values()), list(case.environment), case.params
    name = case.primitive.name
    groups = params.get("axis_index_groups")
    if groups is not None:  # samples of groups are along one axis
        one = lambda x: reduced(REDUCTIONS[name])(x, 0) if name in REDUCTIONS else ALONG_ONE[name](x, params)
        return in_groups(case.arrays[0], groups, one)
    if name in REDUCTIONS:
        axes = tuple(names.index(n) for n in params["axes"])
        combine = REDUCTIONS[name]
        return reduced(combine)(case.arrays[0], axes).astype(case.arrays[0].dtype)
    position = names.index(params["axis_name"])
    if name == "axis_index":
        return np.indices(sizes)[position].astype(np.int32)
    (x,) = case.arrays
    stack = np.moveaxis(x, position, len(sizes) - 1)
    others = stack.shape[: len(sizes) - 1]
    result = [ALONG_ONE[name](stack[i], params) for i in np.ndindex(*others)]
    return np.moveaxis(np.reshape(result, (*others, *result[0].shape)), len(sizes) - 1, position)


def test_every_collective_has_samples() -> None:
    assert {case.primitive.name for case in NAMED} == {*REDUCTIONS, *ALONG_ONE, "axis_index"}


@each_sample
def test_vmap_matches_numpy(case: Case) -> None:
    (result,) = case.bind(*case.operands)
    assert_close(result, expected(case))
    (compiled,) = weft.jit(case.bind)(*case.operands)
    assert_close(compiled, expected(case))


@pytest.mark.parametrize("case", [case for case in NAMED if case.operands], ids=str)
@pytest.mark.usefixtures("by_meaning")
def test_a_batch_inside_of_the_named_axes_is_a_loop(case: Case) -> None:
    """The other order, vmap over the named axes outside, is among the laws of all samples."""
    leading = len(case.environment)
    rows = [variants(a) for a in case.arrays]
    looped = [case.bind(*(concrete(row[k]) for row in rows)) for k in range(BATCH)]
    for dim in range(min(t.ndim for t in case.types) + 1):
        args = [concrete(np.stack(row, leading + dim)) for row in rows]
        dims: list[int | None] = []

        def inner(*own: Any, dim: int = dim, dims: list[int | None] = dims) -> list[Any]:
            results, found = batch_flat(case.alone, Axis(BATCH), own, [dim] * len(own))
            dims[:] = found
            return results

        results = case.under_axes(inner, *args)
        for result, where, *each in zip(results, dims, *looped, strict=True):
            parts = [result._value] * BATCH if where is None else list(np.moveaxis(result._value, leading + where, 0))
            for part, one in zip(parts, each, strict=True):
                assert_close(part, one, case.tolerance, f"{case} batched at {dim}")


@pytest.mark.parametrize("case", [c for c in NAMED if c.primitive.linear and len(c.environment) == 1], ids=str)
def test_transposes_are_adjoints_along_another_dimension(case: Case) -> None:
    """The law of all samples has the named axis as the first dimension of operands; here it is the second."""
    (x,), (name,) = case.arrays, case.environment
    if x.dtype.kind != "f" or x.ndim < 2:
        return
    x = np.moveaxis(x, 0, 1).astype(np.float32)
    function = weft.vmap(lambda v: case.primitive(v, **case.params), in_axes=1, axis_name=name)
    rng = np.random.default_rng(0)
    tangent = rng.normal(size=x.shape).astype(np.float32)
    for one in (function, weft.jit(function)):
        value, pullback = weft.vjp(one, x)
        cotangent = rng.normal(size=value.shape).astype(np.float32)
        (pulled,) = pullback(cotangent)
        _, pushed = weft.jvp(one, (x,), (tangent,))
        np.testing.assert_allclose(np.vdot(cotangent, pushed), np.vdot(pulled, tangent), rtol=2e-4, atol=1e-4)


@each_sample
def test_states_along_manual_axes(case: Case) -> None:
    """Along a manual axis what is reduced over it is the same for all elements; all else varies."""
    if not case.types:
        return
    varying = ManualAxisType(varying={*case.environment, "other"})
    types = [t.with_placement(manual=varying) for t in case.types]
    over = set(case.primitive.named_axes(case.params))
    rest = ManualAxisType(varying={*case.environment, "other"} - over)
    alike = case.primitive.name in (*REDUCTIONS, "all_gather_invariant") and "axis_index_groups" not in case.params
    expected = rest if alike else varying
    if case.primitive.name == "all_gather_reduced":
        expected = rest.update(reduced=over)
    assert infer_type(case.primitive, types, case.params).manual is expected
