"""Groups over several axes, exchanges of slices of different sizes, and sending with tokens: values and derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft import lax
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.sharding import AxisType, Mesh, PartitionSpec as P

NAMES = ("x", "y")
X = onp.cos(onp.arange(16, dtype=onp.float32)).reshape(8, 2)
REGULAR = [[0, 1, 2, 3], [4, 5, 6, 7]]  # all positions along y, of two along x: no axes of the mesh
FIBRES = [[0, 2, 4, 6], [1, 3, 5, 7]]  # all positions along x
MIXED = [[0, 5], [4, 1], [2, 3], [7, 6]]


@functools.cache
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), NAMES, (AxisType.Auto,) * 2)


def sharded(body: Callable[..., Any], checked: bool = True) -> Callable[..., Any]:
    spec = P(NAMES)
    return weft.jit(weft.shard_map(body, mesh=mesh(), in_specs=spec, out_specs=spec, check_vma=checked))


@pytest.mark.parametrize("groups", [REGULAR, FIBRES, MIXED], ids=["regular", "fibres", "mixed"])
def test_groups_over_several_axes(groups: list[list[int]]) -> None:
    count = len(groups[0])
    weights = onp.arange(1, count + 1, dtype=onp.float32)[:, None]
    rows = lambda v: np.tile(v, (count, 1)) * weights
    options: Any = {"axis_index_groups": groups}
    cases: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (lambda v: lax.psum(v, NAMES, **options), lambda own, i: own.sum(0)),
        (lambda v: lax.pmean(v, NAMES, **options), lambda own, i: own.mean(0)),
        (lambda v: lax.pmin(v, NAMES, **options), lambda own, i: own.min(0)),
        (lambda v: lax.all_gather(v[0], NAMES, **options)[None], lambda own, i: own),
        (lambda v: lax.psum_scatter(rows(v), NAMES, tiled=True, **options), lambda own, i: own.sum(0) * (i + 1)),
        (lambda v: lax.all_to_all(rows(v), NAMES, 0, 0, tiled=True, **options)[None], lambda own, i: own * (i + 1)),
    ]
    for body, wanted in cases:
        expected: dict[int, Any] = {}
        for group in groups:
            expected.update((p, wanted(X[group], i)) for i, p in enumerate(group))
        for checked in (True, False):
            found = onp.asarray(sharded(body, checked)(X)).reshape(8, -1)
            onp.testing.assert_allclose(found, [expected[p].reshape(-1) for p in range(8)], rtol=1e-5)


def exchanged(operand: Any, output: Any, tables: Any) -> Any:
    return lax.ragged_all_to_all(operand, output, *tables, axis_name="i")


def ragged_case() -> tuple[Any, Any, Any]:
    """Return three elements with five rows each, with the counts and offsets that each sends to the others."""
    sizes = onp.array([[2, 0, 3], [1, 4, 0], [2, 2, 1]], onp.int32)  # from, to
    begins = onp.cumsum(sizes, 1, dtype=onp.int32) - sizes
    goals = onp.cumsum(sizes, 0, dtype=onp.int32) - sizes
    operand = onp.sin(onp.arange(30, dtype=onp.float32)).reshape(3, 5, 2)
    output = onp.full((3, 7, 2), 9.0, onp.float32)
    return operand, output, (begins, sizes, goals, sizes.T.copy())


def ragged_expected(operand: Any, output: Any, tables: Any) -> Any:
    begins, sizes, goals, _ = tables
    result = onp.array(output)
    for source in range(3):
        for goal in range(3):
            n, b, g = sizes[source, goal], begins[source, goal], goals[source, goal]
            result[goal, g : g + n] = operand[source, b : b + n]
    return result


def test_ragged_exchanges_and_their_derivatives() -> None:
    operand, output, tables = ragged_case()
    function = weft.vmap(exchanged, axis_name="i")
    expected = ragged_expected(operand, output, tables)
    onp.testing.assert_array_equal(function(operand, output, tables), expected)
    onp.testing.assert_array_equal(weft.jit(function)(operand, output, tables), expected)
    alone = lambda a, b: function(a, b, tables)
    # It is linear in both: the tangent goes the same way, and the transpose is the adjoint.
    pushed = weft.jvp(alone, (operand, output), (operand * 2, output * 3))[1]
    onp.testing.assert_allclose(pushed, ragged_expected(operand * 2, output * 3, tables))
    cotangent = onp.cos(onp.arange(42, dtype=onp.float32)).reshape(3, 7, 2)
    to_operand, to_output = weft.vjp(alone, operand, output)[1](cotangent)
    onp.testing.assert_allclose(
        onp.vdot(cotangent, alone(operand, output)),
        onp.vdot(to_operand, operand) + onp.vdot(to_output, output),
        rtol=1e-5,
    )


def test_ragged_exchanges_under_vmap() -> None:
    operand, output, tables = ragged_case()
    several = onp.stack([operand, operand * 2], 2)  # (axis, rows, batch, columns)
    inner = weft.vmap(exchanged, in_axes=(1, None, None), out_axes=1)
    found = weft.vmap(inner, axis_name="i")(several, output, tables)
    onp.testing.assert_array_equal(found[:, :, 0], ragged_expected(operand, output, tables))
    onp.testing.assert_array_equal(found[:, :, 1], ragged_expected(operand * 2, output, tables))
    # Each of a batch has sizes of its own.
    none = tuple(onp.zeros_like(t) for t in tables)
    own = weft.vmap(weft.vmap(exchanged, in_axes=(None, None, 0)), axis_name="i")
    found = own(operand, output, tuple(onp.stack([t, z], 1) for t, z in zip(tables, none, strict=True)))
    onp.testing.assert_array_equal(found[:, 0], ragged_expected(operand, output, tables))
    onp.testing.assert_array_equal(found[:, 1], output)


def test_sending_and_receiving() -> None:
    ring = [(i, (i + 1) % 4) for i in range(4)]

    def body(v: Any) -> Any:
        token = lax.psend({"v": v, "w": v[:, :1]}, "x", ring)
        token = weft.jit(lambda t: t)(token)  # a token is a tree
        shapes = {"v": weft.ShapeDtypeStruct(v.shape, v.dtype), "w": weft.ShapeDtypeStruct((2, 1), v.dtype)}
        return lax.precv(token, shapes, "x", ring)["v"] * 2

    function = weft.shard_map(body, mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
    onp.testing.assert_allclose(weft.jit(function)(X), onp.roll(X, 2, 0) * 2)
    gradient = weft.grad(lambda x: (function(x) * X).sum())(X)
    onp.testing.assert_allclose(gradient, onp.roll(X, -2, 0) * 2)

    def wrong(v: Any) -> Any:
        return lax.precv(lax.psend(v, "x", ring), weft.ShapeDtypeStruct(v.shape, v.dtype), "x", ring[:2])

    with pytest.raises(ArgumentError, match=r"must be those of lax\.psend"):
        weft.shard_map(wrong, mesh=mesh(), in_specs=P("x"), out_specs=P("x"))(X)
    with pytest.raises(ArgumentTypeError, match="needs the token"):
        lax.precv(3, X, "x", ring)  # type: ignore[arg-type]
