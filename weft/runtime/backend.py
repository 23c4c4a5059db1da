"""The interface of a platform: allocate and copy memory, compile and run programs, and wait for results.

Code above this layer calls the backend of a device and does not depend on a platform by name. The CPU's backend is in
`runtime/cpu/`. `backend_of` loads neither the compiler nor LLVM: the first compilation does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft.base.errors import ArgumentError
from weft.ir.primitive import Primitive
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler.compilation import Compilation
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.cpu.executable import Executable
    from weft.runtime.device import Placement
    from weft.runtime.layouts import Layout
    from weft.runtime.limits import Limits
    from weft.runtime.reproducible import Cut


class Allocation(Protocol):
    """Memory of a device. It is freed with the last reference to it."""

    address: int


class DeviceMemory(Protocol):
    """The allocator of a device."""

    def allocate(self, size: int) -> tuple[int, Allocation]:
        """Allocate `size` bytes; return an address and the allocation that contains it."""
        ...

    def clear(self) -> None:
        """Return pooled free memory to the system."""
        ...

    def statistics(self) -> dict[str, int] | None:
        """Return allocator statistics, or None if they are not tracked."""
        ...


# The memory of an array: a NumPy array if the device reads it directly, an allocation, and an address in it.
Buffer = tuple[np.ndarray | None, Any, int]


class QueuedCall(Protocol):
    """Call an executable asynchronously; return None if this call has to be made synchronously.

    An empty `flying` means that no asynchronous call is in progress.
    """

    flying: Any

    def __call__(self, arrays: tuple[ConcreteArray, ...]) -> list[ConcreteArray] | None: ...


class Backend(Protocol):
    """Operations of a platform.

    `reads_host`: programs read NumPy arrays in place, and the host reads device memory. `has_flat_programs`: the
    backend compiles eager operations for arrays of any length.
    """

    platform: str
    reads_host: bool
    has_flat_programs: bool

    # -- memory ----------------------------------------------------------------------------------------------------

    def memory(self, device: Device) -> DeviceMemory:
        """Return the allocator of a device."""
        ...

    def adopt(self, value: np.ndarray, device: Device) -> Buffer:
        """Return device memory with the elements of a NumPy array that is never written again.

        There is no copy if the device reads host memory.
        """
        ...

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Buffer:
        """Copy a NumPy array to device memory, broadcast to a shape."""
        ...

    def copy_to_host(self, memory: Any, address: int, shape: Any, dtype: np.dtype) -> np.ndarray:
        """Return the elements at an address of an allocation as a read-only NumPy array of a shape and dtype.

        It is a view if the host reads the memory of the device.
        """
        ...

    def copy_between(self, array: ConcreteArray, device: Device) -> Buffer:
        """Copy an array of one device of this platform to the memory of another one, or of the same one."""
        ...

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copy the shards of a NumPy array to the devices of a layout; return their addresses and allocations.

        The allocations are a list if each shard has one of its own, else one for all shards or a tuple.
        """
        ...

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """Return the shards at these addresses as one read-only NumPy array, and its allocation if that can be
        reused.
        """
        ...

    def copy_to_host_later(self, memory: Any, address: int, shape: Any, dtype: np.dtype) -> None:
        """Start an asynchronous device-to-host copy that a later `copy_to_host` will use."""
        ...

    def donated_memory(self, array: ConcreteArray) -> Any:
        """Return an allocation with the elements of a donated array that a program may overwrite.

        It is the array's own memory if there are no other references to it, else a copy.
        """
        ...

    def takes_donated(self, size: int) -> bool:
        """Return whether programs reuse the memory of donated arguments of `size` bytes; others are only deleted."""
        ...

    def devices_changed(self) -> None:
        """Update tables by device id: the ids change when this process becomes one of several."""
        ...

    # -- memory that is shared with other libraries -----------------------------------------------------------------

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        """Return the device type and index that DLPack has for a device."""
        ...

    def stream_of(self, device: Device) -> int | None:
        """Return the stream that a device's work is submitted to, or None if the platform has no streams."""
        ...

    def lend(self, memory: Any, stream: int | None) -> Any:
        """Return an object that keeps memory alive for another library, which uses it on a stream.

        The memory is returned when the object is deleted.
        """
        ...

    def borrow(self, value: np.ndarray, device: Device) -> Buffer:
        """Return the memory of a contiguous array of another library without a copy where possible."""
        ...

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Any) -> None:
        """Block until all pending writes to an allocation are complete."""
        ...

    def is_ready(self, memory: Any) -> bool:
        """Return whether `wait` would return at once."""
        ...

    # -- programs --------------------------------------------------------------------------------------------------

    def target(self, device: Device) -> Target:
        """Return the compilation target of a device."""
        ...

    def limits(self, device: Device) -> Limits:
        """Return the peak performance of a device."""
        ...

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        again: Callable[[], Executable] | None = None,
        flat: str = "no",
    ) -> Executable:
        """Compile a jaxpr, whose constants are arguments, to an executable in memory.

        With `again`, all checks share one error flag, and `again` builds the executable with traps that reports which
        check failed. With a `flat` other than "no", the executable is for arrays of any length.
        """
        ...

    def compile_for_devices(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        sizes: Mapping[Any, int],
        devices: Sequence[Device],
        agreement: Any,
        compilation: Compilation | None = None,
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """Compile a per-device jaxpr for the devices of a mesh whose axes have these sizes.

        Return a function that takes the addresses of each argument's shards, the allocations of donated shards and the
        placements of the devices, and returns the addresses and allocations of each result's shards; only those on
        devices of this process. On a mesh of several processes all of them call it, in a section of their
        `agreement`. With `compilation`, its steps are used and the jaxpr only gives types.
        """
        ...

    def shared_by_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Cut], results: Sequence[Cut]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """Adapt a function of `compile_for_devices` for more shards than devices to the shards of devices.

        `owners` has the device of each shard, as an index among the devices of this process.
        """
        ...

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        """Return whether NumPy should compute an eager operation, which it may only if the bits are the same.

        `large` says that the operands are large enough for compilation to pay off.
        """
        ...

    def eager_call(
        self,
        executable: Executable,
        types: Sequence[ArrayType],
        results: Sequence[ArrayType],
        placement: Placement,
        length: int | None = None,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a function that runs the executable of one operation on arrays and returns arrays at a placement.

        It takes arrays of `types` (or NumPy arrays of their storage). `length` is the length of this call of a flat
        executable.
        """
        ...

    def write_call(
        self,
        source: Source,
        executable: Executable,
        constants: Sequence[ConcreteArray],
        leaves: Sequence[str],
        donated: Sequence[bool],
        placement: Placement,
    ) -> list[str]:
        """Write the part of a dispatcher that runs an executable; return an expression for each result.

        The arguments are `constants` and the arrays that the dispatcher names `leaves`, some of them donated. Each
        result is an array at a placement.
        """
        ...

    def queued_call(
        self,
        executable: Executable,
        constants: Sequence[ConcreteArray],
        donated: Sequence[bool],
        placement: Placement,
    ) -> QueuedCall | None:
        """Return an asynchronous call of an executable, or None if calls that `write_call` writes never block."""
        ...


_loaders: dict[str, Callable[[], Backend]] = {}
_loaded: dict[str, Backend] = {}


def register(platform: str, load: Callable[[], Backend]) -> None:
    """Register a function that creates the backend of a platform on first use."""
    _loaders[platform] = load


def platforms() -> list[str]:
    """Return the names of the registered platforms."""
    return list(_loaders)


def backend_of(device: Device) -> Backend:
    """Return the backend of a device, loading it on first use."""
    found = _loaded.get(device.platform)
    if found is None:
        load = _loaders.get(device.platform)
        if load is None:
            what = f"No backend is registered for {device!r}."
            raise ArgumentError(what, received=device.platform, fix=f"devices are on: {', '.join(_loaders)}")
        found = _loaded.setdefault(device.platform, load())  # so that two threads get the same backend
    return found
