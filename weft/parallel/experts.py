"""Experts on different devices: tokens are sent to the device of their expert and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax


def expert_parallel(
    expert: Callable[[Any, Any], Any], params: Any, x: Any, choice: Any, axis_name: Any, capacity: int
) -> Any:
    """Apply `expert(params of expert e, x of its tokens)` to each token, with the experts on different devices.

    For bodies of `shard_map`: `x` has this device's tokens, of shape `(tokens, features)`, and `choice` the index of
    the expert of each among those of all devices; the leaves of `params` have this device's experts as their first
    dimension. Each device sends at most `capacity` tokens to an expert; those beyond it get zeros. `expert` keeps the
    number of tokens.
    """
    size = lax.axis_size(axis_name)
    local = weft.tree.leaves(params)[0].shape[0]
    count = size * local
    chosen = weft.nn.one_hot(choice, count, dtype=wnp.int32)
    # The position of each token among those of its expert, counted from 0.
    position = (wnp.cumsum(chosen, 0) * chosen).sum(-1) - 1
    fits = position < capacity
    slot = wnp.where(fits, choice * capacity + position, count * capacity)
    sent = wnp.zeros((count * capacity, x.shape[-1]), x.dtype).at[slot].set(x, mode="drop")
    sent = sent.reshape(size, local * capacity, x.shape[-1])
    received = lax.all_to_all(sent, axis_name, 0, 0).reshape(size, local, capacity, x.shape[-1])
    tokens = received.swapaxes(0, 1).reshape(local, size * capacity, x.shape[-1])
    results = weft.vmap(expert)(params, tokens)
    back = results.reshape(local, size, capacity, -1).swapaxes(0, 1).reshape(size, local * capacity, -1)
    returned = lax.all_to_all(back, axis_name, 0, 0).reshape(count * capacity, -1)
    return wnp.where(fits[:, None], returned[wnp.where(fits, slot, 0)], 0)
