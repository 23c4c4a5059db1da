"""Windows over a dimension that is split: the neighbours' elements that devices read, and their own windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.halo import affine, broadcast, where, with_halo
from weft.ir.parts import INDEX, Parts
from weft.ir.primitive import Params, lookup
from weft.primitives.contraction.convolution_shapes import Window
from weft.sharding.factors import AxisFactors, Names
from weft.sharding.halo import Halo, Reach

# Why a dimension with windows must be whole.
OVERLAP = "windows reach over the borders of parts"


def window_factors(windows: Sequence[Window], operands: int, scalars: int, results: int) -> AxisFactors:
    """Return factors of operands and results with a dimension for each window, and of scalars after the operands."""
    names: Names = tuple(f"d{i}" if w.is_one or w.is_known else None for i, w in enumerate(windows))
    reach: dict[str, tuple[Reach | None, ...]] = {
        f"d{i}": (w.reach_of_result(),) * operands + (None,) * scalars
        for i, w in enumerate(windows)
        if w.is_known and not w.is_one
    }
    inputs = (names,) * operands + ((),) * scalars
    return AxisFactors(inputs, (names,) * results, inside=dict.fromkeys(reach, 0), reach=reach, reason=OVERLAP)


def local_windows(
    parts: Parts, args: Sequence[Any], params: Params, fills: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the operands as the windows of this device read them, with `fills` for padding, and the parameters for
    these."""
    xs, padding = list(args), list(params["padding"])
    for d, name in parts.split_dims(0).items():
        if name in parts.reach:
            for i, fill in enumerate(fills):
                xs[i], halo = with_halo(parts, xs[i], i, d, fill)
                padding[d] = halo.pad_low, halo.pad_high
    return xs, {**params, "padding": tuple(padding)}


# -------------------------------------------------------------------------------------- the chosen element of a window
#
# Padding is never chosen. What a device reads beyond the ends of the operand is no padding to it, so there it has the
# first or the last element once more: this is chosen only where that could be, and is the same to the result.


def chosen_factors(windows: Sequence[Window], scatters: bool) -> AxisFactors:
    """Return factors of operations that select an element of each window: to read it from the first operand, or to add
    the first operand to it."""
    names: list[str | None] = []
    reach: dict[str, tuple[Reach | None, ...]] = {}
    for i, w in enumerate(windows):
        names.append(f"d{i}")
        if w.is_one:
            continue
        if not w.is_known or (any(w.reach_of_result().pads) and not ends_repeat(w)):
            names[-1] = None
        else:
            reach[f"d{i}"] = (reach_of_source(w), reach_around(w)) if scatters else (w.reach_of_result(),) * 2
    inside, both = dict.fromkeys(reach, 0), tuple(names)
    return AxisFactors((both, both), (both,), inside=inside, reach=reach, reason=OVERLAP)


def ends_repeat(w: Window) -> bool:
    """Return whether each window that reaches over an end of the operand contains the element at that end."""
    inside = w.low < w.extent and (w.count - 1) * w.stride - w.low < w.size
    return inside and w.lhs_dilation == w.rhs_dilation == 1


def reach_of_source(w: Window) -> Reach:
    """Return the windows that contain each element of the operand."""
    low = w.extent - 1 - w.low
    return Reach(w.count, w.size, w.lhs_dilation, low, w.extent, w.stride)  # type: ignore[arg-type]


def reach_around(w: Window) -> Reach:
    """Return the elements of all windows that contain elements of a part of the operand: from the first element of the
    first window, before the part, to the last one of the last window."""
    first = reach_of_source(w).low // w.stride * w.stride
    last = (w.low - w.lhs_dilation) // w.stride * w.stride
    extent = w.lhs_dilation + first + last + w.extent
    return Reach(w.size, w.size, w.lhs_dilation, first + w.low, extent, w.lhs_dilation)  # type: ignore[arg-type]


def local_gather(parts: Parts, args: Sequence[Any], params: Params) -> tuple[list[Any], dict[str, Any]]:
    """Return operands of `select_and_gather_add` as the windows of this device read them, and the parameters for
    these."""
    xs, padding = list(args), list(params["padding"])
    for d, name in parts.split_dims(0).items():
        if name in parts.reach:
            for i in range(2):
                x, halo = with_halo(parts, xs[i], i, d)
                xs[i] = repeat_ends(parts, x, d, name, halo, halo.reach.pads)
                padding[d] = halo.pad_low, halo.pad_high
    return xs, {**params, "padding": tuple(padding)}


def repeat_ends(parts: Parts, x: Any, dim: int, name: str, halo: Halo, pads: tuple[bool, bool]) -> Any:
    """Replace elements read beyond the operand by its first or last element, at the ends that windows reach over."""
    first, size = affine(parts.position(parts.split(name)), halo.stride, -halo.low), halo.reach.size
    for reaches, compare, bound, end in zip(pads, ("lt", "ge"), (0, size), (0, size - 1), strict=True):
        if reaches:
            starts = [lookup("sub")(INDEX.type(end), first) if d == dim else INDEX.type(0) for d in range(len(x.shape))]
            one = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
            found = lookup("dynamic_slice")(x, *starts, slice_sizes=one)
            dims = tuple(range(len(x.shape)))
            found = lookup("broadcast_in_dim")(found, shape=x.shape, broadcast_dimensions=dims)
            x = where(x, dim, first, compare, bound, found, x)
    return x


def local_scatter(parts: Parts, args: Sequence[Any], params: Params, primitive: Any, pads: Sequence[Any]) -> Any:
    """Bind `select_and_scatter_add` to all windows that contain elements of this part, and keep the part. `pads` marks
    the ends of each dimension that windows reach over."""
    (source, x), padding = args, list(params["padding"])
    split = {d: name for d, name in parts.split_dims(1).items() if name in parts.reach}
    found: dict[int, Halo] = {}
    for d, name in split.items():
        source, _ = with_halo(parts, source, 0, d, np.zeros((), dtypes.storage(source.dtype)))
        x, found[d] = with_halo(parts, x, 1, d)
        x = repeat_ends(parts, x, d, name, found[d], pads[d])
        padding[d] = found[d].pad_low, found[d].pad_high
    out = primitive(source, x, **{**params, "padding": tuple(padding)})
    for d, halo in found.items():
        out = own_elements(parts, out, d, split[d], halo, pads[d])
    return out


def own_elements(parts: Parts, x: Any, dim: int, name: str, halo: Halo, pads: tuple[bool, bool]) -> Any:
    """Return a part's share of the sums for its elements and those around it. Sums for elements that stand for the
    first or the last one are added to these."""
    first, size, shape = affine(parts.position(parts.split(name)), halo.stride, -halo.low), halo.reach.size, x.shape
    nothing = np.zeros((), dtypes.storage(x.dtype))
    around = tuple(d for d in range(len(shape)) if d != dim)
    for reaches, compare, bound, end in zip(pads, ("lt", "ge"), (0, size), (0, size - 1), strict=True):
        if reaches:
            beyond = where(x, dim, first, compare, bound, x, broadcast(nothing, shape))
            added = lookup("reduce_sum")(beyond, axes=(dim,))
            added = lookup("broadcast_in_dim")(added, shape=shape, broadcast_dimensions=around)
            x = where(x, dim, first, "eq", end, lookup("add")(x, added), x)
    config = [(0, 0, 0)] * len(shape)
    config[dim] = -halo.low, halo.own + halo.low - halo.width, 0
    return lookup("pad")(x, nothing, padding_config=tuple(config))
