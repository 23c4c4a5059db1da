"""Symbolic integers: immutable, interned expressions in a normal form, so that equal ones are one object.

An expression is a polynomial with integer coefficients over *atoms*: symbols, floor divisions, remainders, minima and
maxima. A constant is a plain Python int, never an expression; functions here take and return either. Polynomials over
symbols compare equal exactly when they are equal; the atoms are simplified by the rules below, using what is known of
ranges, so unequal normal forms do not prove that two divisions differ.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np

from weft.base.forks import held
from weft.indexing import polynomial
from weft.indexing.memoized import ask_for_all_sizes, memoize_binary
from weft.indexing.operators import Algebra, IntegerOperators, as_integer
from weft.indexing.polynomial import Coefficients, Monomial, Term, Terms
from weft.indexing.ranges import INFINITY, Range
from weft.indexing.signs import is_nonnegative

Integer: TypeAlias = "int | Expression"
Substitution: TypeAlias = Mapping[Any, Any]


# Expressions live as long as they are referenced; the lock makes look-up-or-insert one step for all threads.
_interned: weakref.WeakValueDictionary[tuple[Any, ...], Expression] = weakref.WeakValueDictionary()
_interning = held(threading.Lock())


class Expression(IntegerOperators):
    """Symbolic integer. Compare with `==` or `is`; combine with + - * // % ** and ints on either side.

    `<`, `<=`, `>`, `>=` and truth are answered when they hold, or fail, for all values of the symbols, and raise
    InconclusiveDimensionError otherwise.
    """

    __slots__ = ("__weakref__", "_order", "_range", "_symbols")

    _order: str | None
    _range: Range | None
    _symbols: tuple[Symbol, ...] | None

    @property
    def terms(self) -> Terms:
        """Normal form: (atoms multiplied together, coefficient), in a fixed order, the constant last."""
        return (((self,), 1),)

    @property
    def range(self) -> Range:
        """Interval that contains every value of the expression."""
        if self._range is None:
            self._range = _range_of_parts(self)
        return self._range

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Symbols in the expression, in name order."""
        if self._symbols is None:
            self._symbols = self._compute_symbols()
        return self._symbols

    @property
    def order(self) -> str:
        """Text that sorts expressions the same way in every process."""
        if self._order is None:
            self._order = self._compute_order()
        return self._order

    @property
    def scope(self) -> Any:
        """`export.SymbolicScope` in which the symbols were declared, or None."""
        return next((symbol._scope for symbol in self.symbols if symbol._scope is not None), None)

    # Not an ABC: that metaclass slows down isinstance, which every operation here asks.
    @abstractmethod
    def _operands(self) -> tuple[Integer, ...]:
        """Return the expressions directly inside this one."""

    @abstractmethod
    def _compute_range(self) -> Range: ...

    @abstractmethod
    def _compute_order(self) -> str: ...

    @abstractmethod
    def _substitute(self, visit: Callable[[Any], Any]) -> Any:
        """Build the same expression from operands passed through `visit`."""

    def _compute_symbols(self) -> tuple[Symbol, ...]:
        found = {symbol for part in self._operands() if isinstance(part, Expression) for symbol in part.symbols}
        return tuple(sorted(found, key=_order_text))

    def substitute(self, values: Substitution) -> Any:
        """Replace symbols (keys: Symbol or name) by ints, expressions, or NumPy integer arrays.

        With an array every symbol must be given; the result is then the array of values.
        """
        return substitute(self, values)

    def __copy__(self) -> Expression:
        return self

    def __deepcopy__(self, memo: Any) -> Expression:
        return self


class Symbol(Expression):
    """Integer known by name and, where given, by bounds (each an int or an expression of other symbols).

    The bounds are part of the symbol: two symbols of one name with different bounds are different symbols.
    """

    __slots__ = ("_scope", "lower", "name", "upper")

    name: str
    lower: Integer | None
    upper: Integer | None
    _scope: Any

    def __new__(cls, name: str, lower: Integer | None = None, upper: Integer | None = None) -> Symbol:
        lower, upper = (None if bound is None else as_integer(bound) for bound in (lower, upper))
        result: Symbol = _intern(cls, name=name, lower=lower, upper=upper, _scope=None)
        return result

    def within(self, scope: Any) -> Symbol:
        """Return a new symbol of this name and these bounds that belongs to a scope of an export."""
        created = self.renew()
        created._scope = scope
        return created

    def renew(self) -> Symbol:
        """Return a new symbol of this name and these bounds. It is equal to no other, so no memoized result applies to
        it."""
        created = object.__new__(Symbol)
        created._order = created._range = created._symbols = None
        created.name, created.lower, created.upper, created._scope = self.name, self.lower, self.upper, None
        return created

    def _operands(self) -> tuple[Integer, ...]:
        return ()

    def _compute_symbols(self) -> tuple[Symbol, ...]:
        return (self,)

    def _compute_range(self) -> Range:
        lower = -INFINITY if self.lower is None else value_range(self.lower).lower
        upper = INFINITY if self.upper is None else value_range(self.upper).upper
        # A symbol without possible values (an index into nothing) is read as one with the single value `lower`.
        return Range(lower, max(lower, upper))

    def _compute_order(self) -> str:
        padded = re.sub(r"\d+", lambda digits: digits.group().zfill(6), self.name)
        return f"{padded} {self.lower} {self.upper}"

    def _substitute(self, visit: Callable[[Any], Any]) -> Any:
        return self

    def _text(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self.lower, self.upper)


class Polynomial(Expression):
    """Sum of products of atoms that is neither a constant nor a single atom."""

    __slots__ = ("_terms",)

    _terms: Terms

    @property
    def terms(self) -> Terms:
        return self._terms

    def _operands(self) -> tuple[Integer, ...]:
        return tuple(dict.fromkeys(atom for monomial, _ in self._terms for atom in monomial))

    def _compute_range(self) -> Range:
        total = Range(0, 0)
        for monomial, coefficient in self._terms:
            product = Range(coefficient, coefficient)
            for atom, copies in itertools.groupby(monomial):
                product = product * atom.range ** len(list(copies))
            total = total + product
        return total

    def _compute_order(self) -> str:
        return "+".join(f"{c}*" + "*".join(atom.order for atom in monomial) for monomial, c in self._terms)

    def _substitute(self, visit: Callable[[Any], Any]) -> Any:
        total: Any = 0
        for monomial, coefficient in self._terms:
            product: Any = coefficient
            for atom in monomial:
                product = product * visit(atom)
            total = total + product
        return total

    def _text(self) -> str:
        return polynomial.text(self._terms, _factor_text)

    def __reduce__(self) -> tuple[Any, ...]:
        return from_terms, (self._terms,)


class Division(Expression):
    """Base of quotient and remainder: two operands and an operator between them."""

    __slots__ = ("dividend", "divisor")

    dividend: Integer
    divisor: Integer
    sign: ClassVar[str]
    apply: ClassVar[Callable[[Any, Any], Any]]

    def _operands(self) -> tuple[Integer, ...]:
        return self.dividend, self.divisor

    def _compute_range(self) -> Range:
        result: Range = type(self).apply(value_range(self.dividend), value_range(self.divisor))
        return result

    def _compute_order(self) -> str:
        return f"~({_order_text(self.dividend)}){self.sign}({_order_text(self.divisor)})"

    def _substitute(self, visit: Callable[[Any], Any]) -> Any:
        return type(self).apply(visit(self.dividend), visit(self.divisor))

    def _text(self) -> str:
        return f"{_factor_text(self.dividend)}{self.sign}{_factor_text(self.divisor)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).apply, (self.dividend, self.divisor)


class FloorDivide(Division):
    """`dividend // divisor`, rounded towards minus infinity, where no rule could simplify it."""

    __slots__ = ()
    sign = "//"
    apply = operator.floordiv


class Modulo(Division):
    """`dividend % divisor`, with the sign of the divisor, where no rule could simplify it."""

    __slots__ = ()
    sign = "%"
    apply = operator.mod


class Extremum(Expression):
    """Smallest (`sign` 1) or largest (`sign` -1) of several expressions, none known to win."""

    __slots__ = ("arguments", "sign")

    arguments: tuple[Integer, ...]
    sign: int

    def _operands(self) -> tuple[Integer, ...]:
        return self.arguments

    def _compute_range(self) -> Range:
        first, *others = (value_range(argument) for argument in self.arguments)
        for other in others:
            first = first.minimum(other) if self.sign > 0 else first.maximum(other)
        return first

    def _compute_order(self) -> str:
        return f"~{self._name}({','.join(map(_order_text, self.arguments))})"

    def _substitute(self, visit: Callable[[Any], Any]) -> Any:
        values = [visit(argument) for argument in self.arguments]
        if any(isinstance(value, np.ndarray) for value in values):
            smaller_or_larger = np.minimum if self.sign > 0 else np.maximum
            result = values[0]
            for value in values[1:]:
                result = smaller_or_larger(result, value)
            return result
        return _extremum(self.sign, values)

    @property
    def _name(self) -> str:
        return "min" if self.sign > 0 else "max"

    def _text(self) -> str:
        return f"{self._name}({', '.join(map(str, self.arguments))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _extremum, (self.sign, self.arguments)


def _intern(kind: type[Any], **fields: Any) -> Any:
    """Return the unique expression of this kind with these fields, creating it at its first use."""
    key = (kind, *fields.values())
    found = _interned.get(key)
    if found is None:
        created = object.__new__(kind)
        created._order = created._range = created._symbols = None
        for name, value in fields.items():
            setattr(created, name, value)
        with _interning:
            found = _interned.get(key)
            if found is None:
                found = _interned[key] = created
    return found


def _order_text(value: Integer) -> str:
    return value.order if isinstance(value, Expression) else str(value)


def _factor_text(value: Integer) -> str:
    """Format a value as a factor: in parentheses unless it binds as tightly as a name."""
    plain = value >= 0 if isinstance(value, int) else isinstance(value, Symbol | Extremum)
    return str(value) if plain else f"({value})"


# --- what is known ------------------------------------------------------------------------------------------------


def value_range(value: Integer) -> Range:
    """Return an interval that contains every value of an int or expression."""
    return value.range if isinstance(value, Expression) else Range(value, value)


@ask_for_all_sizes
def _range_of_parts(expression: Expression) -> Range:
    return expression._compute_range()


def free_symbols(value: Integer) -> tuple[Symbol, ...]:
    """Return the symbols of an int (none) or expression, in name order."""
    return value.symbols if isinstance(value, Expression) else ()


def as_terms(value: Integer) -> Terms:
    """Return the normal form of an int or expression as terms; zero has none."""
    if isinstance(value, Expression):
        return value.terms
    return (((), value),) if value else ()


@ask_for_all_sizes
def definitely_nonnegative(value: Integer) -> bool:
    """Return whether a value is known to be at least zero, by ranges and by bounds that are expressions themselves."""
    return is_nonnegative(value)


@ask_for_all_sizes
def linear_in(value: Integer, symbol: Symbol) -> tuple[Integer, Integer] | None:
    """Split a value into `(coefficient, rest)`, free of the symbol, with `value == coefficient * symbol + rest`; None
    if it is not linear in the symbol."""
    linear: list[Term] = []
    rest: list[Term] = []
    for monomial, coefficient in as_terms(value):
        others = tuple(atom for atom in monomial if atom is not symbol)
        if len(monomial) - len(others) > 1 or any(symbol in atom.symbols for atom in others):
            return None
        (rest if len(others) == len(monomial) else linear).append((others, coefficient))
    return from_terms(linear), from_terms(rest)


# --- polynomials --------------------------------------------------------------------------------------------------


def from_terms(terms: Iterable[Term]) -> Integer:
    """Add the terms up, in normal form."""
    total: Coefficients = {}
    polynomial.accumulate(total, terms)
    return _normal_form(total)


def _normal_form(total: Coefficients) -> Integer:
    if any(type(atom) is FloorDivide or type(atom) is Modulo for monomial in total for atom in monomial):
        _recombine(total)
    terms = [(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]
    if not terms:
        return 0
    if len(terms) == 1:
        monomial, coefficient = terms[0]
        if not monomial:
            return coefficient
        if coefficient == 1 and len(monomial) == 1:
            found: Integer = monomial[0]
            return found
    else:
        terms.sort(key=polynomial.term_order)
    result: Expression = _intern(Polynomial, _terms=tuple(terms))
    return result


@memoize_binary
def add(left: Integer, right: Integer) -> Integer:
    """Return the sum in normal form."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(right, int) and right == 0:
        return left
    if isinstance(left, int) and left == 0:
        return right
    return from_terms(as_terms(left) + as_terms(right))


@memoize_binary
def multiply(left: Integer, right: Integer) -> Integer:
    """Return the product in normal form, multiplied out."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return from_terms(polynomial.products(as_terms(left), as_terms(right)))


def _recombine(total: Coefficients) -> None:
    """Undo divisions in place: `d*(n//d) + n%d -> n`, `n - d*(n//d) -> n%d`, `n - n%d -> d*(n//d)`, and the like.

    The first rule also applies when more of `n//d` is there than needed, so that the form does not depend on the
    order of additions. The limit on steps is never near in practice; it shows that this ends.
    """
    for _ in range(8 * len(total)):
        if not any(
            coefficient and rule(total, monomial, coefficient, atom)
            for monomial, coefficient in sorted(total.items(), key=polynomial.term_order)
            for atom in dict.fromkeys(monomial)
            if (rule := _RECOMBINATIONS.get(type(atom)))
        ):
            return


def _recombine_remainder(total: Coefficients, monomial: Monomial, coefficient: int, atom: Modulo) -> bool:
    factor = polynomial.take_out(monomial, (atom,)) or ()
    quotient = floor_divide(atom.dividend, atom.divisor)
    divisor = _single_term(atom.divisor)
    if divisor is None or type(quotient) is not FloorDivide:
        return False
    multiple, needed = polynomial.join(polynomial.join(factor, (quotient,)), divisor[0]), coefficient * divisor[1]
    dividend = as_terms(atom.dividend)
    if not (
        polynomial.covers(total.get(multiple, 0), needed) or polynomial.contains(total, dividend, factor, -coefficient)
    ):
        return _join_remainders(total, monomial, coefficient, atom)
    polynomial.accumulate(total, [(monomial, -coefficient), (multiple, -needed)])
    polynomial.accumulate(total, polynomial.scale(dividend, factor, coefficient))
    return True


def _join_remainders(total: Coefficients, monomial: Monomial, coefficient: int, atom: Modulo) -> bool:
    """Rewrite `n%d + d*((n//d)%e)` to `n%(d*e)`."""
    if monomial != (atom,) or not isinstance(atom.divisor, int):
        return False
    quotient, needed = floor_divide(atom.dividend, atom.divisor), coefficient * atom.divisor
    for other in [
        m[0] for m, c in total.items() if len(m) == 1 and type(m[0]) is Modulo and polynomial.covers(c, needed)
    ]:
        if modulo(quotient, other.divisor) is other:
            polynomial.accumulate(total, [(monomial, -coefficient), ((other,), -needed)])
            merged = modulo(atom.dividend, multiply(atom.divisor, other.divisor))
            polynomial.accumulate(total, polynomial.scale(as_terms(merged), (), coefficient))
            return True
    return False


def _recombine_quotient(total: Coefficients, monomial: Monomial, coefficient: int, atom: FloorDivide) -> bool:
    pairs: list[tuple[Integer, Integer]] = [(atom.dividend, atom.divisor)]
    if isinstance(atom.divisor, int):
        # x//64 is also (x//8)//8.
        finer = {other for other_monomial in total for other in other_monomial if type(other) is FloorDivide}
        for other in sorted(finer - {atom}, key=_order_text):
            if other.dividend == atom.dividend and isinstance(other.divisor, int):
                if atom.divisor % other.divisor == 0:
                    pairs.append((other, atom.divisor // other.divisor))
    for dividend, divisor in pairs:
        divisor_term = _single_term(divisor)
        if divisor_term is None or coefficient % divisor_term[1]:
            continue
        times = -coefficient // divisor_term[1]
        factor = polynomial.take_out(polynomial.take_out(monomial, (atom,)) or (), divisor_term[0])
        if factor is not None and polynomial.contains(total, as_terms(dividend), factor, times):
            polynomial.accumulate(total, [(monomial, -coefficient)])
            polynomial.accumulate(total, polynomial.scale(as_terms(dividend), factor, -times))
            polynomial.accumulate(total, polynomial.scale(as_terms(modulo(dividend, divisor)), factor, times))
            return True
    return _divisions(atom.dividend, Modulo) > 0 and _absorb(total, monomial, coefficient, atom)


def _absorb(total: Coefficients, monomial: Monomial, coefficient: int, atom: FloorDivide) -> bool:
    """`q + r//d -> n//d` where `n = d*q + r` has fewer divisions than q and r together."""
    for other, other_coefficient in sorted(total.items(), key=polynomial.term_order):
        if monomial != (atom,) or other == monomial or other_coefficient % coefficient:
            continue
        beside = from_terms([(other, other_coefficient // coefficient)])
        whole = add(atom.dividend, multiply(atom.divisor, beside)) if _divisions(beside, FloorDivide) else 0
        if whole != 0 and _divisions(whole, Division) <= _divisions(atom.dividend, Division):
            polynomial.accumulate(total, [(monomial, -coefficient), (other, -other_coefficient)])
            quotient = as_terms(floor_divide(whole, atom.divisor))
            polynomial.accumulate(total, polynomial.scale(quotient, (), coefficient))
            return True
    return False


def _divisions(value: Integer, kind: type[Division]) -> int:
    """Count the factors of the terms that are divisions of a kind."""
    return sum(isinstance(atom, kind) for monomial, _ in as_terms(value) for atom in monomial)


_RECOMBINATIONS: dict[type, Callable[[Coefficients, Monomial, int, Any], bool]] = {
    Modulo: _recombine_remainder,
    FloorDivide: _recombine_quotient,
}


def _single_term(divisor: Integer) -> Term | None:
    """Return the term of a divisor that is a positive product of a number and symbols, or None."""
    terms = as_terms(divisor)
    simple = len(terms) == 1 and all(type(atom) is Symbol for atom in terms[0][0]) and value_range(divisor).lower > 0
    return terms[0] if simple else None


# --- division -----------------------------------------------------------------------------------------------------


@memoize_binary
def floor_divide(dividend: Integer, divisor: Integer) -> Integer:
    """Return `dividend // divisor`, simplified. A divisor that may be zero is not simplified."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    if value_range(divisor).upper < 0:
        dividend, divisor = multiply(dividend, -1), multiply(divisor, -1)
    if divisor == 1:
        return dividend
    if value_range(divisor).lower <= 0:
        return _atom(FloorDivide, dividend, divisor)
    constant = _constant_quotient(dividend, divisor)
    if constant is not None:
        return constant
    multiples, inside = _split_multiples(dividend, divisor)
    if multiples != 0:
        return add(multiples, floor_divide(inside, divisor))
    coarser = _split_by_common_factor(inside, divisor)
    if coarser is not None:
        _, coarse, coarse_divisor, _ = coarser
        return floor_divide(coarse, coarse_divisor)
    if type(inside) is Modulo:
        # (x % 64) // 8 -> (x // 8) % 8
        ratio, remainder = _split_multiples(inside.divisor, divisor)
        if remainder == 0:
            return modulo(floor_divide(inside.dividend, divisor), ratio)
    # (x // 4 + y) // 2 -> (x + 4*y) // 8
    for monomial, coefficient in as_terms(inside):
        if coefficient == 1 and len(monomial) == 1 and type(monomial[0]) is FloorDivide:
            inner = monomial[0]
            others = add(inside, multiply(inner, -1))
            return floor_divide(add(inner.dividend, multiply(inner.divisor, others)), multiply(inner.divisor, divisor))
    if isinstance(divisor, int) and polynomial.all_negative(as_terms(inside)):  # -n // 8 -> -((n + 7) // 8)
        return multiply(floor_divide(add(divisor - 1, multiply(inside, -1)), divisor), -1)
    distributed = _divide_extremum(inside, divisor)
    return _atom(FloorDivide, inside, divisor) if distributed is None else distributed


def _divide_extremum(dividend: Integer, divisor: Integer) -> Integer | None:
    """Divide each argument of a minimum or maximum: `(max(0, 2*n) + 1) // 2` is `max(0, n)`.

    Return None unless every quotient is free of divisions. The divisor is positive, so that quotients are in the order
    of the arguments.
    """
    extrema = [
        (monomial[0], coefficient)
        for monomial, coefficient in as_terms(dividend)
        if len(monomial) == 1 and type(monomial[0]) is Extremum
    ]
    if len(extrema) != 1:
        return None
    ((atom, coefficient),) = extrema
    others = add(dividend, multiply(atom, -coefficient))
    quotients = [floor_divide(add(multiply(a, coefficient), others), divisor) for a in atom.arguments]
    if any(_divisions(quotient, FloorDivide) for quotient in quotients):
        return None
    return _extremum(atom.sign if coefficient > 0 else -atom.sign, quotients)


@memoize_binary
def modulo(dividend: Integer, divisor: Integer) -> Integer:
    """Return `dividend % divisor`, simplified. A divisor that may be zero is not simplified."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend % divisor
    if value_range(divisor).upper < 0:
        return multiply(modulo(multiply(dividend, -1), multiply(divisor, -1)), -1)
    if divisor == 1:
        return 0
    if value_range(divisor).lower <= 0:
        return _atom(Modulo, dividend, divisor)
    constant = _constant_quotient(dividend, divisor)
    if constant is not None:
        return add(dividend, multiply(divisor, -constant))
    multiples, inside = _split_multiples(dividend, divisor)
    if multiples != 0:
        return modulo(inside, divisor)
    unwrapped = _unwrap_remainders(inside, divisor)
    if unwrapped is not inside:
        return modulo(unwrapped, divisor)
    coarser = _split_by_common_factor(inside, divisor)
    if coarser is not None:
        factor, coarse, coarse_divisor, fine = coarser
        return add(multiply(modulo(coarse, coarse_divisor), factor), fine)
    if isinstance(divisor, int) and polynomial.all_negative(as_terms(inside)):  # -n % 8 -> 7 - (n + 7) % 8
        return add(divisor - 1, multiply(modulo(add(divisor - 1, multiply(inside, -1)), divisor), -1))
    return _atom(Modulo, inside, divisor)


def _atom(kind: type[Division], dividend: Integer, divisor: Integer) -> Expression:
    """Create an atom for a division that no rule simplifies; raise if the divisor is zero."""
    if isinstance(divisor, int) and divisor == 0:
        raise ZeroDivisionError(f"The divisor of {dividend} must not be zero.")
    result: Expression = _intern(kind, dividend=dividend, divisor=divisor)
    return result


def _constant_quotient(dividend: Integer, divisor: Integer) -> int | None:
    """Return the quotient if it is the same for all values of the symbols, else None. The divisor must be positive."""
    quotient = value_range(dividend) // value_range(divisor)
    if quotient.is_constant:
        return int(quotient.lower)
    if isinstance(divisor, Expression):
        if 0 in quotient and definitely_nonnegative(dividend):
            return 0 if definitely_nonnegative(add(add(divisor, -1), multiply(dividend, -1))) else None
        if -1 in quotient and definitely_nonnegative(add(-1, multiply(dividend, -1))):
            return -1 if definitely_nonnegative(add(dividend, divisor)) else None
    return None


def _split_multiples(dividend: Integer, divisor: Integer) -> tuple[Integer, Integer]:
    """Return `(q, r)` with `dividend == q * divisor + r` and q as large a part of the dividend as can be found."""
    divisor_terms = as_terms(divisor)
    if len(divisor_terms) > 1:
        quotient, remainder = map(from_terms, polynomial.divide(as_terms(dividend), divisor_terms))
        # A part of a polynomial taken out of another only helps when it settles the rest.
        is_final = remainder == 0 or _constant_quotient(remainder, divisor) is not None
        return (quotient, remainder) if is_final else (0, dividend)
    ((divisor_monomial, divisor_coefficient),) = divisor_terms
    multiples: list[Term] = []
    inside: list[Term] = []
    for monomial, coefficient in as_terms(dividend):
        rest = polynomial.take_out(monomial, divisor_monomial)
        if rest is not None and coefficient % divisor_coefficient == 0:
            multiples.append((rest, coefficient // divisor_coefficient))
        elif not monomial and not divisor_monomial:
            multiples.append(((), coefficient // divisor_coefficient))
            inside.append(((), coefficient % divisor_coefficient))
        else:
            inside.append((monomial, coefficient))
    return from_terms(multiples), from_terms(inside)


def _split_by_common_factor(dividend: Integer, divisor: Integer) -> tuple[Integer, Integer, Integer, Integer] | None:
    """Return `(g, m, d, r)` with `dividend == g*m + r`, `divisor == g*d`, `0 <= r < g`, or None.

    Then `dividend // divisor == m // d` and `dividend % divisor == g * (m % d) + r`:
    `(8*k + j) // 16 -> k // 2` when `0 <= j < 8`.
    """
    terms, divisor_terms = as_terms(dividend), as_terms(divisor)
    content = math.gcd(*(coefficient for _, coefficient in divisor_terms))
    factors: set[int] = set()
    for monomial, coefficient in terms:
        if monomial:
            shared = math.gcd(content, coefficient)
            factors |= {shared} | {math.gcd(shared, factor) for factor in factors}
    candidates: list[Term] = [((), factor) for factor in sorted(factors - {1}, reverse=True)]
    if len(divisor_terms) == 1:
        candidates += [((atom,), 1) for atom in dict.fromkeys(divisor_terms[0][0]) if atom.range.lower >= 1]
    for factor_monomial, factor_coefficient in candidates:
        coarse: list[Term] = []
        fine: list[Term] = []
        for monomial, coefficient in terms:
            rest = polynomial.take_out(monomial, factor_monomial)
            if rest is None or coefficient % factor_coefficient or not monomial:
                fine.append((monomial, coefficient))
            else:
                coarse.append((rest, coefficient // factor_coefficient))
        factor_value = from_terms([(factor_monomial, factor_coefficient)])
        remainder = from_terms(fine)
        carried = _constant_quotient(remainder, factor_value)
        if coarse and carried is not None:
            coarse_divisor, _ = _split_multiples(divisor, factor_value)
            fine_part = add(remainder, multiply(factor_value, -carried))
            return factor_value, add(from_terms(coarse), carried), coarse_divisor, fine_part
    return None


def _unwrap_remainders(dividend: Integer, divisor: Integer) -> Integer:
    """Replace `c*(a % m)` by `c*a` where `c*m` is a multiple of the divisor, which a remainder by it does not see."""
    replaced = dividend
    for monomial, coefficient in as_terms(dividend):
        for atom in monomial:
            if type(atom) is not Modulo:
                continue
            factor = from_terms([(polynomial.take_out(monomial, (atom,)) or (), coefficient)])
            if _split_multiples(multiply(factor, atom.divisor), divisor)[1] == 0:
                replaced = add(replaced, multiply(factor, add(atom.dividend, multiply(atom, -1))))
                break
    return replaced


# --- minima, maxima, substitution -----------------------------------------------------------------------------------


@ask_for_all_sizes
def minimum(*values: Integer) -> Integer:
    """Return the smallest of the values; values known not to be the smallest are dropped."""
    if all(type(value) is int for value in values):
        return min(values)
    return _extremum(1, values)


@ask_for_all_sizes
def maximum(*values: Integer) -> Integer:
    """Return the largest of the values; values known not to be the largest are dropped."""
    if all(type(value) is int for value in values):
        return max(values)
    return _extremum(-1, values)


def _extremum(sign: int, values: Iterable[Integer]) -> Integer:
    flat: dict[Integer, None] = {}
    for value in values:
        nested = type(value) is Extremum and value.sign == sign
        flat.update(dict.fromkeys(value.arguments if nested else (as_integer(value),)))  # type: ignore[union-attr]
    candidates: list[Integer] = []
    for value in sorted(flat, key=_order_text):

        def beaten_by(other: Integer, loser: Integer = value) -> bool:
            return definitely_nonnegative(multiply(add(loser, multiply(other, -1)), sign))

        if not any(beaten_by(other) for other in candidates):
            candidates = [other for other in candidates if not beaten_by(value, other)] + [value]
    return candidates[0] if len(candidates) == 1 else _intern(Extremum, arguments=tuple(candidates), sign=sign)


def _replacement(key: Any, replacement: Any, value: Integer, values: Substitution) -> Any:
    """Check the replacement of a symbol of `value`; return an int or expression, or an array as int64."""
    if not isinstance(replacement, np.ndarray):
        integer = as_integer(replacement)
        if integer is None:
            raise TypeError(f"{key} must be replaced by an int, an expression or an integer array: {replacement!r}")
        return integer
    if replacement.dtype.kind not in "iu":
        raise TypeError(f"{key} must be replaced by integers, but the array has dtype {replacement.dtype}")
    missing = [symbol.name for symbol in free_symbols(value) if symbol not in values and symbol.name not in values]
    if missing:
        raise ValueError(f"{value} cannot be evaluated on arrays: no value for {', '.join(missing)}")
    # Narrow or unsigned integers would wrap around in the middle of the expression.
    return replacement.astype(np.int64)


@ask_for_all_sizes
def substitute(value: Integer, values: Substitution) -> Any:
    """Replace symbols (keys: Symbol or name) by ints, expressions, or NumPy integer arrays."""
    if not any(symbol in values or symbol.name in values for symbol in free_symbols(value)):
        return value
    known = {key: _replacement(key, replacement, value, values) for key, replacement in values.items()}
    done: dict[Expression, Any] = {}

    def visit(part: Any) -> Any:
        if not isinstance(part, Expression):
            return part
        if part not in done:
            if isinstance(part, Symbol):
                done[part] = known[part] if part in known else known.get(part.name, part)
            else:
                done[part] = part._substitute(visit)
        return done[part]

    return visit(value)


IntegerOperators.algebra = Algebra(add, multiply, floor_divide, modulo, definitely_nonnegative, linear_in)
