"""Settings and mesh of calls of `jit(f, reproducible=8)`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.api.shardings import is_sharding
from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError
from weft.base.settings import Scope, config, mesh as mesh_setting, reproducible as setting
from weft.base.source import user_line
from weft.runtime.device import default_device
from weft.sharding.mesh import Mesh
from weft.sharding.spec import PartitionSpec, split_axes


def part_counts(value: Any) -> Any:
    """Validate the option `reproducible` of `jit`; return it in the form of the setting."""
    try:
        return setting.check(value)
    except ValueError:
        raise ArgumentError(
            "jit: reproducible must be a number of parts, or a dict from axes to numbers of parts.",
            received=described(value),
            fix=("reproducible=8", "reproducible={'data': 8}   for some axes of the mesh"),
        ) from None


class Around:
    """Settings of the calls of one function: `parts` along axes, and, if no mesh is set, the default device as a mesh
    with the axes that the shardings name."""

    def __init__(self, parts: Any, shardings: Any) -> None:
        self._parts = parts
        leaves = tree.leaves(shardings, is_leaf=is_sharding)
        specs = [s for s in leaves if isinstance(s, PartitionSpec)]
        named = dict.fromkeys(a for a, _ in parts) if isinstance(parts, tuple) else {}
        named.update(dict.fromkeys(a for s in specs for a in split_axes(s.partitions)))
        self._axes = tuple(named)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Return a context in which the settings hold."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(Scope(setting, self._parts))
            if config.mesh is None and self._axes:
                alone = np.array([default_device()], object).reshape((1,) * len(self._axes))
                stack.enter_context(Scope(mesh_setting, Mesh(alone, self._axes)))
            yield


def raise_unsplit(caller: str, parts: Any) -> None:
    """Raise the error for a call in which nothing is split over a mesh."""
    said = parts if isinstance(parts, int) else dict(parts)
    raise ArgumentError(
        f"{caller}: reproducible={said} computes in parts what is split over a mesh, also on one device, and "
        "no argument or constraint says what is split.",
        fix=(
            "in_shardings=(P(), P('data'))   which needs no mesh on one device",
            "weft.device_put(batch, weft.NamedSharding(mesh, P('data')))   on a mesh of one device or more",
        ),
        at=user_line(),
    )
