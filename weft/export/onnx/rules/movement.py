"""Rules of operations that move elements: shapes, slices, padding, concatenation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.export.onnx.emitter import END, INT64, Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.table import rule
from weft.indexing.dimension import Dimension
from weft.indexing.expression import Expression, maximum
from weft.ir.jaxpr import Equation


@rule("reshape", "squeeze", moves=True)
def write_reshape(g: Emitter, e: Equation, x: Value) -> Value:
    """Return the same elements under another shape."""
    return g.reshape(x, e.outvars[0].aval.shape)  # type: ignore[attr-defined]


@rule("transpose", moves=True)
def write_transpose(g: Emitter, e: Equation, x: Value) -> Value:
    """Reorder axes."""
    return g.transpose(x, e.params["permutation"])


@rule("broadcast_in_dim", moves=True)
def write_broadcast(g: Emitter, e: Equation, x: Value, *sizes: Value) -> Value:
    """Place axes at other positions and repeat along the others."""
    shape = e.params["shape"]
    placed: list[Dimension] = [1] * len(shape)
    narrow = (1,) * (x.rank - x.narrow.rank) + x.narrow.shape
    for size, dim in zip(narrow, e.params["broadcast_dimensions"], strict=True):
        placed[dim] = size
    return g.expand(g.reshape(x.narrow, tuple(placed)), shape)


@rule("tile", moves=True)
def write_tile(g: Emitter, e: Equation, x: Value) -> Value:
    """Repeat the operand along its axes."""
    shape = e.outvars[0].aval.shape  # type: ignore[attr-defined]
    return x if shape == x.shape else g.move("Tile", x, [g.shape(e.params["reps"])], shape)


@rule("rev", moves=True)
def write_rev(g: Emitter, e: Equation, x: Value) -> Value:
    """Reverse the order of elements along axes."""
    return reverse(g, x, e.params["dimensions"])


def reverse(g: Emitter, x: Value, axes: tuple[int, ...]) -> Value:
    """Reverse the order of elements along axes."""
    if not axes:
        return x
    starts, ends, steps = ([n] * len(axes) for n in (-1, -END, -1))
    return g.move("Slice", x, [g.indices(n) for n in (starts, ends, axes, steps)], x.shape)


@rule("concatenate", moves=True)
def write_concatenate(g: Emitter, e: Equation, *operands: Value) -> Value:
    """Join operands along an axis."""
    return g.concatenate(operands, e.params["dimension"])


@rule("split", moves=True)
def write_split(g: Emitter, e: Equation, x: Value) -> list[Value]:
    """Cut an operand into pieces along an axis."""
    axis = e.params["axis"]
    pieces, start = [], 0
    for size in e.params["sizes"]:
        pieces.append(cut(g, x, [axis], [start], [start + size], [1], [size]))
        start = start + size
    return pieces


@rule("slice", moves=True)
def write_slice(g: Emitter, e: Equation, x: Value) -> Value:
    """Return a part of the operand, with steps."""
    starts, limits = e.params["start_indices"], e.params["limit_indices"]
    steps = e.params["strides"] or (1,) * x.rank
    shape = e.outvars[0].aval.shape  # type: ignore[attr-defined]
    bounds = list(zip(starts, limits, steps, x.shape, strict=True))
    axes = [i for i, (start, limit, step, size) in enumerate(bounds) if (start, limit, step) != (0, size, 1)]
    return cut(g, x, axes, *([values[i] for i in axes] for values in (starts, limits, steps, shape)))


def cut(
    g: Emitter, x: Value, axes: list[int], starts: list[Any], limits: list[Any], steps: list[int], sizes: list[Any]
) -> Value:
    """Return the part of the operand between positions along some axes, which may be symbolic."""
    if not axes:
        return x
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    places = [g.shape(tuple(starts)), g.shape(tuple(limits)), g.indices(axes), g.indices(steps)]
    return g.move("Slice", x, places, tuple(shape))


@rule("pad", moves=True)
def write_pad(g: Emitter, e: Equation, x: Value, value: Value) -> Value:
    """Put padding around and between elements; negative padding removes elements."""
    return pad(g, x, value, e.params["padding_config"])


def pad(g: Emitter, x: Value, value: Value, config: Any) -> Value:
    """Pad each axis by (low, high, interior)."""
    for axis, (_, _, interior) in enumerate(config):
        if interior:
            x = dilate(g, x, value, axis, interior)
    for axis, (low, high, _) in enumerate(config):
        pieces = [x]
        for size, front in ((maximum(low, 0), True), (maximum(high, 0), False)):
            if size != 0:
                block = g.expand(g.reshape(value, (1,) * x.rank), (*x.shape[:axis], size, *x.shape[axis + 1 :]))
                pieces.insert(0 if front else len(pieces), block)
        x = g.concatenate(pieces, axis)
    for axis, (low, high, _) in enumerate(config):  # after padding, since more may be removed than there were elements
        start, end = (maximum(-n, 0) for n in (low, high))
        if start != 0 or end != 0:
            limit = x.shape[axis] - end
            x = cut(g, x, [axis], [start], [limit], [1], [limit - start])
    return x


def dilate(g: Emitter, x: Value, value: Value, axis: int, interior: int) -> Value:
    """Put `interior` padding elements between the elements of an axis: after each one, but not after the last."""
    size = x.shape[axis]
    if not isinstance(size, Expression) and size <= 1:
        return x
    apart = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
    gaps = g.expand(g.reshape(value, (1,) * len(apart)), (*x.shape[: axis + 1], interior, *x.shape[axis + 1 :]))
    both = g.concatenate([g.reshape(x, apart), gaps], axis + 1)
    whole = g.reshape(both, (*x.shape[:axis], size * (interior + 1), *x.shape[axis + 1 :]))
    end = size * (interior + 1) - interior
    return cut(g, whole, [axis], [0], [end], [1], [end])


@rule("iota")
def write_iota(g: Emitter, e: Equation, *sizes: Value) -> Value | None:
    """Return 0, 1, 2, ... along one axis."""
    shape, dimension, dtype = e.params["shape"], e.params["dimension"], e.params["dtype"]
    if dtypes.kind(dtype) == "c":
        return None
    size = shape[dimension]
    placed = tuple(size if i == dimension else 1 for i in range(len(shape)))
    return g.expand(count(g, size, dtype, placed), shape)


def count(g: Emitter, size: Dimension, dtype: Any, shape: tuple[Dimension, ...]) -> Value:
    """Return 0, 1, 2, ..., `size` of them, in some shape."""
    if not isinstance(size, Expression):
        return g.constant(np.arange(size).astype(dtype).reshape(shape))
    with g.outermost():
        stop = g.reshape(g.dimension(size), ())
        counts = g.node("Range", [g.constant(np.int64(0)), stop, g.constant(np.int64(1))], INT64, (size,))
        return g.reshape(g.cast(counts, dtype), shape)


@rule("size")
def write_size(g: Emitter, e: Equation) -> Value:
    """Return a size as a number."""
    return g.cast(g.reshape(g.dimension(e.params["expression"]), ()), e.params["dtype"])


@rule("dynamic_slice", moves=True)
def write_dynamic_slice(g: Emitter, e: Equation, x: Value, *starts: Value) -> Value:
    """Return a slice at positions that are operands, clamped so that it is inside."""
    sizes = e.params["slice_sizes"]
    axes = [i for i in range(x.rank) if sizes[i] != x.shape[i]]
    if not axes:
        return x
    first = g.concatenate([clamp_start(g, starts[i], x.shape[i], sizes[i]) for i in axes], 0)
    last = g.elementwise("Add", first, g.shape(tuple(sizes[i] for i in axes)))
    return g.move("Slice", x, [first, last, g.indices(axes)], sizes)


def clamp_start(g: Emitter, start: Value, size: Dimension, wanted: Dimension) -> Value:
    """Return the start of a slice as a vector of one integer, so that the slice is inside."""
    limit = g.dimension(size - wanted)
    position = g.reshape(g.cast(start, INT64), (1,))
    if start.dtype.name == "uint64":  # numbers beyond the signed ones are beyond every size
        top = g.elementwise("Less", position, g.indices([0]), dtype=bool)
        position = g.where(top, limit, position)
    return g.elementwise("Max", g.elementwise("Min", position, limit), g.indices([0]))


@rule("dynamic_update_slice", moves=True)
def write_dynamic_update_slice(g: Emitter, e: Equation, x: Value, update: Value, *starts: Value) -> Value:
    """Write a slice over the operand at positions that are operands."""
    axes = [i for i in range(x.rank) if update.shape[i] != x.shape[i]]
    firsts = [clamp_start(g, starts[i], x.shape[i], update.shape[i]) for i in axes]
    return _update(g, x, update, axes, firsts)


def _update(g: Emitter, x: Value, update: Value, axes: list[int], firsts: list[Value]) -> Value:
    """Join what is before the update along the first axis, the updated part, and what is after it."""
    if not axes:
        return update
    (axis, *rest), (first, *others) = axes, firsts
    last = g.elementwise("Add", first, g.dimension(update.shape[axis]))
    unknown = x.shape  # the sizes of the parts are known when the graph runs
    parts = [
        g.move("Slice", x, [start, stop, g.indices([axis])], unknown)
        for start, stop in ((g.indices([0]), first), (first, last), (last, g.indices([END])))
    ]
    size = update.shape[axis]
    middle = Value(parts[1].name, x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
    parts[1] = _update(g, middle, update, rest, others)
    whole = g.concatenate(parts, axis)
    return Value(whole.name, whole.dtype, x.shape)
