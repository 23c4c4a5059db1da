"""Rules of gathers and scatters. What is not a simple form is defined by rows of a matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft.base import dtypes
from weft.export.onnx.emitter import FLOAT32, INT32, INT64, Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.rules.elementwise import compare, is_bool, is_nan
from weft.export.onnx.rules.movement import cut
from weft.export.onnx.table import define, rule
from weft.ir.jaxpr import Equation
from weft.ir.primitive import lookup
from weft.primitives.families import inverse_permutation, remaining_axes
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode, default_fill, gather
from weft.primitives.movement.scatter import ScatterDimensionNumbers

ROWS = GatherDimensionNumbers((1,), (0,), (0,))
ROWS_WRITTEN = ScatterDimensionNumbers((1,), (0,), (0,))
# By primitive: what changes no number.
EXTREMES = {"scatter-min": math.inf, "scatter-max": -math.inf}
# By primitive: the reduction of `ScatterElements`.
WRITES = {"scatter": "none", "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max"}


def positions(g: Emitter, indices: Value, size: Any, clip: bool) -> tuple[Value, Value | None]:
    """Return indices of 64 bits that are inside of an axis, and where the given ones are (None if they are clipped)."""
    wide = g.cast(indices, INT64)
    last = g.reshape(g.dimension(size - 1), ())
    zero = g.constant(np.int64(0))
    if indices.dtype.name == "uint64":  # numbers beyond the signed ones are beyond every size
        wide = g.where(compare(g, "Less", wide, zero), g.constant(np.int64((1 << 63) - 1)), wide)
    limited = g.elementwise("Max", g.elementwise("Min", wide, last), zero)
    return limited, None if clip else compare(g, "Equal", limited, wide)


@rule("gather", moves=True)
def write_gather(g: Emitter, e: Equation, x: Value, indices: Value) -> Value | None:
    """Read along one axis by `Gather`, or beside indices of the other axes by `GatherElements`."""
    dnums, sizes, mode = e.params["dimension_numbers"], e.params["slice_sizes"], e.params["mode"]
    out: Any = e.outvars[0].aval
    starts = dnums.start_index_map
    if len(starts) != 1 or dnums.collapsed_slice_dims != starts or x.shape[starts[0]] == 0:
        return None
    (axis,) = starts
    others = remaining_axes(x.rank, starts)
    vectors = g.reshape(indices, indices.shape[:-1])
    clip = mode is not GatherScatterMode.FILL_OR_DROP
    if not dnums.operand_batching_dims:
        if any(sizes[d] != x.shape[d] for d in others):
            return None
        at, inside = positions(g, vectors, x.shape[axis], clip)
        shape = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
        read = g.move("Gather", x, [at], shape, axis=axis)
        order = [0] * out.ndim
        for position, d in zip(dnums.offset_dims, others, strict=True):
            order[position] = d if d < axis else d - 1 + at.rank
        for i, position in enumerate(remaining_axes(out.ndim, dnums.offset_dims)):
            order[position] = axis + i
        read = g.transpose(read, order)
    elif dnums.operand_batching_dims == others == dnums.start_indices_batching_dims and vectors.rank == x.rank:
        at, inside = positions(g, vectors, x.shape[axis], clip)
        read = g.move("GatherElements", x, [at], at.shape, axis=axis)
    else:
        return None
    if inside is None:
        return read
    places = tuple(remaining_axes(out.ndim, dnums.offset_dims))
    shape = tuple(out.shape[i] if i in places else 1 for i in range(out.ndim))
    fill = e.params["fill_value"]
    filling = default_fill(x.dtype) if fill is None else np.asarray(fill).astype(x.dtype)
    return g.where(g.reshape(inside, shape), read, g.constant(filling))


def find_rows(shape: Any, indices: Any, sizes: Any, windows: Any, starts: Any, batching: Any, clip: bool) -> Any:
    """Return for windows in an array: the axes that are addressed and those that are covered whole, the flat index of
    each row of the addressed axes, and where windows are inside (None if they are clipped)."""
    many = indices.shape[:-1]
    whole = [d for d in windows if d not in starts and sizes[d] == shape[d]]
    part = [d for d in windows if d not in whole]
    addressed = [d for d in range(len(shape)) if d not in whole]
    wide = indices.astype(np.int32)
    limits = np.array([shape[d] - sizes[d] for d in starts], np.int32)
    limited = wnp.clip(wide, 0, np.maximum(limits, 0))
    if dtypes.kind(indices.dtype) == "u":  # numbers beyond the signed ones are beyond every size
        limited = wnp.where(wide < 0, np.maximum(limits, 0), limited)
    valid = None if clip else ((wide >= 0) & (wide <= limits)).all(-1)
    rank = len(many) + len(part)
    rows = wnp.zeros((1,) * rank, np.int32)
    stride = 1
    batched = dict(batching)

    def along(count: int, position: int) -> Any:
        return wnp.arange(count, dtype=np.int32).reshape([-1 if i == position else 1 for i in range(rank)])

    for d in reversed(addressed):
        if d in starts:
            rows = rows + limited[..., list(starts).index(d)].reshape((*many, *(1,) * len(part))) * stride
        if d in batched:
            rows = rows + along(shape[d], batched[d]) * stride
        if d in part:
            rows = rows + along(sizes[d], len(many) + part.index(d)) * stride
        stride *= shape[d]
    full = (*many, *(sizes[d] for d in part))
    return addressed, whole, part, wnp.broadcast_to(rows, full), valid


def order_of_result(many: int, part: Any, whole: Any, windows: Any, offsets: Any) -> list[int]:
    """Return, for each dimension of a result or of updates, its position among those of indices, rows and whole
    axes."""
    order = [0] * (many + len(part) + len(whole))
    inner = [*part, *whole]
    for position, d in zip(offsets, windows, strict=True):
        order[position] = many + inner.index(d)
    for i, position in enumerate(remaining_axes(len(order), offsets)):
        order[position] = i
    return order


@define("gather")
def define_gather(
    x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **hints: Any
) -> Any:
    """Read rows of a matrix, and bring their axes to their places."""
    offsets, collapsed, starts, batching, index_batching = dimension_numbers
    windows = remaining_axes(x.ndim, (*collapsed, *batching))
    many = indices.shape[:-1]
    order_shape = (*many, *(slice_sizes[d] for d in windows))
    clip = mode is not GatherScatterMode.FILL_OR_DROP
    filling = default_fill(x.dtype) if fill_value is None else np.asarray(fill_value).astype(x.dtype)
    found = find_rows(
        x.shape, indices, slice_sizes, windows, starts, list(zip(batching, index_batching, strict=True)), clip
    )
    addressed, whole, part, rows, valid = found
    order = order_of_result(len(many), part, whole, windows, offsets)
    row_shape = (*rows.shape, *(x.shape[d] for d in whole))
    if 0 in x.shape or 0 in order_shape:
        read = wnp.full(row_shape, filling, x.dtype)
    else:
        matrix = x.transpose((*addressed, *whole)).reshape(math.prod(x.shape[d] for d in addressed), -1)
        flat = rows.reshape(-1, 1)
        read = gather(
            matrix, flat, dimension_numbers=ROWS, slice_sizes=(1, matrix.shape[1]), mode=GatherScatterMode.CLIP,
            fill_value=None, indices_are_sorted=False, unique_indices=False,
        ).reshape(row_shape)  # fmt: skip
    if valid is not None:
        read = wnp.where(valid.reshape((*many, *(1,) * (len(row_shape) - len(many)))), read, filling)
    return read.transpose(order)


def is_rows(e: Equation) -> bool:
    """Return whether a scatter writes whole rows of a matrix."""
    x: Any = e.invars[0].aval
    updates: Any = e.invars[2].aval
    return e.params["dimension_numbers"] == ROWS_WRITTEN and x.ndim == 2 and updates.ndim == 2 and x.shape[0] != 0


@rule(*WRITES, "scatter-sub", moves=True)
def write_scatter(g: Emitter, e: Equation, x: Value, indices: Value, updates: Value) -> Value | None:
    """Write rows of a matrix in order; those out of bounds go to a row that is cut off."""
    if not is_rows(e) or updates.shape[1] != x.shape[1]:
        return None
    name, own = e.primitive.name, x.dtype
    if name == "scatter-sub":
        zero = g.scalar(0, updates)
        name, updates = "scatter-add", g.elementwise("Sub", zero, updates)
    if dtypes.kind(own) == "f" and own.itemsize < 4:
        x, updates = g.cast(x, FLOAT32), g.cast(updates, FLOAT32)
    elif WRITES[name] != "none" and (is_bool(x) or dtypes.itemsize_bits(own) < 32 or dtypes.kind(own) == "u"):
        x, updates = g.cast(x, INT64), g.cast(updates, INT64)
    if name in EXTREMES and dtypes.kind(x.dtype) == "f":  # kernels differ in what they do with nan
        nothing = g.scalar(EXTREMES[name], x)
        marks = [is_nan(g, value) for value in (x, updates)]
        numbers = [g.where(mark, nothing, value) for mark, value in zip(marks, (x, updates), strict=True)]
        counts = write_rows(g, e, "add", g.cast(marks[0], INT32), indices, g.cast(marks[1], INT32))
        written = write_rows(g, e, WRITES[name], numbers[0], indices, numbers[1])
        written = g.where(compare(g, "Greater", counts, g.scalar(0, counts)), g.scalar(math.nan, written), written)
    else:
        written = write_rows(g, e, WRITES[name], x, indices, updates)
    return g.cast(written, own)


def write_rows(g: Emitter, e: Equation, reduction: str, x: Value, indices: Value, updates: Value) -> Value:
    """Combine rows of a matrix with updates by a reduction that runtimes have."""
    count, width = x.shape
    at, inside = positions(g, indices, count, e.params["mode"] is not GatherScatterMode.FILL_OR_DROP)
    target = x
    if inside is not None:
        at = g.where(inside, at, g.reshape(g.dimension(count), ()))
        target = g.concatenate([x, g.expand(g.scalar(0, x), (1, width))], 0)
    rows = [target, g.expand(at, updates.shape), updates]
    written = g.node("ScatterElements", rows, target.dtype, target.shape, axis=0, reduction=reduction)
    return written if inside is None else cut(g, written, [0], [0], [count], [1], [count])


def define_scatter(operation: Any) -> Any:
    """Return the definition of a scatter by one of rows of a matrix."""

    def definition(x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, mode: Any, **hints: Any) -> Any:
        window, inserted, starts, batching, index_batching = dimension_numbers
        windows = remaining_axes(x.ndim, (*inserted, *batching))
        sizes = [1] * x.ndim
        for position, d in zip(window, windows, strict=True):
            sizes[d] = updates.shape[position]
        if 0 in updates.shape or 0 in x.shape:
            return x
        clip = mode is not GatherScatterMode.FILL_OR_DROP
        pairs = list(zip(batching, index_batching, strict=True))
        addressed, whole, part, rows, valid = find_rows(x.shape, indices, sizes, windows, starts, pairs, clip)
        many = len(indices.shape) - 1
        order = order_of_result(many, part, whole, windows, window)
        count = math.prod(x.shape[d] for d in addressed)
        if valid is not None:
            rows = wnp.where(valid.reshape((*valid.shape, *(1,) * len(part))), rows, count)
        matrix = x.transpose((*addressed, *whole)).reshape(count, -1)
        written = updates.transpose(inverse_permutation(order)).reshape(-1, matrix.shape[1])
        result = operation(
            matrix, rows.reshape(-1, 1), written, dimension_numbers=ROWS_WRITTEN, mode=mode,
            indices_are_sorted=False, unique_indices=False,
        )  # fmt: skip
        axes = (*addressed, *whole)
        return result.reshape([x.shape[d] for d in axes]).transpose(inverse_permutation(axes))

    return definition


for _name in (*WRITES, "scatter-sub"):
    define(_name)(define_scatter(lookup(_name)))
