"""Native code of all samples with guard pages around every buffer, for several kinds of machines."""

from __future__ import annotations

import os

import pytest

from tests.compiler.running import MACHINES
from tests.compiler.test_guarded import TOGETHER, check_samples
from tests.laws.samples import ALONE
from weft.runtime.cpu.guarded import Edge

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pages are guarded by mprotect")
GROUPS = -(-len(ALONE) // TOGETHER)


@pytest.mark.parametrize("edge", Edge)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("group", range(GROUPS))
def test_samples(group: int, machine: str, edge: Edge) -> None:
    check_samples(ALONE[group::GROUPS], machine, edge)
