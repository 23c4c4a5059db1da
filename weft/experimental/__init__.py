"""Modules that JAX has under `jax.experimental`; those after the first few are imported on first access."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.api.callbacks import io_callback as io_callback
from weft.base.publish import MissingNameError as _MissingNameError, publish as _publish
from weft.experimental import (
    checkify as checkify,
    layout as layout,
    mesh_utils as mesh_utils,
    multihost_utils as multihost_utils,
    pjit as pjit,
    shard_map as shard_map,
    sparse as sparse,
)
from weft.experimental.extended import EArray as EArray, cur_qdd as cur_qdd

if _TYPE_CHECKING:
    from weft.experimental import hijax as hijax, jet as jet, ode as ode, schedules as schedules

_LATER = ("hijax", "jet", "ode", "schedules")


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise _MissingNameError(__name__, name)
    return _importlib.import_module(f"{__name__}.{name}")


_publish(__name__, later=_LATER)
