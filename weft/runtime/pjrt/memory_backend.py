"""Memory of the devices of PJRT plugins. The address of an array is the handle of its buffer, which programs take."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.errors import ArgumentError
from weft.base.lazy import lazy
from weft.runtime.pjrt.client import Buffer, Client
from weft.runtime.pjrt.devices import get_client, get_hardware
from weft.sharding.device import Device, is_addressable

if TYPE_CHECKING:
    from weft.runtime.array import ConcreteArray
    from weft.runtime.layouts import Layout
    from weft.runtime.memory_backend import Buffer as Memory
    from weft.runtime.pjrt import checks

else:
    checks = lazy("weft.runtime.pjrt.checks")

# DLPack's number for devices that it does not name.
EXTENSION_DEVICE = 12


class PjrtMemory:
    """Memory of one device. The plugin allocates; buffers are freed with the last reference to them."""

    def __init__(self, client: Client, handle: int) -> None:
        self.client, self.handle = client, handle

    def allocate(self, size: int) -> tuple[int, Buffer]:
        """Allocate `size` bytes, as an array of bytes."""
        buffer = self.put(np.zeros(size, np.uint8))
        return buffer.address, buffer

    def put(self, value: np.ndarray) -> Buffer:
        """Copy an array to the device."""
        return self.client.put(value, self.handle)

    def clear(self) -> None:
        """Do nothing: the plugin has the pool."""

    def statistics(self) -> dict[str, int] | None:
        """Return the plugin's statistics, or None if it has none."""
        return self.client.memory_statistics(self.handle)


class PjrtMemoryBackend:
    """Memory of the devices of one plugin."""

    reads_host = False
    dlpack_type = EXTENSION_DEVICE

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self._memories: dict[int | None, PjrtMemory] = {}

    def memory(self, device: Device) -> PjrtMemory:
        """Return the memory of a device."""
        if not is_addressable(device):
            raise ArgumentError(
                "Arrays must be put on devices of this process.",
                received=f"{device!r} of process {device.process_index}",
                fix=f"weft.local_devices(backend={self.platform!r})",
            )
        found = self._memories.get(device.local_hardware_id)
        if found is None:
            created = PjrtMemory(get_client(device), get_hardware(device).handle)
            found = self._memories.setdefault(device.local_hardware_id, created)
        return found

    def adopt(self, value: np.ndarray, device: Device) -> Memory:
        """Copy the array: plugins do not read the memory of NumPy arrays."""
        return self.copy_from_host(value, value.shape, device)

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Memory:
        buffer = self.memory(device).put(value if value.shape == shape else np.broadcast_to(value, shape))
        return None, buffer, buffer.address

    def copy_to_host(self, memory: Buffer, address: int, shape: Any, dtype: np.dtype) -> np.ndarray:
        client = memory.client
        value = client.copy_out(memory, shape, dtype)
        value.flags.writeable = False
        self._check_flags(client)
        return value

    def _check_flags(self, client: Client) -> None:
        """Raise the error of a check that failed in an earlier program."""
        if client.flags:
            checks.check_flags(client.flags)

    def copy_to_host_later(self, memory: Buffer, address: int, shape: Any, dtype: np.dtype) -> None:
        """Start a copy that the plugin makes when the buffer has been written."""
        memory.client.start_copy(memory, shape, dtype)

    def copy_between(self, array: ConcreteArray, device: Device) -> Memory:
        """Copy between devices of the plugin, or on one device through the host."""
        source, memory = array._memory, self.memory(device)
        assert isinstance(source, Buffer)
        if array._placement.device is device:
            return self.copy_from_host(array._value, array._value.shape, device)
        buffer = memory.client.copy_to(source, memory.handle)
        return None, buffer, buffer.address

    def donated_memory(self, array: ConcreteArray) -> Buffer:
        """Return the buffer of a donated array if no other array refers to it, else a copy."""
        if array.is_deleted():
            array._raise_deleted()
        buffer = array._memory
        assert isinstance(buffer, Buffer)
        # Expected references: the slot of the array, the local variable and the argument of getrefcount.
        if sys.getrefcount(buffer) <= 3 and buffer.host_copy is None:
            return buffer
        copied: Buffer = self.copy_between(array, array.device)[1]
        return copied

    def takes_donated(self, size: int) -> bool:
        return True

    def update_devices(self) -> None:
        pass

    # -- memory shared with other libraries ------------------------------------------------------------------------

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return EXTENSION_DEVICE, device.local_hardware_id or 0

    def get_stream(self, device: Device) -> None:
        """Return None: other libraries cannot use the work queues of a plugin."""

    def lend(self, memory: Any, stream: int | None) -> Any:
        raise BufferError(f"Arrays on devices of {self.platform!r} must be copied to the host first: np.asarray(x).")

    def borrow(self, value: np.ndarray, device: Device) -> Memory:
        raise BufferError(f"Arrays of other libraries on devices like {device!r} must be copied to the host first.")

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Buffer | None) -> None:
        """Wait until a buffer has been written."""
        if memory is not None:
            memory.client.wait(memory)
            self._check_flags(memory.client)

    def is_ready(self, memory: Buffer | None) -> bool:
        return memory is None or memory.client.is_ready(memory)

    # -- shards ----------------------------------------------------------------------------------------------------

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copy the shards of an array to devices, each to a buffer of its own."""
        parts = (layout.pad_shard(value[index]) for index in layout.indices)
        buffers = [p.memory.put(part) for p, part in zip(layout.placements, parts, strict=True)]
        return write_handles(buffers), buffers

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """Copy shards to one array of the host."""
        whole = np.empty(layout.shape, layout.dtype)
        handles = np.frombuffer(addresses, np.int64).tolist()
        for i, handle in enumerate(handles):
            if layout.firsts[i] == i and layout.part_bytes:
                part = layout.placements[i].memory.client.read(handle, layout.part_shape, layout.dtype)
                out = whole[layout.indices[i]]
                out[...] = part[tuple(map(slice, out.shape))]
        whole.flags.writeable = False
        return whole, None


def write_handles(buffers: Any) -> bytes:
    """Return the handles of buffers as 64-bit integers, which shared code passes as addresses."""
    return np.array([b.address for b in buffers], np.int64).tobytes()
