"""Explicit axes of meshes: types say how results are split, under transformations too, and errors say what to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError, ShardingTypeError
from weft.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    reshard,
)

RANDOM = onp.random.RandomState(2)
X, W, V = (RANDOM.randn(*shape).astype(onp.float32) * 0.3 for shape in ((8, 16), (16, 32), (32, 16)))


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    found = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
    with weft.set_mesh(found):
        yield found


def put(x: Any, *entries: Any) -> Any:
    return weft.device_put(x, P(*entries))


def test_gradients_are_split_as_their_values(mesh: Mesh) -> None:
    """Contractions over what is split are summed: the type of the value says how its cotangent is split."""

    def loss(weights: Any, x: Any, spec: Any) -> Any:
        def body(h: Any, _: Any) -> Any:
            return np.tanh(np.matmul(np.tanh(h @ weights[0]), weights[1], out_sharding=spec)), None

        return (lax.scan(body, x, None, length=2)[0] ** 2).mean()

    expected = weft.value_and_grad(loss)((W, V), X, None)
    weights, x = (put(W, None, "y"), put(V, "y")), put(X, "x")
    for way in (weft.jit, lambda f, **_: f, lambda f, **options: weft.jit(weft.remat(f, static_argnums=2), **options)):
        value, found = way(weft.value_and_grad(loss), static_argnums=2)(weights, x, P("x"))
        onp.testing.assert_allclose(value, expected[0], rtol=1e-5)
        for ct, w, e in zip(found, weights, expected[1], strict=True):
            assert ct.aval.sharding == w.aval.sharding
            onp.testing.assert_allclose(ct, e, rtol=1e-4, atol=1e-6)
    (tangent, _) = weft.jvp(weft.grad(lambda w: loss(w, x, P("x"))), (weights,), (weights,))[1]
    assert tangent.sharding.spec == P(None, "y")


def test_mapping_over_a_dimension_that_is_split(mesh: Mesh) -> None:
    x, w = put(X, "x"), put(W, None, "y")
    for f in (
        lambda r: weft.jit(lambda q: np.sin(q) * 2)(r),
        lambda r: lax.scan(lambda c, v: (c * v + 1, c), r[0], r)[1],
        lambda r: lax.cond(r.sum() > 0, np.sin, np.cos, r),
        lambda r: weft.grad(lambda q: np.tanh(q @ w).sum())(r),
    ):
        result = weft.jit(weft.vmap(f))(x)
        assert result.sharding.spec == P("x", None)
        onp.testing.assert_allclose(result, weft.vmap(f)(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShardingTypeError, match=r"(?s)mapped dimensions.*a over 'x', b over 'y'.*reshard\(b"):
        weft.vmap(lambda a, b: a + b)(x, put(X, "y"))


def test_operations_that_are_told_how_results_are_split(mesh: Mesh) -> None:
    x = put(X, None, "y")
    for text, f in {
        "f32[128@x]": lambda x: x.reshape(128, out_sharding=P("x")),
        "f32[128]": lambda x: x.flatten(out_sharding=P()),
        "f32[3,16@x]": lambda x: x.at[np.array([1, 0, 7])].get(out_sharding=P(None, "x")),
        "f32[8@x,16@y]": lambda x: x.at[0].add(1.0, out_sharding=P("x", "y")),
        "f32[4@x,8,16]": lambda x: lax.broadcast(x, (4,), out_sharding=P("x")),
        "f32[8@y]": lambda x: lax.reduce_sum(x, (1,), out_sharding=P("y")),
        "f32[8@y,8]": lambda x: np.einsum("ij,kj->ik", x, x, out_sharding=P("y")),
        "i32[8@x]": lambda x: np.arange(8, out_sharding=P("x")),
        "f32[8,2@y]": lambda x: weft.random.normal(weft.random.key(0), (8, 2), out_sharding=P(None, "y")),
    }.items():
        assert weft.make_jaxpr(f)(x).out_avals[0].short() == text
        for result in (f(x), weft.jit(f)(x)):
            assert result.aval.short() == text
            onp.testing.assert_allclose(result, f(weft.device_put(X, P())), rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="5 elements, which do not split evenly into 4 parts"):
        np.zeros(5, out_sharding=P("x"))


def test_errors_say_what_to_write(mesh: Mesh) -> None:
    a, b = put(X, "x", "y"), put(W, "y")
    with pytest.raises(ShardingTypeError, match=r"(?s)sums over.*out_sharding=P\('x'.*auto_axes\(.*reshard\(a, P"):
        a @ b
    with pytest.raises(ShardingTypeError, match=r"(?s)must name the sharding.*reshard\(x, P\('y',\)\)"):
        lax.with_sharding_constraint(a, P("y"))
    with pytest.raises(TypeError, match="needs out_sharding: outside, types say"):
        auto_axes(lambda a: a * 2)(a)


def test_axes_change_their_types(mesh: Mesh) -> None:
    a, b = put(X, "x", "y"), put(W, "y")

    def product(a: Any, b: Any) -> Any:
        assert get_abstract_mesh().are_all_axes_auto and a.aval.explicit_sharding is None
        return a @ b

    f = auto_axes(product, out_sharding=P("x"))
    for result in (f(a, b), weft.jit(f)(a, b), auto_axes(product)(a, b, out_sharding=P("x"))):
        assert result.sharding.spec == P("x", None)
        onp.testing.assert_allclose(result, X @ W, rtol=1e-5, atol=1e-6)
    assert weft.jit(weft.grad(lambda a: f(a, b).sum()))(a).sharding.spec == P("x", "y")
    automatic = mesh.update(axis_types=(AxisType.Auto,) * 2)
    with weft.set_mesh(automatic):
        g = weft.jit(explicit_axes(lambda x: reshard(x * 2, P("y")), in_sharding=P("x")))
        assert g(X).sharding == NamedSharding(automatic, P("y"))


def test_some_axes_are_explicit() -> None:
    mixed = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
    with weft.set_mesh(mixed):
        x = put(X, "x", "y")
        assert x.aval.short() == "f32[8@x,16]" and (x + 1).sharding.spec == P("x", "y")
        f = weft.jit(lambda x: lax.with_sharding_constraint(x * 2, P("x", "y")))
        assert f(put(X, "x")).sharding.spec == P("x", "y")
        assert reshard(x, P(None, "x")).aval.short() == "f32[8,16@x]"


@pytest.mark.parametrize("sizes", [(4, 2), (8, 1), (2, 4), (1, 8)])
def test_other_names_for_the_axes_of_a_mesh(sizes: tuple[int, int]) -> None:
    """In a program another abstract mesh of the same devices may name how a value is split."""
    mesh = weft.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit,) * 2)
    other = mesh.abstract_mesh.update(axis_sizes=sizes, axis_names=("a", "b"))

    def f(x: Any) -> Any:
        x = np.sin(x)
        with weft.sharding.use_abstract_mesh(other):
            x = weft.reshard(x, P("b", "a")) * 2
            x = weft.reshard(x, P(("a", "b"), None)) + 1
        return weft.reshard(x, P("y", None))

    x = onp.arange(128, dtype=onp.float32).reshape(8, 16)
    with weft.set_mesh(mesh):
        found = weft.jit(f)(weft.device_put(x, P("x", "y")))
        assert found.sharding.spec == P("y", None)
        onp.testing.assert_allclose(found, onp.sin(x) * 2 + 1, rtol=1e-5)
