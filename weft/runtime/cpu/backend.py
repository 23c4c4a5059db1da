"""The backend of CPUs: the host reads device memory, and programs run in the calling thread and one thread pool."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.ir.primitive import Primitive
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Reduction
from weft.runtime.cpu import parts
from weft.runtime.cpu.memory import SMALL, Block, Chunk, DeviceMemory
from weft.runtime.dlpack import CPU_DEVICE
from weft.runtime.promise import Promise
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler.compilation import Compilation
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.backend import Buffer
    from weft.runtime.cpu.executable import Executable
    from weft.runtime.cpu.queue import QueuedCall
    from weft.runtime.device import Placement
    from weft.runtime.layouts import Layout
    from weft.runtime.limits import Limits
    from weft.runtime.reproducible import Cut


class CpuBackend:
    """Backend of the CPU devices of a process: all are of one machine, and share their code."""

    platform = "cpu"
    reads_host = True
    has_flat_programs = True

    def __init__(self) -> None:
        self._memories: dict[Device, DeviceMemory] = {}

    # -- memory ----------------------------------------------------------------------------------------------------

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
        block = self.memory(device).copied(value, shape)
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
        return self.memory(array.device).copied(value, value.shape)

    def takes_donated(self, size: int) -> bool:
        """Return False for small arrays: they share chunks, and a copy is cheaper than finding out about references."""
        return size > SMALL

    def devices_changed(self) -> None:
        """Rebuild the table of allocators, whose keys hash by the ids of devices."""
        self._memories = dict(self._memories.items())

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return CPU_DEVICE

    def stream_of(self, device: Device) -> None:
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

    # -- programs: the compiler is imported with the first one ------------------------------------------------------

    def target(self, device: Device) -> Target:
        """Return the host as a compilation target."""
        from weft.compiler.target.cpu.targets import host

        return host()

    def limits(self, device: Device) -> Limits:
        """Return the peak performance of the threads that programs may use now."""
        from weft.runtime.cpu.limits import limits

        return limits()

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        again: Callable[[], Executable] | None = None,
        flat: str = "no",
    ) -> Executable:
        """Compile a jaxpr, whose constants are arguments."""
        from weft.runtime.cpu.executable import compile_executable

        return compile_executable(jaxpr, donated, self.target(device), again, flat)

    def compile_for_devices(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        sizes: Mapping[Any, int],
        devices: Sequence[Device],
        agreement: Any,
        compilation: Compilation | None = None,
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """Compile a per-device jaxpr for the devices of a mesh."""
        from weft.runtime.cpu.spmd import DevicesExecutable

        return DevicesExecutable(jaxpr, donated, sizes, devices, self.target(devices[0]), agreement, compilation)

    def shared_by_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Cut], results: Sequence[Cut]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """Adapt an executable of more parts than devices to the devices that share them."""
        from weft.runtime.cpu.shares import SharedExecutable

        return SharedExecutable(parts, owners, arguments, results)

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        """Return True except for large maps and reductions: NumPy is as fast otherwise, and needs no compiler."""
        return not (large and isinstance(primitive, (Elementwise, Reduction)))

    def eager_call(
        self,
        executable: Executable,
        types: Sequence[ArrayType],
        results: Sequence[ArrayType],
        placement: Placement,
        length: int | None = None,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a function of arrays that runs the executable of one operation."""
        from weft.runtime.cpu.launch import eager_call

        return eager_call(executable, types, results, placement, length)

    def write_call(
        self,
        source: Source,
        executable: Executable,
        constants: Sequence[ConcreteArray],
        leaves: Sequence[str],
        donated: Sequence[bool],
        placement: Placement,
    ) -> list[str]:
        """Write the part of a dispatcher that runs an executable."""
        from weft.runtime.cpu.dispatch import CallWriter

        return CallWriter(source, executable, placement).write(constants, leaves, donated)

    def queued_call(
        self,
        executable: Executable,
        constants: Sequence[ConcreteArray],
        donated: Sequence[bool],
        placement: Placement,
    ) -> QueuedCall | None:
        """Return a function of arrays that enqueues the executable, or None if it may not run in the queue."""
        from weft.runtime.cpu.queue import QueuedCall

        return QueuedCall(executable, constants, donated, placement) if QueuedCall.can_be(executable) else None
