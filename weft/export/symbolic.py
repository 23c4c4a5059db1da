"""Symbolic sizes for exports: shapes from texts, and the sizes of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from weft.base import tree
from weft.base.dtypes import canonicalize_dtype
from weft.base.errors import ArgumentError, ArgumentTypeError, InvalidInputTypeError
from weft.base.source import user_line
from weft.indexing.dimension import Dimension, Shape, definitely_less, parse_dimension, parse_shape, shape_symbols
from weft.indexing.expression import Expression, Symbol, linear_in, substitute
from weft.indexing.guards import Assumption
from weft.indexing.inconclusive import bounds_text
from weft.ir.types import ShapeDtypeStruct, Type, type_of


class SymbolicScope:
    """Names of sizes that belong together, with the constraints on them: in one scope a name is one size."""

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        if isinstance(constraints_str, str):
            raise ArgumentTypeError("The constraints of a scope are a sequence of texts.", received=constraints_str)
        self.constraints = tuple(constraints_str)
        # Names with bounds are fixed here, in whatever order shapes come.
        names = sorted({symbol.name for text in self.constraints for symbol in _symbols_of(text)})
        found = parse_shape(", ".join(names), constraints=self.constraints)
        self._known: dict[str, Dimension] = dict(zip(names, found, strict=True))

    def shape(self, text: str, like: Sequence[Dimension] | None = None) -> Shape:
        """The shape that a text describes."""
        shape = parse_shape(text, known=self._known, like=like)
        for symbol in shape_symbols(shape):
            self._known.setdefault(symbol.name, symbol)
        return shape

    def __repr__(self) -> str:
        return f"SymbolicScope({', '.join(self.constraints)})"


def _symbols_of(constraint: str) -> tuple[Symbol, ...]:
    """The symbols that a constraint names."""
    return shape_symbols([parse_dimension(text) for text in re.split("[<>=]=?", constraint)])


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """The shape that a text describes: integers, names of sizes, and expressions of them (`+ - * // %`, `min`, `max`).

    Names are at least 1. `constraints` are comparisons such as `"b >= 8"`; `scope` has names and constraints that
    several shapes share. With `like`, `_` is the size of that shape there and `...` all of its sizes; no text at all is
    all of them.

    >>> from weft import export
    >>> export.symbolic_shape("b, 2*t, 8", constraints=["t <= b"])
    (b, 2*t, 8)
    """
    if scope is not None and constraints:
        raise ArgumentError("Constraints are those of the scope.", fix="SymbolicScope(constraints)")
    own = SymbolicScope(constraints) if scope is None else scope
    if shape_spec is None:
        shape_spec = "..."
    if not isinstance(shape_spec, str):
        raise ArgumentTypeError("A symbolic shape is a text.", received=repr(shape_spec), fix='"b, 2*t, 8"')
    return own.shape(shape_spec, None if like is None else [1 if d is None else d for d in like])


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """`ShapeDtypeStruct`s for a tree of arrays, with the shapes of `shapes_specs`: a tree that is a prefix of `args`,
    whose leaves are texts as for `symbolic_shape`, or None for the shape that the array has.

    >>> import numpy
    >>> from weft import export
    >>> export.symbolic_args_specs((numpy.ones((3, 4), "f4"),), ("b, _",))
    (ShapeDtypeStruct(shape=(b, 4), dtype=float32),)
    """
    if scope is not None and constraints:
        raise ArgumentError("Constraints are those of the scope.", fix="SymbolicScope(constraints)")
    own = SymbolicScope(constraints) if scope is None else scope
    leaves, structure = tree.flatten(args)
    texts = tree.broadcast_prefix(shapes_specs, args, is_leaf=lambda spec: spec is None or isinstance(spec, str))
    specs = []
    for leaf, text in zip(leaves, texts, strict=True):
        aval: Any = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else type_of(leaf)
        shape = tuple(aval.shape) if text is None else own.shape(text, aval.shape)
        specs.append(ShapeDtypeStruct(shape, canonicalize_dtype(aval.dtype, allow_extended_dtype=True)))
    return tree.unflatten(structure, specs)


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is symbolic."""
    return isinstance(p, Expression)


def sizes_of_call(
    name: str, expected: Sequence[Type], received: Sequence[Type], names: Sequence[str]
) -> dict[Symbol, Dimension]:
    """The sizes that the symbols of an export have in a call, from the types of its arguments; an error that names the
    argument and the dimension where they do not fit."""
    sizes: dict[Symbol, Dimension] = {}
    open_dimensions: list[tuple[str, int, Any, Any]] = []
    for where, wanted, own in zip(names, expected, received, strict=True):
        own_shape, shape = getattr(own, "shape", None), getattr(wanted, "shape", None)
        if getattr(own, "dtype", None) != getattr(wanted, "dtype", None) or len(own_shape or ()) != len(shape or ()):
            raise InvalidInputTypeError(
                f"{name} was exported for another type of {where}.",
                received=f"{own.short()} for {wanted.short()}",
                fix="convert the argument, or export for this type",
                at=user_line(),
            )
        assert shape is not None and own_shape is not None
        open_dimensions += [(where, i, d, own_shape[i]) for i, d in enumerate(shape)]
    # Symbols on their own first, then what has one symbol that is not known yet.
    for alone in (True, False):
        for where, axis, dimension, size in open_dimensions:
            if isinstance(dimension, Symbol) == alone:
                _solve(name, where, axis, dimension, size, sizes)
    for where, axis, dimension, size in open_dimensions:
        _check(name, where, axis, dimension, size, sizes)
    _check_bounds(name, sizes)
    return sizes


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


def _solve(name: str, where: str, axis: int, dimension: Any, size: Any, sizes: dict[Symbol, Dimension]) -> None:
    unknown = [s for s in shape_symbols([dimension]) if s not in sizes]
    if len(unknown) != 1:
        return
    split = linear_in(substitute(dimension, sizes), unknown[0])
    if split is None or not isinstance(split[0], int):
        return
    value, rest = divmod(size - split[1], split[0])
    if not isinstance(rest, Expression) and rest == 0:
        sizes[unknown[0]] = value


def _check(name: str, where: str, axis: int, dimension: Any, size: Any, sizes: Mapping[Symbol, Dimension]) -> None:
    if substitute(dimension, sizes) == size:
        return
    unknown = [s.name for s in shape_symbols([dimension]) if s not in sizes]
    known = ", ".join(f"{s.name} = {value}" for s, value in sizes.items())
    what = f"{name} was exported for another size of {where}: dimension {axis} is {dimension}"
    if unknown:
        what += f", from which {', '.join(unknown)} cannot be told"
    raise InvalidInputTypeError(
        what + ".",
        received=f"{size}" + (f", where {known}" if known else ""),
        fix="an argument of that size, or an export with other symbols",
        at=user_line(),
    )


def _check_bounds(name: str, sizes: Mapping[Symbol, Dimension]) -> None:
    for symbol, size in sizes.items():
        lower, upper = (None if b is None else substitute(b, sizes) for b in (symbol.lower, symbol.upper))
        if (lower is not None and definitely_less(size, lower)) or (upper is not None and definitely_less(upper, size)):
            raise InvalidInputTypeError(
                f"{name} was exported for sizes with {bounds_text(symbol)}.",
                received=f"{symbol.name} = {size}",
                fix="an argument of that size, or an export with other constraints",
                at=user_line(),
            )
