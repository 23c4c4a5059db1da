"""Lookahead: fast parameters explore, and slow parameters follow at intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError, ArgumentTypeError
from weft.optim.base import GradientTransformation, Params, Updates
from weft.optim.tree_mapping import ParamsPlaceholder, map_trees, need_params


class LookaheadState(NamedTuple):
    """The state of the fast optimizer, and the number of steps since the two copies were equal."""

    fast_state: Any
    steps_since_sync: Array


class LookaheadParams(NamedTuple):
    """Two copies of the parameters: gradients are taken at `fast`, results are read from `slow`."""

    fast: Params
    slow: Params

    @classmethod
    def init_synced(cls, params: Params) -> LookaheadParams:
        """Create parameters with two equal copies."""
        return cls(params, params)


def lookahead(
    fast_optimizer: GradientTransformation, sync_period: int, slow_step_size: float, reset_state: bool = False
) -> GradientTransformation:
    """Synchronize every `sync_period` steps: `slow += slow_step_size * (fast - slow)`, then `fast = slow`.

    Parameters and updates are `LookaheadParams`; gradients are taken at `fast`.
    """
    if sync_period < 1:
        raise ArgumentError(f"lookahead needs a sync_period of at least 1, got {sync_period}")

    def init(params: LookaheadParams) -> LookaheadState:
        fast = params if isinstance(params, ParamsPlaceholder) else getattr(params, "fast", None)
        if fast is None:
            raise ArgumentTypeError(
                "lookahead keeps two copies of the parameters, and init got one: "
                "use params = LookaheadParams.init_synced(params)"
            )
        return LookaheadState(fast_optimizer.init(fast), wnp.zeros((), wnp.int32))

    def update(updates: Updates, state: LookaheadState, params: LookaheadParams | None = None) -> Any:
        need_params("lookahead", params)
        assert params is not None
        new, fast_state = fast_optimizer.update(updates, state.fast_state, params.fast)
        sync = state.steps_since_sync == sync_period - 1

        def leaf(update: Any, fast: Any, slow: Any) -> tuple[Any, ...]:
            step = slow_step_size * (fast + update - slow)
            return wnp.where(sync, slow + step - fast, update), wnp.where(sync, step, wnp.zeros_like(slow))

        fast_updates, slow_updates = map_trees(
            "lookahead", leaf, results=2, updates=new, fast=params.fast, slow=params.slow
        )
        if reset_state:
            start = fast_optimizer.init(params.fast)
            fast_state = weft.tree.map(lambda first, now: wnp.where(sync, first, now), start, fast_state)
        steps = (state.steps_since_sync + 1) % sync_period
        return LookaheadParams(fast_updates, slow_updates), LookaheadState(fast_state, steps)

    return GradientTransformation(init, update)
