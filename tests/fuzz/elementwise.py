"""Elementwise operations of random programs. Each function returns the generator of one primitive."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.draw import ALL, Draw, Skip, Text, Value
from tests.fuzz.numbers import FLOAT8, INT4, SMALL, most_of
from weft.base import dtypes

Drawing = Callable[[Draw], None]


def unary(
    name: str, kinds: str, bound: Callable[[Value], float] = lambda x: x.bound, most: float = math.inf
) -> Drawing:
    """Make an operation of one operand, which small integers keep within `most`; `bound` is then that of the result."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick(kinds)
        x = draw.within(x, most)
        draw.keep(draw.call(f"lax.{name}", x), bound(x))

    return draw_it


def function(name: str) -> Drawing:
    """Make an operation of floats whose results are not integers, such as `exp`."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick("fc" if name in COMPLEX else "f", accepts=is_wide)
        result = draw.call(f"lax.{name}", x)
        draw.keep(result)

    return draw_it


COMPLEX = frozenset({
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
})  # fmt: skip


def is_wide(x: Value) -> bool:
    """Return whether a value has a dtype of two bytes or more, which special functions need."""
    return x.bits > 8 or x.kind == "b"


def binary(name: str, kinds: str) -> Drawing:
    """Make an operation of two operands of one dtype."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick(kinds)
        y = draw.like(() if draw.flag(0.1) else x.shape, x.dtype)
        x, y = operands(draw, name, x, y)
        if draw.flag(0.3):
            x, y = y, x
        product = 2 * x.bound * y.bound if name == "mul" else x.bound + y.bound
        draw.keep(draw.call(f"lax.{name}", x, y), product if x.kind in "fc" else math.inf)

    return draw_it


def operands(draw: Draw, name: str, x: Value, y: Value) -> tuple[Value, Value]:
    """Operands on which an operation of small integers is exact and, whatever the numbers, defined in JAX too."""
    if x.kind in "fc" and draw.exact:
        most = most_of(x.dtype)
        limit = {"mul": min(SMALL, math.sqrt(most / 2)), "add": most / 2, "sub": most / 2}.get(name, math.inf)
        x, y = draw.within(x, limit), draw.within(y, limit)
    return x, y


def function_of_two(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("f", accepts=is_wide)
        if name == "zeta":
            x = draw.constant(x)
        y = draw.like(x.shape, x.dtype)
        draw.keep(draw.call(f"lax.{name}", x, y))

    return draw_it


def function_of_three(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("f", accepts=is_wide)
        y, z = draw.like(x.shape, x.dtype), draw.like(x.shape, x.dtype)
        draw.keep(draw.call(f"lax.{name}", draw.constant(x), draw.constant(y), z))

    return draw_it


def gamma_function(name: str) -> Drawing:
    """Incomplete gamma functions, which take hundreds of iterations: of few numbers."""

    def draw_it(draw: Draw) -> None:
        x = draw.pick("f", accepts=lambda v: is_wide(v) and v.size <= 12)
        if draw.settings.derivatives and draw.flag(0.7):
            x = draw.constant(x)
        y = draw.like(x.shape, x.dtype)
        draw.keep(draw.call(f"lax.{name}", draw.call("lax.abs", x) if draw.flag(0.3) else x, y))

    return draw_it


def second_gamma_derivative(draw: Draw) -> None:
    """Draw the second derivative of `igamma`, which `eval` takes a second for: of one or two numbers, and not
    differentiated any further."""
    if draw.settings.derivatives or draw.depth > 1:
        raise Skip
    x = draw.pick("f", accepts=lambda v: is_wide(v) and v.size <= 2)
    y, z = draw.like(x.shape, x.dtype), draw.like(x.shape, x.dtype)
    name = draw.fresh("f")
    draw.statement(f"{name} = lambda a: lax.igamma_grad_a(a, {y.name})")
    _, result = draw.call("lib.jvp", Text(name), (x,), (z,))
    draw.keep(result)


def polygamma(draw: Draw) -> None:
    x = draw.pick("f", accepts=lambda v: is_wide(v) and v.size <= 64)
    order = draw.call("lax.full", x.shape, np.array(draw.between(0, 3), x.dtype))
    draw.keep(draw.call("lax.polygamma", order, x))


def power(draw: Draw) -> None:
    x = draw.pick("fc", accepts=is_wide)
    if x.kind == "f" and draw.flag(0.3):
        y = draw.like(x.shape, np.int32, 3)
        if not draw.exact:
            y = draw.limited(y, 3)
    else:
        y = draw.like(x.shape, x.dtype)
    draw.keep(draw.call("lax.pow", x, y))


def integer_power(draw: Draw) -> None:
    x = draw.pick("fiuc")
    exponent = draw.one_of((0, 1, 2, 3, 4, -1, -2) if x.kind in "fc" else (0, 1, 2, 3, 5))
    x = draw.within(x, SMALL if x.bits > 8 and exponent < 4 else 2)
    draw.keep(draw.call("lax.integer_pow", x, exponent), x.bound ** abs(exponent) if exponent >= 0 else math.inf)


def divide(draw: Draw) -> None:
    """Integers are divided by 0 too, and the least by -1: both have a result."""
    x = draw.pick("fiuc")
    y = draw.like(x.shape, x.dtype)
    draw.keep(draw.call("lax.div", x, y))


def remainder(draw: Draw) -> None:
    x = draw.pick("fiu")
    y = draw.like(x.shape, x.dtype)
    draw.keep(draw.call("lax.rem", x, y), x.bound)


def bitwise(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("iub")
        draw.keep(draw.call(f"lax.bitwise_{name}", x, draw.like(x.shape, x.dtype)))

    return draw_it


def shift(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick("iu")
        y = draw.like(x.shape, x.dtype)
        if draw.flag(0.7):
            y = draw.call("lax.bitwise_and", y, np.array(x.bits - 1, x.dtype))
        draw.keep(draw.call(f"lax.{name}", x, y))

    return draw_it


def high_product(draw: Draw) -> None:
    x = draw.pick("iu", accepts=lambda v: v.bits > 4)
    draw.keep(draw.call("lax.mulhi", x, draw.like(x.shape, x.dtype)))


def comparison(name: str) -> Drawing:
    def draw_it(draw: Draw) -> None:
        x = draw.pick(ALL if name in ("eq", "ne") else "fiub")
        draw.keep(draw.call(f"lax.{name}", x, draw.like(x.shape, x.dtype)), 1.0)

    return draw_it


def rounding(draw: Draw) -> None:
    x = draw.pick("f")
    method = draw.one_of(("TO_NEAREST_EVEN", "AWAY_FROM_ZERO"))
    draw.keep(draw.call("lax.round", x, Text(f"lax.RoundingMethod.{method}")), x.bound)


def reduced_precision(draw: Draw) -> None:
    x = draw.pick("f", accepts=is_wide)
    draw.keep(draw.call("lax.reduce_precision", x, draw.between(2, 8), draw.between(1, 10)), x.bound)


def select(draw: Draw) -> None:
    if draw.focus is not None and draw.focus.kind == "b" and draw.flag():
        flags = draw.pick("b")
        dtype = draw.dtype()
        x, y = draw.like(flags.shape, dtype), draw.like(flags.shape, dtype)
        draw.keep(draw.call("lax.select_n", flags, x, y), max(x.bound, y.bound))
        return
    x = draw.pick(ALL + "k")
    if x.kind == "k":
        y = draw.one_of([v for v in draw.values if v.kind == "k" and v.shape == x.shape])
        draw.keep(draw.call("lax.select_n", draw.like(x.shape, np.bool_), x, y))
        return
    y = draw.like(x.shape, x.dtype)
    if draw.flag(0.3):
        which = draw.limited(draw.call("lax.abs", draw.limited(draw.like(x.shape, np.int32), 2)), 2)
        z = draw.like(x.shape, x.dtype)
        draw.keep(draw.call("lax.select_n", which, x, y, z), max(x.bound, y.bound, z.bound))
        return
    flags = draw.like(() if draw.flag(0.2) else x.shape, np.bool_)
    draw.keep(draw.call("lax.select_n", flags, x, y), max(x.bound, y.bound))


def clamp(draw: Draw) -> None:
    x = draw.pick("fiu")
    shape = () if draw.flag() else x.shape
    low, high = draw.like(shape, x.dtype), draw.like(shape, x.dtype)
    draw.keep(draw.call("lax.clamp", low, x, high), max(x.bound, low.bound, high.bound))


def convert(draw: Draw) -> None:
    x = draw.pick()
    dtype = draw.one_of((*FLOAT8, *INT4)) if draw.flag(0.15) else draw.dtype()
    result = draw.convert(x, dtype)
    if result is x:
        raise Skip
    draw.keep(result, result.bound)


def bitcast(draw: Draw) -> None:
    """Draw the bits as numbers of the same width, or as several of a smaller one."""
    x = draw.pick("fiu", accepts=lambda v: v.bits >= 8)
    widths = {8: ("int8", "uint8"), 16: ("int16", "uint16", "float16"), 32: ("int32", "uint32", "float32"),
              64: ("int64", "uint64", "float64")}  # fmt: skip
    names = widths[x.bits]
    if x.bits in (16, 32) and draw.flag(0.3):
        names = widths[x.bits // 2]
    dtype = np.dtype(draw.one_of(names))
    if x.kind == "f" and not (draw.exact and x.bound < math.inf):
        # Which bits a nan has is nobody's promise.
        is_nan = draw.call("lax.ne", x, x)
        x = draw.call("lax.select_n", is_nan, x, draw.call("lax.full_like", x, 0))
    result = draw.call("lax.bitcast_convert_type", x, dtype)
    draw.keep(result, math.inf if dtypes.kind(dtype) == "f" else most_of(dtype))


def complex_of(draw: Draw) -> None:
    x = draw.pick("f", accepts=lambda v: v.dtype in (np.float32, np.float64))
    y = draw.like(x.shape, x.dtype)
    draw.keep(draw.call("lax.complex", x, y), max(x.bound, y.bound))


def named(draw: Draw) -> None:
    x = draw.pick()
    draw.names["checkpoint_name"] = draw.evaluate("lib.ad_checkpoint.checkpoint_name")
    draw.keep(draw.call("lib.ad_checkpoint.checkpoint_name", x, draw.one_of(("first", "second"))), x.bound)


def stopped(draw: Draw) -> None:
    x = draw.pick()
    draw.keep(draw.call("lax.stop_gradient", x), x.bound)


def nextafter(draw: Draw) -> None:
    x = draw.constant(draw.pick("f", accepts=is_wide))
    draw.keep(draw.call("lax.nextafter", x, draw.constant(draw.like(x.shape, x.dtype))))


def conjugate(draw: Draw) -> None:
    x = draw.pick("c")
    draw.keep(draw.call("lax.conj", x), x.bound)


def scaled(x: Value) -> float:
    return 2 * x.bound**2


def width(x: Value) -> float:
    return float(x.bits)


def one(x: Value) -> float:
    return 1.0
