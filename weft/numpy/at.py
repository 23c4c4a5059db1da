"""Functional updates: `x.at[index].set(values)` and its relatives return new arrays with some elements changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.api.shardings import split_result
from weft.base import dtypes
from weft.base.errors import ArgumentTypeError, ShapeMismatchError
from weft.base.settings import config
from weft.base.source import user_line, user_stacklevel
from weft.ir.types import ArrayType
from weft.lax import shape as lax_shape, slicing as lax_slicing
from weft.lax.slicing import GatherScatterMode, ScatterDimensionNumbers
from weft.numpy.argument_docs import document
from weft.numpy.elementwise import power, true_divide
from weft.numpy.indexing import (
    ArrayEntry,
    IntegerEntry,
    SliceEntry,
    as_tuple,
    concrete,
    dtype_kind,
    getitem,
    index_to_gather,
    indexable,
    mask_error,
    read_index,
)
from weft.numpy.util import cast, ensure_array, strong
from weft.primitives.elementwise.arithmetic import add, max as max_, min as min_, mul as times, sub
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.shape import broadcast_in_dim
from weft.trace.array import Array

if TYPE_CHECKING:
    from weft.trace import array as array_types

_KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_KIND_NAMES = {"b": "boolean", "u": "integer", "i": "integer", "f": "float", "c": "complex"}


class At:
    """The value of `x.at`: index it to select the elements to change or read.

    `x.at[index].set(values)` returns a new array and leaves `x` unchanged; under `jit` the compiler updates in place
    where `x` is not read again.

    Args:
        array: the array.

    >>> import weft.numpy as wnp
    >>> wnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    >>> wnp.zeros(3).at[wnp.array([0, 0, 2])].add(1.0)
    Array([2., 0., 1.], dtype=float32)
    """

    __slots__ = ("array",)

    def __init__(self, array: Array):
        self.array = array

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


def _updater(
    name: str, summary: str, write: Callable[..., Array], returns: str = "A new array.", *examples: str
) -> array_types.Update:
    """Make the method `name` of `AtIndex`: `write` takes the array, the index, the values and the options."""

    def update(
        self: AtIndex,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        hints = indices_are_sorted, unique_indices, mode, wrap_negative_indices
        if out_sharding is not None:
            return split_result(_update, out_sharding, name, self.array, self.index, values, *hints)
        return write(self.array, self.index, values, *hints)

    update.__name__, update.__qualname__, update.__doc__ = name, f"AtIndex.{name}", summary
    return document(returns, *examples)(update)  # type: ignore[return-value]  # its `self` is bound


class AtIndex:
    """Selected elements of an array; each method returns a new array in which they are changed.

    An index out of bounds raises an error where it is known before the program runs, and is dropped otherwise; `mode`
    "clip", "drop" or "promise_in_bounds" changes that. `unique_indices` promises that no element is selected twice,
    `indices_are_sorted` that indices ascend. Elements selected several times are changed several times, in order.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any):
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"AtIndex({self.array!r}, {self.index!r})"

    set = _updater(
        "set",
        "Compute x[index] = values.",
        lambda x, index, values, *hints: write_values(x, index, values, lax_slicing.scatter, lambda x, y: y, *hints),
        "A new array. If an element is selected twice, the last of its values is taken.",
        "wnp.arange(4).at[1:3].set(9) -> Array([0, 9, 9, 3], dtype=int32)",
    )
    add = _updater(
        "add",
        "Compute x[index] += values.",
        lambda x, index, values, *hints: write_values(x, index, values, lax_slicing.scatter_add, add, *hints),
        "A new array. If an element is selected twice, all values are added.",
        "wnp.zeros(2).at[wnp.array([1, 1])].add(1.0) -> Array([0., 2.], dtype=float32)",
    )
    subtract = _updater(
        "subtract",
        "Compute x[index] -= values.",
        lambda x, index, values, *hints: write_values(x, index, values, lax_slicing.scatter_sub, sub, *hints),
    )
    multiply = mul = _updater(
        "multiply",
        "Compute x[index] *= values.",
        lambda x, index, values, *hints: write_values(x, index, values, lax_slicing.scatter_mul, times, *hints),
        "A new array. If an element is selected twice, it is multiplied by all values.",
        "wnp.arange(4).at[2].multiply(10) -> Array([ 0,  1, 20,  3], dtype=int32)",
    )
    divide = _updater(
        "divide",
        "Compute x[index] /= values; integers become floats.",
        lambda x, *arguments: true_divide(x, _product(x, *arguments)),
    )
    power = _updater(
        "power",
        "Compute x[index] **= values.",
        lambda x, *arguments: power(x, _product(x, *arguments)),
    )
    min = _updater(
        "min",
        "Compute x[index] = minimum(x[index], values).",
        lambda x, index, values, *hints: write_values(x, index, values, lax_slicing.scatter_min, min_, *hints),
        "A new array.",
        "wnp.arange(4).at[2:].min(2) -> Array([0, 1, 2, 2], dtype=int32)",
    )
    max = _updater(
        "max",
        "Compute x[index] = maximum(x[index], values).",
        lambda x, index, values, *hints: write_values(x, index, values, lax_slicing.scatter_max, max_, *hints),
        "A new array.",
        "wnp.arange(4).at[:2].max(2) -> Array([2, 2, 2, 3], dtype=int32)",
    )

    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """Compute x[index] = func(x[index]), for an elementwise function."""
        x = indexable(self.array, self.index)
        mask = sole_mask(x.aval, self.index)
        if mask is not None:
            return select_n(expand_mask(mask, x.aval), x, cast(func(x), x.dtype, x.weak_type))
        parsed = None if mode is None else GatherScatterMode.from_any(mode)
        entries, unique = read_index(self.index, x.aval, parsed, wrap_negative_indices)
        indexer = index_to_gather(entries, x.aval)
        return lax_slicing.scatter_apply(
            x,
            indexer.indices,
            lambda values: cast(func(values), x.dtype, x.weak_type),
            ScatterDimensionNumbers(*indexer.dimension_numbers),
            update_shape=indexer.shape,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices or unique,
            mode=parsed or GatherScatterMode.FILL_OR_DROP,  # without a mode the index was checked as it was read
        )

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
        fill_value: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """Read x[index], with a choice for indices out of bounds.

        Args:
            indices_are_sorted: a promise that the indices come in ascending order.
            unique_indices: a promise that no element is selected twice.
            mode: what an index out of bounds means: "drop" or "fill" ignores it, "clip" takes the nearest element,
                "promise_in_bounds" checks nothing. By default a known one raises.
            fill_value: the value of elements out of bounds in mode "fill"; NaN, or the least integer, by default.
            out_sharding: the sharding of the result; by default it follows from the operands.
            wrap_negative_indices: whether negative indices count from the end.

        Returns:
            The selected elements.

        >>> import weft.numpy as wnp
        >>> wnp.arange(3.0).at[5].get(mode="fill", fill_value=-1.0)
        Array(-1., dtype=float32)
        """
        options = mode, fill_value, indices_are_sorted, unique_indices, wrap_negative_indices
        if out_sharding is not None:
            return split_result(getitem, out_sharding, self.array, self.index, *options)
        return getitem(self.array, self.index, *options)


# ------------------------------------------------------------------------------------------------------ implementation


def _product(array: Any, index: Any, values: Any, *hints: Any) -> Array:
    """Multiply ones by the values at an index: the divisor or exponent of each element."""
    ones = lax_shape.full_like(ensure_array(array), 1)
    return write_values(ones, index, values, lax_slicing.scatter_mul, times, *hints)


def _update(name: str, array: Any, index: Any, values: Any, *hints: Any) -> Array:
    """Call the method `name` of `array.at[index]`."""
    words = ("indices_are_sorted", "unique_indices", "mode", "wrap_negative_indices")
    result: Array = getattr(AtIndex(array, index), name)(values, **dict(zip(words, hints, strict=True)))
    return result


def write_values(
    array: Any,
    index: Any,
    values: Any,
    primitive: Any,
    combine: Callable[[Any, Any], Any],
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
    wrap_negative_indices: bool = True,
) -> Array:
    """Write `values` at `index` by a scatter (`primitive`), or by `combine` where the index is a mask."""
    x = indexable(array, index)
    aval: ArrayType = x.aval
    values = as_update(values, aval)
    mask = sole_mask(aval, index)
    if mask is not None and fits_mask(values.shape, mask, aval):
        rest = aval.shape[mask.ndim :]
        if len(values.shape) == len(rest) + 1:  # its first dimension, of size 1, broadcasts over the selected elements
            values = lax_shape.squeeze(values, (0,))
        if values.shape:
            dims = tuple(range(aval.ndim - len(values.shape), aval.ndim))
            values = broadcast_in_dim(values, shape=aval.shape, broadcast_dimensions=dims)
        return select_n(expand_mask(mask, aval), x, combine(x, values))
    if mask is not None and concrete(mask) is None:
        raise mask_error(mask)
    parsed = None if mode is None else GatherScatterMode.from_any(mode)
    entries, unique = read_index(index, aval, parsed, wrap_negative_indices)
    indexer = index_to_gather(entries, aval)
    full_shape = list(indexer.shape)
    for axis in indexer.new_axes:
        full_shape.insert(axis, 1)
    values = broadcast_values(values, tuple(full_shape), aval)
    if indexer.new_axes:
        values = lax_shape.reshape(values, indexer.shape)
    values = lax_shape.rev(values, indexer.reversed)
    if primitive is lax_slicing.scatter and _is_block(entries):
        return _write_block(x, values, entries)
    return primitive(
        x,
        indexer.indices,
        values,
        ScatterDimensionNumbers(*indexer.dimension_numbers),
        indices_are_sorted=indices_are_sorted or (unique and indexer.known and not _has_arrays(entries)),
        unique_indices=unique_indices or unique,
        mode=parsed or GatherScatterMode.FILL_OR_DROP,  # without a mode the index was checked as it was read
    )


def as_update(values: Any, aval: ArrayType) -> Any:
    """Convert values to the dtype of the array they are written into; one that would lose its kind is an error."""
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    update = (
        values
        if isinstance(values, (Array, np.ndarray, np.generic, bool, int, float, complex))
        else ensure_array(values)
    )
    dtype = update.dtype if isinstance(update, Array) else dtypes.dtype(update, canonicalize=True)
    if dtype != aval.dtype:
        source, target = dtypes.kind(dtype), dtypes.kind(aval.dtype)
        if "k" in (source, target):
            raise ArgumentTypeError(
                f"Values of dtype {dtypes.name(dtype)} cannot be written into an array of {dtypes.name(aval.dtype)}"
                f". Keys are written into arrays of keys of the same kind, numbers into numbers."
            )
        if _KIND_ORDER.get(source, 9) > _KIND_ORDER.get(target, -1):
            what = (
                f"A {_KIND_NAMES.get(source, dtypes.name(dtype))} value ({dtypes.name(dtype)}) cannot be written into "
                f"an array of {dtypes.name(aval.dtype)} without loss. Convert the array first, "
                f"x.astype('{dtypes.name(dtype)}').at[...], or the values, values.astype(x.dtype)."
            )
            if config.strict_narrowing:
                raise ArgumentTypeError(what)
            warnings.warn(
                f"scatter inputs have incompatible types: {what}", FutureWarning, stacklevel=user_stacklevel()
            )
    if dtype == aval.dtype and isinstance(update, Array) and isinstance(dtype, dtypes.ExtendedDtype):
        return update
    out = cast(update, aval.dtype, aval.weak_type)
    # Where all elements are replaced, the result is the update.
    return strong(out) if isinstance(out, Array) and not aval.weak_type else out


def broadcast_values(values: Any, shape: tuple[Any, ...], aval: ArrayType) -> Any:
    """Broadcast values to the shape of the elements they replace."""
    own_shape = values.shape
    if own_shape == shape:
        return values
    offset = len(shape) - len(own_shape)
    if offset < 0 or any(size != 1 and size != want for size, want in zip(own_shape, shape[offset:], strict=True)):
        raise ShapeMismatchError(
            f"Values of shape {tuple(own_shape)} do not broadcast to the indexed part, which has shape {tuple(shape)}.",
            received=f"an array {aval.short()}",
            fix="x.at[index].set(values)   where values have the shape of x[index], or broadcast to it",
            at=user_line(),
        )
    return broadcast_in_dim(values, shape=shape, broadcast_dimensions=tuple(range(offset, len(shape))))


def sole_mask(aval: ArrayType, index: Any) -> Any:
    """Return the mask if the index is a single boolean array over leading axes, else None."""
    parts = as_tuple(index)
    if len(parts) == 2 and parts[1] is Ellipsis:
        parts = parts[:1]
    if (
        len(parts) != 1
        or not isinstance(parts[0], (Array, np.ndarray))
        or dtype_kind(parts[0]) != "b"
        or not parts[0].ndim
    ):
        return None
    mask = parts[0]
    return mask if tuple(mask.shape) == tuple(aval.shape[: mask.ndim]) else None


def fits_mask(shape: tuple[Any, ...], mask: Any, aval: ArrayType) -> bool:
    """Return whether values of this shape are equal for all selected elements, so that a select is enough."""
    rest = aval.shape[mask.ndim :]
    if len(shape) == len(rest) + 1 and shape[0] == 1:
        shape = shape[1:]
    return len(shape) <= len(rest) and all(
        size == 1 or size == want for size, want in zip(reversed(shape), reversed(rest), strict=False)
    )


def expand_mask(mask: Any, aval: ArrayType) -> Any:
    """Broadcast a mask over leading axes to all axes."""
    if tuple(mask.shape) == tuple(aval.shape):
        return mask
    return broadcast_in_dim(mask, shape=aval.shape, broadcast_dimensions=tuple(range(mask.ndim)))


def _has_arrays(entries: Any) -> bool:
    return any(isinstance(e, ArrayEntry) for e in entries)


def _is_block(entries: Any) -> bool:
    """Return whether the index is a contiguous block at a known position, which needs no scatter."""
    for e in entries:
        if isinstance(e, ArrayEntry) or (isinstance(e, IntegerEntry) and not e.known):
            return False
        if isinstance(e, SliceEntry) and abs(e.step) != 1 and not e.size <= 1:
            return False
    return True


def _write_block(x: Array, values: Any, entries: Any) -> Array:
    shape = list(x.shape)
    starts: list[Any] = [0] * len(shape)
    for e in entries:
        if isinstance(e, IntegerEntry):
            starts[e.axis], shape[e.axis] = e.value, 1
        elif isinstance(e, SliceEntry):
            starts[e.axis], shape[e.axis] = e.low, e.size
    block = lax_shape.reshape(values, shape)
    if tuple(shape) == x.shape:
        return block
    return lax_slicing.dynamic_update_slice(x, block, starts, allow_negative_indices=False)
