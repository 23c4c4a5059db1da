"""Where arrays are on a mesh of devices, as plain data: meshes, partition specs and shardings.

This folder is below all others and public too: it names devices and never runs anything on them.
"""

from weft.base.publish import publish as _publish
from weft.sharding.current import (
    get_abstract_mesh as get_abstract_mesh,
    get_mesh as get_mesh,
    set_mesh as set_mesh,
    use_abstract_mesh as use_abstract_mesh,
)
from weft.sharding.device import AbstractDevice as AbstractDevice
from weft.sharding.manual import ManualAxisType as ManualAxisType
from weft.sharding.mesh import AbstractMesh as AbstractMesh, AxisType as AxisType, Mesh as Mesh
from weft.sharding.shardings import (
    NamedSharding as NamedSharding,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    make_single_device_sharding as make_single_device_sharding,
)
from weft.sharding.spec import PartitionSpec as PartitionSpec

_publish(__name__)
