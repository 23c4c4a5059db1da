"""custom_vmap and sequential_vmap: rules under every transformation, and mistakes in rules."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.custom_batching import custom_vmap, sequential_vmap
from weft.errors import CustomRuleError

X = wnp.arange(3.0)


def marked(calls=None):
    """Return x -> sin(x) * y, times three where the rule is applied, so that a test can tell."""

    @custom_vmap
    def function(x, y):
        return wnp.sin(x) * y

    @function.def_vmap
    def rule(axis_size, in_batched, x, y):
        if calls is not None:
            calls.append((axis_size, in_batched))
        return 3 * wnp.sin(x) * y, in_batched[0] or in_batched[1]

    return function


@pytest.mark.parametrize("outer", [lambda f: f, weft.jit])
def test_a_batch_is_what_the_rule_computes(outer) -> None:
    calls: list = []
    function = marked(calls)
    np.testing.assert_allclose(outer(function)(1.0, 2.0), np.sin(1) * 2, rtol=1e-6)
    assert not calls
    np.testing.assert_allclose(outer(weft.vmap(function, (0, None)))(X, 2.0), 6 * np.sin(X), rtol=1e-6)
    assert calls == [(3, [True, False])]
    np.testing.assert_allclose(weft.vmap(outer(function), (0, 0))(X, X), 3 * np.sin(X) * X, rtol=1e-6)


def test_derivatives_are_those_of_the_rule() -> None:
    function, cos = marked(), np.cos(X)
    assert np.isclose(weft.grad(function)(1.0, 2.0), 2 * np.cos(1))
    np.testing.assert_allclose(weft.vmap(weft.grad(function), (0, None))(X, 2.0), 6 * cos, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(weft.vmap(weft.grad(function), (0, None)))(X, 2.0), 6 * cos, rtol=1e-6)
    np.testing.assert_allclose(weft.vmap(weft.grad(function, 1), (0, None))(X, 2.0), 3 * np.sin(X), rtol=1e-6)
    total = lambda x, y: weft.vmap(function, (0, None))(x, y).sum()
    np.testing.assert_allclose(weft.grad(total)(X, 2.0), 6 * cos, rtol=1e-6)
    np.testing.assert_allclose(weft.grad(total, 1)(X, 2.0), 3 * np.sin(X).sum(), rtol=1e-6)
    value, tangent = weft.vmap(lambda x: weft.jvp(lambda x: function(x, 2.0), (x,), (1.0,)))(X)
    np.testing.assert_allclose(value, 6 * np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(tangent, 6 * cos, rtol=1e-6)
    second = weft.vmap(weft.grad(weft.grad(function)), (0, None))(X, 2.0)
    np.testing.assert_allclose(second, -6 * np.sin(X), rtol=1e-6)
    remat = weft.vmap(weft.grad(weft.checkpoint(function)), (0, None))(X, 2.0)
    np.testing.assert_allclose(remat, 6 * cos, rtol=1e-6)


def test_further_batches_see_the_rule() -> None:
    calls: list = []
    both = weft.vmap(weft.vmap(marked(calls), (0, None)), (None, 0))(X, X)
    np.testing.assert_allclose(both, 3 * np.sin(X)[None] * X[:, None], rtol=1e-6)
    assert calls == [(3, [True, False])]


def test_inside_of_loops_and_branches() -> None:
    function = marked()
    in_scan = lambda y: lax.scan(lambda c, x: (c + function(x, y), None), 0.0, X)[0]
    wanted = 3 * np.sin(X).sum() * X
    np.testing.assert_allclose(weft.vmap(in_scan)(X), wanted, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(weft.vmap(weft.grad(in_scan)))(X), [3 * np.sin(X).sum()] * 3, rtol=1e-6)
    in_branch = lambda y: lax.cond(y > 0, lambda: function(y, y), lambda: y)
    np.testing.assert_allclose(weft.vmap(in_branch)(X), 3 * np.sin(X) * X, rtol=1e-6)


def test_trees_and_several_results() -> None:
    @custom_vmap
    def function(arguments, scale=1.0):
        return {"sum": arguments["a"] + arguments["b"] * scale, "scale": scale}

    @function.def_vmap
    def rule(size, in_batched, arguments, scale):
        assert in_batched == [{"a": True, "b": False}, False]
        return function({"a": arguments["a"], "b": arguments["b"]}, scale), {"sum": True, "scale": False}

    found = weft.vmap(lambda a: function({"a": a, "b": 2.0}, scale=3.0))(X)
    np.testing.assert_allclose(found["sum"], X + 6)
    np.testing.assert_allclose(found["scale"], [3, 3, 3])


def test_sequential_vmap_is_a_loop() -> None:
    function = sequential_vmap(lambda x, y: x * y)
    assert "scan" in str(weft.make_jaxpr(weft.vmap(function, (0, None)))(X, 2.0))
    np.testing.assert_allclose(weft.vmap(function, (0, None))(X, 2.0), 2 * X)
    np.testing.assert_allclose(weft.vmap(weft.grad(function, 1), (0, None))(X, 2.0), X)
    np.testing.assert_allclose(weft.grad(lambda x: weft.vmap(function, (0, None))(x, 2.0).sum())(X), [2, 2, 2])
    np.testing.assert_allclose(weft.vmap(weft.vmap(function), (None, 0))(X, wnp.ones((2, 3))), np.stack([X, X]))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda n, flags, x: x, "a pair"),
        (lambda n, flags, x: (x, (True,)), "whether it is mapped"),
        (lambda n, flags, x: ((x,), (True,)), "structure"),
        (lambda n, flags, x: (x[:2], True), r"f32\[2\] for f32\[3\]"),
        (lambda n, flags, x: (x, False), "not mapped"),
    ],
)
def test_mistakes_in_rules(rule, words: str) -> None:
    function = custom_vmap(lambda x: x + 1)
    function.def_vmap(rule)
    with pytest.raises(CustomRuleError, match=words) as caught:
        weft.vmap(function)(X)
    assert "test_custom_batching.py" in str(caught.value)


def test_other_mistakes() -> None:
    function = custom_vmap(lambda x: x)
    with pytest.raises(AttributeError, match="def_vmap"):
        function(X)

    def closing(x, y):
        inner = custom_vmap(lambda x: x * y)
        inner.def_vmap(lambda n, flags, x: (x, True))
        return inner(x)

    with pytest.raises(CustomRuleError, match="closes over a value that is batched"):
        weft.vmap(closing)(X, X)
    with pytest.raises(CustomRuleError, match="closes over a value that is differentiated"):
        weft.grad(closing, 1)(1.0, 2.0)
