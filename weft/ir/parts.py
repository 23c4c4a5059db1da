"""How the operands and results of an operation are split over a mesh, and the communication between its shards.

`bind_local` rules use it: it computes where the shard of a device begins and fetches data from other devices.
"""

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
from weft.sharding.halo import Halo, Reach, plan_halo

INDEX = np.dtype(np.int32)


class Report(Protocol):
    """Callback that receives each transfer: the kind of collective, the axis, bytes per device, the value, and the
    part (`what`) of the operand."""

    def __call__(self, kind: str, axis: Any, count: float, x: Any, operand: int = ..., what: str = ...) -> None: ...


def no_report(kind: str, axis: Any, count: float, x: Any, operand: int = 0, what: str = "") -> None:
    """Ignore the transfer."""


@dataclass(frozen=True)
class Parts:
    """Partitioning of one operation: whole operand `types`, local result types `results`, and the mesh axes that
    each factor is split over.

    `axes` lists the mesh axes of each factor, the major one first, `sizes` the sizes of mesh axes. `reach` describes
    which elements of each operand are read along factors with halos; `received` caches data of other shards, so that
    nothing is sent twice.
    """

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
        """Return the mesh axes that a factor is split over."""
        return () if name is None else self.axes.get(name, ())

    def count(self, name: str | None) -> int:
        """Return the number of shards along a factor."""
        return math.prod(self.sizes[a] for a in self.split(name))

    def split_dims(self, operand: int) -> dict[int, str]:
        """Return the split dimensions of an operand with their factors."""
        return {d: n for d, n in enumerate(self.operand_names[operand]) if n is not None and self.split(n)}

    # -- indices -----------------------------------------------------------------------------------------------------

    def position(self, axes: Sequence[Any]) -> Any:
        """Return the index of this device along mesh axes, the first one being the major one."""
        index: Any = None
        for axis in axes:
            own = lookup("axis_index")(axis_name=axis)
            index = own if index is None else lookup("add")(lookup("mul")(index, INDEX.type(self.sizes[axis])), own)
        return INDEX.type(0) if index is None else index

    def start(self, name: str, size: int) -> Any:
        """Return the offset of this device's shard along a factor, for shards of size `size`."""
        return lookup("mul")(self.position(self.split(name)), INDEX.type(size))

    def is_first(self, axes: Sequence[Any]) -> Any:
        """Return whether this device has index 0 along all of the axes."""
        return lookup("eq")(self.position(axes), INDEX.type(0))

    def on_first(self, axes: Sequence[Any], x: Any, other: Any) -> Any:
        """Select `x` on the device with index 0 along the axes, and `other`, of the same type, on all others."""
        return lookup("select_n")(self.is_first(axes), other, x)

    def halo(self, name: str, operand: int) -> Halo:
        """Return which elements of other shards this device needs of an operand along a factor."""
        reach = self.reach[name][operand]
        assert reach is not None, f"operand {operand} has no halo along {name}"
        halo = plan_halo(reach, self.count(name))
        assert halo is not None, f"{reach} in {self.count(name)} parts"
        return halo

    # -- communication -----------------------------------------------------------------------------------------------

    def gather(self, x: Any, name: str, dim: int) -> Any:
        """Concatenate all shards along a factor in dimension `dim`, in order."""
        for axis in reversed(self.split(name)):
            size = self.sizes[axis]
            self.report("all_gather", axis, byte_count(x) * (size - 1), x)
            x = lookup("all_gather")(x, axis_name=axis, axis_size=size, all_gather_dimension=dim, tiled=True)
        return x

    def mirror(self, x: Any, name: str) -> Any:
        """Return the shard at the same distance from the other end."""
        for axis in self.split(name):
            size = self.sizes[axis]
            x = self._permute(x, axis, [(i, size - 1 - i) for i in range(size)])
        return x

    def shift(self, x: Any, name: str, distance: int, pairs: Sequence[tuple[int, int]]) -> Any:
        """Return the shard `distance` after this one, or zeros beyond the last shard.

        For a factor over one mesh axis, (source, destination) `pairs` lists the transfers; other shards receive zeros.
        """
        axes = self.split(name)
        if len(axes) == 1:
            return self._permute(x, axes[0], pairs)
        return self._shift(x, axes, -distance)

    def _shift(self, x: Any, axes: tuple[Any, ...], by: int) -> Any:
        *major, axis = axes
        size = self.sizes[axis]
        if not major:
            pairs = [(i, i + by) for i in range(size) if 0 <= i + by < size]
            return x if not by else self._permute(x, axis, pairs)
        carry, by = divmod(by, size)
        if not by:
            return self._shift(x, tuple(major), carry)
        # Shards that wrap around the minor axis belong to the next index along the major ones.
        x = self._permute(x, axis, [(i, (i + by) % size) for i in range(size)])
        wrapped = lookup("lt")(lookup("axis_index")(axis_name=axis), INDEX.type(by))
        further = self._shift(x, tuple(major), carry + 1)
        return lookup("select_n")(wrapped, self._shift(x, tuple(major), carry), further)

    def _permute(self, x: Any, axis: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        if any(s != d for s, d in pairs):
            self.report("ppermute", axis, float(byte_count(x)), x)
        return lookup("ppermute")(x, axis_name=axis, perm=tuple(pairs))


def byte_count(x: Any) -> int:
    """Return the size of a value in bytes."""
    result: int = math.prod(x.shape) * dtypes.storage(x.dtype).itemsize
    return result
