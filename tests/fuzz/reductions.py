"""Reductions, cumulative operations, windows and sorts in random programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.draw import Draw, Skip, Text, Value
from tests.fuzz.elementwise import Drawing, is_wide
from tests.fuzz.numbers import most_of
from weft.base import dtypes


def reduction(name: str, kinds: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick(kinds, rank=1)
        axes = draw.axes(x.rank, 1)
        count = max(math.prod(x.shape[a] for a in axes), 1)
        bound = x.bound
        if name == "sum":
            x = draw.within(x, most_of(x.dtype) / min(count, 16))
            bound = x.bound * count
        elif name == "prod":
            x = draw.within(x, 1)
            bound = 1.0
        draw.keep(draw.call(f"lax.reduce_{name}", x, axes), bound)

    return draw_it


def general_reduction(draw: Draw) -> None:
    """`reduce` by a function of several operands, such as an argmax by hand."""
    x = draw.pick("f", rank=1, accepts=lambda v: is_wide(v) and v.size > 0)
    axis = draw.axis(x)
    positions = draw.call("lax.broadcasted_iota", np.dtype(np.int32), x.shape, axis)
    pick = draw.fresh("f")
    draw.statement(
        f"def {pick}(a, b):\n"
        "    first = a[0] > b[0]\n"
        "    return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])"
    )
    start = (np.array(-100, x.dtype), np.int32(-1))
    values, indices = draw.call("lax.reduce", (x, positions), start, Text(pick), (axis,))
    draw.keep(values, max(x.bound, 100))
    draw.keep(indices)


def argument(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("fiub", rank=1)
        axis = draw.axis(x)
        if not x.shape[axis]:
            raise Skip
        draw.keep(draw.call(f"lax.{name}", x, axis, np.dtype(draw.one_of((np.int32, np.int32, np.uint32)))))

    return draw_it


def cumulative(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("f" if name == "logsumexp" else "fiuc" if name in ("sum", "prod") else "fiu", rank=1)
        if name == "logsumexp" and not is_wide(x):
            raise Skip
        axis = draw.axis(x)
        bound = x.bound
        if name == "sum":
            x = draw.within(x, most_of(x.dtype) / 8)
            bound = x.bound * max(x.shape[axis], 1)
        elif name == "prod":
            x = draw.within(x, 1)
        draw.keep(draw.call(f"lax.cum{name}", x, axis, draw.flag()), math.inf if name == "logsumexp" else bound)

    return draw_it


def sort(draw: Draw) -> None:
    x = draw.pick("fiub", rank=1)
    axis = draw.axis(x)
    others = [draw.like(x.shape, draw.dtype("fiu")) for _ in range(draw.below(3))]
    keys = draw.between(1, 1 + len(others))
    stable = True if keys <= len(others) else draw.flag()
    result = draw.call("lax.sort", (x, *others), dimension=axis, num_keys=keys, is_stable=stable)
    for value, before in zip(result, (x, *others), strict=True):
        draw.keep(value, before.bound)


def top_k(draw: Draw) -> None:
    x = draw.pick("fiu", rank=1, accepts=lambda v: v.shape[-1] > 0)
    values, indices = draw.call("lax.top_k", x, draw.between(1, x.shape[-1]))
    draw.keep(values, x.bound)
    draw.keep(indices)


# -------------------------------------------------------------------------------------------------------------- windows


def window_of(draw: Draw, x: Value) -> dict[str, Any]:
    """Shape, strides, padding and dilations of windows that fit."""
    shape = tuple(min(draw.between(1, 3), s + 1) for s in x.shape)
    if draw.flag(0.5):
        padding: Any = draw.one_of(("SAME", "VALID"))
        pairs = [(0, 0)] * x.rank
    else:
        padding = pairs = [(draw.between(0, 2), draw.between(0, 2)) for _ in x.shape]
    dilation = tuple(draw.one_of((1, 1, 2)) for _ in x.shape)
    base = tuple(draw.one_of((1, 1, 1, 2)) for _ in x.shape) if padding != "SAME" else (1,) * x.rank
    for size, wide, pads, by, apart in zip(x.shape, shape, pairs, dilation, base, strict=True):
        if max((size - 1) * apart + 1, 0) + sum(pads) < (wide - 1) * by + 1:
            raise Skip
    return {
        "window_dimensions": shape,
        "window_strides": tuple(draw.between(1, 2) for _ in shape),
        "padding": padding,
        "base_dilation": base,
        "window_dilation": dilation,
    }


def window(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("fi", rank=1, most=3)
        found = window_of(draw, x)
        count = math.prod(found["window_dimensions"])
        if name == "sum":
            x = draw.within(x, most_of(x.dtype) / 32)
            start: Any = np.zeros((), x.dtype)
        else:
            start = extreme(x.dtype, name)
        operation = Text(f"lax.{'add' if name == 'sum' else name}")
        result = draw.call("lax.reduce_window", x, start, operation, **found)
        draw.keep(result, x.bound * count if name == "sum" else x.bound)

    return draw_it


def extreme(dtype: Any, name: str) -> np.ndarray:
    """Return the neutral element of a maximum or minimum."""
    if dtypes.kind(dtype) == "f":
        if dtypes.name(dtype).endswith(("fn", "fnuz")):  # no infinities
            info = dtypes.finfo(dtype)
            return np.asarray(info.min if name == "max" else info.max).astype(dtype)
        return np.asarray(-np.inf if name == "max" else np.inf).astype(dtype)
    info = dtypes.iinfo(dtype)
    return np.asarray(int(info.min if name == "max" else info.max)).astype(dtype)


def general_window(draw: Draw) -> None:
    """Draw a window reduced by a function without a special primitive."""
    x = draw.pick("fi", rank=1, most=2)
    found = window_of(draw, x)
    x = draw.within(x, 1)
    result = draw.call("lax.reduce_window", x, np.ones((), x.dtype), Text("lax.mul"), **found)
    draw.keep(result, 1.0)


def smooth_window(draw: Draw) -> tuple[Value, str, dict[str, Any]]:
    """Draw a window over floats, as a function, to be differentiated."""
    x = draw.pick("f", rank=1, most=3, accepts=lambda v: is_wide(v) and v.size > 0)
    found = window_of(draw, x)
    found["base_dilation"] = found["window_dilation"] = (1,) * x.rank
    if isinstance(found["padding"], list):
        found["padding"] = "SAME"
    name = draw.one_of(("max", "min"))
    function = draw.fresh("f")
    params = ", ".join(f"{k}={v!r}" for k, v in found.items())
    start = f"onp.array({'-' if name == 'max' else ''}onp.inf, {x.name}.dtype)"
    draw.statement(f"{function} = lambda x: lax.reduce_window(x, {start}, lax.{name}, {params})")
    return x, function, found


def window_tangent(draw: Draw) -> None:
    """`select_and_gather_add`: the tangent of a maximum of windows."""
    x, function, _ = smooth_window(draw)
    _, result = draw.call("lib.jvp", Text(function), (x,), (draw.like(x.shape, x.dtype),))
    draw.keep(result)


def window_cotangent(draw: Draw) -> None:
    """`select_and_scatter_add`: the cotangent of a maximum of windows."""
    x, function, _ = smooth_window(draw)
    shape = draw.evaluate(f"lib.eval_shape({function}, {x.name})").shape
    weights = draw.like(shape, x.dtype, 2)
    result = draw.assign(f"lib.vjp({function}, {x.name})[1]({weights.name})[0]")
    draw.keep(result)
