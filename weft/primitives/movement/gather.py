"""Gather: read slices of one size at many indices of an array at once. All indexing by arrays is a case of it."""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import definitely_less
from weft.indexing.ranges import Range
from weft.ir.element import Element
from weft.ir.flow import OperandRanges
from weft.ir.fusing import LOOKED_UP, Machine, Properties
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, lookup, primitive
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType, Shape
from weft.ir.zeros import Zero
from weft.primitives.families import fail, remaining_axes, shift_axes
from weft.primitives.movement.shape import move_axis, ramp, reshape
from weft.sharding.factors import AxisFactors


class GatherScatterMode(enum.Enum):
    """What an index out of bounds means: the nearest inside, a fill value (nothing is written), or a broken promise."""

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        """Return the mode of that name; None is `fill`, which is also `drop`."""
        if isinstance(mode, GatherScatterMode):
            return mode
        try:
            return _MODE_NAMES[mode]
        except (KeyError, TypeError):
            names = ", ".join(repr(name) for name in _MODE_NAMES if name)
            raise ArgumentError(f"Unknown mode {mode!r} for indices out of bounds; it is one of {names}.") from None

    def __repr__(self) -> str:
        return f"GatherScatterMode.{self.name}"

    __str__ = __repr__


_MODE_NAMES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


class GatherDimensionNumbers(NamedTuple):
    """Correspondence between the dimensions of the result, the indices and the operand.

    offset_dims: dimensions of the result that run over a slice; all others run over the indices, in order.
    collapsed_slice_dims: operand dimensions of slice size 1 that the result does not have. start_index_map: the operand
    dimension that each component of an index vector (last in the indices) starts. operand_batching_dims,
    start_indices_batching_dims: dimensions that go through operand and indices side by side.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class Windows:
    """Where the elements of many windows lie in an operand: the index arithmetic that gather and scatter share.

    `window_dims` are the operand dimensions that a window runs over, with `sizes` in each of them. A window that covers
    a dimension whole needs no index there, so whole rows are copied at once: the operand is seen as a matrix of
    (`addressed` dimensions, `whole` dimensions), and `rows` are flat row indices, in order of index, then window.
    """

    def __init__(
        self,
        shape: Sequence[int],
        indices: np.ndarray,
        sizes: Sequence[int],
        window_dims: Sequence[int],
        starts: Sequence[int],
        batching: Sequence[tuple[int, int]],
        clip: bool,
    ):
        many = indices.shape[:-1]
        components = np.asarray(indices).astype(np.int64)
        limits = np.array([shape[d] - sizes[d] for d in starts], np.int64)
        self.valid: Any = None  # which windows are inside, None when all are
        if not clip:
            inside = ((components >= 0) & (components <= limits)).all(-1)
            self.valid = None if inside.all() else inside
        components = np.clip(components, 0, np.maximum(limits, 0))
        self.whole = [d for d in window_dims if d not in starts and sizes[d] == shape[d]]
        self.addressed = [d for d in range(len(shape)) if d not in self.whole]
        self.part = [d for d in window_dims if d not in self.whole]  # window dimensions that need an index
        rank = len(many) + len(self.part)
        batched = dict(batching)
        rows: Any = np.zeros((1,) * rank, np.int64)
        stride = 1
        for d in reversed(self.addressed):
            if d in starts:
                column = components[..., list(starts).index(d)]
                rows = rows + column.reshape(many + (1,) * len(self.part)) * stride
            if d in batched:
                rows = rows + _along(np.arange(shape[d]), batched[d], rank) * stride
            if d in self.part:
                rows = rows + _along(np.arange(sizes[d]), len(many) + self.part.index(d), rank) * stride
            stride *= shape[d]
        self.many = many
        self.row_shape = (*many, *(sizes[d] for d in self.part))
        self.rows = np.broadcast_to(rows, self.row_shape)
        self.whole_shape = tuple(shape[d] for d in self.whole)
        self.matrix_shape = (stride, math.prod(self.whole_shape))

    def matrix(self, operand: np.ndarray) -> np.ndarray:
        """Return the operand as a matrix: addressed rows of whole dimensions."""
        return operand.transpose(*self.addressed, *self.whole).reshape(self.matrix_shape)

    def result_order(self, window_dims: Sequence[int], offset_dims: Sequence[int]) -> tuple[int, ...]:
        """Return, for each dimension of a result (or of updates), its position among (indices, part, whole)
        dimensions."""
        rank = len(self.row_shape) + len(self.whole)
        order = [0] * rank
        window_order = [*self.part, *self.whole]
        for position, d in zip(offset_dims, window_dims, strict=True):
            order[position] = len(self.many) + window_order.index(d)
        for i, position in enumerate(remaining_axes(rank, offset_dims)):
            order[position] = i
        return tuple(order)


def _along(values: np.ndarray, position: int, rank: int) -> np.ndarray:
    return values.reshape([-1 if i == position else 1 for i in range(rank)])


def window_index(rank: int, parts: Sequence[Mapping[int, Any]]) -> list[Any]:
    """Return the index in an operand of an element of a window: for each dimension the sum of the entries of all parts,
    the start of the window, the index inside of it, and the index in the batch."""
    index: list[Any] = []
    for d in range(rank):
        there = [part[d] for part in parts if d in part]
        index.append(functools.reduce(operator.add, there) if there else 0)
    return index


def default_fill(dtype: Any) -> Any:
    """Return the default value for reads out of bounds: nan, the least signed or the greatest unsigned integer."""
    kind = dtypes.kind(dtype)
    if kind in "fc":
        return np.array(np.nan, dtype)
    if kind == "i":
        return np.array(dtypes.iinfo(dtype).min, dtype)
    if kind == "u":
        return np.array(dtypes.iinfo(dtype).max, dtype)
    if kind == "b":
        return np.array(True)
    raise ArgumentTypeError(
        f"gather with mode 'fill' has no fill value for dtype {dtypes.name(dtype)}; use mode 'clip'."
    )


def check_index_type(name: str, indices: ArrayType) -> None:
    """Raise unless indices are integers with the index vector in the last dimension."""
    if dtypes.kind(indices.dtype) not in "iu":
        raise ArgumentTypeError(f"{name} needs integer indices, got {indices.short()}.")
    if not indices.ndim:
        raise fail(f"{name} needs indices whose last dimension is the index vector, got a scalar.")


def check_dims(name: str, what: str, dims: Sequence[int], rank: int, ordered: bool = True) -> None:
    """Check that dimension numbers are distinct, in range(rank), and increasing where their order has no meaning."""
    dims = tuple(dims)
    fix = f"give distinct {'increasing ' if ordered else ''}numbers in range({rank})"
    if ordered and list(dims) != sorted(dims):
        raise fail(f"{what} in {name} op must be sorted, got {dims}.", fix=fix)
    if len(set(dims)) != len(dims):
        raise fail(f"{what} in {name} op must not repeat, got {dims}.", fix=fix)
    for i, d in enumerate(dims):
        if not 0 <= d < rank and what == "offset_dims":
            raise fail(f"Offset dimension {i} in {name} op is out of bounds, got {d}; valid range is [0, {rank}).")
        if not 0 <= d < rank:
            raise fail(
                f"Invalid {what} {'set' if ordered else 'mapping'} in {name} op; valid range is [0, {rank}), "
                f"got {i}->{d}."
            )


def check_disjoint(name: str, one: str, dims: Sequence[int], other: str, others: Sequence[int]) -> None:
    """Check that two groups of operand dimensions have none in common."""
    if set(dims) & set(others):
        raise fail(
            f"{one} and {other} in {name} op must be disjoint, got {tuple(dims)} and {tuple(others)}.",
            fix="name each operand dimension in one of the two",
        )


def check_index_batching(
    name: str, x: ArrayType, indices: ArrayType, batching: Sequence[int], what: str, index_batching: Sequence[int]
) -> None:
    """Check that batching dimensions of the operand and of the indices, which `what` names, pair up."""
    title, last = name.capitalize(), indices.ndim - 1
    index_batching = tuple(index_batching)
    if len(set(index_batching)) != len(index_batching):
        raise fail(f"{what} in {name} op must not repeat, got {index_batching}.")
    if last in index_batching:
        raise fail(
            f"{title} op cannot have the index vector dimension as a batching dimension; got {what} {index_batching} "
            f"for indices of shape {indices.shape}."
        )
    if any(not 0 <= d < last for d in index_batching):
        raise fail(f"Invalid {what} set in {name} op; valid range is [0, {last}), got {index_batching}.")
    if len(batching) != len(index_batching):
        raise fail(
            f"{title} op requires equal numbers of operand_batching_dims and {what}, got {tuple(batching)} and "
            f"{index_batching}."
        )
    sizes, index_sizes = tuple(x.shape[d] for d in batching), tuple(indices.shape[d] for d in index_batching)
    if sizes != index_sizes:
        raise fail(
            f"{title} op requires operand batching dimensions and indices batching dimensions to have the same shape, "
            f"got {sizes} and {index_sizes}."
        )


def check_index_vectors(name: str, indices: ArrayType, what: str, starts: Sequence[int]) -> None:
    """Check that index vectors have one element for each operand dimension that `what` names."""
    if indices.shape[-1] != len(starts):
        raise fail(
            f"{name.capitalize()} op has {len(starts)} elements in {what} and the bound of dimension "
            f"index_vector_dim={indices.ndim - 1} of indices is {indices.shape[-1]}. These two numbers must be equal."
        )


# ------------------------------------------------------------------------------------------ indices of a part


def find_owned_dims(x: ArrayType, starts: Sequence[int], sizes: Sequence[Any]) -> list[int]:
    """Return the indexed dimensions of an operand in which every window is a single element, so that it is in one
    part."""
    return [d for d in starts if type(x.shape[d]) is int and x.shape[d] > 1 and sizes[d] == 1]


def neutral_of_sum(dtype: Any) -> Any:
    """Return the number that leaves every number unchanged when added."""
    return -np.zeros((), dtype) if dtypes.kind(dtype) in "fc" else np.zeros((), dtype)


def to_signed_indices(indices: Any, limits: Sequence[Any] | None) -> Any:
    """Convert indices to signed integers of at least 32 bits, from which offsets can be subtracted. With `limits` they
    are clamped."""
    if limits is not None:
        if dtypes.kind(indices.dtype) == "i":
            indices = lookup("max")(indices, fill_components([0] * len(limits), indices))
        indices = lookup("min")(indices, fill_components(limits, indices))
    dtype = np.dtype(np.int64 if indices.dtype.itemsize > 4 else np.int32)
    if indices.dtype == dtype:
        return indices
    return lookup("convert_element_type")(indices, new_dtype=dtype, weak_type=False)


def fill_components(values: Sequence[int], indices: Any) -> Any:
    """Broadcast one number per component of index vectors to the shape of the indices; numbers beyond their dtype are
    clamped."""
    bounds = dtypes.iinfo(indices.dtype)
    row = np.array([min(max(v, bounds.min), bounds.max) for v in values], indices.dtype)
    return lookup("broadcast_in_dim")(row, shape=indices.shape, broadcast_dimensions=(len(indices.shape) - 1,))


def local_indices(
    parts: Parts, indices: Any, starts: Sequence[int], owned: Mapping[int, str], shape: Sequence[int]
) -> Any:
    """Return index vectors relative to the start of this device's part, of a `shape`, in the dimensions it owns."""
    columns = [parts.start(owned[d], shape[d]) if d in owned else np.zeros((), np.int32) for d in starts]
    columns = [lookup("broadcast_in_dim")(c, shape=(1,), broadcast_dimensions=()) for c in columns]
    offset = lookup("concatenate")(*columns, dimension=0)
    if indices.dtype != offset.dtype:
        offset = lookup("convert_element_type")(offset, new_dtype=indices.dtype, weak_type=False)
    last = len(indices.shape) - 1
    return lookup("sub")(indices, lookup("broadcast_in_dim")(offset, shape=indices.shape, broadcast_dimensions=(last,)))


@primitive
class gather(Primitive):
    """Slices of `slice_sizes` that start at `indices`; `fill_value` where a slice is out of bounds."""

    linear = (0,)
    copies = (0,)
    weight = 0
    index_operand = 1

    def type(
        self,
        x: ArrayType,
        indices: ArrayType,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Shape,
        indices_are_sorted: bool,
        unique_indices: bool,
        mode: GatherScatterMode,
        fill_value: Any,
    ) -> ArrayType:
        offset, collapsed, starts, batching, index_batching = dimension_numbers
        check_index_type("gather", indices)
        if mode is GatherScatterMode.FILL_OR_DROP and dtypes.kind(x.dtype) == "k":
            raise ArgumentTypeError(
                f"gather of {x.short()} has no fill value for indices out of bounds; use mode 'clip'."
            )
        many = indices.shape[:-1]
        batched, indexed = "operand_batching_dims", "start_indices_batching_dims"
        check_dims("gather", "offset_dims", offset, len(offset) + len(many))
        check_dims("gather", "collapsed_slice_dims", collapsed, x.ndim)
        check_dims("gather", "start_index_map", starts, x.ndim, ordered=False)
        check_dims("gather", batched, batching, x.ndim)
        check_disjoint("gather", "collapsed_slice_dims", collapsed, batched, batching)
        check_disjoint("gather", "start_index_map", starts, batched, batching)
        check_index_vectors("gather", indices, "start_index_map", starts)
        check_index_batching("gather", x, indices, batching, indexed, index_batching)
        if len(slice_sizes) != x.ndim:
            raise fail(
                f"Gather op must have one slice size for every input dimension, got {len(slice_sizes)} slice sizes for "
                f"an operand of shape {x.shape}."
            )
        if len(offset) + len(collapsed) + len(batching) != x.ndim:
            raise fail(
                "All components of the offset index in a gather op must either be a offset dimension or explicitly "
                f"collapsed/batching; got {dimension_numbers} for an operand of shape {x.shape}."
            )
        # At size 0, a gather that was traced for any size reads nothing: it has no results, or fills all of them.
        reads_nothing = 0 in many or mode is GatherScatterMode.FILL_OR_DROP
        sizes = [
            1 if n == 0 and size == 1 and reads_nothing else n for n, size in zip(x.shape, slice_sizes, strict=True)
        ]
        for d, (n, size) in enumerate(zip(sizes, slice_sizes, strict=True)):
            if definitely_less(n, size) or definitely_less(size, 0):
                raise fail(
                    f"Slice size at index {d} in gather op is out of range, must be within [0, {n}], got {size}.",
                    received=f"slice_sizes {tuple(slice_sizes)} for an operand of shape {x.shape}",
                )
        for dims, rule in (
            (collapsed, "collapse slice dims with bound 1"),
            (batching, "have operand batching dims with bound 0/1"),
        ):
            for i, d in enumerate(dims):
                if definitely_less(1, slice_sizes[d]):
                    raise fail(
                        f"Gather op can only {rule}, but bound is {slice_sizes[d]} for index {d} at position {i}.",
                        fix="give a slice size of 1",
                    )
        shape: list[Any] = list(many)
        for position, d in zip(offset, remaining_axes(x.ndim, (*collapsed, *batching)), strict=True):
            shape.insert(position, slice_sizes[d])
        return x.plain_of_shape(shape)

    def eval(
        self,
        x: Any,
        indices: Any,
        *,
        dimension_numbers: Any,
        slice_sizes: Any,
        mode: Any,
        fill_value: Any,
        **hints: Any,
    ) -> Any:
        offset, collapsed, starts, batching, index_batching = dimension_numbers
        x, indices = np.asarray(x), np.asarray(indices)
        window_dims = remaining_axes(x.ndim, (*collapsed, *batching))
        pairs = list(zip(batching, index_batching, strict=True))
        clip = mode is not GatherScatterMode.FILL_OR_DROP
        windows = Windows(x.shape, indices, slice_sizes, window_dims, starts, pairs, clip)
        if windows.rows.size and windows.matrix_shape[0]:
            read = np.take(windows.matrix(x), windows.rows.reshape(-1), axis=0)
        else:
            read = np.empty((windows.rows.size, windows.matrix_shape[1]), x.dtype)
        if windows.valid is not None:
            fill = default_fill(x.dtype) if fill_value is None else np.asarray(fill_value).astype(x.dtype)
            read = read.reshape((*windows.many, -1 if read.size else 0))
            read[~windows.valid] = fill
        read = read.reshape((*windows.row_shape, *windows.whole_shape))
        return read.transpose(windows.result_order(window_dims, offset))

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, indices: Any, **params: Any) -> Any:
        tangent = tangents[0]
        if type(tangent) is Zero:
            return Zero.of(out.aval)
        if params["mode"] is GatherScatterMode.FILL_OR_DROP:
            params["fill_value"] = 0  # the fill value is a constant
        return gather(tangent, indices, **params)

    def transpose(
        self,
        cotangent: Any,
        x: Any,
        indices: Any,
        *,
        dimension_numbers: Any,
        slice_sizes: Any,
        fill_value: Any,
        **params: Any,
    ) -> Sequence[Any]:
        offset, collapsed, starts, batching, index_batching = dimension_numbers
        dnums = lookup("scatter-add").dimension_numbers(offset, collapsed, starts, batching, index_batching)  # type: ignore[attr-defined]
        back = lookup("scatter-add")(instantiate(Zero(x.aval)), indices, cotangent, dimension_numbers=dnums, **params)
        return [back, None]

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, dimension_numbers: Any, slice_sizes: Any, **params: Any
    ) -> tuple[Any, int]:
        (x, indices), (dim, index_dim) = args, dims
        offset, collapsed, starts, batching, index_batching = dimension_numbers
        if dim is not None:
            x = move_axis(x, dim, 0)
            collapsed, starts, batching = shift_axes(collapsed, 0), shift_axes(starts, 0), shift_axes(batching, 0)
        if index_dim is None:
            offset, slice_sizes = (0, *shift_axes(offset, 0)), (axis.size, *slice_sizes)
        else:
            indices = move_axis(indices, index_dim, 0)
            offset, index_batching = shift_axes(offset, 0), shift_axes(index_batching, 0)
            if dim is not None:
                batching, index_batching = (0, *batching), (0, *index_batching)
                slice_sizes = (0 if axis.size == 0 else 1, *slice_sizes)
                params["indices_are_sorted"] = params["unique_indices"] = False
        dnums = GatherDimensionNumbers(offset, collapsed, starts, batching, index_batching)
        if index_dim is not None and dim is None:
            params["indices_are_sorted"] = params["unique_indices"] = False
        return gather(x, indices, dimension_numbers=dnums, slice_sizes=slice_sizes, **params), 0

    def factors(
        self, x: ArrayType, indices: ArrayType, *, dimension_numbers: Any, slice_sizes: Any, **params: Any
    ) -> AxisFactors:
        """Split indices in all dimensions, an operand in those that slices cover whole and in batching ones. In an
        indexed dimension each device reads the elements of its own part and zeros elsewhere, and the results are summed
        over devices."""
        offset, collapsed, starts, batching, index_batching = dimension_numbers
        many = indices.ndim - 1
        result: list[str | None] = [None] * (many + len(offset))
        operand: list[str | None] = [None] * x.ndim
        rows: list[str | None] = [f"i{e}" for e in range(many)]
        for position, name in zip(remaining_axes(len(result), offset), rows, strict=True):
            result[position] = name
        for position, d in zip(offset, remaining_axes(x.ndim, (*collapsed, *batching)), strict=True):
            if d not in starts and slice_sizes[d] == x.shape[d]:
                result[position] = operand[d] = f"d{d}"
        for d, e in zip(batching, index_batching, strict=True):
            operand[d] = rows[e]
        owned = find_owned_dims(x, starts, slice_sizes) if dtypes.kind(x.dtype) in "iufc" else []
        for d in owned:
            operand[d] = f"own{d}"
        return AxisFactors(
            (tuple(operand), (*rows, None)),
            (tuple(result),),
            {f"own{d}": "sum" for d in owned},
            inside={f"own{d}": 0 for d in owned},
            reason="slices may reach over the borders of parts",
        )

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Read the part of the slices that is in this part of the operand; the first device adds fill values."""
        dnums, mode = params["dimension_numbers"], params["mode"]
        split = parts.split_dims(0)
        owned = {d: split[d] for d in dnums.start_index_map if d in split}
        if not owned:
            return super().bind_local(parts, args, params)
        x, indices = args
        filled = mode is GatherScatterMode.FILL_OR_DROP
        limits = [parts.types[0].shape[d] - params["slice_sizes"][d] for d in dnums.start_index_map]
        indices = to_signed_indices(indices, None if filled else limits)
        nothing = neutral_of_sum(x.dtype)
        local = self.localize(params, parts.results)
        local.update(mode=GatherScatterMode.FILL_OR_DROP, fill_value=nothing)
        out = gather(x, local_indices(parts, indices, dnums.start_index_map, owned, x.shape), **local)
        fill = default_fill(x.dtype) if params["fill_value"] is None else np.asarray(params["fill_value"], x.dtype)
        if not filled or fill == 0:
            return [out]
        outside = lookup("or")(
            lookup("lt")(indices, np.zeros((), indices.dtype)),
            lookup("gt")(indices, fill_components(limits, indices)),
        )
        outside = lookup("reduce_or")(outside, axes=(len(indices.shape) - 1,))
        first = parts.is_first([a for name in owned.values() for a in parts.split(name)])
        first = lookup("broadcast_in_dim")(first, shape=outside.shape, broadcast_dimensions=())
        outside = lookup("and")(outside, first)
        dims = remaining_axes(len(out.shape), dnums.offset_dims)
        outside = lookup("broadcast_in_dim")(outside, shape=out.shape, broadcast_dimensions=dims)
        fills = lookup("broadcast_in_dim")(fill, shape=out.shape, broadcast_dimensions=())
        return [lookup("select_n")(outside, out, fills)]

    def localize(self, params: Params, local_results: Any) -> Params:
        dnums, sizes = params["dimension_numbers"], list(params["slice_sizes"])
        shape = local_results[0].shape
        for position, d in zip(
            dnums.offset_dims,
            remaining_axes(len(sizes), (*dnums.collapsed_slice_dims, *dnums.operand_batching_dims)),
            strict=True,
        ):
            sizes[d] = shape[position]
        return {**params, "slice_sizes": tuple(sizes)}

    def bounds(self, operands: OperandRanges, *, mode: Any, **params: Any) -> Range:
        return Range.EVERYTHING if mode is GatherScatterMode.FILL_OR_DROP else operands.anywhere(0)

    def introduced(self, params: Params, intended: bool = True) -> tuple[str, ...]:
        return self.introduces if intended and params["mode"] is GatherScatterMode.FILL_OR_DROP else ()

    def value_at(
        self,
        element: Element,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Shape,
        mode: GatherScatterMode,
        fill_value: Any,
        **params: Any,
    ) -> Any:
        """Compute an element of a window that starts at an index vector."""
        offset, collapsed, starts, batching, index_batching = dimension_numbers
        x, _ = element.types
        outer = [i for position, i in enumerate(element.index) if position not in offset]
        components = [element.operand(1, (*outer, c)) for c in range(len(starts))]
        filled = mode is GatherScatterMode.FILL_OR_DROP
        first, inside = element.window_start(components, [x.shape[d] - slice_sizes[d] for d in starts], not filled)
        window = [element.index[position] for position in offset]
        parts = (
            dict(zip(starts, first, strict=True)),
            dict(zip(remaining_axes(x.ndim, (*collapsed, *batching)), window, strict=True)),
            {d: outer[e] for d, e in zip(batching, index_batching, strict=True)},
        )
        value = element.operand(0, window_index(x.ndim, parts), inside)
        if inside is None or not filled:
            return value
        dtype = dtypes.storage(x.dtype)
        nothing = element.constant_like(value, default_fill(dtype) if fill_value is None else fill_value, dtype)
        return element.scalars.select_n(inside, nothing, value)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return LOOKED_UP

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        return (results[0], *operands[1:]), results[0]

    def samples(self) -> Any:
        for x, indices, sizes, dnums in sample_cases():
            yield Sample(x, indices, **gather_params(dnums, sizes, GatherScatterMode.CLIP))
            yield Sample(x, indices, **gather_params(dnums, sizes, GatherScatterMode.FILL_OR_DROP, -0.5))
        rows = GatherDimensionNumbers((1,), (0,), (0,))
        inside = np.array([[2], [0], [2]], np.int32)
        for dtype in (np.int32, np.bool_, np.complex64, dtypes.bfloat16):
            yield Sample(
                ramp(3, 2, dtype=dtype), inside, **gather_params(rows, (1, 2), GatherScatterMode.PROMISE_IN_BOUNDS)
            )
        for small in (np.int8, np.uint8, np.bool_):
            outside = np.array([[2], [9]], np.uint8)
            yield Sample(
                ramp(3, 2, dtype=small), outside, **gather_params(rows, (1, 2), GatherScatterMode.FILL_OR_DROP)
            )


def take_along(x: Any, indices: Any, axis: int) -> Any:
    """Return `x[..., indices[..., i, ...], ...]` along `axis`; all other axes of `x` and `indices` correspond."""
    rank, shape = len(indices.shape), tuple(indices.shape)
    if 0 in x.shape:  # there is nothing to read, and no slice of size 1
        limits = tuple(shape[axis] if i == axis else n for i, n in enumerate(x.shape))
        return lookup("slice")(x, start_indices=(0,) * rank, limit_indices=limits, strides=None)
    others = tuple(i for i in range(rank) if i != axis)
    dnums = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return gather(
        x,
        reshape(indices, new_sizes=(*shape, 1), dimensions=None),
        dimension_numbers=dnums,
        slice_sizes=(1,) * rank,
        indices_are_sorted=False,
        unique_indices=False,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=None,
    )


def gather_params(dnums: Any, sizes: Any, mode: Any, fill_value: Any = None) -> Params:
    """Return the parameters of a gather without hints."""
    hints = {"indices_are_sorted": False, "unique_indices": False}
    return {"dimension_numbers": dnums, "slice_sizes": sizes, "mode": mode, "fill_value": fill_value, **hints}


# The indices of the cases below in which one element is read twice.
REPEATING_CASES = (0, 2, 5, 7)


def sample_cases() -> list[tuple[np.ndarray, np.ndarray, Shape, GatherDimensionNumbers]]:
    """Return operands, indices, slice sizes and dimension numbers that together use every feature; scatter uses them
    too."""

    def index(*rows: Any) -> np.ndarray:
        return np.array(rows, np.int32)

    return [
        # rows of a matrix, one of them twice and two out of bounds
        (ramp(4, 3), index([1], [3], [1], [-1], [7]), (1, 3), GatherDimensionNumbers((1,), (0,), (0,))),
        # single elements at pairs of indices in another order
        (ramp(3, 4), index([[2, 0], [1, 1]], [[3, 2], [0, 5]]), (1, 1), GatherDimensionNumbers((), (0, 1), (1, 0))),
        # windows, with the slice dimensions around the index dimension
        (ramp(4, 5), index([0, 1], [3, 3], [1, 2]), (2, 3), GatherDimensionNumbers((0, 2), (), (0, 1))),
        # one window, no index dimension
        (ramp(4, 5), index(2, 1), (2, 3), GatherDimensionNumbers((0, 1), (), (0, 1))),
        # one element out of bounds
        (ramp(3), index(4), (1,), GatherDimensionNumbers((), (0,), (0,))),
        # a batching dimension in the middle of the operand and first in the indices
        (
            ramp(3, 2, 4),
            index([[0], [2], [9]], [[1], [1], [-3]]),
            (1, 1, 4),
            GatherDimensionNumbers((2,), (0,), (0,), (1,), (0,)),
        ),
        # two batching dimensions in different orders
        (
            ramp(2, 3, 4),
            index([[0], [3]], [[2], [2]], [[4], [1]]),
            (1, 1, 1),
            GatherDimensionNumbers((), (2,), (2,), (0, 1), (1, 0)),
        ),
        # no index at all: the operand repeated
        (ramp(2, 2), np.zeros((3, 0), np.int32), (2, 2), GatherDimensionNumbers((0, 2), (), ())),
        # nothing to read
        (ramp(3, 2), np.zeros((0, 1), np.int32), (1, 2), GatherDimensionNumbers((1,), (0,), (0,))),
        (ramp(3, 2), index([1], [0]), (1, 0), GatherDimensionNumbers((1,), (0,), (0,))),
    ]
