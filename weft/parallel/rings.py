"""Rings of devices: parts go round by `ppermute` while each device computes with the part that it has. All of these are
for bodies of `shard_map`."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import lax


def _ring(size: int, step: int = 1) -> list[tuple[int, int]]:
    return [(i, (i + step) % size) for i in range(size)]


def collective_matmul(x: Any, w: Any, axis_name: Any) -> Any:
    """Compute `all_gather(x) @ w`, where this device has a part of the rows of `x` and some columns of `w`. Each part
    of `x` is multiplied while the next one is sent, so nothing waits for a gather."""
    size, rows = lax.axis_size(axis_name), x.shape[0]
    here = lax.axis_index(axis_name)

    def body(carry: Any, i: Any) -> Any:
        part, out = carry
        # After i steps this device has the part that began i places behind it.
        out = lax.dynamic_update_slice_in_dim(out, part @ w, (here - i) % size * rows, 0)
        return (lax.ppermute(part, axis_name, _ring(size)), out), None

    out = wnp.zeros((size * rows, w.shape[1]), wnp.result_type(x, w))
    (part, out), _ = lax.scan(body, (x, out), wnp.arange(size - 1))
    return lax.dynamic_update_slice_in_dim(out, part @ w, (here - size + 1) % size * rows, 0)


def matmul_scatter(x: Any, w: Any, axis_name: Any) -> Any:
    """Return this device's rows of the sum of `x @ w` over all devices, where each has a part of the contracted
    dimension. The sums circulate in the ring, and each device adds its part to the rows that it receives."""
    size = lax.axis_size(axis_name)
    rows = x.shape[0] // size
    here = lax.axis_index(axis_name)

    def part(i: Any) -> Any:
        # The rows that are added now reach their device after the remaining steps.
        start = (here + size - 1 - i) % size * rows
        return lax.dynamic_slice_in_dim(x, start, rows, 0) @ w

    def body(total: Any, i: Any) -> Any:
        return lax.ppermute(total, axis_name, _ring(size)) + part(i), None

    total, _ = lax.scan(body, part(0), wnp.arange(1, size))
    return total


def ring_attention(q: Any, k: Any, v: Any, axis_name: Any, causal: bool = False, scale: float | None = None) -> Any:
    """Attention over a sequence that is split over an axis: `q`, `k` and `v` are this device's parts, of shape
    `(..., positions, features)`, and keys and values go round. Softmax is computed as they come, so that no device has
    the scores of more than one part."""
    size, length = lax.axis_size(axis_name), q.shape[-2]
    here = lax.axis_index(axis_name)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    positions = wnp.arange(length)

    @weft.checkpoint
    def attend(state: Any, k: Any, v: Any, i: Any) -> Any:
        out, total, largest = state
        scores = wnp.einsum("...qd,...kd->...qk", q, k) * scale
        if causal:
            origin = (here - i) % size
            allowed = (here * length + positions)[:, None] >= (origin * length + positions)[None]
            scores = wnp.where(allowed, scores, -wnp.inf)
        top = wnp.maximum(largest, lax.stop_gradient(scores.max(-1)))
        base = wnp.where(wnp.isfinite(top), top, 0.0)  # rows that have seen nothing yet
        weights = wnp.exp(scores - base[..., None])
        factor = wnp.exp(largest - base)
        out = out * factor[..., None] + wnp.einsum("...qk,...kd->...qd", weights, v)
        return out, total * factor + weights.sum(-1), top

    def body(carry: Any, i: Any) -> Any:
        state, k, v = carry
        state = attend(state, k, v, i)
        return (state, lax.ppermute(k, axis_name, _ring(size)), lax.ppermute(v, axis_name, _ring(size))), None

    empty = (wnp.zeros_like(q[..., :1] * v[..., :1, :]), wnp.zeros(q.shape[:-1], q.dtype))
    start = (*empty, wnp.full(q.shape[:-1], -wnp.inf, q.dtype))
    (state, k, v), _ = lax.scan(body, (start, k, v), wnp.arange(size - 1))
    out, total, _ = attend(state, k, v, size - 1)
    return out / total[..., None]
