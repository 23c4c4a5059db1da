"""`BodyMap`: the correspondence between arguments and results of sub-jaxprs and those of their equation."""

from __future__ import annotations

from typing import Any

from weft.base.dataclass import dataclass


@dataclass(frozen=True)
class BodyMap:
    """How the sub-jaxprs (`bodies`) of an equation use its operands and produce its results.

    `arguments`: for each body, the operand of each argument: an index, `~index` for slices along the operand's first
    dimension, None for arguments that are not operands. `results`: for each result of the equation, the body results
    that it comes from: (body, index, whether stacked along a first dimension). `carries`: (body, argument, result)
    triples: the result is the argument's value in the next iteration. `predicates`: bodies that only return a
    condition.
    """

    bodies: tuple[Any, ...]
    arguments: tuple[tuple[int | None, ...], ...]
    results: tuple[tuple[tuple[int, int, bool], ...], ...]
    carries: tuple[tuple[int, int, int], ...] = ()
    predicates: tuple[int, ...] = ()
