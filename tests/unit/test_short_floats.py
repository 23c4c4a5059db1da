"""All numbers of float16 and bfloat16: functions of one argument are rounded once, or twice, and jit = eager."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import weft
import weft.numpy as wnp
from tests.older_scipy import need_judge
from weft import linen, nn
from weft.scipy import special

NUMPY = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "rad2deg",
    "reciprocal",
    "rint",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
SPECIAL = "digamma entr erf erfc erfinv exp1 expi expit gamma gammaln i0 i0e i1 i1e log_ndtr logit ndtr ndtri spence"
CASES: list[tuple[str, Any, Any]] = [
    *((name, getattr(wnp, name), getattr(np, name)) for name in NUMPY),
    *((f"special.{name}", getattr(special, name), getattr(scipy.special, name)) for name in SPECIAL.split()),
    ("i0", wnp.i0, scipy.special.i0),
]


def order(x: np.ndarray) -> np.ndarray:
    """Integers that are one apart for numbers next to each other."""
    bits = x.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("name", "function", "reference"), CASES, ids=[name for name, _, _ in CASES])
def test_all_numbers(name: str, function: Any, reference: Any, dtype: Any) -> None:
    need_judge(name.removeprefix("special."))
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    exact = x.astype(np.float64)
    # At poles and infinities SciPy has other conventions than JAX.
    keep = np.isfinite(exact) & ~((name == "special.digamma") & (exact == 0))
    if name == "sinc":
        # NumPy's has the error of pi x, which the sine of large numbers shows; at integers it is not zero.
        nearest = np.rint(exact)
        sine = np.sin(np.pi * (exact - nearest)) * np.where(nearest % 2, -1, 1)
        reference = lambda x: np.where(x == 0, 1, sine / (np.pi * np.where(x == 0, 1, x)))
    with np.errstate(all="ignore"):
        expected = np.ascontiguousarray(reference(exact).astype(dtype))
    eager, compiled = np.asarray(function(x)), np.asarray(weft.jit(function)(x))
    same = (eager.view(np.uint16) == compiled.view(np.uint16)) | (np.isnan(eager) & np.isnan(compiled))
    assert same.all()
    np.testing.assert_array_equal(np.isnan(eager)[keep], np.isnan(expected)[keep])
    compared = keep & ~np.isnan(expected)
    assert np.abs(order(eager) - order(expected))[compared].max() <= 1


# Those without an infinity, one of which has no negative numbers, beside those with one.
EIGHT_BITS = [
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip
MASK = np.array([[True, False, True, True], [True, True, False, False]])
REDUCED: dict[str, Any] = {
    "nanmax": lambda x: wnp.nanmax(x, axis=1),
    "nanmin": lambda x: wnp.nanmin(x, axis=1),
    "nanargmax": lambda x: wnp.nanargmax(x, axis=1),
    "nanargmin": lambda x: wnp.nanargmin(x, axis=1),
    "max": lambda x: wnp.max(wnp.nan_to_num(x, nan=1), axis=1, where=MASK, initial=1),
    "min": lambda x: wnp.min(wnp.nan_to_num(x, nan=1), axis=1, where=MASK, initial=2),
    "max_pool": lambda x: linen.max_pool(wnp.nan_to_num(x, nan=1)[..., None], (2,), padding="SAME"),
    "min_pool": lambda x: linen.min_pool(wnp.nan_to_num(x, nan=1)[..., None], (2,), padding="SAME"),
}


@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize("name", REDUCED)
def test_extremes_without_infinities(name: str, dtype: str) -> None:
    """What is left out of an extreme is the least number of a dtype, not an infinity that it may not have."""
    x = np.array([[2, np.nan, 0.5, 1], [np.nan, 1, 2, 4]], np.float32)
    expected = REDUCED[name](x)
    short = x.astype(getattr(ml_dtypes, dtype))
    for function in (REDUCED[name], weft.jit(REDUCED[name])):
        np.testing.assert_array_equal(np.asarray(function(short)).astype(np.float32), expected)


@pytest.mark.parametrize("dtype", [name for name in EIGHT_BITS if name != "float8_e8m0fnu"])
def test_softmax_without_infinities(dtype: str) -> None:
    x = np.array([[2, -1, 0.5, 1], [0, 1, 2, 4]], np.float32)
    short = x.astype(getattr(ml_dtypes, dtype))
    for function in (nn.softmax, nn.log_softmax, lambda x: nn.softmax(x, where=MASK), lambda x: nn.logsumexp(x, 1)):
        np.testing.assert_allclose(np.asarray(function(short)).astype(np.float32), function(x), rtol=0.2, atol=0.2)
