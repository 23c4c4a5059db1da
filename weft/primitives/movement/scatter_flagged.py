"""Scatter with a flag for checks. The compiler creates it: `passes/flags.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Primitive, lookup, primitive
from weft.ir.types import ArrayType, Type, array_type
from weft.primitives.movement.scatter import Scatter, Scattering, window_sizes

_FLAG = array_type((), np.dtype(np.bool_))


@primitive
class scatter_flagged(Scattering):
    """Scatter named `scatter`, and a flag: with `outside`, whether a window is not in the operand; with `nan`,
    which is for sums and products only, whether a result of an update is nan."""

    multiple_results = True

    def type(
        self,
        x: ArrayType,
        indices: ArrayType,
        updates: ArrayType,
        *,
        scatter: str,
        outside: bool,
        nan: bool,
        **params: Any,
    ) -> list[Type]:
        return [lookup(scatter).type(x, indices, updates, **params), _FLAG]

    def eval(
        self, x: Any, indices: Any, updates: Any, *, scatter: str, outside: bool, nan: bool, **params: Any
    ) -> list[Any]:
        result = lookup(scatter).eval(x, indices, updates, **params)
        flag = False
        if outside and np.size(updates):
            dnums = params["dimension_numbers"]
            sizes = window_sizes(np.ndim(x), np.shape(updates), dnums)
            most = [np.shape(x)[d] - sizes[d] for d in dnums.scatter_dims_to_operand_dims]
            flag = bool(((np.asarray(indices) < 0) | (np.asarray(indices) > np.array(most))).any())
        if nan:
            ones = np.ones(np.shape(updates), np.bool_)
            touched = lookup("scatter").eval(np.zeros(np.shape(x), np.bool_), indices, ones, **params)
            flag = flag or bool(np.isnan(np.asarray(result)[touched]).any())
        return [result, np.asarray(flag)]

    def samples(self) -> Any:
        return iter(())  # the tests of checks cover it


def get_scatter(primitive: Primitive, params: Any) -> Scatter:
    """Return the scatter of an equation, with a flag or without."""
    return lookup(params["scatter"]) if primitive is scatter_flagged else primitive  # type: ignore[return-value]
