"""Attention as an operation."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import nn
from weft.errors import ShapeMismatchError
from weft.keras.ops.dispatch import operation, same_dtype, tensor


@operation
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Any:
    """Average values, weighted by the softmax of the dot products of queries and keys.

    Args:
        query: an array of shape (batch, targets, heads, size).
        key: an array of shape (batch, sources, key heads, size); heads are a multiple of key heads.
        value: an array of the shape of `key`.
        bias: what is added to the logits, of shape (batch, heads, targets, sources), or what broadcasts to it.
        mask: booleans of that shape: where it is False, a source does not count.
        scale: what the logits are multiplied by, `1 / sqrt(size)` by default.
        is_causal: whether sources after a target do not count.
        flash_attention: accepted: Weft chooses how attention is computed.
        attn_logits_soft_cap: if it is not None, logits become `cap * tanh(logits / cap)`.

    Returns:
        An array of the shape of `query`.
    """
    query, key, value = same_dtype(query, key, value)
    if query.ndim != 4 or key.ndim != 4 or value.shape != key.shape:
        raise ShapeMismatchError(
            "The arguments of dot_product_attention must have the shape (batch, sequence, heads, size).",
            received=f"query {query.shape}, key {key.shape}, value {value.shape}",
        )
    if attn_logits_soft_cap is None:
        bias, mask = (None if part is None else tensor(part) for part in (bias, mask))
        return nn.dot_product_attention(query, key, value, bias, mask, scale=scale, is_causal=is_causal)
    return _soft_cap_attention(query, key, value, bias, mask, scale, is_causal, attn_logits_soft_cap)


def _soft_cap_attention(
    query: Any, key: Any, value: Any, bias: Any, mask: Any, scale: float | None, is_causal: bool, cap: float
) -> Any:
    groups = query.shape[2] // key.shape[2]
    key, value = wnp.repeat(key, groups, axis=2), wnp.repeat(value, groups, axis=2)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = wnp.einsum("btnh,bsnh->bnts", query, key, preferred_element_type="float32") * scale
    logits = cap * wnp.tanh(logits / cap)
    if bias is not None:
        logits = logits + tensor(bias)
    if is_causal:
        earlier = np.tril(np.ones(logits.shape[-2:], bool))
        mask = earlier if mask is None else tensor(mask) & earlier
    if mask is not None:
        logits = wnp.where(tensor(mask), logits, -0.7 * float(wnp.finfo(logits.dtype).max))
    weights = nn.softmax(logits, axis=-1).astype(key.dtype)
    return wnp.einsum("bnts,bsnh->btnh", weights, value)
