"""Batching rules of primitives, under the names of `jax.interpreters.batching`.

`primitive_batchers[p]` is a function of the operands, the dimension of each that is mapped over (None: it is not) and
the parameters; it returns the results and their dimensions. `axis_primitive_batchers[p]` takes the size, the name and
the kind of the axis (None) before them, `fancy_primitive_batchers[p]` an object with all that is known of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.api.user_primitive import (
    axis_primitive_batchers as axis_primitive_batchers,
    fancy_primitive_batchers as fancy_primitive_batchers,
    primitive_batchers as primitive_batchers,
)
from weft.base.publish import publish as _publish
from weft.ir.primitive import Axis, Primitive
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, move_batch_to_front

not_mapped = None


def bdim_at_front(x: Any, bdim: int | None, size: Any, mesh_axis: Any = None) -> Any:
    """Move the mapped dimension of a value first; broadcast a value without one to `size`."""
    return move_batch_to_front(x, bdim, Axis(size))


def broadcast(x: Any, sz: Any, axis: int, mesh_axis: Any = None) -> Any:
    """Broadcast a value along a new dimension of size `sz` at `axis`."""
    shape = (*x.shape[:axis], sz, *x.shape[axis:])
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(d + (d >= axis) for d in range(x.ndim)))


def moveaxis(x: Any, src: int, dst: int) -> Any:
    """Move dimension `src` of a value to `dst`."""
    return move_axis(x, src, dst)


def defvectorized(prim: Primitive) -> None:
    """Declare a primitive of one operand elementwise: batched, it is applied unchanged."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], /, **params: Any) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        return prim.bind(x, **params), d

    primitive_batchers[prim] = rule


def defbroadcasting(prim: Primitive) -> None:
    """Declare a primitive elementwise in several operands, which have one shape or are scalars."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], /, **params: Any) -> tuple[Any, Any]:
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        rank = max(a.ndim - (d is not None) for a, d in zip(args, dims, strict=True))
        if rank and any(a.ndim - (d is not None) != rank for a, d in zip(args, dims, strict=True)):
            # A scalar that is mapped over is one number for each element of the batch.
            args = [_as_rank(bdim_at_front(a, d, size), rank + 1) for a, d in zip(args, dims, strict=True)]
        else:
            args = [bdim_at_front(a, d, size) for a, d in zip(args, dims, strict=True)]
        shape = tuple(max(a.shape[i] for a in args) for i in range(args[0].ndim))
        args = [_to_shape(a, shape) for a in args]
        return prim.bind(*args, **params), 0

    primitive_batchers[prim] = rule


def _as_rank(x: Any, rank: int) -> Any:
    """Append dimensions of size 1 up to a rank."""
    shape = (*x.shape, *[1] * (rank - x.ndim))
    return x if x.ndim == rank else broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(x.ndim)))


def _to_shape(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(x.ndim)))


def defreducer(prim: Primitive) -> None:
    """Say that a primitive of one operand reduces the dimensions in its parameter `axes`."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], /, *, axes: Sequence[int], **params: Any) -> Any:
        (x,), (d,) = args, dims
        lifted = tuple(a + (a >= d) for a in axes)  # type: ignore[operator]
        out = prim.bind(x, axes=lifted, **params)
        return out, d - sum(a < d for a in lifted)  # type: ignore[operator]

    primitive_batchers[prim] = rule


_publish(__name__)
