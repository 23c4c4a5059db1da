"""Memory of CPU devices: the host reads it in place."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.runtime.cpu import parts
from weft.runtime.cpu.memory import SMALL, Block, Chunk, DeviceMemory
from weft.runtime.dlpack import CPU_DEVICE
from weft.runtime.promise import Promise
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.runtime.array import ConcreteArray
    from weft.runtime.layouts import Layout
    from weft.runtime.memory_backend import Buffer


class CpuMemoryBackend:
    """Memory of the CPU devices of this process: each has an allocator of its own."""

    platform = "cpu"
    reads_host = True
    dlpack_type = CPU_DEVICE[0]

    def __init__(self) -> None:
        self._memories: dict[Device, DeviceMemory] = {}

    def memory(self, device: Device) -> DeviceMemory:
        """Return the allocator of a device."""
        return self._memories.get(device) or self._memories.setdefault(device, DeviceMemory())

    def adopt(self, value: np.ndarray, device: Device) -> Buffer:
        """Return the NumPy array itself as the memory of an array."""
        return value, None, 0

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Buffer:
        """Copy a NumPy array, broadcast to a shape. NumPy allocates small arrays faster than the pool."""
        if math.prod(shape) * value.itemsize <= SMALL:
            return np.array(value, order="C") if value.shape == shape else np.full(shape, value), None, 0
        block = self.memory(device).allocate_copy(value, shape)
        return None, block, block.address

    def copy_to_host(self, memory: Chunk, address: int, shape: Any, dtype: np.dtype) -> np.ndarray:
        """Return a view of the memory."""
        return memory.view(address, shape, dtype)

    def copy_to_host_later(self, memory: Chunk, address: int, shape: Any, dtype: np.dtype) -> None:
        """Do nothing: the host reads the memory in place."""

    def copy_between(self, array: ConcreteArray, device: Device) -> Buffer:
        """Copy an array to the memory of a device."""
        value = array._value
        return self.copy_from_host(value, value.shape, device)

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copy the shards of an array to devices."""
        return parts.scatter(value, layout)

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """Copy shards on devices to one array of the host."""
        return parts.gather(addresses, layout)

    def donated_memory(self, array: ConcreteArray) -> Block:
        """Return the block of a donated array if neither another array nor NumPy refers to it, else a copy."""
        if type(array._memory) is Promise:
            array._settle(array._memory)
        block = array._memory
        # Expected references: the slot of the array, the local variable and the argument of getrefcount.
        if type(block) is Block and sys.getrefcount(block) <= 3:
            views = sys.getrefcount(block.array) - 2  # NumPy's references to the memory
            if not views or (views == 1 and array._buffer is not None and sys.getrefcount(array._buffer) <= 2):
                return block
        value = array._value
        return self.memory(array.device).allocate_copy(value, value.shape)

    def takes_donated(self, size: int) -> bool:
        """Return False for small arrays: they share chunks, and a copy is cheaper than finding out about references."""
        return size > SMALL

    def update_devices(self) -> None:
        """Rebuild the table of allocators, whose keys hash by the ids of devices."""
        self._memories = dict(self._memories.items())

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return CPU_DEVICE

    def get_stream(self, device: Device) -> None:
        """Return None: memory that is not a promise may be read at any time."""

    def lend(self, memory: Any, stream: int | None) -> Any:
        return memory

    def borrow(self, value: np.ndarray, device: Device) -> Buffer:
        return self.adopt(value, device)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Chunk | None) -> None:
        """Do nothing: memory that is not a promise has been written."""

    def is_ready(self, memory: Chunk | None) -> bool:
        """Return True: memory that is not a promise has been written."""
        return True
