"""Models on many devices: meshes, layouts by the paths of variables, and distributions that `fit` follows."""

from weft.errors import publish as _publish
from weft.keras.distribution.distributions import (
    DataParallel,
    Distribution,
    FullyShardedDataParallel,
    ModelParallel,
    distribution,
    initialize,
    set_distribution,
)
from weft.keras.distribution.layout import LayoutMap, TensorLayout, distribute_tensor
from weft.keras.distribution.mesh import DeviceMesh, get_device_count, list_devices

__all__ = [
    "DataParallel",
    "DeviceMesh",
    "Distribution",
    "FullyShardedDataParallel",
    "LayoutMap",
    "ModelParallel",
    "TensorLayout",
    "distribute_tensor",
    "distribution",
    "get_device_count",
    "initialize",
    "list_devices",
    "set_distribution",
]

_publish(__name__)
