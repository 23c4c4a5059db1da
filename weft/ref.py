"""Mutable arrays: `ref = new_ref(x)`, `ref[i]`, `ref[i] = y`, `ref[...] += z`, inside and outside of `jit`.

`docs/design/refs.md` says how they are traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.api.jit import jit as _jit
from weft.base import dtypes
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    DtypeMismatchError,
    OutOfBoundsIndexError,
    ShapeMismatchError,
)
from weft.base.publish import publish as _publish
from weft.base.source import user_line
from weft.ir.context import EVALUATION, context, with_aval
from weft.ir.types import ArrayType, RefType, ShapeDtypeStruct, get_aval, is_value
from weft.lax.elementwise import add, convert_element_type, mul
from weft.lax.shape import broadcasted_iota, empty as _empty, reshape, squeeze
from weft.lax.slicing import dynamic_slice, dynamic_update_slice
from weft.numpy.indexing import concrete, raises_when_known
from weft.primitives.elementwise.convert import convert_element_type as _convert
from weft.trace.array import Array
from weft.trace.refs import Ref
from weft.trace.tracer import Tracer

__all__ = [
    "AbstractRef",
    "Ref",
    "addupdate",
    "ds",
    "empty_ref",
    "free_ref",
    "freeze",
    "get",
    "new_ref",
    "set",
    "swap",
]

AbstractRef = RefType


@dataclass(frozen=True)
class Slice:
    """`size` indices from `start` on, which may be traced, each `stride` after the one before."""

    start: Any
    size: int
    stride: int = 1


def ds(start: Any, size: int | None = None, stride: int | None = None) -> Slice:
    """Make a slice of a Ref with a start that is known only when the program runs: `ref[ds(i, 8)]`. With one argument,
    it is the size and the slice starts at 0.

    >>> import weft
    >>> ref = weft.new_ref(weft.numpy.arange(5))
    >>> weft.jit(lambda i: ref[weft.ds(i, 2)])(3)
    Array([3, 4], dtype=int32)
    """
    if size is None:
        start, size = 0, start
    for value, word in ((size, "size"), (1 if stride is None else stride, "stride")):
        if not hasattr(value, "__index__") or isinstance(value, Tracer) or value < 0:
            raise ArgumentTypeError(f"The {word} of ds must be a known integer from 0 up.", received=repr(value))
    return Slice(start, size, 1 if stride is None else stride)


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """Create a mutable array with the initial value `init_val`, which itself does not change.

    It can be an argument of `jit`, or closed over; bodies of loops and branches may read and write it, and functions
    that create one inside are differentiated and vectorised like others. `memory_space` and `kind` must be None.

    >>> import weft
    >>> total = weft.new_ref(weft.numpy.zeros(2))
    >>> @weft.jit
    ... def add_to(total, x):
    ...     total[...] += x
    >>> add_to(total, 1.0)
    >>> total[0] = 5.0
    >>> total
    Ref([5., 1.], dtype=float32)
    """
    _check_plain(memory_space, kind)
    if isinstance(init_val, Ref):
        raise ArgumentTypeError("new_ref cannot take a Ref.", received=init_val.short(), fix="new_ref(ref[...])")
    if not is_value(init_val) or not isinstance(get_aval(init_val), ArrayType):
        received = f"{init_val!r} of type {type(init_val).__name__}"
        raise ArgumentTypeError("new_ref needs an array or a number.", received=received, fix="one Ref for each array")
    value = with_aval(init_val)
    aval = get_aval(value)
    return Ref.of(_convert(value, new_dtype=aval.dtype, weak_type=False) if aval.weak_type else value)  # type: ignore[attr-defined]


def _check_plain(memory_space: Any, kind: Any = None) -> None:
    if memory_space is not None or kind is not None:
        received = f"memory_space={memory_space!r}, kind={kind!r}"
        raise ArgumentError("memory_space and kind of a Ref must be None.", received=received, fix="None")


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """Create a mutable array of a type, or of the shape and dtype of a struct, with arbitrary elements."""
    _check_plain(memory_space)
    if not isinstance(ty, (ArrayType, RefType, ShapeDtypeStruct)):
        what = "empty_ref needs a type or a ShapeDtypeStruct."
        raise ArgumentTypeError(what, received=f"{ty!r} of type {type(ty).__name__}", fix="weft.typeof(x)")
    return Ref.of(_empty(ty.shape, ty.dtype))


def freeze(ref: Ref) -> Array:
    """Return the array of a Ref and invalidate the Ref."""
    return _check_ref(ref, "freeze").close("frozen")


def free_ref(ref: Ref) -> None:
    """End a Ref: it cannot be used any more."""
    _check_ref(ref, "free_ref").close("freed")


def get(ref: Ref, idx: Any = None) -> Array:
    """Return `ref[idx]`, or the whole array without an index."""
    return _read(_check_ref(ref, "get"), Ellipsis if idx is None else idx)


def set(ref: Ref, idx: Any, value: Any) -> None:
    """Write `ref[idx] = value`."""
    _write(_check_ref(ref, "set"), idx, value)


def swap(ref: Ref, idx: Any, value: Any, _function_name: str = "ref_swap") -> Array:
    """Return `ref[idx]` and then set it to `value`."""
    old = _read(_check_ref(ref, "swap"), idx)
    _write(ref, idx, value)
    return old


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """Add `ref[idx] += x`; duplicate indices add repeatedly."""
    _update(_check_ref(ref, "addupdate"), idx, x, "add")


def _check_ref(ref: Any, caller: str) -> Ref:
    if not isinstance(ref, Ref):
        received = f"{ref!r} of type {type(ref).__name__}"
        raise ArgumentTypeError(f"weft.ref.{caller} needs a Ref.", received=received, fix="weft.new_ref(x)")
    return ref


# -- indices ----------------------------------------------------------------------------------------------------------


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _resolve_known(shape: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert slices with known starts to Python's; raise if they are out of bounds. Known integers out of bounds raise
    later, in `_shape_at`; with `strict_indices` off they are clamped here, as traced ones are."""
    found = list(parts)
    for i, axis in _axes(shape, parts):
        part, size = parts[i], shape[axis]
        if isinstance(part, Slice) and concrete(part.start) is not None:
            found[i] = _known_slice(part, axis, shape)
        elif (
            not raises_when_known()
            and isinstance(part, (int, np.integer))
            and type(part) is not bool
            and type(size) is int
            and size
        ):
            found[i] = min(max(int(part), -size), size - 1)
    return tuple(found)


def _axes(shape: Any, parts: tuple[Any, ...]) -> Iterator[tuple[int, int]]:
    """Yield the position and the dimension of each part of an index of integers and slices, up to the first part of
    another kind."""
    axis = 0
    for i, part in enumerate(parts):
        if axis >= len(shape):
            return
        if part is Ellipsis:
            axis += len(shape) - (len(parts) - 1)
        elif isinstance(part, (slice, Slice)) or (is_value(part) and get_aval(part).shape == ()):  # type: ignore[attr-defined]
            yield i, axis
            axis += 1
        else:
            return


def _known_slice(part: Slice, axis: int, shape: Any) -> slice:
    size, start = shape[axis], int(part.start)
    first = start + size if start < 0 else start
    last = first + max(part.size - 1, 0) * part.stride
    if first < 0 or last + (part.size > 0) > size:
        what = f"Index {start} is out of bounds: {part.size} elements from there on do not fit into axis {axis}."
        received = f"ds({start}, {part.size}, {part.stride}) of a Ref of shape {tuple(shape)}"
        raise OutOfBoundsIndexError(what, received=received, at=user_line())
    return slice(first, last + (part.size > 0), part.stride)


def _is_whole(parts: tuple[Any, ...]) -> bool:
    return all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in parts)


def _shape_at(shape: Any, parts: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of the elements at an index; known indices must be in bounds."""

    def known(part: Any) -> Any:
        if isinstance(part, Slice):
            return slice(0, part.size)  # a start that is traced is clamped
        if isinstance(part, Array):
            values = concrete(part) if raises_when_known() or part.dtype == np.bool_ else None
            return values if values is not None else np.zeros(part.shape, part.dtype)
        return part

    try:
        return np.broadcast_to(np.zeros((), np.bool_), shape)[tuple(map(known, parts))].shape
    except IndexError as error:
        what = "An index of a Ref is out of bounds."
        raise OutOfBoundsIndexError(what, received=f"{error}; its shape is {shape}", at=user_line()) from None


def _full(shape: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Expand an index of integers and slices to one part for each dimension."""
    missing = (slice(None),) * (len(shape) - sum(part is not Ellipsis for part in parts))
    if Ellipsis in [part if part is Ellipsis else None for part in parts]:
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        return (*parts[:at], *missing, *parts[at + 1 :])
    return (*parts, *missing)


def _starts(shape: Any, parts: tuple[Any, ...]) -> tuple[list[Any], list[int], list[int], list[int]]:
    """Return starts, sizes, strides and dropped dimensions of an index with slices that begin at traced indices."""
    starts: list[Any] = []
    sizes: list[int] = []
    strides: list[int] = []
    dropped = []
    for axis, part in enumerate(_full(shape, parts)):
        if isinstance(part, Slice):
            start, size, stride = part.start, part.size, part.stride
        elif isinstance(part, slice):
            first, last, stride = part.indices(shape[axis])
            start, size = first, len(range(first, last, stride))
        elif is_value(part) and not get_aval(part).shape and part is not None:  # type: ignore[attr-defined]
            start, size, stride = part, 1, 1
            dropped.append(axis)
        else:
            what = "Beside a slice that begins at a traced index, a Ref only supports integers and slices."
            raise ArgumentTypeError(what, received=f"{part!r} of type {type(part).__name__}", at=user_line())
        starts.append(start)
        sizes.append(size)
        strides.append(stride)
    return starts, sizes, strides, dropped


def _index_arrays(starts: list[Any], sizes: list[int], strides: list[int]) -> tuple[Any, ...]:
    """Return index arrays, one for each dimension, that broadcast to the elements."""
    rank = len(starts)
    found = []
    for axis, (start, size, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
        steps = broadcasted_iota(np.int32, (size,), 0)
        start = convert_element_type(start, np.int32)
        indices = add(mul(steps, np.int32(stride)), start)
        found.append(reshape(indices, tuple(size if i == axis else 1 for i in range(rank))))
    return tuple(found)


# -- reading and writing -----------------------------------------------------------------------------------------------


def _read(ref: Ref, index: Any) -> Any:
    """Evaluate `ref[index]`."""
    value = ref.value
    parts = _resolve_known(value.shape, _parts(index))
    if _is_whole(parts):
        return value
    _shape_at(value.shape, parts)
    if context.trace is EVALUATION:
        template, dynamic = _template(parts)
        if template is not None:
            return _reader(template)(value, *dynamic)
    return _elements(value, parts)


def _elements(array: Any, parts: tuple[Any, ...]) -> Any:
    """Return the elements of an array at an index."""
    if not any(isinstance(part, Slice) for part in parts):
        return array[parts]
    starts, sizes, strides, dropped = _starts(array.shape, parts)
    if all(stride == 1 for stride in strides):
        return squeeze(dynamic_slice(array, starts, sizes), dropped)
    return squeeze(array[_index_arrays(starts, sizes, strides)], dropped)


def _write(ref: Ref, index: Any, value: Any) -> None:
    """Evaluate `ref[index] = value`."""
    _update(ref, index, value, "set")


def _update(ref: Ref, index: Any, value: Any, how: str) -> None:
    wanted: Any = ref.inner_aval
    parts = _resolve_known(wanted.shape, _parts(index))
    value = _convert_value(value, wanted, _shape_at(wanted.shape, parts), how)
    if how == "set" and _is_whole(parts):
        ref.value  # noqa: B018  # it is here, and not frozen
        ref.replace(value)
        return
    if context.trace is EVALUATION and ref.is_outside:
        template, dynamic = _template(parts)
        if template is not None:
            ref.value  # noqa: B018
            ref.replace(_updater(template, how)(ref.taken(), value, *dynamic))
            return
    ref.replace(_update_elements(ref.value, parts, value, how))


def _convert_value(value: Any, aval: Any, shape: Any, how: str) -> Any:
    """Convert a value to the dtype of the Ref; raise if shape or dtype do not fit."""
    if not is_value(value) or not isinstance(get_aval(value), ArrayType):
        received = f"{value!r} of type {type(value).__name__}"
        raise ArgumentTypeError(
            "A value written to a Ref must be an array or number.", received=received, at=user_line()
        )
    own: Any = get_aval(value)
    if own.shape != tuple(shape):
        raise ShapeMismatchError(
            "The value written to a Ref must have the shape of the elements that it replaces.",
            received=f"{own.short()} for {aval.plain_of_shape(shape).short()}",
            fix="weft.numpy.broadcast_to(x, shape)",
            at=user_line(),
        )
    if own.dtype != aval.dtype:
        promoted = dtypes.promote_pair(own.dtype, own.weak_type, aval.dtype, aval.weak_type)[0]
        if not own.weak_type or dtypes.canonicalize_dtype(promoted) != aval.dtype:
            raise DtypeMismatchError(
                "The value written to a Ref must have its dtype.",
                received=f"{own.short()} for {aval.short()}",
                fix=f"x.astype({dtypes.name(aval.dtype)!r})",
                at=user_line(),
            )
    if own.dtype == aval.dtype and own.weak_type == aval.weak_type:
        return with_aval(value)
    return _convert(with_aval(value), new_dtype=aval.dtype, weak_type=aval.weak_type)


def _has_traced_start(shape: Any, parts: tuple[Any, ...]) -> bool:
    """Return whether an index consists of integers and slices, with traced ones among them: one window, which is
    clamped."""
    if any(isinstance(part, Slice) for part in parts):
        return True
    regular = [i for i, _ in _axes(shape, parts)]
    others = [i for i in range(len(parts)) if i not in regular and parts[i] is not Ellipsis]
    return not others and any(isinstance(parts[i], Array) and parts[i].dtype != np.bool_ for i in regular)


def _update_elements(array: Any, parts: tuple[Any, ...], value: Any, how: str) -> Any:
    """Set or add to some elements of an array, keeping its type."""
    if _has_traced_start(array.shape, parts):
        starts, sizes, strides, _ = _starts(array.shape, parts)
        block = reshape(value, tuple(sizes))
        if all(stride == 1 for stride in strides):
            if how == "add":
                block = add(dynamic_slice(array, starts, sizes), block)
            return dynamic_update_slice(array, block, starts)
        parts, value = _index_arrays(starts, sizes, strides), block
    at = array.at[parts]
    return at.add(value) if how == "add" else at.set(value)


# Outside of programs: small compiled reads and updates, one for each form of index. The integers in an index are
# arguments, and an array that is updated is donated, so that this happens in place.


def _template(parts: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Split an index into a static template, with None for each integer or array, and these dynamic parts. Other kinds
    of index have no template (None)."""
    form: list[Any] = []
    dynamic: list[Any] = []
    for part in parts:
        if isinstance(part, (int, np.integer)) and not isinstance(part, (bool, np.bool_)):
            form.append(None)
            dynamic.append(np.int32(part))
        elif isinstance(part, Array) and part.dtype != np.bool_:
            form.append(None)
            dynamic.append(part)
        elif isinstance(part, slice):
            form.append(("slice", part.start, part.stop, part.step))
        elif part is Ellipsis:
            form.append("...")
        elif isinstance(part, Slice):
            form.append(("ds", part.size, part.stride))
            dynamic.append(part.start)
        else:
            return None, ()
    return tuple(form), tuple(dynamic)


def _fill_template(template: tuple[Any, ...], dynamic: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rebuild an index from its template."""
    rest = iter(dynamic)
    parts: list[Any] = []
    for part in template:
        match part:
            case None:
                parts.append(next(rest))
            case "...":
                parts.append(Ellipsis)
            case ("slice", *bounds):
                parts.append(slice(*bounds))
            case ("ds", size, stride):
                parts.append(Slice(next(rest), size, stride))
    return tuple(parts)


@functools.lru_cache(1024)
def _reader(template: tuple[Any, ...]) -> Callable[..., Any]:
    def read(array: Any, *dynamic: Any) -> Any:
        return _elements(array, _fill_template(template, dynamic))

    return _jit(read)


@functools.lru_cache(1024)
def _updater(template: tuple[Any, ...], how: str) -> Callable[..., Any]:
    def update(array: Any, value: Any, *dynamic: Any) -> Any:
        return _update_elements(array, _fill_template(template, dynamic), value, how)

    return _jit(update, donate_argnums=0)


Ref.read, Ref.write = _read, _write

_publish(__name__)
