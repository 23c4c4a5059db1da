"""The assignment problem: matching rows to columns at the least total cost."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError, suggest as _suggest
from weft.typing import ArrayLike


def hungarian_algorithm(cost_matrix: ArrayLike) -> tuple[Array, Array]:
    """Return rows and columns of the cheapest assignment of min(n, m) pairs, sorted by row (Kuhn 1955)."""
    costs = wnp.asarray(cost_matrix)
    if costs.ndim != 2:
        raise ArgumentError(f"hungarian_algorithm needs a matrix of costs, got shape {costs.shape}")
    rows, columns = costs.shape
    if 0 in costs.shape:
        return wnp.zeros(0, wnp.int32), wnp.zeros(0, wnp.int32)
    if rows <= columns:
        return wnp.arange(rows, dtype=wnp.int32), _assign(costs)
    owners = _assign(costs.T)
    order = wnp.argsort(owners)
    return owners[order], order.astype(wnp.int32)


base_hungarian_algorithm = hungarian_algorithm


def _assign(costs: Array) -> Array:
    """Return the column of each row, for at least as many columns as rows.

    The algorithm is that of shortest augmenting paths with potentials.
    """
    rows, columns = costs.shape
    costs = costs.astype(wnp.promote_types(costs.dtype, wnp.float32))
    none = wnp.array(-1, wnp.int32)

    def add_row(row: Any, state: Any) -> Any:
        row_of, u, v = state  # the row of each column, potentials of rows and of columns
        infinite = wnp.full(columns, wnp.inf, costs.dtype)

        def searching(search: Any) -> Any:
            return search[-1]

        def grow(search: Any) -> Any:
            shortest, before, seen, sink, current, distance, _ = search
            reduced = distance + costs[current] - u[current] - v
            nearer = ~seen & (reduced < shortest)
            shortest = wnp.where(nearer, reduced, shortest)
            before = wnp.where(nearer, current, before)
            column = wnp.argmin(wnp.where(seen, wnp.inf, shortest)).astype(wnp.int32)
            distance = shortest[column]
            seen = seen.at[column].set(True)
            free = row_of[column] == none
            return (
                shortest, before, seen, wnp.where(free, column, sink), wnp.where(free, current, row_of[column]),
                distance, ~free,
            )  # fmt: skip

        start = (
            infinite, wnp.full(columns, -1, wnp.int32), wnp.zeros(columns, bool), none, wnp.asarray(row, wnp.int32),
            wnp.zeros((), costs.dtype), wnp.array(True),
        )  # fmt: skip
        shortest, before, seen, sink, _, distance, _ = lax.while_loop(searching, grow, start)

        # Update potentials so that exactly the edges on the path become tight.
        gain = wnp.where(seen, distance - shortest, 0.0)
        v = v - gain
        taken = seen & (row_of != none)
        u = u.at[wnp.where(taken, row_of, rows)].add(wnp.where(taken, gain, 0.0), mode="drop")
        u = u.at[row].add(distance)

        def reassign(step: Any) -> Any:
            row_of, column, _ = step
            owner = before[column]
            # The previous column of the owner is assigned next.
            previous = wnp.argmax(row_of == owner).astype(wnp.int32)
            return row_of.at[column].set(owner), previous, owner != row

        row_of, _, _ = lax.while_loop(lambda step: step[-1], reassign, (row_of, sink, wnp.array(True)))
        return row_of, u, v

    start = (wnp.full(columns, -1, wnp.int32), wnp.zeros(rows, costs.dtype), wnp.zeros(columns, costs.dtype))
    row_of, _, _ = lax.fori_loop(0, rows, add_row, start)
    column_of = wnp.zeros(rows, wnp.int32)
    return column_of.at[wnp.where(row_of >= 0, row_of, rows)].set(wnp.arange(columns, dtype=wnp.int32), mode="drop")


_suggest(__name__)
