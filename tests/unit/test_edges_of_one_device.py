"""Values and derivatives at edges: choices under calls and loops, parameters out of their domain, known indices."""

from __future__ import annotations

import itertools
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

import weft
import weft.numpy as wnp
from weft import lax
from weft.base.settings import check_static_indices, strict_indices
from weft.experimental import checkify
from weft.experimental.ode import odeint
from weft.scipy import linalg as sl, special, stats
from weft.test_util import check_grads


def choice(x: Any) -> Any:
    return wnp.where(x > 0, wnp.exp(wnp.sqrt(x)) * wnp.log(x), x**3)


WRAPPED = {
    "plain": choice,
    "jit": weft.jit(choice),
    "jit of jit": weft.jit(weft.jit(choice)),
    "jit of a case": weft.jit(lambda x: wnp.where(x > 0, weft.jit(lambda x: wnp.sqrt(x) * wnp.log(x))(x), x**3)),
    "jit of where": lambda x: weft.jit(wnp.where)(x > 0, wnp.sqrt(x), x**3),
    "nested jit of where": weft.jit(lambda x: weft.jit(wnp.where)(x > 0, wnp.sqrt(x), x**3)),
    "scan": lambda x: lax.scan(lambda c, _: (choice(c), None), x, None, length=1)[0],
    "fori_loop": lambda x: lax.fori_loop(0, 1, lambda _, c: choice(c), x),
    "cond": lambda x: lax.cond(x < 10, choice, lambda x: x, x),
    "checkpoint": weft.checkpoint(choice),
    "jit of checkpoint": weft.jit(weft.checkpoint(choice)),
    "a sum": weft.jit(lambda x: wnp.sum(choice(x * wnp.ones(2))) / 2),
    "vmap of jit": lambda x: weft.vmap(weft.jit(choice))(x * wnp.ones(2)).sum() / 2,
}


@pytest.mark.parametrize("name", WRAPPED)
def test_cases_that_are_not_taken_have_no_part_in_derivatives(name: str) -> None:
    f = WRAPPED[name]
    # x**3 at -1; a case that is not taken is NaN there, and so are its derivatives.
    np.testing.assert_allclose(weft.grad(f)(-1.0), 3.0, rtol=1e-6)
    for second in (weft.grad(weft.grad(f)), weft.jacfwd(weft.grad(f)), weft.jit(weft.grad(weft.grad(f)))):
        np.testing.assert_allclose(second(-1.0), -6.0, rtol=1e-6)
    np.testing.assert_allclose(weft.grad(weft.grad(weft.grad(f)))(-1.0), 6.0, rtol=1e-6)


@pytest.mark.parametrize("f", [special.xlogy, special.xlog1py, special.rel_entr, special.kl_div])
def test_hessians_at_zero_are_symmetric(f: Any) -> None:
    mixed = {"xlogy": 1 / 3, "xlog1py": 1 / 4}.get(f.__name__, -1 / 3)
    point = wnp.array([0.0, 3.0])
    for hessian in (weft.hessian, lambda g: weft.jacrev(weft.jacrev(g))):
        found = hessian(lambda v: f(v[0], v[1]))(point)
        np.testing.assert_allclose(found, [[0, mixed], [mixed, 0]], rtol=1e-6)


def test_the_rising_factorial_has_a_derivative_at_zero() -> None:
    found = weft.grad(special.poch, argnums=1)(wnp.array(2.0), wnp.array(0.0))
    np.testing.assert_allclose(found, scipy.special.digamma(2.0), rtol=1e-5)


def test_spherical_harmonics_at_angles_out_of_their_range() -> None:
    n, m = wnp.array([1, 1, 2, 3]), wnp.array([1, -1, 1, -3])
    for theta in (-2.0, 4.0, 7.0):
        found = special.sph_harm_y(n, m, wnp.full(4, theta), wnp.full(4, 0.7), n_max=3)
        expected = scipy.special.sph_harm_y(np.asarray(n), np.asarray(m), theta, 0.7)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


DISTRIBUTIONS = {
    "bernoulli": 1, "beta": 2, "betabinom": 3, "binom": 2, "chi2": 1, "gamma": 1, "gennorm": 1, "geom": 1,
    "nbinom": 2, "pareto": 1, "poisson": 1, "t": 1, "truncnorm": 2, "vonmises": 1, "wrapcauchy": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_parameters_out_of_their_domain_are_nan(name: str) -> None:
    module = getattr(stats, name)
    values = [-1.0, -0.5, 0.0, 0.3, 1.0, 2.0, np.nan]
    columns = np.array(list(itertools.product(values, repeat=DISTRIBUTIONS[name] + 1))).T
    for function in module.__all__:
        if function == "entropy":
            continue
        found = np.asarray(getattr(module, function)(*columns))
        with np.errstate(all="ignore"):
            expected = getattr(getattr(scipy.stats, name), function)(*columns)
        outside = np.isnan(expected)
        if name == "vonmises":  # SciPy takes 0 for a concentration, JAX does not
            outside |= columns[1] == 0
        np.testing.assert_array_equal(np.isnan(found), outside, f"{name}.{function}")


def test_known_indices_are_reported() -> None:
    for f in (lambda x: x[5], lambda x: x[wnp.array([0, 5])], lambda x: x.at[5].add(1)):
        run = checkify.checkify(f, errors=checkify.index_checks)
        for call in (run, weft.jit(run)):
            assert "index 5 is out of bounds" in call(wnp.ones(2))[0].get()
        assert checkify.checkify(f)(wnp.ones(2))[0].get() is None
    with strict_indices(False), check_static_indices(True), pytest.raises(IndexError):
        wnp.zeros((2, 3))[:, 4]


def test_arguments_of_checkify_stay_known() -> None:
    f = checkify.checkify(lambda n, x: x * wnp.ones(n))
    np.testing.assert_array_equal(weft.jit(f, static_argnums=0)(3, 2.0)[1], [2, 2, 2])
    np.testing.assert_array_equal(f(3, 2.0)[1], [2, 2, 2])


def test_solvers_close_over_what_is_differentiated() -> None:
    def solve(a: Any, b: Any) -> Any:
        factors = sl.cho_factor(a)
        cho = lambda f, b: sl.cho_solve(factors, b)
        inner = lambda g, b: lax.custom_linear_solve(g, b, cho, symmetric=True)
        return lax.custom_root(lambda x: a @ x - b, b, cho, inner)

    a, b = wnp.array([[2.0, 0.5], [0.5, 1.0]]), wnp.array([1.0, 2.0])
    for transform in (lambda g: g, weft.jit):
        found = transform(weft.grad(lambda a, b: solve(a, b).sum(), (0, 1)))(a, b)
        expected = weft.grad(lambda a, b: wnp.linalg.solve(a, b).sum(), (0, 1))(a, b)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_auxiliary_results_of_solvers_may_be_numpy_arrays() -> None:
    solve = lambda mv, b: (b / 2.0, {"iterations": np.array(3.0)})
    f = lambda b: lax.custom_linear_solve(lambda x: 2.0 * x, b, solve, solve, symmetric=True, has_aux=True)[0].sum()
    np.testing.assert_array_equal(weft.grad(f)(wnp.array([1.0, 2.0])), [0.5, 0.5])


def test_dynamics_may_return_a_list_for_a_vector() -> None:
    found = odeint(lambda y, t: [y[1], -y[0]], wnp.array([1.0, 0.0]), wnp.array([0.0, 1.0]))
    np.testing.assert_allclose(found[1], [np.cos(1.0), -np.sin(1.0)], rtol=1e-5)


def test_tolerances_by_dtype() -> None:
    limits = {np.dtype("float32"): 1e-2}
    check_grads(wnp.sin, (1.0,), 1, atol=limits, rtol=limits)
    with pytest.raises(AssertionError):
        check_grads(wnp.sin, (1.0,), 1, atol={np.float32: 0.0}, rtol={np.float32: 0.0})


def test_trapezoid_over_positions_of_lower_rank() -> None:
    y, x = np.arange(60.0).reshape(2, 3, 10), np.arange(30.0).reshape(3, 10) ** 2
    np.testing.assert_allclose(wnp.trapezoid(y, x, axis=-2), np.trapezoid(y, x, axis=-2))


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0], dtype=np.float32)


@pytest.mark.parametrize(
    "function",
    [
        wnp.asarray,
        wnp.sum,
        lax.sin,
        weft.jit(lambda x: x * 2),
        weft.grad(wnp.sum),
        weft.vmap(lambda x: x),
        weft.device_put,
        lambda m: wnp.ones(3) + m,
        lambda m: wnp.array([m, m]),
        lambda m: wnp.array(m, dtype=int),
        lambda m: wnp.zeros(3).at[:].set(m),
        lambda m: lax.scan(lambda c, x: (c, x), 0.0, m),
        lambda m: wnp.ones(5)[m.astype(int)],
    ],
)
def test_masked_arrays_are_refused(function: Any) -> None:
    function(np.zeros(3, np.float32))  # compiled code of the type must not accept one either
    with pytest.raises(ValueError, match="its mask would be lost"):
        function(MASKED)


def test_arrays_in_the_other_byte_order() -> None:
    for kind in (">f4", ">i4"):
        x = np.arange(3).astype(kind)
        native = x.astype(x.dtype.newbyteorder("="))
        for f in (lambda x: x + wnp.ones(3), lambda x: lax.add(x, x), lambda x: wnp.dot(x, x), lambda x: wnp.sum(x)):
            np.testing.assert_array_equal(f(x), f(native))
        np.testing.assert_array_equal(weft.jit(lambda x: x * 2)(x), native * 2)
        assert wnp.result_type(x, kind, native) == native.dtype
    assert wnp.promote_types(">f4", "f4") == np.float32


def test_positions_beyond_31_bits() -> None:
    large = weft.ShapeDtypeStruct((2**31 + 10,), np.int8)
    i = weft.ShapeDtypeStruct((), np.int32)
    for f in (lambda x, i: x[i], lambda x, i: lax.dynamic_slice(x, (i,), (1,))[0], lambda x, i: x[i[None]][0]):
        assert weft.eval_shape(f, large, i).shape == ()
    assert weft.eval_shape(lambda x, i: x.at[i].set(1), large, i).shape == large.shape
    text = str(weft.make_jaxpr(lambda x, i: x[i])(large, i))
    assert str(2**31 + 10) in text
    with pytest.raises(ValueError, match="needs positions of 64 bits"):
        weft.eval_shape(wnp.argmax, large)


def test_transfer_guards_are_about_values_of_the_user() -> None:
    with weft.transfer_guard("disallow_explicit"):
        np.testing.assert_array_equal(wnp.arange(3) + wnp.arange(1, 4), [1, 3, 5])
        assert weft.jit(lambda: wnp.asarray(np.arange(3)))().shape == (3,)
        with pytest.raises(Exception, match="Disallowed host-to-device"):
            wnp.asarray(np.arange(3))


def test_no_frames_of_python_above_those_of_a_program(tmp_path: pathlib.Path) -> None:
    (tmp_path / "f.py").write_text("import jax.numpy as jnp\njnp.ones(2) + jnp.ones(3)\n")
    found = subprocess.run([sys.executable, "-m", "weft.as_jax", "f.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "ShapeMismatchError" in found.stderr and "runpy" not in found.stderr, found.stderr


def test_a_module_below_a_package_is_suggested() -> None:
    with pytest.raises(AttributeError, match=r"did you mean weft\.interpreters\.batching\?"):
        _ = weft.batching


def test_transpose_of_a_product_of_unknowns_is_refused() -> None:
    for f in (lambda x: x * x, lambda x: x @ x):
        with pytest.raises(weft.errors.MissingRuleError, match="is not linear"):
            weft.linear_transpose(f, wnp.ones(3))(wnp.ones(3) if f(wnp.ones(3)).ndim else 1.0)


def test_after_all_takes_tokens() -> None:
    with pytest.raises(TypeError, match="must be tokens"):
        lax.after_all(wnp.ones(0))
    assert lax.after_all(lax.create_token(), lax.create_token()).shape == (0,)
