"""CNN and a transformer trained by the same lines on Weft and on JAX have the same losses."""

from __future__ import annotations

from typing import Any

import jax
import jax.nn
import numpy as np
import pytest

import weft
from tests.peer.programs import cnn_loss, train, transformer_loss


def cnn_case() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (rng.normal(size=shape) * scale).astype(np.float32)

    params = {
        "conv": [
            (normal(3, 3, 1, 8, scale=0.3), np.zeros(8, np.float32)),
            (normal(3, 3, 8, 16, scale=0.1), np.zeros(16, np.float32)),
        ],
        "dense": (normal(4 * 4 * 16, 10, scale=0.05), np.zeros(10, np.float32)),
    }
    batches = [(normal(8, 16, 16, 1, scale=1.0), rng.integers(0, 10, 8).astype(np.int32)) for _ in range(6)]
    return cnn_loss, params, batches


def transformer_case() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    width, heads, size = 32, 4, 8

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 0.1).astype(np.float32)

    block = {
        "query": (width, heads, size),
        "key": (width, heads, size),
        "value": (width, heads, size),
        "out": (heads, size, width),
        "up": (width, 64),
        "down": (64, width),
    }
    params = {
        "embed": normal(50, width),
        "position": normal(16, width),
        "blocks": [
            {
                **{k: normal(*s) for k, s in block.items()},
                "scale1": np.ones(width, np.float32),
                "scale2": np.ones(width, np.float32),
            }
            for _ in range(2)
        ],
    }
    batches = [(rng.integers(0, 50, (4, 12)).astype(np.int32),) for _ in range(6)]
    return transformer_loss, params, batches


@pytest.mark.parametrize("case", [cnn_case, transformer_case])
def test_losses_equal_those_of_jax(case: Any) -> None:
    loss, params, batches = case()
    ours, theirs = train(weft, loss, params, batches), train(jax, loss, params, batches)
    assert ours[0] > 0
    assert len(set(ours)) == len(ours), "training must change the loss"
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
