"""The backend of CPUs: the host reads the memory of every device, and programs run in the calling thread and in the
threads of one pool."""

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
    """All CPU devices of a process are of the machine that it runs on, and share their code."""

    platform = "cpu"
    reads_host = True
    has_flat_programs = True

    def __init__(self) -> None:
        self._memories: dict[Device, DeviceMemory] = {}

    # -- memory ----------------------------------------------------------------------------------------------------

    def memory(self, device: Device) -> DeviceMemory:
        """The allocator of a device."""
        return self._memories.get(device) or self._memories.setdefault(device, DeviceMemory())

    def adopt(self, value: np.ndarray, device: Device) -> Buffer:
        """A NumPy array as the memory of an array: itself."""
        return value, None, 0

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Buffer:
        """A copy of a NumPy array, broadcast to a shape. NumPy allocates small ones more quickly than a pool."""
        if math.prod(shape) * value.itemsize <= SMALL:
            return np.array(value, order="C") if value.shape == shape else np.full(shape, value), None, 0
        block = self.memory(device).copied(value, shape)
        return None, block, block.address

    def copy_to_host(self, memory: Chunk, address: int, shape: Any, dtype: np.dtype) -> np.ndarray:
        """A view of the memory."""
        return memory.view(address, shape, dtype)

    def copy_to_host_later(self, memory: Chunk, address: int, shape: Any, dtype: np.dtype) -> None:
        """The host reads it where it is."""

    def copy_between(self, array: ConcreteArray, device: Device) -> Buffer:
        """A copy of an array in the memory of a device."""
        value = array._value
        return self.copy_from_host(value, value.shape, device)

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copies of the parts of an array on devices."""
        return parts.scatter(value, layout)

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """Parts on devices as one array of the host."""
        return parts.gather(addresses, layout)

    def donated_memory(self, array: ConcreteArray) -> Block:
        """The block of a donated array if neither another array nor NumPy refers to it, else a copy."""
        if type(array._memory) is Promise:
            array._settle(array._memory)
        block = array._memory
        # References that are known: the slot of the array, the local variable and the argument of getrefcount.
        if type(block) is Block and sys.getrefcount(block) <= 3:
            views = sys.getrefcount(block.array) - 2  # those that NumPy has of the memory
            if not views or (views == 1 and array._buffer is not None and sys.getrefcount(array._buffer) <= 2):
                return block
        value = array._value
        return self.memory(array.device).copied(value, value.shape)

    def takes_donated(self, size: int) -> bool:
        """Small arrays share chunks with others, and are copied more quickly than it is found out who sees them."""
        return size > SMALL

    def devices_changed(self) -> None:
        """The first device has another id, by which its allocator is found."""
        self._memories = dict(self._memories.items())

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return CPU_DEVICE

    def stream_of(self, device: Device) -> None:
        """None: what is there may be read."""

    def lend(self, memory: Any, stream: int | None) -> Any:
        return memory

    def borrow(self, value: np.ndarray, device: Device) -> Buffer:
        return self.adopt(value, device)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Chunk | None) -> None:
        """Memory that is not a promise is written, so there is nothing to wait for."""

    def is_ready(self, memory: Chunk | None) -> bool:
        """Whether what writes to memory that is not a promise has ended: always."""
        return True

    # -- programs: what runs them is loaded with the first one -----------------------------------------------------

    def target(self, device: Device) -> Target:
        """The machine that programs for a device are compiled for."""
        from weft.compiler.target.cpu.targets import host

        return host()

    def limits(self, device: Device) -> Limits:
        """What the threads that programs may use now can do together."""
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
        """The jaxpr, whose constants are arguments, as an executable."""
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
        """A local jaxpr as an executable for the devices of a mesh."""
        from weft.runtime.cpu.spmd import DevicesExecutable

        return DevicesExecutable(jaxpr, donated, sizes, devices, self.target(devices[0]), agreement, compilation)

    def shared_by_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Cut], results: Sequence[Cut]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """An executable for more parts than there are devices as one for the devices that share them."""
        from weft.runtime.cpu.shares import SharedExecutable

        return SharedExecutable(parts, owners, arguments, results)

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        """NumPy is as quick but for large maps and reductions, and needs no compiler."""
        return not (large and isinstance(primitive, (Elementwise, Reduction)))

    def eager_call(
        self,
        executable: Executable,
        types: Sequence[ArrayType],
        results: Sequence[ArrayType],
        placement: Placement,
        length: int | None = None,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """A function of arrays that runs the executable of one operation."""
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
        """A function of arrays that returns results which are not computed yet."""
        from weft.runtime.cpu.queue import QueuedCall

        return QueuedCall(executable, constants, donated, placement) if QueuedCall.can_be(executable) else None
