"""Exports of programs for several devices. A file has the positions of devices in the order of the export; a call runs
on the devices that its arguments are on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.errors import ArgumentError
from weft.base.settings import config
from weft.base.source import user_line
from weft.ir.context import EVALUATION, context
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.ir.primitive import Params, Primitive
from weft.ir.types import ArrayType
from weft.ir.unplaced import map_types
from weft.runtime.device import default_device, devices
from weft.runtime.sharded import ShardedArray
from weft.sharding.device import Device
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec

# Platform of the placeholder devices of a file, until a call determines the real ones.
STAND_IN = "exported"
# A file with more devices than this is malformed.
MOST_DEVICES = 1 << 20


def stand_ins(count: int) -> tuple[Device, ...]:
    """Return placeholder devices, one for each position of an export."""
    return tuple(Device(i, STAND_IN) for i in range(count))


def find_devices(jaxpr: Jaxpr, shardings: Sequence[Any]) -> tuple[Device, ...]:
    """Return the devices that a program is for, in the order of the first mesh that it names; stand-ins if all its
    meshes are abstract, and none if it names no mesh."""
    found: dict[Mesh | AbstractMesh, None] = {}
    for sharding in shardings:
        if isinstance(sharding, NamedSharding):
            found[sharding.mesh] = None
    _collect(jaxpr, found)
    concrete = next((mesh for mesh in found if isinstance(mesh, Mesh)), None)
    if concrete is not None:
        return concrete.device_tuple
    return stand_ins(max((mesh.size for mesh in found), default=0))


def _collect(jaxpr: Jaxpr, found: dict[Mesh | AbstractMesh, None]) -> None:
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            mesh = value.mesh if isinstance(value, NamedSharding) else value
            if isinstance(mesh, (Mesh, AbstractMesh)):
                found[mesh] = None
        for inner in subjaxprs(equation.params):
            _collect(inner, found)
    for var in jaxpr.invars:
        sharding = var.aval.explicit_sharding if isinstance(var.aval, ArrayType) else None
        if sharding is not None:
            found[sharding.mesh] = None


def on_devices(jaxpr: Jaxpr, old: Sequence[Device], new: Sequence[Device]) -> Jaxpr:
    """Return the program on other devices, position by position."""
    if tuple(old) == tuple(new):
        return jaxpr
    renamed = dict(zip(old, new, strict=True))

    def parameters(primitive: Primitive, params: Params) -> Params:
        return {name: move_to(value, renamed) for name, value in params.items()}

    return map_types(jaxpr, lambda aval: aval, parameters)


def move_to(value: Any, renamed: Mapping[Device, Device]) -> Any:
    """Move a mesh or a sharding to other devices; return anything else unchanged. An abstract mesh of equal size gets
    the devices in order, unless some of its axes are Manual: then it belongs to the body of a shard_map."""
    if isinstance(value, NamedSharding):
        mesh = move_to(value.mesh, renamed)
        return value if mesh is value.mesh else value.update(mesh=mesh)
    if isinstance(value, Mesh):
        return _mesh([renamed.get(d, d) for d in value.device_tuple], value)
    if isinstance(value, AbstractMesh) and value.size == len(renamed) and AxisType.Manual not in value.axis_types:
        return _mesh(list(renamed.values()), value)
    return value


def _mesh(order: Sequence[Device], axes: Mesh | AbstractMesh) -> Mesh:
    """Make a mesh of devices in order, with the axes of another mesh."""
    grid = np.empty(len(order), object)
    grid[:] = order
    return Mesh(grid.reshape(axes.axis_sizes), axes.axis_names, axes.axis_types)


def devices_of_call(name: str, count: int, args: Sequence[Any]) -> tuple[Device, ...]:
    """Return the devices that a call of an export for `count` devices runs on: those of its arguments, or else of the
    mesh that is set. In a trace, where neither may be known, they are the first devices of the platform."""
    meshes = [a.sharding.mesh for a in args if type(a) is ShardedArray and isinstance(a.sharding, NamedSharding)]
    found = [m.device_tuple for m in (*meshes, config.mesh) if isinstance(m, Mesh) and not m.empty]
    if not found and (context.trace is not EVALUATION or count == 1):
        available = devices(default_device().platform)
        found = [tuple(available[: max(count, 1)])]
    here = found[0] if found else (default_device(),)
    if len(here) != count:
        raise ArgumentError(
            f"Function {name} was exported for {count} devices but is called in a context with {len(here)} devices.",
            received=f"arguments on {', '.join(map(str, here[:8]))}",
            fix=f"weft.device_put(x, weft.NamedSharding(mesh, spec)) of the arguments, on a mesh of {count} devices",
            at=user_line(),
        )
    return here


def drop_devices(sharding: NamedSharding | None) -> NamedSharding | None:
    """Return a sharding over the axes of its mesh, without the devices."""
    if sharding is None or isinstance(sharding.mesh, AbstractMesh):
        return sharding
    return sharding.update(mesh=sharding.mesh.abstract_mesh)


def over_mesh(
    sharding: NamedSharding | None, aval: ArrayType, old: Sequence[Device], mesh: Mesh
) -> NamedSharding | None:
    """Return the sharding over `mesh` whose parts are on the devices at the same positions as those of `sharding`."""
    if sharding is None:
        return None
    if len(mesh.device_tuple) != len(old):
        raise ArgumentError(
            f"The mesh must have the {len(old)} devices that the export is for.", received=f"{mesh}", at=user_line()
        )
    own = move_to(sharding, dict(zip(old, mesh.device_tuple, strict=True)))
    if own.mesh.shape_tuple == mesh.shape_tuple:
        return own.update(mesh=mesh)
    ndim = len(aval.shape)
    for spec in _specs(mesh.axis_names, ndim):
        candidate = NamedSharding(mesh, spec, sharding._kind)
        if candidate.is_equivalent_to(own, ndim):
            return candidate
    raise ArgumentError(
        "No spec over the axes of the mesh splits the value as the export does.",
        received=f"{own.spec!r} over {own.mesh}, for {mesh}",
        fix="a mesh with the axes of the export",
        at=user_line(),
    )


def _specs(names: Sequence[Any], ndim: int) -> Any:
    """Enumerate all specs that split `ndim` dimensions over some of the axes."""
    for where in itertools.product(range(-1, ndim), repeat=len(names)):
        for order in itertools.permutations(range(len(names))):
            entries: list[tuple[Any, ...]] = [()] * ndim
            for i in order:
                if where[i] >= 0:
                    entries[where[i]] = (*entries[where[i]], names[i])
            yield PartitionSpec(*entries)
