"""Reading by position: `take` and `take_along_axis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import lax
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import config
from weft.base.source import user_line
from weft.indexing.expression import Expression
from weft.numpy.elementwise import clip, remainder
from weft.numpy.indexing import getitem
from weft.numpy.manipulation import ravel
from weft.numpy.util import (
    broadcast_shape,
    canonicalize_axis,
    check_arraylike,
    check_no_out,
    ensure_array,
    expand_to,
    kind_of,
)
from weft.primitives.control.check import check_index
from weft.trace.array import Array


def _check_places(places: Any, axis: int, shape: Sequence[Any], wrap: bool) -> None:
    """Have positions checked in programs where `checks` asks for it. To fill in for those outside is what these
    functions are known to do, so unasked they do that."""
    if config.checks == "all" and not isinstance(shape[axis], Expression):
        check_index(places, axis, shape, -shape[axis] if wrap else 0, shape[axis] - 1)


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: Any = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """The elements at positions along an axis, or in the flattened array.

    Positions outside give `fill_value` (not-a-number by default); with `mode` 'clip' or 'wrap' they are brought inside.
    Under the setting `checks` they are an error, unless a mode or a value is given.
    """
    check_arraylike("take", a, indices)
    check_no_out("take", out)
    a, places = ensure_array(a), ensure_array(indices)
    if kind_of(places) not in "iu":
        raise ArgumentTypeError(
            "take needs integer positions.",
            received=f"{indices!r}, {places.aval.short()}" if not places.ndim else places.aval.short(),
            fix="indices.astype(int) of an array, int(i)",
        )
    if places.dtype.itemsize < 4:  # the length may not fit
        places = lax.convert_element_type(places, "int32")
    if axis is None:
        a, place = ravel(a), 0
    else:
        place = canonicalize_axis(axis, a.ndim, "take")
    length = a.shape[place]
    if length == 0 and places.size:
        raise IndexError(f"take cannot read from the empty axis {place} of {a.aval.short()}.  at {user_line()}")
    if mode is None and fill_value is None:
        _check_places(places, place, a.shape, True)
    if mode == "raise":
        raise ArgumentError("take cannot raise for positions outside: use mode 'fill', 'clip' or 'wrap'.")
    if mode == "wrap":
        places, mode = remainder(places, length), "promise_in_bounds"
    elif mode == "clip":  # as NumPy has it, negative positions become 0
        places, mode = clip(places, 0, length - 1), "promise_in_bounds"
    index = (slice(None),) * place + (places,)
    return getitem(a, index, mode or "fill", fill_value, indices_are_sorted, unique_indices)


def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool = True,
) -> Array:
    """For each place, the element of its line along an axis that the indices name, as from `argsort` of that axis."""
    check_arraylike("take_along_axis", arr, indices)
    a, places = ensure_array(arr), ensure_array(indices)
    if kind_of(places) not in "iu":
        raise ArgumentTypeError(f"take_along_axis indices must be of integer type, got {places.aval.short()}.")
    if axis is None:
        if places.ndim != 1:
            raise ArgumentError(f"take_along_axis indices must be 1D if axis=None, got shape {places.shape}.")
        a, axis = ravel(a), 0
    if a.ndim != places.ndim:
        raise ArgumentError(f"indices and arr must have the same number of dimensions: {places.ndim} and {a.ndim}.")
    place = canonicalize_axis(axis, a.ndim, "take_along_axis")
    if mode is None and fill_value is None:
        _check_places(places, place, a.shape, wrap_negative_indices)
    around = tuple(1 if i == place else n for i, n in enumerate(a.shape))
    sizes = broadcast_shape("take_along_axis", around, places.shape)
    number = places.dtype if places.dtype.itemsize >= 4 else lax.iota("int32", 1).dtype
    index: list[Any] = []
    for axis_number, size in enumerate(sizes):
        if axis_number == place:
            index.append(expand_to(places, sizes))
        elif a.shape[axis_number] == 1:
            index.append(0)
        else:
            shape = tuple(size if i == axis_number else 1 for i in range(len(sizes)))
            index.append(lax.broadcasted_iota(number, shape, axis_number))
    made = getitem(a, tuple(index), mode or "fill", fill_value, wrap_negative_indices=wrap_negative_indices)
    return expand_to(made, sizes)
