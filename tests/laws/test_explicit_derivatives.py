"""Types that say how arrays are split over Explicit axes make no difference to derivatives: of functions that are
mapped over a dimension that is split, and of functions of arrays that are whole beside others that are split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

MESH = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
X = onp.cos(onp.arange(16, dtype=onp.float32)).reshape(8, 2)
W = onp.float32(0.7)
SQUARE = onp.sin(onp.arange(64, dtype=onp.float32) * 1.7).reshape(8, 8)
Function = Callable[..., Any]


def put(x: onp.ndarray, spec: P) -> Any:
    return weft.device_put(x, NamedSharding(MESH, spec))


def close(found: Any, expected: Any) -> None:
    def check(a: Any, b: Any) -> None:
        onp.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(onp.abs(b).max())))

    weft.tree.map(check, found, expected)


# Functions of a row and of a number that all rows share.
ROWS: dict[str, Function] = {
    "branches of rows": lambda a, w: lax.cond(a[0] > 0, lambda: w * a[1] * 2.0, lambda: w * w),
    "branches for all": lambda a, w: lax.cond(w > 0, lambda q: np.sin(q).sum() * w, lambda q: (q * w).sum(), a),
    "a switch": lambda a, w: lax.switch(
        (a[0] > 0).astype(int) + (a[1] > 0), [lambda q: np.sin(q).sum(), lambda q: (q * w).sum(), lambda q: w], a
    ),
    "a while loop": lambda a, w: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.sin(s[1]) * w), (0, a))[1],
    "loops of rows": lambda a, w: lax.while_loop(lambda s: s.sum() < 3, lambda s: np.abs(s) * 1.5 + w + 0.1, a),
    "a scan": lambda a, w: lax.scan(lambda c, q: (np.sin(c * q), c * w), w, a)[1],
    "stored again": lambda a, w: weft.checkpoint(lambda a: np.sin(np.sin(a) * w))(a),
    "a call": lambda a, w: weft.jit(lambda a: np.sin(np.sin(a) * w))(a),
    "a sort": lambda a, w: np.sort(a) * w,
}


def of_rows(row: Function) -> dict[str, Function]:
    loss = lambda x, w: np.sin(weft.vmap(row, in_axes=(0, None))(x, w)).sum()
    return {
        "first": weft.grad(loss, (0, 1)),
        "second": weft.grad(lambda x, w: weft.grad(loss, 1)(x, w)),
        "forward": lambda x, w: weft.jvp(weft.grad(loss, 1), (x, w), (x, w)),
        "rematerialised": weft.grad(weft.checkpoint(loss), (0, 1)),
        "mapped": lambda x, w: weft.vmap(weft.grad(lambda w: loss(x, w)))(np.stack([w, w * 0.5])),
        "in a loop": weft.grad(lambda x, w: lax.scan(lambda c, _: (c * 0.9, loss(c, w)), x, None, length=2)[1].sum()),
    }


@pytest.mark.parametrize("name", ROWS)
def test_a_mapped_dimension_that_is_split(name: str) -> None:
    for function in of_rows(ROWS[name]).values():
        expected = weft.jit(function)(X, W)
        for spec in (P("x"), P(("x", "y"))):
            close(weft.jit(function)(put(X, spec), W), expected)


# Functions of a whole array, whose result is added to one that is split.
WHOLE: dict[str, Function] = {
    "a sort": lambda w: np.sort(w, 0),
    "running sums": lambda w: np.cumsum(w, 0),
    "a product": lambda w: SQUARE @ w @ w,
    "rows by index": lambda w: w[onp.array([3, 1, 0, 0, 2, 7, 6, 5])],
    "rows that are added": lambda w: w.at[onp.array([1, 1, 2])].add(w[:3]),
    "a transpose": lambda w: w.T,
    "a call": lambda w: weft.jit(lambda w: np.sort(w, 0))(w),
    "a scan": lambda w: lax.scan(lambda c, r: (c + r, np.sin(c)), w[0], w)[1],
    "branches": lambda w: lax.cond(w[0, 0] > 0, np.sin, np.cos, w),
    "a while loop": lambda w: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.sin(s[1])), (0, w))[1],
    "branches of rows": lambda w: weft.vmap(lambda r: lax.cond(r[0] > 0, np.sin, np.cos, r))(w),
    "a softmax": lambda w: weft.nn.softmax(w, 0),
    "a factorization": lambda w: np.linalg.cholesky(w @ w.T + 8 * np.eye(8)),
    "a row for all": lambda w: np.broadcast_to(w[0], (8, 8)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_arrays_beside_split_ones(name: str) -> None:
    """The gradient of what is whole is whole, that of what is split is split alike."""
    loss = lambda w, y: np.sin(WHOLE[name](w) + y).sum()
    second = lambda w, y: (weft.grad(loss)(w, y) ** 2).sum()
    for function in (weft.grad(loss, (0, 1)), weft.grad(second, (0, 1))):
        expected = weft.jit(function)(SQUARE, SQUARE * 0.3)
        for spec in (P("x"), P(None, "y"), P("y", "x")):
            split = put(SQUARE * onp.float32(0.3), spec)
            by_whole, by_split = weft.jit(function)(SQUARE, split)
            close((by_whole, by_split), expected)
            assert by_whole.sharding.is_fully_replicated and by_whole.devices() == split.devices()
            assert by_split.sharding.is_equivalent_to(split.sharding, 2)


# Functions of a matrix that is reduced over x, and of rows that are split over it.
REDUCED: dict[str, Function] = {
    "a product": lambda w, x: ((x @ w) ** 2).sum(),
    "two products": lambda w, x: (x @ w).sum() + np.sin(x @ w).sum(),
    "products and more": lambda w, x: (x @ w).sum() + (w * w).sum(),
    "a part": lambda w, x: ((x @ w[:, :1]) ** 2).sum(),
    "a row": lambda w, x: (x @ np.stack([w, w])[0]).sum(),
    "columns by index": lambda w, x: (x @ w[:, onp.array([0, 1, 1])]).sum(),
    "a transpose": lambda w, x: (x @ w.T).sum(),
    "another shape": lambda w, x: (x @ w.reshape(2, -1)).sum(),
    "another dtype": lambda w, x: (x.astype(np.float16) @ w.astype(np.float16)).astype(np.float32).sum(),
    "a scan": lambda w, x: lax.scan(lambda c, _: (c + ((x @ w) ** 2).sum(), None), 0.0, length=3)[0],
    "layers": lambda w, x: lax.scan(lambda c, w: (np.tanh(c @ w), None), x, np.stack([w, w]))[0].sum(),
    "a loop": lambda w, x: lax.fori_loop(0, 3, lambda i, c: c + ((x @ w) ** 2).sum(), 0.0),
    "a branch": lambda w, x: lax.cond(True, lambda w: (x @ w).sum(), lambda w: 2 * (x @ w).sum(), w),
    "stored again": lambda w, x: weft.checkpoint(lambda w: np.sin(x @ w).sum())(w),
    "mapped": lambda w, x: weft.vmap(lambda r: np.tanh(r @ w))(x).sum(),
    "a gradient": lambda w, x: (weft.reshard(weft.grad(lambda w: ((x @ w) ** 3).sum())(w), P()) ** 2).sum(),
    "no use": lambda w, x: x.sum(),
}


@pytest.mark.parametrize("name", REDUCED)
def test_gradients_of_what_is_reduced_are_unreduced(name: str) -> None:
    gradient = weft.grad(REDUCED[name])
    with weft.set_mesh(MESH):
        w, x = SQUARE[:2, :2], put(X, P("x"))
        expected = gradient(w, X) if name != "a gradient" else weft.jit(gradient)(put(w, P()), put(X, P()))
        for call in (gradient, weft.jit(gradient)):
            found = call(put(w, P(reduced={"x"})), x)
            assert found.sharding.spec.unreduced == {"x"}
            onp.testing.assert_allclose(found, expected, rtol=1e-2 if name == "another dtype" else 1e-4, atol=1e-4)


def test_gradients_are_added_up_unreduced() -> None:
    """In a loop over microbatches, sums between devices are done once, after it."""

    def step(w: Any, xs: Any) -> Any:
        loss = lambda w, x: ((x @ w) ** 2).sum()
        start = weft.reshard(np.zeros_like(w), P(unreduced={"x"}))
        total, _ = lax.scan(lambda c, x: (c + weft.grad(loss)(w, x), None), start, xs)
        return weft.reshard(total, P())

    with weft.set_mesh(MESH):
        w, xs = put(SQUARE[:2, :4], P(reduced={"x"})), put(onp.stack([X, X + 1]), P(None, "x"))
        expected = sum(weft.grad(lambda w, x=x: ((x @ w) ** 2).sum())(SQUARE[:2, :4]) for x in (X, X + 1))
        onp.testing.assert_allclose(weft.jit(step)(w, xs), expected, rtol=1e-4)
        rows = weft.jit(step).lower(w, xs).compile().communication
        assert [(row.kind, row.times) for row in rows] == [("psum", 1)]
