"""Modules that JAX has under `jax.experimental`; those after the first few are imported on first access."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.api.callbacks import io_callback
from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.experimental import checkify, layout, mesh_utils, multihost_utils, pjit, shard_map, sparse
from weft.experimental.extended import EArray, cur_qdd

if _TYPE_CHECKING:
    from weft.experimental import hijax, jet, ode, schedules

_LATER = ("hijax", "jet", "ode", "schedules")

__all__ = [
    "EArray",
    "checkify",
    "cur_qdd",
    "hijax",
    "io_callback",
    "jet",
    "layout",
    "mesh_utils",
    "multihost_utils",
    "ode",
    "pjit",
    "schedules",
    "shard_map",
    "sparse",
]


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise _MissingNameError(__name__, name)
    return _importlib.import_module(f"{__name__}.{name}")


_publish(__name__, later=_LATER)
