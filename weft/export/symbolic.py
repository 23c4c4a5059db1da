"""Symbolic sizes for exports: shapes from texts, and the sizes of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base import tree
from weft.base.dtypes import canonicalize_dtype
from weft.base.errors import ArgumentError, ArgumentTypeError, InvalidInputTypeError
from weft.base.source import user_line
from weft.indexing.dimension import (
    SMALLEST_SIZE,
    Dimension,
    InconclusiveDimensionError,
    Shape,
    is_constant,
    is_symbolic,
    is_symbolic_shape,
    parse_dimension,
    parse_shape,
    shape_symbols,
)
from weft.indexing.expression import Expression, Symbol, free_symbols, linear_in, substitute
from weft.indexing.guards import Assumption
from weft.indexing.text import dimension_text, shape_text
from weft.ir.types import ShapeDtypeStruct, Type, get_aval


class SymbolicScope:
    """Names of sizes that belong together, with the constraints on them: in one scope a name is one size."""

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        if isinstance(constraints_str, str):
            raise ArgumentError(
                "The symbolic constraints should be a sequence of strings.",
                received=repr(constraints_str),
                fix=f"constraints=[{constraints_str!r}]",
            )
        self.constraints = tuple(constraints_str)
        self._created = user_line()
        self._symbols: dict[str, Symbol] = {}
        # Names with bounds are fixed here, in whatever order shapes come.
        names = sorted({symbol.name for text in self.constraints for symbol in _parse_symbols(text)})
        found = parse_shape(", ".join(names), constraints=self.constraints)
        self._known: dict[str, Dimension] = dict(zip(names, map(self._own, found), strict=True))

    def shape(self, text: str, like: Sequence[Dimension | None] | None = None) -> Shape:
        """Return the shape that a text describes."""
        shape = parse_shape(text, known=self._known, like=like, any_sign=True)
        for symbol in shape_symbols(shape):
            if symbol.scope is None:
                self._known.setdefault(symbol.name, self._own(symbol))
        return tuple(map(self._own, shape))

    def _own(self, size: Dimension) -> Dimension:
        """Return the size with symbols of this scope in place of those of no scope."""
        found = {symbol: self._own_symbol(symbol) for symbol in free_symbols(size) if symbol.scope is None}
        owned: Dimension = substitute(size, found) if found else size
        return owned

    def _own_symbol(self, symbol: Symbol) -> Symbol:
        if symbol.name not in self._symbols:
            lower, upper = (None if b is None else self._own(b) for b in (symbol.lower, symbol.upper))
            self._symbols[symbol.name] = Symbol(symbol.name, lower, upper).within(self)
        return self._symbols[symbol.name]

    def __repr__(self) -> str:
        constraints = "".join(f"\n  {text}" for text in self.constraints)
        at = "" if self._created is None else f" created at {self._created}"
        return f"SymbolicScope {id(self)}{at}{' with constraints:' if constraints else ''}{constraints}"


def _parse_symbols(constraint: str) -> tuple[Symbol, ...]:
    """Return the symbols that a constraint names."""
    return shape_symbols([parse_dimension(text) for text in re.split("[<>=!]=?", constraint)])


def check_single_scope(name: str, shapes: Mapping[str, Sequence[Any]]) -> None:
    """Raise an error unless the symbols in all shapes, by argument, were declared in one scope."""
    first: tuple[str, Any] | None = None
    for where, shape in shapes.items():
        for size in shape:
            scope = size.scope if isinstance(size, Expression) else None
            if scope is None:
                continue
            first = first or (where, scope)
            if scope is not first[1]:
                raise ArgumentError(
                    f"Invalid mixing of symbolic scopes when exporting {name}.\nExpected current (from {first[0]}) "
                    f"scope {first[1]}\nand found for '{dimension_text(size)}' ({where}) scope {scope}",
                    fix="scope = SymbolicScope(); symbolic_shape(..., scope=scope) for all shapes",
                    at=user_line(),
                )


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """Parse a symbolic shape: integers, names of sizes, and expressions of them (`+ - * // %`, `min`, `max`).

    Names are at least 1. `constraints` are comparisons such as `"b >= 8"`; `scope` has names and constraints that
    several shapes share. With `like`, `_` is the size of that shape there and `...` all of its sizes; no text at all is
    all of them.

    >>> from weft import export
    >>> export.symbolic_shape("b, 2*t, 8", constraints=["t <= b"])
    (b, 2*t, 8)
    """
    if scope is not None and constraints:
        raise ArgumentError("Constraints must be those of the scope if one is given.", fix="SymbolicScope(constraints)")
    own = SymbolicScope(constraints) if scope is None else scope
    if shape_spec is None:
        shape_spec = "..."
    if not isinstance(shape_spec, str):
        raise ArgumentTypeError("A symbolic shape must be a string.", received=repr(shape_spec), fix='"b, 2*t, 8"')
    return own.shape(shape_spec, like)


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """Make `ShapeDtypeStruct`s for a tree of arrays, with the shapes of `shapes_specs`: a tree prefix of `args` whose
    leaves are strings as for `symbolic_shape`, or None for the shape of the array.

    >>> import numpy
    >>> from weft import export
    >>> export.symbolic_args_specs((numpy.ones((3, 4), "f4"),), ("b, _",))
    (ShapeDtypeStruct(shape=(b, 4), dtype=float32),)
    """
    if scope is not None and constraints:
        raise ArgumentError("Constraints must be those of the scope if one is given.", fix="SymbolicScope(constraints)")
    own = SymbolicScope(constraints) if scope is None else scope
    leaves, structure = tree.flatten(args)
    try:
        texts = tree.broadcast_prefix(shapes_specs, args, is_leaf=lambda spec: spec is None or isinstance(spec, str))
    except ArgumentError as error:
        raise ArgumentError(
            "pytree structure error: different types or sizes of nodes. The polymorphic shapes must be a prefix of the "
            "tree of arguments.",
            received=str(error).partition("\n")[2].strip(),
            at=user_line(),
        ) from None
    specs = []
    for leaf, text in zip(leaves, texts, strict=True):
        if text is not None and not isinstance(text, str):
            raise ArgumentError("A polymorphic shape spec should be None or a string.", received=repr(text))
        aval: Any = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else get_aval(leaf)
        shape = tuple(aval.shape) if text is None else own.shape(text, aval.shape)
        specs.append(ShapeDtypeStruct(shape, canonicalize_dtype(aval.dtype, allow_extended_dtype=True)))
    return tree.unflatten(structure, specs)


def is_symbolic_dim(p: Any) -> bool:
    """Return whether a size is symbolic."""
    return isinstance(p, Expression)


class _Call:
    """Solver for the symbols of an export from the dimensions of a call, one after the other."""

    def __init__(self, expected: Sequence[Type], received: Sequence[Type], names: Sequence[str]) -> None:
        self.sizes: dict[Symbol, Dimension] = {}
        self.names = names
        self.shapes = [tuple(getattr(t, "shape", ())) for t in expected]
        self.dimensions = [
            (f"{name}.shape[{axis}]", dimension, size)
            for name, shape, own in zip(names, self.shapes, received, strict=True)
            for axis, (dimension, size) in enumerate(zip(shape, getattr(own, "shape", ()), strict=True))
        ]
        self.solutions: list[str] = []

    def error(self, what: str, fix: str, unsolved: str = "") -> ArgumentError:
        """Return an error that says which specifications hold and how far they are solved."""
        shapes = [
            f"{name}.shape = {shape_text(shape)}"
            for name, shape in zip(self.names, self.shapes, strict=True)
            if is_symbolic_shape(shape)
        ]
        what += f" Using the following polymorphic shapes specifications: {', '.join(shapes)}."
        if self.solutions and not unsolved:
            what += f" Obtained dimension variables: {', '.join(self.solutions)}."
        return ArgumentError(what + unsolved, fix=fix, at=user_line())

    def mismatch(self, what: str) -> ArgumentError:
        """Return the error of sizes that no values of the symbols have."""
        what = f"Input shapes do not match the polymorphic shapes specification. {what}"
        return self.error(what, "arguments of such sizes, or an export with other symbols")

    def solve(self) -> None:
        """Find the value of each symbol from a dimension that is linear in it and has no other open symbol."""
        waiting = [entry for entry in self.dimensions if is_symbolic(entry[1])]
        # Symbols on their own come first, so that errors name the simplest dimension.
        waiting.sort(key=lambda entry: not isinstance(entry[1], Symbol))
        while waiting:
            left = [entry for entry in waiting if not self._solve_one(*entry)]
            if len(left) == len(waiting):
                break
            waiting = left
        open_names = sorted({s.name for _, d, _ in waiting for s in shape_symbols([d]) if s not in self.sizes})
        if open_names:
            names = ", ".join(map(repr, open_names))
            unsolved = ", ".join(f"'{dimension_text(d)}' for dimension size {where}" for where, d, _ in waiting)
            raise self.error(
                f"Cannot solve for values of dimension variables {{{names}}}. "
                "We can only solve linear uni-variate constraints.",
                "symbolic_shape with each symbol in a dimension that is linear in it",
                f" Unprocessed specifications: {unsolved}.",
            )

    def _solve_one(self, where: str, dimension: Any, size: Any) -> bool:
        unknown = [s for s in shape_symbols([dimension]) if s not in self.sizes]
        if not unknown:
            return True
        split = linear_in(substitute(dimension, self.sizes), unknown[0]) if len(unknown) == 1 else None
        if split is None or not isinstance(split[0], int):
            return False
        value, rest = divmod(size - split[1], split[0])
        if isinstance(rest, Expression) or rest != 0:
            text = dimension_text(rest)
            raise self.mismatch(f"Division had remainder {text} when computing the value of '{unknown[0].name}'.")
        self.sizes[unknown[0]] = value
        self.solutions.append(
            f"'{unknown[0].name}' = {dimension_text(value)} from specification '{dimension_text(dimension)}' for "
            f"dimension {where} (= {dimension_text(size)})"
        )
        return True

    def check(self) -> None:
        """Raise an error unless all dimensions and all bounds of the symbols hold."""
        for symbol, size in self.sizes.items():
            least = symbol.lower if isinstance(symbol.lower, int) and symbol.lower < SMALLEST_SIZE else SMALLEST_SIZE
            if symbol.lower is not None and not _holds(size, least):
                raise self.mismatch(f"Expected value >= {least} for dimension variable '{symbol.name}'.")
        for where, dimension, size in self.dimensions:
            value = substitute(dimension, self.sizes)
            if value != size:
                raise self.mismatch(
                    f"Found inconsistency between dimension size {where} (= {dimension_text(size)}) and the "
                    f"specification '{dimension_text(dimension)}' (= {dimension_text(value)})."
                )
        for symbol in self.sizes:
            for difference in _differences(symbol):
                value = substitute(difference, self.sizes)
                if not _holds(value, 0):
                    raise self.error(
                        "Input shapes do not match the symbolic shape constraints. Expected "
                        f"'{dimension_text(difference)}' to be greater or equal to 0, but found "
                        f"{dimension_text(value)}.",
                        "arguments of sizes within the constraints, or an export with other constraints",
                    )


def _differences(symbol: Symbol) -> list[Any]:
    """Return what the bounds of a symbol say is at least 0."""
    lower = [] if symbol.lower is None else [symbol - symbol.lower]
    return lower + ([] if symbol.upper is None else [symbol.upper - symbol])


def _holds(value: Any, least: int) -> bool:
    """Return whether a size is known to be at least a number."""
    try:
        return bool(value >= least)
    except InconclusiveDimensionError:
        return False


def sizes_of_call(
    name: str, expected: Sequence[Type], received: Sequence[Type], names: Callable[[], Sequence[str]]
) -> dict[Symbol, Dimension]:
    """Return the sizes that the symbols of an export have in a call with arguments of types `received`.

    `names` returns the paths of the arguments, such as `args[0]`, for errors.
    """
    if any(
        own.__class__ is not wanted.__class__ or own != wanted for own, wanted in zip(received, expected, strict=True)
    ):
        for i, (wanted, own) in enumerate(zip(expected, received, strict=True)):
            _check_type(name, wanted, own, lambda i=i: names()[i])  # type: ignore[misc]
    if not any(is_symbolic_shape(getattr(t, "shape", ())) for t in expected):
        return {}
    call = _Call(expected, received, names())
    call.solve()
    call.check()
    return call.sizes


def _check_type(name: str, wanted: Type, own: Type, where: Callable[[], str]) -> None:
    """Raise an error unless an argument has the rank, the dtype and the constant sizes of the export."""
    shape, own_shape = getattr(wanted, "shape", ()), getattr(own, "shape", ())
    what = ""
    if len(shape) != len(own_shape):
        what = f"Rank mismatch for {where()}"
    elif getattr(own, "dtype", None) != getattr(wanted, "dtype", None):
        what = f"Dtype mismatch for {where()}"
    else:
        for axis, (dimension, size) in enumerate(zip(shape, own_shape, strict=True)):
            if is_constant(dimension) and size != dimension:
                what = f"Shape mismatch for {where()}.shape[{axis}] (expected same constant)"
                break
    if what:
        raise ArgumentError(
            f"{what}: {name} expected {wanted.short()} and was called with {own.short()}.",
            fix="convert the argument, or export for this type",
            at=user_line(),
        )


def check_assumptions(name: str, assumptions: Sequence[Assumption], sizes: Mapping[Symbol, Dimension]) -> None:
    """Raise an error if sizes are not what the function was told when it was traced."""
    for expression, line in assumptions:
        if substitute(expression, sizes) == 0:
            known = ", ".join(f"{s.name} = {sizes[s]}" for s in shape_symbols([expression]))
            raise InvalidInputTypeError(
                f"{name} was exported for sizes where {expression} is not zero: it asks whether they are equal"
                f"{f' at {line}' if line else ''}, and has one program, in which they are not.",
                received=known,
                fix=(
                    "another export for this size, with an int in its place",
                    "a function that need not ask, or a constraint of the symbols that answers it",
                ),
                at=user_line(),
            )
