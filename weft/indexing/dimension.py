"""Dimensions of shapes: an int, or an expression over symbols for sizes.

Type rules are written with these functions, so that a symbolic batch size passes through them; with ints each is the
plain integer operation after one check of the type.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from weft.base import dtypes
from weft.base.arguments import index
from weft.indexing.expression import (
    Expression,
    Extremum,
    FloorDivide,
    Integer,
    Modulo,
    Polynomial,
    Substitution,
    Symbol,
    definitely_nonnegative,
    free_symbols,
    linear_in,
    maximum as maximum,
    minimum as minimum,
    substitute,
    value_range,
)
from weft.indexing.inconclusive import (
    InconclusiveDimensionError as InconclusiveDimensionError,
    bounds_text,
    inconclusive,
)

for _kind in (Symbol, Polynomial, FloorDivide, Modulo, Extremum):
    dtypes.register_integer(_kind)

Dimension: TypeAlias = Integer
Shape: TypeAlias = "tuple[Dimension, ...]"

# Sizes are at least 1 unless said otherwise: an empty batch is the rare case, and much more simplifies without it.
SMALLEST_SIZE = 1


def symbol(name: str, lower: Dimension = SMALLEST_SIZE, upper: Dimension | None = None) -> Symbol:
    """Return a size known by name. A bound that is an expression of other symbols relates the sizes."""
    if not name.isidentifier():
        raise ValueError(f"The name of a symbolic dimension must be an identifier such as 'b'. Received: {name!r}")
    if not definitely_nonnegative(lower):
        raise ValueError(f"The lower bound of a dimension must be at least 0. Received: {name} >= {lower}")
    if upper is not None and definitely_less(upper, lower):
        raise ValueError(f"Unsatisfiable constraints: no size satisfies {lower} <= {name} <= {upper}")
    return Symbol(name, lower, upper)


def symbols(names: str, lower: Dimension = SMALLEST_SIZE, upper: Dimension | None = None) -> tuple[Symbol, ...]:
    """Return several symbols with the same bounds, from their names: `b, t = symbols("b, t")`."""
    return tuple(symbol(name, lower, upper) for name in names.replace(",", " ").split())


def is_symbolic(dimension: Dimension) -> bool:
    """Return whether a size is an expression and not a number."""
    return isinstance(dimension, Expression)


def is_constant(dimension: Dimension) -> bool:
    """Return whether a size is a number."""
    return not isinstance(dimension, Expression)


def is_symbolic_shape(shape: Iterable[Dimension]) -> bool:
    """Return whether any dimension is symbolic."""
    return any(isinstance(dimension, Expression) for dimension in shape)


def as_dimension(value: Any) -> Dimension:
    """Convert a size given by a user to an int or expression; raise if it is no integer or negative."""
    if isinstance(value, Expression):
        if value_range(value).upper < 0:
            raise ValueError(f"A dimension must be at least 0. Received: {value}, which is always negative")
        return value
    try:
        size = operator.index(value)
    except TypeError:
        raise TypeError(
            "Shapes must be 1D sequences of concrete values of integer type, or symbolic sizes, got the size "
            f"{value!r}."
        ) from None
    if size < 0:
        raise ValueError(f"A dimension must be at least 0. Received: {size}")
    return size


def index_or_size(value: Any) -> Any:
    """Convert an argument to an int, or return it if it is a symbolic size; raise TypeError otherwise."""
    return value if isinstance(value, Expression) else index(value)


def as_shape(values: Any) -> Shape:
    """Convert a shape given by a user, one size or a sequence of sizes, to a tuple."""
    if isinstance(values, Expression) or hasattr(values, "__index__"):
        return (as_dimension(values),)
    return tuple(map(as_dimension, values))


def same(left: Dimension, right: Dimension) -> bool:
    """Return whether two sizes are equal for all values of their symbols."""
    return left == right


def same_shape(left: Sequence[Dimension], right: Sequence[Dimension]) -> bool:
    """Return whether two shapes are equal for all values of their symbols."""
    return tuple(left) == tuple(right)


def definitely_different(left: Dimension, right: Dimension) -> bool:
    """Return whether two sizes differ for all values of their symbols."""
    if type(left) is int and type(right) is int:
        return left != right
    return definitely_less(left, right) or definitely_less(right, left)


def definitely_less(left: Dimension, right: Dimension) -> bool:
    """Return whether `left < right` for all values of their symbols; False if that is not known."""
    if type(left) is int and type(right) is int:
        return left < right
    return definitely_nonnegative(right - left - 1)


def definitely_less_equal(left: Dimension, right: Dimension) -> bool:
    """Return whether `left <= right` for all values of their symbols; False if that is not known."""
    if type(left) is int and type(right) is int:
        return left <= right
    return definitely_nonnegative(right - left)


def product(shape: Iterable[Dimension]) -> Dimension:
    """Return the number of elements of a shape."""
    total: Dimension = 1
    for dimension in shape:
        total = total * dimension
    return total


def divide_exactly(dividend: Dimension, divisor: Dimension) -> Dimension:
    """Divide two sizes; raise unless the divisor divides the dividend for all values of the symbols."""
    if not isinstance(divisor, Expression) and divisor == 0:
        raise ValueError(f"{dividend} cannot be divided by a dimension of size 0")
    rest = dividend % divisor
    if isinstance(rest, Expression) and 0 in rest.range:
        fix = f'symbolic_shape("{_multiple_text(divisor)}, ...")   where the size is declared, so that it is a multiple'
        raise inconclusive(f"whether {dividend} is a multiple of {divisor}", shape_symbols((dividend, divisor)), fix)
    if rest != 0:
        raise ValueError(f"{dividend} is not a multiple of {divisor}")
    return dividend // divisor


def _multiple_text(divisor: Dimension) -> str:
    return f"{divisor}*k" if isinstance(divisor, int | Symbol) else f"({divisor})*k"


def ceil_divide(dividend: Dimension, divisor: Dimension) -> Dimension:
    """Divide and round up, for a positive divisor: the number of steps of `divisor` that cover `dividend`."""
    return (dividend + divisor - 1) // divisor


def shape_symbols(shape: Iterable[Dimension]) -> tuple[Symbol, ...]:
    """Return the symbols in a shape, in the order of first appearance."""
    return tuple(dict.fromkeys(found for dimension in shape for found in free_symbols(dimension)))


def shape_text(shape: Sequence[Dimension]) -> str:
    """Format a shape as Python writes a tuple: `(b, 2*b)`, `(b,)`."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def substitute_shape(shape: Sequence[Dimension], values: Substitution) -> Shape:
    """Replace symbols (keys: Symbol or name) in a shape by sizes; raise if a size violates its symbol's bounds."""
    for found in shape_symbols(shape):
        size = values.get(found, values.get(found.name))
        if size is None:
            continue
        lower, upper = (None if bound is None else substitute(bound, values) for bound in (found.lower, found.upper))
        too_small = lower is not None and definitely_less(size, lower)
        if too_small or (upper is not None and definitely_less(upper, size)):
            raise ValueError(f"{found.name} was declared with {bounds_text(found)}. Received: {found.name} = {size}")
    return tuple(substitute(dimension, values) for dimension in shape)


# --- parsing --------------------------------------------------------------------------------------------------------

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": minimum,
    "max": maximum,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "non_negative": lambda size: maximum(size, 0),
}
# Number of arguments of a function; the others take at least one.
_ARITIES = {"floordiv": 2, "mod": 2, "non_negative": 1}
_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    # Each returns the expression that the relation says is nonnegative.
    ast.GtE: lambda left, right: left - right,
    ast.Gt: lambda left, right: left - right - 1,
    ast.LtE: lambda left, right: right - left,
    ast.Lt: lambda left, right: right - left - 1,
}


# Texts may come from files, and multiplying out a large power takes long.
LARGEST_POWER = 16


def parse_dimension(text: str, known: Mapping[str, Dimension] | None = None) -> Dimension:
    """Read one dimension, such as "2*b"; names not in `known` become symbols of at least 1."""
    return _evaluate(_parse(text), text, known or {})


def parse_shape(
    text: str,
    *,
    constraints: Sequence[str] = (),
    known: Mapping[str, Dimension] | None = None,
    like: Sequence[Dimension | None] | None = None,
    any_sign: bool = False,
) -> Shape:
    """Read a shape such as "(b, t, 2*b)", with or without the parentheses.

    `constraints` are comparisons such as "b >= 8" or "t <= 4*b". Where `like` is given, "_" is the size of the
    same dimension of it, and "..." all of its sizes there. With `any_sign` expressions may be negative for all values
    of their symbols.
    """
    if text.replace(" ", "") in ("", "()"):
        return ()
    tree = _parse(text)
    parts = list(tree.elts) if isinstance(tree, ast.Tuple | ast.List) else [tree]
    dots = [i for i, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...]
    if len(dots) > 1 or (dots and like is None):
        why = "no 'like' shape was given for ..." if like is None else '"..." may be in it once'
        raise _syntax_error(text, why)
    if dots:
        assert like is not None
        blanks = [ast.Name("_") for _ in range(len(like) - len(parts) + 1)]
        parts[dots[0] : dots[0] + 1] = blanks
    if like is not None and len(like) != len(parts):
        rank = f"'like' shape has only {len(like)} dimensions"
        why = f"{rank}, and the text has {len(parts)}"
        if len(parts) > len(like):
            why = f"because we parsed {len(like)} already and {rank}"
        raise _syntax_error(text, why)
    names = _with_bounds(constraints, known or {})
    result = []
    for i, part in enumerate(parts):
        if isinstance(part, ast.Name) and part.id == "_":
            if like is None:
                raise _syntax_error(text, "no 'like' shape was given for _")
            result.append(as_dimension(like[i]))
            continue
        size = _evaluate(part, text, names)
        expected = None if like is None else like[i]
        if isinstance(size, int) and isinstance(expected, int) and size != expected:
            raise _syntax_error(text, f"different size {size} for dimension {i}, which is {expected} in 'like' shape")
        result.append(size if any_sign and isinstance(size, Expression) else as_dimension(size))
    return tuple(result)


def _syntax_error(text: str, why: str) -> ValueError:
    return ValueError(f"A syntax error in symbolic shape {text!r}: {why}.")


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip().replace("^", "**"), mode="eval").body  # a power, as JAX writes it
    except SyntaxError:
        what = f"A syntax error in symbolic shape {text!r}: it must read like"
        raise ValueError(f'{what} "b, 2*t, 8".') from None


def _evaluate(node: ast.expr, text: str, known: Mapping[str, Dimension]) -> Dimension:
    match node:
        case ast.Constant(value=int() as value):
            return int(value)
        case ast.Name(id=name):
            return known[name] if name in known else symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, text, known)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand, text, known)
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() as power)) if power > LARGEST_POWER:
            raise ValueError(f"A dimension has powers of at most {LARGEST_POWER}. Received: {text!r}")
        case ast.BinOp(op=ast.Pow(), right=right) if not isinstance(right, ast.Constant):
            pass
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            computed: Dimension = _OPERATORS[type(op)](_evaluate(left, text, known), _evaluate(right, text, known))
            return computed
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS and len(
            arguments
        ) == _ARITIES.get(name, max(len(arguments), 1)):
            result: Dimension = _FUNCTIONS[name](*(_evaluate(argument, text, known) for argument in arguments))
            return result
    raise ValueError(
        f"A syntax error in symbolic shape {text!r}: a dimension is made of ints, names, + - * // % ** ^, min(...) and "
        f"max(...). Received: {ast.unparse(node)!r}"
    )


def _with_bounds(constraints: Sequence[str], known: Mapping[str, Dimension]) -> dict[str, Dimension]:
    """Return the symbols by name, with the bounds of the constraints. A name that an equation defines maps to an
    expression of other names."""
    equations = [text for text in constraints if "==" in text]
    if equations:
        return _with_equations(constraints, equations, known)
    bounds: dict[str, tuple[list[Dimension], list[Dimension]]] = {}
    for text in constraints:
        read = _read_constraint(text)
        if read is None:
            continue
        name, is_lower, bound = read
        lower, upper = bounds.setdefault(name, ([SMALLEST_SIZE], []))
        (lower if is_lower else upper).append(bound)
    resolved: dict[str, Dimension] = dict(known)
    open_names: list[str] = []

    def resolve(name: str) -> Dimension:
        if name not in resolved:
            if name in open_names:
                raise ValueError(f"Constraints go in a circle: {' needs '.join([*open_names, name])}")
            open_names.append(name)
            lower, upper = ([within(bound) for bound in side] for side in bounds.get(name, ([SMALLEST_SIZE], [])))
            resolved[name] = symbol(name, maximum(*lower), minimum(*upper) if upper else None)
            open_names.pop()
        return resolved[name]

    def within(bound: Dimension) -> Dimension:
        return as_dimension(substitute(bound, {found: resolve(found.name) for found in free_symbols(bound)}))

    for name in bounds:
        if name in known:
            raise ValueError(f"{name} is given already; make it with bounds instead of constraining it here")
        resolve(name)
    return resolved


def _with_equations(
    constraints: Sequence[str], equations: Sequence[str], known: Mapping[str, Dimension]
) -> dict[str, Dimension]:
    """Solve equations such as "a == 2*b" and "mod(b, 8) == 0" for a symbol each, and put the solutions into the other
    constraints: a size that is a multiple of 8 is 8 times another."""
    solved: dict[Symbol, Dimension] = {}
    for text in equations:
        symbol_, value = _solve(text, solved)
        solved = {s: substitute(v, {symbol_: value}) for s, v in solved.items()} | {symbol_: value}
    others: list[str] = []
    for text in constraints:
        if text not in equations:
            node = _parse(text)
            names: dict[str, Dimension] = {s.name: v for s, v in solved.items()}
            if not isinstance(node, ast.Compare):
                raise _not_a_constraint(text)
            left, right = (_evaluate(side, text, names) for side in (node.left, node.comparators[0]))
            others.append(ast.unparse(ast.Compare(_parse(str(left)), node.ops, [_parse(str(right))])))
    # A name that is defined is at least 1, as others are.
    others += [f"{value} >= {SMALLEST_SIZE}" for value in solved.values() if _may_be_small(value)]
    resolved = _with_bounds(others, known)
    for symbol_, value in solved.items():
        resolved[symbol_.name] = substitute(value, {s: resolved.get(s.name, s) for s in free_symbols(value)})
    return resolved


def _may_be_small(value: Dimension) -> bool:
    return isinstance(value, Expression) and value_range(value).lower < SMALLEST_SIZE


def _solve(text: str, solved: Mapping[Symbol, Dimension]) -> tuple[Symbol, Dimension]:
    """Solve an equation for one of its symbols; return the symbol and its value in terms of others."""
    node = _parse(text)
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)):
        raise _not_a_constraint(text)
    left, right = (substitute(_evaluate(side, text, {}), solved) for side in (node.left, node.comparators[0]))
    for side, other in ((left, right), (right, left)):
        match side:
            case Modulo(dividend=Symbol() as dividend, divisor=int() as divisor) if isinstance(other, int):
                return dividend, divisor * symbol(f"{dividend.name}_{divisor}", int(other == 0)) + other
            case FloorDivide(dividend=Symbol() as dividend, divisor=int() as divisor) if (
                divisor > 0 and dividend not in free_symbols(other)
            ):
                return dividend, divisor * other + symbol(f"{dividend.name}_{divisor}", 0, divisor - 1)
    difference = left - right
    if definitely_different(difference, 0):
        raise ValueError(f"Unsatisfiable explicit constraint: {text.strip()}")
    # A symbol that is alone on one side is the one that is defined.
    for found in sorted(free_symbols(difference), key=lambda s: (s is not left, s is not right)):
        coefficient, rest = linear_in(difference, found) or (0, 0)
        if isinstance(coefficient, int) and abs(coefficient) == 1:
            return found, -coefficient * rest
    raise _not_a_constraint(text)


def _read_constraint(text: str) -> tuple[str, bool, Dimension] | None:
    """Parse a comparison; return (name, whether the bound is a lower one, bound), or None if it always holds."""
    node = _parse(text)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _RELATIONS:
        left, right = _evaluate(node.left, text, {}), _evaluate(node.comparators[0], text, {})
        nonnegative = _RELATIONS[type(node.ops[0])](left, right)
        if isinstance(nonnegative, int) and nonnegative >= 0:
            return None
        if definitely_less(nonnegative, 0):
            raise ValueError(f"Unsatisfiable explicit constraint: {text.strip()}")
        # The symbol that is alone on one side is the one that is bounded; failing that, any symbol that can be.
        for found in sorted(free_symbols(nonnegative), key=lambda s: (s is not left, s is not right)):
            split = linear_in(nonnegative, found)
            if split is None:
                continue
            coefficient, rest = split
            if coefficient == 1:
                return found.name, True, -rest
            if coefficient == -1:
                return found.name, False, rest
            if isinstance(coefficient, int) and coefficient and found not in free_symbols(rest):
                return found.name, coefficient > 0, -(rest // coefficient) if coefficient > 0 else rest // -coefficient
    raise _not_a_constraint(text)


def _not_a_constraint(text: str) -> ValueError:
    if not any(relation in text for relation in ("==", "<", ">")):
        return ValueError(
            f"Constraint parsing error: must contain one of '==' or '>=' or '<=', < or >. Received: {text!r}"
        )
    return ValueError(
        'A constraint must bound one symbol by <, <=, > or >=, as in "b >= 8" or "t <= 4*b", or define one by ==, as '
        f'in "a == 2*b" or "mod(b, 8) == 0". Received: {text!r}'
    )
