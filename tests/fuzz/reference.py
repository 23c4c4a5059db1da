"""Expected results of a program: `eval` of its equations, and the error bounds of its primitives.

Where an equation has a budget (a function of some ulp, a sum whose order matters), the program is evaluated again with
its results moved within that budget. What stays the same in all evaluations must be the same to the bit in compiled
code; what moves must be as near as it moves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
import weft.compiler.target.evaluation  # before `run_equation` is another: compiled code has the original
from tests.compiler.host import compile_program
from tests.fuzz import gamma, nans
from tests.fuzz.between import Between
from weft.base import dtypes
from weft.ir import interpreter
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import NO_EFFECTS, Primitive, lookup
from weft.ir.types import array_type
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.linalg.matrix import MatrixFunction
from weft.runtime.cpu.executable import Executable

# Sums whose terms may be added in any order.
SUMS = frozenset({"reduce_sum", "cumsum", "dot_general", "conv_general_dilated", "reduce_window_sum", "scatter-add",
                  "scatter-sub", "select_and_scatter_add", "select_and_gather_add", "tape_sum"})  # fmt: skip
# Those that add up in a wider dtype and round once.
WIDENED = frozenset({"reduce_sum", "dot_general", "conv_general_dilated"})
PRODUCTS = frozenset({"reduce_prod", "cumprod", "scatter-mul", "reduce_window", "reduce"})
TWO_FACTORS = frozenset({"dot_general", "conv_general_dilated"})
# Which of two zeros is greater is not the same everywhere in NumPy; compiled code has -0 < 0.
EXTREMES = frozenset({"max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "reduce_window_max",
                      "reduce_window_min", "scatter-max", "scatter-min", "reduce_window", "reduce"})  # fmt: skip
# Functions with zeros where only the absolute error is small.
WITH_ZEROS = frozenset({"lgamma", "digamma", "cumlogsumexp"})
# Operations that round once. Of the others, other formulas may have other last bits even where nothing is rounded:
# x / (y * y) is no x * (1 / (y * y)).
ROUNDED = frozenset({"add", "sub", "mul", "square", "div", "integer_pow", "sqrt", "rsqrt"})
EXACT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "square": np.square
}  # fmt: skip
# Evaluations besides the plain one; and how many more there are before a difference counts.
VARIATIONS, MORE_VARIATIONS = 3, 24


@dataclass(frozen=True)
class Freedom:
    """Deviations that another library's code may have besides. `widened`: sums that add up in a wider dtype; `flushes`:
    denormal numbers may be zeros; `rounds`: formulas, as those of derivatives, have other roundings."""

    widened: frozenset[str] = WIDENED
    flushes: bool = False
    rounds: bool = False


OWN = Freedom()


# Equations that a program may evaluate: one whose loop counts to int32(inf) would take days.
MOST_EQUATIONS = 200_000


class TooLong(Exception):
    """Raised if a program has more equations than a judge evaluates."""


@dataclass
class Case:
    """Traced program, whose constants are arguments, with arrays for it."""

    jaxpr: Jaxpr
    arrays: list[np.ndarray]
    donated: tuple[bool, ...]
    wide: bool = False


@dataclass
class Expected:
    """Results by `eval`, first unchanged, then moved within the budgets. `exact`: nothing could be moved."""

    runs: list[list[np.ndarray]]
    exact: bool

    @property
    def results(self) -> list[np.ndarray]:
        return self.runs[0]


def expected_of(case: Case, variations: int = VARIATIONS) -> Expected:
    plain, perturbed = evaluated(case, None)
    if not perturbed:
        return Expected([plain], True)
    return varied(case, plain, variations)


def varied(case: Case, plain: list[np.ndarray], variations: int, freedom: Freedom = OWN) -> Expected:
    """Return the plain results and `variations` others, also of a program without budgets, since its nans are free."""
    between = Between()
    return Expected([plain, *(evaluated(case, n, freedom, between)[0] for n in range(variations))], False)


def evaluated(
    case: Case, variation: int | None, freedom: Freedom = OWN, between: Between | None = None
) -> tuple[list[np.ndarray], bool]:
    """Evaluate by `eval`. Results of equations with a budget are moved, and nans replaced, each variation in its own
    way; in some of them a result that passed an integer in earlier ones (`between`) is set to it. Also return whether
    there are equations with a budget."""
    rng = np.random.default_rng(variation)
    perturbed, count = False, 0
    flushes = freedom.flushes and variation is not None and variation % 4 >= 2
    between = between or Between()
    between.start()

    def run_equation(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        nonlocal perturbed, count
        count += 1
        if count > MOST_EQUATIONS:
            raise TooLong
        if flushes:
            operands = [flushed(a) for a in operands]
        results = plain(equation, operands)
        if flushes:
            results = [flushed(r) for r in results]
        for n, found in enumerate(budgets(equation, operands, results, freedom)):
            if found is not None:
                perturbed = True
                if variation is not None:
                    results[n] = move(np.asarray(results[n]), found, rng, variation)
        if variation is not None:
            results = [with_free_nans(equation, operands, r, rng, variation) for r in results]
            if not equation.primitive.higher_order:
                results = [between.add(equation.primitive.name, r, has_integers(variation)) for r in results]
        return results

    original = interpreter.run_equation
    interpreter.run_equation = run_equation
    try:
        with weft.enable_x64(case.wide), np.errstate(all="ignore"):
            results = interpreter.run(case.jaxpr, [a.copy() for a in case.arrays])
    finally:
        interpreter.run_equation = original
    return [np.asarray(r) for r in results], perturbed


def with_free_nans(
    equation: Equation, operands: Sequence[Any], result: Any, rng: np.random.Generator, variation: int
) -> Any:
    """Replace the nans that an equation computes in its result."""
    primitive = equation.primitive
    if primitive.higher_order or primitive.name in nans.EXACT or not is_float(result):
        return result
    other = nans.with_other_nans(result, rng, variation)
    if isinstance(primitive, Elementwise) or primitive.name in SUMS | PRODUCTS | EXTREMES:
        return other
    return np.where(nans.is_new(result, [np.asarray(a) for a in operands if is_float(a)]), other, result)


def flushed(x: Any) -> Any:
    """Replace denormal numbers by zeros."""
    if not is_float(x):
        return x
    if dtypes.kind(x.dtype) == "c":
        return (flushed(x.real) + 1j * flushed(x.imag)).astype(x.dtype)
    return np.where(np.abs(x) < dtypes.finfo(x.dtype).smallest_normal, np.copysign(np.zeros((), x.dtype), x), x)


def plain(equation: Equation, operands: Sequence[Any]) -> list[Any]:
    """Evaluate one equation by `eval` on contiguous arrays, since NumPy sums in the order of strides; a matrix
    function, whose results are free in signs and order, by the routine that compiled code calls (`tests/laws` compares
    that)."""
    args = [np.ascontiguousarray(a).reshape(a.shape) if isinstance(a, np.ndarray) else a for a in operands]
    if isinstance(equation.primitive, MatrixFunction):
        types = tuple(v.aval for v in equation.invars)
        function = routine(equation.primitive, types, tuple(sorted(equation.params.items())))
        return function([np.asarray(a) for a in args])
    results = equation.primitive.eval(*args, **equation.params)
    return list(results) if equation.primitive.multiple_results else [results]


def routine(
    primitive: Primitive, types: tuple[Any, ...], params: tuple[tuple[str, Any], ...]
) -> Callable[..., list[Any]]:
    """Return compiled code of one equation, as a function of a list of arrays. It checks nothing, since evaluation with
    checks inspects the results of every equation itself."""
    with weft.checks("off"):
        return _routine(primitive, types, params, weft.config.key())


@functools.lru_cache(256)
def _routine(
    primitive: Primitive, types: tuple[Any, ...], params: tuple[tuple[str, Any], ...], settings: Any
) -> Callable[..., list[Any]]:
    """Compile an equation under some settings."""
    invars = [Var(t) for t in types]
    result = primitive.type(*types, **dict(params))
    outvars = [Var(t) for t in (result if primitive.multiple_results else [result])]
    equation = Equation(invars, outvars, primitive, dict(params), NO_EFFECTS)
    executable = Executable(compile_program(Jaxpr([], invars, outvars, [equation])))
    return lambda arrays: [np.array(interpreter.storage_array(r)) for r in executable(arrays)]


# --------------------------------------------------------------------------------------------------------------- lanes


def lanes(op: str, arrays: Sequence[np.ndarray], params: dict[str, Any]) -> np.ndarray:
    """Evaluate an elementwise operation by its compiled body, as the interpreter of kernels does where NumPy's function
    has other last bits."""
    padded = 16
    while padded < arrays[0].size:
        padded *= 4
    types = tuple(array_type((padded,), a.dtype) for a in arrays)
    function = routine(lookup(op), types, tuple(sorted(params.items())))
    args = [np.resize(a, padded) if a.size else np.zeros(padded, a.dtype) for a in arrays]
    return function(args)[0][: arrays[0].size].reshape(arrays[0].shape)


def has_other_bits(op: str, dtype: Any) -> bool:
    """Return whether compiled code of an elementwise operation may differ from NumPy's."""
    return op in ("max", "min", "clamp") or ulp_of(lookup(op), dtype) > 0.5


def ulp_of(primitive: Primitive, dtype: Any) -> float:
    return primitive.ulp.get(dtypes.name(dtype), primitive.ulp.get("", 0.0))


# ------------------------------------------------------------------------------------------------------------- budgets


@dataclass
class Budget:
    """Permitted deviation of the elements of a result: a distance, the sign of a zero, or (`free`) any."""

    distance: Any = 0.0
    zeros: bool = False
    free: Any = False


def budgets(
    equation: Equation, operands: Sequence[Any], results: Sequence[Any], freedom: Freedom
) -> list[Budget | None]:
    none = equation.primitive.higher_order
    return [None if none or not is_float(r) else budget(equation, operands, np.asarray(r), freedom) for r in results]


def is_float(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic)) and dtypes.kind(x.dtype) in "fc" and x.size > 0


def budget(equation: Equation, operands: Sequence[Any], result: np.ndarray, freedom: Freedom = OWN) -> Budget | None:
    """Return the budget of a primitive for one result, or None if every bit is determined."""
    primitive, name = equation.primitive, equation.primitive.name
    if isinstance(primitive, MatrixFunction):
        return None
    floats = [np.asarray(a) for a in operands if is_float(a)]
    if name in SUMS:
        widened = name in freedom.widened and bool(floats) and floats[0].dtype.itemsize < 4
        if not is_exact(equation, operands, floats, widened):
            return sum_budget(equation, operands, floats, result, widened)
        # Products of complex numbers are sums themselves, so a zero may be the difference of two or of none.
        return Budget(zeros=True) if name in TWO_FACTORS and dtypes.kind(result.dtype) == "c" else None
    if name in PRODUCTS:
        return product_budget(equation, operands, floats, result)
    if name in EXTREMES and has_both_zeros(floats):
        return Budget(zeros=True)
    # By the dtype of the operands: the magnitude of a complex number is a float.
    units = max(ulp_of(primitive, a.dtype) for a in floats or [result])
    if units <= 0.5:
        rounds = freedom.rounds and name in ROUNDED and not is_exactly(name, operands, result)
        return Budget(spacing(np.abs(result), result.dtype)) if rounds else None
    size = np.abs(result).astype(np.float64)
    if name == "pow" and dtypes.kind(result.dtype) == "c":
        return power_budget(operands, units, size, result)
    if name in gamma.ORDERS:
        distance = (units + 1) * spacing(size, result.dtype)
        distance += gamma.digits_lost(name, *operands, result, units, **equation.params)
        return Budget(np.nan_to_num(distance, posinf=0.0), free=np.isinf(distance))
    if name in WITH_ZEROS:
        # Near a zero it is the size of what is subtracted that counts.
        units, size = units + 16, np.maximum(size, max(1.0, largest_finite(floats)))
    return Budget((units + 1) * spacing(size, result.dtype))


def power_budget(operands: Sequence[Any], units: float, size: Any, result: np.ndarray) -> Budget:
    """Return the budget of a power of complex numbers, which is computed in complex128: rounding the exponent of e, a
    product with a logarithm, is an error of angle and magnitude. For large exponents no digit is left."""
    base, exponent = (np.asarray(a).astype(np.complex128) for a in operands)
    error = np.abs(exponent * np.log(base)) * 2.0**-50
    return Budget((units + 1) * spacing(size, result.dtype) + size * error, free=error > 0.1)


def spacing(size: Any, dtype: Any) -> np.ndarray:
    """Return one unit in the last place of numbers of some size."""
    info = dtypes.finfo(dtypes.to_real_dtype(dtype))
    wide = np.asarray(size).astype(np.float64)
    _, exponent = np.frexp(np.where(np.isfinite(wide), wide, 1))
    least = np.frexp(np.float64(info.smallest_subnormal))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent - 1 - info.nmant, least))


def is_exactly(name: str, operands: Sequence[Any], result: np.ndarray) -> bool:
    """Return whether all elements are a sum or a product that needed no rounding."""
    function = EXACT_FUNCTIONS.get(name)
    if function is None or dtypes.kind(result.dtype) != "f":
        return False
    with np.errstate(all="ignore"):
        return bool(np.all(function(*(np.asarray(a).astype(np.longdouble) for a in operands)) == result))


def sum_budget(
    equation: Equation, operands: Sequence[Any], floats: Sequence[np.ndarray], result: np.ndarray, widened: bool
) -> Budget:
    """Return the budget of a sum in some order: one rounding of the sum of all magnitudes for each addition."""
    name = equation.primitive.name
    sizes = np.asarray(magnitudes(equation, operands)).astype(np.float64)
    if sizes.shape != result.shape:
        sizes = np.full(result.shape, np.max(sizes, initial=0.0))
    dtype = dtypes.accumulation_dtype(floats[0].dtype) if widened else result.dtype
    count = max(16, min(max(a.size for a in floats) // max(result.size, 1), 4096))
    distance = count * spacing(sizes, dtype) + spacing(np.abs(result), result.dtype)
    limit = float(dtypes.finfo(dtypes.to_real_dtype(result.dtype)).max)
    has_specials = any(not np.isfinite(p).all() for a in floats for p in parts(a))
    if has_specials and name == "conv_general_dilated":
        # Whether the zeros of padding and dilation are multiplied is nobody's promise.
        return Budget(free=np.ones(result.shape, bool))
    free = ~np.isfinite(sizes) | (sizes > limit / 2)
    if has_specials and not (name in TWO_FACTORS and dtypes.kind(result.dtype) == "c"):
        # With infinities among the terms a sum of nothing else than those is certain, and nothing else is. Of a complex
        # matmul not even that: BLAS multiplies sums by 1 + 0i, and 0 times an infinite part makes the other part nan.
        free = free & np.isfinite(np.abs(result)) | free & (largest_finite(floats) > limit / 4)
    return Budget(distance, zeros=True, free=free)


def largest_finite(floats: Sequence[np.ndarray]) -> float:
    return max((float(np.max(np.abs(p[np.isfinite(p)]), initial=0.0)) for a in floats for p in parts(a)), default=0.0)


def product_budget(
    equation: Equation, operands: Sequence[Any], floats: Sequence[np.ndarray], result: np.ndarray
) -> Budget | None:
    if all(np.isin(np.abs(p), (0.0, 1.0)).all() for a in floats for p in parts(a)):
        # Exact, but for the signs of zeros among complex numbers: each product of two of them is a sum of four terms.
        return Budget(zeros=True) if dtypes.kind(result.dtype) == "c" else None
    logs = [np.log2(np.abs(a[np.isfinite(a) & (a != 0)]).astype(np.float64)) for a in floats]
    powers = sum(float(np.sum(np.abs(s))) for s in logs)
    info = dtypes.finfo(dtypes.to_real_dtype(result.dtype))
    free = powers > -float(np.log2(float(info.smallest_normal)))
    count = max(a.size for a in floats) + 2
    return Budget(2 * count * spacing(np.abs(result), result.dtype), zeros=True, free=np.full(result.shape, free))


def has_integers(variation: int) -> bool:
    """Return whether a variation sets results to integers wherever possible."""
    return variation % 8 == 3


def move(result: np.ndarray, allowed: Budget, rng: np.random.Generator, variation: int) -> np.ndarray:
    """Move a result within its budget: all up, all down, to integers, or each element at random."""
    if variation % 8 == 0:
        direction: Any = np.ones(result.shape)
    elif variation % 8 == 1:
        direction = -np.ones(result.shape)
    else:
        direction = rng.choice((-1.0, -0.3, 0.0, 0.3, 1.0), result.shape)
    if dtypes.kind(result.dtype) == "c":
        real = move(result.real, allowed, rng, variation)
        imaginary = move(result.imag, allowed, rng, variation)
        out = np.empty(result.shape, result.dtype)
        out.real, out.imag = real, imaginary
        return out
    wide = result.astype(np.float64)
    step = np.where(np.isfinite(wide), allowed.distance, 0.0)
    target = wide + direction * step
    if has_integers(variation):
        # What may be an integer is one: quotients, remainders and poles have no limit there.
        target = np.where(np.abs(wide - np.rint(wide)) <= step, np.rint(wide), target)
    out = np.where(step > 0, target, wide).astype(result.dtype)
    if allowed.zeros:
        flipped = np.where(rng.random(result.shape) < 0.5, -0.0, 0.0).astype(result.dtype)
        out = np.where(out == 0, flipped, out)
    return np.where(allowed.free, anything(out, rng, variation), out) if np.any(allowed.free) else out


def anything(result: np.ndarray, rng: np.random.Generator, variation: int) -> np.ndarray:
    """Numbers for what may be any: the same for all elements, or each its own, since they may have any order too."""
    numbers = np.array((np.nan, 0.0, -np.inf, 3.0, np.inf)).astype(result.dtype)
    if variation % 2 == 0:
        return np.broadcast_to(numbers[variation // 2 % 5], result.shape)
    chosen = rng.integers(0, 6, result.shape)
    return np.where(chosen == 5, result, numbers[chosen % 5])


# ----------------------------------------------------------------------------------------------------------- exactness


def parts(array: Any) -> list[np.ndarray]:
    """Return the numbers of an array as float64; of complex ones both parts."""
    wide = np.asarray(array)
    if dtypes.kind(wide.dtype) == "c":
        return [np.asarray(wide.real, np.float64), np.asarray(wide.imag, np.float64)]
    return [np.asarray(wide).astype(np.float64)]


def step_of(array: Any) -> float:
    """Return the largest power of two that divides all finite numbers of an array."""
    least = math.inf
    for part in parts(array):
        numbers = np.abs(part[np.isfinite(part) & (part != 0)])
        if numbers.size:
            fraction, exponent = np.frexp(numbers)
            whole = np.asarray(fraction * 2.0**53).astype(np.int64)
            least = min(least, float(np.min(np.ldexp((whole & -whole).astype(np.float64), exponent - 53))))
    return least if math.isfinite(least) else 1.0


def magnitude(array: Any) -> Any:
    found = np.asarray(array)
    if dtypes.kind(found.dtype) == "c":
        return np.asarray(np.abs(found.real) + np.abs(found.imag)).astype(found.dtype)
    return np.abs(found) if dtypes.kind(found.dtype) == "f" else found


def magnitudes(equation: Equation, operands: Sequence[Any]) -> Any:
    """Return the sum of the magnitudes of all terms."""
    primitive = equation.primitive
    args = [magnitude(a) for a in operands]
    if primitive.name == "scatter-sub":
        primitive = lookup("scatter-add")
    results = primitive.eval(*args, **equation.params)
    return np.abs(results[0] if primitive.multiple_results else results)


def is_exact(equation: Equation, operands: Sequence[Any], floats: Sequence[np.ndarray], widened: bool) -> bool:
    """Return whether a sum has the same bits in any order."""
    if not floats:
        return True
    name = equation.primitive.name
    dtype = dtypes.to_real_dtype(floats[0].dtype)
    info = dtypes.finfo(dtypes.accumulation_dtype(dtype) if widened else dtype)
    step = math.prod(map(step_of, floats)) if name in TWO_FACTORS else min(map(step_of, floats))
    if any(not np.isfinite(p).all() for a in floats for p in parts(a)):
        return False
    most = float(np.max(np.asarray(magnitudes(equation, operands)).astype(np.float64), initial=0.0))
    # A result in a shorter dtype has been rounded, so some room is left. Products that underflow are rounded as well,
    # to a zero of either sign: before they are added to the sum, or after.
    return math.isfinite(most) and float(info.smallest_subnormal) <= step and most <= step * 2.0**info.nmant


def has_both_zeros(operands: Sequence[Any]) -> bool:
    """Return whether there are zeros of both signs, so that the greatest of them may be either."""
    zeros = [np.signbit(p[p == 0]) for a in operands if dtypes.kind(np.asarray(a).dtype) == "f" for p in parts(a)]
    signs = np.concatenate(zeros) if zeros else np.zeros(0, bool)
    return bool(signs.any() and not signs.all())
