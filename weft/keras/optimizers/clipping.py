"""Bounds on gradients."""

from __future__ import annotations

from collections.abc import Sequence

import weft.numpy as wnp
from weft import Array


def clip(
    gradients: Sequence[Array], clipnorm: float | None, global_clipnorm: float | None, clipvalue: float | None
) -> list[Array]:
    """Clip gradients to a norm of `clipnorm` each, to `global_clipnorm` together, or to values of `clipvalue`; the
    first that is set applies.
    """
    if clipnorm and clipnorm > 0:
        return [_with_norm(gradient, clipnorm) for gradient in gradients]
    if global_clipnorm and global_clipnorm > 0:
        norm = wnp.sqrt(sum(wnp.sum(wnp.square(gradient)) for gradient in gradients))
        scale = global_clipnorm * wnp.minimum(1.0 / norm, 1.0 / global_clipnorm)
        # What is not finite shall be seen, and not become zeros.
        scale = scale + (norm - norm)
        return [gradient * scale for gradient in gradients]
    if clipvalue and clipvalue > 0:
        return [wnp.clip(gradient, -clipvalue, clipvalue) for gradient in gradients]
    return list(gradients)


def _with_norm(gradient: Array, largest: float) -> Array:
    norm = wnp.sqrt(wnp.sum(wnp.square(gradient)))
    return gradient * largest / wnp.maximum(norm, largest)
