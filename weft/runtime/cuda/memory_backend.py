"""Memory of NVIDIA GPUs. All work on a GPU is asynchronous."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.errors import ArgumentError
from weft.runtime.cuda import driver
from weft.runtime.cuda.libraries.program import BLOCK_ALIGNMENT
from weft.runtime.cuda.memory import Block, CudaMemory
from weft.runtime.cuda.sharing import BorrowedBlock, Lent
from weft.runtime.device import HOME
from weft.runtime.dlpack import CUDA
from weft.sharding.device import Device, is_addressable

if TYPE_CHECKING:
    from weft.runtime.array import ConcreteArray
    from weft.runtime.layouts import Layout
    from weft.runtime.memory_backend import Buffer


def hardware_index(device: Device) -> int:
    """Return the driver's index of a GPU of this process; raise if it belongs to another one."""
    if not is_addressable(device) or device.local_hardware_id is None:
        raise ArgumentError(
            f"{device!r} is a GPU of process {device.process_index}, which this process cannot access.",
            fix="weft.local_devices(backend='gpu'), or a mesh that has some of them",
        )
    return device.local_hardware_id


class CudaMemoryBackend:
    """Memory of the GPUs of this process: each has an allocator and a driver."""

    platform = "gpu"
    reads_host = False
    dlpack_type = CUDA

    def __init__(self, driver_of: Callable[[int], Any] = driver.Driver) -> None:
        self._driver_of = driver_of
        self._memories: dict[int, CudaMemory] = {}

    def memory(self, device: Device) -> CudaMemory:
        """Return the allocator of a device."""
        index = hardware_index(device)
        found = self._memories.get(index)
        return found or self._memories.setdefault(index, CudaMemory(self._driver_of(index)))

    def adopt(self, value: np.ndarray, device: Device) -> Buffer:
        """Copy the array: a GPU does not read the memory of NumPy arrays."""
        return self.copy_from_host(value, value.shape, device)

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Buffer:
        block = self.memory(device).allocate_copy(value, shape)
        return None, block, block.address

    def copy_to_host(self, memory: Block, address: int, shape: Any, dtype: np.dtype) -> np.ndarray:
        begun = memory.host_copy
        if begun is not None:
            value, later = begun
            waits = memory.owner.driver.with_others
            if waits is not None:
                waits(later.done)
            later.result()
            memory.host_copy = None
        else:
            value = HOME.memory.empty(shape, dtype)
            if value.nbytes:
                memory.owner.driver.copy_out(value, address)
            value.flags.writeable = False
        memory.owner.check_flags()
        return value

    def copy_to_host_later(self, memory: Block, address: int, shape: Any, dtype: np.dtype) -> None:
        """Start a copy in another thread, after all work so far."""
        value = HOME.memory.empty(shape, dtype)
        if value.nbytes and memory.host_copy is None:
            memory.host_copy = value, memory.owner.driver.copy_out_later(value, address, memory)
            value.flags.writeable = False

    def copy_between(self, array: ConcreteArray, device: Device) -> Buffer:
        """Copy within the GPU, or through the host."""
        source = array._memory
        assert isinstance(source, Block)
        if source.owner is not self.memory(device):
            return self.copy_from_host(array._value, array._value.shape, device)
        block = self.memory(device).take(source.size)
        source.owner.driver.copy(block.address, source.address, source.size)
        return None, block, block.address

    def donated_memory(self, array: ConcreteArray) -> Block:
        """Return the block of a donated array if no other array refers to it, else a copy."""
        if array.is_deleted():
            array._raise_deleted()
        block = array._memory
        assert isinstance(block, Block)
        # Expected references: the slot of the array, the local variable and the argument of getrefcount.
        if sys.getrefcount(block) <= 3 and type(block) is Block:
            block.epoch = block.owner.driver.epoch
            return block
        copied: Block = self.copy_between(array, array.device)[1]
        return copied

    def takes_donated(self, size: int) -> bool:
        return True

    def update_devices(self) -> None:
        pass

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return CUDA, hardware_index(device)

    def get_stream(self, device: Device) -> int:
        handle: int = self.memory(device).driver.stream_handle
        return handle

    def lend(self, memory: Block, stream: int | None) -> Lent:
        return Lent(memory, stream)

    def borrow(self, value: np.ndarray, device: Device) -> Buffer:
        """Return the memory of another library, or a copy if it is not aligned as programs expect."""
        memory = self.memory(device)
        block: Block = BorrowedBlock(memory, value)
        if block.address % BLOCK_ALIGNMENT and block.size:
            aligned = memory.take(block.size)
            memory.driver.copy(aligned.address, block.address, block.size)
            block = aligned
        return None, block, block.address

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Block | None) -> None:
        """Wait for all work of the GPU, and raise the error of a failed check."""
        if memory is not None:
            memory.owner.driver.synchronize()
            memory.owner.check_flags()

    def is_ready(self, memory: Block | None) -> bool:
        return memory is None or memory.owner.driver.is_idle()

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copy the shards of an array to devices, each to its own block."""
        parts = (np.ascontiguousarray(layout.pad_shard(value[index])) for index in layout.indices)
        blocks = [p.memory.allocate_copy(part, part.shape) for p, part in zip(layout.placements, parts, strict=True)]
        return np.array([b.address for b in blocks], np.int64).tobytes(), blocks

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """Copy shards on GPUs to one array of the host."""
        whole = np.empty(layout.shape, layout.dtype)
        part = np.empty(layout.part_shape, layout.dtype)
        for i, address in enumerate(np.frombuffer(addresses, np.int64)):
            if layout.firsts[i] == i and part.nbytes:
                layout.placements[i].memory.driver.copy_out(part, int(address))
                out = whole[layout.indices[i]]
                out[...] = part[tuple(map(slice, out.shape))]
        whole.flags.writeable = False
        return whole, None
