"""`Carried`: how the values of bodies belong to the operands and results of the equation that carries them."""

from __future__ import annotations

from typing import Any

from weft.base.dataclass import dataclass


@dataclass(frozen=True)
class Carried:
    """Of an equation that carries jaxprs: `bodies`; for each of them the operands that are its arguments (an index,
    `~index` for slices along the first dimension, None for what is no operand); for each result of the equation the
    results of bodies that it is: (body, index, whether stacked along a first dimension); `carries`, (body, argument,
    result), whose next value is that result; and `predicates`, the bodies that only decide."""

    bodies: tuple[Any, ...]
    arguments: tuple[tuple[int | None, ...], ...]
    results: tuple[tuple[tuple[int, int, bool], ...], ...]
    carries: tuple[tuple[int, int, int], ...] = ()
    predicates: tuple[int, ...] = ()
