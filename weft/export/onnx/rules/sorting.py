"""Rules of sorting: `TopK`, which keeps the order of equal elements, once for each key from the last on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.export.onnx.emitter import INT32, INT64, Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.kernels import computing_dtype
from weft.export.onnx.rules.elementwise import equals, is_bool, is_nan, kind
from weft.export.onnx.table import Parts, parts_rule, rule
from weft.ir.jaxpr import Equation


@parts_rule("sort")
def write_sort(g: Emitter, e: Equation, *operands: Parts) -> list[Parts]:
    """Sort operands together by their first ones."""
    axis, keys = e.params["dimension"], e.params["num_keys"]
    order: Value | None = None
    for key in reversed([part for parts in operands[:keys] for part in parts]):
        for step in ascending(g, key):
            moved = step if order is None else take(g, step, order, axis)
            found = rank_order(g, moved, axis, step.shape[axis], largest=False)
            order = found if order is None else take(g, order, found, axis)
    assert order is not None
    at = order
    return [tuple(take(g, part, at, axis) for part in parts) for parts in operands]


def ascending(g: Emitter, key: Value) -> list[Value]:
    """Return the values to sort by, the last one first, of a key: nan comes after all numbers."""
    if is_bool(key):
        return [g.cast(key, INT32)]
    if key.dtype.name == "uint64":
        return [g.cast(g.elementwise("BitwiseXor", key, g.constant(np.uint64(1 << 63))), INT64)]
    if kind(key) != "f":
        return [key]
    wrong = is_nan(g, key)
    return [g.where(wrong, g.scalar(math.inf, key), key), g.cast(wrong, INT32)]


def rank_order(g: Emitter, x: Value, axis: int, count: Any, largest: bool) -> Value:
    """Return the positions of the least or greatest elements along an axis, in order."""
    compute = computing_dtype("TopK", x.dtype)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    inputs = [g.cast(x, compute), g.dimension(count)]
    types: Any = [(compute, shape), (INT64, shape)]
    return g.nodes("TopK", inputs, types, axis=axis, largest=int(largest), sorted=1)[1]


def take(g: Emitter, x: Value, at: Value, axis: int) -> Value:
    """Return elements at positions along an axis."""
    return g.move("GatherElements", x, [at], at.shape, axis=axis)


@rule("top_k")
def write_top_k(g: Emitter, e: Equation, x: Value) -> list[Value] | None:
    """Return the greatest elements and their positions; nan counts as greatest, and -0 is less than 0."""
    axis, count = e.params["axis"], e.params["k"]
    results: Any = [v.aval for v in e.outvars]
    order: Value | None = None
    for key in descending(g, x):
        moved = key if order is None else take(g, key, order, axis)
        found = rank_order(g, moved, axis, x.shape[axis], largest=True)
        order = found if order is None else take(g, order, found, axis)
    assert order is not None
    at = g.move("Slice", order, [g.indices([0]), g.dimension(count), g.indices([axis])], results[1].shape)
    return [take(g, x, at, axis), g.cast(at, results[1].dtype)]


def descending(g: Emitter, x: Value) -> list[Value]:
    """Return the values to sort by from the greatest on, the last one first."""
    if kind(x) != "f" or dtypes.kind(x.dtype) != "f":
        return ascending(g, x)
    number, wrong = ascending(g, x)
    # Of two zeros, the one whose reciprocal is positive is the greater one.
    signs = g.where(equals(g, x, 0), g.elementwise("Reciprocal", number), g.scalar(0, number))
    return [g.where(is_nan(g, signs), g.scalar(0, signs), signs), number, wrong]
