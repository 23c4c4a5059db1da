"""Slices, gather and scatter with JAX's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import described, indices, sequence
from weft.base.errors import ArgumentError, ArgumentTypeError, InvalidIndexError
from weft.base.settings import config, enable_x64
from weft.indexing.dimension import index_or_size
from weft.indexing.expression import Expression
from weft.ir.context import with_aval
from weft.ir.primitive import lookup
from weft.ir.types import get_aval
from weft.lax.argument_docs import document
from weft.lax.control_flow import while_loop
from weft.lax.shape import (
    canonical_axis,
    canonical_shape,
    concatenate,
    expand_dims,
    full,
    reshape,
    squeeze,
)
from weft.primitives.control.check import check_index, needs_checks
from weft.primitives.elementwise.arithmetic import add, rem
from weft.primitives.elementwise.compare import gt, lt
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement import gather as _gather, scatter as _scatter, slicing as _slicing
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode
from weft.primitives.movement.scatter import ScatterDimensionNumbers, window_sizes
from weft.primitives.movement.size import size_value
from weft.primitives.random.bits import KeyDtype
from weft.primitives.reduction.reduce_extrema import reduce_max
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array
from weft.trace.tracer import Tracer


def _shape(x: Any) -> Any:
    return get_aval(x).shape  # type: ignore[attr-defined]


def _dtype(x: Any) -> Any:
    return get_aval(x).dtype  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------- static slices


def slice(
    operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """Slice from start (included) to limit (excluded) in steps, in each dimension.

    Args:
        operand: an array.
        start_indices, limit_indices: the start and the end of the slice for each axis.
        strides: for each axis the step; 1 by default.

    Returns:
        An array. Indices must be known when tracing; those out of bounds raise.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.slice(wnp.arange(6), (1,), (5,), (2,))
    Array([1, 3], dtype=int32)
    """
    fix = "one int for each dimension"
    starts = tuple(map(index_or_size, sequence(start_indices, "start_indices of lax.slice", fix)))
    limits = tuple(map(index_or_size, sequence(limit_indices, "limit_indices of lax.slice", fix)))
    steps = None if strides is None else tuple(map(index_or_size, sequence(strides, "strides of lax.slice", fix)))
    if steps is not None and all(step == 1 for step in steps):
        steps = None
    shape = _shape(operand)
    if steps is None and limits == shape and not any(s != 0 for s in starts) and isinstance(operand, Array):
        return operand
    return _slicing.slice(operand, start_indices=starts, limit_indices=limits, strides=steps)


def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """Slice along one axis; bounds may be None or count from the end, as in Python.

    Args:
        operand: an array.
        start_index, limit_index: where the slice begins and ends.
        stride: the step.
        axis: the axis.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.slice_in_dim(wnp.arange(6), 1, -1)
    Array([1, 2, 3, 4], dtype=int32)
    """
    shape = _shape(operand)
    axis = canonical_axis(axis, len(shape))
    size = shape[axis]
    start = 0 if start_index is None else index_or_size(start_index)
    limit = size if limit_index is None else index_or_size(limit_index)
    if not isinstance(start, Expression) and start < 0:
        start = start + size
    if not isinstance(limit, Expression) and limit < 0:
        limit = limit + size
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, index_or_size(stride)
    return slice(operand, starts, limits, strides)


@document(
    "An array.",
    "lax.index_in_dim(wnp.arange(6), 2, keepdims=False) -> Array(2, dtype=int32)",
    index="the index, known when tracing.",
    keepdims="whether the axis stays, with size 1.",
)
def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """Select the elements at one static index of an axis."""
    shape = _shape(operand)
    axis = canonical_axis(axis, len(shape))
    i, size = index_or_size(index), shape[axis]
    wrapped = i + size if i < 0 else i
    if not isinstance(size, Expression) and not 0 <= wrapped < size:
        raise InvalidIndexError(f"Index {i} is out of bounds for axis {axis} of size {size}.")
    out = slice_in_dim(operand, wrapped, wrapped + 1, 1, axis)
    return out if keepdims else squeeze(out, (axis,))


# ------------------------------------------------------------------------------------------------------ dynamic slices


def wrap_negative(index: Any, size: Any) -> Any:
    """Convert an index whose negative values count from the end to one counted from the start."""
    if isinstance(index, Expression):
        index = size_value(index)
    aval = get_aval(index)
    kind = dtypes.kind(aval.dtype)  # type: ignore[attr-defined]
    if kind not in "iu":
        raise ArgumentTypeError(f"Indices must be integers, got {aval.short()}.")
    if not isinstance(index, Array):
        value = np.asarray(index)
        if kind == "i" and value.ndim == 0 and value < 0:
            value = value + size
        return value.astype(aval.dtype) if value.dtype != aval.dtype else value  # type: ignore[attr-defined]
    if kind == "u":
        return index
    dtype = aval.dtype  # type: ignore[attr-defined]
    symbolic = isinstance(size, Expression)
    # An index of 64 bits may have been made while they were enabled.
    wide = dtype.itemsize > 4 and not config.enable_x64
    # An index near the end of an axis of more than 2^31 elements needs 64 bits, whatever the setting.
    needed = np.dtype(np.int64 if not symbolic and size > dtypes.iinfo(np.int32).max else np.int32)
    if wide or dtype.itemsize < needed.itemsize:
        too_short = dtype.itemsize < 4 if symbolic else size > dtypes.iinfo(dtype).max
        if wide or too_short:
            index, dtype = lookup("convert_element_type")(index, new_dtype=needed, weak_type=False), needed
    if dtype.itemsize <= 4 or config.enable_x64:
        return _count_from_start(index, size, dtype)
    with enable_x64(True):
        return _count_from_start(index, size, dtype)


def _count_from_start(index: Array, size: Any, dtype: np.dtype[Any]) -> Any:
    end = size_value(size, dtype, weak=False) if isinstance(size, Expression) else np.array(size, dtype)
    return select_n(lt(index, np.zeros((), dtype)), index, add(index, end))


def _starts(start_indices: Any, shape: Sequence[Any], allow_negative: bool | Sequence[bool]) -> list[Any]:
    rank = len(shape)
    if isinstance(start_indices, (Array, np.ndarray)):
        if len(_shape(start_indices)) != 1:
            raise ArgumentTypeError(
                f"Start indices must be a sequence or an array of one dimension, got shape {_shape(start_indices)}."
            )
        count = _shape(start_indices)[0]
        start_indices = [index_in_dim(start_indices, i, 0, keepdims=False) for i in range(count)]
    starts = list(sequence(start_indices, "Start indices", "one index for each axis"))
    if len(starts) != rank:
        raise ArgumentError(
            f"The number of start indices must be the rank of the operand, got {len(starts)} for rank {rank}.",
            received=f"shape {shape}",
            fix=f"one start for each axis: {', '.join('0' * rank)} is the beginning",
        )
    allowed = [allow_negative] * rank if isinstance(allow_negative, bool) else list(allow_negative)
    return [wrap_negative(s, n) if a else s for s, n, a in zip(starts, shape, allowed, strict=True)]


@document(
    "An array of shape `slice_sizes`.",
    "lax.dynamic_slice(wnp.arange(6), (4,), (3,)) -> Array([3, 4, 5], dtype=int32)",
    start_indices="a scalar for each axis, which may be traced.",
    slice_sizes="the sizes of the slice, known when tracing.",
)
def dynamic_slice(
    operand: ArrayLike, start_indices: Any, slice_sizes: Any, *, allow_negative_indices: bool | Sequence[bool] = True
) -> Array:
    """Extract a slice of static size whose start is known at run time; it is clamped so that the slice fits."""
    starts = _starts(start_indices, _shape(operand), allow_negative_indices)
    sizes = canonical_shape(slice_sizes)
    _check_starts(starts, _shape(operand), sizes)
    return _slicing.dynamic_slice(operand, *starts, slice_sizes=sizes)


@document(
    "An array like `operand`.",
    "lax.dynamic_update_slice(wnp.arange(6), wnp.array([9, 9]), (1,)) -> Array([0, 9, 9, 3, 4, 5], dtype=int32)",
    update="an array of the rank of the operand.",
    start_indices="a scalar for each axis, which may be traced; moved back so that the update fits.",
)
def dynamic_update_slice(
    operand: ArrayLike, update: Any, start_indices: Any, *, allow_negative_indices: bool | Sequence[bool] = True
) -> Array:
    """Overwrite the slice of the operand at a start known at run time with `update`."""
    starts = _starts(start_indices, _shape(operand), allow_negative_indices)
    _check_starts(starts, _shape(operand), _shape(update))
    return _slicing.dynamic_update_slice(operand, update, *starts)


def _check_starts(starts: Sequence[Any], shape: Sequence[Any], sizes: Sequence[Any]) -> None:
    """Check starts in compiled programs. Clamping them is the functions' documented behavior, so checks must be asked
    for.
    """
    # If the numbers of dimensions differ, the type rule raises the error.
    if config.checks == "all" and len(starts) == len(shape) == len(sizes):
        for axis, (start, n, size) in enumerate(zip(starts, shape, sizes, strict=True)):
            check_index(start, axis, shape, 0, n - size, size)


def _check_indices(indices: Any, axes: Sequence[int], shape: Sequence[Any], sizes: Sequence[Any]) -> None:
    """Check the index vectors of a gather or scatter without a mode, one component after the other."""
    if not needs_checks() or not _shape(indices) or _shape(indices)[-1] != len(axes):
        return
    for i, axis in enumerate(axes):
        last = len(_shape(indices)) - 1
        column = indices if len(axes) == 1 else slice_in_dim(indices, i, i + 1, 1, last)
        check_index(column, axis, shape, 0, shape[axis] - sizes[axis], sizes[axis])


def _one_axis(operand: Any, start_index: Any, axis: int) -> tuple[int, list[Any]]:
    rank = len(_shape(operand))
    axis = canonical_axis(axis, rank)
    starts: list[Any] = [np.zeros((), get_aval(start_index).dtype)] * rank  # type: ignore[attr-defined]
    starts[axis] = start_index
    return axis, starts


@document(
    "An array.",
    "lax.dynamic_slice_in_dim(wnp.arange(6), 2, 2) -> Array([2, 3], dtype=int32)",
    start_index="a scalar, which may be traced.",
    slice_size="the size along the axis.",
)
def dynamic_slice_in_dim(
    operand: ArrayLike, start_index: Any, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Array:
    """Compute `dynamic_slice` along one axis."""
    axis, starts = _one_axis(operand, start_index, axis)
    sizes = list(_shape(operand))
    sizes[axis] = index_or_size(slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=_only(axis, len(sizes), allow_negative_indices))


def _only(axis: int, rank: int, allowed: bool) -> list[bool]:
    return [allowed and i == axis for i in range(rank)]


@document(
    "An array.",
    "lax.dynamic_index_in_dim(wnp.arange(6), 2, keepdims=False) -> Array(2, dtype=int32)",
    index="a scalar, which may be traced.",
    keepdims="whether the axis stays, with size 1.",
)
def dynamic_index_in_dim(
    operand: ArrayLike, index: Any, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Array:
    """Select the elements at one index, known at run time, of an axis."""
    out = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return out if keepdims else squeeze(out, (axis,))


@document(
    "An array like `operand`.",
    "lax.dynamic_update_slice_in_dim(wnp.arange(4), wnp.array([9]), 2, 0) -> Array([0, 1, 9, 3], dtype=int32)",
    update="an array of the rank of the operand.",
    start_index="a scalar, which may be traced.",
)
def dynamic_update_slice_in_dim(
    operand: ArrayLike, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """Compute `dynamic_update_slice` along one axis."""
    axis, starts = _one_axis(operand, start_index, axis)
    return dynamic_update_slice(
        operand, update, starts, allow_negative_indices=_only(axis, len(starts), allow_negative_indices)
    )


@document(
    "An array like `operand`.",
    "lax.dynamic_update_index_in_dim(wnp.arange(4), 9, 2, 0) -> Array([0, 1, 9, 3], dtype=int32)",
    update="an array, with or without the axis.",
    index="a scalar, which may be traced.",
)
def dynamic_update_index_in_dim(
    operand: ArrayLike, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """Replace the elements at one index of an axis."""
    rank = len(_shape(operand))
    axis = canonical_axis(axis, rank)
    if len(_shape(update)) != rank:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)


# -------------------------------------------------------------------------------------------------- gather and scatter


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """Take elements of `src` at `idxs`, index vectors of one size, one for each of `axes`.

    The index is the first dimension of the result, followed by the dimensions of `src` that are not in `axes`. Indices
    wrap around.

    >>> import weft.lax as lax, weft.numpy as wnp
    >>> lax.index_take(wnp.arange(12).reshape(3, 4), (wnp.array([0, 4]),), (1,))
    Array([[0, 4, 8],
           [0, 4, 8]], dtype=int32)
    """
    src = with_aval(src)
    axes = tuple(canonical_axis(a, src.ndim) for a in axes)
    columns = []
    for i, axis in zip(idxs, axes, strict=True):
        i = with_aval(i)
        size = np.array(max(src.shape[axis], 1), i.dtype)
        rest = rem(i, size)
        wrapped = select_n(lt(rest, np.array(0, i.dtype)), rest, add(rest, size))
        columns.append(reshape(wrapped, (*i.shape, 1)))
    dims = GatherDimensionNumbers(
        offset_dims=tuple(range(1, src.ndim - len(axes) + 1)),
        collapsed_slice_dims=tuple(sorted(axes)),
        start_index_map=axes,
    )
    sizes = tuple(1 if i in axes else n for i, n in enumerate(src.shape))
    starts = concatenate(columns, 1)
    return gather(src, starts, dims, sizes, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Any,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Array:
    """Gather slices of `slice_sizes` that begin at `start_indices`. Without a mode, indices are clipped."""
    parsed = GatherScatterMode.CLIP if mode is None else GatherScatterMode.from_any(mode)
    if parsed is GatherScatterMode.ONE_HOT:
        parsed, fill_value = GatherScatterMode.FILL_OR_DROP, 0  # a one-hot row out of bounds is all zeros
    dtype = _dtype(operand)
    if isinstance(dtype, KeyDtype) and parsed is GatherScatterMode.FILL_OR_DROP:
        return _gather_keys(
            operand, start_indices, dimension_numbers, slice_sizes, unique_indices, indices_are_sorted, fill_value
        )
    if fill_value is not None:
        fill_value = np.asarray(fill_value).item()
    dims = _dimension_numbers(dimension_numbers, GatherDimensionNumbers)
    sizes = canonical_shape(slice_sizes)
    read = _gather.gather(
        operand,
        start_indices,
        dimension_numbers=dims,
        slice_sizes=sizes,
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=parsed,
        fill_value=fill_value,
    )
    if mode is None:  # after the type rule, which says what is wrong with the numbers
        _check_indices(start_indices, dims.start_index_map, _shape(operand), sizes)
    return read


def _gather_keys(
    keys: Any, indices: Any, dimension_numbers: Any, sizes: Any, unique: bool, is_sorted: bool, fill_value: Any
) -> Array:
    """Gather random keys; those out of bounds become the key whose words all are `fill_value`."""
    hints = {"unique_indices": unique, "indices_are_sorted": is_sorted}
    read = gather(keys, indices, dimension_numbers, sizes, mode="clip", **hints)
    there = full(_shape(keys), True, np.dtype(np.bool_))
    inside = gather(there, indices, dimension_numbers, sizes, mode="fill", fill_value=False, **hints)
    word = np.iinfo(np.uint32).max if fill_value is None else fill_value
    return select_n(inside, full(read.shape, word, _dtype(keys)), read)


def _dimension_numbers(dimension_numbers: Any, kind: Any) -> Any:
    """Convert dimension numbers of a gather or scatter to tuples of ints."""
    if not isinstance(dimension_numbers, kind):
        raise ArgumentTypeError(
            f"The dimension numbers must be {kind.__name__}.",
            received=described(dimension_numbers),
            fix=f"lax.{kind.__name__}({', '.join(f'{name}=(...)' for name in kind._fields[:3])})",
        )
    return kind(*(indices(dims, name) for name, dims in zip(kind._fields, dimension_numbers, strict=True)))


def _bind_scatter(
    primitive: Any,
    operand: Any,
    indices: Any,
    updates: Any,
    dimension_numbers: Any,
    is_sorted: bool,
    unique: bool,
    mode: Any,
) -> Array:
    parsed = GatherScatterMode.from_any(mode)
    if parsed is GatherScatterMode.ONE_HOT:
        parsed = GatherScatterMode.FILL_OR_DROP  # a one-hot row out of bounds writes nothing
    dims = _dimension_numbers(dimension_numbers, ScatterDimensionNumbers)
    written = primitive(
        operand,
        indices,
        updates,
        dimension_numbers=dims,
        indices_are_sorted=bool(is_sorted),
        unique_indices=bool(unique),
        mode=parsed,
    )
    if mode is None:  # after the type rule, which says what is wrong with the numbers
        shape = _shape(operand)
        sizes = window_sizes(len(shape), _shape(updates), dims)
        _check_indices(indices, dims.scatter_dims_to_operand_dims, shape, sizes)
    return written


def scatter(
    operand: ArrayLike,
    scatter_indices: Any,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Overwrite the operand with updates at indices; of two at one index the later one wins."""
    hints = indices_are_sorted, unique_indices, mode
    return _bind_scatter(_scatter.scatter, operand, scatter_indices, updates, dimension_numbers, *hints)


def scatter_add(
    operand: ArrayLike,
    scatter_indices: Any,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Add updates to the operand at indices.

    Args:
        operand: an array.
        scatter_indices: indices along the last axis.
        updates: the values to add.
        dimension_numbers: the roles of the dimensions.
        indices_are_sorted: a promise that the indices ascend.
        unique_indices: a promise that no element is selected twice.
        mode: the treatment of indices out of bounds: "fill" or "drop" ignores them, "clip" moves them inside,
            "promise_in_bounds" checks nothing.

    Returns:
        An array like `operand`. `x.at[i].add(v)` is the convenient form.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_add(wnp.zeros(3), wnp.array([[1], [1]]), wnp.ones(2), numbers)
    Array([0., 2., 0.], dtype=float32)
    """
    hints = indices_are_sorted, unique_indices, mode
    return _bind_scatter(_scatter.scatter_add, operand, scatter_indices, updates, dimension_numbers, *hints)


def scatter_sub(
    operand: ArrayLike,
    scatter_indices: Any,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Subtract updates from the operand at indices."""
    hints = indices_are_sorted, unique_indices, mode
    return _bind_scatter(_scatter.scatter_sub, operand, scatter_indices, updates, dimension_numbers, *hints)


def scatter_mul(
    operand: ArrayLike,
    scatter_indices: Any,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Multiply the operand by updates at indices."""
    hints = indices_are_sorted, unique_indices, mode
    return _bind_scatter(_scatter.scatter_mul, operand, scatter_indices, updates, dimension_numbers, *hints)


def scatter_min(
    operand: ArrayLike,
    scatter_indices: Any,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Replace the operand at indices by the minimum of it and the updates."""
    hints = indices_are_sorted, unique_indices, mode
    return _bind_scatter(_scatter.scatter_min, operand, scatter_indices, updates, dimension_numbers, *hints)


def scatter_max(
    operand: ArrayLike,
    scatter_indices: Any,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Replace the operand at indices by the maximum of it and the updates."""
    hints = indices_are_sorted, unique_indices, mode
    return _bind_scatter(_scatter.scatter_max, operand, scatter_indices, updates, dimension_numbers, *hints)


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Any = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """Apply an elementwise `func` to the operand at indices, once for each occurrence of an index."""
    dims = _dimension_numbers(dimension_numbers, ScatterDimensionNumbers)
    shape, updates = _shape(operand), canonical_shape(update_shape)
    if not updates:
        many = iter(_shape(scatter_indices)[:-1])
        rank = len(_shape(scatter_indices)) - 1 + len(dims.update_window_dims)
        updates = tuple(1 if i in dims.update_window_dims else next(many) for i in range(rank))
    hints: dict[str, Any] = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    sizes = _scatter.window_sizes(len(shape), updates, dims)

    def read(values: Any) -> Any:
        clip = "clip" if GatherScatterMode.from_any(mode) is GatherScatterMode.CLIP else "fill"
        return gather(
            values,
            scatter_indices,
            GatherDimensionNumbers(*dims),
            sizes,
            mode=clip,
            fill_value=0 if clip == "fill" else None,
        )

    if unique_indices:
        return scatter(operand, scatter_indices, func(read(operand)), dims, **hints)
    count = np.dtype(np.int32)
    times = scatter_add(full(shape, 0, count), scatter_indices, full(updates, 1, count), dims, **hints)
    most, left = reduce_max(times, axes=tuple(range(len(shape)))), read(times)

    def step(iteration: Any, values: Any) -> Any:
        # All occurrences of an index read the same value and write the same value, so their order has no meaning.
        before = read(values)
        after = select_n(gt(left, iteration), before, func(before))
        return scatter(values, scatter_indices, after, dims, **hints)

    known = None if isinstance(most, Tracer) else int(most)
    if known is not None and known <= 8:
        for iteration in range(known):
            operand = step(np.int32(iteration), operand)
        return operand
    start = (np.zeros((), count), operand)
    return while_loop(lambda s: lt(s[0], most), lambda s: (add(s[0], np.ones((), count)), step(s[0], s[1])), start)[1]
