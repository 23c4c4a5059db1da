"""Layers that draw random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import nn
from weft.linen.methods import compact
from weft.linen.module import Module
from weft.linen.sharing import merge_param


class Dropout(Module):
    """Random zeroing of elements, with the others scaled up to preserve the mean; the identity if `deterministic`.

    Args:
        rate: the probability that an element is set to 0.
        broadcast_dims: axes along which the mask is broadcast.
        deterministic: whether dropout is off; may be passed in the call instead.
        rng_collection: the stream of keys.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import linen
    >>> layer = linen.Dropout(0.5, deterministic=False)
    >>> layer.apply({}, wnp.ones(4), rngs={"dropout": random.key(0)}).shape
    (4,)
    """

    rate: float
    broadcast_dims: Sequence[int] = ()
    deterministic: bool | None = None
    rng_collection: str = "dropout"

    @compact
    def __call__(self, inputs: Any, deterministic: bool | None = None, rng: Any = None) -> Any:
        still = merge_param("deterministic", self.deterministic, deterministic)
        if still or (isinstance(self.rate, (int, float)) and self.rate == 0):
            return inputs
        key = self.make_rng(self.rng_collection) if rng is None else rng
        return nn.dropout(key, self.rate, inputs, self.broadcast_dims)
