"""How the operands and results of an operation are split over a mesh, for the operation on the parts of one device:
where its part begins, and what it gets from others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.ir.primitive import lookup
from weft.ir.types import Type
from weft.sharding.factors import Names
from weft.sharding.halo import Halo, Reach, halo_of

INDEX = np.dtype(np.int32)


class Report(Protocol):
    """Is told what is sent: the kind of collective, over which axis, bytes a device, what, and what that is of an
    operand."""

    def __call__(self, kind: str, axis: Any, count: float, x: Any, operand: int = ..., what: str = ...) -> None: ...


def no_report(kind: str, axis: Any, count: float, x: Any, operand: int = 0, what: str = "") -> None:
    """Nobody wants to know what is sent."""


@dataclass(frozen=True)
class Parts:
    """Operands have the whole `types`, results the local types `results`. `axes` are those that each factor is split
    over, the major one first, of a mesh with these `sizes`. `reach` is what is read of each operand along factors with
    halos; what has been `received` of the parts of others is not sent again."""

    types: Sequence[Any]
    results: Sequence[Type]
    operand_names: Sequence[Names]
    result_names: Sequence[Names]
    axes: Mapping[str, tuple[Any, ...]]
    sizes: Mapping[Any, int]
    report: Report = no_report
    reach: Mapping[str, Sequence[Reach | None]] = field(default_factory=dict)
    received: dict[Any, tuple[Any, Any]] = field(default_factory=dict)

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

    def halo(self, name: str, operand: int) -> Halo:
        """What this device needs of the parts of others, of an operand along a factor."""
        reach = self.reach[name][operand]
        assert reach is not None, f"operand {operand} has no halo along {name}"
        halo = halo_of(reach, self.count(name))
        assert halo is not None, f"{reach} in {self.count(name)} parts"
        return halo

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

    def moved(self, x: Any, name: str, distance: int, pairs: Sequence[tuple[int, int]]) -> Any:
        """What the part `distance` after this one has; zeros where there is none, or where the (source, destination)
        `pairs` of a factor that is split over one axis do not have this part."""
        axes = self.split(name)
        if len(axes) == 1:
            return self._permuted(x, axes[0], pairs)
        return self._moved(x, axes, -distance)

    def _moved(self, x: Any, axes: tuple[Any, ...], by: int) -> Any:
        *major, axis = axes
        size = self.sizes[axis]
        if not major:
            pairs = [(i, i + by) for i in range(size) if 0 <= i + by < size]
            return x if not by else self._permuted(x, axis, pairs)
        carry, by = divmod(by, size)
        if not by:
            return self._moved(x, tuple(major), carry)
        # What goes over the end of the minor axis comes in again at its beginning, one further along the major ones.
        x = self._permuted(x, axis, [(i, (i + by) % size) for i in range(size)])
        wrapped = lookup("lt")(lookup("axis_index")(axis_name=axis), INDEX.type(by))
        further = self._moved(x, tuple(major), carry + 1)
        return lookup("select_n")(wrapped, self._moved(x, tuple(major), carry), further)

    def _permuted(self, x: Any, axis: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        if any(s != d for s, d in pairs):
            self.report("ppermute", axis, float(bytes_of(x)), x)
        return lookup("ppermute")(x, axis_name=axis, perm=tuple(pairs))


def bytes_of(x: Any) -> int:
    """How many bytes a value has."""
    return math.prod(x.shape) * dtypes.storage(x.dtype).itemsize
