"""Pipeline parallelism: the stages of a function on the devices along an axis, applied to microbatches.

All devices run the same program: a `scan` over ticks in which each applies its stage to its current microbatch and
sends the result on by `ppermute`. The backward schedule of "gpipe" and "interleaved" is the transpose of the forward
one, which `grad` derives. In "1f1b" each tick has a forward and a backward step, so a device stores the inputs of as
many microbatches as there are stages between it and the end, not of all of them. "zero_bubble" divides backward steps
into two, so that devices wait for fewer ticks (`zero_bubble.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError
from weft.parallel.zero_bubble import run_timetable
from weft.sharding import PartitionSpec as P

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")
# Schedules whose backward steps begin before the last microbatch is through.
BY_MICROBATCH = ("1f1b", "zero_bubble")


def pipeline(
    stage: Callable[[Any, Any], Any],
    microbatches: int,
    schedule: str = "gpipe",
    *,
    mesh: Any,
    axis: Any = "stage",
    loss: Callable[[Any, Any], Any] | None = None,
    data_axis: Any = None,
    remat: bool = True,
) -> Callable[..., Any]:
    """Return a function that applies stages one after the other: `stage(params of stage i, x)` returns an array like
    `x`.

    The leaves of its `params` have the stages as their first dimension: as many as there are devices along the axis,
    or, if the schedule is "interleaved", a multiple of it, and then each device has every n-th stage, which leaves less
    time in which devices wait. The batch `x`, dimension 0, is split into `microbatches` (and before over `data_axis`,
    if there is one); for "interleaved" a multiple of the devices.

    Without `loss` it is a function of `(params, x)` that returns what the last stage returns. With `loss` it is one of
    `(params, x, targets)`, and returns the mean of `loss(y, targets)` of all microbatches; "1f1b" and "zero_bubble"
    need it, since there backward steps begin before the last microbatch is through. With `remat` backward steps compute
    stages again and store only their inputs ("1f1b" always does; "zero_bubble" gains most without).
    """
    if schedule not in SCHEDULES:
        raise ArgumentError(
            "pipeline: the schedule is unknown.", received=repr(schedule), fix=", ".join(map(repr, SCHEDULES))
        )
    if schedule in BY_MICROBATCH and loss is None:
        raise ArgumentError(
            f"pipeline: the schedule {schedule!r} needs the loss: backward steps begin before all outputs are there.",
            fix=f"pipeline(stage, microbatches, {schedule!r}, loss=lambda y, targets: ...)",
        )
    size = dict(mesh.shape)[axis]
    if schedule == "interleaved" and microbatches % size:
        raise ArgumentError(
            "pipeline: for 'interleaved' the microbatches must be a multiple of the devices along the axis.",
            received=f"{microbatches} microbatches for {size} devices",
            fix=f"microbatches={-(-microbatches // size) * size}",
        )
    applied = weft.checkpoint(stage) if remat else stage
    batch = P(data_axis)

    def chunks(params: Any) -> Any:
        """Split parameters by the stages of a device and by devices."""

        def one(leaf: Any) -> Any:
            stages = leaf.shape[0]
            if stages % size or (stages != size and schedule != "interleaved"):
                raise ArgumentError(
                    f"pipeline: the parameters of {size} devices must have as many stages as their first dimension.",
                    received=f"{stages} stages in a leaf of shape {leaf.shape}",
                    fix="schedule='interleaved' for several stages a device",
                )
            return leaf.reshape(stages // size, size, *leaf.shape[1:])

        return weft.tree.map(one, params)

    def forward(params: Any, x: Any) -> Any:
        """Return, on each device, the outputs of the last stage for all microbatches."""
        params = weft.tree.map(lambda leaf: leaf[:, 0], params)
        per_device = weft.tree.leaves(params)[0].shape[0]
        return _forward(applied, params, _split(x, microbatches), per_device, size, axis)

    def outputs(params: Any, x: Any) -> Any:
        mapped = weft.shard_map(forward, mesh=mesh, in_specs=(P(None, axis), batch), out_specs=P(None, data_axis))
        return mapped(chunks(params), x)

    if loss is None:

        def apply(params: Any, x: Any) -> Any:
            return _merge_microbatches(outputs(params, x), 0 if data_axis is None else dict(mesh.shape)[data_axis])

        return apply

    each = loss

    def mean_loss(params: Any, x: Any, targets: Any) -> Any:
        y = outputs(params, x)
        parts = 1 if data_axis is None else dict(mesh.shape)[data_axis]
        t = weft.tree.map(lambda leaf: _group_microbatches(leaf, microbatches, parts), targets)
        return weft.vmap(each)(y, t).mean()

    if schedule not in BY_MICROBATCH:
        return mean_loss
    zero_bubble = schedule == "zero_bubble"
    run_steps, step = (run_timetable, applied) if zero_bubble else (_one_forward_one_backward, stage)

    def both(params: Any, x: Any, targets: Any) -> Any:
        """Compute, on one device, the loss and the gradients with respect to parameters and batch."""
        params = weft.tree.map(lambda leaf: leaf[0, 0], params)
        rows, wanted = weft.tree.map(lambda leaf: _split(leaf, microbatches), (x, targets))
        value, gradients, dx = run_steps(step, each, params, rows, wanted, size, axis)
        value, dx = lax.psum((value, dx), axis)
        scale = 1 / microbatches
        if data_axis is not None:
            scale /= lax.axis_size(data_axis)
            value, gradients = lax.psum((value, gradients), data_axis)
        gradients = weft.tree.map(lambda g: g[None, None] * scale, gradients)
        return value * scale, gradients, dx.reshape(x.shape) * scale

    @weft.custom_vjp
    def apply_schedule(params: Any, x: Any, targets: Any) -> Any:
        return mean_loss(params, x, targets)

    def run(params: Any, x: Any, targets: Any) -> Any:
        specs = (P(None, axis), batch, batch)
        out_specs = (P(), P(None, axis), batch)
        mapped = weft.shard_map(both, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)
        value, gradients, dx = mapped(chunks(params), x, targets)
        gradients = weft.tree.map(lambda g, p: g.reshape(p.shape), gradients, params)
        return value, (gradients, dx, targets)

    def scale_cotangents(residuals: Any, cotangent: Any) -> Any:
        gradients, dx, targets = residuals
        by = weft.tree.map(lambda g: (g * cotangent).astype(g.dtype), (gradients, dx))
        return *by, weft.tree.map(_no_cotangent, targets)

    apply_schedule.defvjp(run, scale_cotangents)
    return apply_schedule


def _no_cotangent(leaf: Any) -> Any:
    """Return a zero cotangent: targets are constants."""
    if wnp.issubdtype(leaf.dtype, wnp.floating):
        return wnp.zeros_like(leaf)
    return None


def _split(x: Any, microbatches: int) -> Any:
    if x.shape[0] % microbatches:
        raise ArgumentError(
            "pipeline: the batch of each device does not split evenly into microbatches.",
            received=f"{x.shape[0]} rows for {microbatches} microbatches",
        )
    return x.reshape(microbatches, x.shape[0] // microbatches, *x.shape[1:])


def _group_microbatches(x: Any, microbatches: int, parts: int) -> Any:
    """Reorder the rows of a batch to the order of microbatches, where each device has a part of the batch."""
    rows = x.shape[0] // parts // microbatches
    x = x.reshape(parts, microbatches, rows, *x.shape[1:]).swapaxes(0, 1)
    return x.reshape(microbatches, parts * rows, *x.shape[3:])


def _merge_microbatches(y: Any, parts: int) -> Any:
    """Merge microbatches to one batch."""
    if parts <= 1:
        return y.reshape(-1, *y.shape[2:])
    y = y.reshape(y.shape[0], parts, -1, *y.shape[2:]).swapaxes(0, 1)
    return y.reshape(-1, *y.shape[3:])


def _forward(stage: Any, params: Any, x: Any, per_device: int, size: int, axis: Any) -> Any:
    """Return the outputs of the last stage for each microbatch. The leaves of `params` have the stages of this device
    as their first dimension. A microbatch passes all devices once for each stage of a device; `size` microbatches are
    in flight at once."""
    count, here = x.shape[0], lax.axis_index(axis)
    cycle = size * per_device
    ring = [(i, (i + 1) % size) for i in range(size)]

    def tick(received: Any, t: Any) -> Any:
        # At each tick a device does the work of device 0 of `here` ticks before.
        unit = wnp.maximum(t - here, 0)
        chunk = unit % cycle // size
        index = unit // cycle * size + unit % size
        fresh = lax.dynamic_index_in_dim(x, wnp.minimum(index, count - 1), 0, keepdims=False)
        value = wnp.where((here == 0) & (chunk == 0), fresh, received)
        own = weft.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, chunk, 0, keepdims=False), params)
        y = stage(own, value)
        return lax.ppermute(y, axis, ring), y

    last = [m // size * cycle + (per_device - 1) * size + m % size + size - 1 for m in range(count)]
    _, outputs = lax.scan(tick, wnp.zeros_like(x[0]), wnp.arange(last[-1] + 1))
    y = outputs[wnp.array(last)]
    return lax.psum(wnp.where(here == size - 1, y, 0), axis)


def _one_forward_one_backward(
    stage: Any, loss: Any, params: Any, x: Any, targets: Any, size: int, axis: Any
) -> tuple[Any, Any, Any]:
    """Compute the sum of the losses of all microbatches (on the last device), the gradient of this device's stage, and
    that of the batch (on the first device)."""
    count, here = x.shape[0], lax.axis_index(axis)
    stored = 2 * size - 1  # ticks between the forward and the backward step of the first device, and one
    down = [(i, i + 1) for i in range(size - 1)]
    up = [(i + 1, i) for i in range(size - 1)]
    is_first, is_last = here == 0, here == size - 1

    def tick(carry: Any, t: Any) -> Any:
        received, returned, inputs, gradients, total, dx = carry
        forward, backward = t - here, t - 2 * (size - 1) + here
        ahead = (forward >= 0) & (forward < count)
        behind = (backward >= 0) & (backward < count)
        row = wnp.clip(forward, 0, count - 1)
        value = wnp.where(is_first, lax.dynamic_index_in_dim(x, row, 0, keepdims=False), received)
        inputs = lax.dynamic_update_index_in_dim(inputs, value, t % stored, 0)
        y = stage(params, value)
        target = weft.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, row, 0, keepdims=False), targets)
        value_of_loss, dy = weft.value_and_grad(loss)(y, target)
        total = total + wnp.where(is_last & ahead, value_of_loss, 0)
        # The input of the microbatch whose backward step is due came 2 (size - 1 - here) ticks ago.
        due = lax.dynamic_index_in_dim(inputs, (t - 2 * (size - 1 - here)) % stored, 0, keepdims=False)
        _, transposed = weft.vjp(stage, params, due)
        by_params, by_input = transposed(wnp.where(is_last, dy, returned))
        gradients = weft.tree.map(lambda g, new: g + wnp.where(behind, new, 0), gradients, by_params)
        row = wnp.clip(backward, 0, count - 1)
        before = lax.dynamic_index_in_dim(dx, row, 0, keepdims=False)
        dx = lax.dynamic_update_index_in_dim(dx, wnp.where(is_first & behind, by_input, before), row, 0)
        received, returned = lax.ppermute(y, axis, down), lax.ppermute(by_input, axis, up)
        return (received, returned, inputs, gradients, total, dx), None

    zero = wnp.zeros_like(x[0])
    inputs = wnp.zeros((stored, *x.shape[1:]), x.dtype)
    start = (zero, zero, inputs, weft.tree.map(wnp.zeros_like, params), wnp.zeros(()), wnp.zeros_like(x))
    (_, _, _, gradients, total, dx), _ = lax.scan(tick, start, wnp.arange(count + 2 * (size - 1)))
    return total, gradients, dx
