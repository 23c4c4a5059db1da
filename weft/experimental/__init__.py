"""Modules that JAX has under `jax.experimental`."""

from weft.base.publish import publish as _publish
from weft.experimental import layout, mesh_utils, multihost_utils

__all__ = ["layout", "mesh_utils", "multihost_utils"]

_publish(__name__)
