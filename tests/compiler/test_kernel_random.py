"""Random kernels: compiled code returns the bits of the interpreter, for every machine, width and dtype."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.random_kernels import RandomKernel
from tests.compiler.running import MACHINES, assert_same, compiled, interpreted, numbers
from weft.compiler.kernel.printer import to_text
from weft.compiler.target.cpu.link import Tier


def check(seed: int) -> None:
    """One kernel on every machine; a failure shows the kernel."""
    kernel = RandomKernel(seed).kernel
    rng = np.random.default_rng(seed)
    arrays = [numbers(rng, b.dtype, b.size) for b in kernel.buffers]
    expected = interpreted(kernel, arrays)
    tier = Tier.QUICK if seed % 3 else Tier.LIGHT
    for machine, target in MACHINES.items():
        actual = compiled(kernel, arrays, target(), tier=tier, parts=1 + seed % 4)
        assert_same(actual[0], expected[0], f"seed {seed} on {machine}:\n{to_text(kernel)}")


@pytest.mark.parametrize("block", range(4))
def test_compiled_equals_interpreted(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_compiled_equals_interpreted_for_many(block: int) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        check(seed)


def test_random_kernels_differ() -> None:
    assert len({to_text(RandomKernel(seed).kernel) for seed in range(40)}) == 40
