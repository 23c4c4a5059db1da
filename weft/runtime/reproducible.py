"""`reproducible`: programs that are computed in the same parts, and so with the same bits, on any number of devices.

With `reproducible=8` a program is partitioned as for eight devices along each axis of its mesh, whatever its size:
each of n devices along an axis runs 8/n of the parts. All of them run the code that eight devices would run, on
operands of the same shapes, and sums over parts are the same tree; so no result depends on the number of devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.base.settings import config
from weft.base.source import user_line
from weft.sharding.device import Device, is_addressable
from weft.sharding.mesh import Mesh

Dims = tuple[tuple[Any, ...], ...]


def part_sizes(mesh: Mesh) -> dict[Any, int]:
    """Return the number of parts along each mesh axis: the number of devices, or what the setting `reproducible`
    says.
    """
    sizes = dict(mesh.shape)
    said = config.reproducible
    if said:
        wanted = dict(said) if isinstance(said, tuple) else dict.fromkeys(sizes, said)
        for axis, count in wanted.items():
            if axis not in sizes:
                raise ArgumentError(
                    f"reproducible names the axis {axis!r}, which the mesh does not have.",
                    received=f"{wanted} for {mesh}",
                    fix=f"some of {', '.join(map(repr, sizes))}",
                    at=user_line(),
                )
            if count % sizes[axis]:
                raise ArgumentError(
                    f"reproducible={count} is not possible: {count} parts cannot be shared evenly among {sizes[axis]} "
                    f"devices along {axis!r}.",
                    received=str(mesh),
                    fix=(
                        f"a mesh with {join_alternatives(divisors(count))} devices along {axis!r}",
                        f"reproducible={{{axis!r}: n}}   with a multiple of {sizes[axis]} for n",
                    ),
                    at=user_line(),
                )
            sizes[axis] = count
    return sizes


def divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]


def join_alternatives(counts: Sequence[int]) -> str:
    """Format alternatives: `1, 2, 4 or 8`."""
    return " or ".join([", ".join(map(str, counts[:-1])), str(counts[-1])]) if len(counts) > 1 else str(counts[0])


def check_parts(
    sizes: Mapping[Any, int],
    mesh: Mesh,
    manual: frozenset[Any],
    arguments: Sequence[tuple[str, Any, Dims | None]],
) -> None:
    """Raise if a program cannot be computed in these parts.

    `arguments` (and results) are triples of a name, a type and split axes; `manual` axes are those of `shard_map`s.
    """
    for axis in manual:
        if sizes[axis] != mesh.shape[axis]:
            raise ArgumentError(
                f"reproducible={sizes[axis]} is not possible: shard_map over {axis!r} runs a body for each of "
                f"{mesh.shape[axis]} devices.",
                received=str(mesh),
                fix=(
                    f"a mesh with {sizes[axis]} devices along {axis!r}",
                    "jit with shardings instead of shard_map",
                    "reproducible={axis: parts}   with the other axes only",
                ),
                at=user_line(),
            )
    for name, aval, dims in arguments:
        for d, axes in enumerate(dims or ()):
            count = math.prod(sizes[a] for a in axes)
            size = aval.shape[d]
            if size % count:
                raise ArgumentError(
                    f"reproducible is not possible: dimension {d} of {name} has {size} elements, which cannot be split "
                    f"evenly into {count} parts over {', '.join(map(repr, axes))}.",
                    received=aval.short(),
                    fix=(f"{-(-size // count) * count} elements", f"a spec that does not split dimension {d}"),
                    at=user_line(),
                )


@dataclass(frozen=True)
class Cut:
    """Slices that cut a device's shard into the parts that it computes.

    It has the shape and dtype of the shard, and for each part of this process its box within its device's shard. A
    `whole` one is not cut: all parts of the device are the same.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    boxes: tuple[tuple[slice, ...], ...]
    whole: bool


class Shares:
    """Assignment of the parts of programs that are split into `sizes` parts to the devices of a mesh."""

    def __init__(self, mesh: Mesh, sizes: Mapping[Any, int]) -> None:
        self.sizes = sizes
        counts = mesh.shape
        self._each = {a: n // counts[a] for a, n in sizes.items()}
        self._positions = [
            dict(zip(sizes, p, strict=True)) for p in itertools.product(*[range(n) for n in sizes.values()])
        ]
        shape = tuple(counts.values())
        index = lambda p: tuple(p[a] // self._each[a] for a in sizes)
        owners = [int(np.ravel_multi_index(index(p), shape)) for p in self._positions]
        # The device of each part, in the order of parts.
        self.devices: list[Device] = [mesh.device_tuple[o] for o in owners]
        here = [i for i, d in enumerate(mesh.device_tuple) if is_addressable(d)]
        self._here = [p for p, o in zip(self._positions, owners, strict=True) if o in here]
        # The device of each part of this process, as an index among the devices of this process.
        self.owners = [here.index(o) for o in owners if o in here]
        self._counts = counts

    def cut(self, part_type: Any, dims: Dims, name: str) -> Cut:
        """Return the cut of a value whose parts have this type."""
        shape: tuple[int, ...] = part_type.shape
        each = [math.prod(self._each[a] for a in axes) for axes in dims]
        boxes = []
        for position in self._here:
            box = []
            for size, axes, count in zip(shape, dims, each, strict=True):
                part = device = 0
                for a in axes:
                    part = part * self.sizes[a] + position[a]
                    device = device * self._counts[a] + position[a] // self._each[a]
                index = part - device * count
                if not 0 <= index < count:
                    self._raise_not_contiguous(name, axes)
                box.append(slice(index * size, (index + 1) * size))
            boxes.append(tuple(box))
        whole = tuple(n * c for n, c in zip(shape, each, strict=True))
        return Cut(whole, dtypes.storage(part_type.dtype), tuple(boxes), math.prod(each) == 1)

    def _raise_not_contiguous(self, name: str, axes: Sequence[Any]) -> None:
        several = [a for a in axes if self._each[a] > 1]
        raise ArgumentError(
            f"reproducible is not possible: {name} is split over {', '.join(map(repr, axes))} in one dimension, "
            f"and the "
            f"parts along {several[0]!r} that one device computes are not next to each other in it.",
            fix=(
                f"as many devices along {several[0]!r} as there are parts",
                f"reproducible={{axis: parts}}   without {several[0]!r}",
                "in_shardings and out_shardings that split each dimension over one axis",
            ),
            at=user_line(),
        )
