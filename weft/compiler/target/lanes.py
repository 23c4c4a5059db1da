"""Elementwise operations over lanes: the abstract scalar builder of `Elementwise.emit`, for LLVM text.

A `Lane` is a value in each of `width` lanes: a vector on a CPU (16 lanes of float32 on AVX-512), a scalar for a GPU's
thread or where vectors do not pay off. It has the dtype of the equation and computes what the primitive's `eval`
defines, each operation rounded to its dtype. In lanes

* a bool is an i1, a signed or unsigned integer has its own width (at least a byte);
* float16, bfloat16 and the smaller floats are the float32 of the same value;
* a complex number is two floats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.target.llvm import Function, Type, Value, constant, double, float_, i1, i8, i16, i64, integer, vector
from weft.compiler.target.math import (
    bessel,
    bits,
    complex,
    error,
    exponential,
    formats,
    gamma,
    hurwitz,
    incomplete_beta,
    incomplete_gamma,
    incomplete_gamma_derivative,
    integers,
    inverse,
    logarithm,
    power,
    threefry,
    trigonometric,
)
from weft.compiler.target.math.complex import Complex
from weft.compiler.target.math.term import Term
from weft.primitives.elementwise.rounding import RoundingMethod


class LaneLayout(NamedTuple):
    """Representation of a dtype: `kind` as in `dtypes.kind`, `bits` per number (for a complex number, of one part), and
    the LLVM types in lanes and in memory."""

    kind: str
    bits: int
    lane: Type
    memory: Type
    # Whether it is a float that is computed in float32.
    short: bool


@functools.cache
def layout(dtype: np.dtype[Any]) -> LaneLayout:
    """Return the layout of a dtype in lanes and in memory."""
    kind = dtypes.kind(dtype)
    if kind == "b":
        return LaneLayout("b", 1, i1, i8, False)
    if kind in "iu":
        width = dtypes.itemsize_bits(dtype)
        element = integer(max(width, 8))
        return LaneLayout(kind, width, element, element, False)
    if kind in "fc":
        part = dtypes.to_real_dtype(dtype) if kind == "c" else dtype
        if part == dtypes.float64:
            return LaneLayout(kind, 64, double, double, False)
        if part == dtypes.float32:
            return LaneLayout(kind, 32, float_, float_, False)
        return LaneLayout(kind, dtypes.itemsize_bits(part), float_, i16 if part.itemsize == 2 else i8, True)
    raise InternalError(f"Elementwise operations do not support dtype {dtypes.name(dtype)} in lanes.")


class Lane:
    """Value of some dtype in every lane."""

    __slots__ = ("dtype", "im", "re")

    def __init__(self, dtype: np.dtype[Any], re: Term, im: Term | None = None) -> None:
        self.dtype = dtype
        self.re = re
        # None except for complex numbers.
        self.im = im

    def __repr__(self) -> str:
        return f"{dtypes.short_name(self.dtype)}({self.re}{'' if self.im is None else f', {self.im}'})"

    @property
    def width(self) -> int:
        """Number of lanes."""
        return self.re.value.type.count

    @property
    def pair(self) -> Complex:
        """Real and imaginary parts of a complex number."""
        assert self.im is not None
        return Complex(self.re, self.im)

    @property
    def parts(self) -> tuple[Value, ...]:
        """LLVM values of the lane: two for a complex number, else one."""
        return (self.re.value,) if self.im is None else (self.re.value, self.im.value)

    def with_parts(self, parts: Sequence[Value]) -> Lane:
        """Return a lane of the same dtype with other LLVM values, in the number of lanes that they have."""
        return Lane(self.dtype, *(Term(self.re.function, part) for part in parts))

    def wide_integer(self, function: Function) -> Value:
        """Extend an integer to i64, for indices."""
        kind = vector(i64, self.width)
        return (function.sext if layout(self.dtype).kind == "i" else function.zext)(self.re.value, kind)


RealFunction = Callable[..., Term]
ComplexFunction = Callable[..., Complex]
bool_dtype = np.dtype(np.bool_)
# Primitives that only matter to transformations.
UNCHANGED = frozenset({"stop_gradient", "name"})


def elementary(real: RealFunction, of_complex: ComplexFunction | None = None) -> Any:
    """Return a method for a function of floats, and of complex numbers if `of_complex` is given."""

    def method(self: Lanes, *operands: Lane) -> Lane:
        dtype = operands[0].dtype
        if operands[0].im is None:
            return self._round_to(real(*(x.re for x in operands)), dtype)
        if of_complex is None:
            raise InternalError(f"{real.__name__} does not support complex numbers.")
        return self._of_doubles(of_complex, dtype, *operands)

    return method


def _comparison(floats: str, signed: str, unsigned: str) -> Any:
    """Return a method for a comparison that is one instruction."""

    def method(self: Lanes, x: Lane, y: Lane) -> Lane:
        f, kind = self.function, layout(x.dtype).kind
        if kind == "f":
            return self._truth(f.fcmp(floats, x.re.value, y.re.value))
        return self._truth(f.icmp(signed if kind == "i" else unsigned, x.re.value, y.re.value))

    return method


class Lanes:
    """Builder of elementwise operations in a function, `width` elements at a time."""

    def __init__(self, function: Function, width: int) -> None:
        self.function = function
        self.width = width

    # -- constants -------------------------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Lane:
        """Broadcast a number to every lane, rounded to the dtype as NumPy does."""
        form = layout(dtype)
        rounded = np.asarray(value).astype(dtype)[()]
        if form.kind == "c":
            return Lane(dtype, *(self._constant(float(part), form.lane) for part in (rounded.real, rounded.imag)))
        python = bool(rounded) if form.kind == "b" else float(rounded) if form.kind == "f" else int(rounded)
        return Lane(dtype, self._constant(python, form.lane))

    def _constant(self, value: float, element: Type) -> Term:
        return Term(self.function, constant(value, vector(element, self.width)))

    def integer(self, value: Value, dtype: np.dtype[Any]) -> Lane:
        """Wrap LLVM integers, of the width that the dtype has in lanes, to the range of the dtype."""
        return self._integer(Term(self.function, value), dtype)

    def apply(self, name: str, operands: Sequence[Lane], params: Mapping[str, Any]) -> Lane:
        """Apply the elementwise primitive of this name."""
        if name == "convert_element_type":
            return self.convert(operands[0], params["new_dtype"])
        if name == "bitcast_convert_type":
            return self.bitcast(operands[0], params["new_dtype"])
        if name in UNCHANGED:
            return operands[0]
        method = getattr(self, name, None)
        if method is None:
            raise InternalError(f"There is no code for the elementwise primitive {name} over lanes.")
        result: Lane = method(*operands, **params)
        return result

    def _truth(self, value: Value) -> Lane:
        return Lane(bool_dtype, Term(self.function, value))

    # -- memory ----------------------------------------------------------------------------------------------------

    @staticmethod
    def storage(dtype: np.dtype[Any]) -> tuple[Type, int]:
        """Return the LLVM type of numbers in memory, and how many of them are one element."""
        form = layout(dtype)
        return form.memory, 2 if form.kind == "c" else 1

    def from_storage(self, parts: Sequence[Value], dtype: np.dtype[Any]) -> Lane:
        """Convert loaded numbers to lanes: one value, or the real and the imaginary numbers."""
        form = layout(dtype)
        terms = [Term(self.function, part) for part in parts]
        if form.kind == "b":
            return Lane(dtype, terms[0].differs(0))
        if form.kind in "iu":
            return Lane(dtype, integers.wrap(terms[0], form.bits, form.kind == "i"))
        if form.short:
            return Lane(dtype, formats.from_bits(terms[0], dtype.name))
        return Lane(dtype, *terms)

    def to_storage(self, x: Lane) -> list[Value]:
        """Convert lanes to the numbers to store, the inverse of `from_storage`."""
        form = layout(x.dtype)
        if form.kind == "b":
            return [x.re.wide(8, signed=False).value]
        if form.kind in "iu":
            return [integers.code(x.re, form.bits).value]
        if form.short:
            return [formats.to_bits(x.re, x.dtype.name).value]
        return list(x.parts)

    def load(self, pointer: Value, dtype: np.dtype[Any], mask: Value | None = None) -> Lane:
        """Load contiguous elements from `pointer` on; masked-off lanes are 0."""
        f = self.function
        element, parts = self.storage(dtype)
        kind, align = vector(element, parts * self.width), element.bits // 8
        if mask is None:
            value = f.load(kind, pointer, align)
        else:
            value = f.masked_load(kind, pointer, self._for_parts(mask, parts), align)
        if parts == 1:
            return self.from_storage([value], dtype)
        return self.from_storage([self._every_other(value, start) for start in range(2)], dtype)

    def store(self, x: Lane, pointer: Value, mask: Value | None = None) -> None:
        """Store contiguous elements from `pointer` on, only active lanes if there is a mask."""
        f = self.function
        values = self.to_storage(x)
        align = values[0].type.bits // 8
        value = values[0] if len(values) == 1 else self._interleave(*values)
        if mask is None:
            f.store(value, pointer, align)
        else:
            f.masked_store(value, pointer, self._for_parts(mask, len(values)), align)

    def _for_parts(self, mask: Value, parts: int) -> Value:
        if parts == 1:
            return mask
        return self.function.shuffle(mask, None, [i // 2 for i in range(2 * self.width)])

    def _every_other(self, value: Value, start: int) -> Value:
        if self.width == 1:
            return self.function.extract(value, start)
        return self.function.shuffle(value, None, range(start, 2 * self.width, 2))

    def _interleave(self, re: Value, im: Value) -> Value:
        f = self.function
        if self.width == 1:
            return f.insert(f.splat(re, 2), im, 1)
        return f.shuffle(re, im, [i // 2 + (i % 2) * self.width for i in range(2 * self.width)])

    # -- rounding --------------------------------------------------------------------------------------------------

    def _round_to(self, x: Term, dtype: np.dtype[Any]) -> Lane:
        """Round a float computed in float32 or float64 to the dtype."""
        return Lane(dtype, formats.round_to(x, dtype.name) if layout(dtype).short else x)

    def _exact(self, x: Term, dtype: np.dtype[Any]) -> Lane:
        """Wrap a float whose value is exact in the dtype. One-byte formats are rounded all the same: not all of them
        have signs."""
        return self._round_to(x, dtype) if dtype.itemsize == 1 else Lane(dtype, x)

    def _integer(self, x: Term, dtype: np.dtype[Any]) -> Lane:
        form = layout(dtype)
        return Lane(dtype, integers.wrap(x, form.bits, form.kind == "i"))

    def _of_doubles(self, function: ComplexFunction, dtype: np.dtype[Any], *operands: Lane) -> Lane:
        """Apply a function of complex numbers in float64 and round the result once."""
        if layout(dtype).bits == 64:
            return Lane(dtype, *function(*(x.pair for x in operands)))
        long = [Complex(x.pair.re.long(), x.pair.im.long()) for x in operands]
        return Lane(dtype, *(part.short() for part in function(*long)))

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def _arithmetic(self, x: Lane, y: Lane, real: RealFunction, of_complex: ComplexFunction) -> Lane:
        kind = layout(x.dtype).kind
        if kind == "c":
            return Lane(x.dtype, *of_complex(x.pair, y.pair))
        result = real(x.re, y.re)
        return self._round_to(result, x.dtype) if kind == "f" else self._integer(result, x.dtype)

    def add(self, x: Lane, y: Lane) -> Lane:
        return self._arithmetic(x, y, Term.__add__, complex.add)

    def sub(self, x: Lane, y: Lane) -> Lane:
        return self._arithmetic(x, y, Term.__sub__, complex.sub)

    def mul(self, x: Lane, y: Lane) -> Lane:
        return self._arithmetic(x, y, Term.__mul__, complex.mul)

    def div(self, x: Lane, y: Lane) -> Lane:
        form = layout(x.dtype)
        if form.kind in "iu":
            return self._integer(integers.quotient(x.re, y.re, form.kind == "i"), x.dtype)
        return self._arithmetic(x, y, Term.__truediv__, complex.div)

    def rem(self, x: Lane, y: Lane) -> Lane:
        form = layout(x.dtype)
        if form.kind in "iu":
            return self._integer(integers.remainder(x.re, y.re, form.kind == "i"), x.dtype)
        return self._round_to(integers.float_remainder(x.re, y.re), x.dtype)

    def neg(self, x: Lane) -> Lane:
        kind = layout(x.dtype).kind
        if kind == "c":
            return Lane(x.dtype, *complex.neg(x.pair))
        return self._exact(-x.re, x.dtype) if kind == "f" else self._integer(-x.re, x.dtype)

    def square(self, x: Lane) -> Lane:
        return self.mul(x, x)

    def integer_pow(self, x: Lane, *, y: int) -> Lane:
        """Compute a power by repeated squaring, rounded once for floats computed in float32."""
        kind = layout(x.dtype).kind
        if kind == "c":
            return Lane(x.dtype, *complex.whole_power(x.pair, y))
        left, base, result = abs(y), x.re, x.re.of(1)
        started = False
        while left:
            if left & 1:
                result, started = (result * base if started else base), True
            left >>= 1
            if left:
                base = base * base
        if kind != "f":
            return self._integer(result, x.dtype)
        return self._round_to(1 / result if y < 0 else result, x.dtype)

    def max(self, x: Lane, y: Lane) -> Lane:
        return self._extreme(x, y, "max", "maximum", complex.greatest)

    def min(self, x: Lane, y: Lane) -> Lane:
        return self._extreme(x, y, "min", "minimum", complex.least)

    def _extreme(self, x: Lane, y: Lane, name: str, of_floats: str, of_complex: ComplexFunction) -> Lane:
        f, kind = self.function, layout(x.dtype).kind
        a, b = x.re.value, y.re.value
        if kind == "c":
            return Lane(x.dtype, *of_complex(x.pair, y.pair))
        if kind == "b":
            return self._truth(f.or_(a, b) if name == "max" else f.and_(a, b))
        if kind == "f":
            return self._exact(Term(f, getattr(f, of_floats)(a, b)), x.dtype)
        return Lane(x.dtype, Term(f, getattr(f, ("s" if kind == "i" else "u") + name)(a, b)))

    def clamp(self, low: Lane, x: Lane, high: Lane) -> Lane:
        return self.min(self.max(low, x), high)

    def sign(self, x: Lane) -> Lane:
        kind = layout(x.dtype).kind
        if kind == "c":
            return self._of_doubles(complex.sign, x.dtype, x)
        if kind == "f":
            return self._exact(bits.sign(x.re), x.dtype)
        result = x.re.equals(0).select(x.re, 1)
        return Lane(x.dtype, (x.re < 0).select(-1, result) if kind == "i" else result)

    def abs(self, x: Lane) -> Lane:
        kind = layout(x.dtype).kind
        if kind == "c":
            real_dtype = dtypes.to_real_dtype(x.dtype)
            if layout(x.dtype).bits == 64:
                return Lane(real_dtype, complex.absolute(x.pair))
            return Lane(real_dtype, complex.absolute(Complex(x.pair.re.long(), x.pair.im.long())).short())
        if kind == "f":
            return self._exact(abs(x.re), x.dtype)
        return x if kind == "u" else self._integer(Term(self.function, self.function.iabs(x.re.value)), x.dtype)

    # -- functions -------------------------------------------------------------------------------------------------

    exp = elementary(exponential.exp, complex.exp)
    exp2 = elementary(exponential.exp2, complex.exp2)
    expm1 = elementary(exponential.expm1, complex.expm1)
    logistic = elementary(exponential.logistic, complex.logistic)
    log = elementary(logarithm.log, complex.log)
    log1p = elementary(logarithm.log1p, complex.log1p)
    sqrt = elementary(Term.sqrt, complex.sqrt)
    rsqrt = elementary(lambda x: 1 / x.sqrt(), complex.rsqrt)
    cbrt = elementary(power.cbrt)
    sin = elementary(trigonometric.sin, complex.sin)
    cos = elementary(trigonometric.cos, complex.cos)
    tan = elementary(trigonometric.tan, complex.tan)
    asin = elementary(inverse.asin, complex.asin)
    acos = elementary(inverse.acos, complex.acos)
    atan = elementary(inverse.atan, complex.atan)
    atan2 = elementary(inverse.atan2, complex.atan2)
    sinh = elementary(exponential.sinh, complex.sinh)
    cosh = elementary(exponential.cosh, complex.cosh)
    tanh = elementary(exponential.tanh, complex.tanh)
    asinh = elementary(logarithm.asinh, complex.asinh)
    acosh = elementary(logarithm.acosh, complex.acosh)
    atanh = elementary(logarithm.atanh, complex.atanh)
    erf = elementary(error.erf)
    erfc = elementary(error.erfc)
    erf_inv = elementary(error.erf_inv)
    lgamma = elementary(gamma.lgamma)
    digamma = elementary(gamma.digamma)
    bessel_i0e = elementary(bessel.bessel_i0e)
    bessel_i1e = elementary(bessel.bessel_i1e)
    zeta = elementary(hurwitz.zeta)
    polygamma = elementary(hurwitz.polygamma)
    igamma = elementary(incomplete_gamma.igamma)
    igammac = elementary(incomplete_gamma.igammac)
    igamma_grad_a = elementary(lambda a, x: incomplete_gamma_derivative.igamma_derivative(a, x, 1))
    random_gamma_grad = elementary(incomplete_gamma_derivative.random_gamma_grad)
    regularized_incomplete_beta = elementary(incomplete_beta.regularized_incomplete_beta)

    def igamma_derivative(self, a: Lane, x: Lane, *, order: int) -> Lane:
        return self._round_to(incomplete_gamma_derivative.igamma_derivative(a.re, x.re, order), x.dtype)

    def pow(self, x: Lane, y: Lane) -> Lane:
        """Compute x**y; an integer exponent is exact even where the dtype of x cannot represent it."""
        whole = layout(y.dtype).kind in "iu"
        if layout(x.dtype).kind == "c":
            exponent = self.convert(y, dtypes.complex128) if whole else y
            if not whole:
                return self._of_doubles(complex.pow, x.dtype, x, y)
            base = self.convert(x, dtypes.complex128)
            return self.convert(self._of_doubles(complex.pow, dtypes.complex128, base, exponent), x.dtype)
        if not whole:
            return self._round_to(power.pow(x.re, y.re), x.dtype)
        exponent = self.convert(y, dtypes.float64)
        result = power.pow(x.re, exponent.re) if x.re.bits == 64 else power.pow_of_short(x.re, exponent.re)
        return self._round_to(result, x.dtype)

    # -- comparison and choice -------------------------------------------------------------------------------------

    def eq(self, x: Lane, y: Lane) -> Lane:
        same = x.re.equals(y.re)
        return Lane(bool_dtype, same if x.im is None else same & x.im.equals(y.pair.im))

    def ne(self, x: Lane, y: Lane) -> Lane:
        other = x.re.differs(y.re)
        return Lane(bool_dtype, other if x.im is None else other | x.im.differs(y.pair.im))

    lt = _comparison("olt", "slt", "ult")
    le = _comparison("ole", "sle", "ule")
    gt = _comparison("ogt", "sgt", "ugt")
    ge = _comparison("oge", "sge", "uge")

    def is_finite(self, x: Lane) -> Lane:
        return Lane(bool_dtype, bits.is_finite(x.re))

    def select_n(self, which: Lane, *cases: Lane) -> Lane:
        """Select the case of an index; an index outside of the range selects the nearest case."""
        result = cases[0]
        form = layout(which.dtype)
        for i, case in enumerate(cases[1:], 1):
            if form.kind == "b":
                chosen = which.re
            elif form.kind == "u" and form.bits < 64:
                chosen = ~which.re.below(i)
            else:
                chosen = which.re >= i
            parts = [chosen.select(a, b) for a, b in zip(_terms(case), _terms(result), strict=True)]
            result = Lane(result.dtype, *parts)
        return result

    # -- bits ------------------------------------------------------------------------------------------------------

    def and_(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.dtype, x.re & y.re)

    def or_(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.dtype, x.re | y.re)

    def xor(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.dtype, x.re ^ y.re)

    def not_(self, x: Lane) -> Lane:
        return Lane(x.dtype, ~x.re) if layout(x.dtype).kind == "b" else self._integer(~x.re, x.dtype)

    def _shift(self, x: Lane, y: Lane, direction: str) -> Lane:
        form = layout(x.dtype)
        return Lane(x.dtype, integers.shift(x.re, y.re, form.bits, form.kind == "i", direction))

    def shift_left(self, x: Lane, y: Lane) -> Lane:
        return self._shift(x, y, "left")

    def shift_right_logical(self, x: Lane, y: Lane) -> Lane:
        return self._shift(x, y, "logical")

    def shift_right_arithmetic(self, x: Lane, y: Lane) -> Lane:
        return self._shift(x, y, "arithmetic")

    def population_count(self, x: Lane) -> Lane:
        return self._integer(integers.population(x.re, layout(x.dtype).bits), x.dtype)

    def clz(self, x: Lane) -> Lane:
        return self._integer(integers.leading_zeros(x.re, layout(x.dtype).bits), x.dtype)

    def mulhi(self, x: Lane, y: Lane) -> Lane:
        form = layout(x.dtype)
        return Lane(x.dtype, integers.mulhi(x.re, y.re, form.bits, form.kind == "i"))

    # -- operations of kernels -------------------------------------------------------------------------------------

    def fma(self, x: Lane, y: Lane, z: Lane) -> Lane:
        """Compute x*y + z, rounded once if the machine has an instruction for that."""
        if x.im is not None or layout(x.dtype).short or layout(x.dtype).kind != "f":
            raise InternalError(f"A fused multiply-add needs float32 or float64; got {dtypes.name(x.dtype)}.")
        return Lane(x.dtype, x.re.multiply_add(y.re, z.re))

    def threefry2x32(self, *operands: Lane) -> tuple[Lane, Lane]:
        """Compute the Threefry hash of (key, key, count, count): two 32-bit integers."""
        first, second = threefry.threefry(*(x.re for x in operands))
        return Lane(operands[0].dtype, first), Lane(operands[0].dtype, second)

    # -- complex numbers -------------------------------------------------------------------------------------------

    def real(self, x: Lane) -> Lane:
        return Lane(dtypes.to_real_dtype(x.dtype), x.re)

    def imag(self, x: Lane) -> Lane:
        return Lane(dtypes.to_real_dtype(x.dtype), x.pair.im)

    def complex(self, x: Lane, y: Lane) -> Lane:
        return Lane(dtypes.to_complex_dtype(x.dtype), x.re, y.re)

    def conj(self, x: Lane, *, input_dtype: Any = None) -> Lane:
        """Return the conjugate; a real number becomes a complex one."""
        if x.im is None:
            return Lane(dtypes.to_complex_dtype(x.dtype), x.re, x.re.of(0))
        return Lane(x.dtype, x.re, -x.im)

    # -- rounding to integers and fewer bits -----------------------------------------------------------------------

    def floor(self, x: Lane) -> Lane:
        return self._round_to(x.re.floor(), x.dtype)

    def ceil(self, x: Lane) -> Lane:
        return self._round_to(Term(self.function, self.function.ceil(x.re.value)), x.dtype)

    def round(self, x: Lane, *, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Lane:
        even = rounding_method == RoundingMethod.TO_NEAREST_EVEN
        return self._round_to(x.re.rint() if even else bits.round_half_away(x.re), x.dtype)

    def nextafter(self, x: Lane, y: Lane) -> Lane:
        """Return the neighbour of x towards y, computed on the dtype's own bits, where neighbours differ by one."""
        name = x.dtype.name
        if name == formats.EXPONENT_ONLY:
            code = bits.next_power_code(self._code(x), x.re, y.re)
        else:
            signed_zero = not layout(x.dtype).short or formats.get_format(name).signed_zero
            code = bits.next_code(self._code(x), x.re, y.re, layout(x.dtype).bits, signed_zero)
        result = self._of_code(code, x.dtype).re
        # Of two zeros with different signs it is the second.
        result = x.re.equals(y.re).select(y.re, result)
        unknown = x.re.is_nan() | y.re.is_nan()
        return Lane(x.dtype, unknown.select(x.re + y.re, result))

    def reduce_precision(self, x: Lane, *, exponent_bits: int, mantissa_bits: int) -> Lane:
        """Round to fewer exponent and mantissa bits on the dtype's own bits; one-byte floats have other encodings and
        go through float32."""
        limits = dtypes.finfo(x.dtype)
        narrower = exponent_bits < limits.nexp
        if x.dtype.itemsize == 1:
            code, mantissa, exponents = x.re.raw(), 23, 8
        else:
            code, mantissa, exponents = self._code(x), int(limits.nmant), int(limits.nexp)
        code = bits.fewer_bits(code, mantissa, exponents, exponent_bits, mantissa_bits, narrower)
        result = self._round_to(code.as_float(), x.dtype) if x.dtype.itemsize == 1 else self._of_code(code, x.dtype)
        return Lane(x.dtype, x.re.is_nan().select(x.re, result.re))

    # -- conversion ------------------------------------------------------------------------------------------------

    def _code(self, x: Lane) -> Term:
        """Return the bits of a number as an integer."""
        form = layout(x.dtype)
        if form.short:
            return formats.to_bits(x.re, x.dtype.name)
        return x.re.raw() if form.kind == "f" else integers.code(x.re, form.bits)

    def _of_code(self, code: Term, dtype: np.dtype[Any]) -> Lane:
        form = layout(dtype)
        if form.short:
            return Lane(dtype, formats.from_bits(code, dtype.name))
        return Lane(dtype, code.as_float()) if form.kind == "f" else self._integer(code, dtype)

    def bitcast(self, x: Lane, dtype: np.dtype[Any]) -> Lane:
        """Reinterpret the bits as another dtype of the same width."""
        if layout(x.dtype).bits != layout(dtype).bits or "c" in (layout(x.dtype).kind, layout(dtype).kind):
            raise InternalError(f"Cannot bitcast {dtypes.name(x.dtype)} to {dtypes.name(dtype)}.")
        return x if x.dtype == dtype else self._of_code(self._code(x), dtype)

    def convert(self, x: Lane, dtype: np.dtype[Any]) -> Lane:
        """Convert to another dtype: floats saturate at the limits of integers (nan is 0), integers wrap."""
        if x.dtype == dtype:
            return x
        source, target = layout(x.dtype), layout(dtype)
        if target.kind == "c":
            part = dtypes.to_real_dtype(dtype)
            if source.kind != "c":
                re = self.convert(x, part)
                return Lane(dtype, re.re, re.re.of(0))
            whole = dtypes.to_real_dtype(x.dtype)
            return Lane(dtype, *(self.convert(Lane(whole, p), part).re for p in x.pair))
        if source.kind == "c":
            return self.convert(self.real(x), dtype)
        if target.kind == "b":
            return Lane(dtype, x.re.differs(0))
        if target.kind == "f":
            return self._to_float(x, dtype)
        return self._to_integer(x, dtype)

    def _to_float(self, x: Lane, dtype: np.dtype[Any]) -> Lane:
        f = self.function
        source, target = layout(x.dtype), layout(dtype)
        kind = x.re.vector_type(target.lane)
        if source.kind != "f":
            result = (f.sitofp if source.kind == "i" else f.uitofp)(x.re.value, kind)
            return self._round_to(Term(f, result), dtype)
        if source.bits == 64:
            if dtype == dtypes.float16:
                return Lane(dtype, formats.half_from_double(x.re))
            return self._round_to(x.re.short(), dtype)
        return Lane(dtype, x.re.long()) if target.bits == 64 else self._round_to(x.re, dtype)

    def _to_integer(self, x: Lane, dtype: np.dtype[Any]) -> Lane:
        f = self.function
        source, target = layout(x.dtype), layout(dtype)
        signed = target.kind == "i"
        if source.kind == "f":
            width = max(target.bits, 32)
            result = Term(f, f.saturating(x.re.value, x.re.vector_type(integer(width)), signed))
            if target.bits < 32:
                top = (1 << (target.bits - signed)) - 1
                result = Term(f, (f.smin if signed else f.umin)(result.value, result.of(top).value))
                if signed:
                    result = Term(f, f.smax(result.value, result.of(-top - 1).value))
                result = result.narrow(target.lane.bits)
            return Lane(dtype, result)
        wide, narrow = target.lane.bits, source.lane.bits
        if wide > narrow:
            return self._integer(x.re.wide(wide, signed=source.kind == "i"), dtype)
        return self._integer(x.re.narrow(wide) if wide < narrow else x.re, dtype)


def _terms(x: Lane) -> tuple[Term, ...]:
    return (x.re,) if x.im is None else x.pair


# The primitives `and`, `or` and `not` are named like keywords of Python.
for _name, _method in (("and", Lanes.and_), ("or", Lanes.or_), ("not", Lanes.not_)):
    setattr(Lanes, _name, _method)
