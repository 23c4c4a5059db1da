"""The operations of kernels: elementwise primitives by their names, and two operations of kernels only.

`fma` is a * b + c rounded once, for emitters that define where sums of products are fused. `threefry2x32` is one word
of the hash, selected by its parameter `part`: an operation of kernels has one result.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError, MissingRuleError
from weft.base.lazy import lazy
from weft.compiler.kernel.names import ELEMENTWISE
from weft.ir.primitive import lookup
from weft.ir.types import array_type
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.random.threefry import threefry_arrays

if TYPE_CHECKING:
    import fractions
else:
    fractions = lazy("fractions")  # slow to import, and hardly ever needed


@dataclass(frozen=True)
class Operation:
    """Definition of an operation: number of operands, dtypes that they (and the result) may have, and evaluation on
    arrays.
    """

    operands: int
    dtypes: tuple[np.dtype[Any], ...]
    eval: Callable[..., np.ndarray]


def exists(op: str) -> bool:
    """Return whether kernels have an operation of that name."""
    return op in ELEMENTWISE or op in OWN


def emit_rule(op: str) -> Callable[..., Any] | None:
    """Return the `emit` rule of a primitive that is no operation of kernels, or None if it is one. Raise if it has no
    such rule.
    """
    if exists(op):
        return None
    primitive = find_elementwise(op)
    if primitive is not None and primitive.has_body(ELEMENTWISE):
        return primitive.emit
    close = difflib.get_close_matches(op, ELEMENTWISE)
    raise MissingRuleError(
        f"Kernels have no operation `{op}`.",
        received=f"an `emit` rule that calls builder.{op}",
        fix=f"builder.{close[0]}"
        if close
        else "write it with elementwise operations such as add, mul, exp or select_n",
    )


def find_elementwise(op: str) -> Elementwise | None:
    """Return the elementwise primitive of that name, or None."""
    try:
        primitive = lookup(op)
    except ValueError:
        return None
    return primitive if isinstance(primitive, Elementwise) else None


def operation_weight(op: str) -> float:
    """Return the cost of an operation in additions."""
    return 1 if op not in ELEMENTWISE and op != "threefry2x32" else max(lookup(op).weight, 1)


def result_dtype(op: str, operands: Sequence[np.dtype[Any]], params: Mapping[str, Any]) -> Any:
    """Return the dtype of the result of an operation."""
    own = OWN.get(op)
    if own is None:
        return dtypes.storage(lookup(op).type(*(array_type((), dtype) for dtype in operands), **params).dtype)
    if len(operands) != own.operands or operands[0] not in own.dtypes or len(set(operands)) != 1:
        raise InternalError(
            f"{op} must have {own.operands} operands of one dtype; got {', '.join(map(dtypes.name, operands))}."
        )
    return operands[0]


def evaluate(op: str, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> np.ndarray:
    """Evaluate an operation on arrays of one shape."""
    own = OWN.get(op)
    return np.asarray((lookup(op).eval if own is None else own.eval)(*arrays, **params))


# -------------------------------------------------------------------------------------------------------------- hash


def threefry_word(*inputs: np.ndarray, part: int) -> np.ndarray:
    """Return one of the two words of the hash."""
    return threefry_arrays(*inputs)[part]


# -------------------------------------------------------------------------------------------- fused multiply and add


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Compute a * b + c, rounded once, for float32 or float64."""
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            # The product is exact in float64. A sum rounded to odd there has 29 bits more than float32, so rounding it
            # again gives the same result as rounding once.
            return _odd_sum(a.astype(np.float64) * b, c.astype(np.float64)).astype(np.float32)
        return _fma_double(a, b, c)


def _fma_double(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    shape = a.shape
    a, b, c = (np.atleast_1d(x) for x in (a, b, c))
    finite_operands = np.isfinite(a) & np.isfinite(b)
    # An infinite summand is the result, even where the rounded product overflows.
    out = np.where(finite_operands & np.isinf(c), c, a * b + c)
    finite = finite_operands & np.isfinite(c) & (a != 0) & (b != 0)
    size = np.abs(a * b)
    # Elements without underflow or overflow; the others are rare and computed with fractions.
    usual = finite & (size > 2.0**-900) & (size < 2.0**1000) & (np.abs(c) < 2.0**1000)
    out[usual] = _fma_pairs(a[usual], b[usual], c[usual])
    for i in zip(*np.nonzero(finite & ~usual), strict=True):
        out[i] = _fma_fractions(float(a[i]), float(b[i]), float(c[i]))
    return out.reshape(shape)


def _fma_pairs(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Compute a * b + c by Boldo and Melquiond: the product as a pair, and the low parts of the sum rounded to odd."""
    (a, e), (b, f) = np.frexp(a), np.frexp(b)
    high, low = (np.ldexp(part, e + f) for part in _two_prod(a, b))
    upper, upper_low = _two_sum(c, low)
    total, total_low = _two_sum(high, upper)
    result: np.ndarray = total + _odd_sum(total_low, upper_low)
    return result


def _fma_fractions(a: float, b: float, c: float) -> float:
    exact = fractions.Fraction(a) * fractions.Fraction(b) + fractions.Fraction(c)
    try:
        size = abs(exact.numerator) / exact.denominator
    except OverflowError:
        size = math.inf
    return -size if exact < 0 else size


def _two_prod(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return product and rounding error of numbers between 1/2 and 1, by Veltkamp and Dekker."""
    high = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return high, a_low * b_low - (((high - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    return high, x - high


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute a + b rounded to odd: of the two neighbours of an inexact sum, the one whose last bit is set."""
    total, low = _two_sum(a, b)
    codes = np.atleast_1d(total).view(np.int64)
    inexact = np.isfinite(low) & (low != 0) & ((codes & 1) == 0)
    outwards = (low > 0) == (total > 0)
    return np.where(inexact, np.where(outwards, codes + 1, codes - 1), codes).view(np.float64).reshape(np.shape(total))


OWN: dict[str, Operation] = {
    "fma": Operation(3, (dtypes.float32, dtypes.float64), fma),
    "threefry2x32": Operation(4, (dtypes.uint32,), threefry_word),
}
