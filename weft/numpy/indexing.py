"""NumPy's indexing: `x[index]` as slices where positions are known, and as a gather where they are not.

An index is parsed once to a list of entries, one for each axis of the operand or new axis of the result, with Ellipsis,
masks and negative numbers resolved. `getitem` and `x.at[index]` (in at.py) both work from these entries.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.arguments import described
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    InvalidIndexError,
    NonConcreteBooleanIndexError,
    OutOfBoundsIndexError,
)
from weft.base.settings import config
from weft.base.source import user_line
from weft.indexing.dimension import ceil_divide, definitely_less, maximum, minimum, same
from weft.indexing.expression import Expression
from weft.indexing.guards import has_answer, has_known_sign
from weft.ir.staged import operation_on
from weft.ir.types import ArrayType
from weft.lax import shape as lax_shape, slicing as lax_slicing
from weft.lax.slicing import GatherDimensionNumbers, GatherScatterMode, wrap_negative
from weft.numpy.util import broadcast_shape, cast, ensure_array, follow_device
from weft.primitives.control.check import check_index
from weft.primitives.elementwise.compare import lt
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.gather import default_fill
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.movement.slicing import dynamic_slice
from weft.runtime.array import ConcreteArray, PlacedArray, from_numpy
from weft.sharding.infer import unsplit
from weft.trace.array import Array
from weft.trace.operands import describe_operands
from weft.trace.tracer import Tracer

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)


@dataclass(slots=True)
class IntegerEntry:
    """One position of an axis, which the result does not have; `known` if it is a Python integer within bounds."""

    axis: int
    value: Any
    known: bool = True


@dataclass(slots=True)
class SliceEntry:
    """`size` positions of an axis from `start` in steps of `step`, which is negative to go backwards."""

    axis: int
    start: Any
    size: Any
    step: int
    whole: bool

    @property
    def low(self) -> Any:
        """The smallest selected position."""
        return self.start if self.step > 0 or self.size == 0 else self.start + (self.size - 1) * self.step

    @property
    def may_be_empty(self) -> bool:
        """Whether the size is symbolic, and 0 for some values of its symbols."""
        return isinstance(self.size, Expression) and not definitely_less(0, self.size)


@dataclass(slots=True)
class ArrayEntry:
    """An array of positions of an axis; without an axis, a scalar boolean, which adds a dimension of size 0 or 1."""

    axis: int | None
    value: Any
    known: bool


class NewAxis:
    """A dimension of size 1 that the operand does not have."""


class Gap:
    """An Ellipsis that covers no axis: the arrays on its two sides still count as apart."""


Entry = IntegerEntry | SliceEntry | ArrayEntry | NewAxis | Gap


# ----------------------------------------------------------------------------------------------------- reading an index


def concrete(x: Any) -> np.ndarray | None:
    """Return the values of an array-like, or None if they are traced."""
    while isinstance(x, Tracer):
        x = x.known()
        if x is None:
            return None
    if isinstance(x, ConcreteArray):
        return x._value
    return np.asarray(x)


def as_tuple(index: Any) -> tuple[Any, ...]:
    """Return the parts of an index as a tuple; a list is an error."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, list):
        raise ArgumentTypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed: a list could mean an array.",
            received=described(index),
            fix=(
                f"x[weft.numpy.array({index if len(index) < 10 else '[...]'})]   for an array of indices",
                "x[tuple(index)]   for one index per axis",
            ),
        )
    return (index,)


def read_parts(index: Any, aval: ArrayType) -> tuple[list[Any], int]:
    """Parse an index to parts, with array-likes as arrays, and count the dimensions that they index.

    An Ellipsis is appended for the remaining dimensions of an array of type `aval` if the index has none. The count
    leaves the Ellipsis out.
    """
    entries = as_tuple(index)
    ellipses = sum(1 for entry in entries if entry is Ellipsis)
    if ellipses > 1:
        raise InvalidIndexError(f"an index can only have a single ellipsis ('...'), got {ellipses}.")
    parts = [
        part if part is None or part is Ellipsis or isinstance(part, slice) else read_part(part) for part in entries
    ]
    used = sum(0 if part is None or part is Ellipsis else count_axes(part) for part in parts)
    rank = aval.ndim
    if used > rank:
        raise InvalidIndexError(
            f"Too many indices: array is {rank}-dimensional, but {used} were indexed.",
            received=aval.short(),
            fix=f"{'one index' if rank == 1 else f'at most {rank} indices'}, or x[..., None] for another axis",
        )
    if not ellipses and used < rank:
        parts.append(Ellipsis)
    return parts, used


def read_index(
    index: Any, aval: ArrayType, mode: GatherScatterMode | None = None, wrap: bool = True
) -> tuple[list[Entry], bool]:
    """Parse an index into an array of type `aval` to entries; also return whether it selects no element twice."""
    parts, used = read_parts(index, aval)
    rank, unique = aval.ndim, True
    entries: list[Entry] = []
    axis = 0
    for part in parts:
        if part is None:
            entries.append(NewAxis())
        elif part is Ellipsis:
            if used == rank:
                entries.append(Gap())
            for _ in range(rank - used):
                entries.append(SliceEntry(axis, 0, aval.shape[axis], 1, True))
                axis += 1
        elif isinstance(part, slice):
            entries.append(read_slice(part, axis, aval))
            axis += 1
        elif isinstance(part, (int, Expression)) and not isinstance(part, bool):
            entries.append(read_integer(part, axis, aval, mode, wrap))
            axis += 1
        elif dtype_kind(part) == "b":
            mask_entries = read_mask(part, axis, aval)
            entries.extend(mask_entries)
            axis += count_axes(part)
        else:
            entries.append(read_array(part, axis, aval, mode, wrap))
            axis += 1
            unique = unique and isinstance(entries[-1], IntegerEntry)
    return entries, unique


def dtype_kind(x: Any) -> str:
    """Return the kind of an array-like's elements."""
    return "b" if isinstance(x, bool) else dtypes.kind(x.dtype)


def read_part(part: Any) -> Any:
    """Convert a part that is no slice to a Python integer or an array of ints or bools (NumPy if known).
    known)."""
    if type(part) is int or isinstance(part, Expression):
        return part
    original = part
    if isinstance(part, str):
        raise ArgumentTypeError(
            "An array cannot be indexed by a string.",
            received=repr(part),
            fix="integers, slices or arrays; names are for dicts",
        )
    if isinstance(part, (list, tuple)):
        converted: Any
        if _has_tracer(part):
            converted = stack_index(part)
        else:
            converted = np.asarray(part)
        part = converted.astype(INT32) if isinstance(converted, np.ndarray) and not converted.size else converted
    elif hasattr(type(part), "__jax_array__") and not isinstance(part, Array):
        part = part.__jax_array__()
    else:
        dtypes.refuse_masked(part)
    if isinstance(part, Array):
        # The sharding of the result follows from that of the indices, so sharded indices stay arrays.
        known = None if part.aval.explicit_sharding is not None else concrete(part)
        part = part if known is None else known
    elif not isinstance(part, (np.ndarray, np.generic, bool, int, float, complex)):
        try:
            part = operator.index(part)
        except TypeError:
            raise ArgumentTypeError(
                f"An index must be an integer, a slice, None, Ellipsis or an array, got {part!r} of type "
                f"{type(part).__name__}."
            ) from None
    else:
        part = np.asarray(part)
    if isinstance(part, int):
        return part
    kind = dtypes.kind(part.dtype)
    if kind not in "biu":
        raise ArgumentTypeError(
            f"Indexer must have integer or boolean type, got indexer with type {dtypes.name(part.dtype)}.",
            received=described(original) if isinstance(original, (float, complex)) else None,
            fix="x.astype(int) of an array, int(x) of a number",
        )
    if isinstance(part, np.ndarray) and not part.ndim and kind != "b":
        return int(part)
    return part


def stack_index(part: Any) -> Array:
    """Stack nested lists of indices, some of them traced, to one array."""
    if not isinstance(part, (list, tuple)):
        return ensure_array(part)
    return lax_shape.concatenate([lax_shape.expand_dims(stack_index(p), (0,)) for p in part], 0)


def _has_tracer(part: Any) -> bool:
    return any(isinstance(p, Tracer) or (isinstance(p, (list, tuple)) and _has_tracer(p)) for p in part)


def count_axes(part: Any) -> int:
    """Return the number of axes of the operand that a part indexes."""
    if isinstance(part, (int, slice, Expression)) and not isinstance(part, bool):
        return 1
    return len(part.shape) if dtype_kind(part) == "b" else 1


def read_slice(part: slice, axis: int, aval: ArrayType) -> SliceEntry:
    """Normalize a slice: bounds counted from the start and clipped to the size of the axis."""
    size: Any = aval.shape[axis]
    start, stop, step = part.start, part.stop, part.step
    if start is None and stop is None and step is None:
        return SliceEntry(axis, 0, size, 1, True)
    start, stop, step = (_slice_bound(b, part) for b in (start, stop, step))
    if step == 0:
        raise ArgumentError("A slice step cannot be zero.")
    if any(isinstance(b, Expression) for b in (start, stop, size)):
        return _symbolic_slice(start, stop, 1 if step is None else step, axis, size)
    first, last, step = slice(start, stop, step).indices(size)
    count = max(0, -(-(last - first) // step) if step > 0 else -(-(first - last) // -step))
    return SliceEntry(axis, first if count else 0, count, step if count else 1, count == size and step == 1)


def _slice_bound(bound: Any, part: slice) -> Any:
    if bound is None or type(bound) is int or isinstance(bound, Expression):
        return bound
    if isinstance(bound, Tracer) and concrete(bound) is None:
        raise InvalidIndexError(
            "Slice entries must be static integers, since they decide the shape of the result.",
            received=f"a bound {bound.aval.short()}, {bound.origin()}",
            fix=(
                "lax.dynamic_slice_in_dim(x, start, size, axis)   with a static size",
                "where(arange(n) < stop, x, 0)   to keep the shape and hide the rest",
            ),
        )
    known = concrete(bound) if isinstance(bound, Array) else bound
    try:
        return operator.index(known)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(f"The bounds of a slice must be integers or None, got {part!r}.") from None


def _symbolic_slice(start: Any, stop: Any, step: int, axis: int, size: Any) -> SliceEntry:
    """Normalize a slice of a symbolic axis: bounds are clipped to the size of the axis, as Python does.

    Whether a symbolic bound counts from the end must be the same for all sizes.
    """
    # A backward slice runs from `size - 1` down to -1.
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)

    def position(bound: Any, default: Any) -> Any:
        if bound is None:
            return default
        return _smaller(bound, highest) if bound >= 0 else _larger(bound + size, lowest)

    first, last = (
        position(bound, default)
        for bound, default in ((start, lowest if step > 0 else highest), (stop, highest if step > 0 else lowest))
    )
    count = ceil_divide(_larger(last - first if step > 0 else first - last, 0), abs(step))
    return SliceEntry(axis, first, count, step, bool(step == 1 and same(first, 0) and same(last, size)))


def _smaller(left: Any, right: Any) -> Any:
    """Return the smaller of two positions; while sizes are being decided, the comparison is decided too."""
    return (left if left <= right else right) if has_known_sign(left - right) else minimum(left, right)


def _larger(left: Any, right: Any) -> Any:
    return (left if left >= right else right) if has_known_sign(left - right) else maximum(left, right)


def out_of_bounds(value: int, axis: int, aval: ArrayType, where: str = "") -> OutOfBoundsIndexError:
    """Return the error for an index that is known to be out of bounds."""
    size = aval.shape[axis]
    return OutOfBoundsIndexError(
        f"Index {value}{where} is out of bounds for axis {axis} of size {size}.",
        received=f"an array {aval.short()}",
        fix=(
            f"an index from {-size} to {size - 1}" if size else "an axis of size 0 has no elements",
            "x.at[i].get(mode='fill', fill_value=0) or mode='clip', x.at[i].set(v, mode='drop')   if it is meant",
        ),
        at=user_line(),
    )


def raises_when_known() -> bool:
    """Return whether an index without a mode that is known to be out of bounds is an error at once."""
    return config.strict_indices or config.check_static_indices


def read_integer(value: Any, axis: int, aval: ArrayType, mode: GatherScatterMode | None, wrap: bool) -> IntegerEntry:
    """Normalize a static index; one out of bounds raises an error, or is left to the mode."""
    size = aval.shape[axis]
    position = value + size if not isinstance(value, Expression) and value < 0 and wrap else value
    if isinstance(size, Expression) or isinstance(position, Expression):
        if definitely_less(position, 0) or not position < size or (has_answer(position) and not position >= 0):
            raise out_of_bounds(value, axis, aval)
        return IntegerEntry(axis, position)
    if 0 <= position < size:
        return IntegerEntry(axis, position)
    if mode is None:
        if raises_when_known():
            raise out_of_bounds(value, axis, aval)
        check_index(np.array(value, INT64), axis, aval.shape, -size if wrap else 0, size - 1)
    # Beyond 32 bits it is out of bounds all the same.
    return IntegerEntry(axis, np.array(min(max(position, -(2**31)), 2**31 - 1), INT32), False)


def read_array(
    part: Any, axis: int, aval: ArrayType, mode: GatherScatterMode | None, wrap: bool
) -> ArrayEntry | IntegerEntry:
    """Normalize an array of indices, checked if its values are known; a traced scalar is one position."""
    size = aval.shape[axis]
    if isinstance(part, np.ndarray):
        known = not isinstance(size, Expression)
        positions = part.astype(INT64) if part.dtype != np.uint64 else np.minimum(part, np.uint64(2**62)).astype(INT64)
        if known:
            if wrap:
                positions = np.where(positions < 0, positions + size, positions)
            outside = (positions < 0) | (positions >= size)
            if outside.any():
                if mode is None and not raises_when_known():
                    check_index(part, axis, aval.shape, -size if wrap else 0, size - 1)
                elif mode is None:
                    where = tuple(int(i) for i in np.argwhere(outside)[0])
                    raise out_of_bounds(int(part[where]), axis, aval, f" (at {list(where)} of the index array)")
                known = False
        elif mode is None and raises_when_known() and part.size and has_answer(size):
            # Sizes that these indices do not fit are decided separately, and raise.
            lowest, highest = int(positions.min()), int(positions.max())
            if not highest < size or not lowest + (size if wrap else 0) >= 0:
                raise out_of_bounds(highest if not highest < size else lowest, axis, aval)
        if not known and isinstance(size, Expression) and wrap and (positions < 0).any():
            part = from_numpy(np.clip(positions, -(2**31), 2**31 - 1).astype(INT32))
            return ArrayEntry(axis, wrap_negative(part, size), False)
        wide = not isinstance(size, Expression) and size > 2**31 - 1
        return ArrayEntry(axis, positions if wide else np.clip(positions, -(2**31), 2**31 - 1).astype(INT32), known)
    if size == 0 and mode is None and part.size:
        raise OutOfBoundsIndexError(
            f"Every index into axis {axis} is out of bounds, since the axis has size 0.",
            received=f"an array {aval.short()}",
            at=user_line(),
        )
    if mode is None and not isinstance(size, Expression):
        check_index(part, axis, aval.shape, -size if wrap else 0, size - 1)
    if dtypes.kind(part.dtype) == "u":
        if part.dtype.itemsize >= 4:  # a position beyond the signed range is beyond the end too
            end = np.array(min(size, 2**31 - 1) if not isinstance(size, Expression) else 2**31 - 1, part.dtype)
            part = select_n(lt(part, end), end, part)
        part = cast(part, INT32)
    elif part.dtype.itemsize < 4:
        part = cast(part, INT32)
    if wrap:
        part = wrap_negative(part, size)
    if not part.ndim:
        return IntegerEntry(axis, part, False)
    return ArrayEntry(axis, part, False)


def read_mask(part: Any, axis: int, aval: ArrayType) -> list[Entry]:
    """Convert a mask to the indices of its true elements; they must be known, since their number is a size."""
    mask = concrete(part)
    shape = part.shape if not isinstance(part, bool) else ()
    expected = aval.shape[axis : axis + len(shape)]
    # An empty mask selects nothing, whatever its shape.
    if tuple(shape) != tuple(expected) and 0 not in shape:
        raise InvalidIndexError(
            "A boolean index must have the shape of the axes that it selects from.",
            received=f"a mask of shape {tuple(shape)} for {tuple(expected)}, from axis {axis} of {aval.short()}",
            fix="a mask of the array's shape, such as x > 0",
        )
    if mask is None:
        raise mask_error(part)
    if not shape:
        return [ArrayEntry(None, np.zeros(int(mask), INT32), True)]
    return [ArrayEntry(axis + i, positions.astype(INT32), True) for i, positions in enumerate(np.nonzero(mask))]


def mask_error(mask: Any) -> NonConcreteBooleanIndexError:
    """Return the error for a mask whose number of true elements is not known yet."""
    return NonConcreteBooleanIndexError(
        "Array boolean indices must be concrete: the number of their true elements is the size of the result.",
        received=f"{mask.aval.short()}, {mask.origin()}",
        fix=(
            "where(mask, x, 0)   to keep the shape; x.at[mask].set(v) with a scalar v works as well",
            "x[nonzero(mask, size=n, fill_value=0)]   for a result of static size n",
        ),
        at=user_line(),
    )


# ------------------------------------------------------------------------------------------------------- gather indices


@dataclass(slots=True)
class Indexer:
    """An index in terms of gather and scatter."""

    indices: Any
    dimension_numbers: GatherDimensionNumbers
    slice_sizes: tuple[Any, ...]
    shape: tuple[Any, ...]  # of the result without new axes
    reversed: tuple[int, ...]  # dimensions of that shape that run backwards
    new_axes: tuple[int, ...]  # of the result
    known: bool


# A component of the index vectors of gather and scatter: the axis, its starts, and the batch dimensions they depend on.
Component = tuple[int, Any, tuple[int, ...]]


def result_layout(entries: Sequence[Entry], many: tuple[Any, ...]) -> list[Any]:
    """Return, for each dimension of the result, a slice entry, a new axis, or an int.

    The int is the index of one of the dimensions `many` that the index arrays broadcast to. Those take NumPy's
    position: in place of the arrays if these are adjacent, else first.
    """
    members = [i for i, e in enumerate(entries) if isinstance(e, (ArrayEntry, IntegerEntry))]
    arrays = any(isinstance(e, ArrayEntry) for e in entries)
    together = arrays and members[-1] - members[0] + 1 == len(members)
    layout: list[Any] = list(range(len(many))) if arrays and not together else []
    for i, entry in enumerate(entries):
        if isinstance(entry, (SliceEntry, NewAxis)):
            layout.append(entry)
        elif together and i == members[0]:
            layout.extend(range(len(many)))
    return layout


def chosen_components(entries: Sequence[Entry], last: int) -> list[Component]:
    """Return the components of integers and arrays; array dimensions end before batch dimension `last`."""
    found: list[Component] = []
    for entry in entries:
        if isinstance(entry, IntegerEntry):
            found.append((entry.axis, entry.value, ()))
        elif isinstance(entry, ArrayEntry) and entry.axis is not None:
            found.append((entry.axis, entry.value, tuple(range(last - entry.value.ndim, last))))
    return found


def index_to_gather(entries: Sequence[Entry], aval: ArrayType) -> Indexer:
    """Plan the gather that reads the entries; index arrays broadcast, with their dimensions where NumPy has them."""
    arrays = [e for e in entries if isinstance(e, ArrayEntry)]
    many = broadcast_shape("indexing", *(e.value.shape for e in arrays)) if arrays else ()
    layout = result_layout(entries, many)
    new_axes = tuple(i for i, dim in enumerate(layout) if isinstance(dim, NewAxis))
    old_dims = [dim for dim in layout if not isinstance(dim, NewAxis)]
    shape = tuple(many[dim] if isinstance(dim, int) else dim.size for dim in old_dims)
    # Slices with gaps are read element by element: they belong to the batch, as do the dimensions of arrays.
    windows = [isinstance(dim, SliceEntry) and (abs(dim.step) == 1 or dim.size <= 1) for dim in old_dims]
    batch = [i for i, window in enumerate(windows) if not window]
    first_many = next((n for n, i in enumerate(batch) if isinstance(old_dims[i], int)), 0)

    sizes: list[Any] = list(aval.shape)
    components = chosen_components(entries, first_many + len(many))
    collapsed = [axis for axis, _, _ in components]
    for i, dim in enumerate(old_dims):
        if isinstance(dim, SliceEntry) and windows[i]:
            sizes[dim.axis] = dim.size
            if not (dim.whole or (dim.step == -1 and dim.size == aval.shape[dim.axis])):
                components.append((dim.axis, dim.low, ()))
        elif isinstance(dim, SliceEntry):
            components.append((dim.axis, np.arange(dim.size, dtype=INT32) * abs(dim.step) + dim.low, (batch.index(i),)))
            collapsed.append(dim.axis)
    for axis in collapsed:
        sizes[axis] = 1
    backwards = tuple(
        i for i, dim in enumerate(old_dims) if isinstance(dim, SliceEntry) and dim.step < 0 and dim.size > 1
    )
    offsets = tuple(i for i, window in enumerate(windows) if window)
    dimension_numbers = GatherDimensionNumbers(
        offsets, tuple(sorted(collapsed)), tuple(axis for axis, _, _ in components)
    )
    known = all(e.known for e in entries if isinstance(e, (IntegerEntry, ArrayEntry)))
    indices = index_vectors(components, tuple(shape[i] for i in batch))
    return Indexer(indices, dimension_numbers, tuple(sizes), shape, backwards, new_axes, known)


def index_vectors(components: Sequence[Component], batch_shape: tuple[Any, ...]) -> Any:
    """Build the index vectors of a gather, one column for each component; a constant if all of them are known."""
    if not components:
        return (
            np.zeros((*batch_shape, 0), INT32)
            if not any(isinstance(d, Expression) for d in batch_shape)
            else _empty(batch_shape)
        )
    values: list[Any] = [
        value
        if isinstance(value, Array)
        else cast(value, INT32)
        if isinstance(value, Expression)
        else np.asarray(value)
        for _, value, _ in components
    ]
    dtype = INT64 if any(v.dtype.itemsize > 4 for v in values if isinstance(v, Array) or v.ndim) else INT32
    if all(isinstance(v, np.ndarray) for v in values) and not any(isinstance(d, Expression) for d in batch_shape):
        columns = []
        for value, (_, _, dims) in zip(values, components, strict=True):
            placed = [1] * len(batch_shape)
            for size, d in zip(value.shape, dims, strict=True):
                placed[d] = size
            columns.append(np.broadcast_to(value.astype(dtype).reshape(placed), batch_shape))
        return np.stack(columns, -1)
    vectors = []
    for value, (_, _, dims) in zip(values, components, strict=True):
        column = cast(value, dtype) if isinstance(value, Array) else value.astype(dtype)
        vectors.append(broadcast_in_dim(column, shape=(*batch_shape, 1), broadcast_dimensions=dims))
    return vectors[0] if len(vectors) == 1 else concatenate(*vectors, dimension=len(batch_shape))


def _empty(batch_shape: tuple[Any, ...]) -> Any:
    return lax_shape.full((*batch_shape, 0), 0, INT32)


# -------------------------------------------------------------------------------------------------------------- reading


def indexable(array: Any, index: Any) -> Array:
    """Return the array to be indexed, moved to the device that the index arrays are committed to."""
    x = ensure_array(array)
    parts = index if type(index) is tuple else (index,)
    for part in parts:
        if type(part) is PlacedArray:
            return follow_device(x, *parts)
    return x


def getitem(
    array: Any,
    index: Any,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap_negative_indices: bool = True,
) -> Array:
    """Compute `array[index]` with NumPy's meaning.

    An index known to be out of bounds raises an error, unless a mode is given. One that is known only at run time is
    clamped by default; mode "fill" returns `fill_value` there (NaN, or the least integer, when it is None).
    """
    x = indexable(array, index)
    aval: ArrayType = x.aval
    parsed = None if mode is None else GatherScatterMode.from_any(mode)
    entries, unique = read_index(index, aval, parsed, wrap_negative_indices)
    fills = parsed in (GatherScatterMode.FILL_OR_DROP, GatherScatterMode.ONE_HOT)
    simple = known = True
    for entry in entries:
        if isinstance(entry, ArrayEntry):
            simple = False
        elif isinstance(entry, IntegerEntry) and not entry.known:
            known = False
    if simple and (known or (not fills and all(n != 0 for n in aval.shape))):
        return _read_slices(x, entries)
    indexer = index_to_gather(entries, aval)
    if indexer.known and not fills:
        parsed = GatherScatterMode.PROMISE_IN_BOUNDS
    elif parsed is None:
        parsed = GatherScatterMode.CLIP  # without a mode the index was checked as it was read
    if any(size != 0 and n == 0 for size, n in zip(indexer.slice_sizes, aval.shape, strict=True)):
        y = _read_nothing(x, indexer, fills, fill_value)
    else:
        y = lax_slicing.gather(
            x,
            indexer.indices,
            indexer.dimension_numbers,
            indexer.slice_sizes,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices or (unique and indexer.known),
            mode=parsed,
            fill_value=fill_value if fills else None,
        )
    y = lax_shape.rev(y, indexer.reversed)
    return lax_shape.expand_dims(y, indexer.new_axes)


def _read_nothing(x: Array, indexer: Indexer, fills: bool, fill_value: Any) -> Array:
    """Read from an axis of size 0: return an empty result, or the fill value."""
    if not fills and 0 not in indexer.shape:
        raise OutOfBoundsIndexError(
            "An axis of size 0 has no element to read.", received=f"an array {x.aval.short()}", at=user_line()
        )
    value = default_fill(x.dtype) if fill_value is None and fills else fill_value or 0
    return lax_shape.full(indexer.shape, value, x.dtype)


def check_whole(x: Array, entries: Sequence[Entry]) -> None:
    """Raise an error if an index takes a part of a dimension that types say is split."""
    partitions = x.aval.spec.partitions
    for entry in entries:
        if isinstance(entry, (NewAxis, Gap)) or partitions[entry.axis] is None:
            continue
        if not (isinstance(entry, SliceEntry) and entry.size == x.shape[entry.axis]):
            operation = operation_on("x[...]", [x.aval], describe_operands([x]))
            operation.fail(
                f"An index takes a part of dimension {entry.axis} of {operation.label(0)}, which is split over"
                f" {partitions[entry.axis]!r}: how the result is split is not said.",
                f"{operation.operands[0].name or 'x'}.at[...].get(out_sharding=spec)",
                "lax.slice and lax.dynamic_slice, whose results are split as the operand is, if that is even",
                operation.reshard_fix(unsplit(x.aval.spec, entry.axis), 0),
            )


def _read_slices(x: Array, entries: Sequence[Entry]) -> Array:
    """Read an index of integers, slices and new axes only: a slice, reversed if needed, without the integer axes."""
    shape = x.shape
    rank = len(shape)
    starts: list[Any] = [0] * rank
    limits: list[Any] = list(shape)
    strides = [1] * rank
    backwards, dropped, new_axes, dynamic = [], [], [], []
    reversed_first = [e.axis for e in entries if isinstance(e, SliceEntry) and e.step < 0 and e.may_be_empty]
    position = 0
    for entry in entries:
        if isinstance(entry, SliceEntry):
            position += 1
            if entry.whole:
                continue
            axis = entry.axis
            low = shape[axis] - 1 - entry.start if axis in reversed_first else entry.low
            starts[axis] = low
            strides[axis] = abs(entry.step) if entry.size != 0 else 1
            length = (entry.size - 1) * strides[axis] + 1 if entry.size != 0 else 0
            limits[axis] = low + (maximum(length, 0) if entry.may_be_empty else length)
            if entry.step < 0 and axis not in reversed_first:
                backwards.append(axis)
        elif isinstance(entry, NewAxis):
            new_axes.append(position)
            position += 1
        elif isinstance(entry, IntegerEntry):
            dropped.append(entry.axis)
            if entry.known:
                starts[entry.axis], limits[entry.axis] = entry.value, entry.value + 1
            else:
                dynamic.append(entry)
    if x.aval.explicit_sharding is not None:
        check_whole(x, entries)
    y = lax_slicing.slice(lax_shape.rev(x, reversed_first) if reversed_first else x, starts, limits, strides)
    if backwards:
        y = lax_shape.rev(y, backwards)
    if dynamic:
        sizes = list(y.shape)
        dtype = INT64 if any(e.value.dtype.itemsize > 4 for e in dynamic) else INT32
        start_indices: list[Any] = [np.zeros((), dtype)] * rank
        for entry in dynamic:
            sizes[entry.axis], start_indices[entry.axis] = 1, cast(entry.value, dtype)
        y = dynamic_slice(y, *start_indices, slice_sizes=tuple(sizes))  # the index was checked as it was read
    if dropped:
        y = lax_shape.squeeze(y, dropped)
    return lax_shape.expand_dims(y, new_axes) if new_axes else y
