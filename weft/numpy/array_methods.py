"""Operators and methods of `Array`, implemented with the functions of `weft.numpy`.

`install` sets them on the base class, so that concrete arrays and tracers share them; methods that one of these classes
defines itself, such as `item`, take precedence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError, ImmutableArrayError
from weft.base.source import user_line
from weft.base.tracebacks import boundary, conceal
from weft.numpy import (
    complex_parts,
    creation,
    diagonals,
    elementwise,
    extremes,
    logic,
    manipulation,
    reductions,
    rounding,
    running,
    selection,
    sorting,
    taking,
)
from weft.numpy.argument_docs import document
from weft.numpy.at import At, AtIndex
from weft.numpy.contraction import dot, matmul
from weft.numpy.indexing import getitem
from weft.runtime.array import ConcreteArray, array_at
from weft.trace.array import Array

_OPERANDS = (Array, np.ndarray, np.generic, int, float, complex)


def _is_operand(other: Any) -> bool:
    return isinstance(other, _OPERANDS) or hasattr(type(other), "__jax_array__")


# ------------------------------------------------------------------------------------------------------------ operators


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Make a binary operator; it returns NotImplemented for operands of unknown types, so that they can define it."""

    def operator(self: Array, other: Any) -> Any:
        try:
            if isinstance(other, _OPERANDS) or _is_operand(other):
                return function(self, other)
            return NotImplemented
        except Exception as error:
            conceal(error)
            raise

    return operator


def _reflect(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operator(self: Array, other: Any) -> Any:
        try:
            if isinstance(other, _OPERANDS) or _is_operand(other):
                return function(other, self)
            return NotImplemented
        except Exception as error:
            conceal(error)
            raise

    return operator


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.true_divide,
    "floordiv": elementwise.floor_divide,
    "mod": elementwise.remainder,
    "divmod": elementwise.divmod,
    "pow": elementwise.power,
    "matmul": matmul,
    "and": logic.bitwise_and,
    "or": logic.bitwise_or,
    "xor": logic.bitwise_xor,
    "lshift": logic.left_shift,
    "rshift": logic.right_shift,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": logic.equal,
    "ne": logic.not_equal,
    "lt": logic.less,
    "le": logic.less_equal,
    "gt": logic.greater,
    "ge": logic.greater_equal,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": elementwise.negative,
    "pos": elementwise.positive,
    "abs": elementwise.absolute,
    "invert": logic.bitwise_not,
}


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return boundary(lambda self: function(self))


def _power(self: Array, other: Any, modulo: Any = None) -> Any:
    if modulo is not None or not _is_operand(other):
        return NotImplemented
    return elementwise.power(self, other)


def _round(self: Array, ndigits: int | None = None) -> Any:
    """Round as Python does: to integers, as for floats, or in the same dtype if a number of digits is given."""
    if ndigits is None:
        return creation.astype(rounding.round(self, 0), int)
    return rounding.round(self, ndigits)


def _getitem(self: Array, index: Any) -> Array:
    try:
        return getitem(self, index)
    except Exception as error:
        conceal(error)
        raise


def _setitem(self: Array, index: Any, value: Any) -> None:
    raise ImmutableArrayError(
        "Weft arrays are immutable: `x[index] = value` cannot change one in place.",
        received=self.aval.short(),
        fix="x = x.at[index].set(value), which returns a new array (also .add, .multiply, .min, .max, ...)",
        at=user_line(),
    )


def _length(self: Array) -> int:
    shape = self.aval.shape
    if not shape:
        raise ArgumentTypeError("len() of unsized object: the array has no dimensions.")
    return shape[0]


def _iterate(self: Array) -> Iterator[Array]:
    """Iterate over the slices along the first axis; in a traced function the loop is unrolled."""
    shape = self.aval.shape
    if not shape:
        raise ArgumentTypeError("iteration over a 0-d array needs at least one dimension")
    if isinstance(self, ConcreteArray):
        aval, placement = self.aval.without_dimension(0), self._placement
        if not placement.memory_backend.reads_host:  # one program for all rows
            return (lax.dynamic_index_in_dim(self, np.int32(i), keepdims=False) for i in range(shape[0]))
        value = self._value
        return (array_at(placement, np.asarray(value[i]), aval) for i in range(shape[0]))
    return (self[i] for i in range(shape[0]))


def _reverse(self: Array) -> Iterator[Array]:
    return iter(lax.rev(self, (0,))) if self.aval.shape else _iterate(self)


def _contains(self: Array, item: Any) -> bool:
    return bool(reductions.any(logic.equal(self, item)))


# -------------------------------------------------------------------------------------------------------------- methods


@document(
    "An array of the same shape.",
    "wnp.array([1.7, 2.2]).astype(wnp.int32) -> Array([1, 2], dtype=int32)",
    dtype="the dtype to convert to.",
    copy="accepted for compatibility.",
)
def _astype(self: Array, dtype: Any, copy: bool = False, device: Any = None) -> Array:
    """Convert the array to another dtype."""
    return creation.astype(self, dtype, copy=copy, device=device)


@document(
    "An array of the new shape.",
    "wnp.arange(6).reshape(2, -1).shape -> (2, 3)",
    args="the new sizes; one may be -1, and is then computed.",
)
def _reshape(self: Array, *args: Any, order: str = "C", out_sharding: Any = None) -> Array:
    """Give the elements another shape, passed as one tuple or as several sizes."""
    shape = args[0] if len(args) == 1 else args
    return manipulation.reshape(self, shape, order, out_sharding=out_sharding)


@document(
    "An array of the permuted shape.",
    "wnp.ones((2, 3, 4)).transpose(2, 0, 1).shape -> (4, 2, 3)",
    args="the axis of the array for each axis of the result.",
)
def _transpose(self: Array, *args: Any) -> Array:
    """Permute the axes, passed as one tuple or as several axes; the default reverses them."""
    if not args:
        return manipulation.transpose(self)
    axes = args[0] if len(args) == 1 and (args[0] is None or isinstance(args[0], (tuple, list))) else args
    return manipulation.transpose(self, axes)


@document("A vector.", "wnp.array([[1, 2], [3, 4]]).flatten() -> Array([1, 2, 3, 4], dtype=int32)")
def _flatten(self: Array, order: str = "C", *, out_sharding: Any = None) -> Array:
    """Flatten the array to a vector."""
    return manipulation.ravel(self, order, out_sharding=out_sharding)


@document("An array with the same values.", "wnp.arange(3).copy() -> Array([0, 1, 2], dtype=int32)")
def _copy(self: Array) -> Array:
    """Copy the array."""
    return creation.array(self, copy=True)


@document(
    "An array.",
    "wnp.arange(4).compress(wnp.array([True, False, True, False])) -> Array([0, 2], dtype=int32)",
    condition="a vector of booleans, known when tracing unless `size` is given.",
    axis="an axis; None for the flattened array.",
    size="the number of slices to return; missing ones are filled.",
    fill_value="the value of missing slices.",
)
def _compress(
    self: Array,
    condition: Any,
    axis: int | None = None,
    *,
    out: Any = None,
    size: int | None = None,
    fill_value: Any = 0,
) -> Array:
    """Select the slices along an axis where a condition holds."""
    return selection.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


@document(
    "An array.",
    "wnp.array([-1.0, 0.5, 3.0]).clip(0, 1) -> Array([0. , 0.5, 1. ], dtype=float32)",
    min="numbers or arrays that broadcast with the array; None for no limit.",
    max="numbers or arrays that broadcast with the array; None for no limit.",
)
def _clip(self: Array, min: Any = None, max: Any = None) -> Array:
    """Limit each element to between `min` and `max`."""
    return extremes.clip(self, min, max)


@document("An array of the same dtype.", "wnp.array([1 + 2j]).conj() -> Array([1.-2.j], dtype=complex64)")
def _conjugate(self: Array) -> Array:
    """Compute the complex conjugate."""
    return complex_parts.conjugate(self)


@document(
    "An array of floats without the axes, as `weft.numpy.std`.",
    "wnp.array([1.0, 3.0]).std() -> Array(1., dtype=float32)",
    ddof="the number to subtract from the count.",
    correction="the number to subtract from the count.",
)
def _std(
    self: Array,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: Any = None,
) -> Array:
    """Compute the standard deviation over axes."""
    return reductions.std(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


@document(
    "An array of floats without the axes, as `weft.numpy.var`.",
    "wnp.array([1.0, 3.0]).var() -> Array(1., dtype=float32)",
    ddof="the number to subtract from the count.",
    correction="the number to subtract from the count.",
)
def _var(
    self: Array,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: Any = None,
) -> Array:
    """Compute the variance over axes."""
    return reductions.var(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


def _byteswap(self: Array) -> Array:
    """Reverse the bytes of each element."""
    size = self.dtype.itemsize
    if size == 1:
        return self
    pieces = lax.bitcast_convert_type(_as_bits(self), np.dtype(np.uint8))
    swapped = lax.rev(pieces, (pieces.ndim - 1,))
    return _from_bits(lax.bitcast_convert_type(swapped, _bits(self.dtype)), self.dtype)


_UNSIGNED = {bits: dtypes.as_dtype(f"uint{bits}") for bits in (2, 4, 8, 16, 32, 64)}


def _bits(dtype: Any) -> Any:
    width = dtypes.itemsize_bits(dtype)
    if dtypes.kind(dtype) == "c" or width not in _UNSIGNED:
        raise ArgumentTypeError(f"Elements of {dtypes.name(dtype)} cannot be viewed as bits.")
    return _UNSIGNED[width]


def _as_bits(x: Array) -> Array:
    kind = dtypes.kind(x.dtype)
    if kind == "b":
        return lax.convert_element_type(x, np.dtype(np.uint8))
    bits_dtype = _bits(x.dtype)
    return x if x.dtype == bits_dtype else lax.bitcast_convert_type(x, bits_dtype)


def _from_bits(x: Array, dtype: Any) -> Array:
    if dtypes.kind(dtype) == "b":
        return lax.ne(x, np.zeros((), x.dtype))
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


@document(
    "An array.",
    "wnp.array([1.0], dtype=wnp.float32).view(wnp.int32) -> Array([1065353216], dtype=int32)",
    dtype="the dtype to read the bits as.",
    type="must be None.",
)
def _view(self: Array, dtype: Any = None, type: Any = None) -> Array:
    """Reinterpret the bits of the elements as another dtype; a wider or narrower one changes the last axis."""
    if type is not None:
        raise ArgumentError("view needs a dtype, not a class of arrays.")
    if dtype is None:
        return self
    out_dtype = dtypes.requested_dtype(dtype, "view")
    if self.dtype == out_dtype:
        return self
    x = _complex_parts(self)
    target = np.dtype(dtypes.to_real_dtype(out_dtype))
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(target)
    if old != new and not x.ndim:
        raise ArgumentError("view: the last axis must exist to change the width of elements.")
    bits = _as_bits(x)
    if old > new:
        bits = lax.bitcast_convert_type(bits, _UNSIGNED[new])
        bits = lax.reshape(bits, (*bits.shape[:-2], bits.shape[-2] * bits.shape[-1]))
    elif old < new:
        ratio = new // old
        if x.shape[-1] % ratio:
            raise ArgumentError(f"view: the last axis of {x.shape} must be divisible by {ratio} for {out_dtype}.")
        bits = lax.bitcast_convert_type(lax.reshape(bits, (*x.shape[:-1], x.shape[-1] // ratio, ratio)), _UNSIGNED[new])
    out = _from_bits(bits, target)
    if dtypes.kind(out_dtype) != "c":
        return out
    if not out.ndim or out.shape[-1] % 2:
        raise ArgumentError(f"view: the last axis of {out.shape} must be even for complex numbers.")
    pairs = lax.reshape(out, (*out.shape[:-1], out.shape[-1] // 2, 2))
    return lax.complex(pairs[..., 0], pairs[..., 1])


def _complex_parts(x: Array) -> Array:
    """Split complex numbers into pairs of real ones along the last axis."""
    if dtypes.kind(x.dtype) != "c":
        return x
    pairs = lax.concatenate([lax.expand_dims(part, (x.ndim,)) for part in (lax.real(x), lax.imag(x))], x.ndim)
    return lax.reshape(pairs, (*x.shape[:-1], x.shape[-1] * 2) if x.ndim else (2,))


class NoMatrixError(ArgumentError, AttributeError):
    """An array of rank 0 or 1 has no attribute `mT`.

    It is an AttributeError, so that `hasattr` is False, and a `ValueError`, as from NumPy.
    """


def _matrix_transpose(self: Array) -> Array:
    """Swap the last two axes."""
    if self.ndim < 2:
        raise NoMatrixError(f"mT needs an array of rank 2 or more, got shape {self.shape}.")
    return manipulation.matrix_transpose(self)


class Layout(NamedTuple):
    """The order of axes in memory, the slowest first."""

    major_to_minor: tuple[int, ...]


class Format(NamedTuple):
    """The memory layout and the sharding of an array."""

    layout: Layout
    sharding: Any


@document("A `weft.experimental.layout.Format`.", "wnp.ones(2).format.sharding.num_devices -> 1")
def _format(self: Array) -> Format:
    """Return the memory layout, which is row-major, and the sharding."""
    return Format(Layout(tuple(range(self.ndim))), getattr(self, "sharding", None))


def _array_namespace(self: Array, *, api_version: str | None = None) -> Any:
    """Return `weft.numpy`, through which code for the array API standard finds its functions."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ArgumentError(f"Version {api_version!r} of the array API is not supported.")
    return sys.modules["weft.numpy"]


def _to_device(self: Array, device: Any, *, stream: Any = None) -> Array:
    """Copy the array to a device or by a sharding."""
    return creation.put_array(self, device)


def _platform(self: Array) -> str:
    """Return the platform of the array's device, such as "cpu"."""
    return self.device.platform


def _deep_copy(self: Array, memo: Any) -> Array:
    return creation.array(self, copy=True)


def _item_size(self: Array) -> int:
    return dtypes.storage(self.dtype).itemsize


def _bytes(self: Array) -> int:
    return self.size * _item_size(self)


def _choose(self: Array, choices: Any, out: Any = None, mode: str = "raise") -> Array:
    """Select, for each element, an element from the array of `choices` with that index."""
    return selection.choose(self, choices, out, mode)


METHODS: dict[str, Any] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "astype": _astype,
    "byteswap": _byteswap,
    "choose": _choose,
    "clip": _clip,
    "clone": _copy,
    "compress": _compress,
    "conj": _conjugate,
    "conjugate": _conjugate,
    "copy": _copy,
    "cumprod": running.cumprod,
    "cumsum": running.cumsum,
    "diagonal": diagonals.diagonal,
    "dot": dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": selection.nonzero,
    "platform": _platform,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": manipulation.ravel,
    "repeat": manipulation.repeat,
    "reshape": _reshape,
    "round": rounding.round,
    "searchsorted": sorting.searchsorted,
    "sort": sorting.sort,
    "squeeze": manipulation.squeeze,
    "std": _std,
    "sum": reductions.sum,
    "swapaxes": manipulation.swapaxes,
    "take": taking.take,
    "to_device": _to_device,
    "trace": diagonals.trace,
    "transpose": _transpose,
    "var": _var,
    "view": _view,
}
PROPERTIES: dict[str, Callable[[Array], Any]] = {
    "T": manipulation.transpose,
    "mT": _matrix_transpose,
    "at": At,
    "flat": manipulation.ravel,
    "format": _format,
    "imag": complex_parts.imag,
    "itemsize": _item_size,
    "nbytes": _bytes,
    "real": complex_parts.real,
}
SPECIAL: dict[str, Any] = {
    "__array_namespace__": _array_namespace,
    "__contains__": _contains,
    "__copy__": _copy,
    "__deepcopy__": _deep_copy,
    "__getitem__": _getitem,
    "__iter__": _iterate,
    "__len__": _length,
    "__reversed__": _reverse,
    "__round__": _round,
    "__setitem__": _setitem,
}


def install() -> None:
    """Set the operators and methods on `Array`."""
    for name, function in _BINARY.items():
        setattr(Array, f"__{name}__", _binary(function))
        setattr(Array, f"__r{name}__", _reflect(function))
    setattr(Array, "__pow__", boundary(_power))  # noqa: B010  (a method that the class declares for type checkers only)
    for name, function in _COMPARISONS.items():
        setattr(Array, f"__{name}__", _binary(function))
    for name, unary in _UNARY.items():
        setattr(Array, f"__{name}__", _unary(unary))
    for name, method in (METHODS | SPECIAL).items():
        setattr(Array, name, method if method is _getitem else boundary(method))
    for name, method in list(vars(AtIndex).items()):
        if name[0] != "_" and callable(method):
            setattr(AtIndex, name, boundary(method))
    for name, getter in PROPERTIES.items():
        setattr(Array, name, property(getter if getter is At else boundary(getter), doc=getter.__doc__))
