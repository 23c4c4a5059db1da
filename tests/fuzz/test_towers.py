"""Random towers of derivatives keep the laws of `tests/fuzz/towers.py`."""

from __future__ import annotations

import pytest

from tests.fuzz.towers import check_seed, tower


def test_a_seed_decides_the_tower() -> None:
    assert tower(7) == tower(7)
    assert len({tower(seed).text for seed in range(50)}) == 50


@pytest.mark.parametrize("seed", [3, 19, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 400))])
def test_towers(seed: int) -> None:
    assert check_seed(seed) in ("holds", "not judged")
