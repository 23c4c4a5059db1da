"""Shared fixtures of tests of many processes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.processes.launching import results_of_bits


@pytest.fixture(scope="session")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Results of scripts/bits.py in one process."""
    return results_of_bits(1, tmp_path_factory.mktemp("bits"))
