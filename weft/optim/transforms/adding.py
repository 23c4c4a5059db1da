"""Transformations that add to updates."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft.numpy as wnp
from weft import Array, random
from weft.errors import ArgumentError
from weft.optim.base import (
    EmptyState,
    GradientTransformation,
    MaskOrFn,
    Params,
    ScalarOrSchedule,
    Updates,
    stateless,
)
from weft.optim.numerics import safe_increment
from weft.optim.transforms.masking import masked
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.randomness import tree_random_like

AddDecayedWeightsState = EmptyState


class WeightDecaySchedule(NamedTuple):
    """The number of steps taken."""

    count: Array  # type: ignore[assignment]


class AddNoiseState(NamedTuple):
    """Number of steps taken, and the random key of the next noise."""

    count: Array  # type: ignore[assignment]
    rng_key: Array


def add_decayed_weights(weight_decay: ScalarOrSchedule = 0.0, mask: MaskOrFn | None = None) -> GradientTransformation:
    """Add `weight_decay * p` to updates, with a mask only where it is true.

    Args:
        weight_decay: the factor of the parameters, or a schedule.
        mask: a tree of booleans, or a function that makes one.

    Returns:
        A `GradientTransformation`, whose `update` needs the parameters.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.add_decayed_weights(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.6, -0.8], dtype=float32)
    """
    where = "add_decayed_weights (weight decay)"

    def decay(updates: Updates, params: Params | None, rate: Any) -> Updates:
        need_params(where, params)
        return map_trees(where, lambda g, p: (g + rate * p,), updates=updates, params=params)[0]

    if callable(weight_decay):
        schedule = weight_decay

        def init(params: Params) -> WeightDecaySchedule:
            return WeightDecaySchedule(wnp.zeros((), wnp.int32))

        def update(updates: Updates, state: WeightDecaySchedule, params: Params | None = None) -> Any:
            new = decay(updates, params, schedule(state.count))
            return new, WeightDecaySchedule(safe_increment(state.count))

        adding = GradientTransformation(init, update)
    else:
        adding = stateless(lambda updates, params: decay(updates, params, weight_decay))
    return adding if mask is None else masked(adding, mask)


def as_key(where: str, key: Any, seed: int | None) -> Any:
    """Return the random key, or one made from the seed; an integer as key is a seed, also in an array."""
    if (key is None) == (seed is None):
        raise ArgumentError(f"{where} needs a key or a seed, got {'neither' if key is None else 'both'}")
    if seed is not None:
        key = seed
    is_seed = isinstance(key, int) or (wnp.ndim(key) == 0 and wnp.issubdtype(key.dtype, wnp.integer))
    return random.key(key) if is_seed else key


def add_noise(eta: float, gamma: float, key: Any = None, *, seed: int | None = None) -> GradientTransformation:
    """Add noise of variance `eta / t**gamma` to updates, where t counts from 1."""
    start = as_key("add_noise", key, seed)

    def init(params: Params) -> AddNoiseState:
        return AddNoiseState(wnp.zeros((), wnp.int32), start)

    def update(updates: Updates, state: AddNoiseState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        deviation = wnp.sqrt(eta / count**gamma)
        next_key, sample_key = random.split(state.rng_key)
        noise = tree_random_like(sample_key, updates)
        (new,) = map_trees("add_noise", lambda g, n: (g + deviation.astype(g.dtype) * n,), updates=updates, noise=noise)
        return new, AddNoiseState(count, next_key)

    return GradientTransformation(init, update)
