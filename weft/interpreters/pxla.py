"""What `jax.interpreters.pxla` has that means something here: meshes by their older names."""

from weft.base.publish import publish as _publish
from weft.sharding import Mesh, PartitionSpec

__all__ = ["Mesh", "PartitionSpec"]

_publish(__name__)
