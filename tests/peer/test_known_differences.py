"""Deliberate differences from JAX: each row still differs, and its reason is written next to it."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as onp
import pytest

import weft
from tests.peer.compare import INPUTS, NAMESPACES, assert_same

KNOWN_DIFFERENCES = {
    # Silent wrong answers become errors.
    "x[5]": "an index known to be out of bounds raises instead of being clamped",
    "x.at[7].set(1.0)": "an update known to be out of bounds raises instead of being dropped",
    "np.asarray(onp.int64(2**40))": "a number that does not fit into 32 bits raises instead of wrapping",
    "np.asarray(onp.float64(1e300))": "a finite number that would become infinite raises",
    "i.at[0].set(7.9)": "writing a fraction into integers raises instead of truncating with a warning",
    # Derivatives that exist are given.
    "lib.grad(lambda v: np.sum(np.sign(v)).real)(c)": "z / |z| has a derivative, JAX says zero",
    "lib.grad(lambda v: np.sum(np.arccosh(v)).real)(c)": "JAX has the wrong sign in the left half-plane",
    "lib.grad(lambda v: lax.while_loop(lambda w: w < 9, lambda w: w * 2, v))(2.0)": "reverse mode through while",
    "lib.grad(lambda v: lax.zeta(3.5, v).sum())(p)": "JAX has no rule for zeta",
    "lib.grad(lambda v: v.at[0].apply(np.sin).sum())(x)": "JAX has no rule for apply",
    "lib.grad(lambda v: scipy_linalg.cholesky(v).sum())(spd)": "only one triangle is read, so only it has a gradient",
    "lib.grad(lambda v: v[0] ** v[1])(np.zeros(2))": "0 ** 0 has the derivative 0 in its base, JAX says nan",
    "lib.grad(lambda v: lib.vmap(lambda e: lax.cond(e > 0, lambda e: lax.psum(e, 'i') * e, lambda e: e, e), "
    "axis_name='i')(v).sum())(np.array([1.0, -1.0]))": "what a lane sends counts, whether it takes the branch or not",
    "lax.fori_loop(0.0, 2.5, lambda i, c: c + i, 1.0)": "the same under jit; JAX has one iteration less outside of it",
    # More exact, or as NumPy has it.
    "np.around(h, 1)": "rounding of bfloat16 is done in float32",
    "np.r_['0,3,1', m, m]": "the old axes begin at 1, as in NumPy",
    "np.frexp(np.float32(1e-45))": "the exponent of the least number is -148, as in NumPy",
    "linalg.cond(np.zeros((2, 2)))": "a singular matrix has an infinite condition number, as in NumPy",
    "np.sinc(i)": "sin(pi x) is 0 for integers",
    "np.maximum(onp.complex64(onp.nan), onp.complex64(1))": "nan wins",
    "lib.grad(linalg.det)(np.diag(onp.float32([0, 1, 2, 3])))": "the cofactor of the zero is 6",
    "lax.is_finite(1.0)": "no boolean is weakly typed: there is nothing that it could give way to",
    # Accepted where JAX refuses.
    "np.multiply(2**100, 3.0)": "an integer takes the float dtype that it meets, which holds it",
    "np.arange(4.0)[:, None] * 2**40": "an integer takes the float dtype that it meets, which holds it",
    "np.round(i, -1)": "integers may be rounded to tens",
    "np.fromiter([1, 2, 3], dtype=onp.int32)": "JAX refuses",
    # The same values in the documented container.
    "lib.lax.linalg.lu(m)": "a tuple, as the signature says; JAX returns a list",
    "np.array_repr(x)": "the class is called Array, not ArrayImpl",
}


def outcome(library: str, text: str) -> Any:
    """Return the value of a row, or the class of the error it raises."""
    lib = {"weft": weft, "jax": jax}[library]
    names = {name: lib.numpy.asarray(value) for name, value in INPUTS.items()}
    try:
        return eval(text, {**NAMESPACES[library], **names})
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("text", KNOWN_DIFFERENCES)
def test_still_differs(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = outcome("weft", text), outcome("jax", text)
    with pytest.raises(AssertionError):
        assert_same(ours, theirs, rtol=1e-4)


def test_complex_arccosh_has_the_derivative_of_finite_differences() -> None:
    points = onp.array([-1.5 + 0.5j, -0.3 - 2j, 2 + 1j], onp.complex64)
    ours = onp.asarray(weft.vmap(weft.grad(weft.numpy.arccosh, holomorphic=True))(points))
    step = 1e-6
    wide = points.astype(onp.complex128)
    onp.testing.assert_allclose(ours, (onp.arccosh(wide + step) - onp.arccosh(wide - step)) / (2 * step), rtol=1e-4)
