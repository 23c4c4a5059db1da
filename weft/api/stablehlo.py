"""Modules of StableHLO from traced functions: on one device, or the local program of a mesh."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from weft.base.lazy import lazy
from weft.runtime.device import default_device
from weft.runtime.platforms import target_name

if TYPE_CHECKING:
    from weft.compiler.target import stablehlo
else:
    stablehlo = lazy("weft.compiler.target.stablehlo")


def lower_to_stablehlo(traced: Any, platform: str | None = None) -> stablehlo.Module:
    """Lower a traced function to a module for a platform, by default that of the default device.

    A function that is sharded over a mesh is partitioned first: the module is the program of each device, which are
    replicas in the order of the mesh, and arrays that the function closes over are its first arguments.

    Args:
        traced: the traced function, an instance of `Traced`.
        platform: the platform that operations which depend on it are for.
    """
    platform = target_name(default_device().platform) if platform is None else platform
    flags = [i in traced.donate_argnums for i in range(len(traced._in_types))]
    with traced._settings():
        partitioned = traced._partitioned()
    if partitioned is None:
        return _module(traced.jaxpr, flags, {}, platform)
    mesh = (*partitioned.in_shardings, *partitioned.out_shardings)[0].mesh
    captured = len(partitioned.jaxpr.invars) - len(flags)
    return _module(partitioned.jaxpr, [False] * captured + flags, dict(mesh.shape), platform)


def _module(jaxpr: Any, donated: list[bool], axes: dict[Any, int], platform: str) -> stablehlo.Module:
    aliases = stablehlo.donation_aliases(jaxpr, donated)
    count = math.prod(axes.values())
    return stablehlo.Module(stablehlo.emit(jaxpr, donated=aliases, num_partitions=count, axes=axes, platform=platform))
