"""A scatter that says whether it met something that checks look for. The compiler makes it: `passes/flags.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Primitive, lookup, primitive
from weft.ir.types import ArrayType, Type, array_type
from weft.primitives.movement.scatter import Scatter, Scattering, window_sizes

_FLAG = array_type((), np.dtype(np.bool_))


@primitive
class scatter_flagged(Scattering):
    """What the scatter named `card` gives, and a flag: of `outside`, whether a window does not lie in the operand; of
    `nan`, which only sums and products are asked for, whether there is a nan where updates went."""

    multiple_results = True

    def type(
        self,
        x: ArrayType,
        indices: ArrayType,
        updates: ArrayType,
        *,
        card: str,
        outside: bool,
        nan: bool,
        **params: Any,
    ) -> list[Type]:
        return [lookup(card).type(x, indices, updates, **params), _FLAG]

    def eval(
        self, x: Any, indices: Any, updates: Any, *, card: str, outside: bool, nan: bool, **params: Any
    ) -> list[Any]:
        made = lookup(card).eval(x, indices, updates, **params)
        flag = False
        if outside and np.size(updates):
            numbers = params["dimension_numbers"]
            sizes = window_sizes(np.ndim(x), np.shape(updates), numbers)
            most = [np.shape(x)[d] - sizes[d] for d in numbers.scatter_dims_to_operand_dims]
            flag = bool(((np.asarray(indices) < 0) | (np.asarray(indices) > np.array(most))).any())
        if nan:
            ones = np.ones(np.shape(updates), np.bool_)
            touched = lookup("scatter").eval(np.zeros(np.shape(x), np.bool_), indices, ones, **params)
            flag = flag or bool(np.isnan(np.asarray(made)[touched]).any())
        return [made, np.asarray(flag)]

    def samples(self) -> Any:
        return iter(())  # the tests of checks cover it


def card_of(primitive: Primitive, params: Any) -> Scatter:
    """The scatter that an equation is, with a flag or without."""
    return lookup(params["card"]) if primitive is scatter_flagged else primitive  # type: ignore[return-value]
