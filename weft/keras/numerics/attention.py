"""Masks of attention, and the equations of its contractions over any axes."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array


def causal_mask(queries: int, steps: int) -> Array:
    """Return whether a step is not after the query: (1, queries, steps)."""
    return (wnp.arange(queries)[:, None] >= wnp.arange(steps))[None]


def window_mask(queries: int, steps: int, window: int) -> Array:
    """Return whether a step is less than `window` away from the query: (1, queries, steps)."""
    return (wnp.abs(wnp.arange(queries)[:, None] - wnp.arange(steps)) < window)[None]


def attention_mask(
    query: Array,
    value: Array,
    query_mask: Any = None,
    value_mask: Any = None,
    key_mask: Any = None,
    allowed: Any = None,
    causal: bool = False,
    window: int | None = None,
) -> Any:
    """Return which pairs of query and step are attended, broadcastable to (batch, queries, steps); None if all are.

    Masks of queries are (batch, queries), those of values and keys (batch, steps).
    """
    parts = []
    if query_mask is not None:
        parts.append(wnp.expand_dims(query_mask, -1))
    parts.extend(wnp.expand_dims(mask, -2) for mask in (value_mask, key_mask) if mask is not None)
    if causal:
        parts.append(causal_mask(query.shape[1], value.shape[1]))
    if window is not None:
        parts.append(window_mask(query.shape[1], value.shape[1], window))
    if allowed is not None:
        parts.append(allowed)
    out = None
    for part in parts:
        valid = wnp.asarray(part).astype(bool)
        out = valid if out is None else out & valid
    return out


def projection_equation(free: int, contracted: int, new: int) -> tuple[str, str]:
    """Return the einsum of an input with a kernel over the input's last axes, and the letters of the new axes."""
    letters = iter(string.ascii_lowercase)
    outer, bound, out = ("".join(next(letters) for _ in range(count)) for count in (free, contracted, new))
    return f"{outer}{bound},{bound}{out}->{outer}{out}", out


def attention_equations(rank: int, axes: Sequence[int]) -> tuple[str, str]:
    """Return the einsums key, query -> scores and scores, value -> result.

    Arrays have `rank` dimensions, the last two being heads and size; attention is over `axes`. Scores are
    (others..., heads, axes of the query..., axes of the key...).
    """
    query = string.ascii_lowercase[:rank]
    other = iter(string.ascii_lowercase[rank:])
    key = "".join(next(other) if i in axes else letter for i, letter in enumerate(query))
    batch = "".join(query[i] for i in range(rank - 1) if i not in axes)
    scores = batch + "".join(query[i] for i in axes) + "".join(key[i] for i in axes)
    value = key[:-1] + next(other)
    out = query[:-1] + value[-1]
    return f"{key},{query}->{scores}", f"{scores},{value}->{out}"
