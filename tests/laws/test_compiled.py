"""Law of the compiler: compiled code of every primitive matches `eval`, on every sample and layout."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tests.laws.laws import assert_close
from tests.laws.samples import ALONE, Case
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import NO_EFFECTS
from weft.runtime.execute import get_executable

# Samples of one primitive are compiled together, so many at a time.
TOGETHER = 12


def programs() -> list[tuple[str, list[Case]]]:
    """Return the samples of each primitive, in groups."""
    found = []
    for name, group in itertools.groupby(ALONE, key=lambda case: case.primitive.name):
        cases = list(group)
        for i in range(0, len(cases), TOGETHER):
            found.append((f"{name}-{i}", cases[i : i + TOGETHER]))
    return found


def merged(cases: Sequence[Case]) -> Jaxpr:
    """Make one program with an equation for each sample."""
    invars, outvars, equations = [], [], []
    for case in cases:
        operands = [Var(t) for t in case.types]
        results = [Var(t) for t in case.result_types]
        equations.append(Equation(operands, results, case.primitive, case.params, NO_EFFECTS))
        invars += operands
        outvars += results
    return Jaxpr((), invars, outvars, equations)


GROUPS = programs()


@pytest.mark.parametrize("group", [cases for _, cases in GROUPS], ids=[name for name, _ in GROUPS])
def test_compiled_equals_eval(group: list[Case]) -> None:
    results = iter(get_executable(merged(group))([a for case in group for a in case.arrays]))
    for case in group:
        for i, (expected, aval) in enumerate(zip(case.results, case.result_types, strict=True)):
            actual = next(results)
            assert actual.aval is aval or actual.aval.matches(aval)
            if case.primitive.name == "eig" and i and expected.size:  # vectors are found up to a factor
                actual, expected = turned(actual._value), turned(expected)
            assert_close(actual, expected, case.tolerance, f"{case}, result {i}")


def turned(vectors: np.ndarray) -> np.ndarray:
    """Vectors, the columns of matrices, whose largest element is positive."""
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=-2, keepdims=True), axis=-2)
    with np.errstate(all="ignore"):
        return vectors * (np.conj(largest) / np.abs(largest)).astype(vectors.dtype)


def strided(array: np.ndarray) -> np.ndarray:
    """Return the same numbers with the strides of a transposed and widened array."""
    wide = np.zeros((*array.shape[::-1], 2), array.dtype)
    view = wide[..., 0].T
    view[...] = array
    return view


def test_operands_may_have_any_layout() -> None:
    cases = [case for case in ALONE if case.primitive.name in ("add", "dot_general", "reduce_sum", "gather")][::5]
    results = iter(get_executable(merged(cases))([strided(a) for case in cases for a in case.arrays]))
    for case in cases:
        for expected in case.results:
            assert_close(next(results), expected, case.tolerance, str(case))
