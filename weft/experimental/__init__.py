"""Modules that JAX has under `jax.experimental`."""

from weft.api.callbacks import io_callback
from weft.base.publish import publish as _publish
from weft.experimental import checkify, layout, mesh_utils, multihost_utils, pjit, shard_map, sparse

__all__ = ["io_callback", "checkify", "layout", "mesh_utils", "multihost_utils", "pjit", "shard_map", "sparse"]

_publish(__name__)
