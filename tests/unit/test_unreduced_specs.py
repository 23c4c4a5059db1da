"""`shard_map` with specs that are unreduced and reduced: types, values, derivatives, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError
from weft.sharding import AxisType, PartitionSpec as P

R, U = P(reduced={"x"}), P(unreduced={"x"})
A = onp.arange(8, dtype=onp.float32).reshape(4, 2)
B = onp.arange(8, dtype=onp.float32).reshape(2, 4) / 4
W = onp.arange(4, dtype=onp.float32)


@pytest.fixture(autouse=True)
def mesh() -> Iterator[Any]:
    mesh = weft.make_mesh((2,), ("x",), (AxisType.Explicit,))
    with weft.set_mesh(mesh):
        yield mesh


def terms(a: Any, b: Any) -> Any:
    """Return a product whose sum is still to be done."""
    return np.dot(a, b, out_sharding=P(None, None, unreduced={"x"}))


def operands() -> tuple[Any, Any]:
    return weft.device_put(A, P(None, "x")), weft.device_put(B, P("x", None))


def text(x: Any) -> str:
    return weft.typeof(x).short()


@pytest.mark.parametrize("run", [weft.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize(
    "body, out",
    [
        (lambda u: lax.psum(u, "x"), P()),
        (lambda u: lax.psum_scatter(u, "x", tiled=True), P("x")),
        (lambda u: u + u, U),
        (lambda u: lax.psum(u + u, "x") / 2, P()),
    ],
    ids=["psum", "scatter", "terms", "sum of terms"],
)
def test_unreduced_arguments(run: Any, body: Any, out: P) -> None:
    scale = 2 if out == U else 1
    f = run(lambda a, b: weft.reshard(weft.shard_map(body, in_specs=U, out_specs=out)(terms(a, b)), P()))
    a, b = operands()
    with weft.enable_checks(True):
        onp.testing.assert_allclose(f(a, b), scale * A @ B, rtol=1e-6)
    loss = lambda a, b: np.sin(f(a, b)).sum()
    expected = weft.grad(lambda a, b: np.sin(scale * a @ b).sum(), (0, 1))(A, B)
    for found, whole in zip(weft.grad(loss, (0, 1))(a, b), expected, strict=True):
        onp.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-5)


def test_terms_are_not_summed_between_bodies() -> None:
    double = weft.shard_map(lambda u: u + u, in_specs=U, out_specs=U)
    f = weft.jit(lambda a, b: weft.reshard(double(double(terms(a, b))), P("x")))
    compiled = f.lower(*operands()).compile()
    assert [c.kind for c in compiled.communication] == ["reduce_scatter"]
    onp.testing.assert_allclose(f(*operands()), 4 * A @ B, rtol=1e-6)


def test_varying_results_are_terms() -> None:
    x = weft.device_put(A, P("x"))
    for body in (lambda x: x, lambda x: lax.pcast(x, "x", to="unreduced")):
        y = weft.shard_map(body, in_specs=P("x"), out_specs=U)(x)
        assert text(y) == "f32[2,2]{U:x}"
        onp.testing.assert_array_equal(weft.reshard(y, P()), A[:2] + A[2:])


def test_reduced_arguments_have_unreduced_cotangents() -> None:
    w, x = weft.device_put(W, R), weft.device_put(B, P("x"))
    f = weft.shard_map(lambda x, w: x * w, in_specs=(P("x"), R), out_specs=P("x"))
    onp.testing.assert_array_equal(f(x, w), B * W)
    g = weft.jit(weft.grad(lambda w: f(x, w).sum()))
    assert text(g(w)) == "f32[4]{U:x}" and not g.lower(w).compile().communication
    onp.testing.assert_array_equal(weft.reshard(g(w), P()), B.sum(0))
    both = weft.vmap(f, (None, 0))(x, weft.device_put(np.stack([W, 2 * W]), P(None, None, reduced={"x"})))
    onp.testing.assert_array_equal(both, [B * W, 2 * B * W])


def test_operations_keep_reduced() -> None:
    w = weft.device_put(W, R)
    square = weft.shard_map(lambda w: w * w, in_specs=R, out_specs=R)
    functions = [square, lambda w: w * 2, lambda w: np.where(w > 1, w, -w), lambda w: w[None].sum(0), np.sin]
    for f in functions:
        for y in (f(w), weft.jit(f)(w)):
            assert text(y) == "f32[4]{R:x}"
    onp.testing.assert_array_equal(weft.reshard(weft.grad(lambda w: square(w).sum())(w), P()), 2 * W)


def test_errors(mesh: Any) -> None:
    w, same = weft.device_put(W, R), lambda w: w
    wrong = [
        (dict(in_specs=P(), out_specs=P()), w, "must be reduced as in_specs say"),
        (dict(in_specs=R, out_specs=R), W, "must be reduced as in_specs say"),
        (dict(in_specs=U, out_specs=U), W, "must be unreduced as in_specs say"),
        (dict(in_specs=P(), out_specs=U), W, "must be unreduced along 'x', as out_specs say"),
        (dict(in_specs=P("x"), out_specs=R), weft.device_put(W, P("x")), "must be reduced along 'x'"),
        (dict(in_specs=R, out_specs=R, check_vma=False), w, "only over Explicit axes, with check_vma"),
        (dict(in_specs=R, out_specs=R, mesh=mesh.update(axis_types=(AxisType.Auto,))), W, "only over Explicit axes"),
    ]
    for options, x, what in wrong:
        with pytest.raises(ArgumentError, match=what):
            weft.jit(weft.shard_map(same, **options))(x)


def test_types_say_their_state_along_manual_axes() -> None:
    seen = []

    def body(x: Any, w: Any) -> Any:
        y = lax.pcast(x, "x", to="unreduced")
        seen.extend(weft.typeof(v).manual_axis_type for v in (x, w, y, lax.psum(x, "x")))
        return x * w

    weft.shard_map(body, in_specs=(P("x"), R), out_specs=P("x"))(weft.device_put(A, P("x")), weft.device_put(W[:2], R))
    states = [(s.varying, s.reduced, s.unreduced) for s in seen]
    along, nowhere = frozenset({"x"}), frozenset()
    assert states == [
        (along, nowhere, nowhere),
        (nowhere, along, nowhere),
        (nowhere, nowhere, along),
        (nowhere, nowhere, nowhere),
    ]
    assert weft.typeof(weft.device_put(A, P("x"))).manual_axis_type == weft.typeof(A).manual_axis_type
