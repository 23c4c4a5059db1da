"""Grids and concatenation by slice notation: `mgrid[0:3, 0:4]`, `r_[1:4, 0, x]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import numpy_dtype_promotion
from weft.numpy.counting import arange, linspace, meshgrid
from weft.numpy.creation import asarray, full_array
from weft.numpy.joining import concatenate, stack
from weft.numpy.util import ensure_array, promote_dtypes
from weft.trace.array import Array
from weft.trace.tracer import Tracer


def _line(part: slice) -> Array:
    """Expand a slice to its numbers; an imaginary step is a number of points, the last included."""
    if any(isinstance(x, Tracer) for x in (part.start, part.stop, part.step)):
        raise ArgumentTypeError(f"Grids need slices of known numbers, got {part}.")
    start, stop, step = part.start or 0, part.stop, 1 if part.step is None else part.step
    if stop is None:  # as for `arange`, where one number is the end
        start, stop = 0, start
    if isinstance(step, complex) or np.iscomplexobj(step):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class MeshGrid:
    """Dense or open grids from slices between brackets, one array for each slice."""

    def __init__(self, name: str, sparse: bool, text: str):
        self.name, self.sparse = name, sparse
        self.__doc__ = text

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if isinstance(key, slice):
            return _line(key)
        if not key:
            return [] if self.sparse else full_array((0,), 0, dtypes.default_int_dtype())
        # Integers and fractions mix in one grid on purpose, so strict promotion does not apply.
        with numpy_dtype_promotion("standard"):
            lines = [ensure_array(x) for x in promote_dtypes(*(_line(part) for part in key))]
        grids = meshgrid(*lines, indexing="ij", sparse=self.sparse)
        return grids if self.sparse else stack(grids)

    def __repr__(self) -> str:
        return f"<weft.numpy.{self.name}>"


class Join:
    """Concatenation of the arrays, numbers and slices between brackets."""

    def __init__(self, name: str, axis: int, rank: int, start: int, text: str):
        self.name, self.axis, self.rank, self.start = name, axis, rank, start
        self.__doc__ = text

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, rank, start, matrix = self.axis, self.rank, self.start, ""
        if items and isinstance(items[0], str):
            directive = items.pop(0)
            if directive in ("r", "c"):
                matrix = directive
            else:
                axis, rank, start = self._directive(directive)
        parts = [self._expand(item, rank, start) for item in items]
        if not parts:
            raise ArgumentError(f"{self.name} needs at least one array to join.")
        out = concatenate(parts, axis)
        if matrix and out.ndim == 1:  # one row, or one column
            out = out.reshape((1, -1) if matrix == "r" else (-1, 1))
        return out

    def _directive(self, text: str) -> tuple[int, int, int]:
        try:
            values = [int(part) for part in text.split(",")]
        except ValueError:
            raise ArgumentError(f"could not understand directive {text!r} of {self.name}.") from None
        if len(values) > 3:
            raise ArgumentError(f"{self.name} takes at most three numbers in a directive, got {text!r}.")
        rank = values[1] if len(values) > 1 else self.rank
        return values[0], rank, values[2] if len(values) > 2 else self.start

    def _expand(self, item: Any, rank: int, start: int) -> Array:
        x = _line(item) if isinstance(item, slice) else asarray(item)
        if x.ndim == 0:
            x = x.reshape((1,))
        missing = rank - x.ndim
        if missing <= 0:
            return x
        # New axes go before and after the old ones: `start` is where the old ones begin or, if negative, end.
        before = start if start >= 0 else missing + start + 1
        if not 0 <= before <= missing:
            raise ArgumentError(f"{self.name} cannot put {x.ndim} axes at {start} of {rank}.")
        return x.reshape((*(1,) * before, *x.shape, *(1,) * (missing - before)))

    def __repr__(self) -> str:
        return f"<weft.numpy.{self.name}>"


class IndexExpression:
    """Returns the index between the brackets unchanged."""

    def __getitem__(self, item: Any) -> Any:
        return item if not self.maketuple or isinstance(item, tuple) else (item,)

    def __init__(self, maketuple: bool):
        self.maketuple = maketuple


_GRID = """{text}

    Between the brackets is a slice for each axis. An imaginary step is a number of points, the last included.

    Returns:
        {returns}

    >>> import weft.numpy as wnp
    >>> {example}
    {shows}
    """

mgrid = MeshGrid(
    "mgrid",
    False,
    _GRID.format(
        text="Create a dense grid: `mgrid[0:2, 0:3]` has shape (2, 2, 3).",
        returns="An array whose first axis has the coordinate along each axis of the grid.",
        example="wnp.mgrid[0:2, 0:3][1]",
        shows="Array([[0, 1, 2],\n           [0, 1, 2]], dtype=int32)",
    ),
)
ogrid = MeshGrid(
    "ogrid",
    True,
    _GRID.format(
        text="Create an open grid: `ogrid[0:2, 0:3]` is two arrays of shapes (2, 1) and (1, 3).",
        returns="A list of arrays that broadcast to the grid.",
        example="[x.shape for x in wnp.ogrid[0:2, 0:3]]",
        shows="[(2, 1), (1, 3)]",
    ),
)
r_ = Join("r_", 0, 1, -1, "Join arrays and slices along the first axis.")
c_ = Join("c_", -1, 2, 0, "Join arrays along the last axis, with vectors as columns.")
s_ = IndexExpression(False)
index_exp = IndexExpression(True)
