"""Padding of arrays with constants or with values computed from their elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.indexing.dimension import index_or_size, minimum
from weft.indexing.expression import Expression
from weft.numpy.counting import linspace
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.elementwise import subtract
from weft.numpy.joining import concatenate
from weft.numpy.manipulation import flip, moveaxis
from weft.numpy.reductions import max, mean, min
from weft.numpy.rounding import round
from weft.numpy.statistics import median
from weft.numpy.util import cast, check_arraylike, dtype_kind, ensure_array, expand_to, scalar_like
from weft.trace.array import Array

_OPTIONS = {
    "constant": ("constant_values",),
    "edge": (),
    "empty": (),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "wrap": (),
}


def pad(array: Any, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any) -> Array:
    """Pad an array by `pad_width` elements before and after each axis.

    `mode` is constant, edge, empty, linear_ramp, maximum, mean, median, minimum, reflect, symmetric or wrap; or a
    function of (vector, widths, axis, options) that returns the padded vector.

    Args:
        array: an array.
        pad_width: the number of elements to add: one number, a pair (before, after), or a pair for each axis.
        mode: the values of the border.
        **kwargs: options of the mode: `constant_values`, `end_values`, `stat_length` or `reflect_type`.

    Returns:
        A larger array.

    >>> import weft.numpy as wnp
    >>> wnp.pad(wnp.array([1, 2]), (1, 2))
    Array([0, 1, 2, 0, 0], dtype=int32)
    >>> wnp.pad(wnp.array([1, 2]), 1, mode="edge")
    Array([1, 1, 2, 2], dtype=int32)
    """
    check_arraylike("pad", array)
    a = ensure_array(array)
    widths = _pairs(pad_width, a.ndim, "pad_width", index_or_size)
    if any(w < 0 for pair in widths for w in pair):
        raise ArgumentError(f"index can't contain negative values: pad_width {widths}.")
    if callable(mode):
        return _pad_function(a, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise ArgumentError(f"The mode of pad must be one of {', '.join(_OPTIONS)}, got {mode!r}.")
    unknown = set(kwargs) - set(_OPTIONS[mode])
    if unknown:
        raise ArgumentError(f"unsupported keyword arguments for mode {mode!r}: {sorted(unknown)}.")
    if mode in ("constant", "empty"):
        return _pad_constant(a, widths, kwargs.get("constant_values", 0))
    for axis, (low, high) in enumerate(widths):
        if not low and not high:
            continue
        if not a.shape[axis]:
            raise ArgumentError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'.")
        a = concatenate([part for part in _sides(a, axis, low, high, mode, kwargs) if part.shape[axis]], axis)
    return a


def _is_single(value: Any) -> bool:
    """Return whether a value is a single number."""
    return isinstance(value, Expression) or (not isinstance(value, (list, tuple)) and np.ndim(value) == 0)


def _pairs(value: Any, rank: int, name: str, convert: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """Return one pair for each axis, from a number, a pair, or a list of pairs or numbers."""
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, entry in value.items():
            pairs[axis] = _pairs(entry, 1, name, convert)[0]
        return pairs
    if _is_single(value):
        return [(convert(value), convert(value))] * rank
    rows = [(row,) if _is_single(row) else row for row in value]
    entries = [tuple(convert(x) for x in row) for row in rows]
    if all(len(e) == 1 for e in entries):
        flat = [e[0] for e in entries]
        scalar_rows = all(map(_is_single, value))
        if len(flat) == 1:
            return [(flat[0], flat[0])] * rank
        if scalar_rows and len(flat) == 2:
            return [(flat[0], flat[1])] * rank
        if not scalar_rows and len(flat) == rank:
            return [(x, x) for x in flat]
    elif all(len(e) == 2 for e in entries):
        if len(entries) == 1:
            return [(entries[0][0], entries[0][1])] * rank
        if len(entries) == rank:
            return [(e[0], e[1]) for e in entries]
    raise ArgumentError(f"{name} must be a number, a pair or a pair for each of {rank} axes, got {value}.")


def _pad_constant(a: Array, widths: list[tuple[int, int]], values: Any) -> Array:
    if not a.ndim:
        return a
    pairs = _pairs(values, a.ndim, "constant_values", lambda v: scalar_like(a, ensure_array(v)))
    if all(low is high for low, high in pairs) and all(p[0] is pairs[0][0] for p in pairs) and pairs:
        return lax.pad(a, pairs[0][0], [(low, high, 0) for low, high in widths])
    for axis, ((low, high), (before, after)) in enumerate(zip(widths, pairs, strict=True)):
        for width, value in (((low, 0, 0), before), ((0, high, 0), after)):
            a = lax.pad(a, value, [width if i == axis else (0, 0, 0) for i in range(a.ndim)])
    return a


def _sides(a: Array, axis: int, low: int, high: int, mode: str, options: dict[str, Any]) -> list[Array]:
    """Return the padding before, the array, and the padding after, along one axis."""
    length: int = a.shape[axis]
    if mode == "edge":
        return [_repeat(a, 0, low, axis), a, _repeat(a, length - 1, high, axis)]
    if mode == "wrap":
        if low <= length and high <= length:
            return [_part(a, length - low, length, axis), a, _part(a, 0, high, axis)]
        return [
            _gather(a, np.arange(-low, 0) % length, axis),
            a,
            _gather(a, np.arange(length, length + high) % length, axis),
        ]
    if mode in ("reflect", "symmetric"):
        return _mirror(a, axis, low, high, mode, options.get("reflect_type", "even"))
    if mode == "linear_ramp":
        ends = _pairs(options.get("end_values", 0), a.ndim, "end_values", ensure_array)[axis]
        return [_ramp(a, 0, ends[0], low, axis, False), a, _ramp(a, length - 1, ends[1], high, axis, True)]
    lengths = options.get("stat_length")
    counts = (length, length) if lengths is None else _pairs(lengths, a.ndim, "stat_length", index)[axis]
    if any(c < 1 for c in counts):
        raise ArgumentError("stat_length of 0 yields no value for padding.")
    first, last = (minimum(c, length) for c in counts)
    return [
        _statistic(_part(a, 0, first, axis), mode, low, axis),
        a,
        _statistic(_part(a, length - last, length, axis), mode, high, axis),
    ]


def _part(a: Array, start: Any, stop: Any, axis: int) -> Array:
    return lax.slice_in_dim(a, start, stop, axis=axis)


def _gather(a: Array, positions: np.ndarray, axis: int) -> Array:
    found = ensure_array(positions.astype(dtypes.default_int_dtype()))
    return a.at[(slice(None),) * axis + (found,)].get(mode="promise_in_bounds")


def _repeat(a: Array, position: int, count: int, axis: int) -> Array:
    edge = _part(a, position, position + 1, axis)
    return expand_to(edge, tuple(count if i == axis else n for i, n in enumerate(a.shape)))


def _mirror(a: Array, axis: int, low: int, high: int, mode: str, kind: str) -> list[Array]:
    length: int = a.shape[axis]
    if kind not in ("even", "odd"):
        raise ArgumentError(f"reflect_type must be 'even' or 'odd', got {kind!r}.")
    if mode == "reflect" and length == 1:
        return [_repeat(a, 0, low, axis), a, _repeat(a, 0, high, axis)]
    offset = int(mode == "reflect")
    if kind == "even":
        end = length - offset
        if low <= end and high <= end:
            return [flip(_part(a, offset, offset + low, axis), axis), a, flip(_part(a, end - high, end, axis), axis)]
        period = 2 * (length - 1) if mode == "reflect" else 2 * length
        cycle = np.concatenate([np.arange(length), np.arange(length)[::-1]])
        if mode == "reflect":
            cycle = np.concatenate([np.arange(length), np.arange(1, length - 1)[::-1]])
        before, after = cycle[np.arange(-low, 0) % period], cycle[np.arange(length, length + high) % period]
        return [_gather(a, before, axis), a, _gather(a, after, axis)]
    # Odd: mirrored through the edge value, chunk by chunk, as far as the array reaches.
    out = a
    for at_end, total in ((False, low), (True, high)):
        left = total
        while left > 0:
            current = out.shape[axis]
            count = int(np.minimum(current - offset, left))
            if at_end:
                chunk = flip(_part(out, current - offset - count, current - offset, axis), axis)
                edge = _part(out, current - 1, current, axis)
            else:
                chunk = flip(_part(out, offset, offset + count, axis), axis)
                edge = _part(out, 0, 1, axis)
            chunk = subtract(edge + edge, chunk)
            out = concatenate([out, chunk] if at_end else [chunk, out], axis)
            left -= count
    return [out]


def _ramp(a: Array, position: int, end: Array, count: int, axis: int, at_end: bool) -> Array:
    edge = lax.squeeze(_part(a, position, position + 1, axis), (axis,))
    compute = edge.dtype if dtype_kind(edge) in "fc" else dtypes.default_float_dtype()
    end, edge = expand_to(convert_dtype(end, compute), edge.shape), convert_dtype(edge, compute)
    out = linspace(end, edge, count, endpoint=False, dtype=a.dtype)
    return flip(moveaxis(out, 0, axis), axis) if at_end else moveaxis(out, 0, axis)


def _statistic(part: Array, mode: str, count: int, axis: int) -> Array:
    function: Any = {"maximum": max, "minimum": min, "mean": mean, "median": median}[mode]
    value = function(part, axis, keepdims=True)
    if dtype_kind(part) in "iu" and dtype_kind(value) == "f":
        value = round(value)
    value = convert_dtype(value, part.dtype)
    return expand_to(value, tuple(count if i == axis else n for i, n in enumerate(part.shape)))


def _pad_function(
    a: Array, widths: list[tuple[int, int]], function: Callable[..., Any], options: dict[str, Any]
) -> Array:
    out = lax.pad(a, cast(0, a.dtype), [(low, high, 0) for low, high in widths])
    for axis in range(a.ndim):
        rows = moveaxis(out, axis, -1)
        flat = lax.reshape(rows, (int(np.prod(rows.shape[:-1], dtype=np.int64)), rows.shape[-1]))
        vectors = [
            ensure_array(function(row, widths[axis], axis, options)) for row in (flat[i] for i in range(flat.shape[0]))
        ]
        if vectors:
            stacked = lax.concatenate([lax.expand_dims(v, (0,)) for v in vectors], 0)
            out = moveaxis(lax.reshape(stacked, rows.shape), -1, axis)
    return out if out.shape == a.shape or a.size else full_array(out.shape, 0, a.dtype)
