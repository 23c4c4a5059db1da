"""Memory spaces of a device: `weft.memory.Space.Device`, `Host` and `Any`, for `device_put` and types."""

from weft.base.publish import publish as _publish
from weft.sharding.device import MemorySpace as _MemorySpace

Space = _MemorySpace

_publish(__name__)
