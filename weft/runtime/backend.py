"""How the devices of a platform allocate and copy memory, compile and run programs, and are waited for.

Everything above asks the backend of a device and knows no platform by name. The CPU's is in `runtime/cpu/`. Asking for
a backend loads neither the compiler nor LLVM: those are loaded with the first program that is compiled.
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
    """Memory of a device. It is freed when nobody refers to it any more."""

    address: int


class DeviceMemory(Protocol):
    """The allocator of a device."""

    def allocate(self, size: int) -> tuple[int, Allocation]:
        """Memory for so many bytes: an address, and the allocation that it is in."""
        ...

    def clear(self) -> None:
        """Give free memory that is pooled back to the system."""
        ...

    def statistics(self) -> dict[str, int] | None:
        """How much of it is used for what; None where nobody counts."""
        ...


# The memory of an array: a NumPy array, where that is what the device reads; or an allocation and an address in it.
Buffer = tuple[np.ndarray | None, Any, int]


class QueuedCall(Protocol):
    """Calls of an executable that return before it has run; or None if the call is to be made in the ordinary way.
    While `flying` is empty nothing is computed that was not waited for."""

    flying: Any

    def __call__(self, arrays: tuple[ConcreteArray, ...]) -> list[ConcreteArray] | None: ...


class Backend(Protocol):
    """What a platform can do.

    `reads_host`: programs take NumPy arrays as they are, and the host reads the memory of devices. `has_flat_programs`:
    operations outside of programs have code for arrays of every length.
    """

    platform: str
    reads_host: bool
    has_flat_programs: bool

    # -- memory ----------------------------------------------------------------------------------------------------

    def memory(self, device: Device) -> DeviceMemory:
        """The allocator of a device."""
        ...

    def adopt(self, value: np.ndarray, device: Device) -> Buffer:
        """The elements of a NumPy array that nobody will write, as memory of a device: without a copy if the device
        reads the memory of the host."""
        ...

    def copy_from_host(self, value: np.ndarray, shape: tuple[Any, ...], device: Device) -> Buffer:
        """A copy of a NumPy array in the memory of a device, broadcast to a shape."""
        ...

    def copy_to_host(self, memory: Any, address: int, shape: Any, dtype: np.dtype) -> np.ndarray:
        """The elements at an address of an allocation as a NumPy array that nobody may write: a view where the host
        reads the memory of the device."""
        ...

    def copy_between(self, array: ConcreteArray, device: Device) -> Buffer:
        """A copy of an array of one device of the platform in the memory of another, or of the same."""
        ...

    def scatter(self, value: np.ndarray, layout: Layout) -> tuple[bytes, Any]:
        """Copies of the parts of a NumPy array on the devices of a layout: their addresses, and the allocations that
        they are in: a list if each part has one that nothing else is in, else one for all or a tuple."""
        ...

    def gather(self, addresses: bytes, layout: Layout) -> tuple[np.ndarray, Any]:
        """The parts at these addresses as a NumPy array that nobody may write, and what its memory is in, if it can be
        used again."""
        ...

    def copy_to_host_later(self, memory: Any, address: int, shape: Any, dtype: np.dtype) -> None:
        """Have `copy_to_host` of the same find a copy that was begun now, where it would copy."""
        ...

    def donated_memory(self, array: ConcreteArray) -> Any:
        """An allocation with the elements of a donated array, for a program to overwrite: that of the array if nobody
        else can see it, else a copy."""
        ...

    def takes_donated(self, size: int) -> bool:
        """Whether programs take over the memory of donated arguments of so many bytes. Others are only deleted."""
        ...

    def devices_changed(self) -> None:
        """Devices have other ids than before, since this process has become one of several."""
        ...

    # -- memory that is shared with other libraries -----------------------------------------------------------------

    def dlpack_device(self, device: Device) -> tuple[int, int]:
        """What a device is called in DLPack: its type and its index."""
        ...

    def stream_of(self, device: Device) -> int | None:
        """The stream in which work of a device is started; None where there are none."""
        ...

    def lend(self, memory: Any, stream: int | None) -> Any:
        """An object that has memory for another library, whose work is in a stream; it is returned when the object is
        deleted."""
        ...

    def borrow(self, value: np.ndarray, device: Device) -> Buffer:
        """The memory of another library at the address of a contiguous array, or a copy where it has to be one."""
        ...

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, memory: Any) -> None:
        """Block until all that was started and writes to an allocation has ended."""
        ...

    def is_ready(self, memory: Any) -> bool:
        """Whether `wait` would return at once."""
        ...

    # -- programs --------------------------------------------------------------------------------------------------

    def target(self, device: Device) -> Target:
        """The machine that programs for a device are compiled for."""
        ...

    def limits(self, device: Device) -> Limits:
        """What a device can do at best."""
        ...

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        again: Callable[[], Executable] | None = None,
        flat: str = "no",
    ) -> Executable:
        """The jaxpr, whose constants are arguments, as an executable in memory. With `again` it has one flag for all
        its checks, and that is the one with traps, which tells what was found. A `flat` one is for arrays of any
        length."""
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
        """A local jaxpr as an executable for the devices of a mesh whose axes have these sizes: a function of the
        addresses of each argument's parts, the allocations of donated ones and the placements of the devices, that
        returns the addresses of each result's parts and the allocations that they are in. These are of the devices of
        this process. Where there are others, all their processes call it, in a section of their `agreement`. With
        `compilation` its steps are known, and the jaxpr only says types."""
        ...

    def shared_by_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Cut], results: Sequence[Cut]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """What `compile_for_devices` has returned for more parts than there are devices, as a function of the parts of
        devices: `owners` has the device of each part, by its index among those of this process."""
        ...

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        """Whether NumPy is to compute an operation outside of programs, where its results have the same bits. `large`
        says that its operands are so large that compiling pays."""
        ...

    def eager_call(
        self,
        executable: Executable,
        types: Sequence[ArrayType],
        results: Sequence[ArrayType],
        placement: Placement,
        length: int | None = None,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """A function of arrays of `types` (or NumPy arrays of their storage) that runs the executable of one operation
        and returns arrays of `results` at a placement. `length` is that of this call of a flat executable."""
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
        """Write the part of a dispatcher that runs an executable. The arguments are `constants` and the arrays that are
        under the names `leaves`, of which some are donated. Returns an expression for each result, an array at a
        placement."""
        ...

    def queued_call(
        self,
        executable: Executable,
        constants: Sequence[ConcreteArray],
        donated: Sequence[bool],
        placement: Placement,
    ) -> QueuedCall | None:
        """What calls an executable without waiting for it, where calls as `write_call` writes them do wait; None if
        nothing does, or need not."""
        ...


_loaders: dict[str, Callable[[], Backend]] = {}
_loaded: dict[str, Backend] = {}


def register(platform: str, load: Callable[[], Backend]) -> None:
    """Have the backend of a platform made by a function, when it is first asked for."""
    _loaders[platform] = load


def platforms() -> list[str]:
    """The platforms that have a backend."""
    return list(_loaders)


def backend_of(device: Device) -> Backend:
    """The backend that a device belongs to."""
    found = _loaded.get(device.platform)
    if found is None:
        load = _loaders.get(device.platform)
        if load is None:
            what = f"There is no backend for {device!r}."
            raise ArgumentError(what, received=device.platform, fix=f"devices are on: {', '.join(_loaders)}")
        found = _loaded.setdefault(device.platform, load())  # two threads that ask first get the same
    return found
