"""Declared symbolic sizes: the option `dynamic` of `jit`.

A function is traced once for symbols, and a call runs the program at its own sizes, which has the kernels of that trace
(`docs/design/symbolic.md`). Sizes 0 and 1 have programs of their own, since broadcasting treats them differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.base import tree
from weft.base.errors import ArgumentError
from weft.base.source import user_line
from weft.indexing.dimension import Dimension, parse_shape, shape_symbols
from weft.indexing.expression import Expression, Symbol, linear_in, substitute
from weft.ir.types import ArrayType, array_type

# Lower bound of every symbol.
LEAST = 2


class DynamicSizes:
    """Declared symbols for the sizes of arguments: a mapping from an argument's name or position to a text such as `"b,
    t, _"` or a dict from axes to names, or to a tree of these that is a prefix of the argument."""

    def __init__(self, dynamic: Any, caller: str) -> None:
        if not isinstance(dynamic, Mapping) or not all(isinstance(key, (str, int)) for key in dynamic):
            raise ArgumentError(
                f"{caller}: dynamic must be a dict from arguments to their symbolic shapes.",
                received=repr(dynamic),
                fix='jit(f, dynamic={"x": "b, t, _"}), with a name for each size that differs between calls',
                at=user_line(),
            )
        self.shapes, self.caller = dict(dynamic), caller
        self._symbols: dict[str, Symbol] = {}

    def general(
        self, types: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]
    ) -> tuple[tuple[Any, ...], dict[Symbol, int]]:
        """Return the types of the leaves with symbols for sizes, and the value of each symbol in this call; no values
        if a size is too small."""
        general: list[Any] = []
        sizes: dict[Symbol, int] = {}
        rest, asked = iter(types), dict(self.shapes)
        arguments = [*zip(names, range(len(args)), args, strict=True), *((k, k, kwargs[k]) for k in sorted(kwargs))]
        for name, index, argument in arguments:
            own = [next(rest) for _ in tree.leaves(argument)]
            shapes = asked.pop(name, asked.pop(index, None))
            texts = [None] * len(own) if shapes is None else tree.broadcast_prefix(shapes, argument, _is_shape)
            for n, (aval, text) in enumerate(zip(own, texts, strict=True)):
                where = name if len(own) == 1 else f"leaf {n} of {name}"
                general.append(aval if text is None else self._with_symbols(aval, text, where, sizes))
        if asked:
            raise ArgumentError(
                f"{self.caller}: the call must have all arguments that dynamic names.",
                received=f"{', '.join(map(repr, asked))}, and arguments {', '.join(a[0] for a in arguments) or 'none'}",
                at=user_line(),
            )
        return tuple(general), sizes if min(sizes.values(), default=0) >= LEAST else {}

    def _with_symbols(self, aval: Any, text: Any, where: str, sizes: dict[Symbol, int]) -> Any:
        """Return a type with the symbols that a text names."""
        if not isinstance(aval, ArrayType):
            raise ArgumentError(f"{self.caller}: {where} must be an array to have symbolic sizes.", at=user_line())
        shape = self._shape(aval, text, where)
        for dimension, size in zip(shape, aval.shape, strict=True):
            self._solve(dimension, size, where, sizes)
        return array_type(shape, aval.dtype, aval.weak_type, aval.explicit_sharding, aval.manual, aval.memory_space)

    def _shape(self, aval: ArrayType, text: Any, where: str) -> tuple[Dimension, ...]:
        """Parse the text, or the dict of axes, for the shape of one array."""
        try:
            if isinstance(text, str):
                found = parse_shape(text, like=aval.shape)
            else:
                entries: list[Any] = list(aval.shape)
                for axis, dimension in text.items():
                    entries[axis] = parse_shape(dimension)[0] if isinstance(dimension, str) else dimension
                found = tuple(entries)
        except (ValueError, IndexError) as error:
            raise ArgumentError(
                f"{self.caller}: the shape in dynamic for {where} must fit its rank. {error}",
                received=f"{text!r} for {aval.short()}",
                fix='as many sizes as the array has, "_" for those that stay, "..." for several of them',
                at=user_line(),
            ) from None
        return tuple(substitute(d, {s: self._symbol(s) for s in shape_symbols((d,))}) for d in found)

    def _symbol(self, symbol: Symbol) -> Symbol:
        """Return the symbol of a name, which all arguments share, for sizes of at least two."""
        least = symbol.lower if isinstance(symbol.lower, int) else LEAST
        return self._symbols.setdefault(symbol.name, Symbol(symbol.name, max(LEAST, least), symbol.upper))

    def _solve(self, dimension: Dimension, size: Any, where: str, sizes: dict[Symbol, int]) -> None:
        """Determine the values of the symbols of a dimension from its size."""
        if not isinstance(dimension, Expression):
            return
        unknown = [s for s in dimension.symbols if s not in sizes]
        if len(unknown) == 1:
            split = linear_in(substitute(dimension, sizes), unknown[0])
            if split is not None and isinstance(split[0], int) and isinstance(split[1], int):
                value, left = divmod(size - split[1], split[0])
                if not left:
                    sizes[unknown[0]] = value
        if substitute(dimension, sizes) != size:
            known = ", ".join(f"{s.name} = {v}" for s, v in sizes.items()) or "nothing else is known"
            raise ArgumentError(
                f"{self.caller}: a size of {where} must be {dimension}, as dynamic says.",
                received=f"{size}, where {known}",
                fix="other names for sizes that differ; a size that appears alone before it is part of an expression",
                at=user_line(),
            )


class KnownSizes:
    """Types of a signature with symbols; `sizes` matches the types of a call against them."""

    def __init__(self, types: Sequence[Any]) -> None:
        self.types = tuple(types)
        self._symbolic = [i for i, t in enumerate(types) if isinstance(t, ArrayType) and shape_symbols(t.shape)]
        self._others = [i for i in range(len(self.types)) if i not in self._symbolic]

    def sizes(self, types: Sequence[Any]) -> dict[Symbol, int] | None:
        """Return the values of the symbols if a call with these types has the signature; None if it does not, or if
        that is not easily decided."""
        general, sizes = self.types, dict[Symbol, int]()
        if len(types) != len(general):
            return None
        for i in self._symbolic:
            own, known = types[i], general[i]
            if not isinstance(own, ArrayType) or len(own.shape) != len(known.shape):
                return None
            for size, dimension in zip(own.shape, known.shape, strict=True):
                if dimension is size:
                    continue
                if not isinstance(dimension, Symbol) or type(size) is not int:
                    if dimension != size:
                        return None
                elif sizes.setdefault(dimension, size) != size or size < LEAST or size not in dimension.range:
                    return None
            same = array_type(
                known.shape, own.dtype, own.weak_type, own.explicit_sharding, own.manual, own.memory_space
            )
            if same is not known:
                return None
        symbolic = set(self._symbolic)
        others = all(
            own is known for i, (own, known) in enumerate(zip(types, general, strict=True)) if i not in symbolic
        )
        return sizes if others else None


def _is_shape(value: Any) -> bool:
    """Return whether a part of `dynamic` is for one array, or for all arrays below it: a text, or a dict of axes."""
    axes = isinstance(value, dict) and all(isinstance(key, int) for key in value)
    return value is None or isinstance(value, str) or axes
