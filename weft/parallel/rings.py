"""Rings of devices: parts go round by `ppermute` while each device computes with the part that it has. All of these are
for bodies of `shard_map`."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError

LAYOUTS = ("contiguous", "zigzag")


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


def ring_attention(
    q: Any,
    k: Any,
    v: Any,
    axis_name: Any,
    causal: bool = False,
    scale: float | None = None,
    layout: str = "contiguous",
) -> Any:
    """Attention over a sequence that is split over an axis: `q`, `k` and `v` are this device's parts, of shape
    `(..., positions, features)`, and keys and values go round. Softmax is computed as they come, so that no device has
    the scores of more than one part.

    With `layout="zigzag"` the sequence is in the order of `zigzag`. Then all devices have the same work under a causal
    mask, and none computes scores that the mask drops but those of its own part, which takes about half of the time.
    """
    if layout not in LAYOUTS:
        raise ArgumentError(
            "ring_attention: the layout is unknown.", received=repr(layout), fix=", ".join(map(repr, LAYOUTS))
        )
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if causal and layout == "zigzag":
        return _zigzag_attention(q, k, v, axis_name, scale)
    size, length = lax.axis_size(axis_name), q.shape[-2]
    here = lax.axis_index(axis_name)
    positions = wnp.arange(length)

    @weft.checkpoint
    def attend(state: Any, k: Any, v: Any, i: Any) -> Any:
        allowed = None
        if causal:
            origin = (here - i) % size
            allowed = (here * length + positions)[:, None] >= (origin * length + positions)[None]
        return _attend(state, q, k, v, scale, allowed)

    def body(carry: Any, i: Any) -> Any:
        state, k, v = carry
        state = attend(state, k, v, i)
        return (state, lax.ppermute(k, axis_name, _ring(size)), lax.ppermute(v, axis_name, _ring(size))), None

    (state, k, v), _ = lax.scan(body, (_empty(q, v), k, v), wnp.arange(size - 1))
    return _divide(attend(state, k, v, size - 1))


def zigzag(x: Any, parts: int, axis: int = 1) -> Any:
    """Reorder a sequence for causal attention that is split into parts: of twice as many pieces, part i gets piece i
    and the same piece from the end.

    Args:
        x: an array whose dimension `axis` is the sequence.
        parts: the number of devices that the sequence will be split over; twice as many must divide its length.
        axis: the dimension.

    Returns:
        The reordered array; `zigzag_inverse` restores the order.

    >>> import weft.numpy as wnp
    >>> zigzag(wnp.arange(8), 2, 0)
    Array([0, 1, 6, 7, 2, 3, 4, 5], dtype=int32)
    """
    return wnp.take(x, wnp.array(_zigzag_order(x.shape[axis], parts)), axis)


def zigzag_inverse(x: Any, parts: int, axis: int = 1) -> Any:
    """Restore the order of a sequence that `zigzag` has reordered.

    Args:
        x: an array whose dimension `axis` is the reordered sequence.
        parts: the number of parts that `zigzag` was called with.
        axis: the dimension.

    Returns:
        The array in its original order.

    >>> import weft.numpy as wnp
    >>> zigzag_inverse(zigzag(wnp.arange(8), 2, 0), 2, 0)
    Array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)
    """
    return wnp.take(x, wnp.array(np.argsort(_zigzag_order(x.shape[axis], parts))), axis)


def _zigzag_order(length: int, parts: int) -> np.ndarray:
    if length % (2 * parts):
        raise ArgumentError(
            "zigzag: twice the number of parts must divide the length of the sequence.",
            received=f"{length} positions for {parts} parts",
        )
    pieces = np.arange(length, dtype=np.int32).reshape(2 * parts, -1)
    return np.concatenate([pieces[[i, 2 * parts - 1 - i]].reshape(-1) for i in range(parts)])


def _zigzag_attention(q: Any, k: Any, v: Any, axis_name: Any, scale: float) -> Any:
    """Causal attention where this device has piece i and the same piece from the end of the sequence.

    The later piece of queries may look at the earlier piece of keys of every device. Of another device before this one
    the earlier queries may look at its earlier keys too, of one after it the later queries at its later keys: so both
    take two blocks, which one program selects.
    """
    size, length = lax.axis_size(axis_name), q.shape[-2]
    if length % 2:
        raise ArgumentError(
            "ring_attention: in the layout 'zigzag' each device must have two pieces of equal length.",
            received=f"{length} positions",
        )
    here = lax.axis_index(axis_name)
    halves = lambda x: wnp.split(x, 2, -2)
    first_q, second_q = halves(q)

    @weft.checkpoint
    def attend(states: Any, k: Any, v: Any, i: Any) -> Any:
        (first_k, second_k), (first_v, second_v) = halves(k), halves(v)
        is_before = (here - i) % size < here
        choose = lambda one, other: weft.tree.map(lambda a, b: wnp.where(is_before, a, b), one, other)
        first, second = states
        second = _attend(second, second_q, first_k, first_v, scale)
        before, after = (first, first_q, first_k, first_v), (second, second_q, second_k, second_v)
        state, chosen_q, chosen_k, chosen_v = choose(before, after)
        updated = _attend(state, chosen_q, chosen_k, chosen_v, scale)
        return choose(updated, first), choose(second, updated)

    def own(q: Any, k: Any, v: Any) -> Any:
        (first_q, second_q), (first_k, second_k), (first_v, second_v) = map(halves, (q, k, v))
        below = wnp.tril(wnp.ones((length // 2, length // 2), bool))
        first = _attend(_empty(first_q, v), first_q, first_k, first_v, scale, below)
        second = _attend(_empty(second_q, v), second_q, second_k, second_v, scale, below)
        return first, _attend(second, second_q, first_k, first_v, scale)

    def body(carry: Any, i: Any) -> Any:
        states, k, v = carry
        k, v = lax.ppermute(k, axis_name, _ring(size)), lax.ppermute(v, axis_name, _ring(size))
        return (attend(states, k, v, i), k, v), None

    (states, _, _), _ = lax.scan(body, (weft.checkpoint(own)(q, k, v), k, v), wnp.arange(1, size))
    return wnp.concatenate([_divide(state) for state in states], -2)


def _empty(q: Any, v: Any) -> Any:
    """Return the state of a softmax over no keys: the weighted sum of values, the sum of weights, the largest score."""
    start = wnp.zeros_like(q[..., :1] * v[..., :1, :])
    return start, wnp.zeros(q.shape[:-1], q.dtype), wnp.full(q.shape[:-1], -wnp.inf, q.dtype)


def _attend(state: Any, q: Any, k: Any, v: Any, scale: float, allowed: Any = None) -> Any:
    """Add keys and values to the state of a softmax, where queries may look at them."""
    out, total, largest = state
    scores = wnp.einsum("...qd,...kd->...qk", q, k) * scale
    if allowed is not None:
        scores = wnp.where(allowed, scores, -wnp.inf)
    top = wnp.maximum(largest, lax.stop_gradient(scores.max(-1)))
    base = wnp.where(wnp.isfinite(top), top, 0.0)  # rows that have seen nothing yet
    weights = wnp.exp(scores - base[..., None])
    factor = wnp.exp(largest - base)
    out = out * factor[..., None] + wnp.einsum("...qk,...kd->...qd", weights, v)
    return out, total * factor + weights.sum(-1), top


def _divide(state: Any) -> Any:
    out, total, _ = state
    return out / total[..., None]
