"""Rules of reductions: over axes, over windows, along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import Scalars, computing_dtype, convert, lexicographic
from weft.compiler.target.stablehlo.emitter import Emitter, Parts, Site, flatten, part_rule, rule
from weft.compiler.target.stablehlo.indexing import combine_region
from weft.compiler.target.stablehlo.types import BOOL, int64_array, pairs
from weft.compiler.target.stablehlo.writer import Region, Shape, Value
from weft.ir.jaxpr import Equation, Jaxpr

COMBINERS = {
    "reduce_sum": "add",
    "reduce_prod": "multiply",
    "reduce_max": "maximum",
    "reduce_min": "minimum",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}


@rule(*COMBINERS)
def reduction(e: Emitter, site: Site, x: Value) -> Value:
    """Write a reduction of axes; short floats accumulate wider."""
    operation: Any = site.primitive
    name = COMBINERS[operation.name]
    initial = np.asarray(operation.initial(x.dtype)).astype(x.dtype)
    wide = dtypes.accumulation_dtype(x.dtype) if name in ("add", "multiply") else computing_dtype(x.dtype)
    start = e.constant(initial.astype(wide))
    attributes = f"dimensions = {int64_array(site.params['axes'])}"
    region = combine_region(e, name, wide)
    return convert(e, e.op("reduce", [convert(e, x, wide), start], site.shape, wide, attributes, region), site.dtype)


@rule("argmax", "argmin")
def arg_reduction(e: Emitter, site: Site, x: Value) -> Value:
    """Write the index of an extreme element: the first of those, or the first nan."""
    (axis,) = site.params["axes"]
    direction = "GT" if site.primitive.name == "argmax" else "LT"
    if x.dtype == BOOL:
        x = e.convert(x, np.dtype(np.uint8))
    x = convert(e, x, computing_dtype(x.dtype))
    index = e.iota(x.shape, site.dtype, axis)

    def build(values: list[Value]) -> list[Value]:
        a, i, b, j = values
        better = lexicographic(e, direction, a, b) if dtypes.kind(a.dtype) == "c" else e.compare(direction, a, b)
        unknown = e.compare("NE", a, a)
        other_unknown = e.compare("NE", b, b)
        keeps = e.same("or", unknown, e.same("and", better, e.same("not", other_unknown)))
        equal = e.same("or", e.compare("EQ", a, b), e.same("and", unknown, other_unknown))
        first = e.compare("LT", i, j)
        # Of equal ones the first counts, of several nans too.
        left = e.same("or", e.same("and", equal, first), e.same("and", e.same("not", equal), keeps))
        return [e.select(left, a, b), e.select(left, i, j)]

    # The first element is the start, at an index that no other has.
    operation: Any = site.primitive
    worst = np.asarray(worst_value(operation.name, x.dtype))
    types: list[tuple[Shape, Any]] = [((), x.dtype), ((), site.dtype)]
    start = [e.constant(worst), e.scalar(dtypes.iinfo(site.dtype).max, site.dtype)]
    region = e.region(types * 2, build)
    attributes = f"dimensions = {int64_array([axis])}"
    results = [(site.shape, x.dtype), (site.shape, site.dtype)]
    return e.write("stablehlo.reduce", [x, index, *start], results, attributes, [region])[1]


def worst_value(name: str, dtype: Any) -> np.ndarray:
    """Return the number that every other one replaces in a search for the greatest or the least."""
    kind = dtypes.kind(dtype)
    if kind in "iu":
        limits = dtypes.iinfo(dtype)
        return np.array(limits.min if name == "argmax" else limits.max, dtype)
    number = -np.inf if name == "argmax" else np.inf
    return np.array(complex(number, number) if kind == "c" else number, dtype)


def reduces_elements(equation: Equation) -> bool:
    """Return whether an axis of several elements is reduced: of others, compilers leave out the initial value."""
    shape = equation.invars[0].aval.shape  # type: ignore[attr-defined]
    return any(shape[axis] != 1 for axis in equation.params["dimensions"])


@part_rule("reduce", when=reduces_elements)
def reduce(e: Emitter, site: Site, equation: Equation, *operands: Parts) -> list[Parts]:
    """Write a reduction of several arrays by a function of scalars."""
    values = flatten(operands)
    half = len(values) // 2
    region = jaxpr_region(e, equation.params["jaxpr"], values[half:])
    attributes = f"dimensions = {int64_array(equation.params['dimensions'])}"
    return [(v,) for v in e.write("stablehlo.reduce", values, site.results, attributes, [region])]


def jaxpr_region(e: Emitter, jaxpr: Jaxpr, like: Sequence[Value]) -> Region:
    """Return a region that combines two groups of scalars by a jaxpr."""
    types: list[tuple[Shape, Any]] = [((), x.dtype) for x in like]
    return e.region(types * 2, lambda values: flatten(e.body(jaxpr, [(v,) for v in values])))


# -------------------------------------------------------------------------------------------------- along an axis

RUNNING = {"cumsum": "add", "cumprod": "multiply", "cummax": "maximum", "cummin": "minimum"}


@rule(*RUNNING)
def running(e: Emitter, site: Site, x: Value) -> Value:
    """Write a running reduction as one over windows that begin at the first element."""
    name, axis = RUNNING[site.primitive.name], site.params["axis"]
    size = x.shape[axis]
    if 0 in x.shape:
        return x
    wide = dtypes.accumulation_dtype(x.dtype) if name in ("add", "multiply") else computing_dtype(x.dtype)
    window = [size if d == axis else 1 for d in range(len(x.shape))]
    ends = (0, size - 1) if site.params["reverse"] else (size - 1, 0)
    padding = [ends if d == axis else (0, 0) for d in range(len(x.shape))]
    start = e.constant(neutral(name, wide))
    params = {"window_dimensions": window, "padding": padding}
    value = convert(e, x, wide)
    region = combine_region(e, name, wide)
    return convert(e, windows(e, [value], [start], [(x.shape, wide)], region, params)[0], x.dtype)


@rule("cumlogsumexp")
def running_log_sum(e: Emitter, site: Site, x: Value) -> Value:
    """Write running logarithms of sums by the operation's own combination of two elements."""
    operation: Any = site.primitive
    axis, wide = site.params["axis"], dtypes.accumulation_dtype(x.dtype)
    if 0 in x.shape:
        return x
    lengths = x.shape[axis]
    window = [lengths if d == axis else 1 for d in range(len(x.shape))]
    ends = (0, lengths - 1) if site.params["reverse"] else (lengths - 1, 0)
    padding = [ends if d == axis else (0, 0) for d in range(len(x.shape))]
    start = e.scalar(operation.neutral(wide), wide)
    region = e.region([((), wide)] * 2, lambda pair: [operation.emit(Scalars(e), *pair)])
    params = {"window_dimensions": window, "padding": padding}
    return convert(e, windows(e, [convert(e, x, wide)], [start], [(x.shape, wide)], region, params)[0], x.dtype)


def neutral(name: str, dtype: Any) -> np.ndarray:
    """Return the number that an operation leaves others unchanged with."""
    kind = dtypes.kind(dtype)
    if name in ("add", "or", "xor"):
        return np.array(0, dtype)
    if name in ("multiply",):
        return np.array(1, dtype)
    if kind == "b":
        return np.array(name == "minimum", dtype)
    return worst_value("argmax" if name == "maximum" else "argmin", dtype)


# ------------------------------------------------------------------------------------------------------- over windows


def windows(
    e: Emitter,
    operands: Sequence[Value],
    starts: Sequence[Value],
    results: Sequence[tuple[Shape, Any]],
    region: Region,
    params: Any,
) -> list[Value]:
    """Write a reduction of windows."""
    rank = len(operands[0].shape)
    if not rank:
        # One window of one element, which StableHLO has no attributes for.
        operands = [e.reshape(x, (1,)) for x in operands]
        inner = {"window_dimensions": (1,), "padding": ((0, 0),)}
        found = windows(e, operands, starts, [((1,), dtype) for _, dtype in results], region, inner)
        return [e.reshape(x, ()) for x in found]
    ones = (1,) * rank
    attributes = [f"window_dimensions = {int64_array(params['window_dimensions'])}"]
    for ours, theirs in (
        ("window_strides", "window_strides"),
        ("base_dilation", "base_dilations"),
        ("window_dilation", "window_dilations"),
    ):
        attributes.append(f"{theirs} = {int64_array(params.get(ours) or ones)}")
    attributes.append(f"padding = {pairs(params['padding'])}")
    return e.write("stablehlo.reduce_window", [*operands, *starts], results, ", ".join(attributes), [region])


WINDOW_COMBINERS = {"reduce_window_sum": "add", "reduce_window_max": "maximum", "reduce_window_min": "minimum"}


@rule(*WINDOW_COMBINERS)
def window_reduction(e: Emitter, site: Site, x: Value) -> Value:
    """Write a reduction of windows by a named operation."""
    name = WINDOW_COMBINERS[site.primitive.name]
    wide = dtypes.accumulation_dtype(x.dtype) if name == "add" else computing_dtype(x.dtype)
    operation: Any = site.primitive
    start = e.constant(np.asarray(operation.initial(x.dtype)).astype(x.dtype).astype(wide))
    region = combine_region(e, name, wide)
    (found,) = windows(e, [convert(e, x, wide)], [start], [(site.shape, wide)], region, site.params)
    return convert(e, found, site.dtype)


def combines_one_array(equation: Equation) -> bool:
    """Return whether windows of one array are combined by one operation, in whatever order."""
    return len(equation.invars) == 2 and [e.primitive.name for e in equation.params["jaxpr"].eqns] in COMMUTATIVE


COMMUTATIVE = [[name] for name in ("add", "mul", "max", "min", "and", "or", "xor")]


@part_rule("reduce_window", when=combines_one_array)
def reduce_window(e: Emitter, site: Site, equation: Equation, *operands: Parts) -> list[Parts]:
    """Write a reduction of windows of several arrays by a function of scalars."""
    values = flatten(operands)
    half = len(values) // 2
    region = jaxpr_region(e, equation.params["jaxpr"], values[half:])
    return [(v,) for v in windows(e, values[:half], values[half:], site.results, region, equation.params)]
