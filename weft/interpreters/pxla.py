"""What `jax.interpreters.pxla` has that means something here: meshes by their older names."""

from weft.base.publish import publish as _publish
from weft.sharding import Mesh as Mesh, PartitionSpec as PartitionSpec

_publish(__name__)
