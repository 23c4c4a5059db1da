"""Definitions of operations that choose an element of each window: the gradients of pooling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.export.onnx.emitter import Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.table import define, rule
from weft.ir.jaxpr import Equation
from weft.primitives.contraction.convolution_shapes import Window
from weft.primitives.reduction.window import geometry, padding_config


def elements(x: Any, fill: Any, windows: Sequence[Window]) -> Iterator[Any]:
    """Yield, for each element of the window in row-major order, its values in all windows."""
    x = lax.pad(x, np.asarray(fill, x.dtype), padding_config(windows))
    for at in np.ndindex(*(int(w.window) for w in windows)):
        starts = [i * w.rhs_dilation for i, w in zip(at, windows, strict=True)]
        limits = [s + max((w.count - 1) * w.stride + 1, 0) for s, w in zip(starts, windows, strict=True)]
        yield lax.slice(x, starts, limits, [w.stride for w in windows])


def choose(operand: Any, select: Any, windows: Sequence[Window]) -> Any:
    """Return the position of the element that is chosen in each window; -1 if a window has only padding."""
    positions = wnp.arange(math.prod(operand.shape), dtype=np.int32).reshape(operand.shape)
    places, values = elements(positions, -1, windows), elements(operand, 0, windows)
    position, value = next(places), next(values)
    for other, candidate in zip(places, values, strict=True):
        replaced = (other >= 0) & ((position < 0) | ~select(value, candidate))
        position, value = wnp.where(replaced, other, position), wnp.where(replaced, candidate, value)
    return position


@define("select_and_gather_add")
def define_gather(tangents: Any, operand: Any, *, select_prim: Any, **params: Any) -> Any:
    """Read the tangents at the chosen positions."""
    windows = geometry(operand.shape, **params)
    if 0 in operand.shape:
        return wnp.zeros([w.count for w in windows], tangents.dtype)
    position = choose(operand, select_prim, windows)
    return wnp.where(position >= 0, tangents.reshape(-1)[wnp.maximum(position, 0)], np.zeros((), tangents.dtype))


@define("select_and_scatter_add")
def define_scatter(source: Any, operand: Any, *, select_prim: Any, **params: Any) -> Any:
    """Add the source at the chosen positions."""
    size = math.prod(operand.shape)
    if not size or 0 in source.shape:
        return wnp.zeros(operand.shape, source.dtype)
    position = choose(operand, select_prim, geometry(operand.shape, **params)).reshape(-1)
    total = wnp.zeros(size, source.dtype)
    return total.at[wnp.where(position < 0, size, position)].add(source.reshape(-1), mode="drop").reshape(operand.shape)


@rule("platform_index")
def write_platform(g: Emitter, e: Equation) -> Value:
    """Choose the function for CPUs: a graph runs anywhere, so that it has none of a platform's own operations."""
    return g.constant(e.primitive.on_platform("cpu", e.params))  # type: ignore[attr-defined]


@define("nextafter")
def define_next_float(x: Any, y: Any) -> Any:
    """Step to the next float by its bits, which are ordered as the magnitudes are."""
    words = np.dtype(f"int{x.dtype.itemsize * 8}")
    bits = lax.bitcast_convert_type(x, words)
    step = wnp.where((x < y) == (x > 0), 1, -1).astype(words)
    least = lax.bitcast_convert_type(wnp.ones(x.shape, words), x.dtype)
    moved = lax.bitcast_convert_type(bits + step, x.dtype)
    moved = wnp.where(x == 0, wnp.where(y < 0, -least, least), moved)
    moved = wnp.where(x == y, y, moved)
    return wnp.where((x != x) | (y != y), x + y, moved)
