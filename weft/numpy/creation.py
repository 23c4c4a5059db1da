"""Array creation: from numbers, lists and other arrays, and filled with one value.

While operations run eagerly, constants are built directly in NumPy; while a function is traced they are equations
(`broadcast_in_dim` of a literal, `iota`), so that jaxprs stay small whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.api.devices import device_put
from weft.api.shardings import cast_result, explicit_sharding, split_like
from weft.base import conversion, dtypes
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from weft.indexing.expression import Expression
from weft.ir.types import array_type
from weft.numpy.argument_docs import document
from weft.numpy.util import (
    as_shape,
    broadcast_shape,
    canonical_dtype,
    cast,
    check_arraylike,
    dtype_kind,
    ensure_array,
    expand_to,
    follow_device,
    is_arraylike,
    is_concrete,
    is_eager,
    strong,
)
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.movement.size import size_value
from weft.runtime.array import ConcreteArray, PlacedArray, broadcast_copy, from_numpy, put
from weft.runtime.borrowing import from_device, from_host
from weft.runtime.device import devices, get_placement
from weft.sharding import NamedSharding, PartitionSpec, Sharding
from weft.sharding.current import current_mesh
from weft.sharding.device import Device
from weft.sharding.shardings import type_sharding
from weft.trace.annotations import ArrayLike, DTypeLike, Shape
from weft.trace.array import Array

# ----------------------------------------------------------------------------------------------- from values


def array(
    object: Any,
    dtype: DTypeLike | None = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Create an array from a number, an array or nested lists, as a copy.

    A Python number becomes a weakly typed array, which takes the dtype of the array it is combined with.

    Args:
        object: a number, an array of any library (NumPy, DLPack, `__array__`), or nested lists of them.
        dtype: the dtype of the result; by default that of `object`, with 64 bits shortened to 32 unless `enable_x64` is
            on.
        copy: whether to copy an array that already has the requested type.
        order: memory order, "K" or "C"; others raise, since the compiler chooses layouts.
        ndmin: the least number of axes; axes of size 1 are put in front.
        device: a device or sharding to put the result on; by default where its operands are.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array. An integer that does not fit into 32 bits raises `NarrowingOverflowError` instead of losing bits.

    >>> import weft.numpy as wnp
    >>> wnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    >>> wnp.array([1, 2], dtype=wnp.bfloat16)
    Array([1, 2], dtype=bfloat16)
    """
    _check_order(order)
    out = _array(object, dtype, "array")
    if copy and out is object and isinstance(out, ConcreteArray) and is_eager():
        out = put(out, out._placement, may_alias=False)
    if ndmin > out.ndim:
        out = lax.broadcast(out, (1,) * (ndmin - out.ndim))
    return put_array(out, device, out_sharding)


def asarray(
    a: Any,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Create an array from a number, an array or nested lists; an array of the right dtype is returned unchanged.

    Mutable data is always copied, whatever `copy` says, since arrays do not change.

    Args:
        a: a number, an array of any library, or nested lists of them.
        dtype: the dtype of the result; by default that of `a`.
        order: memory order, "K" or "C".
        copy: accepted for compatibility; arrays do not change, so it makes no difference.
        device: a device or sharding to put the result on; by default where its operands are.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array; `a` itself if it is one already and nothing has to change.

    >>> import weft.numpy as wnp
    >>> x = wnp.ones(2)
    >>> wnp.asarray(x) is x
    True
    >>> wnp.asarray([1.5, 2])
    Array([1.5, 2. ], dtype=float32)
    """
    _check_order(order)
    return put_array(array(a, dtype, True) if copy else _array(a, dtype, "asarray"), device, out_sharding)


@document(
    "An array with the same values and memory of its own.",
    "wnp.copy(wnp.arange(3)) -> Array([0, 1, 2], dtype=int32)",
    a="an array, or what `array` takes.",
    order='memory order, "K" or "C".',
)
def copy(a: ArrayLike, order: str | None = None) -> Array:
    """Copy an array."""
    check_arraylike("copy", a)
    return array(a, copy=True, order=order)


@document(
    "An array with the shape of `x`. Derivatives pass through conversions between floats, and are "
    "zero through integers.",
    "wnp.astype(wnp.array([1.7, -1.7]), wnp.int32) -> Array([ 1, -1], dtype=int32)",
    x="an array.",
    dtype="the dtype to convert to; floats are rounded towards zero when it is an integer type.",
)
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = False, device: Any = None) -> Array:
    """Convert `x` to another dtype. Complex numbers lose their imaginary part."""
    x = ensure_array(x) if is_arraylike(x) else _array(x, None, "astype")
    if dtype is None:
        dtype = dtypes.default_float_dtype()
    out_dtype = canonical_dtype(dtype, "astype")
    if dtypes.kind(out_dtype) == "b" and dtype_kind(x) in "iufc":
        return put_array(lax.ne(x, np.zeros((), x.dtype)), device)
    return put_array(convert_dtype(x, out_dtype), device)


def convert_dtype(x: Array, dtype: Any) -> Array:
    """Convert `x` to a canonical dtype, strongly typed."""
    if x.dtype == dtype and not x.weak_type:
        return x
    if isinstance(x.dtype, dtypes.ExtendedDtype) or isinstance(dtype, dtypes.ExtendedDtype):
        if x.dtype == dtype:
            return x
        raise ArgumentTypeError(f"Arrays of {x.dtype} cannot be converted to {dtype}.")
    return convert_element_type(x, new_dtype=dtype, weak_type=False)


def _check_order(order: str | None) -> None:
    if order not in (None, "C", "K"):
        raise NotSupportedError(f"Arrays are in row-major order; order={order!r} is not supported, only 'C' and 'K'.")


def put_array(x: Array, device: Any, out_sharding: Any = None) -> Array:
    """Put an array on `device`, or shard it by `out_sharding`."""
    if device is None and out_sharding is None:
        return x
    if device is not None and out_sharding is not None:
        raise ArgumentError("Pass device or out_sharding, not both.", received=f"{device!r} and {out_sharding!r}")
    left_open = isinstance(out_sharding, NamedSharding) and type_sharding(out_sharding, x.ndim) is None
    if out_sharding is not None and not left_open:
        return cast_result(x, explicit_sharding(out_sharding, "An array"), "An array")
    where = out_sharding if device is None else device
    if isinstance(where, PartitionSpec):
        where = NamedSharding(current_mesh("An array that is put by a PartitionSpec"), where)
    if not isinstance(where, (Device, Sharding)):
        raise ArgumentError("The device of an array must be a Device or a Sharding.", received=described(where))
    return device_put(x, where)


def _array(value: Any, dtype: Any, name: str) -> Array:
    """Convert a value for `array` and `asarray`; an array of the right type is returned unchanged."""
    out_dtype = None if dtype is None else canonical_dtype(dtype, name)
    if isinstance(value, Array):
        return value if out_dtype is None else convert_dtype(value, out_dtype)
    if isinstance(value, Expression) and out_dtype is not None and dtypes.kind(out_dtype) in "iufc":
        return size_value(value, out_dtype, weak=False)
    if hasattr(type(value), "__jax_array__"):
        return _array(value.__jax_array__(), dtype, name)
    if isinstance(value, (list, tuple)):
        return _from_sequence(value, out_dtype)
    if value is None:
        raise ArgumentError(f"None is not a valid value for weft.numpy.{name}.")
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        if out_dtype is None:
            return from_numpy(value, weak_type=type(value) is not bool)
        return from_numpy(conversion.coerce_value(value, out_dtype))
    if not isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)  # buffers, data frames and the like
        if value.dtype == object:
            raise ArgumentTypeError(f"{name} got a value of type {type(value[()])} that is not an array.")
    return _from_numpy(value, out_dtype)


def _from_numpy(value: Any, out_dtype: Any) -> Array:
    if out_dtype is None:
        return from_numpy(value)
    out = conversion.coerce_value(value, out_dtype)
    return from_numpy(out, copy=out is value or np.may_share_memory(out, value))


_PLAIN = frozenset({bool, int, float, complex})


def _from_sequence(value: Sequence[Any], out_dtype: Any) -> Array:
    """Create an array from nested lists: of numbers directly, of arrays by stacking."""
    leaves: list[Any] = []
    _collect(value, leaves)
    kinds = set(map(type, leaves))
    if kinds <= _PLAIN:
        if not leaves and out_dtype is None:
            out_dtype = dtypes.default_float_dtype()
        return from_numpy(
            conversion.canonical_array(value) if out_dtype is None else conversion.coerce_value(value, out_dtype),
            copy=False,
        )
    for kind in kinds:
        if kind is type(None):
            raise ArgumentError("None is not a valid value for weft.numpy.array.")
    leaves = [x.__jax_array__() if hasattr(type(x), "__jax_array__") else x for x in leaves]
    if out_dtype is None and all(is_arraylike(x) for x in leaves):
        out_dtype = dtypes.result_type(*leaves)
    if all(is_concrete(x) for x in leaves) and not isinstance(out_dtype, dtypes.ExtendedDtype):
        value = _to_numpy(value)
        out = _from_numpy(np.asarray(value) if out_dtype is None else np.array(value, _wide(out_dtype)), out_dtype)
        return follow_device(out, *leaves)
    return lax.concatenate([lax.broadcast(x, (1,)) for x in _rows(value, out_dtype)], 0)


def _wide(dtype: Any) -> Any:
    """Return the dtype in which NumPy collects numbers that are then range-checked on conversion to `dtype`."""
    return {"i": np.int64, "f": np.float64}.get(dtypes.kind(dtype), dtype)


def _rows(value: Sequence[Any], out_dtype: Any) -> list[Array]:
    rows = [_array(x, out_dtype, "array") for x in value]
    shapes = {x.shape for x in rows}
    if len(shapes) > 1:
        raise ArgumentTypeError(f"array got nested lists or arrays of different shapes: {sorted(shapes)}.")
    return rows


def _collect(value: Sequence[Any], leaves: list[Any]) -> None:
    for x in value:
        if isinstance(x, (list, tuple)):
            _collect(x, leaves)
        else:
            leaves.append(x)


def _to_numpy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_numpy(x) for x in value]
    if hasattr(type(value), "__jax_array__"):
        value = value.__jax_array__()
    return np.asarray(value) if isinstance(value, Array) else value


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """Create an array from the bytes of an object with the buffer protocol, as a copy."""
    return asarray(np.frombuffer(buffer, dtype=dtypes.storage(dtypes.as_dtype(dtype)), count=count, offset=offset))


def fromfile(*args: Any, **kwargs: Any) -> Array:
    """Read an array from a file through NumPy."""
    return asarray(np.fromfile(*args, **kwargs))


def fromiter(*args: Any, **kwargs: Any) -> Array:
    """Create an array from an iterable through NumPy."""
    return asarray(np.fromiter(*args, **kwargs))


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """Parse an array from numbers in a text, separated by `sep`."""
    return asarray(np.fromstring(string, dtype=dtypes.storage(dtypes.as_dtype(dtype)), count=count, sep=sep))


def from_dlpack(x: ArrayLike, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """Copy an array from another library by DLPack.

    The data is copied, since the other library may change it; `weft.dlpack.from_dlpack` shares it.
    """
    if copy is False and not isinstance(x, Array):
        raise ArgumentError(
            "from_dlpack cannot share a buffer: the other library could change it. copy must be None or True.",
            fix="weft.dlpack.from_dlpack(x), which shares it, or leave copy out",
        )
    value = from_host(x)
    return asarray(from_device(x, copy=True) if value is None else value, device=device)


# --------------------------------------------------------------------------------------------------- filled


def full_array(shape: tuple[Any, ...], value: Any, dtype: Any, weak: bool = False, device: Any = None) -> Array:
    """Create an array of `shape` with `value` everywhere, in a canonical dtype; for keys, the value of all their words.

    If `device` is a Device, a large array is created on it directly.
    """
    if not isinstance(dtype, np.dtype):
        return lax.full(shape, value, dtype)
    scalar = cast(value, dtype, weak)
    known = is_concrete(scalar) and type(scalar) is not PlacedArray
    if is_eager() and known and not any(isinstance(d, Expression) for d in shape):
        placement = get_placement(device, True) if isinstance(device, Device) and device in devices() else None
        return broadcast_copy(np.asarray(scalar), array_type(shape, dtype, weak), placement)
    return broadcast_in_dim(scalar, shape=shape, broadcast_dimensions=()) if shape else ensure_array(scalar)


@document(
    "An array filled with 0.",
    dtype="the dtype of the result; by default the default float, float32 unless `enable_x64` is on.",
)
def zeros(shape: Shape, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Create an array of zeros.

    >>> import weft.numpy as wnp
    >>> wnp.zeros((2, 3))
    Array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    out = full_array(
        as_shape(shape, "zeros"), 0, canonical_dtype(float if dtype is None else dtype, "zeros"), device=device
    )
    return put_array(out, device, out_sharding)


@document(
    "An array filled with 1.",
    "wnp.ones(3, dtype=wnp.int32) -> Array([1, 1, 1], dtype=int32)",
    dtype="the dtype of the result; by default the default float, float32 unless `enable_x64` is on.",
)
def ones(shape: Shape, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Create an array of ones."""
    out = full_array(
        as_shape(shape, "ones"), 1, canonical_dtype(float if dtype is None else dtype, "ones"), device=device
    )
    return put_array(out, device, out_sharding)


@document(
    "An array filled with 0, unlike NumPy's, so that results never depend on the contents of memory.",
    "wnp.empty(2) -> Array([0., 0.], dtype=float32)",
    dtype="the dtype of the result; by default the default float, float32 unless `enable_x64` is on.",
)
def empty(shape: Shape, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Create an array with unspecified values; they are zeros."""
    out = full_array(
        as_shape(shape, "empty"), 0, canonical_dtype(float if dtype is None else dtype, "empty"), device=device
    )
    return put_array(out, device, out_sharding)


@document(
    "An array of the given shape.",
    fill_value="a number, or an array that broadcasts to `shape`.",
    dtype="the dtype of the result; by default that of `fill_value`.",
)
def full(
    shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Create an array with `fill_value` everywhere; an array is broadcast to the shape.

    >>> import weft.numpy as wnp
    >>> wnp.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32, weak_type=True)
    >>> wnp.full((2, 2), wnp.array([1.0, 2.0]))
    Array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    check_arraylike("full", fill_value)
    return put_array(_full(as_shape(shape, "full"), fill_value, dtype, "full", device), device, out_sharding)


def _full(shape: tuple[Any, ...], value: Any, dtype: Any, name: str, device: Any) -> Array:
    weak = dtype is None and dtypes.is_weakly_typed(value)
    out_dtype = dtypes.dtype(value, canonicalize=True) if dtype is None else canonical_dtype(dtype, name)
    if np.ndim(value) == 0:
        return full_array(shape, value, out_dtype, weak, device)
    return expand_to(convert_dtype(ensure_array(value), out_dtype), broadcast_shape(name, shape, np.shape(value)))


def zeros_like(
    a: ArrayLike, dtype: DTypeLike | None = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Create zeros with the shape and dtype of `a`.

    Args:
        a: an array, or anything with a shape and a dtype.
        dtype: another dtype than that of `a`.
        shape: another shape than that of `a`.
        device: a device or sharding to put the result on; by default where its operands are.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array filled with 0, sharded like `a`.

    >>> import weft.numpy as wnp
    >>> wnp.zeros_like(wnp.array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(
    a: ArrayLike, dtype: DTypeLike | None = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Create ones with the shape and dtype of `a`.

    Args:
        a: an array, or anything with a shape and a dtype.
        dtype: another dtype than that of `a`.
        shape: another shape than that of `a`.
        device: a device or sharding to put the result on; by default where its operands are.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array filled with 1, sharded like `a`.

    >>> import weft.numpy as wnp
    >>> wnp.ones_like(wnp.array([2.5, 3.5]), dtype=wnp.int32)
    Array([1, 1], dtype=int32)
    """
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype: Any, dtype: DTypeLike | None = None, shape: Any = None, *, device: Any = None) -> Array:
    """Create an array with the shape and dtype of `prototype` and unspecified values; they are zeros.

    Args:
        prototype: an array, or anything with a shape and a dtype.
        dtype: another dtype than that of `prototype`.
        shape: another shape than that of `prototype`.
        device: a device or sharding to put the result on; by default where its operands are.

    Returns:
        An array filled with 0.

    >>> import weft.numpy as wnp
    >>> wnp.empty_like(wnp.array([1, 2])).shape
    (2,)
    """
    return _like("empty_like", prototype, 0, dtype, shape, device)


def full_like(
    a: ArrayLike,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Create an array with the shape and dtype of `a` and `fill_value` everywhere.

    Args:
        a: an array, or anything with a shape and a dtype.
        fill_value: a number, or an array that broadcasts to the shape; it is converted to the dtype.
        dtype: another dtype than that of `a`.
        shape: another shape than that of `a`.
        device: a device or sharding to put the result on; by default where its operands are.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array of the shape and dtype of `a`.

    >>> import weft.numpy as wnp
    >>> wnp.full_like(wnp.array([1.0, 2.0]), 5)
    Array([5., 5.], dtype=float32)
    """
    check_arraylike("full_like", fill_value)
    return _like("full_like", a, fill_value, dtype, shape, device, out_sharding)


def _like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any = None, out_sharding: Any = None) -> Array:
    """Create an array like `a` with a value everywhere, on the given device, or else where `a` is."""
    out = _full_like(name, a, value, dtype, shape, device)
    if device is None and out_sharding is None:
        if isinstance(a, Array) and out.shape == a.shape:
            return follow_device(split_like(out, a), a)
        return follow_device(out, a)
    return put_array(out, device, out_sharding)


def _full_like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any) -> Array:
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        check_arraylike(name, a)
    sizes = (a.shape if hasattr(a, "shape") else np.shape(a)) if shape is None else as_shape(shape, name)
    weak = dtype is None and dtypes.is_weakly_typed(a)
    out_dtype = dtypes.dtype(a, canonicalize=True) if dtype is None else canonical_dtype(dtype, name)
    if np.ndim(value):
        return expand_to(convert_dtype(ensure_array(value), out_dtype), tuple(sizes))
    if isinstance(value, float) and dtypes.kind(out_dtype) in "iub":
        value = cast(ensure_array(value), out_dtype)
    out = full_array(tuple(sizes), value, out_dtype, weak, device)
    return out if weak else strong(out)
