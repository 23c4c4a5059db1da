"""Models on many devices: meshes, layouts by the paths of variables, and distributions that `fit` follows."""

from weft.errors import publish as _publish
from weft.keras.distribution.distributions import (
    DataParallel as DataParallel,
    Distribution as Distribution,
    FullyShardedDataParallel as FullyShardedDataParallel,
    ModelParallel as ModelParallel,
    distribution as distribution,
    initialize as initialize,
    set_distribution as set_distribution,
)
from weft.keras.distribution.layout import (
    LayoutMap as LayoutMap,
    TensorLayout as TensorLayout,
    distribute_tensor as distribute_tensor,
)
from weft.keras.distribution.mesh import (
    DeviceMesh as DeviceMesh,
    get_device_count as get_device_count,
    list_devices as list_devices,
)

_publish(__name__)
