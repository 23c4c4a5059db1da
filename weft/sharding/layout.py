"""`Layout`, `Format` and `Shard`: the memory layout of an array, and the data of one device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from weft.base.arguments import indices
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.sharding.device import Device


@dataclass(frozen=True)
class Layout:
    """Order of an array's dimensions in memory, slowest first, and their tiling."""

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "major_to_minor", indices(self.major_to_minor, "major_to_minor of a Layout"))
        if self.tiling is not None:
            object.__setattr__(self, "tiling", tuple(map(tuple, self.tiling)))

    def update(self, **changes: Any) -> Layout:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def check_compatible_aval(self, aval_shape: Sequence[Any]) -> None:
        """Raise unless arrays of this shape can have the layout."""
        if sorted(self.major_to_minor) != list(range(len(aval_shape))):
            raise ArgumentError(
                f"A layout must name each of the {len(aval_shape)} dimensions once.",
                received=f"shape {tuple(aval_shape)} with {self!r}",
                fix=f"major_to_minor={tuple(range(len(aval_shape)))}",
            )


@dataclass(frozen=True)
class Format:
    """Layout and sharding of an array. None leaves the choice open."""

    layout: Layout | None = None
    sharding: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ArgumentError(
                "A Format with a layout must have a sharding too.",
                received=repr(self.layout),
                fix="Format(layout, sharding)",
            )


@dataclass(frozen=True)
class Shard:
    """Shard of an array of `global_shape` on one device, and its data (None if the device belongs to another
    process).
    """

    device: Device
    sharding: Any
    global_shape: tuple[Any, ...]
    data: Any = field(default=None, compare=False)

    @property
    def index(self) -> tuple[slice, ...]:
        """Slices of the array that the shard contains."""
        return _parts(self.sharding, tuple(self.global_shape))[self.device][0]

    @property
    def replica_id(self) -> int:
        """Index of this copy among the equal shards on all devices."""
        return _parts(self.sharding, tuple(self.global_shape))[self.device][1]


@functools.lru_cache(maxsize=128)
def _parts(sharding: Any, shape: tuple[Any, ...]) -> dict[Device, tuple[tuple[slice, ...], int]]:
    """Return the slices of each device's shard, and the number of earlier devices that have the same shard."""
    copies: dict[Any, int] = {}
    found: dict[Device, tuple[tuple[slice, ...], int]] = {}
    indices = sharding.devices_indices_map(shape)
    for part, (device, index) in zip(sharding.part_indices(len(shape)), indices.items(), strict=True):
        copies[part] = copies.get(part, -1) + 1
        found[device] = index, copies[part]
    return found
