"""Meshes, under the names of `jax.interpreters.pxla`."""

from weft.base.publish import publish as _publish
from weft.sharding import Mesh as Mesh, PartitionSpec as PartitionSpec

_publish(__name__)
