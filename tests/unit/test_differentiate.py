"""grad, value_and_grad, jvp, vjp, linearize, linear_transpose and the Jacobians: arguments, results, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax

pytestmark = pytest.mark.tiny


def product(x, y):
    return wnp.sum(x * x * y)


def names_this_file(error: BaseException) -> bool:
    return "  at        test_differentiate.py:" in str(error)


# -- grad -------------------------------------------------------------------------------------------------------------


def test_argnums() -> None:
    assert float(weft.grad(product)(2.0, 3.0)) == 12.0
    assert float(weft.grad(product, argnums=-1)(2.0, 3.0)) == 4.0
    assert [float(g) for g in weft.grad(product, argnums=(1, 0))(2.0, 3.0)] == [4.0, 12.0]
    assert float(weft.grad(product)(2.0, y=3.0)) == 12.0


@pytest.mark.parametrize(
    ("argnums", "args", "kwargs", "error", "text"),
    [
        (2, (2.0, 3.0), {}, TypeError, "argnums=2 requires at least 3 positional arguments"),
        (0, (), {"x": 2.0, "y": 3.0}, TypeError, "0 by position and by name x, y"),
        ((0, -2), (2.0, 3.0), {}, ValueError, "must name each argument once"),
    ],
)
def test_wrong_argnums(argnums, args, kwargs, error, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        weft.grad(product, argnums=argnums)(*args, **kwargs)
    assert names_this_file(caught.value)


def test_argnums_must_be_integers() -> None:
    with pytest.raises(TypeError, match="must be an int") as caught:
        weft.grad(product, argnums=1.0)  # type: ignore[arg-type]
    assert names_this_file(caught.value)


def test_trees_none_and_arguments_that_are_not_differentiated() -> None:
    gradient = weft.grad(lambda p, mode: p["a"].sum() * p["b"][0] if mode == "on" else 0.0)
    found = gradient({"a": wnp.ones(2), "b": [2.0, 3.0, None]}, "on")
    assert (
        found["a"].tolist() == [2.0, 2.0] and [float(b) for b in found["b"][:2]] == [2.0, 0.0] and found["b"][2] is None
    )


def test_gradient_has_the_type_of_its_argument() -> None:
    square = lambda x: wnp.sum(x * x)
    for dtype in ("float16", "bfloat16", "float32"):
        assert weft.grad(square)(wnp.ones(3, dtype)).dtype == wnp.dtype(dtype)
    assert weft.grad(square)(1.0).weak_type and not weft.grad(square)(wnp.float32(1)).weak_type
    assert weft.grad(lambda x: wnp.sum(x * wnp.ones(3)))(1.0).weak_type
    assert weft.grad(lambda x: 3.0)(1.0).weak_type  # zeros too


def test_auxiliary_results_may_be_anything() -> None:
    thing = object()
    (value, aux), gradient = weft.value_and_grad(
        lambda x: (x * x, {"y": x + 1, "s": "text", "o": thing}), has_aux=True
    )(3.0)
    assert (float(value), float(gradient), float(aux["y"]), aux["s"]) == (9.0, 6.0, 4.0, "text") and aux["o"] is thing
    assert float(weft.grad(lambda x: [x * x, x], has_aux=True)(3.0)[1]) == 3.0


def test_auxiliary_values_keep_the_derivatives_of_outer_transformations() -> None:
    def outer(y):
        gradient, aux = weft.grad(lambda x: (x * y, (y * 2, y * x)), has_aux=True)(3.0)
        return gradient, aux

    (gradient, aux), (tangent, aux_tangent) = weft.jvp(outer, (5.0,), (1.0,))
    assert (float(gradient), float(aux[0]), float(aux[1])) == (5.0, 10.0, 15.0)
    assert (float(tangent), float(aux_tangent[0]), float(aux_tangent[1])) == (1.0, 2.0, 3.0)
    assert [float(a) for a in weft.jit(outer)(5.0)[1]] == [10.0, 15.0]


@pytest.mark.parametrize("function", [lambda x: x * x, lambda x: (x, 1, 2)])
def test_has_aux_needs_a_pair(function) -> None:
    with pytest.raises(TypeError, match="must return a pair") as caught:
        weft.grad(function, has_aux=True)(3.0)
    assert names_this_file(caught.value)


def test_holomorphic_and_complex() -> None:
    assert complex(weft.grad(lambda z: z * z, holomorphic=True)(1 + 2j)) == 2 + 4j
    assert complex(weft.grad(lambda z: wnp.abs(z) ** 2)(1 + 2j)) == pytest.approx(2 - 4j, rel=1e-5)
    with pytest.raises(TypeError, match="requires inputs with complex dtype, but got float32") as caught:
        weft.grad(lambda z: z * z, holomorphic=True)(1.0)
    assert names_this_file(caught.value) and "f32[] at z" in str(caught.value)
    with pytest.raises(errors.NonScalarGradientError, match=r"real-valued outputs .* but got complex64"):
        weft.grad(lambda z: z * z)(1 + 2j)


def test_integers() -> None:
    floats = weft.grad(lambda n, x: x * n, argnums=(0, 1), allow_int=True)(3, 2.0)
    assert floats[0].dtype == weft.float0 and floats[0].shape == () and float(floats[1]) == 3.0
    with pytest.raises(errors.IntegerInputGradientError, match=r"but got int32: p\['w'\]\[0\] of <lambda>") as caught:
        weft.grad(lambda p: p["w"][0] * 2.0)({"w": [wnp.arange(3)]})
    assert "i32[3]" in str(caught.value) and names_this_file(caught.value)
    with pytest.raises(errors.InvalidInputTypeError, match="no array, at x"):
        weft.grad(lambda x: 1.0)("text")
    with pytest.raises(errors.NonScalarGradientError):
        weft.grad(lambda x: wnp.int32(x))(1.0)


@pytest.mark.parametrize(
    ("function", "text"),
    [(lambda x: x * 2, r"had shape: \(3,\)"), (lambda x: (x, x), "was a tuple"), (lambda x: None, "was a NoneType")],
)
def test_result_must_be_a_scalar(function, text: str) -> None:
    with pytest.raises(errors.NonScalarGradientError, match=text) as caught:
        weft.grad(function)(wnp.ones(3))
    assert names_this_file(caught.value)


def test_python_may_look_at_values_that_are_only_differentiated() -> None:
    assert float(weft.grad(lambda x: x * 2 if x > 0 else x)(1.0)) == 2.0
    assert float(weft.grad(lambda x: x * [1.0, 5.0][wnp.int32(x)])(1.0)) == 5.0
    assert float(weft.grad(lambda x: x * int(x))(3.0)) == 3.0


@pytest.mark.parametrize("convert", [float, complex])
def test_a_conversion_that_would_lose_the_derivative_is_refused(convert) -> None:
    with pytest.raises(errors.ConcretizationTypeError, match="would lose its derivative") as caught:
        weft.grad(lambda x: x * convert(x).real)(3.0)
    assert "stop_gradient" in str(caught.value) and names_this_file(caught.value)
    assert float(weft.grad(lambda x: x * convert(weft.lax.stop_gradient(x)).real)(3.0)) == 3.0


def test_nesting_keeps_perturbations_apart() -> None:
    assert float(weft.grad(lambda x: x * weft.grad(lambda y: x + y)(2.0))(1.0)) == 1.0
    assert float(weft.grad(lambda x: x * weft.grad(lambda y: x * y)(2.0))(3.0)) == 6.0
    assert float(weft.jit(weft.grad(weft.jit(weft.grad(weft.jit(lambda x: x**4)))))(2.0)) == pytest.approx(48.0)


def test_stop_gradient() -> None:
    stop = weft.lax.stop_gradient
    assert float(weft.grad(lambda x: x * stop(x))(3.0)) == 3.0
    assert float(weft.grad(weft.grad(lambda x: x * x * stop(x)))(3.0)) == 6.0
    value, tangent = weft.jvp(lambda t: stop({"a": t, "n": 3})["a"], (2.0,), (1.0,))
    assert (float(value), float(tangent)) == (2.0, 0.0)


# -- jvp, vjp, linearize ----------------------------------------------------------------------------------------------


def test_jvp_of_trees_and_auxiliary_results() -> None:
    value, tangent, aux = weft.jvp(lambda d: (d["a"] * 2, (d["a"], "text")), ({"a": 3.0},), ({"a": 1.0},), has_aux=True)
    assert (float(value), float(tangent), float(aux[0]), aux[1]) == (6.0, 2.0, 3.0, "text")
    value, tangent = weft.jvp(lambda n, x: n * x, (3, 2.0), (np.zeros((), weft.float0), 1.0))
    assert (float(value), float(tangent)) == (6.0, 3.0)


@pytest.mark.parametrize(
    ("tangents", "text"),
    [
        (({"b": 1.0}, 1.0), r"a dict with keys \['b'\] for a dict with keys \['a'\] at d"),
        (({"a": wnp.ones(3)}, 1.0), r"f32\[3\] at d\['a'\], for a value of type f32\[\]"),
        (({"a": wnp.float16(1)}, 1.0), r"f16\[\] at d\['a'\]"),
        (({"a": 1.0},), "a tuple of length 1 for a tuple of length 2"),
        (({"a": "text"}, 1.0), r"not an array at d\['a'\]"),
    ],
)
def test_tangents_that_do_not_fit(tangents, text: str) -> None:
    with pytest.raises(TypeError, match=text) as caught:
        weft.jvp(lambda d, x: d["a"] * x, ({"a": 1.0}, 2.0), tangents)
    assert names_this_file(caught.value)


def test_tangent_of_an_integer_must_be_float0() -> None:
    with pytest.raises(errors.TangentMismatchError, match="float0"):
        weft.jvp(lambda n: n * 2.0, (3,), (1,))
    with pytest.raises(TypeError, match="as a tuple or list"):
        weft.jvp(wnp.sin, 1.0, 1.0)  # type: ignore[arg-type]


def test_vjp() -> None:
    value, pull, aux = weft.vjp(lambda x, n: ({"o": x * n}, "aux"), 2.0, 3, has_aux=True)
    to_x, to_n = pull({"o": 1.0})
    assert (float(value["o"]), float(to_x), aux) == (6.0, 3.0, "aux") and to_n.dtype == weft.float0
    assert float(pull({"o": 2.0})[0]) == 6.0  # as often as one likes
    assert float(weft.grad(lambda x: weft.vjp(lambda y: y**3, x)[1](1.0)[0])(2.0)) == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("cotangents", "text"),
    [
        ((1.0,), r"a leaf for a dict with keys \['o'\]"),
        (({"o": wnp.ones(4)},), r"f32\[4\] at result\['o'\], for a value of type f32\[3\]"),
        (({"o": wnp.ones(3, "float16")},), r"f16\[3\]"),
        ((1.0, 2.0), "takes one argument"),
    ],
)
def test_cotangents_that_do_not_fit(cotangents, text: str) -> None:
    _, pull = weft.vjp(lambda x: {"o": x}, wnp.ones(3))
    with pytest.raises(TypeError, match=text) as caught:
        pull(*cotangents)
    assert names_this_file(caught.value)


def test_linearize_runs_once_and_pushes_often() -> None:
    runs = []
    value, push = weft.linearize(lambda x, y: (runs.append(1), x * x * y)[1], 2.0, 3.0)
    assert (float(value), float(push(1.0, 0.0)), float(push(0.0, 1.0)), len(runs)) == (12.0, 12.0, 4.0, 1)
    _, push = weft.linearize(lambda x: x * x, wnp.ones(2))
    assert weft.vmap(push)(wnp.eye(2)).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    with pytest.raises(errors.TangentMismatchError, match=r"f32\[3\] at x") as caught:
        push(wnp.ones(3))
    assert names_this_file(caught.value)
    with pytest.raises(errors.TangentMismatchError, match="a tuple of length 2 for a tuple of length 1"):
        push(wnp.ones(2), 1.0)


GUARDED = {
    "sqrt": (lambda x: wnp.where(x > 0, wnp.sqrt(x), 0), 0),
    "log": (lambda x: wnp.where(x > 0, x * wnp.log(x), 0), 0),
    "reciprocal": (lambda x: wnp.where(x > 0, wnp.exp(-1 / x), 0), 0),
    "quotient": (lambda x: wnp.where(x != 0, wnp.sin(x) / x, 1), 0),
    "power": (lambda x: wnp.where(x > 0, x**0.3, 0), 0),
    "arccos": (lambda x: wnp.where(x < 1, wnp.arccos(x), 0), 1),
    "arctanh": (lambda x: wnp.where(x < 1, wnp.arctanh(x), 3 * x), 1),
    "overflow": (lambda x: wnp.where(x < 80, x * wnp.exp(x), 2 * x), 1000),
    "nested": (lambda x: wnp.where(x > 0, wnp.where(x < 5, wnp.sqrt(x), wnp.log(x)), 0), 0),
    "select": (lambda x: wnp.select([x > 0, x < 0], [wnp.sqrt(x), wnp.sqrt(-x)], x), 0),
    "used twice": (lambda x: (lambda h: wnp.where(x > 0, h * h + wnp.sin(h), x))(wnp.sqrt(x)), 0),
    "in a call": (lambda x: wnp.where(x > 0, weft.jit(lambda v: wnp.sqrt(v) + 1)(x), 0), 0),
    "of a row": (lambda x: (lambda row: wnp.where(row > 0, wnp.sqrt(row), 0).sum())(x * wnp.array([1.0, 2.0])), 0),
    "complex": (lambda x: wnp.where(x > 0, wnp.log(x + 0j), x * (2 + 1j)).real, 0),
}


@pytest.mark.parametrize("name", GUARDED)
def test_what_a_choice_does_not_take_has_no_part_in_the_gradient(name: str) -> None:
    f, x = GUARDED[name]
    x = float(x)
    expected = float(weft.jacfwd(f)(x))  # forward mode chooses among tangents
    assert np.isfinite(expected)
    points = wnp.array([x, 0.5, x])
    inside = float(weft.grad(f)(0.5))
    for gradient in (weft.grad(f), weft.jit(weft.grad(f)), weft.grad(lambda v: weft.vmap(f)(v.reshape(1)).sum())):
        assert float(gradient(x)) == pytest.approx(expected)
    assert weft.vmap(weft.grad(f))(points).tolist() == pytest.approx([expected, inside, expected])


def test_an_infinite_derivative_that_is_taken_stays() -> None:
    assert float(weft.grad(lambda x: wnp.where(x >= 0, wnp.sqrt(x), 0))(0.0)) == np.inf
    assert float(weft.grad(lambda x: wnp.sqrt(wnp.where(x >= 0, x, 0)))(0.0)) == np.inf


def test_loops_whose_carry_is_linear_in_part_are_transposed() -> None:
    def counted(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, y: y * (i + 1.0) + x * (i + 1.0), wnp.zeros(3))

    def doubled(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            factor, total = carry
            return (factor * 2, total + x * factor), factor * x

        return lax.scan(body, (wnp.float32(1), x), None, length=3)

    for f in (counted, doubled):
        for g in (f, weft.jit(f), weft.vmap(f)):
            x = wnp.ones((2, 3)) if g is not f and not hasattr(g, "lower") else wnp.ones(3)
            y, pull = weft.vjp(g, x)
            cts = weft.tree.map(lambda leaf: wnp.arange(leaf.size, dtype=leaf.dtype).reshape(leaf.shape), y)
            if f is doubled:
                cts = ((wnp.zeros_like(y[0][0]), cts[0][1]), cts[1])
            np.testing.assert_allclose(weft.linear_transpose(g, x)(cts)[0], pull(cts)[0])


def test_linear_transpose() -> None:
    transposed = weft.linear_transpose(
        lambda x, y: {"a": x * 3 + y[0]}, weft.ShapeDtypeStruct((2,), np.float32), [wnp.ones(2)]
    )
    to_x, to_y = transposed({"a": wnp.ones(2)})
    assert to_x.tolist() == [3.0, 3.0] and to_y[0].tolist() == [1.0, 1.0]
    (to_n,) = weft.linear_transpose(lambda n: n * 3, 1)(2)
    assert to_n.dtype == np.int32 and int(to_n) == 6
    with pytest.raises(errors.MissingRuleError, match="`sin` has no transpose rule") as caught:
        weft.linear_transpose(wnp.sin, 1.0)(1.0)
    assert names_this_file(caught.value)
    with pytest.raises(errors.TangentMismatchError, match=r"f32\[3\] for a result of type f32\[2\]"):
        weft.linear_transpose(lambda x: x * 3, wnp.ones(2))(wnp.ones(3))


# -- Jacobians --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jacobian", [weft.jacfwd, weft.jacrev])
def test_jacobian_of_trees(jacobian) -> None:
    f = lambda p, y: {"o": p["a"] * p["b"], "q": wnp.sum(p["a"]) * y}
    found = jacobian(f, argnums=(0, 1))({"a": wnp.arange(2.0), "b": wnp.array(3.0)}, 2.0)
    to_p, to_y = found["o"]
    assert (
        to_p["a"].tolist() == [[3.0, 0.0], [0.0, 3.0]]
        and to_p["b"].tolist() == [0.0, 1.0]
        and to_y.tolist() == [0.0, 0.0]
    )
    to_p, to_y = found["q"]
    assert to_p["a"].tolist() == [2.0, 2.0] and float(to_p["b"]) == 0.0 and float(to_y) == 1.0


@pytest.mark.parametrize("jacobian", [weft.jacfwd, weft.jacrev])
def test_jacobian_with_auxiliary_results_and_matrices(jacobian) -> None:
    rows, aux = jacobian(lambda x: (x * x, wnp.sum(x)), has_aux=True)(wnp.arange(2.0))
    assert rows.tolist() == [[0.0, 0.0], [0.0, 2.0]] and float(aux) == 1.0
    transposed = np.asarray(jacobian(lambda x: x.T)(wnp.zeros((2, 3))))
    assert np.array_equal(transposed, np.einsum("ik,jl->ijlk", np.eye(3), np.eye(2)))


def test_hessian() -> None:
    assert weft.hessian(lambda x: wnp.sum(x**3))(wnp.arange(3.0)).tolist() == np.diag([0.0, 6.0, 12.0]).tolist()
    blocks = weft.hessian(lambda x, y: wnp.sum(x * x * y), argnums=(0, 1))(2.0, 3.0)
    assert [[float(b) for b in row] for row in blocks] == [[6.0, 4.0], [4.0, 0.0]]
    matrix, aux = weft.hessian(lambda x: (wnp.sum(x**3), x), has_aux=True)(wnp.ones(2))
    assert matrix.tolist() == [[6.0, 0.0], [0.0, 6.0]] and aux.tolist() == [1.0, 1.0]


def test_jacobians_need_floats() -> None:
    with pytest.raises(errors.IntegerInputGradientError, match="jacfwd requires real- or complex-valued inputs"):
        weft.jacfwd(lambda x: x * 2)(wnp.arange(3))
    with pytest.raises(TypeError, match="real floating-point results") as caught:
        weft.jacrev(lambda x: wnp.int32(x))(wnp.ones(3))
    assert names_this_file(caught.value)
    z = wnp.array([1 + 2j, 3j])
    with pytest.raises(TypeError, match="real floating-point arguments"):
        weft.jacfwd(lambda z: z * z)(z)
    for jacobian in (weft.jacfwd, weft.jacrev):
        assert np.allclose(jacobian(lambda z: z * z, holomorphic=True)(z), np.diag([2 + 4j, 6j]))


def test_arguments_must_be_functions() -> None:
    for transformation in (
        weft.grad,
        weft.value_and_grad,
        weft.jacfwd,
        weft.jacrev,
        weft.vmap,
        weft.jit,
        weft.checkpoint,
    ):
        with pytest.raises(TypeError, match=f"{transformation.__name__}: Expected a callable value, got 3") as caught:
            transformation(3)
        assert names_this_file(caught.value)


def test_arguments_without_a_meaning_here_are_refused() -> None:
    for call in (
        lambda: weft.grad(wnp.sin, reduce_axes=("batch",)),
        lambda: weft.vjp(wnp.sin, 1.0, reduce_axes=("batch",)),
        lambda: weft.linear_transpose(wnp.negative, 1.0, reduce_axes=("batch",)),
        lambda: weft.make_jaxpr(wnp.sin, abstracted_axes=("n",)),
    ):
        with pytest.raises(ValueError, match="axes"):
            call()


def test_vjp_of_arguments_without_leaves():
    value, pull = weft.vjp(lambda empty, x: 2 * x, {}, 3.0)
    assert (value, pull(1.0)) == (6.0, ({}, 2.0))
