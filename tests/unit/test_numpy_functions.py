"""Table of NumPy calls and three laws: the same values as NumPy, under jit, and under vmap."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import tree

A = np.array([[0.5, -1.25, 2.0], [3.0, 0.75, -0.5]], np.float32)
B = np.array([[1.0, 2.0, -3.0], [0.25, 1.5, 4.0]], np.float32)
POSITIVE = np.abs(A) + np.float32(0.25)
INSIDE = np.float32(0.2) * A
INTEGERS = np.array([[3, -7, 0], [5, 2, -4]], np.int32)
MASK = A > 0
COMPLEX = (A + 1j * B).astype(np.complex64)
VECTOR = np.array([4.0, -1.0, 2.5, 0.0, 2.5], np.float32)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
SORTED = np.array([0.0, 1.0, 2.0, 4.0], np.float32)

ONE_ARGUMENT = {
    "sin cos tan exp expm1 sinh cosh tanh arctan arcsinh square negative abs sign floor ceil trunc rint": A,
    "cbrt exp2 deg2rad rad2deg sinc reciprocal isfinite isnan isinf signbit conj real imag angle": A,
    "sqrt log log1p log2 log10 fabs positive i0": POSITIVE,
    "arcsin arccos arctanh": INSIDE,
    "absolute sign negative invert square isfinite sqrt exp": np.abs(INTEGERS),
    "exp sin cos tanh sqrt log conj real imag angle square negative abs isfinite iscomplex isreal": COMPLEX,
    "logical_not any all sum max min prod mean var std argmax argmin cumsum cumprod ptp median nansum": A,
    "sum mean max cumsum count_nonzero any all prod std argmin": INTEGERS,
    "ravel flip transpose sort argsort fliplr flipud rot90 atleast_1d atleast_2d atleast_3d diff trapezoid": A,
    "tril triu diag trace diagonal squeeze nanmax nanmin nanmean nanstd nancumsum diagflat": A,
    "sort argsort unique cumsum diff vander flip diag ediff1d": VECTOR,
    "nan_to_num gradient corrcoef cov": A,
}
TWO_ARGUMENTS = {
    "add subtract multiply divide maximum minimum less greater equal not_equal less_equal greater_equal": (A, B),
    "true_divide floor_divide remainder fmod mod arctan2 hypot logaddexp logaddexp2 fmax fmin copysign": (A, B),
    "power float_power": (POSITIVE, B),
    "heaviside nextafter isclose": (A, B),
    "floor_divide remainder fmod": (INTEGERS, np.array([2, -3, 4], np.int32)),
    "bitwise_and bitwise_or bitwise_xor gcd lcm add multiply subtract true_divide": (INTEGERS, np.abs(INTEGERS) + 1),
    "left_shift right_shift": (INTEGERS, np.array([1, 0, 2], np.int32)),
    "logical_and logical_or logical_xor add multiply": (MASK, A < 1),
    "add subtract multiply divide": (COMPLEX, B),
    "convolve correlate polyadd polysub append isin": (VECTOR, SORTED),
    "dot vdot inner outer": (VECTOR, VECTOR[::-1].copy()),
    "searchsorted digitize": (SORTED, VECTOR),
    "array_equal allclose": (A, B),
}


def swap(name: str, *args: Any) -> tuple[Any, ...]:
    return args[::-1] if name == "digitize" else args


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def case(label: str, function: Callable[..., Any], *args: Any) -> None:
    """`function(module, *args)` computes with NumPy or with Weft."""
    while label in CASES:
        label += "'"
    CASES[label] = (function, args)


for names, array in ONE_ARGUMENT.items():
    for word in names.split():
        case(word, lambda m, x, word=word: getattr(m, word)(x), array)
for names, pair in TWO_ARGUMENTS.items():
    for word in names.split():
        case(word, lambda m, x, y, word=word: getattr(m, word)(x, y), *swap(word, *pair))

case("sum of an axis", lambda m, x: m.sum(x, axis=1), A)
case("sum of axes kept", lambda m, x: m.sum(x, axis=(0, -1), keepdims=True), CUBE)
case("sum where", lambda m, x: m.sum(x, axis=0, where=x > 0), A)
case("sum from", lambda m, x: m.sum(x, axis=1, initial=10.0), A)
case("max where", lambda m, x: m.max(x, axis=1, where=x < 2, initial=-9.0), A)
case("mean where", lambda m, x: m.mean(x, where=x > 0), A)
case("var ddof", lambda m, x: m.var(x, axis=0, ddof=1), A)
case("std of complex", lambda m, x: m.std(x), COMPLEX)
case("average", lambda m, x, w: m.average(x, axis=1, weights=w), A, POSITIVE[0])
case("argmax of an axis", lambda m, x: m.argmax(x, axis=0, keepdims=True), A)
case("reshape", lambda m, x: m.reshape(x, (3, -1)), A)
case("reshape by columns", lambda m, x: m.reshape(x, (3, 2), order="F"), A)
case("transpose axes", lambda m, x: m.transpose(x, (2, 0, 1)), CUBE)
case("moveaxis", lambda m, x: m.moveaxis(x, (0, 1), (2, 0)), CUBE)
case("swapaxes", lambda m, x: m.swapaxes(x, 0, -1), CUBE)
case("rollaxis", lambda m, x: m.rollaxis(x, 2, 1), CUBE)
case("expand_dims", lambda m, x: m.expand_dims(x, (0, 2)), A)
case("broadcast_to", lambda m, x: m.broadcast_to(x, (4, 2, 3)), A)
case("concatenate", lambda m, x, y: m.concatenate([x, y], axis=1), A, INTEGERS.astype(np.float32))
case("concatenate flat", lambda m, x, y: m.concatenate([x, y], axis=None), A, VECTOR)
case("stack", lambda m, x, y: m.stack([x, y], axis=-1), A, B)
case("vstack", lambda m, x, y: m.vstack([x, y]), A, B[0])
case("hstack", lambda m, x, y: m.hstack([x, y]), A, B)
case("dstack", lambda m, x, y: m.dstack([x, y]), A, B)
case("column_stack", lambda m, x, y: m.column_stack([x, y]), VECTOR, VECTOR * 2)
case("block", lambda m, x, y: m.block([[x, y], [y, x]]), A, B)
case("split", lambda m, x: m.split(x, [1, 2], axis=1), A)
case("array_split", lambda m, x: m.array_split(x, 3), VECTOR)
case("tile", lambda m, x: m.tile(x, (2, 1, 2)), A)
case("repeat", lambda m, x: m.repeat(x, 3, axis=1), A)
case("repeat each", lambda m, x: m.repeat(x, np.array([1, 0, 2]), axis=1), A)
case("roll", lambda m, x: m.roll(x, (1, -2), axis=(0, 1)), A)
case("roll flat", lambda m, x: m.roll(x, 2), A)
case("rot90 of a plane", lambda m, x: m.rot90(x, 3, axes=(1, 2)), CUBE)
case("resize", lambda m, x: m.resize(x, (3, 4)), A)
case("delete", lambda m, x: m.delete(x, [0, 2], axis=1), A)
case("insert", lambda m, x: m.insert(x, 1, 9.0, axis=1), A)
case("insert several", lambda m, x: m.insert(x, np.array([3, 1]), np.array([8.0, 9.0], np.float32)), VECTOR)
case("where", lambda m, c, x, y: m.where(c, x, y), MASK, A, B)
case("where of a number", lambda m, x: m.where(x > 0, x, np.float32(-1)), A)
case("select", lambda m, x: m.select([x < 0, x < 1], [x, x * 10], np.float32(7)), A)
case("piecewise", lambda m, x: m.piecewise(x, [x < 0, x >= 1], [lambda v: -v, 5.0, lambda v: v * 2]), A)
case("choose", lambda m, c, x, y: m.choose(c, [x, y], mode="wrap"), np.abs(INTEGERS), A, B)
case("clip", lambda m, x: m.clip(x, -0.5, 1.0), A)
case("clip by arrays", lambda m, x, y: m.clip(x, np.float32(-1), m.abs(y)), A, B)
case("round", lambda m, x: m.round(x, 1), np.array([0.25, 1.74, -2.5], np.float32))
case("take", lambda m, x: m.take(x, np.array([[0, 2], [1, 1]]), axis=1), A)
case("take wrapped", lambda m, x: m.take(x, np.array([7, -9]), mode="wrap"), A)
case("take clipped", lambda m, x: m.take(x, np.array([7, -9]), mode="clip"), A)
case("take_along_axis", lambda m, x: m.take_along_axis(x, np.argsort(A, axis=1)[:, :2], axis=1), A)
case("cumsum of an axis", lambda m, x: m.cumsum(x, axis=1), A)
case("diff twice", lambda m, x: m.diff(x, n=2, axis=1, prepend=1.0), A)
case("cross", lambda m, x, y: m.cross(x, y), A, B)
case("gradient at positions", lambda m, x: m.gradient(x, np.array([0.0, 1.0, 3.0, 3.5, 5.0], np.float32)), VECTOR)
case("trapezoid at positions", lambda m, y, x: m.trapezoid(y, x), SORTED * 2, SORTED)
case("interp", lambda m, x, xp, fp: m.interp(x, xp, fp, left=-5.0), VECTOR, SORTED, SORTED**2)
case("polyval", lambda m, p, x: m.polyval(p, x), VECTOR, A)
case("polyder", lambda m, p: m.polyder(p, 2), VECTOR)
case("polyint", lambda m, p: m.polyint(p), VECTOR)
case("unwrap", lambda m, x: m.unwrap(x), VECTOR * 2)
case("ldexp", lambda m, x: m.ldexp(x, np.array([1, -2, 3], np.int32)), A)
case("frexp", lambda m, x: m.frexp(x), VECTOR)
case("divmod", lambda m, x, y: m.divmod(x, y), A, B)
case("modf", lambda m, x: m.modf(x), A)
case("quantiles", lambda m, x: m.quantile(x, np.array([0.1, 0.5], np.float32), axis=1), CUBE)
case("quantile kept", lambda m, x: m.quantile(x, np.float32(0.3), axis=(0, 2), keepdims=True), CUBE)
for way in ("lower", "higher", "midpoint", "inverted_cdf"):
    case(f"percentile {way}", lambda m, x, way=way: m.percentile(x, np.float32(40), method=way), VECTOR)
case("median of an axis", lambda m, x: m.median(x, axis=0, keepdims=True), A)
case("histogram", lambda m, x: m.histogram(x, bins=4)[0].astype(np.float32), VECTOR)
case("histogram weights", lambda m, x: m.histogram(x, bins=3, range=(-1.0, 4.0), weights=x)[0], VECTOR)
case("bincount", lambda m, x: m.bincount(x, minlength=6), np.array([1, 4, 1, 0], np.int32))
case("unravel_index", lambda m, x: m.unravel_index(x, (2, 3)), np.array([0, 4, 5], np.int32))
case("eye", lambda m: m.eye(3, 4, k=1, dtype=np.float32))
case("tri", lambda m: m.tri(3, k=-1, dtype=np.float32))
case("tril_indices", lambda m: m.tril_indices(3, -1))
case("meshgrid", lambda m, x, y: m.meshgrid(x, y), SORTED, VECTOR)
case("indices", lambda m: m.indices((2, 3)))
case("linspace", lambda m: m.linspace(0.0, 2.0, 7).astype(np.float32))
case("linspace open", lambda m: m.linspace(-1.0, 2.0, 6, endpoint=False).astype(np.float32))
case("logspace", lambda m: m.logspace(0.0, 2.0, 4).astype(np.float32))
case("geomspace", lambda m: m.geomspace(1.0, 256.0, 5).astype(np.float32))
case("arange", lambda m: m.arange(7, -3, -2))
case("packbits", lambda m, x: m.packbits(x, axis=1), MASK)
case("unpackbits", lambda m, x: m.unpackbits(x, axis=1, count=11), np.array([[5, 200]], np.uint8))
for word in ("bartlett", "blackman", "hamming", "hanning"):
    case(word, lambda m, word=word: getattr(m, word)(7).astype(np.float32))
case("kaiser", lambda m: m.kaiser(7, 2.5).astype(np.float32))
for mode in ("edge", "reflect", "symmetric", "wrap", "maximum", "minimum", "mean", "median", "linear_ramp"):
    case(f"pad {mode}", lambda m, x, mode=mode: m.pad(x, ((1, 0), (2, 4)), mode=mode), A)
case("pad odd", lambda m, x: m.pad(x, (7, 3), mode="reflect", reflect_type="odd"), VECTOR)
case("pad constants", lambda m, x: m.pad(x, 2, constant_values=((1, 2), (3, 4))), A)
case("apply_along_axis", lambda m, x: m.apply_along_axis(lambda v: v[::-1] * 2, 1, x), CUBE)

# Sizes of results depend on values: neither under jit nor under vmap.
VALUES_DECIDE = {"unique", "bincount"}
tolerance = {"rtol": 2e-5, "atol": 2e-6}


def compare(found: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            compare(x, y)
        return
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(np.asarray(found), expected, **tolerance)


@pytest.mark.parametrize("label", CASES)
def test_the_same_as_numpy_and_under_jit_and_vmap(label: str) -> None:
    function, args = CASES[label]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = function(np, *args)
    found = function(wnp, *map(wnp.asarray, args))
    compare(found, expected)
    if label not in VALUES_DECIDE:
        check_jit(function, args, found)
        if args:
            same = label.startswith(("interp", "searchsorted", "digitize"))
            check_vmap(function, [np.stack([x, x if same else x[::-1]]) for x in args])


def check_jit(function: Callable[..., Any], args: tuple[Any, ...], expected: Any) -> None:
    """`jit` changes nothing."""
    found = weft.jit(lambda *xs: function(wnp, *xs))(*args)
    assert tree.structure(found) == tree.structure(expected)
    for x, y in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        assert x.aval == y.aval
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6, atol=1e-7)


def check_vmap(function: Callable[..., Any], rows: list[np.ndarray]) -> None:
    """`vmap` is a loop."""
    found = weft.vmap(lambda *xs: function(wnp, *xs))(*rows)
    for i in range(2):
        expected = tree.leaves(function(wnp, *(wnp.asarray(row[i]) for row in rows)))
        for x, y in zip(tree.leaves(found), expected, strict=True):
            np.testing.assert_allclose(np.asarray(x)[i], np.asarray(y), **tolerance)
