"""Mistakes in programs for many devices: errors say what is wrong, on which line of the user, and what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

X = onp.ones((8, 8), onp.float32)
AUTO, X_ROWS = AxisType.Auto, P("x")


def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("x", "y"), (AUTO,) * 2)


def mapped(body: Callable[..., Any], i: Any = X_ROWS, o: Any = X_ROWS, **options: Any) -> Any:
    return weft.shard_map(body, mesh=mesh(), in_specs=i, out_specs=o, **options)


def put(*spec: Any) -> Any:
    return weft.device_put(X, NamedSharding(mesh(), P(*spec)))


def elsewhere() -> Any:
    few = weft.make_mesh((4,), ("z",), (AUTO,), devices=weft.devices()[:4])
    return weft.device_put(X, NamedSharding(few, P("z")))


ROWS: list[tuple[Callable[[], Any], str]] = [
    (lambda: mapped(lambda a: lax.psum(a, "q"))(X), "no axis named 'q' here; in scope: 'x', 'y'"),
    (lambda: mapped(lambda a: a.sum(), o=P())(X), "the same on all devices along 'x', but it varies"),
    (lambda: mapped(lambda a, b: a, i=(P("x"),))(X, X), "one entry for each positional argument, got 1 for 2"),
    (lambda: mapped(lambda a: a, i=P("x", None, "y"))(X), "3 entries for an operand of rank 2"),
    (lambda: mapped(lambda a: a)(onp.ones((6, 2), onp.float32)), "pad dimension 0 to 8"),
    (lambda: mapped(lambda a: lax.psum_scatter(a, "x", tiled=True))(X), "pad it to 4"),
    (lambda: mapped(lambda a: lax.all_to_all(a, "x", 1, 0))(X), "tiled=True splits"),
    (lambda: mapped(lambda a: lax.ppermute(a, "x", [(0, 1), (2, 1)]))(X), "every destination must appear once"),
    (lambda: mapped(lambda a: lax.psum(a, "x", axis_index_groups=[[0, 1]]), check_vma=False)(X), "every position"),
    (
        lambda: mapped(lambda a: lax.cond(a[0, 0] > 0, lambda b: lax.psum(b, "x"), lambda b: b, a))(X),
        "predicate varies",
    ),
    (lambda: mapped(lambda a: lax.with_sharding_constraint(a, P("x")))(X), "each device has its own part along it"),
    (
        lambda: weft.jit(lambda a: a, in_shardings=NamedSharding(mesh(), P("x")))(put("y")),
        "must have the sharding in in_shardings",
    ),
    (lambda: weft.jit(lambda a: a, out_shardings=[NamedSharding(mesh(), P())] * 2)(X), "must be a prefix"),
    (
        lambda: weft.jit(lambda a: lax.with_sharding_constraint(a, P("x")))(X),
        r"weft.NamedSharding\(mesh, spec\)   with",
    ),
    (lambda: weft.jit(lambda a: np.sort(a, 0), comm={"all_gather": 0})(put("x")), "rows are sorted on one device"),
    (lambda: put("x") + weft.device_put(X, weft.devices()[2]), "is committed to a single device"),
    (lambda: put("x") + elsewhere(), "different meshes"),
    (lambda: weft.device_put(X, "gpu"), "must be a device or a sharding"),
    (lambda: weft.make_mesh((16,), ("x",)), "need 16 devices"),
    (lambda: Mesh(onp.array(weft.devices()).reshape(4, 2), ("x",)), "a name for each dimension"),
    (lambda: NamedSharding(mesh(), P("x", "x")), "duplicate entries for `x`"),
    (lambda: NamedSharding(mesh(), P("q")), "axis: q of .* is not found in mesh, whose axes are 'x', 'y'"),
    (lambda: weft.pmap(lambda a, b: a)(onp.ones(4), onp.ones(3)), "different sizes"),
    (lambda: weft.pmap(lambda a: a)(onp.ones(9)), "over 9 elements needs 9 devices"),
    (lambda: weft.pmap(lambda a: lax.psum(a, "k"), axis_name="i")(onp.ones(8)), "in scope: 'i'"),
    (lambda: weft.pmap(lambda a: a)(1.0), "no axis 0 to map over"),
]


@pytest.mark.parametrize(("mistake", "text"), ROWS, ids=[text for _, text in ROWS])
def test_mistake(mistake: Callable[[], Any], text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text) as caught:
        mistake()
    told = str(caught.value)
    assert "test_mesh_mistakes.py" in told, told
    assert "\n  fix " in told, told
