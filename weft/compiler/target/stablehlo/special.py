"""Special functions that StableHLO has not: the bodies of `target/math`, written over whole arrays.

`ArrayFunction` has the methods of `llvm.Function` that those bodies use. Its values have LLVM's scalar types and arrays
of one shape; a branch is written as a choice between two results, and a loop as a `while` of arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.compiler.target.llvm import Type, Value as Scalar, double, float_, i1
from weft.compiler.target.llvm.function import Region
from weft.compiler.target.math import (
    bessel,
    error,
    exponential,
    gamma,
    hurwitz,
    incomplete_beta,
    incomplete_gamma,
    incomplete_gamma_derivative,
    logarithm,
)
from weft.compiler.target.math.term import Term
from weft.compiler.target.stablehlo.elementwise import DIRECT, direct, function_of_chlo
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule
from weft.compiler.target.stablehlo.types import BOOL, FLOAT32, FLOAT64, int64_array
from weft.compiler.target.stablehlo.writer import Shape, Value
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode

DTYPES = {"i1": BOOL, "float": FLOAT32, "double": FLOAT64, **{f"i{n}": np.dtype(f"i{n // 8}") for n in (8, 16, 32, 64)}}
INTEGERS: dict[int, np.dtype[Any]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}
UNSIGNED = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
DIRECTIONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


class Lanes(Scalar):
    """Value of LLVM's scalar type in each element of an array."""

    __slots__ = ("array",)

    def __init__(self, array: Value, type: Type) -> None:
        super().__init__(array.name, type)
        self.array = array


class Table(NamedTuple):
    """Table of numbers, with the index of the element that is read, or an index for each element of an array."""

    numbers: np.ndarray
    index: Any = None


class Tables:
    """Stand-in for the module of a function: its tables. Without `fused`, bodies call a helper where they need the
    error of a product, and round twice elsewhere."""

    def __init__(self, fused: bool) -> None:
        self.fused = fused

    def table(self, name: str, element: Type, values: Sequence[float]) -> Table:
        """Return a table of numbers."""
        return Table(np.array(values, DTYPES[element.text]))

    opaque_table = table

    def helper(self, name: str, parameters: Any, write: Callable[..., None], type: Type) -> str:
        """Return the name of the multiply-add, the only helper, which is not written by LLVM's instructions here."""
        return name


def _binary(name: str) -> Any:
    """Return a method for an operation of two arrays of one type."""

    def method(self: ArrayFunction, a: Scalar, b: Scalar) -> Lanes:
        return self.wrap(self.emitter.same(name, self.array(a), self.array(b)), a.type)

    return method


def _sum(name: str) -> Any:
    """Return a method for a sum of floats. XLA merges the constants of (x + a) - a, which rounds x on purpose, so a sum
    with a constant is behind a barrier."""
    add = _binary(name)

    def method(self: ArrayFunction, a: Scalar, b: Scalar) -> Lanes:
        result: Lanes = add(self, a, b)
        return result if isinstance(a, Lanes) and isinstance(b, Lanes) else self.barrier(result)

    return method


def _unary(name: str) -> Any:
    """Return a method for an operation of one array."""

    def method(self: ArrayFunction, a: Scalar) -> Lanes:
        return self.wrap(self.emitter.same(name, self.array(a)), a.type)

    return method


class ArrayFunction:
    """Function that computes arrays of one shape, in place of `llvm.Function`."""

    def __init__(self, emitter: Emitter, shape: Shape, exact: bool) -> None:
        self.emitter, self.shape, self.exact = emitter, shape, exact
        # A result that is rounded to float32 does not need the errors of products.
        self.module = Tables(fused=not exact)

    def term(self, x: Value) -> Term:
        """Return an array of floats as a term."""
        found = next(t for t in FLOATS if DTYPES[t.text] == x.dtype)
        return Term(self, self.wrap(x, found))  # type: ignore[arg-type]

    def wrap(self, x: Value, type: Type) -> Lanes:
        """Return an array as a value of LLVM's type."""
        return Lanes(x, type)

    def array(self, x: Scalar) -> Value:
        """Return the array of a value; a constant is broadcast."""
        if isinstance(x, Lanes):
            return x.array
        return self.emitter.full(parse_constant(x), self.shape, DTYPES[x.type.text])

    add, sub = _binary("add"), _binary("subtract")
    fadd, fsub = _sum("add"), _sum("subtract")
    fmul = mul = _binary("multiply")
    fdiv = _binary("divide")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shift_left"), _binary("shift_right_logical"), _binary("shift_right_arithmetic")
    fneg, not_, fabs, sqrt, floor = _unary("negate"), _unary("not"), _unary("abs"), _unary("sqrt"), _unary("floor")
    ceil, roundeven = _unary("ceil"), _unary("round_nearest_even")
    ctlz = _unary("count_leading_zeros")

    def barrier(self, x: Lanes) -> Lanes:
        """Keep an operation apart from those that read its result."""
        (found,) = self.emitter.write("stablehlo.optimization_barrier", [x.array], [(x.array.shape, x.array.dtype)])
        return self.wrap(found, x.type)

    def ftrunc(self, a: Scalar) -> Lanes:
        """Round towards zero."""
        e, x = self.emitter, self.array(a)
        whole = e.same("floor", e.same("abs", x))
        return self.copysign(self.wrap(whole, a.type), a)

    def copysign(self, a: Scalar, b: Scalar) -> Lanes:
        """Return magnitudes with the signs of other numbers."""
        e, x, y = self.emitter, self.array(a), self.array(b)
        whole = INTEGERS[x.dtype.itemsize]
        sign = e.full(-(1 << (8 * whole.itemsize - 1)), self.shape, whole)
        size = e.same("and", e.bitcast(x, whole), e.same("not", sign))
        both = e.same("or", size, e.same("and", e.bitcast(y, whole), sign))
        return self.wrap(e.bitcast(both, x.dtype), a.type)

    def fma(self, a: Scalar, b: Scalar, c: Scalar) -> Lanes:
        """Multiply and add; the product of float32 numbers is exact in float64."""
        if self.array(a).dtype == FLOAT32:
            x, y, z = (self.fpext(v, double) for v in (a, b, c))
            return self.fptrunc(self.fadd(self.fmul(x, y), z), float_)
        result: Lanes = self.fadd(self.fmul(a, b), c)
        return result

    def fcmp(self, predicate: str, a: Scalar, b: Scalar) -> Lanes:
        """Compare floats."""
        e, x, y = self.emitter, self.array(a), self.array(b)
        if predicate == "uno":
            unknown = e.same("or", e.compare("NE", x, x), e.compare("NE", y, y))
            return self.wrap(unknown, i1)
        if predicate == "one":
            return self.wrap(e.same("or", e.compare("LT", x, y), e.compare("GT", x, y)), i1)
        return self.wrap(e.compare(DIRECTIONS[predicate[1:]], x, y), i1)

    def icmp(self, predicate: str, a: Scalar, b: Scalar) -> Lanes:
        """Compare integers."""
        e, x, y = self.emitter, self.array(a), self.array(b)
        if predicate[0] == "u":
            x, y = (e.bitcast(v, UNSIGNED[v.dtype.itemsize]) for v in (x, y))
        return self.wrap(e.compare(DIRECTIONS[predicate if len(predicate) == 2 else predicate[1:]], x, y), i1)

    def select(self, condition: Scalar, a: Scalar, b: Scalar) -> Lanes:
        """Select elements."""
        return self.wrap(self.emitter.select(*map(self.array, (condition, a, b))), a.type)

    def _convert(self, a: Scalar, type: Type) -> Lanes:
        return self.wrap(self.emitter.convert(self.array(a), DTYPES[type.text]), type)

    fpext = fptrunc = sitofp = fptosi = trunc = sext = _convert

    def zext(self, a: Scalar, type: Type) -> Lanes:
        """Extend integers with zeros."""
        e, x = self.emitter, self.array(a)
        wide = DTYPES[type.text]
        if x.dtype == BOOL:
            return self.wrap(e.convert(x, wide), type)
        unsigned = e.convert(e.bitcast(x, UNSIGNED[x.dtype.itemsize]), UNSIGNED[wide.itemsize])
        return self.wrap(e.bitcast(unsigned, wide), type)

    def bitcast(self, a: Scalar, type: Type) -> Lanes:
        """Reinterpret the bits."""
        return self.wrap(self.emitter.bitcast(self.array(a), DTYPES[type.text]), type)

    def reduce(self, operation: str, a: Scalar) -> Lanes:
        """Reduce all elements to a scalar."""
        e, x = self.emitter, self.array(a)
        if not x.shape:
            return self.wrap(x, i1)
        attributes = f"dimensions = {int64_array(range(len(self.shape)))}"
        start = e.scalar(operation == "and", BOOL)
        return self.wrap(e.op("reduce", [x, start], (), BOOL, attributes, e.combiner(operation, BOOL)), i1)

    # -- tables ----------------------------------------------------------------------------------------------------

    def offset(self, table: Table, element: Type, index: Any) -> Table:
        """Return the place of one number of a table, or of one for each element."""
        return table._replace(index=index)

    def load(self, type: Type, place: Table, align: int) -> Lanes:
        """Read one number for all elements, or one for each of them."""
        if isinstance(place.index, Lanes):
            return self.gather(type, place, place.index, align)
        return self.wrap(self.emitter.full(place.numbers[place.index], self.shape, place.numbers.dtype), type)

    def gather(self, type: Type, place: Table, mask: Scalar, align: int) -> Lanes:
        """Read a number for each element."""
        e = self.emitter
        index = self.array(place.index)
        found = e.apply(
            "gather",
            e.constant(place.numbers),
            e.reshape(index, (*index.shape, 1)),
            dimension_numbers=GatherDimensionNumbers((), (0,), (0,)),
            slice_sizes=(1,),
            mode=GatherScatterMode.CLIP,
            fill_value=None,
            indices_are_sorted=False,
            unique_indices=False,
        )
        return self.wrap(found, type)

    # -- control flow ------------------------------------------------------------------------------------------------

    def call_in_double(self, name: str, body: Callable[..., Term], operands: Sequence[Term]) -> Term:
        """Write a body on operands of float64 as a function of the module, and call it."""
        arrays = [self.array(x.value) for x in operands]

        def build(values: list[Value]) -> list[Value]:
            return [self.array(body(*map(self.term, values)).value)]

        return self.term(self.emitter.call(name, self.exact, arrays, build)[0])

    def call(self, name: str, type: Type, *operands: Scalar) -> Lanes:
        """Call the helper, which is a function of the module."""
        e = self.emitter
        found = e.call("multiply_add", None, [self.array(v) for v in operands], lambda v: [multiply_add(e, *v)])
        return self.wrap(found[0], type)

    @contextmanager
    def when(self, condition: Scalar, *otherwise: Scalar, unlikely: bool = False) -> Iterator[Region]:
        """Write code whose results count where a scalar condition holds."""
        region = Region(otherwise)
        yield region
        found = region._yielded or ()
        region.results = tuple(self.select(condition, a, b) for a, b in zip(found, otherwise, strict=True))

    @contextmanager
    def repeat(self, *carried: Scalar) -> Iterator[Region]:
        """Write a loop that runs at least once. The text of its body is written when the block ends, so the body must
        not use values that other code of the block defines."""
        e = self.emitter
        types = [((), BOOL), *((self.shape, DTYPES[v.type.text]) for v in carried)]
        with e.block(types) as block:
            region = Region([self.wrap(x, v.type) for x, v in zip(block.arguments[1:], carried, strict=True)])
            yield region
            block.results = [self.array(v) for v in (region._again, *(region._yielded or ())) if v is not None]
        start = [e.scalar(True, BOOL), *map(self.array, carried)]
        condition = e.region(types, lambda values: values[:1])
        results = e.write("stablehlo.while", start, types, "", [condition, block.text])[1:]
        region.results = tuple(self.wrap(x, v.type) for x, v in zip(results, carried, strict=True))


FLOATS = (float_, double)


def parse_constant(x: Scalar) -> Any:
    """Return the number that a constant of LLVM stands for; floats are written as the bits of doubles."""
    if x.text in ("true", "false"):
        return x.text == "true"
    if x.type.kind == "float":
        return struct.unpack("<d", struct.pack("<Q", int(x.text, 16)))[0]
    return int(x.text)


# Bits of a float64 without the lower half of its mantissa.
UPPER_HALF = -1 << 27


def multiply_add(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Compute a*b + c of float64 with little more than one rounding, by the error of the product (Dekker).

    XLA's code for CPUs fuses products and sums, also where their errors matter, so numbers are split by their bits, and
    every other product here is exact.
    """

    def halves(x: Value) -> tuple[Value, Value]:
        whole = e.bitcast(x, INTEGERS[8])
        high = e.bitcast(e.same("and", whole, e.full_like(UPPER_HALF, whole)), x.dtype)
        return high, e.same("subtract", x, high)

    product = e.same("multiply", a, b)
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    error = e.same("subtract", e.same("multiply", a_high, b_high), product)
    for x, y in ((a_high, b_low), (a_low, b_high), (a_low, b_low)):
        error = e.same("add", error, e.same("multiply", x, y))
    total = e.same("add", product, c)
    part = e.same("subtract", total, product)
    lost = e.same("add", e.same("subtract", product, e.same("subtract", total, part)), e.same("subtract", c, part))
    rest = e.same("add", lost, error)
    # Where a product overflows the rest is nan; where it is zero, the sign of the sum must not change.
    zero = e.full_like(0, rest)
    usable = e.same("or", e.compare("LT", rest, zero), e.compare("GT", rest, zero))
    return e.select(usable, e.same("add", total, rest), total)


FUNCTIONS: dict[str, Callable[..., Term]] = {
    "bessel_i0e": bessel.bessel_i0e,
    "bessel_i1e": bessel.bessel_i1e,
    "cosh": exponential.cosh,
    "digamma": gamma.digamma,
    "erfc": error.erfc,
    "igamma": incomplete_gamma.igamma,
    "igammac": incomplete_gamma.igammac,
    "igamma_grad_a": lambda a, x: incomplete_gamma_derivative.igamma_derivative(a, x, 1),
    "igamma_derivative": incomplete_gamma_derivative.igamma_derivative,
    "lgamma": gamma.lgamma,
    "polygamma": hurwitz.polygamma,
    "random_gamma_grad": incomplete_gamma_derivative.random_gamma_grad,
    "regularized_incomplete_beta": incomplete_beta.regularized_incomplete_beta,
    "sinh": exponential.sinh,
    "zeta": hurwitz.zeta,
}
# Functions that XLA computes accurately in float32 only.
DOUBLE_FUNCTIONS: dict[str, Callable[..., Term]] = {
    "atanh": logarithm.atanh,
    "erf_inv": error.erf_inv,
    "expm1": exponential.expm1,
    "log1p": logarithm.log1p,
    "tanh": exponential.tanh,
}


@rule(*DOUBLE_FUNCTIONS)
def double_function(e: Emitter, site: Site, x: Value) -> Value:
    """Write a function by its body in float64, and by the operation of StableHLO or `chlo` in other dtypes."""
    write: Any = direct if site.primitive.name in DIRECT else function_of_chlo
    if x.dtype == FLOAT64:
        write = special_function
    result: Value = write(e, site, x)
    return result


@rule(*FUNCTIONS)
def special_function(e: Emitter, site: Site, *operands: Value) -> Value:
    """Write a special function as a function of the module; short floats are computed in float32."""
    name = site.primitive.name
    body = FUNCTIONS.get(name) or DOUBLE_FUNCTIONS[name]
    if dtypes.kind(site.dtype) == "c":
        result: Value = function_of_chlo(e, site, *operands)
        return result
    if site.dtype not in (FLOAT32, FLOAT64):
        wide = site._replace(results=((site.shape, FLOAT32),))
        return e.convert(special_function(e, wide, *(e.convert(x, FLOAT32) for x in operands)), site.dtype)
    function = ArrayFunction(e, site.shape, exact=site.dtype == FLOAT64)

    def build(values: list[Value]) -> list[Value]:
        terms = map(function.term, values)
        return [function.array(body(*terms, **site.params).value)]

    return e.call(name, tuple(sorted(site.params.items())), operands, build)[0]
