"""Arithmetic over lanes with Python's operators: a `Term` is an LLVM value and the function it is appended to.

The elementary functions are written with it, once for every width: scalars, vectors of a CPU, threads of a GPU. Each
operator is one instruction, rounded by itself; multiply-adds are fused only by `fma`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft.compiler.target.llvm import Function, Type, Value, constant, double, float_, integer, vector
from weft.compiler.target.math import unfused

Operand: TypeAlias = "Term | int | float"


class Term:
    """Lanes of floats, integers or booleans; a Python number stands for the constant in each lane."""

    __slots__ = ("function", "value")

    def __init__(self, function: Function, value: Value) -> None:
        self.function = function
        self.value = value

    @property
    def type(self) -> Type:
        """LLVM type of the lanes."""
        return self.value.type

    @property
    def bits(self) -> int:
        """Width of one lane."""
        return self.value.type.bits

    def __repr__(self) -> str:
        return repr(self.value)

    def of(self, value: float) -> Term:
        """Return a constant of the same type."""
        return Term(self.function, constant(value, self.value.type))

    def vector_type(self, element: Type) -> Type:
        """Return the type of equally many lanes of another element type."""
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
        """Compute self * factor + summand, rounded once."""
        f, operands = self.function, (self.value, self._value(factor), self._value(summand))
        return Term(f, f.fma(*operands) if f.module.fused else unfused.fma(f, *operands))

    def multiply_add(self, factor: Operand, summand: Operand) -> Term:
        """Compute self * factor + summand, rounded once if the machine has an instruction for that, else twice."""
        return self.fma(factor, summand) if self.function.module.fused else self * factor + summand

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
        """Shift right with copies of the sign."""
        return Term(self.function, self.function.ashr(self.value, self._value(other)))

    def lshr(self, other: Operand) -> Term:
        """Shift right with zeros."""
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
        """Return whether the operands are equal; nan is equal to nothing."""
        return self._compare("oeq", "eq", other)

    def differs(self, other: Operand) -> Term:
        """Return whether the operands are not equal; nan differs from everything."""
        return self._compare("une", "ne", other)

    def below(self, other: Operand) -> Term:
        """Return whether the first operand is less, for integers taken as unsigned."""
        return Term(self.function, self.function.icmp("ult", self.value, self._value(other)))

    def is_nan(self) -> Term:
        """Return whether the value is nan."""
        return Term(self.function, self.function.fcmp("uno", self.value, self.value))

    def select(self, yes: Operand, no: Operand) -> Term:
        """Select `yes` where the boolean is true, else `no`; at least one of them must be a term."""
        if type(yes) is not Term:
            yes = no.of(yes)  # type: ignore[union-attr, arg-type]
        return Term(self.function, self.function.select(self.value, yes.value, yes._value(no)))

    def any(self) -> Value:
        """Return whether any of the booleans is true."""
        return self.function.reduce("or", self.value)

    # -- functions of one instruction ------------------------------------------------------------------------------

    def __abs__(self) -> Term:
        return Term(self.function, self.function.fabs(self.value))

    def sqrt(self) -> Term:
        """Compute the square root."""
        return Term(self.function, self.function.sqrt(self.value))

    def floor(self) -> Term:
        """Round down to an integer."""
        return Term(self.function, self.function.floor(self.value))

    def rint(self) -> Term:
        """Round to the nearest integer, halfway cases to even."""
        return Term(self.function, self.function.roundeven(self.value))

    def trunc(self) -> Term:
        """Round towards zero."""
        return Term(self.function, self.function.ftrunc(self.value))

    def copysign(self, other: Operand) -> Term:
        """Return the magnitude with the sign of another number."""
        return Term(self.function, self.function.copysign(self.value, self._value(other)))

    def at_most(self, bound: Operand) -> Term:
        """Return the minimum; a nan in self propagates."""
        return (self > bound).select(bound, self)

    def at_least(self, bound: Operand) -> Term:
        """Return the maximum; a nan in self propagates."""
        return (self < bound).select(bound, self)

    # -- conversions -----------------------------------------------------------------------------------------------

    def raw(self) -> Term:
        """Bitcast a float to an integer."""
        return Term(self.function, self.function.bitcast(self.value, self.vector_type(integer(self.bits))))

    def as_float(self) -> Term:
        """Bitcast an integer to a float."""
        return Term(
            self.function, self.function.bitcast(self.value, self.vector_type(float_ if self.bits == 32 else double))
        )

    def long(self) -> Term:
        """Extend float32 to float64."""
        return Term(self.function, self.function.fpext(self.value, self.vector_type(double)))

    def short(self) -> Term:
        """Round float64 to float32."""
        return Term(self.function, self.function.fptrunc(self.value, self.vector_type(float_)))

    def narrow(self, bits: int) -> Term:
        """Truncate an integer to its low bits."""
        return Term(self.function, self.function.trunc(self.value, self.vector_type(integer(bits))))

    def wide(self, bits: int, signed: bool = True) -> Term:
        """Extend an integer."""
        f = self.function
        return Term(f, (f.sext if signed else f.zext)(self.value, self.vector_type(integer(bits))))

    def to_float(self, element: Type) -> Term:
        """Convert a signed integer to the nearest float."""
        return Term(self.function, self.function.sitofp(self.value, self.vector_type(element)))

    def to_integer(self, element: Type) -> Term:
        """Truncate a float, which must be in range, to a signed integer."""
        return Term(self.function, self.function.fptosi(self.value, self.vector_type(element)))


def polynomial(x: Term, coefficients: Sequence[float], table: str = "") -> Term:
    """Evaluate c0 + c1*x + c2*x**2 + ...; longer ones in two interleaved chains, since one alone waits for its own
    results.

    With the name of a `table` the coefficients are loaded from there: for functions with more of them than registers,
    which would otherwise be spilled all the time.
    """
    terms = _from_table(x, coefficients, table) if table else list(coefficients)
    if len(terms) < 7:
        return _horner(x, terms)
    square = x * x
    return _horner(square, terms[1::2]).multiply_add(x, _horner(square, terms[0::2]))


def _horner(x: Term, coefficients: Sequence[Operand]) -> Term:
    last = coefficients[-1]
    total = last if isinstance(last, Term) else x.of(last)
    for c in coefficients[-2::-1]:
        total = total.multiply_add(x, c)
    return total


def _from_table(x: Term, coefficients: Sequence[float], table: str) -> list[Operand]:
    f, element = x.function, x.type.element
    stored = f.module.opaque_table(f"{table}_{x.bits}", element, coefficients)
    count, align = x.type.count, x.bits // 8
    loaded = [f.load(element, f.offset(stored, element, n), align) for n in range(len(coefficients))]
    return [Term(f, f.splat(value, count) if x.type.is_vector else value) for value in loaded]


def polynomial_pair(x: Term, coefficients: Sequence[float]) -> tuple[Term, Term]:
    """Evaluate a polynomial as a pair of the result and the rounding error of its last sum; c0 must be the largest
    term."""
    return quick_two_sum(x.of(coefficients[0]), x * polynomial(x, coefficients[1:]))


def two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """Return the rounded sum and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def quick_two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """Return the rounded sum and its rounding error, where |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Term, b: Operand) -> tuple[Term, Term]:
    """Return the rounded product and its rounding error."""
    product = a * b
    return product, a.fma(b, -product)


def quotient(a: Term, b: Term, b_low: Term) -> Term:
    """Compute a / (b + b_low) with little more than one rounding; `b` must be neither tiny nor huge."""
    inverse = 1 / b
    first = a * inverse
    return inverse.fma(first.fma(-b, a) - first * b_low, first)


# Width of a mantissa, bias of exponents, and a large number: adding it rounds to an integer, which is then in the last
# bits of the sum.
MANTISSA = {32: 23, 64: 52}
BIAS = {32: 127, 64: 1023}
SHIFTER = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}
SMALLEST_NORMAL = {32: 2.0**-126, 64: 2.0**-1022}


def power_of_two(n: Term) -> Term:
    """Compute 2**n for a float with an integer value in the range of normal exponents."""
    bits = n.bits
    # The addition puts n + bias into the last bits of the sum; the shift moves them to the exponent.
    return ((n + (SHIFTER[bits] + BIAS[bits])).raw() << MANTISSA[bits]).as_float()


def powers_of_two(n: Term) -> tuple[Term, Term]:
    """Return two powers whose product is 2**n, where n may be twice as large as the exponent of a normal number."""
    bits = n.bits
    shift = SHIFTER[bits] + BIAS[bits]
    shifted = n.fma(0.5, shift)
    return (shifted.raw() << MANTISSA[bits]).as_float(), power_of_two(n - (shifted - shift))


def ldexp(x: Term, n: Term) -> Term:
    """Compute x * 2**n, also where that is denormal or overflows."""
    first, second = powers_of_two(n)
    return x * first * second
