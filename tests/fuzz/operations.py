"""What random programs compute: elementwise operations, reductions, contractions, sorting; each draws its operands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.generator import SMALL, Draw, Skip, Value
from weft import lax
from weft.base import dtypes


def unary(draw: Draw) -> None:
    x = draw.pick()
    a = x.array
    match x.kind:
        case "f":
            name = draw.one_of(("neg", "abs", "sign", "floor", "ceil", "round", "square", "relu", "cube", "finite"))
            if name == "square":
                x = draw.within(x, 2.0**5 if x.dtype.itemsize < 4 else 2.0**10)
                draw.keep(lax.square(x.array), x.bound**2)
            elif name == "cube":
                x = draw.within(x, SMALL)
                draw.keep(lax.integer_pow(x.array, 3), x.bound**3)
            elif name == "relu":
                draw.keep(lax.max(a, np.array(0, x.dtype)), x.bound)
            elif name == "finite":
                draw.keep(lax.is_finite(a), 1.0)
            elif name == "round":
                method = draw.one_of((lax.RoundingMethod.TO_NEAREST_EVEN, lax.RoundingMethod.AWAY_FROM_ZERO))
                draw.keep(lax.round(a, method), x.bound)
            else:
                draw.keep(getattr(lax, name)(a), x.bound)
        case "i" | "u":
            name = draw.one_of(("neg", "abs", "sign", "bitwise_not", "population_count", "clz"))
            bound = float(dtypes.iinfo(x.dtype).bits) if name in ("population_count", "clz") else most_integer(x)
            draw.keep(getattr(lax, name)(a), bound)
        case "b":
            draw.keep(lax.bitwise_not(a), 1.0)
        case "c":
            name = draw.one_of(("neg", "conj", "real", "imag"))
            draw.keep(getattr(lax, name)(a), x.bound)


def most_integer(x: Value) -> float:
    return float(dtypes.iinfo(x.dtype).max)


def binary(draw: Draw) -> None:
    x = draw.pick()
    y = draw.like(x.shape, x.dtype)
    if draw.flag(0.2):
        x, y = y, x
    a, b = x.array, y.array
    match x.kind:
        case "f" | "c":
            name = draw.one_of(("add", "sub", "mul", "max", "min") if x.kind == "f" else ("add", "sub", "mul"))
            if name == "mul":
                x, y = draw.within(x, 2.0**6 if x.dtype.itemsize > 2 else SMALL), draw.within(y, SMALL)
                draw.keep(lax.mul(x.array, y.array), 2 * x.bound * y.bound)
            else:
                draw.keep(getattr(lax, name)(a, b), x.bound + y.bound)
        case "i" | "u":
            names = (
                "add",
                "sub",
                "mul",
                "max",
                "min",
                "bitwise_and",
                "bitwise_or",
                "bitwise_xor",
                "div",
                "rem",
                "shift",
            )
            name = draw.one_of(names)
            if name in ("div", "rem"):
                # Not by 0, and not the least number by -1, which has no quotient.
                b = lax.max(b, np.array(1, x.dtype))
                draw.keep(getattr(lax, name)(a, b), most_integer(x))
            elif name == "shift":
                b = lax.bitwise_and(b, np.array(dtypes.iinfo(x.dtype).bits - 1, x.dtype))
                shift = draw.one_of((lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic))
                draw.keep(shift(a, b), most_integer(x))
            else:
                draw.keep(getattr(lax, name)(a, b), most_integer(x))
        case "b":
            draw.keep(draw.one_of((lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor))(a, b), 1.0)


def compare(draw: Draw) -> None:
    x = draw.pick("fiub")
    y = draw.like(x.shape, x.dtype)
    draw.keep(draw.one_of((lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge))(x.array, y.array), 1.0)


def choose(draw: Draw) -> None:
    x = draw.pick()
    y = draw.like(x.shape, x.dtype)
    if draw.flag(0.3):
        which = draw.within(draw.like(x.shape, np.int32), 2)
        z = draw.like(x.shape, x.dtype)
        which = Value(lax.abs(which.array), 2)
        draw.keep(lax.select_n(which.array, x.array, y.array, z.array), max(x.bound, y.bound, z.bound))
        return
    flags = draw.like(() if draw.flag(0.2) else x.shape, np.bool_)
    draw.keep(lax.select_n(flags.array, x.array, y.array), max(x.bound, y.bound))


def clamp(draw: Draw) -> None:
    x = draw.pick("fiu")
    low, high = (draw.like(() if draw.flag() else x.shape, x.dtype, SMALL) for _ in range(2))
    if len(low.shape) != len(high.shape):
        raise Skip
    draw.keep(lax.clamp(low.array, x.array, high.array), max(x.bound, low.bound, high.bound))


def convert(draw: Draw) -> None:
    x = draw.pick()
    if draw.flag(0.1):
        short = draw.one_of((ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4))
        x = draw.within(draw.convert(x, np.float32), 4)
        y = lax.abs(x.array) if short == ml_dtypes.uint4 else x.array
        draw.keep(lax.convert_element_type(lax.convert_element_type(y, short), np.float32), 4)
        return
    made = draw.convert(x, draw.dtype())
    draw.keep(made.array, made.bound)


def bits(draw: Draw) -> None:
    x = draw.pick("fiu")
    if x.kind == "f":
        unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
        if x.dtype.itemsize == 8 and not draw.wide:
            raise Skip
        made = Value(lax.bitcast_convert_type(x.array, unsigned), float(np.iinfo(unsigned).max))
        draw.keep(lax.shift_right_logical(made.array, np.array(7, unsigned)), made.bound)
    elif x.dtype.itemsize == 4:
        draw.keep(lax.bitcast_convert_type(x.array, np.int8 if draw.flag() else np.uint16), 2.0**16)


def reduce(draw: Draw) -> None:
    x = draw.pick("fiubc", rank=1)
    axes = draw.axes(len(x.shape), 1)
    count = math.prod(x.shape[a] for a in axes)
    match x.kind:
        case "f":
            name = draw.one_of(("sum", "sum", "max", "min", "prod"))
            if name == "prod":
                x = draw.within(x, 1)
                draw.keep(lax.reduce_prod(x.array, axes), 1)
            else:
                made = getattr(lax, f"reduce_{name}")(x.array, axes)
                # Of nothing the largest number is an infinity.
                draw.keep(made, x.bound * max(count, 1) if name == "sum" else (x.bound if count else math.inf))
        case "c":
            draw.keep(lax.reduce_sum(x.array, axes), x.bound * max(count, 1))
        case "i" | "u":
            name = draw.one_of(("sum", "max", "min", "prod", "and", "or", "xor"))
            draw.keep(getattr(lax, f"reduce_{name}")(x.array, axes), most_integer(x))
        case "b":
            draw.keep(getattr(lax, draw.one_of(("reduce_and", "reduce_or", "reduce_xor")))(x.array, axes), 1.0)


def generic_reduce(draw: Draw) -> None:
    """A fold of two arrays at once: the largest number and where it is."""
    x = draw.within(draw.pick("fi", rank=1), 2.0**6)
    axis = draw.axis(x)
    places = lax.broadcasted_iota(np.int32, x.shape, axis)

    def later(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return lax.select_n(first, b[0], a[0]), lax.select_n(first, b[1], a[1])

    start = (np.array(-100, x.dtype), np.array(1 << 20, np.int32))
    most, where = lax.reduce((x.array, places), start, later, (axis,))
    draw.keep(most, 100.0)
    draw.keep(where, 2.0**20)


def argument(draw: Draw) -> None:
    x = draw.pick("fiu", rank=1)
    axis = draw.axis(x)
    if not x.shape[axis]:
        raise Skip
    draw.keep(draw.one_of((lax.argmax, lax.argmin))(x.array, axis, np.int32), float(x.shape[axis]))


def cumulative(draw: Draw) -> None:
    x = draw.pick("fiu", rank=1)
    axis, name, reverse = draw.axis(x), draw.one_of(("sum", "sum", "max", "min", "prod")), draw.flag()
    bound = most_integer(x) if x.kind in "iu" else x.bound * max(x.shape[axis], 1)
    if name == "prod" and x.kind == "f":
        x, bound = draw.within(x, 1), 1.0
    draw.keep(getattr(lax, f"cum{name}")(x.array, axis, reverse), bound)


def sort(draw: Draw) -> None:
    x = draw.pick("fiu", rank=1)
    axis = draw.axis(x)
    if draw.flag(0.3) and x.shape[-1]:
        values, places = lax.top_k(x.array, draw.between(1, x.shape[-1]))
        draw.keep(values, x.bound)
        draw.keep(places, float(x.shape[-1]))
        return
    others = [draw.like(x.shape, draw.dtype()) for _ in range(draw.below(3))]
    others = [v for v in others if v.kind != "c"]
    keys = draw.between(1, 1 + len(others))
    made = lax.sort((x.array, *(v.array for v in others)), dimension=axis, num_keys=keys)
    for array, value in zip(made, (x, *others), strict=True):
        draw.keep(array, value.bound)


def contract(draw: Draw) -> None:
    x = draw.within(draw.pick("fiuc"), SMALL)
    rank = len(x.shape)
    order = [int(a) for a in draw.rng.permutation(rank)]
    batch = order[: draw.below(min(rank, 2) + 1)]
    folded = order[len(batch) :][: draw.below(3)]
    free = draw.shape(draw.below(3))
    if math.prod(free) * math.prod(x.shape) > 8 * draw.most:
        raise Skip
    # The other operand has the shared axes anywhere.
    sizes = [("batch", a, x.shape[a]) for a in batch] + [("folded", a, x.shape[a]) for a in folded]
    sizes += [("free", n, s) for n, s in enumerate(free)]
    mixed = [sizes[int(n)] for n in draw.rng.permutation(len(sizes))]
    y = draw.like([s for _, _, s in mixed], x.dtype, SMALL)
    places = {(kind, a): n for n, (kind, a, _) in enumerate(mixed)}
    numbers = (
        (tuple(folded), tuple(places["folded", a] for a in folded)),
        (tuple(batch), tuple(places["batch", a] for a in batch)),
    )
    count = math.prod(x.shape[a] for a in folded)
    wider = np.float32 if x.kind == "f" and x.dtype.itemsize < 4 and draw.flag() else None
    made = lax.dot_general(x.array, y.array, numbers, preferred_element_type=wider)
    draw.keep(made, most_integer(x) if x.kind in "iu" else 2 * x.bound * y.bound * max(count, 1))


def convolve(draw: Draw) -> None:
    space = draw.between(1, 2)
    batch, features, made = draw.between(1, 2), draw.one_of((1, 2, 3, 4, 8)), draw.one_of((1, 2, 4, 17))
    groups = draw.one_of([g for g in (1, 1, 2, 4) if features % g == 0 and made % g == 0])
    sizes = [max(draw.dimension() % 40, 1) for _ in range(space)]
    window = [draw.between(1, 3) for _ in range(space)]
    dtype = draw.one_of((np.float32, np.float32, np.int32, np.float16))
    x = draw.like((batch, features, *sizes), dtype, SMALL)
    kernel = draw.like((made, features // groups, *window), dtype, SMALL)
    letters = "HW"[:space]
    numbers: tuple[str, str, str] = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    a, b = x.array, kernel.array
    if draw.flag():
        a, b = lax.transpose(a, (0, *range(2, space + 2), 1)), lax.transpose(b, (*range(2, space + 2), 1, 0))
        numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    dilation = [draw.between(1, 2) for _ in range(space)] if draw.flag(0.3) else None
    spread = [draw.between(1, 2) for _ in range(space)] if draw.flag(0.2) else None
    padding: Any = draw.one_of(("SAME", "VALID"))
    if spread or draw.flag(0.3):
        padding = [(draw.between(0, 2), draw.between(-1, 2)) for _ in range(space)]
    for size, wide, pads, by, apart in itertools.zip_longest(
        sizes, window, padding if isinstance(padding, list) else [(0, 0)] * space, dilation or (), spread or ()
    ):
        if ((size - 1) * (apart or 1) + 1) + sum(pads) < (wide - 1) * (by or 1) + 1:
            raise Skip
    strides = [draw.between(1, 2) for _ in range(space)]
    result = lax.conv_general_dilated(a, b, strides, padding, spread, dilation, numbers, feature_group_count=groups)
    draw.keep(result, 2.0**30 if dtype is np.int32 else x.bound * kernel.bound * features * math.prod(window))


def window(draw: Draw) -> None:
    x = draw.pick("fi", rank=1)
    if len(x.shape) > 3:
        raise Skip
    shape = [min(draw.between(1, 3), s) for s in x.shape]
    if not all(shape):
        raise Skip
    strides = [draw.between(1, 2) for _ in shape]
    padding = draw.one_of(("SAME", "VALID"))
    name = draw.one_of(("sum", "max", "min"))
    if name == "sum":
        x = draw.within(x, 2.0**5)
        made = lax.reduce_window(x.array, np.array(0, x.dtype), lax.add, shape, strides, padding)
        draw.keep(made, most_integer(x) if x.kind == "i" else x.bound * math.prod(shape))
        return
    x = draw.within(x, 2.0**6)
    extreme = -np.inf if x.kind == "f" else dtypes.iinfo(x.dtype).min
    if name == "min":
        extreme = np.inf if x.kind == "f" else dtypes.iinfo(x.dtype).max
    made = lax.reduce_window(
        x.array, np.array(extreme, x.dtype), lax.max if name == "max" else lax.min, shape, strides, padding
    )
    draw.keep(made, x.bound)


TABLE: tuple[tuple[float, Callable[[Draw], None]], ...] = (
    (6, unary), (10, binary), (3, compare), (4, choose), (2, clamp), (4, convert), (1, bits), (6, reduce),
    (1, generic_reduce), (2, argument), (3, cumulative), (2, sort), (4, contract), (2, convolve), (2, window),
)  # fmt: skip
