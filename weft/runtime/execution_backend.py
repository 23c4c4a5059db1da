"""Interface to the programs of a platform: compile jaxprs for its devices, and call executables.

Executors and dispatchers use this; arrays do not, they need memory only (`memory_backend.py`). Each platform implements
it in its own folder, and `weft/runtime/__init__.py` registers it. Creating a backend loads neither the compiler nor
LLVM: the first compilation does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.base.compile_options import CompileOptions
from weft.ir.primitive import Primitive
from weft.runtime.registry import Registry
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler.compilation import Compilation
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.device import Placement
    from weft.runtime.limits import Limits
    from weft.runtime.reproducible import Cut


class Executable(Protocol):
    """Program that is compiled for the devices of one platform.

    `compilation` has its jaxprs, steps and the seconds of each stage, `compile_stats` the cost of its machine code.
    `has_tapes`: it takes or returns residuals of a loop, whose size is known at run time only. `holds_arguments`: a
    call may be repeated later, to find the failed check, and needs the arguments then. `asynchronous`: the last runs
    were long enough for `QueuedCall`.
    """

    compilation: Any
    compile_stats: list[Any]
    in_types: list[Any]
    out_types: list[Any]
    has_tapes: bool
    holds_arguments: bool
    asynchronous: bool

    @property
    def inside(self) -> Any:
        """Inspector of its code: an `Inside`."""
        ...

    def __call__(self, arrays: Sequence[Any], donate: Callable[[], None] | None, placement: Placement) -> list[Any]:
        """Run on arrays, and return arrays at a placement.

        `donate` is called before the memory of donated arguments is overwritten.
        """
        ...


class QueuedCall(Protocol):
    """Call an executable asynchronously; return None if this call has to be made synchronously.

    An empty `flying` means that no asynchronous call is in progress.
    """

    flying: Any

    def __call__(self, arrays: tuple[ConcreteArray, ...]) -> list[ConcreteArray] | None: ...


class ExecutionBackend(Protocol):
    """Programs of the devices of a platform.

    `has_flat_programs`: one executable of an elementwise operation runs on arrays of any length.
    `has_symbolic_sizes`: one executable of a program runs for all values of symbolic sizes. `machine`: the description
    in `weft.plan` that searches for shardings use for these devices.
    """

    platform: str
    has_flat_programs: bool
    has_symbolic_sizes: bool
    machine: str

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
        options: CompileOptions,
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
        options: CompileOptions,
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

    def share_among_devices(
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


execution_backends: Registry[ExecutionBackend] = Registry("execution backend")


def execution_backend(device: Device) -> ExecutionBackend:
    """Return the execution backend of a device, loading it on first use."""
    return execution_backends.get(device.platform)
