"""Programs of CPU devices: they run in the calling thread and one thread pool.

The compiler, LLVM and the executors are loaded at the first use: NumPy computes most eager operations without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.compile_options import CompileOptions
from weft.base.lazy import lazy
from weft.ir.primitive import Primitive
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Reduction
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler.compilation import Compilation
    from weft.compiler.target.cpu import targets
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.cpu import (
        dispatch,
        executable as executable_module,
        launch,
        limits as peak,
        queue,
        shares,
        spmd,
        tuning,
    )
    from weft.runtime.cpu.executable import Executable
    from weft.runtime.device import Placement
    from weft.runtime.limits import Limits
    from weft.runtime.reproducible import Cut
else:
    targets = lazy("weft.compiler.target.cpu.targets")
    dispatch = lazy("weft.runtime.cpu.dispatch")
    executable_module = lazy("weft.runtime.cpu.executable")
    launch = lazy("weft.runtime.cpu.launch")
    peak = lazy("weft.runtime.cpu.limits")
    queue = lazy("weft.runtime.cpu.queue")
    shares = lazy("weft.runtime.cpu.shares")
    spmd = lazy("weft.runtime.cpu.spmd")
    tuning = lazy("weft.runtime.cpu.tuning")


class CpuExecutionBackend:
    """Programs of the CPU devices of this process: all are of one machine, and share their code."""

    platform = "cpu"
    has_flat_programs = True
    has_symbolic_sizes = True
    machine = "cpu"

    def target(self, device: Device) -> Target:
        """Return the host as a compilation target."""
        return targets.host()

    def limits(self, device: Device) -> Limits:
        """Return the peak performance of the threads that programs may use now."""
        return peak.limits()

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        options: CompileOptions,
        again: Callable[[], Any] | None = None,
        flat: str = "no",
    ) -> Executable:
        """Compile a jaxpr, whose constants are arguments."""
        return executable_module.compile_executable(
            jaxpr,
            donated,
            self.target(device),
            options,
            again,
            flat,
            tune=lambda fused, target: tuning.tune(fused, target),
        )

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
        """Compile a per-device jaxpr for the devices of a mesh."""
        target = self.target(devices[0])
        return spmd.DevicesExecutable(jaxpr, donated, sizes, devices, target, options, agreement, compilation)

    def share_among_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Cut], results: Sequence[Cut]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """Adapt an executable of more parts than devices to the devices that share them."""
        return shares.SharedExecutable(parts, owners, arguments, results)

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        """Return True except for large maps and reductions: NumPy is as fast otherwise, and needs no compiler."""
        return not (large and isinstance(primitive, (Elementwise, Reduction)))

    def eager_call(
        self,
        executable: Any,
        types: Sequence[ArrayType],
        results: Sequence[ArrayType],
        placement: Placement,
        length: int | None = None,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a function of arrays that runs the executable of one operation."""
        return launch.eager_call(executable, types, results, placement, length)

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

    def queued_call(
        self,
        executable: Any,
        constants: Sequence[ConcreteArray],
        donated: Sequence[bool],
        placement: Placement,
    ) -> queue.QueuedCall | None:
        """Return a function of arrays that enqueues the executable, or None if it may not run in the queue."""
        if not queue.QueuedCall.can_be(executable):
            return None
        return queue.QueuedCall(executable, constants, donated, placement)
