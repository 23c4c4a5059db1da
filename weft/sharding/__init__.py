"""Where arrays are on a mesh of devices, as plain data: meshes, partition specs and shardings.

This folder is below all others and public too: it names devices and never runs anything on them.
"""

from weft.base.publish import publish as _publish
from weft.sharding.current import get_abstract_mesh, get_mesh, set_mesh, use_abstract_mesh
from weft.sharding.device import AbstractDevice
from weft.sharding.manual import ManualAxisType
from weft.sharding.mesh import AbstractMesh, AxisType, Mesh
from weft.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, make_single_device_sharding
from weft.sharding.spec import PartitionSpec

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "set_mesh",
    "use_abstract_mesh",
]

_publish(__name__)
