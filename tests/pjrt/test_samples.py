"""Every sample of every primitive on XLA's plugin for CPUs: StableHLO has the meaning of `eval`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.laws.laws import assert_close
from tests.laws.samples import CASES, Case
from tests.laws.test_compiled import TOGETHER, merged, turned
from weft.ir.interpreter import replay
from weft.sharding.device import Device

# Results that are vectors up to a factor: columns, or rows.
COLUMNS, ROWS = {"eigh": (0,), "eig": (1, 2), "svd": (1,)}, {"svd": (2,)}
# The plugin of 2024 selects the wrong case by a constant of one element; later versions of XLA do not.
WRONG_IN_XLA = frozenset({"eigh-2"})
NAMES = sorted({case.primitive.name for case in CASES if not case.environment})


def groups(name: str) -> list[list[Case]]:
    cases = [c for c in CASES if c.primitive.name == name and not c.environment and str(c) not in WRONG_IN_XLA]
    return [cases[i : i + TOGETHER] for i in range(0, len(cases), TOGETHER)]


def comparable(case: Case, i: int, values: np.ndarray) -> np.ndarray:
    if i in COLUMNS.get(case.primitive.name, ()) and values.size:
        return turned(values)
    if i in ROWS.get(case.primitive.name, ()) and values.size:
        return np.swapaxes(turned(np.swapaxes(values, -1, -2)), -1, -2)
    return values


def run(group: list[Case], operands: list[Any]) -> list[Any]:
    jaxpr = merged(group)
    return weft.jit(lambda *args: replay(jaxpr, *args))(*operands)


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str, device: Device) -> None:
    for group in groups(name):
        operands: list[Any] = [weft.device_put(a, device) for case in group for a in case.operands]
        results = iter(run(group, operands))
        for case in group:
            for i, expected in enumerate(case.results):
                actual = comparable(case, i, next(results)._value)
                assert_close(actual, comparable(case, i, expected), case.tolerance, f"{case}, result {i}")
