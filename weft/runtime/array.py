"""`ConcreteArray`: an immutable array that holds its values; on the CPU in a NumPy buffer that is never written
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import conversion, dtypes
from weft.base.settings import config
from weft.base.source import Location
from weft.ir.context import EVALUATION, context
from weft.ir.types import ArrayType, array_type, get_aval
from weft.runtime.device import HOME, Placement, default_placement
from weft.runtime.dlpack import CUDA, is_exchanged, to_device_capsule
from weft.runtime.guards import check_transfer
from weft.runtime.held import HeldArray
from weft.runtime.memory_backend import Allocation
from weft.runtime.promise import Promise
from weft.sharding import SingleDeviceSharding
from weft.sharding.device import Device
from weft.sharding.layout import Shard


class ConcreteArray(HeldArray):
    """Concrete array on one device: its type and its buffer. Operators and methods come from `Array`.

    Arrays of this very class are on the first device and uncommitted, as all arrays in programs that name no devices:
    fast paths need only `type(x) is ConcreteArray`. All others are `PlacedArray`s.
    """

    __slots__ = ("_buffer", "_donated_at", "_memory", "_pointer", "aval")

    _placement: Placement = HOME

    def __init__(
        self, buffer: np.ndarray | None, aval: ArrayType, memory: Allocation | Promise | None = None, pointer: int = 0
    ):
        # Results of programs are memory and an address in it; the NumPy array is created on demand.
        self._buffer = buffer
        self.aval = aval
        self._memory = memory
        self._pointer = pointer

    @property
    def _value(self) -> np.ndarray:
        """Elements, in storage dtype."""
        buffer = self._buffer
        if buffer is None:
            if self._memory is None:
                self._raise_deleted()
            if type(self._memory) is Promise:
                self._settle(self._memory)
            aval = self.aval
            dtype = dtypes.storage(aval.dtype)
            if not self._placement.memory_backend.reads_host:
                check_transfer("device_to_host", aval.short())
            copy = self._placement.memory_backend.copy_to_host
            buffer = self._buffer = copy(self._memory, self._pointer, aval.shape, dtype)
        return buffer

    def _settle(self, promise: Promise) -> None:
        """Wait for the job that computes the elements, and take over the promised memory."""
        promise.job.wait()
        # Another thread may have done the same, or have deleted the array.
        if self._memory is promise:
            self._memory, self._pointer = promise.memory, promise.address

    def copy_to_host_async(self) -> None:
        """Copy the elements to the host, where they are cached, without waiting for a computation in progress.

        >>> import weft.numpy as wnp
        >>> wnp.ones(2).copy_to_host_async()
        """
        if self._buffer is None and type(self._memory) is not Promise:
            if self._memory is None:
                self._raise_deleted()
            dtype = dtypes.storage(self.aval.dtype)
            self._placement.memory_backend.copy_to_host_later(self._memory, self._pointer, self.aval.shape, dtype)

    def _address(self) -> int:
        """Return the address of the elements, contiguous, and cache it in `_pointer`."""
        if not self._placement.memory_backend.reads_host:
            return self.unsafe_buffer_pointer()
        array = self._value
        if type(array) is not np.ndarray or not array.flags.c_contiguous:  # a NumPy scalar has no address of its own
            array = self._buffer = np.ascontiguousarray(array).reshape(self.aval.shape)
        pointer: int = array.__array_interface__["data"][0]
        self._pointer = pointer
        return pointer

    # -- life cycle ------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Free the buffer; using the array afterwards is an error.

        >>> import weft.numpy as wnp
        >>> x = wnp.ones(2)
        >>> x.delete()
        >>> x.is_deleted()
        True
        """
        self._buffer = self._memory = None
        self._pointer = 0

    def _donate(self, location: Location | None) -> None:
        self.delete()
        self._donated_at = location

    def is_deleted(self) -> bool:
        """Return whether the memory was freed, by `delete` or by donating the array.

        Returns:
            A Python bool.

        >>> import weft.numpy as wnp
        >>> wnp.ones(2).is_deleted()
        False
        """
        return self._buffer is None and self._memory is None

    def block_until_ready(self) -> ConcreteArray:
        """Wait until the elements are computed; return the array.

        Returns:
            The array. An error of its computation is raised here.

        >>> import weft.numpy as wnp
        >>> wnp.ones(2).block_until_ready()
        Array([1., 1.], dtype=float32)
        """
        memory = self._memory
        if memory is None and self._buffer is None:
            self._raise_deleted()
        if type(memory) is Promise:
            self._settle(memory)
        else:
            self._placement.memory_backend.wait(memory)
        return self

    def is_ready(self) -> bool:
        """Return whether the elements are computed."""
        memory = self._memory
        if type(memory) is Promise:
            return memory.job.is_done()
        return not self.is_deleted() and self._placement.memory_backend.is_ready(memory)

    # -- where it lives --------------------------------------------------------------------------------------------

    def devices(self) -> set[Device]:
        """Return the device, as a set.

        Returns:
            A set of `Device`s.

        >>> import weft
        >>> import weft.numpy as wnp
        >>> wnp.ones(2).devices() == {weft.devices()[0]}
        True
        """
        return {self._placement.device}

    @property
    def device(self) -> Device:
        """Device whose memory the elements are in.

        Returns:
            A `Device`.

        >>> import weft
        >>> import weft.numpy as wnp
        >>> wnp.ones(2).device == weft.devices()[0]
        True
        """
        return self._placement.device

    @property
    def sharding(self) -> SingleDeviceSharding:
        return self._placement.sharding

    @property
    def committed(self) -> bool:
        """Flag of arrays that were put on their device explicitly: computations with them run there."""
        return self._placement.committed

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def addressable_data(self, index: int) -> ConcreteArray:
        """Return the shard of the array on one device of this process.

        Args:
            index: which of its devices.

        Returns:
            An array on one device.

        >>> import weft.numpy as wnp
        >>> wnp.ones(2).addressable_data(0)
        Array([1., 1.], dtype=float32)
        """
        result: ConcreteArray = self.addressable_shards[index].data
        return result

    @property
    def addressable_shards(self) -> list[Shard]:
        """The only shard: the whole array."""
        if self.is_deleted():
            self._raise_deleted()
        return [Shard(self.device, self.sharding, self.aval.shape, self)]

    @property
    def global_shards(self) -> list[Shard]:
        return self.addressable_shards

    def unsafe_buffer_pointer(self) -> int:
        if self._placement.memory_backend.reads_host:
            result: int = self._value.__array_interface__["data"][0]
            return result
        if self.is_deleted():
            self._raise_deleted()
        return self._pointer

    # -- shared with other libraries -------------------------------------------------------------------------------

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._placement.memory_backend.dlpack_device(self._placement.device)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Export the array.

        GPU memory is shared with consumers that cannot honour the read-only flag too, as is usual.
        """
        backend = self._placement.memory_backend
        if backend.reads_host:
            return super().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if self.is_deleted():
            self._raise_deleted()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if copy is False:
                raise BufferError("An array of a GPU must be copied to be read elsewhere; got copy=False.")
            return HeldArray.__dlpack__(self, max_version=max_version)  # of the host
        array = put(self, self._placement, may_alias=False) if copy else self
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        if isinstance(self.aval.dtype, dtypes.ExtendedDtype) or not is_exchanged(self.aval.dtype):
            raise BufferError(f"DLPack has no type for {dtypes.name(self.aval.dtype)}.")
        return to_device_capsule(
            array._pointer,
            self.aval.shape,
            self.aval.dtype,
            self.__dlpack_device__(),
            backend.lend(array._memory, stream),
            **({"max_version": (1, 0)} if versioned else {}),
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Description of an array on a GPU for Numba, CuPy and others."""
        dtype, backend = self.aval.dtype, self._placement.memory_backend
        if backend.dlpack_type != CUDA or not isinstance(dtype, np.dtype) or dtype.isbuiltin != 1:
            raise AttributeError(f"{self.aval.short()} on {self.device!r} has no __cuda_array_interface__")
        return {
            "shape": self.aval.shape,
            "typestr": dtype.str,
            "data": (self.unsafe_buffer_pointer(), True),
            "strides": None,
            "stream": backend.get_stream(self._placement.device),
            "version": 3,
        }

    def __reduce__(self) -> Any:
        return _rebuild, (np.asarray(self._value), self.aval)  # another process has other devices

    def __copy__(self) -> ConcreteArray:
        if not self._placement.memory_backend.reads_host:
            return put(self, self._placement, may_alias=False)
        return adopt_array(self._value, self.aval, self._placement)  # deleting one leaves the other

    def __deepcopy__(self, memo: Any) -> ConcreteArray:
        if not self._placement.memory_backend.reads_host:
            return put(self, self._placement, may_alias=False)
        return adopt_array(self._value.copy(), self.aval, self._placement)


class PlacedArray(ConcreteArray):
    """Array that is on another device than the first, or committed to its device."""

    __slots__ = ("_placement",)

    def __init__(
        self, buffer: np.ndarray | None, aval: ArrayType, memory: Allocation | None, pointer: int, placement: Placement
    ):
        super().__init__(buffer, aval, memory, pointer)
        self._placement = placement


def array_at(
    placement: Placement, buffer: np.ndarray | None, aval: ArrayType, memory: Allocation | None = None, pointer: int = 0
) -> ConcreteArray:
    """Return an array over memory of a device."""
    if placement is HOME:
        return ConcreteArray(buffer, aval, memory, pointer)
    return PlacedArray(buffer, aval, memory, pointer, placement)


def adopt_array(value: np.ndarray, aval: ArrayType, placement: Placement) -> ConcreteArray:
    """Return an array with the elements of a NumPy array that is never written again."""
    buffer, memory, pointer = placement.memory_backend.adopt(value, placement.device)
    return array_at(placement, buffer, aval, memory, pointer)


def put(array: ConcreteArray, placement: Placement, may_alias: bool = True) -> ConcreteArray:
    """Return the array with a placement: itself or a view if `may_alias` and on the same device, else a copy."""
    if array._placement.device is placement.device and may_alias:
        if array._placement is placement:
            return array
        if array.is_deleted():
            array._raise_deleted()
        return array_at(placement, array._buffer, array.aval, array._memory, array._pointer)
    if array._placement.memory_backend is not placement.memory_backend:
        return copy_array(array._value, array.aval, placement)
    buffer, memory, pointer = placement.memory_backend.copy_between(array, placement.device)
    return array_at(placement, buffer, array.aval, memory, pointer)


def _rebuild(buffer: np.ndarray, aval: ArrayType) -> ConcreteArray:
    return wrap(buffer, aval)


def wrap(buffer: Any, aval: ArrayType) -> ConcreteArray:
    """Return an array over a buffer that is never written again, on the default device."""
    return adopt_array(np.asarray(buffer), aval, default_placement())


def from_numpy(
    value: Any, weak_type: bool = False, copy: bool = True, placement: Placement | None = None
) -> ConcreteArray:
    """Convert NumPy or Python numbers to an array of canonical dtype with a placement (default: on the default device).

    The elements are copied by default, since NumPy arrays can change.
    """
    converted = conversion.canonical_array(value)
    aval = array_type(converted.shape, converted.dtype, weak_type)
    if config.transfer_guard_host_to_device != "allow" and context.trace is EVALUATION:  # else it is a constant
        check_transfer("host_to_device", aval.short())
    placement = default_placement() if placement is None else placement
    return (copy_array if copy and converted is value else adopt_array)(converted, aval, placement)


def copy_array(value: np.ndarray, aval: ArrayType, placement: Placement) -> ConcreteArray:
    """Return an array over a copy of a NumPy array."""
    buffer, memory, pointer = placement.memory_backend.copy_from_host(value, value.shape, placement.device)
    return array_at(placement, buffer, aval, memory, pointer)


def broadcast_copy(value: np.ndarray, aval: ArrayType, placement: Placement | None = None) -> ConcreteArray:
    """Return an array of a type with the elements of a NumPy array, broadcast to its shape.

    The memory is allocated as for results of programs (vectors do not straddle cache lines), at a placement (default:
    on the default device).
    """
    shape: Any = aval.shape
    placement = default_placement() if placement is None else placement
    buffer, memory, pointer = placement.memory_backend.copy_from_host(value, shape, placement.device)
    return array_at(placement, buffer, aval, memory, pointer)


def lift(value: Any, aval: ArrayType | None = None) -> ConcreteArray:
    """Convert a NumPy value or a Python number to an array; numbers are weakly typed. `aval` is its type, if known."""
    if aval is not None:
        return ConcreteArray(value, aval)
    found = get_aval(value)
    assert isinstance(found, ArrayType)
    converted = conversion.canonical_array(value)
    if converted is value and converted.flags.writeable:  # the caller may write to it later
        return copy_array(converted, found, default_placement())
    return adopt_array(converted, found, default_placement())
