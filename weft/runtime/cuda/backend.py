"""The backend of NVIDIA GPUs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import collector
from weft.base.errors import ArgumentError, NotSupportedError
from weft.ir.at_sizes import JaxprAtSizes
from weft.ir.primitive import Primitive
from weft.runtime.cuda import driver
from weft.runtime.cuda.libraries.program import BLOCK_ALIGNMENT
from weft.runtime.cuda.memory import Block, CudaMemory
from weft.runtime.cuda.sharing import BorrowedBlock, Lent
from weft.runtime.device import HOME
from weft.runtime.dlpack import CUDA
from weft.sharding.device import Device, first_here, is_addressable

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.backend import Buffer
    from weft.runtime.device import Placement
    from weft.runtime.layouts import Layout
    from weft.runtime.limits import Limits


def hardware_index(device: Device) -> int:
    """The number that the driver has for a GPU of this process."""
    if not is_addressable(device) or device.local_hardware_id is None:
        raise ArgumentError(
            f"{device!r} is a GPU of process {device.process_index}, which cannot be reached from this one.",
            fix="weft.local_devices(backend='gpu'), or a mesh that has some of them",
        )
    return device.local_hardware_id


class CudaBackend:
    """The GPUs of this process. Work on a GPU is started and goes on while Python does."""

    platform = "gpu"
    reads_host = False
    has_flat_programs = False

    def __init__(self, driver_of: Callable[[int], Any] = driver.Driver) -> None:
        self._driver_of = driver_of
        self._memories: dict[int, CudaMemory] = {}

    def driver(self, device: Device) -> Any:
        """The driver of a device."""
        return self.memory(device).driver

    # -- memory ----------------------------------------------------------------------------------------------------

    def memory(self, device: Device) -> CudaMemory:
        """The allocator of a device."""
        index = hardware_index(device)
        found = self._memories.get(index)
        return found or self._memories.setdefault(index, CudaMemory(self._driver_of(index)))

    def adopt(self, value: np.ndarray, device: Device) -> Buffer:
        """A copy: a GPU does not read the memory of NumPy arrays."""
        return self.copy_from_host(value, value.shape, device)

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Buffer:
        block = self.memory(device).copied(value, shape)
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
        """By another thread, once the work that was started so far has ended."""
        value = HOME.memory.empty(shape, dtype)
        if value.nbytes and memory.host_copy is None:
            memory.host_copy = value, memory.owner.driver.copy_out_later(value, address, memory)
            value.flags.writeable = False

    def copy_between(self, array: ConcreteArray, device: Device) -> Buffer:
        """On the GPU itself, or through the host."""
        source = array._memory
        assert isinstance(source, Block)
        if source.owner is not self.memory(device):
            return self.copy_from_host(array._value, array._value.shape, device)
        block = self.memory(device).take(source.size)
        source.owner.driver.copy(block.address, source.address, source.size)
        return None, block, block.address

    def donated_memory(self, array: ConcreteArray) -> Block:
        """The block of a donated array if no other array refers to it, else a copy."""
        if array.is_deleted():
            array._raise_deleted()
        block = array._memory
        assert isinstance(block, Block)
        # The slot of the array, the local variable and the argument of getrefcount.
        if sys.getrefcount(block) <= 3 and type(block) is Block:
            block.epoch = block.owner.driver.epoch
            return block
        copied: Block = self.copy_between(array, array.device)[1]
        return copied

    def takes_donated(self, size: int) -> bool:
        return True

    def devices_changed(self) -> None:
        pass

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        return CUDA, hardware_index(device)

    def stream_of(self, device: Device) -> int:
        handle: int = self.driver(device).stream_handle
        return handle

    def lend(self, memory: Block, stream: int | None) -> Lent:
        return Lent(memory, stream)

    def borrow(self, value: np.ndarray, device: Device) -> Buffer:
        """The memory of another library; a copy where it is at an address that programs do not expect."""
        memory = self.memory(device)
        block: Block = BorrowedBlock(memory, value)
        if block.address % BLOCK_ALIGNMENT and block.size:
            aligned = memory.take(block.size)
            memory.driver.copy(aligned.address, block.address, block.size)
            block = aligned
        return None, block, block.address

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Block | None) -> None:
        """Wait for all work of the GPU."""
        if memory is not None:
            memory.owner.driver.synchronize()
            memory.owner.check_flags()

    def is_ready(self, memory: Block | None) -> bool:
        return memory is None or memory.owner.driver.is_idle()

    # -- programs --------------------------------------------------------------------------------------------------

    def target(self, device: Device) -> Target:
        from weft.compiler.target.cuda.targets import of_capability

        driver = self.driver(device)
        return of_capability(*driver.capability, driver.library_names)

    def limits(self, device: Device) -> Limits:
        """What the units of the GPU do at their highest clock, and its memory."""
        from weft.runtime.cuda.inside import limits_of

        return limits_of(self.driver(device))

    @collector.without_collection
    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        again: Callable[[], Any] | None = None,
        flat: str = "no",
    ) -> Any:
        from weft.compiler.load import compilation_of
        from weft.runtime.cuda.executable import CudaExecutable

        flags = tuple(donated) or (False,) * len(jaxpr.invars)
        # Kernels are for one size each.
        plain = jaxpr.plain() if isinstance(jaxpr, JaxprAtSizes) else jaxpr
        driver = self.driver(device)

        def prepare(fused: Jaxpr, target: Target) -> None:
            # What this needs is loaded by those who compile.
            from weft.runtime.cuda.libraries.early import prepare_early

            prepare_early(driver, fused)

        compilation = compilation_of(plain, flags, self.target(device), again is not None, prepare)
        executable = CudaExecutable(compilation, again)
        executable.loaded(self.memory(device))
        return executable

    def compile_for_devices(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        sizes: Mapping[Any, int],
        devices: Sequence[Device],
        agreement: Any,
        compilation: Any = None,
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        from weft.runtime.cuda.spmd import CudaDevicesExecutable

        target = self.target(first_here(devices))
        return CudaDevicesExecutable(jaxpr, donated, sizes, devices, target, agreement, compilation)

    def shared_by_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Any], results: Sequence[Any]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        raise NotSupportedError(
            "The setting `reproducible` does not have more parts than GPUs yet.",
            fix="weft.config.update('reproducible', 0), or a mesh of CPU devices",
        )

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copies of the parts of an array, each in a block of its own."""
        parts = (np.ascontiguousarray(layout.padded(value[index])) for index in layout.indices)
        blocks = [p.memory.copied(part, part.shape) for p, part in zip(layout.placements, parts, strict=True)]
        return np.array([b.address for b in blocks], np.int64).tobytes(), blocks

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """Parts on GPUs as one array of the host."""
        whole = np.empty(layout.shape, layout.dtype)
        part = np.empty(layout.part_shape, layout.dtype)
        for i, address in enumerate(np.frombuffer(addresses, np.int64)):
            if layout.firsts[i] == i and part.nbytes:
                layout.placements[i].memory.driver.copy_out(part, int(address))
                out = whole[layout.indices[i]]
                out[...] = part[tuple(map(slice, out.shape))]
        whole.flags.writeable = False
        return whole, None

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        return False

    def eager_call(
        self,
        executable: Any,
        types: Sequence[ArrayType],
        results: Sequence[ArrayType],
        placement: Placement,
        length: int | None = None,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """A function of arrays that runs the executable of one operation."""
        from weft.runtime.cuda.dispatch import eager_call

        return eager_call(executable, types, results, placement)

    def queued_call(self, executable: Any, constants: Any, donated: Any, placement: Placement) -> None:
        """None: no call waits for its results."""

    def write_call(
        self,
        source: Source,
        executable: Any,
        constants: Sequence[ConcreteArray],
        leaves: Sequence[str],
        donated: Sequence[bool],
        placement: Placement,
    ) -> list[str]:
        """Write the part of a dispatcher that runs an executable."""
        from weft.runtime.cuda.dispatch import CallWriter

        return CallWriter(source, executable, placement).write(constants, leaves, donated)
