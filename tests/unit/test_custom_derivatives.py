"""custom_jvp, custom_vjp, custom_gradient, closure_convert: rules under every transformation, and mistakes in rules."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.custom_derivatives import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    linear_call,
    zero_from_primal,
)

pytestmark = pytest.mark.tiny


def names_this_file(error: BaseException) -> bool:
    return "  at        test_custom_derivatives.py:" in str(error)


@weft.custom_jvp
def tenfold(x, y):
    """Compute x * y, with ten times the derivative in x, so that a test can tell which rule was used."""
    return x * y


@tenfold.defjvp
def tenfold_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return tenfold(x, y), 10.0 * dx * y + x * dy


@weft.custom_vjp
def tenfold_back(x, y):
    return x * y


tenfold_back.defvjp(lambda x, y: (x * y, (x, y)), lambda saved, ct: (10.0 * ct * saved[1], ct * saved[0]))

EACH = pytest.mark.parametrize("f", [tenfold, tenfold_back], ids=["custom_jvp", "custom_vjp"])


@EACH
def test_gradients_use_the_rule(f) -> None:
    assert float(f(2.0, 3.0)) == 6.0
    assert [float(g) for g in weft.grad(f, (0, 1))(2.0, 3.0)] == [30.0, 2.0]
    assert float(weft.grad(lambda x: f(x, y=3.0))(2.0)) == 30.0
    assert float(weft.grad(weft.grad(f), 1)(2.0, 3.0)) == 10.0
    assert float(weft.hessian(lambda x: f(x, x))(2.0)) == 11.0


@EACH
def test_under_jit_vmap_and_loops(f) -> None:
    assert float(weft.jit(weft.grad(f))(2.0, 3.0)) == float(weft.grad(weft.jit(f))(2.0, 3.0)) == 30.0
    x = wnp.arange(3.0)
    assert weft.vmap(weft.grad(f))(x, x).tolist() == [0.0, 10.0, 20.0]
    assert weft.grad(lambda x: wnp.sum(weft.vmap(f)(x, x)))(x).tolist() == [0.0, 11.0, 22.0]
    assert weft.grad(lambda x: wnp.sum(weft.vmap(f, (0, None))(x, 3.0)))(x).tolist() == [30.0] * 3
    assert float(weft.grad(lambda y: wnp.sum(weft.vmap(f, (0, None))(x, y)))(3.0)) == 3.0
    assert float(weft.grad(lambda w: lax.scan(lambda c, _: (f(c, w), None), 1.0, None, length=2)[0])(2.0)) == 22.0
    assert float(weft.grad(lambda w: lax.cond(w > 0, lambda w: f(w, w), wnp.sin, w))(2.0)) == 22.0
    assert float(weft.grad(weft.checkpoint(lambda w: f(w, w)))(2.0)) == 22.0
    assert (
        float(
            weft.grad(lambda w: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1], w)), (0, 1.0))[1])(2.0)
        )
        == 22.0
    )


def test_forward_mode() -> None:
    assert [float(v) for v in weft.jvp(tenfold, (2.0, 3.0), (1.0, 0.0))] == [6.0, 30.0]
    for forward in (
        lambda: weft.jvp(tenfold_back, (2.0, 3.0), (1.0, 0.0)),
        lambda: weft.jacfwd(weft.jit(tenfold_back))(2.0, 3.0),
    ):
        with pytest.raises(errors.CustomRuleError, match="Forward-mode differentiation reached tenfold_back") as caught:
            forward()
        assert names_this_file(caught.value)


def doubled(carry):
    """Run one iteration of a loop with an unused part in its carry."""
    count, x, _ = carry
    return count + 1, 2 * x, tenfold_back(x, x)


# Functions with tangents that have no value, and whether these are the tangents of a result.
TANGENTS = {
    "result": (lambda x: tenfold_back(x, x), True),
    "product with zero": (lambda x: x + 0 * tenfold_back(x, x), True),
    "other result": (lambda x: weft.jit(lambda x: (x, tenfold_back(x, x)))(x)[0], False),
    "branch that is not taken": (lambda x: lax.cond(x < 0, lambda x: tenfold_back(x, x), wnp.sin, x), True),
    "other result of a branch": (
        lambda x: lax.cond(x > 0, lambda x: (x, tenfold_back(x, x)), lambda x: (x, x), x)[0], False,
    ),
    "stacked": (lambda x: lax.scan(lambda c, _: (c, tenfold_back(c, c)), x, None, length=2)[1].sum(), True),
    "other part of a scan": (lambda x: lax.scan(lambda c, _: (c, tenfold_back(c, c)), x, None, length=2)[0], False),
    "loop without iterations": (lambda x: lax.while_loop(lambda c: c[0] < x - 9, doubled, (0, x, x))[2], True),
    "other part of a loop": (lambda x: lax.while_loop(lambda c: c[0] < x, doubled, (0, x, x))[1], False),
    "other part of a loop without iterations": (
        lambda x: lax.while_loop(lambda c: c[0] < x - 9, doubled, (0, x, x))[1], False,
    ),
    "invariant of a loop without iterations": (
        lambda x: lax.while_loop(
            lambda c: c[0] < x - 9, lambda c: (c[0] + 1, c[1], tenfold_back(c[1], c[1]), c[2]), (0, x, x, x)
        )[3], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TANGENTS)
def test_tangents_without_a_value_are_refused_where_a_result_needs_them(name: str) -> None:
    """Whatever is executed, as in JAX: a program that computes them is not compiled, and one that does not is."""
    function, needed = TANGENTS[name]
    refused = pytest.raises(errors.CustomRuleError, match="Forward-mode differentiation reached tenfold_back")
    with refused if needed else contextlib.nullcontext():
        weft.jit(lambda x: weft.jvp(function, (x,), (x,))[1])(2.0)
    with refused if needed else contextlib.nullcontext():
        weft.linearize(function, 2.0)[1](1.0)
    primal = weft.jit(lambda x: weft.jvp(function, (x,), (x,))[0])(2.0)
    assert primal == weft.jit(function)(2.0)


def test_rules_receive_concrete_values_outside_of_tracing() -> None:
    @weft.custom_jvp
    def magnitude(x):
        return x if x > 0 else -x

    @magnitude.defjvp
    def _(primals, tangents):
        return magnitude(*primals), tangents[0] * (1.0 if primals[0] > 0 else -1.0)

    assert float(magnitude(-2.0)) == 2.0
    assert float(weft.grad(magnitude)(-2.0)) == -1.0
    with pytest.raises(errors.TracerBoolConversionError):
        weft.jit(magnitude)(2.0)

    @weft.custom_vjp
    def by_numpy(x):
        return np.sin(np.asarray(x))

    by_numpy.defvjp(
        lambda x: (np.sin(np.asarray(x)), np.cos(np.asarray(x))), lambda gradient, ct: (ct * np.asarray(gradient),)
    )
    assert float(weft.grad(by_numpy)(wnp.float32(1.0))) == pytest.approx(np.cos(1.0), rel=1e-6)


def test_trees_defaults_and_integers() -> None:
    @weft.custom_vjp
    def f(d, n=2):
        return {"o": d["a"] * d["b"][0] * n, "k": 3}

    f.defvjp(lambda d, n: (f(d, n), {"n": n, "b": d["b"]}), lambda r, ct: ({"a": ct["o"] * r["n"], "b": [None]}, None))
    gradient = weft.grad(lambda d: f(d)["o"])({"a": 2.0, "b": [3.0]})
    assert (float(gradient["a"]), float(gradient["b"][0])) == (2.0, 0.0)
    assert float(weft.vjp(f, {"a": 2.0, "b": [3.0]}, 5)[1]({"o": 1.0, "k": np.zeros((), weft.float0)})[0]["a"]) == 5.0


def test_scalars_and_numpy_arrays_become_arrays() -> None:
    """What a function gets and returns is an array, whether it is traced or not; what it makes itself is left alone."""
    same = weft.custom_jvp(lambda x: (x, 3.0))
    same.defjvp(lambda primals, tangents: ((primals[0], 3.0), (tangents[0], 0.0)))
    same_back = weft.custom_vjp(lambda x: (x, 3.0))
    same_back.defvjp(lambda x: ((x, 3.0), None), lambda _, ct: (ct[0],))
    ours = np.ones(2, np.float32)
    for f in (same, same_back):
        for value, dtype, weak in [
            (1.0, np.float32, True),
            (2, np.int32, True),
            (1j, np.complex64, True),
            (np.float64(2), np.float32, False),
            (ours, np.float32, False),
        ]:
            got, result = f(value)
            assert isinstance(got, weft.Array) and (got.dtype, got.weak_type) == (dtype, weak)
            assert type(result) is float
        got, _ = f(ours)
        ours[0] += 1.0
        assert got.tolist() != ours.tolist(), "the memory of the result is that of the argument"
        with_known = lambda x, f=f: x * f(2.0)[0]  # a known number beside a traced one
        assert float(weft.grad(with_known)(3.0)) == 2.0
        _, tangents = weft.linearize(with_known, 3.0)
        assert float(tangents(1.0)) == 2.0


def test_nondiff_arguments() -> None:
    @functools.partial(weft.custom_jvp, nondiff_argnums=(0,))
    def apply(f, x):
        return f(x)

    apply.defjvp(lambda f, primals, tangents: (apply(f, *primals), 7.0 * tangents[0]))
    assert float(weft.grad(lambda x: apply(wnp.sin, x))(1.0)) == 7.0
    assert float(weft.jit(weft.grad(lambda x: apply(wnp.cos, x)))(1.0)) == 7.0

    @functools.partial(weft.custom_vjp, nondiff_argnums=(0, 2))
    def scale(k, x, name):
        return x * k

    scale.defvjp(lambda k, x, name: (x * k, None), lambda k, name, saved, ct: (ct * k * len(name),))
    assert float(weft.grad(scale, 1)(3, 2.0, "four")) == 12.0
    assert float(weft.jit(lambda x: weft.grad(scale, 1)(3, x, "four"))(2.0)) == 12.0


def test_methods() -> None:
    class Layer:
        factor = 3.0

        @functools.partial(weft.custom_jvp, nondiff_argnums=(0,))
        def call(self, x):
            return x

        @call.defjvp
        def call_jvp(self, primals, tangents):
            return self.call(*primals), tangents[0] * self.factor

    assert float(weft.grad(Layer().call)(1.0)) == 3.0


def test_defjvps() -> None:
    f = weft.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, result, x, y: 100.0 * t, None)
    assert [float(g) for g in weft.grad(f, (0, 1))(2.0, 3.0)] == [100.0, 0.0]


def test_symbolic_zeros() -> None:
    seen: list = []
    f = weft.custom_jvp(lambda x, y: x * y)

    def rule(primals, tangents):
        seen.append([isinstance(t, SymbolicZero) for t in tangents])
        return f(*primals), tangents[0] * primals[1]

    f.defjvp(rule, symbolic_zeros=True)
    assert float(weft.grad(f)(2.0, 3.0)) == 3.0 and seen == [[False, True]]

    g = weft.custom_vjp(lambda x, y: (x * y, x + y))

    def forward(x, y):
        seen.append((x.perturbed, y.perturbed))
        return (x.value * y.value, x.value + y.value), y.value

    def backward(y, cts):
        seen.append([isinstance(c, SymbolicZero) for c in cts])
        return cts[0] * y, SymbolicZero(weft.typeof(y))

    g.defvjp(forward, backward, symbolic_zeros=True)
    for transform in (lambda h: h, weft.jit):
        seen.clear()
        assert float(transform(weft.grad(lambda x: g(x, 3.0)[0]))(2.0)) == 3.0
        assert seen == [(True, False), [False, True]]


def test_a_result_that_is_not_used_costs_no_backward_rule() -> None:
    f = weft.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda saved, ct: 1 / 0)
    assert float(weft.grad(lambda x: (f(x), x * 2)[1])(1.0)) == 2.0


def test_closures_over_traced_values() -> None:
    def outer(c, x, kind):
        @kind
        def f(x):
            return x * c

        if kind is weft.custom_jvp:
            f.defjvp(lambda primals, tangents: (f(*primals), 2 * tangents[0] * c))
        else:
            f.defvjp(lambda x: (x * c, None), lambda saved, ct: (2 * ct * c,))
        return f(x)

    for kind in (weft.custom_jvp, weft.custom_vjp):
        g = functools.partial(outer, kind=kind)
        assert float(weft.jit(g)(3.0, 2.0)) == 6.0
        assert float(weft.jit(weft.grad(g, 1))(3.0, 2.0)) == 6.0
        assert weft.vmap(weft.grad(g, 1))(wnp.arange(2.0), wnp.ones(2)).tolist() == [0.0, 2.0]
        with pytest.raises(errors.CustomRuleError, match=r"not one of its arguments|closes over") as caught:
            weft.grad(g)(3.0, 2.0)
        assert names_this_file(caught.value)
        with pytest.raises(errors.CustomRuleError, match="closes over"):
            weft.jit(weft.grad(g))(3.0, 2.0)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def with_jvp(rule):
    def f(x):
        return {"o": x}

    result = weft.custom_jvp(f)
    result.defjvp(rule)
    return lambda x: result(x)["o"]


def with_vjp(forward, backward=lambda saved, ct: (ct, None)):
    def f(x, d):
        return x * d["a"]

    result = weft.custom_vjp(f)
    result.defvjp(forward, backward)
    return lambda x: result(x, {"a": x})


def forward(x, d):
    return x * d["a"], None


MISTAKES = {
    "jvp: no pair": (with_jvp(lambda p, t: {"o": p[0]}), "must return a pair .results, tangents"),
    "jvp: two structures": (with_jvp(lambda p, t: (p[0], {"o": t[0]})), r"a leaf for|for a leaf"),
    "jvp: structure of tangents": (
        with_jvp(lambda p, t: ({"o": p[0]}, t[0])),
        "tangents in the structure of the results",
    ),
    "jvp: shape": (
        with_jvp(lambda p, t: ({"o": p[0]}, {"o": wnp.ones(3)})),
        r"f32\[3\] for f32\[\] at tangents\['o'\]",
    ),
    "jvp: dtype": (with_jvp(lambda p, t: ({"o": p[0]}, {"o": wnp.float16(1)})), r"f16\[\] for f32\[\]"),
    "jvp: no array": (with_jvp(lambda p, t: ({"o": "x"}, {"o": t[0]})), r"'x' of type str at results\['o'\]"),
    "fwd: no pair": (with_vjp(lambda x, d: x), "must return a pair .results, residuals"),
    "fwd: residuals": (with_vjp(lambda x, d: (x, {"r": "s"})), r"'s' of type str at residuals\['r'\]"),
    "bwd: no tuple": (with_vjp(forward, lambda r, ct: ct), r"2 differentiated arguments\.\n.*\n  received  one array"),
    "bwd: length": (with_vjp(forward, lambda r, ct: (ct,)), "a tuple of length 1"),
    "bwd: structure": (with_vjp(forward, lambda r, ct: (ct, {"b": ct})), r"of `d` in its structure"),
    "bwd: shape": (with_vjp(forward, lambda r, ct: (ct, {"a": wnp.ones(3)})), r"dtype of `d\['a'\]`"),
}


@pytest.mark.parametrize("transform", [lambda f: f, weft.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_rules(name: str, transform) -> None:
    function, text = MISTAKES[name]
    with pytest.raises(errors.CustomRuleError, match=text) as caught:
        weft.grad(transform(function))(wnp.float32(1.0))
    assert names_this_file(caught.value) and "test_custom_derivatives.py:" in caught.value.what


def test_results_of_rules_are_checked_against_the_function() -> None:
    f = weft.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (wnp.ones(3), None), lambda saved, ct: (ct,))
    with pytest.raises(errors.CustomRuleError, match=r"results of the types of the function's"):
        weft.grad(lambda x: wnp.sum(weft.jit(f)(x)))(1.0)


def test_rules_that_are_missing_and_arguments_by_name_only() -> None:
    for kind, word in ((weft.custom_jvp, "defjvp"), (weft.custom_vjp, "defvjp")):
        with pytest.raises(AttributeError, match=word) as caught:
            kind(lambda x: x)(1.0)
        assert names_this_file(caught.value)

    @weft.custom_jvp
    def f(x, *, y=1.0):
        return x

    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(errors.CustomRuleError, match="keyword-only"):
        f(1.0, y=2.0)


# -- custom_gradient, closure_convert ---------------------------------------------------------------------------------


def test_custom_gradient() -> None:
    @weft.custom_gradient
    def square(x):
        return x**2, lambda ct: ct * x * 100

    assert float(square(3.0)) == 9.0
    assert float(weft.grad(square)(3.0)) == float(weft.jit(weft.grad(square))(3.0)) == 300.0
    assert weft.vmap(weft.grad(square))(wnp.arange(2.0)).tolist() == [0.0, 100.0]

    @weft.custom_gradient
    def product(x, y):
        return x * y, lambda ct: (ct * y, ct * x * 7)

    assert [float(g) for g in weft.grad(product, (0, 1))(3.0, 4.0)] == [4.0, 21.0]


def test_closure_convert() -> None:
    def f(x):
        converted, values = weft.closure_convert(lambda y: x * y + 1, 2.0)
        counts.append(len(values))
        return converted(2.0, *values)

    counts: list[int] = []
    assert float(f(3.0)) == 7.0 and float(weft.grad(f)(3.0)) == 2.0 and float(weft.jit(f)(3.0)) == 7.0
    assert counts == [0, 1, 1]


def test_linear_call() -> None:
    def scaled(x, r):
        return linear_call(lambda r, x: x / r, lambda r, ct: 10 * ct / r, r, x)

    x, r = wnp.arange(3.0), 2.0
    np.testing.assert_allclose(weft.jit(scaled)(x, r), x / 2)
    assert float(weft.grad(scaled)(3.0, r)) == 5.0
    assert float(weft.jit(weft.grad(scaled, 1))(3.0, r)) == -0.75
    np.testing.assert_allclose(weft.jvp(lambda x: scaled(x, r), (x,), (x,))[1], x / 2)
    np.testing.assert_allclose(weft.vmap(weft.grad(scaled), (0, None))(x, r), [5, 5, 5])
    np.testing.assert_allclose(weft.vmap(weft.grad(scaled), (None, 0))(1.0, x + 1), 10 / (x + 1), rtol=1e-6)
    transpose = weft.linear_transpose(lambda x: scaled(x, r), 1.0)
    assert float(transpose(1.0)[0]) == 5.0
    assert float(weft.linear_transpose(lambda ct: transpose(ct)[0], 1.0)(1.0)[0]) == 0.5
    in_loop = lambda x: lax.scan(lambda c, _: (scaled(c, r), None), x, None, length=3)[0]
    assert float(weft.grad(in_loop)(1.0)) == 125.0
    assert float(weft.grad(weft.checkpoint(in_loop))(1.0)) == 125.0
    pair = linear_call(lambda r, x: {"o": x[0] * r + x[1]}, lambda r, ct: (ct["o"] * r, ct["o"]), 2.0, (1.0, 2.0))
    assert float(pair["o"]) == 4.0
    with pytest.raises(errors.CustomRuleError, match="structure of linear_args"):
        weft.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: (ct, ct), 2.0, x))(1.0)
    with pytest.raises(errors.CustomRuleError, match="types of linear_args"):
        weft.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: wnp.ones(2), 2.0, x))(1.0)


def test_values_of_primals() -> None:
    assert custom_vjp_primal_tree_values({"a": CustomVJPPrimal(1.0, True)}) == {"a": 1.0}
    with pytest.raises(TypeError, match="CustomVJPPrimal"):
        custom_vjp_primal_tree_values({"a": 1.0})
    assert float(zero_from_primal(val=2.0)) == 0.0
    zeros = zero_from_primal({"a": 2.0, "b": (wnp.ones(3),)}, symbolic_zeros=True)
    assert zeros["b"][0].shape == (3,) and isinstance(zeros["a"], SymbolicZero)


def test_forward_and_backward_are_compiled_once() -> None:
    traced = []

    def function(x, w):
        traced.append(1)
        return wnp.sin(x) * w, x

    fwd, bwd = weft.fwd_and_bwd(function, argnums=(0, 1), has_aux=True)
    for scale in (1.0, 2.0, 3.0):
        x = scale * wnp.ones(3)
        value, residuals, auxiliary = fwd(x, x)
        np.testing.assert_allclose(value, np.sin(x) * x, rtol=1e-6)
        np.testing.assert_allclose(auxiliary, x)
        first, second = bwd(residuals, wnp.ones(3))
        np.testing.assert_allclose(first, np.cos(x) * x, rtol=1e-6)
        np.testing.assert_allclose(second, np.sin(x), rtol=1e-6)
    assert len(traced) == 1
    assert bwd._cache and len(bwd._cache) == 1
    fwd, bwd = weft.fwd_and_bwd(lambda x, y: x * y, argnums=-1, jitted=False)
    assert float(bwd(fwd(2.0, 3.0)[1], 1.0)) == 2.0


def test_cotangents_of_nodes_without_children() -> None:
    class Empty:
        """Node of trees that holds nothing."""

    weft.tree_util.register_pytree_node(Empty, lambda node: ((), None), lambda data, children: Empty())

    @weft.custom_vjp
    def f(x: Any) -> Any:
        return x[0]

    f.defvjp(lambda x: (x[0], x), lambda saved, g: ((g, Empty(), None, saved[3]),))
    assert float(weft.grad(lambda a: f((a, Empty(), a, Empty())))(2.0)) == 1.0


def test_none_of_a_backward_rule_is_an_array_of_zeros() -> None:
    """The backward rule of what computed the argument is called: its cotangents need not be zeros."""

    @weft.custom_vjp
    def first(x: Any, s: Any) -> Any:
        return x * s

    @weft.custom_vjp
    def second(y: Any, x: Any) -> Any:
        return y + x

    first.defvjp(lambda x, s: (x * s, None), lambda _, ct: (ct, wnp.float32(42)))
    second.defvjp(lambda y, x: (y + x, None), lambda _, ct: (None, ct))
    f = weft.grad(lambda x, s: second(first(x, s), x), argnums=1)
    assert f(1.0, 2.0) == weft.jit(f)(1.0, 2.0) == 42
    assert weft.vmap(f)(wnp.ones(2), wnp.ones(2)).tolist() == [42, 42]
    assert weft.grad(lambda x, s: weft.lax.stop_gradient(first(x, s)) + x, argnums=1)(1.0, 2.0) == 0


def test_a_tree_of_one_leaf_takes_one_value_as_cotangent() -> None:
    @weft.custom_vjp
    def f(params: Any) -> Any:
        return params["x"]["value"] * params["y"][0]

    f.defvjp(lambda p: (f(p), p), lambda p, g: ({"x": 10 * g * p["y"][0], "y": [g * p["x"]["value"]]},))
    params = {"x": {"value": wnp.array(2.0)}, "y": [wnp.array(3.0)]}
    assert weft.grad(f)(params) == {"x": {"value": 30.0}, "y": [2.0]}
    f.defvjp(lambda p: (f(p), p), lambda p, g: (g,))
    with pytest.raises(errors.CustomRuleError, match="in its structure"):  # of two leaves: which?
        weft.grad(f)(params)


def _pair(c: Any, x: Any) -> Any:
    return c + 1.0, x * c


_vjp_pair = weft.custom_vjp(_pair)
_vjp_pair.defvjp(lambda c, x: (_pair(c, x), (c, x)), lambda r, g: (g[0] + g[1] * r[1], g[1] * r[0]))
_jvp_pair = weft.custom_jvp(_pair)
_jvp_pair.defjvp(lambda p, t: (_pair(*p), (t[0], t[1] * p[0] + p[1] * t[0])))


@pytest.mark.parametrize("rule", [_vjp_pair, _jvp_pair])
def test_results_without_a_batch_stay_so(rule: Any) -> None:
    xs, weights = wnp.arange(3.0) + 2, wnp.array([1.0, 2.0, 3.0])
    mapped = weft.vmap(rule, in_axes=(None, 0), out_axes=(None, 0))
    plain = weft.vmap(_pair, in_axes=(None, 0), out_axes=(None, 0))
    loss = lambda f: lambda c, x: 5 * f(c, x)[0] + (f(c, x)[1] * weights).sum()
    assert mapped(1.0, xs)[0].shape == ()
    for around in (lambda f: f, weft.jit):
        for found, wanted in zip(
            around(weft.grad(loss(mapped), (0, 1)))(1.5, xs), weft.grad(loss(plain), (0, 1))(1.5, xs), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    scanned = weft.vmap(lambda xs: lax.scan(rule, 0.0, xs)[0], out_axes=None)
    assert scanned(wnp.ones((2, 3))) == 3.0


def test_the_rule_of_a_shared_result_runs_once_for_the_batch() -> None:
    @weft.custom_vjp
    def clipped(c: Any, x: Any) -> Any:
        return c, x * 1.0

    clipped.defvjp(lambda c, x: (clipped(c, x), None), lambda _, g: (wnp.clip(g[0], -1, 1), g[1]))
    mapped = weft.vmap(clipped, in_axes=(None, 0), out_axes=(None, 0))
    assert weft.grad(lambda c: 5 * mapped(c, wnp.ones(3))[0])(2.0) == 1.0
