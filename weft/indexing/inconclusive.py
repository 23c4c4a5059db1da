"""The error for a question about symbolic integers that has no one answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from weft.base.errors import InconclusiveDimensionOperation


class InconclusiveDimensionError(InconclusiveDimensionOperation, ValueError):
    """A question about a symbolic integer whose answer is not known to be the same for all values of its symbols."""


# Both classes share the page of the one that JAX has.
InconclusiveDimensionError.page = InconclusiveDimensionOperation.page


class ConstantSizeError(InconclusiveDimensionError, TypeError):
    """A size must be a number, but is symbolic."""


ConstantSizeError.page = InconclusiveDimensionOperation.page


def not_constant(what: str, size: Any) -> ConstantSizeError:
    """Create the error for a size that must be a number and is symbolic."""
    return ConstantSizeError(
        f"{what} needs a size that is a number, but the size is {size}.",
        received="known is " + ", ".join(bounds_text(symbol) for symbol in size.symbols),
        fix=(
            'jit(f, dynamic={"x": "b, _"})   with "_" for this size, so that each has a program of its own',
            "code that computes with the size as it is",
        ),
    )


class Bounded(Protocol):
    """Symbol, as far as errors describe it."""

    @property
    def name(self) -> str: ...

    @property
    def lower(self) -> Any: ...

    @property
    def upper(self) -> Any: ...


def inconclusive(question: str, symbols: Iterable[Bounded], fix: str | None = None) -> InconclusiveDimensionError:
    """Create the error for a question without a single answer: it names the question, the known bounds of its symbols,
    and how to declare more."""
    found = list(dict.fromkeys(symbols))
    name = found[0].name
    return InconclusiveDimensionError(
        f"Cannot decide {question}: it depends on the value of {', '.join(symbol.name for symbol in found)}.",
        received="known is " + ", ".join(bounds_text(symbol) for symbol in found),
        fix=(
            fix or f'symbolic_shape("{name}, ...", constraints=["{name} >= 2", "{name} <= 9"])   with bounds that hold',
            "an int as size, or code that need not ask",
        ),
    )


def bounds_text(symbol: Bounded) -> str:
    """Format the bounds of a symbol, as `1 <= b <= 8`."""
    lower = "" if symbol.lower is None else f"{symbol.lower} <= "
    upper = "" if symbol.upper is None else f" <= {symbol.upper}"
    return f"{lower}{symbol.name}{upper}"
