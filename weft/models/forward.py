"""Forward passes: what each kind of model computes from its inputs, as functions of its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.models.config import Config, Tower
from weft.models.transformer import (
    Call,
    Context,
    Memory,
    plain_context,
    project,
    run_layers,
    token_embeddings,
)

# ------------------------------------------------------------------------------------------------------------- decoders


def head_logits(x: Any, params: dict[str, Any], config: Config) -> Any:
    """Project states to logits in float32, by the table of tokens where the head is tied to it."""
    w = dict(params.get("head", {}))
    own = params["decoder"] if "decoder" in config.towers else params
    w.setdefault("weight", own["tokens"]["weight"] if "tokens" in own else params["tokens"]["weight"])
    logits = project(x * np.array(config.get("head_scale", 1.0), x.dtype), w).astype(wnp.float32)
    if cap := config.get("cap"):
        logits = cap * wnp.tanh(logits / cap)
    return logits


def decode(
    config: Config,
    params: dict[str, Any],
    ids: Any,
    mask: Any = None,
    pieces: Any = None,
    remat: bool = False,
) -> Any:
    """Return the logits (batch, tokens, vocabulary) of a decoder.

    Args:
        config: the description of the model.
        params: its parameters.
        ids: integers (batch, tokens).
        mask: booleans (batch, tokens), false for padding.
        pieces: integers (batch, tokens) that number the texts packed into one row.
        remat: whether the backward pass recomputes the layers instead of storing what is inside of them.
    """
    tower = config.tower
    context = plain_context(ids.shape[0], ids.shape[1], params, mask, pieces)
    x = token_embeddings(ids, params, tower, context.positions)
    x, _ = run_layers(x, params, Call(tower, context), remat=remat)
    return head_logits(x, params, config)


def extend(
    config: Config,
    params: dict[str, Any],
    cache: dict[str, Any],
    ids: Any,
    fresh: bool,
    every: bool,
) -> tuple[Any, dict[str, Any]]:
    """Run new tokens of all sequences on a cache, and return logits and the new cache.

    Args:
        config: the description of the model.
        params: its parameters.
        cache: memories, the number of slots in use, and the first slot of each sequence.
        ids: integers (batch, tokens), padded on the left.
        fresh: whether the cache is empty.
        every: whether logits of all tokens are returned instead of those of the last one.
    """
    tower = config.tower
    own = params["decoder"] if "decoder" in config.towers else params
    length, starts = cache["length"], cache["starts"]
    tokens = ids.shape[1]
    slots = wnp.arange(tokens, dtype=wnp.int32) + (0 if fresh else length)
    positions = wnp.maximum(slots[None] - starts[:, None], 0)
    valid = slots[None] >= starts[:, None] if fresh else None
    table = own["buckets"]["weight"] if "buckets" in own else None
    context = Context(positions, slots, valid, None if fresh else starts, None, table)
    x = token_embeddings(ids, own if "tokens" in own else params, tower, positions)
    states = (cache["cross"], cache["cross_valid"]) if "cross" in cache else None
    call = Call(tower, context, 0 if fresh else length)
    x, memories = run_layers(x, own, call, cache["memories"], states)
    logits = head_logits(x if every else x[:, -1:], params, config)
    return logits, cache | {"memories": memories, "length": (0 if fresh else length) + wnp.int32(tokens)}


def empty_cache(tower: Tower, batch: int, capacity: int, dtype: Any, slack: int = 0) -> dict[str, Any]:
    """Return the cache of a decoder before its first token.

    A layer with a window has a ring of that size: older keys are overwritten.

    Args:
        tower: the decoder.
        batch: the number of sequences.
        capacity: the most slots that are used.
        dtype: the dtype of keys and values.
        slack: the most slots that are taken back after they were stored.
    """

    def memory(window: int | None, repeats: int) -> Memory:
        size = capacity if window is None else min(capacity, window + slack)
        shape = (repeats, batch, size, tower.key_heads, tower.head_size)
        return Memory(wnp.zeros(shape, dtype), wnp.zeros(shape, dtype))

    return {
        "memories": [[memory(kind.window, s.repeats) for kind in s.kinds] for s in tower.segments],
        "length": wnp.int32(0),
        "starts": wnp.zeros(batch, wnp.int32),
    }
