"""Arithmetic over lanes written as Python writes it: a `Term` is an LLVM value and the function it is appended to.

The bodies of the elementary functions are written with it, once for every width: scalars, the vectors of a CPU, the
threads of a GPU. Each operator is one instruction, rounded by itself; a fused multiply-add is only where `fma` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft.compiler.target.llvm import Function, Type, Value, constant, double, float_, integer, vector

Operand: TypeAlias = "Term | int | float"


class Term:
    """Lanes of floats, integers or truth values; a Python number is the same constant in each lane."""

    __slots__ = ("function", "value")

    def __init__(self, function: Function, value: Value) -> None:
        self.function = function
        self.value = value

    @property
    def type(self) -> Type:
        """The LLVM type of the lanes."""
        return self.value.type

    @property
    def bits(self) -> int:
        """The width of one lane."""
        return self.value.type.bits

    def __repr__(self) -> str:
        return repr(self.value)

    def of(self, value: float) -> Term:
        """A constant of the same type."""
        return Term(self.function, constant(value, self.value.type))

    def typed(self, element: Type) -> Type:
        """The type of as many lanes of another element."""
        return vector(element, self.value.type.count)

    def _value(self, other: Operand) -> Value:
        return other.value if type(other) is Term else constant(other, self.value.type)  # type: ignore[arg-type]

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Term:
        f, a = self.function, self.value
        return Term(f, (f.fadd if a.type.kind == "float" else f.add)(a, self._value(other)))

    def __sub__(self, other: Operand) -> Term:
        f, a = self.function, self.value
        return Term(f, (f.fsub if a.type.kind == "float" else f.sub)(a, self._value(other)))

    def __mul__(self, other: Operand) -> Term:
        f, a = self.function, self.value
        return Term(f, (f.fmul if a.type.kind == "float" else f.mul)(a, self._value(other)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Term:
        return self.of(other) - self

    def __truediv__(self, other: Operand) -> Term:
        return Term(self.function, self.function.fdiv(self.value, self._value(other)))

    def __rtruediv__(self, other: float) -> Term:
        return self.of(other) / self

    def __neg__(self) -> Term:
        f, a = self.function, self.value
        return Term(f, f.fneg(a)) if a.type.kind == "float" else 0 - self

    def fma(self, factor: Operand, summand: Operand) -> Term:
        """self * factor + summand, rounded once."""
        return Term(self.function, self.function.fma(self.value, self._value(factor), self._value(summand)))

    def __and__(self, other: Operand) -> Term:
        return Term(self.function, self.function.and_(self.value, self._value(other)))

    def __or__(self, other: Operand) -> Term:
        return Term(self.function, self.function.or_(self.value, self._value(other)))

    def __xor__(self, other: Operand) -> Term:
        return Term(self.function, self.function.xor(self.value, self._value(other)))

    def __invert__(self) -> Term:
        return Term(self.function, self.function.not_(self.value))

    def __lshift__(self, other: Operand) -> Term:
        return Term(self.function, self.function.shl(self.value, self._value(other)))

    def __rshift__(self, other: Operand) -> Term:
        """Copies of the sign move in."""
        return Term(self.function, self.function.ashr(self.value, self._value(other)))

    def lshr(self, other: Operand) -> Term:
        """Zeros move in."""
        return Term(self.function, self.function.lshr(self.value, self._value(other)))

    # -- comparison: floats are ordered (nan compares false), integers signed -----------------------------------------

    def _compare(self, floats: str, integers: str, other: Operand) -> Term:
        f, a, b = self.function, self.value, self._value(other)
        return Term(f, f.fcmp(floats, a, b) if a.type.kind == "float" else f.icmp(integers, a, b))

    def __lt__(self, other: Operand) -> Term:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Operand) -> Term:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Operand) -> Term:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Operand) -> Term:
        return self._compare("oge", "sge", other)

    def equals(self, other: Operand) -> Term:
        """Whether equal; nan is equal to nothing."""
        return self._compare("oeq", "eq", other)

    def differs(self, other: Operand) -> Term:
        """Whether not equal; nan differs from everything."""
        return self._compare("une", "ne", other)

    def below(self, other: Operand) -> Term:
        """Whether less, of integers taken as unsigned."""
        return Term(self.function, self.function.icmp("ult", self.value, self._value(other)))

    def is_nan(self) -> Term:
        """Whether not a number."""
        return Term(self.function, self.function.fcmp("uno", self.value, self.value))

    def select(self, yes: Operand, no: Operand) -> Term:
        """Of truth values: `yes` where true, else `no`; at least one of them is a term."""
        if type(yes) is not Term:
            yes = no.of(yes)  # type: ignore[union-attr, arg-type]
        return Term(self.function, self.function.select(self.value, yes.value, yes._value(no)))

    def any(self) -> Value:
        """Of truth values: whether one of them is true."""
        return self.function.reduce("or", self.value)

    # -- functions that are instructions ---------------------------------------------------------------------------

    def __abs__(self) -> Term:
        return Term(self.function, self.function.fabs(self.value))

    def sqrt(self) -> Term:
        """The square root."""
        return Term(self.function, self.function.sqrt(self.value))

    def floor(self) -> Term:
        """The greatest integer not above."""
        return Term(self.function, self.function.floor(self.value))

    def rint(self) -> Term:
        """The nearest integer, the even one halfway."""
        return Term(self.function, self.function.roundeven(self.value))

    def trunc(self) -> Term:
        """The integer towards zero."""
        return Term(self.function, self.function.ftrunc(self.value))

    def copysign(self, other: Operand) -> Term:
        """The magnitude with the sign of another."""
        return Term(self.function, self.function.copysign(self.value, self._value(other)))

    def at_most(self, bound: Operand) -> Term:
        """The lesser; nan stays nan."""
        return (self > bound).select(bound, self)

    def at_least(self, bound: Operand) -> Term:
        """The greater; nan stays nan."""
        return (self < bound).select(bound, self)

    # -- other types -----------------------------------------------------------------------------------------------

    def raw(self) -> Term:
        """The bits of a float as an integer."""
        return Term(self.function, self.function.bitcast(self.value, self.typed(integer(self.bits))))

    def cooked(self) -> Term:
        """The float that the bits of an integer are."""
        return Term(self.function, self.function.bitcast(self.value, self.typed(float_ if self.bits == 32 else double)))

    def long(self) -> Term:
        """float32 as float64."""
        return Term(self.function, self.function.fpext(self.value, self.typed(double)))

    def short(self) -> Term:
        """float64 rounded to float32."""
        return Term(self.function, self.function.fptrunc(self.value, self.typed(float_)))

    def narrow(self, bits: int) -> Term:
        """The low bits of an integer."""
        return Term(self.function, self.function.trunc(self.value, self.typed(integer(bits))))

    def wide(self, bits: int, signed: bool = True) -> Term:
        """An integer in more bits."""
        f = self.function
        return Term(f, (f.sext if signed else f.zext)(self.value, self.typed(integer(bits))))

    def to_float(self, element: Type) -> Term:
        """A signed integer as the nearest float."""
        return Term(self.function, self.function.sitofp(self.value, self.typed(element)))

    def to_integer(self, element: Type) -> Term:
        """A float known to be in range, cut to a signed integer."""
        return Term(self.function, self.function.fptosi(self.value, self.typed(element)))


def polynomial(x: Term, coefficients: Sequence[float], table: str = "") -> Term:
    """c0 + c1*x + c2*x**2 + ...; longer ones in two interleaved chains, since one alone waits for itself.

    With the name of a `table` coefficients are read from there: for functions that have more of them than there are
    registers, which would be copied from one to another all the time.
    """
    terms = _from_table(x, coefficients, table) if table else list(coefficients)
    if len(terms) < 7:
        return _horner(x, terms)
    square = x * x
    return _horner(square, terms[1::2]).fma(x, _horner(square, terms[0::2]))


def _horner(x: Term, coefficients: Sequence[Operand]) -> Term:
    last = coefficients[-1]
    total = last if isinstance(last, Term) else x.of(last)
    for c in coefficients[-2::-1]:
        total = total.fma(x, c)
    return total


def _from_table(x: Term, coefficients: Sequence[float], table: str) -> list[Operand]:
    f, element = x.function, x.type.element
    stored = f.module.opaque_table(f"{table}_{x.bits}", element, coefficients)
    count, align = x.type.count, x.bits // 8
    loaded = [f.load(element, f.offset(stored, element, n), align) for n in range(len(coefficients))]
    return [Term(f, f.splat(value, count) if x.type.is_vector else value) for value in loaded]


def polynomial_pair(x: Term, coefficients: Sequence[float]) -> tuple[Term, Term]:
    """The same with what its last sum has rounded off; the first coefficient is the greatest part."""
    return quick_two_sum(x.of(coefficients[0]), x * polynomial(x, coefficients[1:]))


def two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """The rounded sum and what was rounded off."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def quick_two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """The rounded sum and what was rounded off, where |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Term, b: Operand) -> tuple[Term, Term]:
    """The rounded product and what was rounded off."""
    product = a * b
    return product, a.fma(b, -product)


def quotient(a: Term, b: Term, b_low: Term) -> Term:
    """a / (b + b_low), rounded hardly more than once; `b` is neither tiny nor huge."""
    inverse = 1 / b
    first = a * inverse
    return inverse.fma(first.fma(-b, a) - first * b_low, first)


# The width of a mantissa, the bias of exponents, and a number so large that adding it rounds to an integer, whose bits
# are then the last bits of the sum.
MANTISSA = {32: 23, 64: 52}
BIAS = {32: 127, 64: 1023}
SHIFTER = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}
SMALLEST_NORMAL = {32: 2.0**-126, 64: 2.0**-1022}


def power_of_two(n: Term) -> Term:
    """2**n for a float that is an integer within the exponents of normal numbers."""
    bits = n.bits
    # The addition puts n + bias into the last bits of the sum; they are shifted to where the exponent is.
    return ((n + (SHIFTER[bits] + BIAS[bits])).raw() << MANTISSA[bits]).cooked()


def powers_of_two(n: Term) -> tuple[Term, Term]:
    """Two powers whose product is 2**n, where n may be twice as large as the exponent of a normal number."""
    bits = n.bits
    shift = SHIFTER[bits] + BIAS[bits]
    shifted = n.fma(0.5, shift)
    return (shifted.raw() << MANTISSA[bits]).cooked(), power_of_two(n - (shifted - shift))


def scaled(x: Term, n: Term) -> Term:
    """x * 2**n, also where that is denormal or overflows."""
    first, second = powers_of_two(n)
    return x * first * second
