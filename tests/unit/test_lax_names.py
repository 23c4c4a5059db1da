"""Primitives under JAX's names, and the functions of `weft.lax` that say how a program is built."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.extend.core.primitives as extended
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError, NotSupportedError, ShapeMismatchError

X = wnp.arange(6.0).reshape(2, 3)


def primitives_of(function, *args):
    return [equation.primitive for equation in weft.make_jaxpr(function)(*args).eqns]


def test_every_name_is_a_primitive() -> None:
    names = [name for name in dir(extended) if name.endswith("_p")]
    assert len(names) > 170
    assert all(callable(getattr(extended, name).bind) for name in names)
    assert set(n for n in dir(lax) if n.endswith("_p")) < set(names)
    assert lax.add_p is extended.add_p
    with pytest.raises(AttributeError, match="did you mean"):
        lax.ad_p


def test_equations_have_these_objects() -> None:
    assert primitives_of(wnp.add, X, X) == [lax.add_p]
    assert primitives_of(lambda x: lax.approx_max_k(x, 2), X) == [lax.approx_top_k_p]
    assert primitives_of(lambda x: lax.unstack(lax.stack([x, x])), X) == [lax.stack_p, lax.unstack_p]
    assert primitives_of(weft.jit(wnp.sin), X) == [extended.jit_p]
    assert primitives_of(weft.checkpoint(wnp.sin), X) == [extended.remat_p]
    equation = weft.make_jaxpr(lambda x: lax.reduce_sum(x, (0,)))(X).eqns[0]
    functions, params = equation.primitive.get_bind_params(equation.params)
    assert not equation.primitive.call_primitive and not equation.primitive.map_primitive
    np.testing.assert_array_equal(equation.primitive.bind(*functions, X, **params), [3, 5, 7])


def test_bind_takes_the_parameters_of_jax() -> None:
    assert float(weft.grad(lambda x: lax.exp_p.bind(x, accuracy=None))(0.0)) == 1.0
    np.testing.assert_array_equal(weft.vmap(lambda x: lax.mul_p.bind(x, x, out_dtype=None))(X), X * X)
    total = weft.jit(lambda x: lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None))(X)
    np.testing.assert_array_equal(total, [3, 5, 7])


def test_plain_calls() -> None:
    jaxpr = weft.make_jaxpr(lambda x: x * 2)(1.0)
    for primitive in (extended.call_p, extended.closed_call_p):
        assert primitive.call_primitive
        assert float(primitive.bind(3.0, call_jaxpr=jaxpr)[0]) == 6.0
        assert (
            float(weft.jit(weft.grad(lambda x, primitive=primitive: primitive.bind(x, call_jaxpr=jaxpr)[0]))(3.0))
            == 2.0
        )


def test_total_order() -> None:
    special = np.array([np.nan, -np.nan, 0.0, -0.0, 1.0], np.float32)
    order = [4, 0, 2, 1, 3]  # the rank of each
    x, y = np.repeat(special, 5), np.tile(special, 5)
    a, b = np.repeat(order, 5), np.tile(order, 5)
    np.testing.assert_array_equal(lax.lt_to_p.bind(x, y), a < b)
    np.testing.assert_array_equal(weft.jit(lax.le_to_p.bind)(x, y), a <= b)
    np.testing.assert_array_equal(weft.vmap(lax.eq_to_p.bind)(x, y), a == b)


def test_a_composite_is_one_equation_and_its_decomposition() -> None:
    total = lax.composite(lambda x, *, axis: wnp.sin(x).sum(axis), "my.sum", 2)
    (equation,) = weft.make_jaxpr(lambda x: total(x, axis=1))(X).eqns
    assert equation.params["name"] == "my.sum" and equation.params["version"] == 2
    assert equation.params["attributes"] == (("axis", 1),)
    np.testing.assert_allclose(weft.jit(lambda x: total(x, axis=1))(X), np.sin(X).sum(1), rtol=1e-6)
    np.testing.assert_allclose(weft.grad(lambda x: total(x, axis=1).sum())(X), np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(weft.vmap(lambda x: total(x, axis=0))(X), np.sin(X).sum(1), rtol=1e-6)


def test_platform_dependent() -> None:
    chosen = lambda x: lax.platform_dependent(x, cpu=wnp.sin, default=wnp.cos)
    other = lambda x: lax.platform_dependent(x, gpu=wnp.sin, tpu=wnp.tan, default=wnp.cos)
    for transform in (lambda f: f, weft.jit, weft.vmap, lambda f: weft.jit(weft.vmap(weft.vmap(f)))):
        np.testing.assert_allclose(transform(chosen)(X), np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(transform(other)(X), np.cos(X), rtol=1e-6)
    assert float(weft.jit(weft.grad(chosen))(0.0)) == 1.0
    with pytest.raises(NotSupportedError, match="'cpu'"):
        weft.jit(lambda x: lax.platform_dependent(x, cuda=wnp.sin))(X)
    with pytest.raises(ArgumentError):
        lax.platform_dependent(X)


def test_a_sink_retains_equations_and_changes_nothing() -> None:
    for compiled in (False, True):

        def function(x, compiled=compiled):
            lax.dce_sink({"a": wnp.sin(x)}, prevent_mlir_dce=compiled)
            return x * 2

        assert lax.dce_sink_p in primitives_of(function, 1.0)
        for transform in (lambda f: f, weft.jit, weft.vmap, lambda f: weft.jit(weft.vmap(f))):
            np.testing.assert_array_equal(transform(function)(X), X * 2)
        assert float(weft.jit(weft.grad(function))(1.0)) == 2.0
        carry, _ = lax.scan(lambda c, x: (c + function(x), None), 0.0, wnp.arange(3.0))
        assert float(carry) == 6.0


def test_tokens() -> None:
    token = weft.jit(lambda: lax.after_all(lax.create_token(), lax.create_token()))()
    assert token.size == 0
    assert lax.after_all(token).shape == token.shape


def test_stage_makes_a_traced_value() -> None:
    assert float(lax.stage(1.0)) == 1.0
    assert isinstance(lax.stage(1.0), weft.Array)
    assert primitives_of(lambda: lax.stage(1.0)) == [lax.stage_p]


def test_scaled_dot() -> None:
    lhs, rhs = np.random.default_rng(0).normal(size=(2, 3, 8)), np.random.default_rng(1).normal(size=(2, 8, 4))
    lhs, rhs = lhs.astype(np.float32), rhs.astype(np.float32)
    scales = np.array([[1.0, 2.0], [0.5, 4.0], [1.0, 1.0]], np.float32)[None].repeat(2, 0)
    wanted = (lhs * scales.repeat(4, -1)) @ rhs
    found = lax.scaled_dot(lhs, rhs, lhs_scale=scales, preferred_element_type=np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert lax.scaled_dot(lhs, rhs).dtype == wnp.bfloat16
    gradient = weft.grad(lambda s: lax.scaled_dot(lhs, rhs, lhs_scale=s, preferred_element_type=np.float32).sum())
    np.testing.assert_allclose(
        gradient(scales), (lhs * rhs.sum(-1)[:, None]).reshape(2, 3, 2, 4).sum(-1), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ShapeMismatchError, match="blocks"):
        lax.scaled_dot(lhs, rhs, lhs_scale=np.ones((2, 3, 3), np.float32))


def test_small_functions() -> None:
    assert lax.conv_shape_tuple((2, 2, 8, 8), (4, 2, 3, 3), (1, 1), "VALID", 2) == (1, 4, 6, 6)
    np.testing.assert_array_equal(lax.shape_as_value((2, 3)), [2, 3])
    np.testing.assert_array_equal(lax.broadcast_like(X[0], X), np.stack([X[0], X[0]]))
    with pytest.raises(ShapeMismatchError):
        lax.broadcast_like(X, X[0])
    table = wnp.arange(12).reshape(3, 4)
    rows, columns = wnp.array([0, 4]), wnp.array([1, -1])
    np.testing.assert_array_equal(lax.index_take(table, (rows, columns), (0, 1)), [1, 7])
    np.testing.assert_array_equal(lax.index_take(table, (columns,), (1,)), np.asarray(table)[:, [1, 3]].T)
    assert lax.Tolerance(ulps=2) == lax.Tolerance(0.0, 0.0, 2) != lax.Tolerance(rtol=0.1)
    with pytest.raises(ArgumentError):
        lax.Tolerance()
    np.testing.assert_array_equal(lax.exp(X, accuracy=lax.AccuracyMode.HIGHEST), lax.exp(X))
