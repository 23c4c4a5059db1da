"""Law of devices: an operation returns the same bits on every device, on the device of its operands."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.laws.samples import Case
from tests.laws.test_compiled import GROUPS
from tests.laws.test_eager import assert_same_bits
from weft.runtime.array import ConcreteArray
from weft.runtime.device import get_placement

THERE = get_placement(weft.devices()[3], True)


def on_other_device(value: Any) -> Any:
    """Copy an array to the fourth device; return other values unchanged."""
    return weft.device_put(value, THERE.device) if isinstance(value, ConcreteArray) else value


@pytest.mark.parametrize("group", [cases for _, cases in GROUPS], ids=[name for name, _ in GROUPS])
def test_the_same_bits_on_another_device(group: list[Case]) -> None:
    for case in group:
        operands = [on_other_device(a) for a in case.operands]
        expected, actual = case.bind(*case.operands), case.bind(*operands)
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same_bits(one, other, f"{case}, result {i}")
            if any(isinstance(a, ConcreteArray) for a in operands):
                assert one._placement is THERE, f"{case}, result {i} is on {one._placement}"
                assert other.device.id == 0 and not other.committed
