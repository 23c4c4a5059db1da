"""Arrays that are unreduced outside of programs: each device has a term, and the array is their sum.

In a program such an array has an additional leading dimension for each unreduced axis, split over it, so that its
shards are the terms. An argument is summed over these dimensions, as late as possible; a result is unsummed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType
from weft.ir.unplaced import drop_placements
from weft.primitives.collectives import combine_tree
from weft.primitives.movement.terms import unsum
from weft.primitives.reduction.reduce import reduce_sum
from weft.sharding.device import Device
from weft.sharding.mesh import Mesh
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec
from weft.trace.closed import stage_subjaxpr

Axes = tuple[Any, ...]


def unreduced_axes(sharding: Any, mesh: Mesh) -> Axes:
    """Return the axes over which a sharding is unreduced, in the order of the mesh."""
    spec = getattr(sharding, "spec", None)
    if spec is None or not spec.unreduced:
        return ()
    return tuple(a for a in mesh.axis_names if a in spec.unreduced)


def with_terms(jaxpr: Jaxpr, args: Sequence[Axes], results: Sequence[Axes], mesh: Mesh) -> Jaxpr:
    """Return the jaxpr whose arguments and results have their terms along leading dimensions for these axes."""

    def build() -> Jaxpr:
        plain = drop_placements(jaxpr)
        sizes = mesh.shape

        def function(*flat: Any) -> list[Any]:
            values = [
                reduce_sum(x, axes=tuple(range(len(axes)))) if axes else x for x, axes in zip(flat, args, strict=True)
            ]
            outs = replay(plain, *values)
            return [
                unsum(x, axes=axes, sizes=tuple(sizes[a] for a in axes)) if axes else x
                for x, axes in zip(outs, results, strict=True)
            ]

        types: list[Any] = [
            v.aval.plain_of_shape((*(sizes[a] for a in axes), *v.aval.shape)) if axes else v.aval  # type: ignore[attr-defined]
            for v, axes in zip(plain.invars, args, strict=True)
        ]
        return stage_subjaxpr(function, types, name=jaxpr.name)

    return jaxpr.memoize(("with terms", tuple(args), tuple(results), mesh), build)


def as_terms(shardings: Sequence[Any], axes: Sequence[Axes]) -> list[Any]:
    """Replace the shardings of unreduced arrays by those of their terms."""
    return [
        NamedSharding(s.mesh, PartitionSpec(*own, *s.spec.partitions)) if own else s
        for s, own in zip(shardings, axes, strict=True)
    ]


def of_terms(sharding: NamedSharding, axes: Axes) -> NamedSharding:
    """Return the sharding of an unreduced array from that of its terms."""
    return NamedSharding(
        sharding.mesh, PartitionSpec(*sharding.spec.partitions[len(axes) :], unreduced=frozenset(axes))
    )


def as_reduced(sharding: NamedSharding, aval: Any) -> NamedSharding:
    """Return the sharding of a result, reduced over the axes of its type."""
    reduced = aval.spec.reduced if isinstance(aval, ArrayType) else None
    return sharding.update(spec=sharding.spec.update(reduced=reduced)) if reduced else sharding


def as_called(program: Any, args: Sequence[Axes], results: Sequence[Axes], jaxpr: Jaxpr, with_sharding: Any) -> Any:
    """Convert a program of terms to a program of the unreduced arrays: their shards are the same."""
    outs = [
        of_terms(s, axes) if axes else as_reduced(s, v.aval)
        for s, axes, v in zip(program.out_shardings, results, jaxpr.outvars, strict=True)
    ]
    return replace(
        program,
        in_shardings=tuple(
            of_terms(s, axes) if axes else s for s, axes in zip(program.in_shardings, args, strict=True)
        ),
        out_shardings=tuple(outs),
        out_types=tuple(with_sharding(v.aval.plain, s) for v, s in zip(jaxpr.outvars, outs, strict=True)),
        in_types=tuple(v.aval for v in jaxpr.invars),
    )


def first_of_terms(sharding: NamedSharding) -> set[Device]:
    """Return the devices that get the elements of an array: all, or the first ones along unreduced axes; others get
    zeros.
    """
    mesh: Any = sharding.mesh
    index = tuple(slice(0, 1) if a in sharding.spec.unreduced else slice(None) for a in mesh.axis_names)
    return set(mesh.devices[index].flat)


def sum_value(array: Any) -> np.ndarray:
    """Return all elements of an unreduced sharded array: the sums over devices, as `psum` computes them."""
    sharding, shape = array.sharding, array.sharding.shard_shape(array.aval.shape)
    mesh, dtype = sharding.mesh, dtypes.storage(array.aval.dtype)
    wide = np.dtype(np.float32) if dtypes.kind(dtype) == "f" and dtype.itemsize < 4 else dtype
    grid = np.stack([part._value.astype(wide) for part in array._held]).reshape(*mesh.axis_sizes, *shape)
    axes = [i for i, a in enumerate(mesh.axis_names) if a in sharding.spec.unreduced]
    totals = sum_axes(grid, axes).astype(dtype).reshape(-1, *shape)
    first = first_of_terms(sharding)
    indices = [i for device, i in sharding.devices_indices_map(array.aval.shape).items() if device in first]
    whole = np.empty(array.aval.shape, dtype)
    for part, own in zip(totals, indices, strict=True):
        whole[own] = part[tuple(map(slice, whole[own].shape))]
    whole.flags.writeable = False
    return whole


def sum_axes(parts: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Sum a grid of arrays along some of its dimensions, in the order of `psum`."""
    for axis in sorted(axes, reverse=True):
        rows = np.moveaxis(parts, axis, 0)
        parts = combine_tree(np.add, [rows[i] for i in range(len(rows))])
    return parts
