"""`pmap`: a function with each element of its arguments on a device of its own, and the errors."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError, ArgumentTypeError, AxisSpecError, UnboundAxisError

X = onp.arange(8, dtype=onp.float32)
M = onp.arange(24, dtype=onp.float32).reshape(8, 3)


def test_each_element_is_on_a_device() -> None:
    result = weft.pmap(lambda x: x * 2)(X)
    onp.testing.assert_array_equal(result, X * 2)
    assert result.devices() == set(weft.devices()[:8])
    chosen = weft.devices()[4:6]
    assert weft.pmap(lambda x: x, devices=chosen)(X[:2]).devices() == set(chosen)


def test_axes_of_arguments_and_results() -> None:
    f = weft.pmap(lambda x, y: (x * y, lax.psum(x, "i")), "i", in_axes=(1, None), out_axes=(1, None))
    product, total = f(M.T, 2.0)
    onp.testing.assert_array_equal(product, M.T * 2)
    onp.testing.assert_array_equal(total, M.sum(0))
    tree = weft.pmap(lambda d, k=0: d["a"] + d["b"] + k, in_axes=({"a": 0, "b": None},))({"a": X, "b": 1.0}, k=X)
    onp.testing.assert_array_equal(tree, 2 * X + 1)


def test_static_and_donated_arguments() -> None:
    f = weft.pmap(lambda x, name: x + len(name), static_broadcasted_argnums=1, in_axes=(0, None), donate_argnums=0)
    onp.testing.assert_array_equal(f(np.asarray(X), "abc"), X + 3)


def test_collectives_and_loops() -> None:
    def body(x: Any) -> Any:
        step = lambda c, _: (lax.ppermute(c, "i", [(i, (i + 1) % 8) for i in range(8)]), c)
        return lax.scan(step, x, None, length=3)[0] + lax.pmean(x, "i", axis_index_groups=[[0, 1], [2, 3, 4, 5, 6, 7]])

    means = onp.where(X < 2, 0.5, 4.5)
    onp.testing.assert_allclose(weft.pmap(body, axis_name="i")(X), onp.roll(X, 3) + means)


def test_derivatives_outside_and_inside() -> None:
    square = lambda x: lax.psum(x**2, "i")
    expected = 16 * X
    onp.testing.assert_allclose(weft.grad(lambda x: weft.pmap(square, "i")(x).sum())(X), expected)
    onp.testing.assert_allclose(weft.pmap(weft.grad(square), "i")(X), expected)


def test_nested_maps_are_more_axes() -> None:
    inner = weft.pmap(lambda x: lax.psum(x, ("i", "j")) + lax.axis_index("j"), axis_name="j")
    result = weft.pmap(inner, axis_name="i")(X.reshape(4, 2))
    onp.testing.assert_array_equal(result, 28 + onp.arange(2) * onp.ones((4, 1)))
    with pytest.raises(ArgumentError, match="inside of maps over 4, needs 16 devices"):
        weft.pmap(inner, axis_name="i")(onp.ones((4, 4)))


def test_under_other_transformations() -> None:
    f = weft.pmap(lambda x: np.sin(x))
    onp.testing.assert_allclose(weft.jit(f)(X), onp.sin(X), rtol=1e-6)
    onp.testing.assert_allclose(weft.vmap(f)(onp.stack([X, X + 1])), onp.sin([X, X + 1]), rtol=1e-6)
    tangent = weft.jvp(f, (X,), (onp.ones_like(X),))[1]
    onp.testing.assert_allclose(tangent, onp.cos(X), rtol=1e-5, atol=1e-6)


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="over 9 elements needs 9 devices"):
        weft.pmap(lambda x: x)(onp.ones(9))
    with pytest.raises(AxisSpecError, match="pmap got inconsistent sizes for array axes to be mapped"):
        weft.pmap(lambda x, y: x)(X, X[:4])
    with pytest.raises(AxisSpecError, match="maps over nothing"):
        weft.pmap(lambda x: x, in_axes=None)(X)
    with pytest.raises(AxisSpecError, match="pmap of <lambda>: out_axes 2 does not exist"):
        weft.pmap(lambda x: x, out_axes=2)(X)
    with pytest.raises(ArgumentTypeError, match="devices must be a list of devices"):
        weft.pmap(lambda x: x, devices=[0])
    with pytest.raises(UnboundAxisError, match="no axis named 'i'"):
        weft.pmap(lambda x: lax.psum(x, "i"))(X)
