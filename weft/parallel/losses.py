"""Losses of values that are split over devices."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import lax


def cross_entropy(logits: Any, labels: Any, axis_name: Any) -> Any:
    """Compute the cross entropy of logits whose classes are split over an axis, for bodies of `shard_map`.

    Devices send three numbers a row, the maximum, the sum of exponentials and the logit of the label, however many
    classes there are; no device has the logits or the probabilities of all classes.

    Args:
        logits: this device's classes, of shape `(..., classes / devices)`.
        labels: indices among all classes, the same on all devices, of shape `(...)`.
        axis_name: the axis over which the classes are split.

    Returns:
        The negative logarithm of the softmax at each label, the same on all devices.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> mesh = weft.make_mesh((1,), ("t",), devices=weft.devices()[:1])
    >>> body = lambda logits, labels: cross_entropy(logits, labels, "t")
    >>> specs = (weft.P(None, "t"), weft.P())
    >>> weft.shard_map(body, mesh=mesh, in_specs=specs, out_specs=weft.P())(wnp.zeros((2, 4)), wnp.array([0, 3]))
    Array([1.3862944, 1.3862944], dtype=float32)
    """
    logits = logits.astype(wnp.promote_types(logits.dtype, wnp.float32))
    size = logits.shape[-1]
    own = labels - lax.axis_index(axis_name) * size
    is_here = (own >= 0) & (own < size)
    largest = lax.pmax(lax.stop_gradient(logits.max(-1)), axis_name)
    shifted = logits - largest[..., None]
    chosen = wnp.take_along_axis(shifted, wnp.clip(own, 0, size - 1)[..., None], -1)[..., 0]
    total, chosen = lax.psum((wnp.exp(shifted).sum(-1), wnp.where(is_here, chosen, 0)), axis_name)
    return wnp.log(total) - chosen
