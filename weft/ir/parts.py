"""How the operands and results of an operation are split over a mesh, for the operation on the parts of one device:
where its part begins, and what it gets from others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.primitive import lookup
from weft.ir.types import Type
from weft.sharding.factors import Names

INDEX = np.dtype(np.int32)


def no_report(kind: str, axis: Any, count: float, x: Any) -> None:
    """Nobody wants to know what is sent."""


@dataclass(frozen=True)
class Parts:
    """Operands have the whole `types`, results the local types `results`. `axes` are those that each factor is split
    over, the major one first, of a mesh with these `sizes`. What is sent is reported as (kind, axis, bytes a device,
    what)."""

    types: Sequence[Any]
    results: Sequence[Type]
    operand_names: Sequence[Names]
    result_names: Sequence[Names]
    axes: Mapping[str, tuple[Any, ...]]
    sizes: Mapping[Any, int]
    report: Callable[[str, Any, float, Any], None] = no_report

    def split(self, name: str | None) -> tuple[Any, ...]:
        """The axes that a factor is split over."""
        return () if name is None else self.axes.get(name, ())

    def count(self, name: str | None) -> int:
        """Into how many parts a factor is split."""
        return math.prod(self.sizes[a] for a in self.split(name))

    def split_dims(self, operand: int) -> dict[int, str]:
        """The dimensions of an operand that are split, and their factors."""
        return {d: n for d, n in enumerate(self.operand_names[operand]) if n is not None and self.split(n)}

    # -- positions ---------------------------------------------------------------------------------------------------

    def position(self, axes: Sequence[Any]) -> Any:
        """The index of this device along axes, of which the first is the major one."""
        index: Any = None
        for axis in axes:
            own = lookup("axis_index")(axis_name=axis)
            index = own if index is None else lookup("add")(lookup("mul")(index, INDEX.type(self.sizes[axis])), own)
        return INDEX.type(0) if index is None else index

    def start(self, name: str, size: int) -> Any:
        """Where the part of this device begins along a factor, if parts have this size."""
        return lookup("mul")(self.position(self.split(name)), INDEX.type(size))

    def is_first(self, axes: Sequence[Any]) -> Any:
        """Whether this device is the first one along all of some axes."""
        return lookup("eq")(self.position(axes), INDEX.type(0))

    def on_first(self, axes: Sequence[Any], x: Any, other: Any) -> Any:
        """A value on the first device along some axes, and another, of its type, elsewhere."""
        return lookup("select_n")(self.is_first(axes), other, x)

    # -- communication -----------------------------------------------------------------------------------------------

    def gather(self, x: Any, name: str, dim: int) -> Any:
        """What all parts along a factor have, concatenated along a dimension in their order."""
        for axis in reversed(self.split(name)):
            size = self.sizes[axis]
            self.report("all_gather", axis, bytes_of(x) * (size - 1), x)
            x = lookup("all_gather")(x, axis_name=axis, axis_size=size, all_gather_dimension=dim, tiled=True)
        return x

    def mirrored(self, x: Any, name: str) -> Any:
        """What the part at the same distance from the other end has."""
        for axis in self.split(name):
            size = self.sizes[axis]
            x = self._permuted(x, axis, [(i, size - 1 - i) for i in range(size)])
        return x

    def shifted(self, x: Any, name: str, forward: bool) -> Any:
        """What the part before this one has (`forward`), or the one after; zeros at the end where there is none."""
        return self._shifted(x, self.split(name), 1 if forward else -1)

    def _shifted(self, x: Any, axes: tuple[Any, ...], by: int) -> Any:
        *major, axis = axes
        size = self.sizes[axis]
        pairs = [(i, i + by) for i in range(size)]
        if not major:
            return self._permuted(x, axis, [(s, d) for s, d in pairs if 0 <= d < size])
        x = self._permuted(x, axis, [(s, d % size) for s, d in pairs])
        edge = lookup("eq")(lookup("axis_index")(axis_name=axis), INDEX.type(0 if by > 0 else size - 1))
        return lookup("select_n")(edge, x, self._shifted(x, tuple(major), by))

    def _permuted(self, x: Any, axis: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        if any(s != d for s, d in pairs):
            self.report("ppermute", axis, float(bytes_of(x)), x)
        return lookup("ppermute")(x, axis_name=axis, perm=tuple(pairs))


def bytes_of(x: Any) -> int:
    """How many bytes a value has."""
    return math.prod(x.shape) * dtypes.storage(x.dtype).itemsize
