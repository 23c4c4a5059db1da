"""Random programs whose arguments are split over a mesh return what they return on one device."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

import weft
from tests.fuzz.partitioned import check_seed

TOGETHER, GROUPS = 25, 80


@pytest.fixture(autouse=True)
def no_files() -> Iterator[None]:
    before = weft.config.compilation_cache
    weft.config.update("compilation_cache", False)
    yield
    weft.config.update("compilation_cache", before)


def check_group(first: int, least: int = TOGETHER // 4) -> None:
    """Judge some programs and require that at least `least` of them are compared. Six of ten are on average, but not of
    every small group."""
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + TOGETHER):
        found = check_seed(seed)
        if found.startswith("failed"):
            pytest.fail(f"replay with: python -m tests.fuzz.partitioned {seed}\n{found}")
        outcomes[found] += 1
    split = sum(count for name, count in outcomes.items() if "collectives" in name)
    assert split >= least, f"too few programs are split: {dict(outcomes)}"


@pytest.mark.parametrize("group", range(2))
def test_programs(group: int) -> None:
    check_group(TOGETHER * group, TOGETHER // 2)


def test_fresh_programs() -> None:
    check_group(int(os.environ["WEFT_FUZZ_SEED"]))


@pytest.mark.slow
@pytest.mark.parametrize("group", range(2, GROUPS))
def test_many_programs(group: int) -> None:
    check_group(TOGETHER * group)
