"""Elementwise functions of `numpy` and `lax` against JAX: every name, over the dtypes it takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.peer.compare import check, rows

REAL_LINE = "sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 absolute fabs square negative positive cbrt sinc degrees radians deg2rad rad2deg"
POSITIVE = "log log2 log10 log1p sqrt reciprocal i0"
UNIT = "arcsin arccos arctanh asin acos atanh"
STEPS = "floor ceil trunc rint sign isnan isinf isfinite signbit isposinf isneginf logical_not spacing"
ANY = "real imag conj conjugate angle iscomplex isreal nan_to_num"
INTEGER = "invert bitwise_not bitwise_invert bitwise_count"

unary = [
    *(f"np.{name}(x)" for name in REAL_LINE.split()),
    *(f"np.{name}(p)" for name in POSITIVE.split()),
    *(f"np.{name}(unit)" for name in UNIT.split()),
    "np.arccosh(p + 1)",
]
other_types = [
    *(
        f"np.{name}({argument})"
        for name in (REAL_LINE + " " + POSITIVE).split()
        for argument in "ihb"
        if (name, argument) != ("negative", "b")
    ),
    *(
        f"np.{name}({argument})"
        for name in STEPS.split()
        for argument in "xihg"
        if name != "spacing" or argument in "xh"
    ),
    *(f"np.{name}({argument})" for name in ANY.split() for argument in "xihbc"),
    *(
        f"np.{name}({argument})"
        for name in INTEGER.split()
        for argument in "iunwb"
        if (name, argument) != ("bitwise_count", "b")
    ),
]
complex_unary = [
    f"np.{name}(c)"
    for name in "sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 absolute square negative positive log log2 log10 log1p sqrt reciprocal arcsin arccos arctanh sinc".split()
]

FLOAT_BINARY = "add subtract multiply divide true_divide maximum minimum fmax fmin arctan2 hypot logaddexp logaddexp2 remainder mod fmod copysign floor_divide heaviside nextafter power float_power pow"
COMPARE = "equal not_equal less less_equal greater greater_equal isclose"
LOGICAL = "logical_and logical_or logical_xor"
BITS = "bitwise_and bitwise_or bitwise_xor"
SHIFTS = "left_shift right_shift bitwise_left_shift bitwise_right_shift"

NOT_FLOAT_DIFFERENTIABLE = {"nextafter", "heaviside", "power", "float_power", "pow"}
binary_gradient = [
    *(f"np.{name}(x, y)" for name in FLOAT_BINARY.split() if name not in NOT_FLOAT_DIFFERENTIABLE),
    *(f"np.{name}(p, y)" for name in ("power", "float_power", "pow")),
    *(f"np.{name}(x, r)" for name in "add subtract multiply divide maximum minimum arctan2 hypot".split()),
    *(f"np.{name}(q, r)" for name in "add multiply divide power".split()[:3]),
]
binary_types = [
    *(f"np.{name}({pair})" for name in FLOAT_BINARY.split() for pair in ("x, 2", "3, h", "i, k", "u, k", "h, g")),
    *(f"np.{name}({pair})" for name in COMPARE.split() for pair in ("x, y", "i, k", "x, i", "h, 0.5", "b, b", "c, c")),
    *(f"np.{name}({pair})" for name in LOGICAL.split() for pair in ("x, i", "b, k", "b, True")),
    *(f"np.{name}({pair})" for name in BITS.split() for pair in ("i, k", "u, n", "b, b", "i, 3", "w, w")),
    *(f"np.{name}({pair})" for name in SHIFTS.split() for pair in ("i, k", "u, k", "n, 2", "w, 5")),
    *(f"np.{name}({pair})" for name in "gcd lcm".split() for pair in ("i, k", "u, u", "k, 6")),
    *(
        f"np.{name}({pair})"
        for name in "add subtract multiply divide power".split()
        for pair in ("c, x", "c, 2", "c, 1j", "i, 1j", "b, b")
        if (name, pair) not in {("subtract", "b, b"), ("power", "b, b")}
    ),
]

special = """
np.clip(x, -0.5, 0.5)
np.clip(i, -3, 3)
np.clip(i, min=2)
np.clip(x, max=r)
np.clip(u, 10, 200)
np.clip(x, None, None)
np.round(x)
np.round(x, 2)
np.round(x * 100, -1)
np.around(h)
np.divmod(x, y)
np.divmod(i, k)
np.divmod(u, k)
np.modf(x)
np.frexp(x)
np.frexp(h)
np.ldexp(x, k)
np.ldexp(r, j)
np.nan_to_num(nans, nan=1.5)
np.nan_to_num(np.array([onp.inf, -onp.inf, onp.nan, 1.0]), posinf=7.0)
np.isclose(x, x + 1e-7, rtol=1e-5, equal_nan=True)
np.isclose(nans, nans, equal_nan=True)
np.allclose(x, x + 1e-7)
np.angle(c, deg=True)
np.astype(x, onp.int32)
np.astype(i, onp.float16)
np.astype(c, onp.complex64, copy=True)
np.unwrap(x * 4)
np.unwrap(x * 4, axis=0, discont=3.5)
np.array_equal(x, x)
np.array_equal(nans, nans, equal_nan=True)
np.array_equal(x, r)
np.array_equiv(x, x)
np.array_equiv(np.stack([r, r]), r)
x ** 2
x ** -1
x ** 0.5
p ** y
2 ** x
2.0 ** i
i ** 2
i ** k
k ** 3
c ** 2
x // y
i // k
i % k
x % y
-i // 4
divmod(i, 4)
abs(c)
+x
~b
~i
i << 2
i >> 1
w >> 3
x < y
x == i
i != 3
x @ tall
(x > 0) & b
b | True
b ^ b
1 - x
1 / i
3 // k
5 % k
True + b
b + b
b * 3
b * 2.5
i * 2.5
i + True
h * 2
h + g
h + x
u + n
u + 1
n - 1
u * i
g * i
c + h
i / 2
i + onp.float32(2)
i * onp.int8(3)
x + onp.float64(2)
"""

powers = """
x ** 2
x ** 3
p ** -2
p ** y
p ** 2.5
2.0 ** y
np.power(x, 3)
np.float_power(p, y)
np.where(x > 0, x, y * 2)
np.clip(x, -0.5, 0.5)
np.nan_to_num(x)
np.sinc(x)
np.hypot(x, y)
np.logaddexp(x, y)
np.modf(x)
np.divmod(x, y)
np.fmod(x, y)
np.ldexp(x, k)
np.copysign(x, y)
np.maximum(x, 0.1)
np.angle(c)
np.absolute(c)
np.unwrap(x * 4)
np.sign(x)
np.round(x, 1)
np.frexp(x)[0]
"""

LAX_UNARY = (
    "abs sin cos tan atan sinh cosh tanh asinh exp exp2 expm1 logistic neg square erf erfc cbrt bessel_i0e bessel_i1e"
)
LAX_POSITIVE = "log log1p sqrt rsqrt lgamma digamma reciprocal"
LAX_UNIT = "asin acos atanh erf_inv"
LAX_STEPS = "floor ceil round sign is_finite"
lax_unary = [
    *(f"lax.{name}(x)" for name in LAX_UNARY.split()),
    *(f"lax.{name}(p)" for name in LAX_POSITIVE.split()),
    *(f"lax.{name}(unit)" for name in LAX_UNIT.split()),
    "lax.acosh(p + 1)",
    "lax.add(x, y)", "lax.sub(x, y)", "lax.mul(x, y)", "lax.div(x, y)", "lax.rem(x, y)", "lax.max(x, y)",
    "lax.min(x, y)", "lax.atan2(x, y)", "lax.pow(p, y)", "lax.pow(p, 3)", "lax.integer_pow(x, 3)",
    "lax.integer_pow(x, -2)", "lax.clamp(-0.5, x, 0.5)", "lax.clamp(y - 1, x, y + 1)", "lax.select(b, x, y)",
    "lax.select_n(b, x, y)", "lax.select_n(k % 3, x, y, p)", "lax.complex(x, y)", "lax.real(c)", "lax.imag(c)",
    "lax.conj(c)", "lax.stop_gradient(x) * y", "lax.reduce_precision(x, 5, 10)", "lax.igamma(1.5, p)",
    "lax.igamma(p, p + 0.5)", "lax.igammac(p, p + 0.5)", "lax.betainc(1.5, 2.0, (unit + 1) / 2)",
    "lax.convert_element_type(x, onp.float16)", "lax.convert_element_type(h, onp.float32)",
    "lax.polygamma(1.0, p)",
]  # fmt: skip
lax_types = [
    *(f"lax.{name}({argument})" for name in LAX_UNARY.split() for argument in "hg"),
    *(f"lax.{name}({argument})" for name in LAX_STEPS.split() for argument in "xh"),
    *(f"lax.{name}({argument})" for name in "abs neg sign".split() for argument in "in"),
    *(f"lax.{name}({argument})" for name in "population_count clz bitwise_not".split() for argument in "iunw"),
    *(f"lax.{name}({pair})" for name in "shift_left shift_right_arithmetic shift_right_logical".split() for pair in ("i, k", "w, w % 32", "n, n", "u, u")),
    *(f"lax.{name}({pair})" for name in "eq ne lt le gt ge".split() for pair in ("x, y", "i, k", "h, h")),
    *(f"lax.{name}({pair})" for name in "bitwise_and bitwise_or bitwise_xor".split() for pair in ("i, k", "b, b", "w, w")),
    *(f"lax.{name}({pair})" for name in "add sub mul div rem max min".split() for pair in ("i, k", "h, h", "x, 1.0", "2, i", "w, w + 1")),
    *(f"lax.{name}(c)" for name in "abs sin cos tan atan sinh cosh tanh asinh exp expm1 logistic neg square log log1p sqrt rsqrt reciprocal asin acos atanh sign conj real imag".split()),
    *(f"lax.{name}(c, c * 2)" for name in "add sub mul div pow eq ne".split()),
    "lax.mulhi(w, w)", "lax.mulhi(i * 10**8, k * 10**8)", "lax.nextafter(x, y)", "lax.round(x * 3, lax.RoundingMethod.TO_NEAREST_EVEN)",
    "lax.round(np.array([0.5, 1.5, 2.5, -0.5]))", "lax.round(np.array([0.5, 1.5, 2.5, -0.5]), lax.RoundingMethod.TO_NEAREST_EVEN)",
    "lax.bitcast_convert_type(x, onp.int32)", "lax.bitcast_convert_type(x, onp.uint8)", "lax.bitcast_convert_type(u, onp.uint32)",
    "lax.bitcast_convert_type(h, onp.int16)", "lax.convert_element_type(x, onp.int32)", "lax.convert_element_type(x * 100, onp.int8)",
    "lax.convert_element_type(i, onp.bool_)", "lax.convert_element_type(b, onp.float32)", "lax.convert_element_type(2.5, onp.float32)",
    "lax.convert_element_type(x, onp.complex64)", "lax.convert_element_type(i, onp.uint8)", "lax.convert_element_type(2, float)",
    "lax.clamp(0, i, 5)", "lax.clamp(onp.float32(0), x, onp.float32(1))", "lax.select(s > 0, x, y)", "lax.full_like(x, 3)",
    "lax.full_like(i, 2.7)", "lax.full((2, 3), 1.5)", "lax.full((2,), 7, onp.int8)", "lax.iota(onp.int32, 5)",
    "lax.broadcasted_iota(onp.float32, (2, 3), 1)", "lax.reduce_precision(x, 8, 3)", "lax.igamma_grad_a(p, p + 0.5)",
    "lax.random_gamma_grad(p, p + 0.3)", "lax.polygamma(2.0, p)", "lax.integer_pow(i, 3)", "lax.pow(x, 2)",
    "lax.pow(x, i)", "lax.zeta(3.5, p)",
]  # fmt: skip


@pytest.mark.parametrize("row", rows("\n".join(unary + binary_gradient) + powers, gradient=True))
def test_differentiable(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("\n".join(other_types + binary_types), batched=False))
def test_dtypes(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("\n".join(complex_unary), gradient=True, batched=False))
def test_complex(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows(special))
def test_special_forms(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("\n".join(lax_unary), gradient=True))
def test_lax_differentiable(row: Any) -> None:
    check(row)


@pytest.mark.parametrize("row", rows("\n".join(lax_types), batched=False))
def test_lax_dtypes(row: Any) -> None:
    check(row)
