"""Programs of the devices of PJRT plugins. The plugin compiles StableHLO, which `compiler/target/stablehlo` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.compile_options import CompileOptions
from weft.base.errors import InternalError, NotSupportedError
from weft.base.lazy import lazy
from weft.ir.at_sizes import JaxprAtSizes
from weft.ir.primitive import Primitive
from weft.runtime.limits import Limits
from weft.runtime.pjrt.devices import get_client
from weft.runtime.pjrt.plugins import PREFIX
from weft.sharding.device import Device

if TYPE_CHECKING:
    from weft.base.codegen import Source
    from weft.compiler.target import target as targets
    from weft.compiler.target.target import Target
    from weft.ir.jaxpr import Jaxpr
    from weft.ir.types import ArrayType
    from weft.runtime.array import ConcreteArray
    from weft.runtime.device import Placement
    from weft.runtime.pjrt import dispatch, executable as executable_module, spmd
else:
    targets = lazy("weft.compiler.target.target")
    dispatch = lazy("weft.runtime.pjrt.dispatch")
    executable_module = lazy("weft.runtime.pjrt.executable")
    spmd = lazy("weft.runtime.pjrt.spmd")

# Peak rates that are assumed: plugins tell none. They only order alternatives.
FLOPS, BANDWIDTH = 1e14, 1e12


class PjrtExecutionBackend:
    """Programs of the devices of one plugin."""

    has_flat_programs = False
    has_symbolic_sizes = False
    machine = "tpu_v5p"

    def __init__(self, platform: str) -> None:
        self.platform = platform
        # The name that `platform_dependent` has for it.
        self.kind = platform.removeprefix(PREFIX)

    def target(self, device: Device) -> Target:
        """Return a target that names the plugin with its version; it has nothing to generate code by."""
        client = get_client(device)
        return targets.Target(self.kind, "", client.platform_version, "", 128, toolchain=client.plugin.fingerprint)

    def limits(self, device: Device) -> Limits:
        """Return assumed rates: plugins do not tell the performance of their devices."""
        return Limits(1, FLOPS, ((1 << 62, BANDWIDTH),), source="assumed, since PJRT does not tell")

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: Sequence[bool],
        device: Device,
        options: CompileOptions,
        again: Callable[[], Any] | None = None,
        flat: str = "no",
    ) -> Any:
        """Compile a jaxpr, whose constants are arguments.

        Programs of one equation are compiled by their first call: eager operations on arrays are requested for their
        elements in a row, and buffers have shapes (`dispatch.eager_call`).
        """
        plain = jaxpr.plain() if isinstance(jaxpr, JaxprAtSizes) else jaxpr
        compilation = executable_module.PjrtCompilation(plain, donated, self.kind, options=options)
        where = get_client(device), device.local_hardware_id or 0
        executable = executable_module.PjrtExecutable(compilation, *where)
        if len(plain.eqns) != 1 or plain.eqns[0].primitive.higher_order:
            executable.prepare()
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
        """Compile a per-device jaxpr for the devices of a mesh."""
        if options.tests_values:
            raise NotSupportedError(
                "Programs on a mesh of a PJRT plugin must run without tests of their values.",
                received="debug_nans, debug_infs or checks='all'",
                fix="the same mesh of CPU devices, or one device of the plugin",
            )
        return spmd.PjrtDevicesExecutable(jaxpr, donated, sizes, devices, self.kind)

    def share_among_devices(
        self, parts: Any, owners: Sequence[int], arguments: Sequence[Any], results: Sequence[Any]
    ) -> Callable[..., list[tuple[bytes, Any]]]:
        """Raise: a plugin runs one replica on each device, so that `compile_for_devices` has refused more."""
        raise InternalError("Several parts on one device must have been refused.", stage="pjrt")

    def prefers_numpy(self, primitive: Primitive, large: bool) -> bool:
        """Return False: the operands are on the device."""
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
        return dispatch.write_call(source, executable, constants, leaves, donated, placement)
