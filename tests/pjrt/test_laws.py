"""Samples of primitives have on a plugin's device the meaning that `eval` gives them, one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.laws.laws import assert_close
from tests.laws.samples import ALONE, Case
from weft.sharding.device import Device

# All of them in the slow tests: each is compiled once.
SAMPLED = 8
# Vectors of these are unique up to signs or phases; `tests/pjrt/test_programs.py` computes one of them.
AMBIGUOUS = {"eig", "eigh", "hessenberg", "qr", "schur", "svd", "tridiagonal"}
CASES = [case for case in ALONE if case.primitive.name not in AMBIGUOUS]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if i % SAMPLED else []) for i, case in enumerate(CASES)],
    ids=str,
)
def test_meaning(case: Case, device: Device) -> None:
    operands = [weft.device_put(a, device) for a in case.operands]
    results = case.bind(*operands, **case.params)
    for i, (found, expected) in enumerate(zip(results, case.results, strict=True)):
        assert_close(np.asarray(found._value), expected, case.tolerance, f"result {i}")
