"""`Layout` and `Shard`: how a part of an array lies in memory, and the part itself."""

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
    """The order of an array's dimensions in memory, the slowest first, and how they are tiled."""

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "major_to_minor", indices(self.major_to_minor, "major_to_minor of a Layout"))
        if self.tiling is not None:
            object.__setattr__(self, "tiling", tuple(map(tuple, self.tiling)))

    def update(self, **changes: Any) -> Layout:
        """The same layout with some fields changed."""
        return replace(self, **changes)

    def check_compatible_aval(self, aval_shape: Sequence[Any]) -> None:
        """Raise unless arrays of this shape can lie so."""
        if sorted(self.major_to_minor) != list(range(len(aval_shape))):
            raise ArgumentError(
                f"A layout names each of the {len(aval_shape)} dimensions once.",
                received=f"shape {tuple(aval_shape)} with {self!r}",
                fix=f"major_to_minor={tuple(range(len(aval_shape)))}",
            )


@dataclass(frozen=True)
class Format:
    """How an array lies in memory and where it is. None, of either, leaves that open."""

    layout: Layout | None = None
    sharding: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ArgumentError(
                "A Format with a layout names a sharding too.",
                received=repr(self.layout),
                fix="Format(layout, sharding)",
            )


@dataclass(frozen=True)
class Shard:
    """A device's part of an array of `global_shape` that is split by a sharding, and its data (None on another
    process's device)."""

    device: Device
    sharding: Any
    global_shape: tuple[Any, ...]
    data: Any = field(default=None, compare=False)

    @property
    def index(self) -> tuple[slice, ...]:
        """The slices that cut the part out of the array."""
        return _parts(self.sharding, tuple(self.global_shape))[self.device][0]

    @property
    def replica_id(self) -> int:
        """Which of several equal copies it is."""
        return _parts(self.sharding, tuple(self.global_shape))[self.device][1]


@functools.lru_cache(maxsize=128)
def _parts(sharding: Any, shape: tuple[Any, ...]) -> dict[Device, tuple[tuple[slice, ...], int]]:
    """For each device the slices of its part, and how many devices before it have the same one."""
    copies: dict[Any, int] = {}
    found: dict[Device, tuple[tuple[slice, ...], int]] = {}
    indices = sharding.devices_indices_map(shape)
    for part, (device, index) in zip(sharding.part_indices(len(shape)), indices.items(), strict=True):
        copies[part] = copies.get(part, -1) + 1
        found[device] = index, copies[part]
    return found
