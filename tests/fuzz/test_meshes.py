"""Random programs over meshes return what NumPy computes of stacked parts; exports with symbolic sizes return what
programs for one size do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import weft
from tests.fuzz import exports, meshes


@pytest.fixture(autouse=True)
def no_files() -> Iterator[None]:
    before = weft.config.compilation_cache
    weft.config.update("compilation_cache", False)
    yield
    weft.config.update("compilation_cache", before)


def check(module: str, check_seed: Callable[[int], str], seeds: range, refused: str) -> None:
    """Judge seeds; most are compared."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        found = check_seed(seed)
        if found.startswith("failed"):
            pytest.fail(f"replay with: python -m tests.fuzz.{module} {seed}\n{found}")
        outcomes[found] += 1
    assert outcomes[refused] < len(seeds) // 2, f"too few programs are compared: {dict(outcomes)}"


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(30, 3000, 30))])
def test_programs_over_meshes(first: int) -> None:
    check("meshes", meshes.check_seed, range(first, first + 30), "refused by types")


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 1000, 20))])
def test_exports_with_symbolic_sizes(first: int) -> None:
    check("exports", exports.check_seed, range(first, first + 20), "refused at export")
