"""Rules of sorting and of the largest elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo.elementwise import computing_dtype, convert, parts
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule
from weft.compiler.target.stablehlo.types import BOOL, boolean
from weft.compiler.target.stablehlo.writer import Value


@rule("sort")
def sort(e: Emitter, site: Site, *operands: Value) -> list[Value]:
    """Write a sort of several arrays by the first of them; nan is last, and the zeros are equal."""
    p = site.params
    count = p["num_keys"]

    def less(values: list[Value]) -> list[Value]:
        pairs = [(values[2 * i], values[2 * i + 1]) for i in range(count)]
        return [in_order(e, [key for pair in pairs for key in sorting_keys(e, *pair)])]

    return write_sort(e, operands, p["dimension"], p["is_stable"], less)


def write_sort(e: Emitter, operands: Sequence[Value], dimension: int, stable: bool, less: object) -> list[Value]:
    """Write a sort with a comparison of pairs of elements of all operands."""
    types = [((), x.dtype) for x in operands for _ in range(2)]
    attributes = f"dimension = {dimension} : i64, is_stable = {boolean(stable)}"
    results = [(x.shape, x.dtype) for x in operands]
    return e.write("stablehlo.sort", operands, results, attributes, [e.region(types, less)])  # type: ignore[arg-type]


def sorting_keys(e: Emitter, x: Value, y: Value) -> list[tuple[Value, Value]]:
    """Return pairs of numbers to compare, the most significant first: two for complex numbers."""
    match dtypes.kind(x.dtype):
        case "c":
            return list(zip(parts(e, x), parts(e, y), strict=True))
        case "b":
            return [(e.convert(x, np.dtype(np.uint8)), e.convert(y, np.dtype(np.uint8)))]
    return [(convert(e, x, computing_dtype(x.dtype)), convert(e, y, computing_dtype(y.dtype)))]


def in_order(e: Emitter, keys: Sequence[tuple[Value, Value]]) -> Value:
    """Return whether the first elements come before the second ones, by several keys."""
    result = e.scalar(False, BOOL)
    for x, y in reversed(keys):
        less, equal = e.compare("LT", x, y), e.compare("EQ", x, y)
        if dtypes.kind(x.dtype) == "f":
            x_unknown, y_unknown = e.compare("NE", x, x), e.compare("NE", y, y)
            less = e.same("or", less, e.same("and", y_unknown, e.same("not", x_unknown)))
            equal = e.same("or", equal, e.same("and", x_unknown, y_unknown))
        result = e.same("or", less, e.same("and", equal, result))
    return result


@rule("top_k")
def top_k(e: Emitter, site: Site, x: Value) -> list[Value]:
    """Write the largest elements and their indices by a sort in the total order, with all nan equal and largest."""
    axis, count = site.params["axis"], site.params["k"]
    index = e.iota(x.shape, site.results[1][1], axis)

    def greater(values: list[Value]) -> list[Value]:
        a, b = (total_key(e, v) for v in values[:2])
        return [e.compare("GT", a, b)]

    limits = [count if d == axis else size for d, size in enumerate(x.shape)]
    return [e.slice(y, [0] * len(limits), limits) for y in write_sort(e, [x, index], axis, True, greater)]


def total_key(e: Emitter, x: Value) -> Value:
    """Return integers in the total order of floats; integers as they are."""
    kind = dtypes.kind(x.dtype)
    if kind == "b":
        return e.convert(x, np.dtype(np.uint8))
    x = convert(e, x, computing_dtype(x.dtype))
    if kind != "f":
        return x
    bits = dtypes.itemsize_bits(x.dtype)
    whole = np.dtype(f"i{bits // 8}")
    unknown = e.compare("NE", x, x)
    code = e.bitcast(x, whole)
    negative = e.compare("LT", code, e.full_like(0, code))
    most = e.full_like(np.iinfo(whole).max, code)
    ordered = e.select(negative, e.same("xor", code, most), code)
    return e.select(unknown, most, ordered)
