"""Taylor series of functions, against derivatives of derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental.jet import jet

TERMS = (1.1, 0.5, -0.3)
MATRIX = np.array([[2.0, 0.3], [-0.4, 1.0]])


def expected(function: Callable[[Any], Any], x: Any, terms: Any) -> list[Any]:
    """Return the value and derivatives of the function along the curve, one forward mode in the other."""

    def along(t: Any) -> Any:
        return function(sum((c * t**k / math.factorial(k) for k, c in enumerate(terms, 1)), x))

    out = []
    for _ in range(len(terms) + 1):
        out.append(along(0.0))
        along = lambda t, before=along: weft.jvp(before, (t,), (1.0,))[1]
    return out


UNARY = "sin cos tan asin acos atan sinh cosh tanh asinh atanh exp exp2 expm1 log log1p sqrt".split()  # noqa: SIM905
UNARY += "rsqrt cbrt logistic square erf erfc erf_inv lgamma digamma".split()  # noqa: SIM905
UNARY += ["bessel_i0e", "bessel_i1e", "abs", "sign", "floor", "round", "neg", "reciprocal"]
OTHERS: dict[str, Callable[[Any], Any]] = {
    "acosh": lambda x: lax.acosh(x + 1),
    "power": lambda x: x**2.5 + 2.0**x + x**3,
    "power of both": lambda x: x ** (x * 2),
    "quotients": lambda x: (x + 1) / (x * x + 2) + 1 / x,
    "atan2": lambda x: wnp.arctan2(x, 2 * x * x),
    "max and min": lambda x: wnp.maximum(x, 0.2) * wnp.minimum(x, 2.0) + wnp.clip(x, 0.1, 3.0),
    "select": lambda x: wnp.where(x > 0.5, wnp.sin(x), x),
    "remainder": lambda x: x % 0.4,
    "igamma": lambda x: lax.igamma(1.5, x),
    "stack, sort and reductions": lambda x: (
        wnp.max(wnp.sort(wnp.stack([x, 1 - x, 2 * x]))) + wnp.prod(wnp.stack([x, x]))
    ),
    "cumulative": lambda x: wnp.cumprod(wnp.stack([x, x + 1])) + wnp.cumsum(wnp.stack([x, x * x])),
    "movement": lambda x: wnp.pad(wnp.broadcast_to(x, (2, 3)).T.reshape(6)[1:4], 1)[np.array([2, 0])],
    "update": lambda x: wnp.zeros(3).at[np.array([0, 0, 2])].add(wnp.stack([x, x * x, x])),
    "products": lambda x: wnp.dot(x * MATRIX, MATRIX + x * x),
    "convolution": lambda x: wnp.convolve(x * MATRIX[0], MATRIX[1] + x),
    "solution": lambda x: wnp.linalg.solve(MATRIX + x, MATRIX[0] * x),
    "determinant": lambda x: wnp.linalg.det(MATRIX + x * x),
    "fft": lambda x: wnp.abs(wnp.fft.fft(wnp.stack([x, x * x, 2.0 + x]))),
    "softmax": lambda x: weft.nn.softmax(wnp.stack([x, x * x])),
    "relu": weft.nn.relu,
    "gelu": weft.nn.gelu,
    "logaddexp": lambda x: wnp.logaddexp(x, x * x),
    "jit": weft.jit(lambda x: wnp.sin(x) * x),
    "grad": weft.grad(lambda x: wnp.sin(x) * x),
    "checkpoint": weft.checkpoint(lambda x: wnp.sin(x) * x),
    "cond": lambda x: lax.cond(x > 0, wnp.sin, wnp.cos, x),
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, s: s * x, x),
    "while_loop": lambda x: lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * x, s[1] + 1), (x, 0))[0],
    "scan": lambda x: lax.scan(lambda c, _: (c * x, c), x, None, length=2)[1],
}


@pytest.mark.parametrize("name", [*UNARY, *OTHERS])
def test_series(name: str) -> None:
    function = OTHERS.get(name) or getattr(lax, name)
    with weft.enable_x64(True):
        x = np.float64(0.37)
        value, terms = jet(function, (x,), (TERMS,))
        for k, (got, want) in enumerate(zip([value, *terms], expected(function, x, TERMS), strict=True)):
            np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7, err_msg=f"derivative {k}")


def test_complex_numbers() -> None:
    x, terms = np.complex64(0.3 + 0.2j), (np.complex64(1 - 1j), np.complex64(0.5j))
    function = lambda z: wnp.exp(z) * z + wnp.real(z) ** 2
    value, found = jet(function, (x,), (terms,))
    for got, want in zip([value, *found], expected(function, x, terms), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


def test_several_arguments_trees_and_constants() -> None:
    value, series = jet(
        lambda d, y: {"product": d["a"] * d["b"] * y, "three": 3.0},
        ({"a": 1.0, "b": 2.0}, np.float32(3)),
        ([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}], [0.0, 0.0]),
    )
    assert float(value["product"]) == 6 and [float(t) for t in series["product"]] == [6.0, 3.0]
    assert [float(t) for t in series["three"]] == [0.0, 0.0]
    assert jet(wnp.sin, (1.0,), ([],))[1] == []


def test_coefficients() -> None:
    _, derivatives = jet(wnp.exp, (0.0,), ([1.0, 0.0, 0.0],))
    _, coefficients = jet(wnp.exp, (0.0,), ([1.0, 0.0, 0.0],), factorial_scaled=False)
    np.testing.assert_allclose(derivatives, [1, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(coefficients, [1, 1 / 2, 1 / 6], rtol=1e-6)


def test_under_transformations() -> None:
    third = lambda x: jet(lambda v: wnp.sin(2 * v), (x,), ([1.0, 0.0, 0.0],))[1][2]
    xs = np.array([0.3, 1.2], np.float32)
    np.testing.assert_allclose(weft.jit(weft.vmap(third))(xs), -8 * np.cos(2 * xs), rtol=1e-4)
    np.testing.assert_allclose(weft.vmap(weft.grad(third))(xs), 16 * np.sin(2 * xs), rtol=1e-4)
    series = [np.ones(2, np.float32), np.zeros(2, np.float32)]
    within = lambda x: jet(weft.grad(lambda v: wnp.sum(v**4)), (x,), (series,))[1][1]
    np.testing.assert_allclose(within(xs), 24 * xs, rtol=1e-4)


def test_the_work_is_polynomial_in_the_order() -> None:
    counts = []
    for order in (4, 8):
        function = lambda x, order=order: jet(lambda v: wnp.sin(wnp.exp(v)), (x,), ([1.0] + [0.0] * (order - 1),))
        counts.append(len(weft.make_jaxpr(function)(0.5).eqns))
    assert counts[1] < 9 * counts[0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: jet(wnp.sin, 1.0, ((1.0,),)), "primals as a tuple"),
        (lambda: jet(wnp.add, (1.0, 2.0), ((1.0,),)), "for each of the primals"),
        (lambda: jet(wnp.add, (1.0, 2.0), ((1.0,), (1.0, 2.0))), "inconsistent lengths"),
        (lambda: jet(wnp.sin, (np.ones(2),), ([np.ones(3)],)), "shape and dtype"),
        (lambda: jet(wnp.sin, ([1.0],), ([1.0],)), "structure of its primal"),
        (lambda: jet(wnp.sin, (1,), ([1.0],)), "real or complex"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        call()
