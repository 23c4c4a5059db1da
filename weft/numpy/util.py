"""Argument conversion for `weft.numpy`: accept array-likes, promote dtypes, broadcast shapes, normalize axes.

The promoting functions return values that are ready to bind: arrays, and for Python or NumPy scalars rank-0 NumPy
arrays of the common dtype. Rank-0 operands are legal next to full ones, so `x * 3.0` is one equation.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from weft.base import conversion, dtypes
from weft.base.arguments import described, index
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisOutOfBoundsError,
    ConcretizationTypeError,
    NotSupportedError,
    ShapeMismatchError,
    TracedShapeError,
)
from weft.base.settings import config, numpy_rank_promotion
from weft.base.source import user_line, user_stacklevel
from weft.indexing.expression import Expression
from weft.ir.context import EVALUATION, context
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.movement.size import size_value
from weft.runtime.array import ConcreteArray, PlacedArray, from_numpy, put
from weft.runtime.placing import common_placement
from weft.trace.array import Array
from weft.trace.tracer import Tracer

Function = TypeVar("Function", bound=Callable[..., Any])

_SCALARS = (bool, int, float, complex)
_ARRAYLIKE = (Array, np.ndarray, np.generic, int, float, complex)


# ------------------------------------------------------------------------------------------ accepting values


def is_arraylike(x: Any) -> bool:
    """Return whether `x` is an array or a number; lists and strings are not, since converting them hides a cost."""
    return isinstance(x, _ARRAYLIKE) or hasattr(type(x), "__jax_array__")


def check_arraylike(name: str, *args: Any) -> None:
    """Raise an error unless every argument of the function `name` is an array or a number."""
    for position, x in enumerate(args):
        if not isinstance(x, _ARRAYLIKE) and not hasattr(type(x), "__jax_array__"):
            fixes = {"list": "weft.numpy.asarray(x)", "tuple": "weft.numpy.asarray(x)"}
            raise ArgumentTypeError(
                f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}.",
                received=described(x),
                fix=fixes.get(type(x).__name__, "an array or a number; weft.numpy.asarray makes arrays of lists"),
            )


def check_arraylike_or_none(name: str, *args: Any) -> None:
    """Call `check_arraylike`, where None means an argument that was not passed."""
    check_arraylike(name, *(0 if x is None else x for x in args))


def check_no_out(name: str, out: Any) -> None:
    """Raise an error if `out` is given: arrays are immutable."""
    if out is not None:
        raise NotSupportedError(
            f"The `out` argument of weft.numpy.{name} is not supported: arrays are immutable.",
            fix=f"x = {name}(...)",
        )


def ensure_array(x: Any) -> Array:
    """Convert `x` to an array: a number becomes weakly typed of rank 0, a NumPy array is copied since it can change."""
    if isinstance(x, Array):
        return x
    kind = type(x)
    if kind is np.ndarray:
        return from_numpy(x)
    if hasattr(kind, "__jax_array__"):
        return ensure_array(x.__jax_array__())
    return from_numpy(x, weak_type=dtypes.is_weakly_typed(x))


def ensure_arrays(name: str, *args: Any) -> list[Array]:
    """Convert the arguments of the function `name` to arrays."""
    check_arraylike(name, *args)
    return [ensure_array(x) for x in args]


def is_concrete(x: Any) -> bool:
    """Return whether the values of `x` are known now."""
    return not isinstance(x, Tracer)


def follow_device(array: Any, *operands: Any) -> Any:
    """Move an array to the device that the operands are committed to, if any.

    Used for arrays that are computed from static properties of operands, rather than by operations on them.
    """
    for operand in operands:
        if type(operand) is PlacedArray and isinstance(array, ConcreteArray) and is_eager():
            return put(array, common_placement([array, *operands], "an operation", "operand {}".format))
    return array


def is_eager() -> bool:
    """Return whether operations run immediately, so that constants may be created directly in NumPy."""
    return context.trace is EVALUATION


def concrete_or_error(x: Any, what: str, fix: str) -> np.ndarray:
    """Return the values of `x`; if they are traced, raise an error with the need `what` and a way around, `fix`."""
    if isinstance(x, Tracer):
        known = x.known()
        if known is None:
            raise ConcretizationTypeError(what, received=f"{x.aval.short()}, {x.origin()}", fix=fix, at=user_line())
        return concrete_or_error(known, what, fix)
    return np.asarray(x)


def get_shape(x: Any) -> tuple[Any, ...]:
    """Return the shape of an array or number."""
    return x.shape if hasattr(x, "shape") else np.shape(x)


def get_dtype(x: Any) -> Any:
    """Return the canonical dtype of an array or number."""
    return x.dtype if isinstance(x, Array) else dtypes.dtype(x, canonicalize=True)


def dtype_kind(x: Any) -> str:
    """Return the kind of the elements: b, i, u, f, c or k."""
    return dtypes.kind(x.dtype if isinstance(x, Array) else dtypes.dtype(x, canonicalize=True))


# --------------------------------------------------------------------------------------------------- dtypes


def cast(x: Any, dtype: Any, weak: bool = False) -> Any:
    """Convert `x` to a canonical dtype, ready to bind. A Python or NumPy scalar costs no equation."""
    if isinstance(x, Array):
        aval: ArrayType = x.aval
        # A weak operand combined with a strong one of its dtype has a strong result, so no conversion is recorded.
        if aval.dtype is dtype and (not weak or aval.weak_type):
            return x
        if aval.dtype == dtype and (not weak or aval.weak_type):
            return x
        plain = isinstance(dtype, np.dtype) and isinstance(aval.dtype, np.dtype)
        if type(x) is ConcreteArray and not aval.shape and plain:
            return ConcreteArray(convert_value(x._value, dtype), array_type((), dtype, weak))
        return convert_element_type(x, new_dtype=dtype, weak_type=weak)
    if isinstance(x, _SCALARS) and not isinstance(x, np.generic):
        if type(x) is float and dtypes.kind(dtype) in "iu":  # converted as an array would be
            return _constant(convert_value(np.asarray(x), dtype), weak)
        return _constant(scalar_value(x, dtype), weak)
    if isinstance(x, (np.ndarray, np.generic)):
        value = conversion.canonical_array(x)
        if value.dtype != dtype:
            value = convert_value(value, dtype)
        if not value.shape:
            return _constant(value.copy() if value is x else value, weak)
        return from_numpy(value, weak_type=weak, copy=value is x)
    if isinstance(x, Expression):  # a size of any number of bits, rounded once
        return size_value(x, dtype, weak)
    return cast(x.__jax_array__(), dtype, weak)


def convert_value(value: np.ndarray, dtype: Any) -> np.ndarray:
    """Convert NumPy values to another dtype as the equation would."""
    equation: Any = convert_element_type
    return equation.eval(value, new_dtype=dtype)


def _constant(value: np.ndarray, weak: bool) -> Any:
    """Return a rank-0 value to bind: plain NumPy when strong."""
    return ConcreteArray(value, array_type((), value.dtype, True)) if weak else value


def choose(condition: Any, yes: Any, no: Any) -> Array:
    """Select `yes` where the condition holds, else `no`: operands of one shape, or scalars."""
    return select_n(condition, no, yes)


def in_float32(function: Callable[[Array], Array], x: Array) -> Array:
    """Apply a function of an array, computing shorter floats in float32 with a single rounding."""
    wide = dtypes.accumulation_dtype(x.dtype)
    return function(x) if wide == x.dtype else cast(function(cast(x, wide)), x.dtype)


def strong(x: Array) -> Array:
    """Return `x` without weak type."""
    if not x.weak_type:
        return x
    return convert_element_type(x, new_dtype=x.dtype, weak_type=False)


def scalar_value(value: Any, dtype: Any) -> np.ndarray:
    """Convert a Python number to a rank-0 array of a dtype, quickly where it fits for certain."""
    kind = type(value)
    if kind is float:
        if dtype is dtypes.float32 and (_LEAST < value < _GREATEST or -_GREATEST < value < -_LEAST or value == 0.0):
            return np.array(value, dtype)
    elif kind is int and -128 <= value <= 127 and dtype in _NUMERIC and (value >= 0 or dtype not in _UNSIGNED):
        return np.array(value, dtype)
    return conversion.coerce_value(value, dtype)


_LEAST, _GREATEST = 1.2e-38, 3.4e38
_UNSIGNED = frozenset(dtypes.as_dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
_NUMERIC = _UNSIGNED | frozenset(
    dtypes.as_dtype(name)
    for name in ("int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16", "complex64")
)


def promote_dtypes(*args: Any) -> list[Array]:
    """Convert the arguments to the dtype they promote to."""
    if len(args) == 2:
        x, y = args
        if isinstance(x, Array):
            if isinstance(y, Array):
                if x.aval.dtype is y.aval.dtype:
                    return [x, y]
            elif _takes(x.aval, type(y)):
                return [x, scalar_value(y, x.aval.dtype)]  # type: ignore[list-item]  # a constant
        elif isinstance(y, Array) and _takes(y.aval, type(x)):
            return [scalar_value(x, y.aval.dtype), y]  # type: ignore[list-item]  # a constant
    if len(args) == 1:
        return [args[0] if isinstance(args[0], Array) else cast(args[0], *_result_type(args))]
    dtype, weak = _result_type(args)
    return [cast(x, dtype, weak) for x in args]


def _takes(aval: ArrayType, kind: type) -> bool:
    """Return whether a Python number of a type adopts the dtype of an array that it is combined with."""
    if aval.weak_type or (aval.dtype in _WIDE and not config.enable_x64):
        return False
    if kind is int:
        return aval.dtype in _NUMERIC
    return kind is float and aval.dtype in _FLOATS


# Arrays of these may have been created while 64 bits were enabled.
_WIDE = frozenset(dtypes.as_dtype(name) for name in ("int64", "uint64", "float64", "complex128"))
_FLOATS = frozenset(dtypes.as_dtype(name) for name in ("float16", "float32", "float64", "bfloat16", "complex64"))


def _result_type(args: Sequence[Any]) -> tuple[Any, bool]:
    plain = [x if isinstance(x, _ARRAYLIKE) else _plain(x) for x in args]
    return dtypes.result_type(*plain, return_weak_type_flag=True)


def _plain(x: Any) -> Any:
    """Return a stand-in with the dtype of a value that is no array or number: a size counts as a Python integer."""
    if isinstance(x, Expression):
        return 0
    return x.__jax_array__() if hasattr(type(x), "__jax_array__") else x


def promote_dtypes_inexact(*args: Any) -> list[Array]:
    """Convert the arguments to the inexact dtype they promote to; integers become floats."""
    if len(args) == 1 and isinstance(args[0], Array) and dtypes.kind(args[0].dtype) in "fc":
        return [args[0]]
    dtype, weak = _result_type(args)
    inexact = dtypes.to_inexact_dtype(_numeric(dtype))
    return [cast(x, dtypes.canonicalize_dtype(inexact), weak) for x in args]


def promote_dtypes_numeric(*args: Any) -> list[Array]:
    """Convert the arguments to the dtype they promote to, booleans to integers."""
    dtype, weak = _result_type(args)
    return [cast(x, dtypes.to_numeric_dtype(_numeric(dtype)), weak) for x in args]


def _numeric(dtype: Any) -> Any:
    if isinstance(dtype, dtypes.ExtendedDtype):
        raise ArgumentTypeError(f"The elements must be numbers, but the array holds elements of {dtype.name}.")
    return dtype


def promote_args(name: str, *args: Any) -> list[Array]:
    """Promote the arguments of the function `name` to one dtype and, except scalars, broadcast them to one shape."""
    for x in args:
        if not isinstance(x, _ARRAYLIKE):
            check_arraylike(name, *args)
            args = tuple(a if isinstance(a, (*_ARRAYLIKE, Expression)) else ensure_array(a) for a in args)
            break
    if len(args) == 2 and getattr(args[0], "aval", name) is getattr(args[1], "aval", None):
        return list(args)
    try:
        promoted = promote_dtypes(*args)
    except ValueError as error:
        _refuse_keys(name, args)
        raise error
    return broadcast_operands(name, promoted)


def promote_args_inexact(name: str, *args: Any) -> list[Array]:
    """Call `promote_args` with integers converted to floats."""
    if len(args) == 2:
        x, y = args
        for array, other in ((x, y), (y, x)):
            if isinstance(array, Array) and array.aval.dtype in _FLOATS:
                aval: ArrayType = array.aval
                if getattr(other, "aval", None) is aval or _takes(aval, type(other)):
                    return promote_args(name, x, y)
                break
    check_arraylike(name, *args)
    _refuse_keys(name, args)
    return broadcast_operands(name, promote_dtypes_inexact(*args))


def promote_args_numeric(name: str, *args: Any) -> list[Array]:
    """Call `promote_args` with booleans converted to integers."""
    check_arraylike(name, *args)
    _refuse_keys(name, args)
    return broadcast_operands(name, promote_dtypes_numeric(*args))


def _refuse_keys(name: str, args: Sequence[Any]) -> None:
    for x in args:
        found = getattr(x, "dtype", None)
        if isinstance(found, dtypes.ExtendedDtype):
            raise ArgumentTypeError(f"{name} does not accept dtype {found.name}.")


def canonical_dtype(dtype: Any, name: str) -> Any:
    """Return the canonical dtype for a `dtype=` argument of the function `name`."""
    return dtypes.requested_dtype(dtype, name)


# --------------------------------------------------------------------------------------------------- shapes


def as_shape(shape: Any, name: str = "shape") -> tuple[Any, ...]:
    """Convert a shape argument, an integer or a sequence of them, to a tuple of sizes."""
    if isinstance(shape, (int, np.integer, Expression)) or (isinstance(shape, (Array, np.ndarray)) and not shape.ndim):
        shape = (shape,)
    try:
        sizes = tuple(d if isinstance(d, (int, Expression)) and type(d) is not bool else _size(d) for d in shape)
    except TypeError as error:
        if isinstance(error, ConcretizationTypeError):
            raise
        raise ArgumentTypeError(
            f"Shapes must be 1D sequences of concrete integers; that of {name} is not.",
            received=described(shape),
            fix="an int or a tuple of ints; n // 2 is one where n / 2 is a float",
        ) from None
    for size in sizes:
        if isinstance(size, int) and size < 0:
            raise ArgumentError(
                f"The sizes of {name} must not be negative.", received=f"shape {sizes}", fix="sizes of 0 or more"
            )
    return sizes


def _size(d: Any) -> int:
    if isinstance(d, Tracer) and d.known() is None:
        raise TracedShapeError(
            "Shapes must be 1D sequences of concrete values of integer type, but a traced value is used as a size.",
            received=f"{d.aval.short()}, {d.origin()}",
            fix="take the size from x.shape, or make the argument static with static_argnums or static_argnames",
            at=user_line(),
        )
    return index(d)


def broadcast_shape(name: str, *shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the shape that `shapes` broadcast to by NumPy's rules."""
    first = shapes[0] if shapes else ()
    if all(s == first for s in shapes):
        return first
    rank = max(len(s) for s in shapes)
    result: list[Any] = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for position, size in enumerate(shape):
            current = result[offset + position]
            if current == size or size == 1:
                continue
            if current != 1:
                raise ShapeMismatchError(
                    f"{name} got incompatible shapes for broadcasting: {', '.join(map(str, shapes))}.",
                    fix="sizes must be equal, or 1, counted from the right; insert an axis with x[:, None]",
                    at=user_line(),
                )
            result[offset + position] = size
    return tuple(result)


def check_rank_promotion(name: str, shapes: Sequence[tuple[Any, ...]]) -> None:
    """Warn or raise an error if arrays of different rank are combined, as `numpy_rank_promotion` says."""
    if config.numpy_rank_promotion == "allow":
        return
    ranks = {len(s) for s in shapes if s}
    if len(ranks) < 2:
        return
    text = (
        f"Operands could not be broadcast together for {name} on shapes {' '.join(map(str, shapes))} "
        f"and with the config option numpy_rank_promotion={config.numpy_rank_promotion!r}."
    )
    if config.numpy_rank_promotion == "raise":
        raise ArgumentError(f"{text}")
    warnings.warn(text, stacklevel=user_stacklevel())


def combining_ranks(function: Function) -> Function:
    """Decorate a function to allow arrays of different rank inside, whatever `numpy_rank_promotion` says.

    The setting is about the arrays of users. A function that combines those unchanged calls `check_rank_promotion`
    first, and one that calls functions of users must not be decorated.
    """

    @functools.wraps(function)
    def combining(*args: Any, **kwargs: Any) -> Any:
        if config.numpy_rank_promotion == "allow":
            return function(*args, **kwargs)
        with numpy_rank_promotion("allow"):
            return function(*args, **kwargs)

    return combining  # type: ignore[return-value]


def expand_to(x: Any, shape: tuple[Any, ...]) -> Any:
    """Broadcast `x` to `shape`, aligned from the right; no equation if it has that shape already."""
    old_shape = x.shape
    if old_shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(len(shape) - len(old_shape), len(shape))))


def broadcast_operands(name: str, args: Sequence[Any]) -> list[Array]:
    """Broadcast operands of an elementwise operation to one shape; rank-0 ones are unchanged."""
    first = args[0].shape
    for x in args:
        if x.shape != first and x.shape != () and first != ():
            break
        first = first or x.shape
    else:
        return list(args)
    shapes = [x.shape for x in args]
    check_rank_promotion(name, shapes)
    shape = broadcast_shape(name, *shapes)
    return [expand_to(x, shape) if x.shape else x for x in args]


def broadcast_all(name: str, *args: Any) -> list[Any]:
    """Broadcast arrays or rank-0 values to one shape, rank-0 ones included."""
    shapes = [x.shape for x in args]
    check_rank_promotion(name, shapes)
    shape = broadcast_shape(name, *shapes)
    return [expand_to(x, shape) for x in args]


# ----------------------------------------------------------------------------------------------------- axes


def canonicalize_axis(axis: Any, rank: int, name: str = "This function") -> int:
    """Normalize an axis to count from the front; raise an error if it is out of bounds."""
    if isinstance(axis, Tracer) and axis.known() is None:
        raise ConcretizationTypeError(
            "An axis must be known when tracing, but the value is traced.",
            received=f"{axis.aval.short()}, {axis.origin()}",
            fix="make the argument static with static_argnums or static_argnames",
            at=user_line(),
        )
    i = index(axis)
    if not -rank <= i < rank:
        raise AxisOutOfBoundsError(
            f"{name} got axis {i}, which is out of bounds for an array of dimension {rank}.",
            fix=f"an axis from {-rank} to {rank - 1}" if rank else "an array with at least one dimension",
            at=user_line(),
        )
    return i + rank if i < 0 else i


def canonicalize_axes(axis: Any, rank: int, name: str = "This function") -> tuple[int, ...]:
    """Normalize distinct axes to count from the front; None means all of them."""
    if axis is None:
        return tuple(range(rank))
    if isinstance(axis, (tuple, list, range)) or (isinstance(axis, np.ndarray) and axis.ndim):
        axes = tuple(canonicalize_axis(a, rank, name) for a in axis)
        if len(set(axes)) != len(axes):
            raise ArgumentError(f"duplicate value in 'axis': {name} got {tuple(axis)}.")
        return axes
    return (canonicalize_axis(axis, rank, name),)


def count_elements(shape: Sequence[Any], axes: Sequence[int]) -> Any:
    """Count the elements along `axes`."""
    return math.prod(shape[a] for a in axes)


def scalar_like(x: Any, value: Any) -> Any:
    """Create a constant in the dtype of an array; weak if the array is."""
    return cast(value, x.dtype, getattr(x, "weak_type", False))
