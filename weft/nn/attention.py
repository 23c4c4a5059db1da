"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.nn.normalize import logsumexp, softmax
from weft.numpy.util import check_arraylike, ensure_array
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def dot_product_attention(
    query: Any,
    key: ArrayLike,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Compute softmax(query keyᵀ scale + bias) value for each head, with logits and softmax in float32 at least.

    Shapes (B is optional): query (B, T, N, H), key and value (B, S, K, H), where the N query heads are a multiple of
    the K others (each of those serves N / K query heads); bias and mask broadcast to (B, N, T, S), and pairs with a
    false mask are left out. A window (left, right) limits how far a query looks to either side. With
    `return_residual` the logsumexp of the logits, of shape (B, T, N) and in the dtype of the keys, is returned too.

    Args:
        query: an array (B, T, N, H).
        key, value: arrays (B, S, K, H).
        bias: numbers to add to the logits.
        mask: booleans; false where a query does not attend to a key.
        scale: the factor of the logits; 1 / sqrt(H) by default.
        is_causal: whether a query attends only to keys up to its own position.
        query_seq_lengths, key_value_seq_lengths: the number of valid positions of each batch element.
        local_window_size: the number of positions before and after its own that a query attends to.
        implementation: None, "xla" or "cudnn": accepted for compatibility.
        return_residual: whether to return the logarithm of the sum of exponentials too.

    Returns:
        An array (B, T, N, H), with `return_residual` a pair.

    >>> import weft.numpy as wnp
    >>> from weft import nn
    >>> x = wnp.ones((1, 4, 2, 8))
    >>> nn.dot_product_attention(x, x, x, is_causal=True).shape
    (1, 4, 2, 8)
    """
    if implementation not in (None, "xla"):
        raise ArgumentError(
            f"dot_product_attention got implementation={implementation!r}; leave it out, "
            "or pass 'xla', which is the same."
        )
    check_arraylike("dot_product_attention", query, key, value)
    shape = np.shape(query) if not isinstance(query, Array) else query.shape
    queries, keys, values = (_with_batch(ensure_array(x)) for x in (query, key, value))
    _check(queries, keys, values)
    batch, length, heads, size = queries.shape
    others = keys.shape[2]
    factor = np.array(size**-0.5 if scale is None else scale)
    groups = wnp.reshape(queries, (batch, length, others, heads // others, size))

    wide = dtypes.accumulation_dtype(queries.dtype)
    logits = wnp.einsum("btkgh,bskh->bkgts", groups, keys, preferred_element_type=wide)
    logits = logits * factor.astype(logits.dtype)
    if bias is not None:
        logits = logits + _by_group("bias", bias, logits.shape, heads)
    allowed = _allowed(
        mask, logits.shape, heads, is_causal, local_window_size, query_seq_lengths, key_value_seq_lengths
    )
    if allowed is not None:
        # Far below any logit yet finite: a row without allowed pairs then averages instead of becoming NaN.
        lowest = np.array(-0.7 * float(dtypes.finfo(logits.dtype).max), logits.dtype)
        logits = wnp.where(allowed, logits, lowest)
    weights = softmax(logits, axis=-1).astype(keys.dtype)
    out = wnp.einsum("bkgts,bskh->btkgh", weights, values)
    if query_seq_lengths is not None:
        inside = _lengths("query_seq_lengths", query_seq_lengths, batch, length)
        out = out * inside[:, :, None, None, None].astype(out.dtype)
    out = wnp.reshape(out, (*shape[:-1], values.shape[-1]))
    if not return_residual:
        return out
    residual = lax.stop_gradient(wnp.transpose(logsumexp(logits, axis=-1), (0, 3, 1, 2)))
    return out, wnp.reshape(residual, shape[:-1]).astype(keys.dtype)


def _with_batch(x: Array) -> Array:
    return x[None] if x.ndim == 3 else x


def _check(query: Array, key: Array, value: Array) -> None:
    """Raise an error unless ranks, shapes and dtypes are compatible."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ArgumentError(
                f"dot_product_attention needs {name} of 3 or 4 dimensions (batch, length, heads, size), "
                f"got shape {x.shape}."
            )
        if x.dtype != query.dtype:
            raise ArgumentError(
                f"dot_product_attention needs one dtype, got {name} of {dtypes.name(x.dtype)} with query of "
                f"{dtypes.name(query.dtype)}. Convert with x.astype."
            )
    batch, _, heads, size = query.shape
    if key.shape[0] != batch or key.shape[3] != size or value.shape[:3] != key.shape[:3]:
        raise ArgumentError(
            f"dot_product_attention got shapes that do not fit: query {query.shape}, key {key.shape}, "
            f"value {value.shape}. Batch and head size must be equal, and key and value must agree "
            "in length and heads."
        )
    if heads % key.shape[2]:
        raise ArgumentError(
            f"dot_product_attention: query heads must be a multiple of key heads, got {heads} and {key.shape[2]}."
        )


def _by_group(name: str, x: Any, logits_shape: tuple[Any, ...], heads: int) -> Array:
    """Arrange the heads of a bias or mask that broadcasts to (B, N, T, S) in groups."""
    check_arraylike("dot_product_attention", x)
    x = ensure_array(x)
    batch, others, groups, queries, keys = logits_shape
    x = wnp.reshape(x, (1,) * (4 - x.ndim) + x.shape)
    if x.ndim != 4 or any(s not in (1, full) for s, full in zip(x.shape, (batch, heads, queries, keys), strict=True)):
        raise ArgumentError(
            f"dot_product_attention needs a {name} that broadcasts to (batch, heads, queries, keys) = "
            f"{(batch, heads, queries, keys)}, got shape {x.shape}."
        )
    if x.shape[1] == 1:
        return x[:, :, None]
    return wnp.reshape(x, (x.shape[0], others, groups, *x.shape[2:]))


def _allowed(
    mask: Any, shape: tuple[Any, ...], heads: int, causal: bool, window: Any, query_lengths: Any, key_lengths: Any
) -> Any:
    """Return the mask of pairs of query and key that count, broadcasting to the logits; None if all do."""
    batch, _, _, queries, keys = shape
    parts = []
    if mask is not None:
        grouped = _by_group("mask", mask, shape, heads)
        if dtypes.kind(grouped.dtype) != "b":
            raise ArgumentError(
                f"dot_product_attention needs a mask of booleans, got {dtypes.name(grouped.dtype)}"
                f". Numbers to add are a bias."
            )
        parts.append(grouped)
    row, column = (lax.broadcasted_iota(dtypes.int32, (1, 1, 1, queries, keys), axis) for axis in (3, 4))
    if causal:
        parts.append(row >= column)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        parts.append((row <= column + left) & (row >= column - right))
    if query_lengths is not None:
        parts.append(_lengths("query_seq_lengths", query_lengths, batch, queries)[:, None, None, :, None])
    if key_lengths is not None:
        parts.append(_lengths("key_value_seq_lengths", key_lengths, batch, keys)[:, None, None, None, :])
    allowed = None
    for part in parts:
        allowed = part if allowed is None else allowed & part
    return allowed


def _lengths(name: str, lengths: Any, batch: Any, size: Any) -> Array:
    """Return the mask of positions within each sequence's length, of shape (batch, size)."""
    lengths = wnp.asarray(lengths)
    if lengths.shape != (batch,):
        raise ArgumentError(
            f"dot_product_attention needs {name} of shape {(batch,)}, one length a sequence, got {lengths.shape}."
        )
    return lax.broadcasted_iota(dtypes.int32, (1, size), 1) < lengths[:, None]
