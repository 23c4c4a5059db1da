"""Differentially private training: clipped per-example gradients with noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
from weft import Array, random
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    ScalarOrSchedule,
    Updates,
    identity,
)
from weft.optim.transforms.accumulation import trace
from weft.optim.transforms.adding import as_key
from weft.optim.transforms.clipping import per_example_global_norm_clip
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate


class DifferentiallyPrivateAggregateState(NamedTuple):
    """The random key of the next noise."""

    rng_key: Array


def differentially_private_aggregate(
    l2_norm_clip: float, noise_multiplier: float, key: Any = None, *, seed: int | None = None
) -> GradientTransformation:
    """Average per-example gradients clipped to `l2_norm_clip`, plus noise of that norm times `noise_multiplier`.

    Gradients come with a leading axis of examples, as `weft.vmap(weft.grad(loss), (None, 0))` returns them.
    """
    start = as_key("differentially_private_aggregate", key, seed)
    deviation = l2_norm_clip * noise_multiplier

    def init(params: Params) -> DifferentiallyPrivateAggregateState:
        return DifferentiallyPrivateAggregateState(start)

    def update(
        updates: Updates, state: DifferentiallyPrivateAggregateState, params: Params | None = None
    ) -> tuple[Updates, DifferentiallyPrivateAggregateState]:
        leaves, structure = weft.tree.flatten(updates)
        totals, _ = per_example_global_norm_clip(leaves, l2_norm_clip)
        count = leaves[0].shape[0]
        next_key, *keys = random.split(state.rng_key, len(leaves) + 1)
        noisy = [
            (total + deviation * random.normal(k, total.shape, total.dtype)) / count
            for total, k in zip(totals, keys, strict=True)
        ]
        return structure.unflatten(noisy), DifferentiallyPrivateAggregateState(next_key)

    return GradientTransformation(init, update)


def dpsgd(
    learning_rate: ScalarOrSchedule,
    l2_norm_clip: float,
    noise_multiplier: float,
    seed: int,
    momentum: float | None = None,
    nesterov: bool = False,
) -> GradientTransformationExtraArgs:
    """Create stochastic gradient descent with differential privacy (Abadi et al. 2016)."""
    return chain(
        differentially_private_aggregate(l2_norm_clip, noise_multiplier, seed=seed),
        identity() if momentum is None else trace(momentum, nesterov),
        scale_by_learning_rate(learning_rate),
    )
