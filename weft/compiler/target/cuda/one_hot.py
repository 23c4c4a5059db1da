"""Scatters of one element per row into zeros, rewritten as elementwise operations that fuse.

    scatter-add(zeros, index, update)    ->    where(column == index, update, 0)

This is the gradient of picking one element per row, as in the loss of a classifier, which is added to another array
next: comparing is faster on a GPU than writing zeros and reading them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compiler.passes.decompose import with_definitions
from weft.compiler.target.cuda.library.composites import JaxprReader, is_literal, is_operation
from weft.ir.jaxpr import Equation, Jaxpr
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.select import where
from weft.primitives.movement.gather import GatherScatterMode
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, reshape


def with_one_hot(jaxpr: Jaxpr) -> Jaxpr:
    """Rewrite such scatters in a jaxpr."""
    reader = JaxprReader(jaxpr)
    return with_definitions(jaxpr, lambda equation: _definition(reader, equation))


def _definition(reader: JaxprReader, equation: Equation) -> Callable[..., Any] | None:
    if not is_operation(equation, "scatter-add") or equation.params["mode"] is GatherScatterMode.CLIP:
        return None
    zeros = reader.definition(equation.invars[0], "broadcast_in_dim")
    if zeros is None or not is_literal(zeros.invars[0], 0.0):
        return None
    shape, updates = (equation.invars[n].aval.shape for n in (0, 2))  # type: ignore[attr-defined]
    last = len(shape) - 1
    dimensions = equation.params["dimension_numbers"]
    rows = tuple(range(last))
    by_row = dimensions.operand_batching_dims == rows == dimensions.scatter_indices_batching_dims
    by_column = dimensions.inserted_window_dims == (last,) == dimensions.scatter_dims_to_operand_dims
    one = updates[:last] == shape[:last] and all(size == 1 for size in updates[last:])
    return define if by_row and by_column and one and last else None


def define(zeros: Any, indices: Any, updates: Any, **params: Any) -> Any:
    """Compute the scatter of one element per row. Indices outside a row equal no column, so they write nothing."""
    shape, last = zeros.shape, len(zeros.shape) - 1

    def across(x: Any) -> Any:
        row = reshape(x, new_sizes=shape[:last], dimensions=None)
        return broadcast_in_dim(row, shape=shape, broadcast_dimensions=tuple(range(last)))

    nothing = broadcast_in_dim(np.zeros((), zeros.dtype), shape=shape, broadcast_dimensions=())
    columns = iota(dtype=indices.dtype, shape=shape, dimension=last)
    # 0.0 + -0.0 is 0.0, as in the scatter.
    return add(where(eq(columns, across(indices)), across(updates), nothing), nothing)
