"""Rules of operations on each element: arithmetic, comparisons, bits, conversions, elementary functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.export.onnx.emitter import BOOL, FLOAT32, INT32, INT64, Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.kernels import computing_dtype
from weft.export.onnx.table import rule
from weft.ir.jaxpr import Equation
from weft.primitives.elementwise.rounding import RoundingMethod

UNSIGNED_WORD = np.dtype(np.uint32)


def kind(x: Value) -> str:
    """Return the kind of a value's dtype."""
    return dtypes.kind(x.dtype)


def is_bool(x: Value) -> bool:
    """Return whether a value is of booleans."""
    return x.dtype == BOOL


def register_plain(table: dict[str, str]) -> None:
    """Register primitives that are one operation on numbers of every dtype."""
    for name, operation in table.items():
        rule(name)(functools.partial(_plain, operation))


def _plain(operation: str, g: Emitter, e: Equation, *operands: Value) -> Value:
    return g.elementwise(operation, *operands)


register_plain(
    {
        "add": "Add",
        "sub": "Sub",
        "mul": "Mul",
        "floor": "Floor",
        "ceil": "Ceil",
        "sin": "Sin",
        "cos": "Cos",
        "exp": "Exp",
        "log": "Log",
        "sqrt": "Sqrt",
        "tanh": "Tanh",
        "logistic": "Sigmoid",
    }
)


@rule("copy", "stage", "device_put", "sharding_constraint", "reshard", "name", "stop_gradient", "copy_p", moves=True)
def write_identity(g: Emitter, e: Equation, x: Value) -> Value:
    """Return the operand."""
    return x


@rule("optimization_barrier", moves=True)
def write_barrier(g: Emitter, e: Equation, *operands: Value) -> list[Value]:
    """Return the operands: a graph has no order of evaluation."""
    return list(operands)


# --------------------------------------------------------------------------------------------------------- arithmetic


@rule("neg")
def write_neg(g: Emitter, e: Equation, x: Value) -> Value:
    """Negate; unsigned integers wrap around."""
    return g.elementwise("Sub", g.scalar(0, x), x) if kind(x) == "u" else g.elementwise("Neg", x)


@rule("square")
def write_square(g: Emitter, e: Equation, x: Value) -> Value:
    """Multiply by itself."""
    return g.elementwise("Mul", x, x)


@rule("abs")
def write_abs(g: Emitter, e: Equation, x: Value) -> Value:
    """Return magnitudes."""
    return x if kind(x) == "u" else g.elementwise("Abs", x)


@rule("sign")
def write_sign(g: Emitter, e: Equation, x: Value) -> Value:
    """Return signs; zeros and nan stay as they are."""
    if kind(x) != "f":
        return g.elementwise("Sign", x)
    unsigned = g.elementwise("Or", equals(g, x, 0), g.elementwise("Not", g.elementwise("Equal", x, x, dtype=BOOL)))
    return g.where(unsigned, x, g.elementwise("Sign", x))


@rule("div")
def write_div(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Divide; quotients of integers are cut towards zero, and those by zero have all bits set."""
    if kind(x) == "f":
        return g.elementwise("Div", x, y)
    quotient = divide_integers(g, "Div", x, y)
    if is_safe_divisor(y):
        return quotient
    ones = g.constant(np.asarray(-1 if kind(x) == "i" else dtypes.iinfo(x.dtype).max, x.dtype))
    return g.where(equals(g, y, 0), ones, quotient)


def is_safe_divisor(y: Value) -> bool:
    """Return whether a divisor is a constant that neither is zero nor overflows a quotient."""
    return y.data is not None and not np.isin(y.data.astype(object), (0, -1)).any()


def divide_integers(g: Emitter, operation: str, x: Value, y: Value, **attributes: int) -> Value:
    """Divide integers where a kernel would trap: zero is replaced by one, and 32 bits are computed in 64."""
    dtype = x.dtype
    if not is_safe_divisor(y):
        y = g.where(equals(g, y, 0), g.scalar(1, y), y)
    if dtype.name == "uint64":
        raise g.refuse(f"runtimes have no {operation} of uint64", "convert the operands to int64 or uint32")
    x, y = (g.cast(a, INT64) if dtypes.itemsize_bits(dtype) >= 32 and not is_safe_divisor(y) else a for a in (x, y))
    return g.cast(g.elementwise(operation, x, y, **attributes), dtype)


@rule("rem")
def write_rem(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Return the rest with the sign of the dividend; an integer modulo zero is itself."""
    if kind(x) == "f":
        return g.elementwise("Mod", x, y, fmod=1)
    rest = divide_integers(g, "Mod", x, y, fmod=1)
    return rest if is_safe_divisor(y) else g.where(equals(g, y, 0), x, rest)


@rule("integer_pow")
def write_integer_pow(g: Emitter, e: Equation, x: Value) -> Value:
    """Compute a whole power by repeated squaring."""
    exponent = e.params["y"]
    own, left = x.dtype, abs(exponent)
    base = g.cast(x, FLOAT32) if kind(x) == "f" and own.itemsize < 4 else x
    power: Value | None = None
    square = base
    while left:
        if left & 1:
            power = square if power is None else g.elementwise("Mul", power, square)
        left >>= 1
        if left:
            square = g.elementwise("Mul", square, square)
    if power is None:
        return g.expand(g.scalar(1, x), x.shape)
    return g.cast(g.elementwise("Div", g.scalar(1, power), power) if exponent < 0 else power, own)


@rule("pow")
def write_pow(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Raise to a power, which may be of integers."""
    if kind(x) != "f":
        raise g.refuse("powers of integers by arrays have no kernels", "raise to a Python integer")
    wide = computing_dtype("Pow", x.dtype)
    exponent = g.cast(y, wide) if kind(y) == "f" or y.dtype not in (INT32, INT64) else y
    result = g.node("Pow", [g.cast(x.narrow, wide), exponent.narrow], wide, _shape(x.narrow, exponent.narrow))
    return g.expand(g.cast(result, x.dtype), _shape(x, y))


def _shape(*values: Value) -> Any:
    return max((v.shape for v in values), key=len) if len({v.rank for v in values}) > 1 else _common_shape(values)


def _common_shape(values: Any) -> Any:
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*(v.shape for v in values), strict=True))


@rule("max", "min")
def write_extreme(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Return the greater or lesser elements; nan wins."""
    largest = e.primitive.name == "max"
    return extreme(g, largest, x, y)


def extreme(g: Emitter, largest: bool, x: Value, y: Value) -> Value:
    """Return the greater or lesser elements; of booleans that is a disjunction or conjunction."""
    if is_bool(x):
        return g.elementwise("Or" if largest else "And", x, y)
    if x.dtype.name == "uint64":
        return g.where(compare(g, "Greater" if largest else "Less", x, y), x, y)
    return g.elementwise("Max" if largest else "Min", x, y)


@rule("clamp")
def write_clamp(g: Emitter, e: Equation, low: Value, x: Value, high: Value) -> Value:
    """Limit elements from below, then from above."""
    return extreme(g, False, extreme(g, True, x, low), high)


@rule("select_n", moves=True)
def write_select(g: Emitter, e: Equation, which: Value, *cases: Value) -> Value:
    """Choose the case with the index `which`; an index out of range chooses the nearest case."""
    if is_bool(which):
        return cases[0] if len(cases) == 1 else g.where(which, cases[1], cases[0])
    chosen = cases[0]
    for i, case in enumerate(cases[1:], 1):
        chosen = g.where(compare(g, "GreaterOrEqual", which, g.scalar(i, which)), case, chosen)
    shape = _shape(which, *cases)
    return g.expand(chosen, shape)


# -------------------------------------------------------------------------------------------------------- comparisons


def compare(g: Emitter, operation: str, x: Value, y: Value) -> Value:
    """Compare elements. Booleans are compared as numbers, and 64-bit unsigned integers with their top bits flipped."""
    if x.dtype.name == "uint64" and operation != "Equal":
        top = g.constant(np.uint64(1 << 63))
        x, y = (g.cast(g.elementwise("BitwiseXor", a, top), INT64) for a in (x, y))
    if is_bool(x) and operation != "Equal":
        x, y = g.cast(x, INT32), g.cast(y, INT32)
    return g.elementwise(operation, x, y, dtype=BOOL)


def equals(g: Emitter, x: Value, number: float) -> Value:
    """Return where elements equal a number."""
    return compare(g, "Equal", x, g.scalar(number, x))


COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


@rule(*COMPARISONS)
def write_comparison(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Compare elements."""
    return compare(g, COMPARISONS[e.primitive.name], x, y)


@rule("ne")
def write_ne(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Return where elements differ; nan differs from everything."""
    return g.elementwise("Xor", x, y) if is_bool(x) else g.elementwise("Not", compare(g, "Equal", x, y))


@rule("is_finite")
def write_is_finite(g: Emitter, e: Equation, x: Value) -> Value:
    """Return where elements are neither infinite nor nan: their differences from themselves are zero."""
    return equals(g, g.elementwise("Sub", x, x), 0)


def is_nan(g: Emitter, x: Value) -> Value:
    """Return where elements are nan."""
    return g.elementwise("IsNaN", x, dtype=BOOL)


# --------------------------------------------------------------------------------------------------------------- bits

BITS = {
    "and": ("And", "BitwiseAnd"),
    "or": ("Or", "BitwiseOr"),
    "xor": ("Xor", "BitwiseXor"),
    "not": ("Not", "BitwiseNot"),
}


@rule(*BITS)
def write_bits(g: Emitter, e: Equation, *operands: Value) -> Value:
    """Combine bits, or booleans."""
    logical, bitwise = BITS[e.primitive.name]
    return g.elementwise(logical if is_bool(operands[0]) else bitwise, *operands)


def to_unsigned(g: Emitter, x: Value) -> Value:
    """Return the bits of integers as unsigned integers of at least 32 bits, with zeros above."""
    bits = dtypes.itemsize_bits(x.dtype)
    wide = np.dtype(np.uint64 if bits == 64 else np.uint32)
    same = g.cast(x, wide)
    if kind(x) == "u" or bits >= 32:
        return same
    return g.elementwise("BitwiseAnd", same, g.scalar((1 << bits) - 1, same))


def shift(g: Emitter, x: Value, amount: Value, direction: str) -> Value:
    """Shift unsigned integers by amounts inside of their width."""
    return g.elementwise("BitShift", x, g.cast(amount, x.dtype), direction=direction)


def _inside(g: Emitter, amount: Value, bits: int) -> tuple[Value, Value | None]:
    """Return a safe amount, and where the given one is outside of the width; None if it is a constant inside."""
    if amount.data is not None and ((amount.data >= 0) & (amount.data < bits)).all():
        return amount, None
    wide = to_unsigned(g, amount)
    outside = compare(g, "GreaterOrEqual", wide, g.scalar(bits, wide))
    return g.where(outside, g.scalar(0, wide), wide), outside


@rule("shift_left", "shift_right_logical")
def write_shift(g: Emitter, e: Equation, x: Value, amount: Value) -> Value:
    """Shift bits; an amount outside of the width leaves zeros."""
    safe, outside = _inside(g, amount, dtypes.itemsize_bits(x.dtype))
    wide = to_unsigned(g, x)
    moved = shift(g, wide, safe, "LEFT" if e.primitive.name == "shift_left" else "RIGHT")
    if outside is not None:
        moved = g.where(outside, g.scalar(0, moved), moved)
    return g.cast(moved, x.dtype)


@rule("shift_right_arithmetic")
def write_arithmetic_shift(g: Emitter, e: Equation, x: Value, amount: Value) -> Value:
    """Shift with copies of the sign: of a negative number that is the complement of its shifted complement."""
    bits = dtypes.itemsize_bits(x.dtype)
    safe, outside = _inside(g, amount, bits)
    if outside is not None:
        safe = g.where(outside, g.scalar(bits - 1, safe), safe)
    wide = to_unsigned(g, x)
    sign = g.constant(np.asarray(1 << (bits - 1)).astype(wide.dtype))
    negative = g.elementwise("Not", equals(g, g.elementwise("BitwiseAnd", wide, sign), 0))
    mask = g.constant(np.asarray((1 << bits) - 1, np.uint64).astype(wide.dtype))
    flipped = g.elementwise("BitwiseXor", wide, mask)
    moved = shift(g, g.where(negative, flipped, wide), safe, "RIGHT")
    return g.cast(g.where(negative, g.elementwise("BitwiseXor", moved, mask), moved), x.dtype)


@rule("population_count")
def write_population_count(g: Emitter, e: Equation, x: Value) -> Value:
    """Count the bits that are set, in sums of growing groups."""
    bits = dtypes.itemsize_bits(x.dtype)
    value = to_unsigned(g, x)
    width = dtypes.itemsize_bits(value.dtype)
    step = 1
    while step < bits:
        groups = sum(((1 << step) - 1) << at for at in range(0, width, 2 * step))
        mask = g.constant(np.asarray(groups, np.uint64).astype(value.dtype))
        high = shift(g, value, g.constant(np.asarray(step, value.dtype)), "RIGHT")
        value = g.elementwise("Add", g.elementwise("BitwiseAnd", value, mask), g.elementwise("BitwiseAnd", high, mask))
        step *= 2
    return g.cast(value, x.dtype)


@rule("clz")
def write_leading_zeros(g: Emitter, e: Equation, x: Value) -> Value:
    """Count leading zeros: all bits below the highest are set, and the others counted."""
    bits = dtypes.itemsize_bits(x.dtype)
    value = to_unsigned(g, x)
    step = 1
    while step < bits:
        amount = g.constant(np.asarray(step, value.dtype))
        value = g.elementwise("BitwiseOr", value, shift(g, value, amount, "RIGHT"))
        step *= 2
    ones = write_population_count(g, e, value)
    return g.cast(g.elementwise("Sub", g.scalar(bits, ones), ones), x.dtype)


@rule("mulhi")
def write_mulhi(g: Emitter, e: Equation, x: Value, y: Value) -> Value:
    """Return the upper half of the product in twice the width."""
    bits = dtypes.itemsize_bits(x.dtype)
    if bits > 32:
        raise g.refuse("products of more than 64 bits have no kernels", "use integers of 32 bits")
    product = g.elementwise("Mul", g.cast(x, INT64), g.cast(y, INT64))
    words = g.cast(product, np.uint64)
    return g.cast(shift(g, words, g.constant(np.uint64(bits)), "RIGHT"), x.dtype)


# -------------------------------------------------------------------------------------------------------- conversions


@rule("convert_element_type")
def write_convert(g: Emitter, e: Equation, x: Value) -> Value:
    """Convert numbers: floats out of the range of integers become the nearest integer, nan becomes 0."""
    return convert(g, x, e.params["new_dtype"])


def convert(g: Emitter, x: Value, dtype: np.dtype[Any]) -> Value:
    """Convert numbers to another dtype."""
    if kind(x) != "f" or dtypes.kind(dtype) not in "iu":
        if is_bool(x) and dtype.name in ("int4", "uint4"):
            x = g.cast(x, INT32)
        if dtype == BOOL and kind(x) == "f":
            return g.elementwise("Not", equals(g, x, 0))
        return g.cast(x, dtype)
    wide = g.cast(x, FLOAT32) if x.dtype.itemsize < 4 else x
    limits = dtypes.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    # The first float that is too large: the limit itself may not be a float.
    above = float(high + 1) if high + 1 == float(high + 1) else math.inf
    too_large = compare(g, "GreaterOrEqual", wide, g.scalar(above, wide))
    too_small = compare(g, "LessOrEqual", wide, g.scalar(float(low), wide))
    outside = g.elementwise("Or", g.elementwise("Or", too_large, too_small), is_nan(g, wide))
    inside = g.cast(g.where(outside, g.scalar(0, wide), wide), np.uint64 if dtype.name == "uint64" else INT64)
    inside = g.cast(inside, dtype)
    limited = g.where(too_large, g.constant(np.asarray(high).astype(dtype)), inside)
    return g.where(too_small, g.constant(np.asarray(low).astype(dtype)), limited)


@rule("reduce_precision")
def write_reduce_precision(g: Emitter, e: Equation, x: Value) -> Value | None:
    """Round to fewer bits, by way of a dtype that has them."""
    wanted = e.params["exponent_bits"], e.params["mantissa_bits"]
    formats = {(5, 10): "float16", (8, 7): "bfloat16", (8, 23): "float32", (11, 52): "float64", (5, 2): "float8_e5m2"}
    dtype = formats.get(wanted)
    return None if dtype is None else g.cast(g.cast(x, dtypes.as_dtype(dtype)), x.dtype)


@rule("round")
def write_round(g: Emitter, e: Equation, x: Value) -> Value:
    """Round to integers; `Round` takes halfway cases to even ones."""
    if e.params.get("rounding_method") == RoundingMethod.TO_NEAREST_EVEN:
        return g.elementwise("Round", x)
    own, x = x.dtype, g.cast(x, FLOAT32) if x.dtype.itemsize < 4 else x
    size = g.elementwise("Abs", x)
    whole = g.elementwise("Floor", size)
    # The difference is exact, so that a number just under one half is not carried over it.
    up = compare(g, "GreaterOrEqual", g.elementwise("Sub", size, whole), g.scalar(0.5, x))
    rounded = g.elementwise("Add", whole, g.cast(up, x.dtype))
    changed = g.elementwise("Not", compare(g, "Equal", rounded, size))
    return g.cast(g.where(changed, copy_sign(g, rounded, x), x), own)


def copy_sign(g: Emitter, size: Value, x: Value) -> Value:
    """Return magnitudes with the signs of other numbers; that of a negative zero is lost."""
    return g.where(compare(g, "Less", x, g.scalar(0, x)), g.elementwise("Neg", size), size)


# -------------------------------------------------------------------------------------------------------- functions


def in_float32(function: Callable[..., Value | None]) -> Callable[..., Value | None]:
    """Compute in float32 what is of shorter floats, and round once."""

    @functools.wraps(function)
    def write(g: Emitter, e: Equation, *operands: Value) -> Value | None:
        own = operands[0].dtype
        if kind(operands[0]) != "f" or own.itemsize >= 4:
            return function(g, e, *operands)
        result = function(g, e, *(g.cast(x, FLOAT32) for x in operands))
        return None if result is None else g.cast(result, own)

    return write


@rule("rsqrt")
@in_float32
def write_rsqrt(g: Emitter, e: Equation, x: Value) -> Value:
    """Return the reciprocals of square roots."""
    return g.elementwise("Reciprocal", g.elementwise("Sqrt", x))


@rule("exp2")
@in_float32
def write_exp2(g: Emitter, e: Equation, x: Value) -> Value:
    """Raise two to powers."""
    return g.elementwise("Pow", g.scalar(2, x), x)


@rule("cbrt")
@in_float32
def write_cbrt(g: Emitter, e: Equation, x: Value) -> Value:
    """Compute cube roots: a power, improved by a step of Newton's method."""
    size = g.elementwise("Abs", x)
    root = g.elementwise("Pow", size, g.scalar(1 / 3, x))
    square = g.elementwise("Mul", root, root)
    excess = g.elementwise("Sub", root, g.elementwise("Div", size, square))
    better = g.elementwise("Sub", root, g.elementwise("Div", excess, g.scalar(3, x)))
    finite = g.elementwise("And", write_is_finite(g, e, better), g.elementwise("Not", equals(g, x, 0)))
    return g.where(finite, copy_sign(g, better, x), x)
