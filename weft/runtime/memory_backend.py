"""Interface to the memory of a platform: allocate, copy, share with other libraries, and wait for results.

Arrays use this and nothing else of a platform; programs are in `execution_backend.py`. Each platform implements it in
its own folder, and `weft/runtime/__init__.py` registers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft.runtime.registry import Registry
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.runtime.array import ConcreteArray
    from weft.runtime.layouts import Layout


class Allocation(Protocol):
    """Memory of a device. It is freed with the last reference to it."""

    address: int


class Allocator(Protocol):
    """Allocator of a device."""

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


class MemoryBackend(Protocol):
    """Memory of the devices of a platform.

    `reads_host`: programs read NumPy arrays in place, and the host reads device memory. `dlpack_type`: DLPack's number
    for this kind of device.
    """

    platform: str
    reads_host: bool
    dlpack_type: int

    def memory(self, device: Device) -> Allocator:
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

    def update_devices(self) -> None:
        """Update tables by device id: the ids change when this process becomes one of several."""
        ...

    # -- memory shared with other libraries ------------------------------------------------------------------------

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        """Return the device type and index that DLPack has for a device."""
        ...

    def get_stream(self, device: Device) -> int | None:
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


memory_backends: Registry[MemoryBackend] = Registry("memory backend")


def memory_backend(device: Device) -> MemoryBackend:
    """Return the memory backend of a device, loading it on first use."""
    return memory_backends.get(device.platform)
