"""The gamma function's family near its poles on the negative axis, where the distance from an integer has to be taken
before anything is rounded: compiled code and `eval` against values with twice the digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.scipy.special.primitives.gamma
from tests.compiler.test_math_accuracy import distance_from_pair, exact_values
from weft.ir.primitive import lookup

assert weft.scipy.special.primitives.gamma  # which registers some of them

# Units in the last place. What rounding a + b costs is a relative error of up to |a + b|*log(|a + b|) units.
COMPILED = {
    "digamma": 3, "lgamma": 3, "gamma": 4, "polygamma": 5, "zeta": 4, "log_beta": 3, "beta": 128, "gamma_ratio": 128,
}  # fmt: skip
# SciPy's logarithms of beta functions are subtracted.
EVALUATED = {**COMPILED, "gamma": 6, "log_beta": 128, "beta": 4096}


def worst(name: str, function: Any) -> tuple[float, list[float]]:
    """How many units a result is off at most, and for which operands."""
    *args, high, low = exact_values("near_poles.txt")[name].T
    with np.errstate(all="ignore"), weft.enable_x64(True):
        apart = distance_from_pair(np.asarray(function(*args)), high, low)
    index = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    return float(apart[index]), [float(x[index]) for x in args]


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code(name: str) -> None:
    apart, operands = worst(name, weft.jit(lookup(name)))
    assert apart <= COMPILED[name], f"{name}{operands} is {apart} units off"


@pytest.mark.parametrize("name", EVALUATED)
def test_eval(name: str) -> None:
    apart, operands = worst(name, lookup(name).eval)
    assert apart <= EVALUATED[name], f"{name}{operands} is {apart} units off"
