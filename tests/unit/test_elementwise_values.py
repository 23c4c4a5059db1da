"""Elementwise operations against NumPy and SciPy in float64, at ordinary and edge values; and their public API."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import weft
from weft import lax
from weft.base.errors import MissingRuleError, ShapeMismatchError
from weft.base.settings import enable_x64
from weft.ir import interpreter
from weft.ir.primitive import lookup
from weft.primitives.random.bits import FRY, random_wrap

bfloat16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(d) for d in (np.float32, np.float16, bfloat16, np.float64)]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.75, 1e-3, -1e-3, 10.0, -10.0, np.inf, -np.inf, np.nan]
INTEGERS = np.array([0, 1, -1, 2, -2, 7, -7, 2**31 - 1, -(2**31)], np.int32)
PAIRS = [a.ravel() for a in np.meshgrid(INTEGERS, INTEGERS)]
COMPLEX = np.array([1 + 2j, -1.5 + 0.25j, 0.25 - 0.75j, 3j, 2 - 1j], np.complex64)


def away_from_zero(x: Any) -> Any:
    return np.where(np.isfinite(x), np.trunc(x + np.copysign(0.5, x)), x)


UNARY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": special.expit,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "square": np.square,
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erfinv,
    "bessel_i0e": special.i0e,
    "bessel_i1e": special.i1e,
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x)),
    "digamma": lambda x: np.where(x == 0, np.nan, special.psi(x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": away_from_zero,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
}
COMPLEX_UNARY = [
    *(
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "square",
        "reciprocal",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
    ),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "neg", "abs"),
]


def agree(found: Any, expected: Any, ulps: float = 4.0, scale: float = 0.0) -> None:
    """`found` is `expected` (in float64) rounded to its dtype, up to a few units in the last place; or of `scale`, for
    functions with zeros near which only the absolute error is small."""
    dtype = np.asarray(found).dtype
    limits = ml_dtypes.finfo(dtype)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        expected = np.asarray(expected).astype(dtype).astype(wide)
    unit = ulps * float(limits.eps)
    least = max(float(limits.tiny), scale * unit)
    np.testing.assert_allclose(np.asarray(found).astype(wide), expected, rtol=unit, atol=least, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_float_functions(name: str, dtype: Any) -> None:
    with enable_x64(dtype == np.float64), np.errstate(all="ignore"):
        x = np.array(EDGES).astype(dtype)
        found = getattr(lax, name)(x)
        assert found.dtype == dtype and found.shape == x.shape
        agree(found, UNARY[name](x.astype(np.float64)), scale=float(name == "lgamma"))


@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_complex_functions(name: str) -> None:
    found = getattr(lax, name)(COMPLEX)
    assert found.dtype == (np.float32 if name == "abs" else np.complex64)
    with np.errstate(all="ignore"):
        agree(found, UNARY[name](COMPLEX.astype(np.complex128)), 16)


INF, NAN, MOST, LEAST = np.inf, np.nan, 1.7976931348623157e308, 5e-324
# A function, a complex number of float64, and what it is there: to the sign of a zero.
COMPLEX_EDGES = [
    ("sign", complex(-MOST, -MOST), complex(-(0.5**0.5), -(0.5**0.5))),
    ("sign", complex(LEAST, -LEAST), complex(0.5**0.5, -(0.5**0.5))),
    ("sign", complex(0, -LEAST), complex(0, -1)),
    ("expm1", complex(720, LEAST), complex(INF, 2.431149283102415e-11)),
    ("log1p", complex(2e-300, 0), complex(2e-300, 0)),
    ("log1p", complex(MOST, MOST), complex(710.1292864836639, np.pi / 4)),
    ("sinh", complex(720, -LEAST), complex(INF, -1.2155746415512075e-11)),
    ("cosh", complex(720, LEAST), complex(INF, 1.2155746415512075e-11)),
    ("sinh", complex(0.0, 3), complex(-0.0, np.sin(3))),
    ("sin", complex(3, 0.0), complex(np.sin(3), -0.0)),
    ("cosh", complex(0.0, 1e6), complex(np.cos(1e6), -0.0)),
    ("cos", complex(1e6, -0.0), complex(np.cos(1e6), -0.0)),
    ("sinh", complex(-INF, NAN), complex(-INF, NAN)),
    ("sinh", complex(-INF, INF), complex(-INF, NAN)),
    ("sin", complex(NAN, -INF), complex(NAN, -INF)),
    ("cosh", complex(-INF, INF), complex(INF, NAN)),
    ("tanh", complex(90, INF), complex(NAN, NAN)),
    ("tanh", complex(INF, NAN), complex(1, 0.0)),
    ("tanh", complex(NAN, -0.0), complex(NAN, -0.0)),
    ("asin", complex(MOST / 2, MOST), complex(0.4636476090008061, 710.587431849601)),
    ("asinh", complex(MOST, MOST), complex(710.8224336642238, np.pi / 4)),
    ("acos", complex(-0.0, NAN), complex(np.pi / 2, NAN)),
    ("acosh", complex(-MOST, -MOST), complex(710.8224336642238, -3 * np.pi / 4)),
    ("atanh", complex(1, LEAST), complex(372.56660955097055, np.pi / 4)),
    ("atanh", complex(-INF, NAN), complex(-0.0, NAN)),
    ("atanh", complex(NAN, -INF), complex(0.0, -np.pi / 2)),
    ("exp", complex(-INF, -INF), complex(0.0, 0.0)),
    ("square", complex(MOST, MOST), complex(NAN, INF)),
    ("logistic", complex(-MOST, 1.0), complex(0.0, 0.0)),
    ("logistic", complex(-MOST, -2.0), complex(0.0, -0.0)),
    ("logistic", complex(-INF, 2.0), complex(0.0, 0.0)),
    ("logistic", complex(-INF, NAN), complex(0.0, 0.0)),
    ("logistic", complex(INF, NAN), complex(1.0, 0.0)),
]  # fmt: skip


def test_complex_edges() -> None:
    """Compiled, and by the interpreter."""
    with enable_x64(True), np.errstate(all="ignore"):
        for name, x, expected in COMPLEX_EDGES:
            function = getattr(lax, name)
            jaxpr = weft.make_jaxpr(function)(np.array([x]))
            for found in (
                np.asarray(weft.jit(function)(np.array([x])))[0],
                interpreter.run(jaxpr, [np.array([x])])[0][0],
            ):
                for a, b in ((found.real, expected.real), (found.imag, expected.imag)):
                    np.testing.assert_allclose(a, b, rtol=1e-15, err_msg=f"{name}({x})")
                    assert np.isnan(b) or np.signbit(a) == np.signbit(b), f"{name}({x}) = {found}"


def test_complex64_is_computed_in_complex128() -> None:
    """Angles of large numbers, and magnitudes beyond the largest float32, keep their digits."""
    x = np.array([3 + 720j, 1e4 - 3e38j, -3e38 - 3e38j, 1e-45 + 2e-45j, 1e-3 + 65504j], np.complex64)
    for name in ("exp2", "sign", "log1p", "sinh", "rsqrt"):
        function = getattr(lax, name)
        with enable_x64(True):
            exact = np.asarray(weft.jit(function)(x.astype(np.complex128)))
        with np.errstate(all="ignore"):
            agree(weft.jit(function)(x), exact, 2)
            agree(interpreter.run(weft.make_jaxpr(function)(x), [x])[0], exact, 2)


def test_complex_angles_do_not_overflow() -> None:
    with enable_x64(True):
        for size in (1e200, 1e-200):
            y, x = np.array([3 + 1j]), np.array([4 - 2j])
            found = weft.jit(lax.atan2)(y * size, x * size)
            agree(found, -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)), 16)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("neg", "abs", "sign", "square", "reciprocal")])
def test_float_functions_refuse_integers(name: str) -> None:
    with pytest.raises(TypeError, match="does not accept dtype int32"):
        getattr(lax, name)(np.array([1, 2], np.int32))


def test_zeros_keep_their_sign() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    for name in ("sign", "sin", "tanh", "erf_inv", "bessel_i1e", "cbrt", "expm1", "log1p", "ceil"):
        assert np.signbit(getattr(lax, name)(zeros)).tolist() == [False, True], name


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "atan2": np.arctan2,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_float_pairs(name: str, dtype: Any) -> None:
    with enable_x64(dtype == np.float64), np.errstate(all="ignore"):
        x, y = (a.ravel().astype(dtype) for a in np.meshgrid(EDGES, EDGES))
        found = getattr(lax, name)(x, y)
        assert found.dtype == dtype
        agree(found, BINARY[name](x.astype(np.float64), y.astype(np.float64)))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32], ids=lambda d: d.__name__
)
def test_integer_arithmetic_wraps(dtype: Any) -> None:
    x, y = (a.astype(dtype) for a in PAIRS)
    bits = np.dtype(dtype).itemsize * 8
    for name, function in {"add": operator.add, "sub": operator.sub, "mul": operator.mul}.items():
        expected = [function(int(a), int(b)) for a, b in zip(x, y, strict=True)]
        found = np.asarray(getattr(lax, name)(x, y))
        assert found.dtype == dtype
        assert [(int(f) - e) % 2**bits for f, e in zip(found, expected, strict=True)] == [0] * len(x), name


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32], ids=lambda d: d.__name__)
def test_integer_division_truncates(dtype: Any) -> None:
    x, y = (a.astype(dtype) for a in PAIRS)
    bits = np.dtype(dtype).itemsize * 8
    quotients, rests = np.asarray(lax.div(x, y)), np.asarray(lax.rem(x, y))
    for a, b, quotient, rest in zip(x.tolist(), y.tolist(), quotients.tolist(), rests.tolist(), strict=True):
        if b == 0:
            assert (quotient + 1) % 2**bits == 0 and rest == a
            continue
        exact = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        assert (quotient - exact) % 2**bits == 0, (a, b)  # the most negative number by -1 wraps
        assert rest == a - b * exact, (a, b)


@pytest.mark.parametrize("exponent", range(-4, 8))
def test_integer_pow(exponent: int) -> None:
    x = np.array(EDGES, np.float32)
    with np.errstate(all="ignore"):
        agree(lax.integer_pow(x, exponent), x.astype(np.float64) ** float(exponent), 8)
    if exponent < 0:
        with pytest.raises(TypeError, match="negative power"):
            lax.integer_pow(INTEGERS, exponent)
    else:
        found = np.asarray(lax.integer_pow(INTEGERS, exponent)).tolist()
        assert [(f - int(i) ** exponent) % 2**32 for f, i in zip(found, INTEGERS, strict=True)] == [0] * len(found)


def test_pow_with_integer_exponents() -> None:
    x = np.array([2.0, -3.0, 0.5, 0.0], np.float32)
    agree(lax.pow(x, np.array([3, 3, -2, 0], np.int32)), [8, -27, 4, 1])
    agree(lax.pow(x, 2), [4, 9, 0.25, 0])
    with pytest.raises(TypeError, match="pow"):
        lax.pow(INTEGERS, INTEGERS)


def test_extremes_and_comparisons_with_nan() -> None:
    x, y = np.array([np.nan, 1, np.nan, 2], np.float32), np.array([1, np.nan, np.nan, 2], np.float32)
    assert np.isnan(lax.max(x, y)).tolist() == [True, True, True, False]
    assert np.isnan(lax.min(x, y)).tolist() == [True, True, True, False]
    for name in ("eq", "lt", "le", "gt", "ge"):
        assert not np.asarray(getattr(lax, name)(x, y))[:3].any()
    assert np.asarray(lax.ne(x, y)).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint32, np.float16, bfloat16, np.float32], ids=lambda d: np.dtype(d).name
)
def test_comparisons(dtype: Any) -> None:
    x, y = np.array([0, 1, 1, 3]).astype(dtype), np.array([1, 0, 1, 2]).astype(dtype)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        found = getattr(lax, name)(x, y)
        assert found.dtype == np.bool_
        assert np.asarray(found).tolist() == getattr(operator, name)(wide_x, wide_y).tolist(), name


def test_complex_numbers_have_extremes_but_no_order() -> None:
    with pytest.raises(TypeError, match="complex"):
        lax.lt(COMPLEX, COMPLEX)
    assert complex(lax.max(np.complex64(1 + 5j), np.complex64(1 + 7j))) == 1 + 7j
    assert np.asarray(lax.eq(COMPLEX, COMPLEX)).all()


def keys_of(*seeds: int) -> Any:
    words = np.array(seeds, np.uint32)
    return random_wrap(np.stack([np.zeros_like(words), words], axis=-1), impl=FRY)


def test_keys_compare_and_are_chosen() -> None:
    keys = keys_of(0, 1, 0)
    assert np.asarray(lax.eq(keys, keys_of(0, 0, 0))).tolist() == [True, False, True]
    chosen = lax.select(np.array([True, False, True]), keys, keys_of(5, 5, 5))
    assert np.asarray(lax.eq(chosen, keys_of(0, 5, 0))).all()
    with pytest.raises(TypeError):
        lax.lt(keys, keys)
    with pytest.raises(TypeError, match="key_data"):
        lax.convert_element_type(keys, np.float32)
    assert lax.convert_element_type(keys, FRY) is keys


# ------------------------------------------------------------------------------------------------------------ bits


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32], ids=lambda d: d.__name__)
def test_bits(dtype: Any) -> None:
    x, y = (a.astype(dtype) for a in PAIRS)
    bits, mask = np.dtype(dtype).itemsize * 8, 2 ** (np.dtype(dtype).itemsize * 8) - 1
    numbers = list(zip(x.tolist(), y.tolist(), strict=True))

    def same(found: Any, expected: list[int]) -> None:
        assert found.dtype == dtype
        assert [f & mask for f in np.asarray(found).tolist()] == [e & mask for e in expected]

    same(lax.bitwise_and(x, y), [a & b for a, b in numbers])
    same(lax.bitwise_or(x, y), [a | b for a, b in numbers])
    same(lax.bitwise_xor(x, y), [a ^ b for a, b in numbers])
    same(lax.bitwise_not(x), [~a for a, _ in numbers])
    same(lax.population_count(x), [(a & mask).bit_count() for a, _ in numbers])
    same(lax.clz(x), [bits - (a & mask).bit_length() for a, _ in numbers])
    same(lax.mulhi(x, y), [(a * b) >> bits for a, b in numbers])
    amounts = [(a, b & mask) for a, b in numbers]
    same(lax.shift_left(x, y), [a << b if b < bits else 0 for a, b in amounts])
    same(lax.shift_right_logical(x, y), [(a & mask) >> b if b < bits else 0 for a, b in amounts])
    signed = [((a & mask) ^ (1 << (bits - 1))) - (1 << (bits - 1)) for a, _ in numbers]
    same(lax.shift_right_arithmetic(x, y), [s >> min(b, bits - 1) for s, (_, b) in zip(signed, amounts, strict=True)])


def test_bits_of_booleans() -> None:
    x, y = np.array([True, True, False]), np.array([True, False, False])
    assert np.asarray(lax.bitwise_and(x, y)).tolist() == [True, False, False]
    assert np.asarray(lax.bitwise_not(x)).tolist() == [False, False, True]
    for name in ("add", "mul", "neg", "shift_left"):
        with pytest.raises(TypeError, match="bool"):
            getattr(lax, name)(*(x,) * (1 if name == "neg" else 2))


def test_bits_of_64() -> None:
    with enable_x64(True):
        x = np.array([2**63 - 1, -(2**63), -1, 5], np.int64)
        assert np.asarray(lax.population_count(x)).tolist() == [63, 1, 64, 2]
        assert np.asarray(lax.clz(x)).tolist() == [1, 0, 0, 61]
        assert np.asarray(lax.mulhi(x, x)).tolist() == [int(v) * int(v) >> 64 for v in x]
        assert np.asarray(lax.shift_right_arithmetic(x, np.int64(63))).tolist() == [0, -1, -1, 0]


# ------------------------------------------------------------------------------------------------------ conversion


@pytest.mark.parametrize("source", [np.float16, bfloat16, np.float32, np.float64], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("target", ["int4", "uint4", "int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_float_to_integer_conversion_saturates(source: Any, target: str) -> None:
    with enable_x64(True), np.errstate(all="ignore"):
        x = np.array([0, 1.75, -1.75, 300, -300, 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf, np.nan]).astype(source)
        dtype = np.dtype(getattr(ml_dtypes, target, target))
        limits = ml_dtypes.iinfo(dtype)

        def expected(value: float) -> int:
            if np.isnan(value):
                return 0
            if np.isinf(value):
                return int(limits.max) if value > 0 else int(limits.min)
            return max(int(limits.min), min(int(limits.max), int(value)))

        found = np.asarray(lax.convert_element_type(x, dtype))
        assert found.dtype == dtype
        assert [int(v) for v in found] == [expected(float(v)) for v in x]


def test_other_conversions() -> None:
    def to(values: Any, dtype: Any) -> list[Any]:
        return np.asarray(lax.convert_element_type(values, dtype)).tolist()

    assert to(np.array([300, -129], np.int32), np.int8) == [44, 127]
    assert to(np.array([1 + 2j, 2j], np.complex64), np.float32) == [1, 0]
    assert to(np.array([1 + 2j, 2j], np.complex64), np.bool_) == [True, False]
    assert to(np.array([0.5, 0, np.nan], np.float32), np.bool_) == [True, False, True]
    assert to(np.array([-1, 7], ml_dtypes.int4), ml_dtypes.uint4) == [15, 7]
    assert to(np.array([2.5], np.float32), np.complex64) == [2.5 + 0j]
    strong = lax.convert_element_type(1.5, np.float32)
    assert strong.dtype == np.float32 and not strong.weak_type
    assert lax.convert_element_type(strong, np.float32) is strong
    weak = lax.mul(1.5, 2.0)
    assert weak.weak_type and not lax.convert_element_type(weak, np.float32).weak_type
    assert lax.convert_element_type(3, float).dtype == np.float32
    with pytest.raises(ValueError, match="dtype"):
        lax.convert_element_type(strong, None)


def test_bitcast() -> None:
    x = np.array([[1.0, -2.0], [0.5, np.inf]], np.float32)
    assert (np.asarray(lax.bitcast_convert_type(x, np.int32)) == x.view(np.int32)).all()
    narrow = lax.bitcast_convert_type(x, np.uint8)
    assert narrow.shape == (2, 2, 4) and (np.asarray(narrow).ravel() == x.view(np.uint8).ravel()).all()
    assert (np.asarray(lax.bitcast_convert_type(narrow, np.float32)) == x).all()
    nibbles = lax.bitcast_convert_type(np.array([0x9F], np.uint8), ml_dtypes.int4)
    assert np.asarray(nibbles).astype(np.int8).tolist() == [[-1, -7]]
    assert np.asarray(lax.bitcast_convert_type(nibbles, np.uint8)).tolist() == [0x9F]
    with pytest.raises(ShapeMismatchError, match="last dimension must be 4"):
        lax.bitcast_convert_type(np.zeros((2, 3), np.uint8), np.float32)
    with pytest.raises(TypeError):
        lax.bitcast_convert_type(np.array([True]), np.uint8)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16], ids=lambda d: np.dtype(d).name)
def test_reduce_precision_is_a_round_trip(dtype: Any) -> None:
    limits = ml_dtypes.finfo(dtype)
    edges = np.array([*EDGES, 65504, 65519, 65520, 3e38, 0.1, 1 / 3, 1.001, 1.0009765625 * 1.5], np.float32)
    with np.errstate(all="ignore"):
        expected = edges.astype(dtype).astype(np.float32)
    found = np.asarray(lax.reduce_precision(edges, int(limits.nexp), int(limits.nmant)))
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(edges)].all()
    with pytest.raises(ValueError, match="exponent"):
        lax.reduce_precision(edges, 0, 3)


def test_rounding_halfway() -> None:
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388609.0], np.float32)
    assert np.asarray(lax.round(x)).tolist() == [1, -1, 2, 3, -3, 0, 8388609]
    even = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    assert np.asarray(even).tolist() == [0, 0, 2, 2, -2, 0, 8388609]


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32], ids=lambda d: np.dtype(d).name)
def test_nextafter(dtype: Any) -> None:
    zero, one, two = (np.array(value, dtype) for value in (0, 1, 2))
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert float(lax.nextafter(one, two)) == 1 + eps
    assert float(lax.nextafter(one, zero)) == 1 - eps / 2
    assert 0 < float(lax.nextafter(zero, one)) < float(ml_dtypes.finfo(dtype).tiny)
    with pytest.raises(MissingRuleError):
        weft.grad(lambda x: lax.nextafter(x, np.float32(2)))(np.float32(1))


# --------------------------------------------------------------------------------------------- special functions


def test_gamma_family() -> None:
    a, x = (
        v.ravel().astype(np.float32) for v in np.meshgrid([0.1, 0.7, 1, 2.5, 10, 50], [1e-3, 0.3, 1, 2.5, 10, 45, 60])
    )
    wide_a, wide_x = a.astype(np.float64), x.astype(np.float64)
    agree(lax.igamma(a, x), special.gammainc(wide_a, wide_x))
    agree(lax.igammac(a, x), special.gammaincc(wide_a, wide_x))
    order = np.array([0, 1, 2, 5], np.float32)
    points = np.array([0.3, 1, 2.5, 10], np.float32)
    agree(
        lax.polygamma(order, points), [special.polygamma(int(n), float(p)) for n, p in zip(order, points, strict=True)]
    )
    agree(lax.zeta(order + 2, points), special.zeta(order.astype(float) + 2, points.astype(float)))
    agree(
        lax.betainc(points, points[::-1], points / 11),
        special.betainc(*(v.astype(float) for v in (points, points[::-1], points / 11))),
    )


def test_derivatives_of_the_incomplete_gamma_function_in_its_shape() -> None:
    with enable_x64(True):
        a, x = (
            v.ravel() for v in np.meshgrid([0.2, 0.9, 1.0, 3.5, 20.0, 400.0], [0.01, 0.5, 1.0, 4.0, 19.0, 390.0, 420.0])
        )
        step = 1e-4 * a

        def tail(
            shape: Any,
        ) -> Any:  # the smaller tail, which keeps its digits; its sign makes it grow like the lower one
            return np.where(x < a, special.gammainc(shape, x), -special.gammaincc(shape, x))

        ahead, back = tail(a + step), tail(a - step)
        gradient = (ahead - back) / (2 * step)
        np.testing.assert_allclose(np.asarray(lax.igamma_grad_a(a, x)), gradient, rtol=1e-5, atol=1e-14)
        bend = (ahead - 2 * tail(a) + back) / step**2
        found = weft.vmap(weft.grad(weft.grad(lax.igamma)))(a, x)
        np.testing.assert_allclose(np.asarray(found), bend, rtol=1e-3, atol=1e-6)
        density = np.exp((a - 1) * np.log(x) - x - special.gammaln(a))
        likely = density > 1e-12
        moved = np.asarray(lax.random_gamma_grad(a, x))
        np.testing.assert_allclose(moved[likely], -gradient[likely] / density[likely], rtol=1e-4, atol=1e-8)
        assert np.isfinite(moved).all()  # also where the density underflows


@pytest.mark.parametrize(
    ("name", "params"), [("igamma_grad_a", {}), ("igamma_derivative", {"order": 2}), ("random_gamma_grad", {})]
)
def test_an_element_does_not_depend_on_how_long_others_take(name: str, params: dict[str, int]) -> None:
    """A continued fraction that has converged is not rounded again in each step that a large number needs."""
    numbers, evaluate = np.array([2.0803292816164163, 1.9943626791136426, 0.4, 1e8]), lookup(name).eval
    alone = [evaluate(x, x, **params) for x in numbers]
    np.testing.assert_array_equal(evaluate(numbers, numbers, **params), alone)


def test_missing_derivatives_say_so() -> None:
    with pytest.raises(MissingRuleError, match="no derivative in a"):
        weft.grad(lambda a: lax.betainc(a, np.float32(2), np.float32(0.5)))(np.float32(1))
    with pytest.raises(MissingRuleError, match="no derivative in x"):
        weft.grad(lambda x: lax.zeta(x, np.float32(2)))(np.float32(3))


# ------------------------------------------------------------------------------------------- derivatives at kinks


def derivatives(function: Any, *points: Any) -> list[float]:
    columns = [np.asarray(p, np.float32) for p in points]
    return np.asarray(weft.vmap(weft.grad(function))(*columns)).tolist()


def test_derivatives_at_kinks() -> None:
    assert derivatives(lax.abs, [-2, 0, 3]) == [-1, 1, 1]
    assert derivatives(lax.max, [1, 2, 3], [2, 2, 2]) == [0, 0.5, 1]
    assert derivatives(lax.min, [1, 2, 3], [2, 2, 2]) == [1, 0.5, 0]
    assert derivatives(lambda x: lax.clamp(np.float32(0), x, np.float32(1)), [-1, 0, 0.5, 1, 2]) == [0, 0, 1, 0, 0]
    assert derivatives(lambda low: lax.clamp(low, np.float32(1), np.float32(2)), [0, 1, 1.5]) == [0, 0, 1]
    assert derivatives(lax.sign, [-2, 3]) == [0, 0]
    assert derivatives(lax.floor, [-2.5, 3.5]) == [0, 0]
    assert derivatives(lambda x: lax.integer_pow(x, 0), [0, 2]) == [0, 0]
    assert derivatives(lambda x: lax.pow(x, np.float32(0)), [0, 2]) == [0, 0]
    assert derivatives(lambda y: lax.pow(np.float32(0), y), [2]) == [0]
    assert derivatives(lax.bessel_i1e, [0]) == [0.5]


def test_complex_parts_pair_without_conjugation() -> None:
    z = np.complex64(3 + 4j)
    one = np.float32(1)
    for function, expected in ((lax.real, 1 + 0j), (lax.imag, -1j), (lax.abs, 0.6 - 0.8j)):
        (found,) = weft.vjp(function, z)[1](one)
        assert complex(found) == pytest.approx(expected, abs=1e-6), function
    x, y = weft.vjp(lax.complex, np.float32(3), np.float32(4))[1](np.complex64(2 + 5j))
    assert (float(x), float(y)) == (2, -5)
    (back,) = weft.vjp(lax.conj, z)[1](np.complex64(2 + 5j))
    assert complex(back) == 2 - 5j
    (real,) = weft.vjp(lax.conj, np.float32(3))[1](np.complex64(2 + 5j))
    assert real.dtype == np.float32 and float(real) == 2
    (at_zero,) = weft.vjp(lax.abs, np.complex64(0))[1](one)
    assert complex(at_zero) == 0


def test_stop_gradient() -> None:
    tree = {"x": np.float32(3), "n": 2}
    stopped = lax.stop_gradient(tree)
    assert float(stopped["x"]) == 3 and stopped["n"] == 2
    assert float(weft.grad(lambda x: lax.mul(lax.stop_gradient(x), x))(np.float32(3))) == 3


# ---------------------------------------------------------------------------------------------------- the public API


def test_select() -> None:
    cases = [np.full(4, i, np.float32) for i in range(3)]
    assert np.asarray(lax.select_n(np.array([0, 2, 5, -1], np.int32), *cases)).tolist() == [0, 2, 2, 0]
    assert np.asarray(lax.select(True, cases[1], cases[2])).tolist() == [1, 1, 1, 1]
    assert np.asarray(lax.select(np.array([True, False, False, True]), cases[1], cases[2])).tolist() == [1, 2, 2, 1]
    assert lax.select(True, 1.0, 2.0).weak_type
    for wrong in (
        lambda: lax.select_n(True, cases[0], 1.0),
        lambda: lax.select(np.array([True, False]), cases[0], cases[1]),
        lambda: lax.select(True, cases[0], np.arange(4)),
        lambda: lax.select_n(True, *cases),
        lambda: lax.select_n(np.float32(1), *cases),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_clamp() -> None:
    x = np.array([np.nan, 0.5, 2, -2], np.float32)
    np.testing.assert_array_equal(lax.clamp(0.0, x, 1.0), np.array([np.nan, 0.5, 1, 0], np.float32))
    assert np.asarray(lax.clamp(0, np.array([5, 1, -2], np.int8), 3)).tolist() == [3, 1, 0]
    assert float(lax.clamp(3.0, 2.0, 1.0)) == 1
    with pytest.raises(ShapeMismatchError, match="min of shape"):
        lax.clamp(np.ones(2, np.float32), np.ones(3, np.float32), 1.0)


def test_python_scalars_take_the_dtype_of_the_operand() -> None:
    for dtype, value in ((np.float32, 1.0), (bfloat16, 1.0), (np.int8, 1), (np.uint16, 1), (np.complex64, 1j)):
        found = lax.add(np.ones(3, dtype), value)
        assert found.dtype == dtype and not found.weak_type
    assert lax.add(1, 2).weak_type
    for x, y in ((np.ones(3, np.float32), 1), (np.ones(3, np.int32), 1.0), (1, 2.0), (np.ones(3, np.float32), 1j)):
        with pytest.raises(TypeError, match="the same dtypes"):
            lax.add(x, y)
    with pytest.raises(TypeError, match="the same dtypes"):
        lax.mul(np.ones(3, np.float32), np.ones(3, bfloat16))


def test_shapes_of_operands() -> None:
    assert lax.add(np.ones((3, 1), np.float32), np.ones((1, 2), np.float32)).shape == (3, 2)
    assert lax.add(np.float32(1), np.ones((3, 2), np.float32)).shape == (3, 2)
    for wrong in ((3, 2), (2,)), ((3,), (2,)):
        with pytest.raises(ShapeMismatchError, match="incompatible shapes"):
            lax.add(*(np.ones(s, np.float32) for s in wrong))
    with pytest.raises(TypeError):
        lax.add([1.0, 2.0], np.ones(2, np.float32))
