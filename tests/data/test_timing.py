"""A loader that is as slow as the step hides behind it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from weft.data import Loader

STEP, BATCHES = 0.005, 40


def slow(index: int, seconds: float) -> np.ndarray:
    time.sleep(seconds)
    return np.full(8, index)


def seconds(batches: Any, step: float) -> float:
    start = time.perf_counter()
    for _ in batches:
        time.sleep(step)
    return time.perf_counter() - start


@pytest.mark.timing
@pytest.mark.parametrize(
    "options", [{}, {"workers": 2}, {"workers": 2, "worker_type": "fork"}], ids=["ahead", "threads", "processes"]
)
def test_loading_hides_behind_the_step(options: dict[str, Any]) -> None:
    each = STEP * max(1, options.get("workers", 0)) / 4
    with Loader(range(4 * BATCHES), 4, transforms=[lambda i: slow(i, each)], **options) as loader:
        seconds(loader, 0)
        found = []
        for _ in range(5):
            slower = max(seconds(range(BATCHES), STEP), seconds(loader, 0))
            found.append(seconds(loader, STEP) / slower)
        assert min(found) <= 1.1, found
