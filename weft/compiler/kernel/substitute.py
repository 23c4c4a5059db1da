"""Substitution of loop variables by indices, the basis of merging and splitting loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.compiler.kernel.ir import (
    Accumulate,
    If,
    Index,
    Load,
    Loop,
    Matmul,
    Position,
    Prefetch,
    Rank,
    Statement,
    Store,
    Variable,
)


def substitute(body: Sequence[Statement], variable: Variable, by: Index) -> tuple[Statement, ...]:
    """Replace a variable by an index in every index and every limit of a loop."""

    def index(i: Index) -> Index:
        rest = Index(i.constant, tuple((t, c) for t, c in i.terms if t is not variable))
        return rest + by * i.coefficient(variable)

    result: list[Statement] = []
    for statement in body:
        match statement:
            case Load() | Store() | Prefetch() | Position() | Accumulate() | Rank():
                result.append(replace(statement, index=index(statement.index)))
            case Matmul():
                result.append(statement.changed(index))
            case Loop():
                limit = None if statement.limit is None else index(statement.limit)
                result.append(replace(statement, body=substitute(statement.body, variable, by), limit=limit))
            case If():
                result.append(replace(statement, body=substitute(statement.body, variable, by)))
            case _:
                result.append(statement)
    return tuple(result)
