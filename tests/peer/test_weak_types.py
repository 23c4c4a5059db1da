"""Dtype of results, and whether they are weakly typed: elementwise functions of numbers and arrays beside JAX."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp

pytestmark = pytest.mark.filterwarnings("ignore")

ONE = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "arccos",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_count",
    "bitwise_not",
    "cbrt",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "imag",
    "invert",
    "isfinite",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "nan_to_num",
    "negative",
    "positive",
    "rad2deg",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "spacing",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
TWO = [
    "add",
    "arctan2",
    "bitwise_and",
    "copysign",
    "divide",
    "equal",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "hypot",
    "lcm",
    "ldexp",
    "left_shift",
    "less",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nextafter",
    "power",
    "remainder",
    "right_shift",
    "subtract",
    "full_like",
    "where",
]
ARGUMENTS: dict[str, Any] = {
    "2": lambda np_: 2,
    "True": lambda np_: True,
    "0.5": lambda np_: 0.5,
    "1j": lambda np_: 1j,
    "weak integer": lambda np_: np_.asarray(2),
    "weak float": lambda np_: np_.asarray(0.5),
    "int32": lambda np_: np_.int32(2),
    "uint8": lambda np_: np_.uint8(2),
    "bool": lambda np_: np_.bool_(True),
    "bfloat16": lambda np_: np_.bfloat16(0.5),
    "float32[3]": lambda np_: np_.ones(3, np_.float32),
    "NumPy's float64": lambda np_: np.float64(0.5),
}
# JAX computes the phase of a bfloat16 in float32, and an integer to the power of a boolean loses its weak type.
APART = {("angle", "bfloat16"), ("power", "2", "bool"), ("power", "weak integer", "bool")}


def found(xp: Any, np_: Any, name: str, kinds: tuple[str, ...]) -> str:
    function = getattr(np_, name)
    if name == "where":
        function = lambda x, y: np_.where(True, x, y)
    args = [ARGUMENTS[kind](np_) for kind in kinds]
    try:
        out = xp.eval_shape(lambda: function(*args))
    except (TypeError, ValueError):
        return "refused"
    # Whether a boolean is weak makes no difference.
    return f"{out.dtype}{list(out.shape)}" + ("*" if out.weak_type and out.dtype != np.bool_ else "")


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_types_are_those_of_jax(name: str) -> None:
    different = []
    for kinds in itertools.product(ARGUMENTS, repeat=1 if name in ONE else 2):
        ours, theirs = found(weft, wnp, name, kinds), found(jax, jnp, name, kinds)
        if ours != theirs and theirs != "refused" and (name, *kinds) not in APART:
            different.append((kinds, ours, theirs))
    assert not different


@pytest.mark.parametrize("method", ["set", "add", "multiply", "max"])
def test_updates_keep_the_type_of_the_array(method: str) -> None:
    for kinds in itertools.product(["weak float", "float32[3]"], ["0.5", "weak float", "NumPy's float64"]):
        types = []
        for np_ in (wnp, jnp):
            x, y = (ARGUMENTS[kind](np_) for kind in kinds)
            out = getattr(x.at[...], method)(y)
            types.append((str(out.dtype), out.weak_type))
        assert types[0] == types[1], kinds
