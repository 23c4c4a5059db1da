"""Rules of reductions and of cumulative operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base import dtypes
from weft.export.onnx.emitter import BOOL, FLOAT32, INT32, INT64, Emitter
from weft.export.onnx.graph import Shape, Value
from weft.export.onnx.kernels import computing_dtype
from weft.export.onnx.rules.elementwise import compare, extreme, is_bool, is_nan, kind
from weft.export.onnx.rules.movement import cut, pad, reverse
from weft.export.onnx.table import define, rule
from weft.indexing.expression import Expression
from weft.ir.jaxpr import Equation

REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_prod": "ReduceProd",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
}


@rule("reduce_prod", "reduce_max", "reduce_min")
@rule("reduce_sum", moves=True)  # of each part of complex numbers
def write_reduction(g: Emitter, e: Equation, x: Value) -> Value:
    """Reduce axes by a sum, product or extreme."""
    if any(x.shape[axis] == 0 for axis in e.params["axes"]):
        initial: Any = e.primitive
        return g.expand(
            g.constant(np.asarray(initial.initial(x.dtype)).astype(x.dtype)), without(x.shape, e.params["axes"])
        )
    return reduce(g, REDUCTIONS[e.primitive.name], x, e.params["axes"])


def reduce(g: Emitter, operation: str, x: Value, axes: tuple[int, ...]) -> Value:
    """Reduce axes, which the result lacks."""
    own = x.dtype
    if not axes:
        return x
    extremes = operation in ("ReduceMax", "ReduceMin")
    if extremes and is_bool(x):
        x = g.cast(x, INT32)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if own.name == "uint64" and extremes:
        raise g.refuse("runtimes have no extremes of uint64", "convert the operand to int64 or uint32")
    compute = computing_dtype(operation, x.dtype)
    wide = g.cast(x, compute)
    result = g.node(operation, [wide, g.indices(axes)], compute, shape, keepdims=0)
    if extremes and kind(wide) == "f":  # kernels differ in what they do with nan
        wrong = reduce(g, "ReduceMax", is_nan(g, wide), axes)
        result = g.where(wrong, g.scalar(math.nan, result), result)
    return g.cast(result, own)


@rule("reduce_and", "reduce_or", "reduce_xor")
def write_logical(g: Emitter, e: Equation, x: Value) -> Value:
    """Reduce axes by a logical operation; integers by halves, bit by bit."""
    name = e.primitive.name.removeprefix("reduce_")
    axes = e.params["axes"]
    if is_bool(x) and name != "xor":
        empty = any(x.shape[a] == 0 for a in axes)
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        if empty:
            return g.expand(g.constant(np.asarray(name == "and")), shape)
        return reduce(g, "ReduceMin" if name == "and" else "ReduceMax", x, axes)
    if is_bool(x):
        total = reduce(g, "ReduceSum", g.cast(x, INT32), axes)
        return g.cast(g.elementwise("Mod", total, g.scalar(2, total)), BOOL)
    operation = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}[name]
    neutral = np.asarray(-1 if name == "and" else 0).astype(x.dtype)
    for axis in sorted(axes, reverse=True):
        x = halve(g, x, axis, neutral, lambda a, b: g.elementwise(operation, a, b))
    return x


def halve(g: Emitter, x: Value, axis: int, neutral: Any, combine: Callable[[Value, Value], Value]) -> Value:
    """Reduce an axis by combining its halves until one element is left."""
    size = x.shape[axis]
    if isinstance(size, Expression):
        raise g.refuse("the reduced axis must have a known size", "export for a number in place of its symbol")
    if size == 0:
        return g.expand(g.constant(neutral), tuple(n for i, n in enumerate(x.shape) if i != axis))
    while size > 1:
        if size % 2:
            padding = [(0, int(i == axis), 0) for i in range(x.rank)]
            x, size = pad(g, x, g.constant(neutral), padding), size + 1
        half = size // 2
        first, second = (cut(g, x, [axis], [at], [at + half], [1], [half]) for at in (0, half))
        x, size = combine(first, second), half
    return g.reshape(x, tuple(n for i, n in enumerate(x.shape) if i != axis))


@rule("argmax", "argmin")
def write_arg_extreme(g: Emitter, e: Equation, x: Value) -> Value:
    """Return the index of the first extreme; the first nan counts as one."""
    (axis,), dtype = e.params["axes"], e.params["index_dtype"]
    operation = "ArgMax" if e.primitive.name == "argmax" else "ArgMin"
    if x.shape[axis] == 0 or 0 in x.shape:
        return g.expand(g.constant(np.zeros((), dtype)), without(x.shape, (axis,)))
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    if is_bool(x):
        x = g.cast(x, INT32)
    compute = computing_dtype(operation, x.dtype)
    wide = g.cast(x, compute)
    if kind(wide) == "f":
        wrong = is_nan(g, wide)
        wide = g.where(wrong, g.scalar(math.inf if operation == "ArgMax" else -math.inf, wide), wide)
        first = g.node("ArgMax", [g.cast(wrong, INT32)], INT64, shape, axis=axis, keepdims=0)
        found = g.node(operation, [wide], INT64, shape, axis=axis, keepdims=0)
        found = g.where(reduce(g, "ReduceMax", wrong, (axis,)), first, found)
    else:
        found = g.node(operation, [wide], INT64, shape, axis=axis, keepdims=0)
    return g.cast(found, dtype)


# --------------------------------------------------------------------------------------------------------- cumulative


@rule("cumsum", moves=True)  # of each part of complex numbers
def write_cumsum(g: Emitter, e: Equation, x: Value) -> Value:
    """Return running sums."""
    compute = computing_dtype("CumSum", x.dtype)
    axis = g.constant(np.int64(e.params["axis"]))
    result = g.node("CumSum", [g.cast(x, compute), axis], compute, x.shape, reverse=int(e.params["reverse"]))
    return g.cast(result, x.dtype)


@rule("cumprod", "cummax", "cummin", "cumlogsumexp")
def write_cumulative(g: Emitter, e: Equation, x: Value) -> Value:
    """Combine each element with all before it, in as many steps as the size has binary digits."""
    axis, size = e.params["axis"], x.shape[e.params["axis"]]
    if isinstance(size, Expression):
        raise g.refuse("the axis must have a known size", "export for a number in place of its symbol")
    own, name = x.dtype, e.primitive.name
    if e.params["reverse"]:
        x = reverse(g, x, (axis,))
    short = kind(x) == "f" and own.itemsize < 4
    wide = g.cast(x, FLOAT32) if short else x
    neutral = g.constant(neutral_element(name, wide.dtype))
    step = 1
    while step < size:
        front = cut(g, wide, [axis], [0], [size - step], [1], [size - step])
        moved = pad(g, front, neutral, [(step if i == axis else 0, 0, 0) for i in range(x.rank)])
        wide = _combine(g, name, wide, moved)
        step *= 2
    wide = g.cast(wide, own)
    return reverse(g, wide, (axis,)) if e.params["reverse"] else wide


def define_running(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the definition of a cumulative operation on complex numbers."""
    return lambda x, *, axis, reverse: lax.associative_scan(combine, x, axis=axis, reverse=reverse)


define("cumprod")(define_running(wnp.multiply))
define("cumlogsumexp")(define_running(wnp.logaddexp))


def neutral_element(name: str, dtype: Any) -> Any:
    """Return the element that changes none it is combined with."""
    if name == "cumprod":
        return np.ones((), dtype)
    largest = name.endswith("min")
    if dtypes.kind(dtype) == "f":
        return np.asarray(math.inf if largest else -math.inf, dtype)
    if dtypes.kind(dtype) == "b":
        return np.asarray(largest)
    limits = dtypes.iinfo(dtype)
    return np.asarray(limits.max if largest else limits.min).astype(dtype)


def _combine(g: Emitter, name: str, x: Value, y: Value) -> Value:
    if name == "cumprod":
        return g.elementwise("Mul", x, y)
    if name != "cumlogsumexp":
        return extreme(g, name == "cummax", x, y)
    top = g.elementwise("Max", x, y)
    finite = compare(g, "Less", g.elementwise("Abs", top), g.scalar(math.inf, top))
    safe = g.where(finite, top, g.scalar(0, top))
    powers = [g.elementwise("Exp", g.elementwise("Sub", a, safe)) for a in (x, y)]
    total = g.elementwise("Add", g.elementwise("Log", g.elementwise("Add", *powers)), safe)
    return g.where(is_nan(g, top), top, total)


def without(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return a shape without some axes."""
    return tuple(n for i, n in enumerate(shape) if i not in axes)
