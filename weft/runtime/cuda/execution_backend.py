"""Programs of NVIDIA GPUs. The compiler and the executors are loaded at the first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.base import collector
from weft.base.compile_options import CompileOptions
from weft.base.errors import NotSupportedError
from weft.base.lazy import lazy
from weft.ir.at_sizes import JaxprAtSizes
from weft.ir.primitive import Primitive
from weft.runtime.memory_backend import memory_backend
from weft.sharding.device import Device, first_local_device

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler import load
    from weft.compiler.target.cuda import targets
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.cuda import dispatch, executable as executable_module, inside, spmd
    from weft.runtime.cuda.libraries import early
    from weft.runtime.cuda.memory import CudaMemory
    from weft.runtime.device import Placement
    from weft.runtime.limits import Limits
else:
    load = lazy("weft.compiler.load")
    targets = lazy("weft.compiler.target.cuda.targets")
    dispatch = lazy("weft.runtime.cuda.dispatch")
    executable_module = lazy("weft.runtime.cuda.executable")
    inside = lazy("weft.runtime.cuda.inside")
    early = lazy("weft.runtime.cuda.libraries.early")
    spmd = lazy("weft.runtime.cuda.spmd")


def get_memory(device: Device) -> CudaMemory:
    """Return the allocator of a GPU."""
    allocator: Any = memory_backend(device).memory(device)
    memory: CudaMemory = allocator
    return memory


def get_driver(device: Device) -> Any:
    """Return the driver of a GPU."""
    return get_memory(device).driver


class CudaExecutionBackend:
    """Programs of the GPUs of this process."""

    platform = "gpu"
    has_flat_programs = False
    has_symbolic_sizes = False
    machine = "h100"

    def target(self, device: Device) -> Target:
        driver = get_driver(device)
        return targets.of_capability(*driver.capability, driver.library_names)

    def limits(self, device: Device) -> Limits:
        """Return the peak performance of the GPU by its clock rates."""
        return inside.get_limits(get_driver(device))

    @collector.without_collection
    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        options: CompileOptions,
        again: Callable[[], Any] | None = None,
        flat: str = "no",
    ) -> Any:
        flags = tuple(donated) or (False,) * len(jaxpr.invars)
        # Kernels are for one size each.
        plain = jaxpr.plain() if isinstance(jaxpr, JaxprAtSizes) else jaxpr
        driver = get_driver(device)

        def prepare(fused: Jaxpr, target: Target) -> None:
            early.prepare_early(driver, fused)

        compilation = load.load_or_compile(plain, flags, self.target(device), options, again is not None, prepare)
        executable = executable_module.CudaExecutable(compilation, again)
        executable.load(get_memory(device))
        return executable

    def compile_for_devices(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        sizes: Mapping[Any, int],
        devices: Sequence[Device],
        options: CompileOptions,
        agreement: Any,
        compilation: Any = None,
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        target = self.target(first_local_device(devices))
        return spmd.CudaDevicesExecutable(jaxpr, donated, sizes, devices, target, options, agreement, compilation)

    def share_among_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Any], results: Sequence[Any]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        raise NotSupportedError(
            "The setting `reproducible` cannot have more parts than GPUs yet.",
            fix="weft.config.update('reproducible', 0), or a mesh of CPU devices",
        )

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
        """Return a function of arrays that runs the executable of one operation."""
        return dispatch.eager_call(executable, types, results, placement)

    def queued_call(self, executable: Any, constants: Any, donated: Any, placement: Placement) -> None:
        """Return None: no call waits for its results."""

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
        return dispatch.CallWriter(source, executable, placement).write(constants, leaves, donated)
