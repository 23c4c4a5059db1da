"""Meshes of this process's devices: making one, and the one that is used where none is named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from weft.base.arguments import described, indices
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.settings import Scope, config, states
from weft.base.settings import mesh as mesh_setting
from weft.runtime.device import devices as all_devices
from weft.sharding.device import Device
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[Any],
    axis_types: Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """A mesh of devices (by default the first ones of `weft.devices()`) with axes of these sizes, names and types; axes
    are Explicit unless `axis_types` says otherwise."""
    shape = indices(axis_shapes, "axis_shapes of make_mesh")
    if len(shape) != len(axis_names):
        raise ArgumentError(
            "make_mesh: there must be as many axis_names as axis_shapes.",
            received=f"{tuple(axis_shapes)} and {tuple(axis_names)}",
        )
    there = list(all_devices() if devices is None else devices)
    count = math.prod(shape)
    if len(there) < count or (devices is not None and len(there) != count):
        raise ArgumentError(
            f"make_mesh: axes of sizes {shape} take {count} devices.",
            received=f"{len(there)} devices",
            fix=("weft.config.update('num_cpu_devices', n)   right after `import weft`", "a smaller mesh"),
        )
    grid = np.array(there[:count], object).reshape(shape)
    return Mesh(grid, tuple(axis_names), axis_types or (AxisType.Explicit,) * len(shape))


class set_mesh:
    """Use a mesh wherever none is named: from now on, or as a context manager in its block. None means no mesh."""

    def __init__(self, mesh: Mesh | AbstractMesh | None) -> None:
        if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
            raise ArgumentTypeError("set_mesh takes a mesh.", received=described(mesh), fix="weft.make_mesh(...)")
        self._before = config.mesh
        self._mesh = mesh
        config._override("mesh", mesh)

    def __enter__(self) -> Mesh | AbstractMesh | None:
        return self._mesh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        config._override("mesh", self._before)


class use_abstract_mesh(Scope):
    """A block in which the mesh that is used where none is named has no devices."""

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise ArgumentTypeError("use_abstract_mesh takes an AbstractMesh.", received=described(mesh))
        super().__init__(states["mesh"], mesh)


def get_mesh() -> Mesh:
    """The mesh with its devices that `set_mesh` has set; an empty one if there is none."""
    found = config.mesh
    return found if isinstance(found, Mesh) else Mesh(np.empty((), object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The axes of the mesh that `set_mesh` has set; none if there is no mesh."""
    found = config.mesh
    return AbstractMesh((), ()) if found is None else found.abstract_mesh


def current_mesh(caller: str) -> Mesh | AbstractMesh:
    """The mesh that is set, for a caller that was given none."""
    found = mesh_setting.value
    if found is None:
        raise ArgumentError(
            f"{caller} needs a mesh.",
            fix=("mesh=weft.make_mesh((4, 2), ('x', 'y'))", "with weft.set_mesh(mesh): around the call"),
        )
    return found
